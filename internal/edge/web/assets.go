package web

import (
	"slices"
	"strings"

	servov1 "go.arco.dev/servo/gen/servo/v1"
	"go.arco.dev/servo/internal/base/fault"
	"go.arco.dev/servo/internal/domain/access"
	"go.arco.dev/servo/internal/edge/web/view"
)

// assetRoutes are the pages of assets.
func (s *Web) assetRoutes() {
	s.show("/assets", s.assets)
	s.show("/tenants/{tenant}/assets/{namespace}/{name}", s.asset)
	s.act("/tenants/{tenant}/assets/{namespace}/{name}/pause", s.pauseAsset)
	s.act("/tenants/{tenant}/assets/{namespace}/{name}/resume", s.resumeAsset)
}

const (
	assetsOfPage = 100
	assetPages   = 10  // read for the lineage or for a text
	foundAssets  = 200 // listed of those with a text
)

// chooseTenant asks for the tenant of a page.
func (s *Web) chooseTenant(v *visit, title, section, text, path string) (view.Page, error) {
	m := view.ChooseModel{Title: title, Text: text, Path: path}
	list, err := s.api.tenants.ListTenants(v.ctx, &servov1.ListTenantsRequest{PageSize: rowsOfList, PageToken: v.token()})
	if err != nil {
		return view.Page{}, err
	}
	for _, t := range list.GetTenants() {
		m.Tenants = append(m.Tenants, t.GetName())
	}
	m.Paging = v.paging(list.GetNextPageToken())
	return view.Page{Title: title, Section: section, Body: view.Choose(m)}, nil
}

// workspaces are the names of the workspaces to select from; none for a visitor of one workspace.
// The page works without them.
func (s *Web) workspaces(v *visit) []string {
	if v.scope.WorkspaceFixed || !v.may(access.TenantRead) {
		return nil
	}
	list, err := s.api.tenants.ListWorkspaces(v.ctx, &servov1.ListWorkspacesRequest{Tenant: v.scope.Tenant})
	if err != nil {
		return nil
	}
	var names []string
	for _, w := range list.GetWorkspaces() {
		names = append(names, w.GetName())
	}
	return names
}

// assets is the catalogue of a workspace, as a list or as the lineage.
func (s *Web) assets(v *visit) (view.Page, error) {
	if v.scope.Tenant == "" {
		return s.chooseTenant(v, "Assets", "assets", "Each tenant has its own assets.", "/ui/assets")
	}
	m := view.AssetsModel{
		Scope: v.scope, Workspaces: s.workspaces(v), Select: v.query("select"), Text: v.query("q"), Graph: v.query("view") == "graph",
		Paging: v.paging(""), ListAt: v.with("view", ""), GraphAt: v.with("view", "graph"),
	}
	page := view.Page{Title: "Assets", Section: "assets", Script: "graph.js"}
	err := s.fillAssets(v, &m)
	_, doc := docOf(err)
	switch {
	case hasCode(err, fault.InvalidArgument) && strings.HasPrefix(doc.Field, "select"):
		m.Invalid = doc.Message + ": " + doc.Remedy
	case hasCode(err, fault.NotFound) && doc.Field == "workspace":
		m.Missing = doc.Message
	case err != nil:
		return view.Page{}, err
	}
	page.Live = m.First && !m.More
	page.Body = view.Assets(m)
	return page, nil
}

func (s *Web) fillAssets(v *visit, m *view.AssetsModel) error {
	req := &servov1.ListAssetsRequest{Tenant: v.scope.Tenant, Workspace: v.scope.Workspace, Select: expressions(m.Select), PageSize: assetsOfPage, PageToken: v.token()}
	if !m.Graph && m.Text == "" {
		list, err := s.api.assets.ListAssets(v.ctx, req)
		m.Assets, m.Paging = list.GetAssets(), v.paging(list.GetNextPageToken())
		return err
	}
	req.PageToken = ""
	all, more, err := s.manyAssets(v, req)
	if err != nil {
		return err
	}
	all = slices.DeleteFunc(all, func(a *servov1.Asset) bool { return !view.AssetHas(a, m.Text) })
	m.More = more
	if m.Graph {
		m.Lineage = view.LineageOf(v.scope, all)
		m.Lineage.Sparse = v.isLive()
		return nil
	}
	m.Cut = max(0, len(all)-foundAssets)
	m.Assets = all[:len(all)-m.Cut]
	return nil
}

func expressions(text string) []string {
	if text == "" {
		return nil
	}
	return []string{text}
}

// manyAssets reads the first pages of a list of assets.
func (s *Web) manyAssets(v *visit, req *servov1.ListAssetsRequest) (all []*servov1.Asset, more bool, err error) {
	for range assetPages {
		list, err := s.api.assets.ListAssets(v.ctx, req)
		if err != nil {
			return nil, false, err
		}
		all = append(all, list.GetAssets()...)
		if list.GetNextPageToken() == "" {
			return all, false, nil
		}
		req.PageToken = list.GetNextPageToken()
	}
	return all, true, nil
}

// assetKey is the key of the asset in the address.
func (v *visit) assetKey() string { return v.PathValue("namespace") + "/" + v.PathValue("name") }

// asset is one asset.
func (s *Web) asset(v *visit) (view.Page, error) {
	key := v.assetKey()
	found, err := s.api.assets.GetAsset(v.ctx, &servov1.GetAssetRequest{Tenant: v.scope.Tenant, Workspace: v.scope.Workspace, Asset: key})
	if err != nil {
		return view.Page{}, err
	}
	m := view.AssetModel{Scope: v.scope, Asset: found, MayPause: v.may(access.ConfigsOperate), Neighbours: view.NeighboursOf(v.scope, found)}
	if m.Pipelines, err = s.pipelinesWith(v, found); err != nil {
		return view.Page{}, err
	}
	m.Neighbours.Sparse = v.isLive()
	return view.Page{Title: key, Section: "assets", Live: true, Rarely: true, Script: "graph.js", Body: view.Asset(m)}, nil
}

// kin are the assets of a selection.
func (s *Web) kin(v *visit, selection string) ([]*servov1.Asset, error) {
	all, _, err := s.manyAssets(v, &servov1.ListAssetsRequest{Tenant: v.scope.Tenant, Workspace: v.scope.Workspace, Select: []string{selection}, PageSize: assetsOfPage})
	return all, err
}

// pipelinesWith are the pipelines that contain an asset, each with its last run.
func (s *Web) pipelinesWith(v *visit, a *servov1.Asset) ([]view.PipelineRow, error) {
	list, err := s.api.assets.ListPipelines(v.ctx, &servov1.ListPipelinesRequest{Tenant: v.scope.Tenant, Workspace: v.scope.Workspace, PageSize: 100})
	if err != nil {
		return nil, err
	}
	family := view.Family{Self: a}
	if slices.ContainsFunc(list.GetPipelines(), view.SelectsKin) {
		// A pipeline may select the asset by an upstream or a downstream asset.
		if family.Upstream, err = s.kin(v, "+"+a.GetKey()); err != nil {
			return nil, err
		}
		if family.Downstream, err = s.kin(v, a.GetKey()+"+"); err != nil {
			return nil, err
		}
	}
	const most, withRun = 20, 5
	var rows []view.PipelineRow
	for _, p := range list.GetPipelines() {
		if len(rows) == most || !family.In(p.GetSelect()) {
			continue
		}
		row := view.PipelineRow{Pipeline: p}
		if len(rows) < withRun && v.may(access.RunsRead) {
			runs, err := s.api.runs.ListRuns(v.ctx, &servov1.ListRunsRequest{Tenant: v.scope.Tenant, Workspace: v.scope.Workspace, Pipeline: p.GetName(), PageSize: 1})
			if err == nil && len(runs.GetRuns()) > 0 {
				row.Last = runs.GetRuns()[0]
			}
		}
		rows = append(rows, row)
	}
	return rows, nil
}

func (s *Web) pauseAsset(v *visit) (done, error) {
	key := v.assetKey()
	_, err := s.api.assets.PauseAsset(v.ctx, &servov1.PauseAssetRequest{Tenant: v.scope.Tenant, Workspace: v.scope.Workspace, Asset: key, Reason: v.field("reason")})
	return done{To: view.AssetPath(v.scope.Tenant, v.scope.Workspace, key), Notice: "Asset paused. New tasks of " + key + " wait."}, err
}

func (s *Web) resumeAsset(v *visit) (done, error) {
	key := v.assetKey()
	answer, err := s.api.assets.ResumeAsset(v.ctx, &servov1.ResumeAssetRequest{Tenant: v.scope.Tenant, Workspace: v.scope.Workspace, Asset: key, Reason: v.field("reason")})
	notice := "Asset resumed."
	if !answer.GetWasPaused() {
		notice = "The asset was not paused."
	}
	return done{To: view.AssetPath(v.scope.Tenant, v.scope.Workspace, key), Notice: notice}, err
}
