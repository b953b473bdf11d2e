package api

import (
	"context"
	"slices"
	"strings"

	"github.com/google/uuid"

	servov1 "go.arco.dev/servo/gen/servo/v1"
	"go.arco.dev/servo/internal/base/fault"
	"go.arco.dev/servo/internal/base/id"
	"go.arco.dev/servo/internal/domain/access"
	"go.arco.dev/servo/internal/edge/intercept"
	"go.arco.dev/servo/internal/store"
)

const (
	// foundOfKind bounds the objects of each kind in an answer.
	foundOfKind = 5
	// searchedWorkspaces bounds the workspaces whose pipelines and assets are searched.
	searchedWorkspaces = 20
	// searchedTenants bounds the tenants whose pipelines and assets a search of all tenants covers.
	searchedTenants = 20
)

// searchService implements servo.v1.SearchService.
type searchService struct{ *Server }

// readBy returns the call that reads objects of a kind. Search hides objects from callers that may not
// make that call.
func readBy(kind string) string {
	switch kind {
	case store.KindRun:
		return servov1.RunService_GetRun_FullMethodName
	case store.KindTask:
		return servov1.TaskService_ListTasks_FullMethodName
	case store.KindConfig:
		return servov1.ConfigService_ListConfigs_FullMethodName
	case store.KindDeployment:
		return servov1.DeploymentService_GetDeployment_FullMethodName
	case store.KindWorkspace:
		return servov1.TenantService_ListWorkspaces_FullMethodName
	case store.KindEvent:
		return servov1.EventService_GetEvent_FullMethodName
	case store.KindAlert:
		return servov1.AlertService_GetAlert_FullMethodName
	case store.KindChannel:
		return servov1.AlertService_ListAlertChannels_FullMethodName
	case store.KindSubscription:
		return servov1.SubscriptionService_GetSubscription_FullMethodName
	case store.KindKey:
		return servov1.KeyService_ListKeys_FullMethodName
	case store.KindTemplate:
		return servov1.TemplateService_ListTemplates_FullMethodName
	case store.KindTenant:
		return servov1.TenantService_GetTenant_FullMethodName
	case store.KindLock:
		return servov1.LockService_ListLocks_FullMethodName
	case kindPipeline:
		return servov1.AssetService_ListPipelines_FullMethodName
	case kindAsset:
		return servov1.AssetService_ListAssets_FullMethodName
	case kindPool:
		return servov1.PoolService_ListPools_FullMethodName
	}
	return ""
}

// Kinds that the store does not search.
const (
	kindPipeline = "pipeline"
	kindAsset    = "asset"
	kindPool     = "pool"
)

// Search implements servov1.SearchServiceServer.
func (s searchService) Search(ctx context.Context, req *servov1.SearchRequest) (*servov1.SearchResponse, error) {
	text := strings.TrimSpace(req.GetQ())
	if text == "" {
		return nil, fault.New(fault.InvalidArgument, "is empty", fault.Field("q"), fault.Remedy("send an id, or a part of a name"))
	}
	tenant, err := s.ownerOrAll(ctx, req.GetTenant())
	if err != nil {
		return nil, err
	}
	var found []store.Found
	answer := &servov1.SearchResponse{}
	if isID(text) {
		if found, err = s.store.FindByID(ctx, tenant, uuid.MustParse(text)); err != nil {
			return nil, err
		}
	} else {
		if answer.Partial, err = s.partial(ctx, tenant); err != nil {
			return nil, err
		}
		if found, err = s.byName(ctx, tenant, req.GetWorkspace(), text); err != nil {
			return nil, err
		}
	}
	if answer.Cut, err = s.more(ctx, tenant, found, text); err != nil {
		return nil, err
	}
	for _, f := range found {
		shown, err := s.foundToProto(ctx, f)
		if err != nil {
			return nil, err
		}
		if s.mayFind(ctx, req, shown) {
			answer.Found = append(answer.Found, shown)
		}
	}
	return answer, nil
}

// more reports whether configs that may match were not searched.
func (s searchService) more(ctx context.Context, tenant id.Tenant, found []store.Found, text string) (bool, error) {
	configs := 0
	for _, f := range found {
		if f.Kind == store.KindConfig {
			configs++
		}
	}
	if configs >= foundOfKind || isID(text) {
		return false, nil
	}
	return s.store.MoreConfigs(ctx, tenant)
}

// isID reports whether a text is an id.
func isID(text string) bool {
	_, err := uuid.Parse(text)
	return err == nil && len(text) == len(uuid.Nil.String())
}

// mayFind reports whether the caller may read an object, and whether it matches the request.
func (s searchService) mayFind(ctx context.Context, req *servov1.SearchRequest, f *servov1.Found) bool {
	if req.GetWorkspace() != "" && f.GetWorkspace() != req.GetWorkspace() {
		return false
	}
	m, known := s.Method(readBy(f.GetKind()))
	caller := intercept.Caller(ctx)
	return known && caller.Reaches(f.GetWorkspace()) && caller.May(m, access.Request{Tenant: f.GetTenant(), Workspace: f.GetWorkspace()}) == nil
}

func (s searchService) foundToProto(ctx context.Context, f store.Found) (*servov1.Found, error) {
	out := &servov1.Found{Kind: f.Kind, Name: f.Name, Workspace: f.Workspace, State: f.State}
	if f.ID != uuid.Nil {
		out.Id = f.ID.String()
	}
	if f.Public != "" {
		out.Id = f.Public
	}
	if f.Run != (id.Run{}) {
		out.Run = f.Run.String()
	}
	if f.Tenant == (id.Tenant{}) {
		return out, nil
	}
	var err error
	out.Tenant, err = s.tenants.Name(ctx, f.Tenant)
	return out, err
}

// byName finds objects with a text in their names: of one tenant, or of the installation.
func (s searchService) byName(ctx context.Context, tenant id.Tenant, workspace, text string) ([]store.Found, error) {
	looks := []func() ([]store.Found, error){
		func() ([]store.Found, error) { return s.store.FindConfigs(ctx, tenant, workspace, text, foundOfKind) },
		func() ([]store.Found, error) { return s.store.FindKeys(ctx, tenant, text, foundOfKind) },
	}
	if tenant == (id.Tenant{}) {
		looks = append(looks,
			func() ([]store.Found, error) { return s.store.FindTenants(ctx, text, foundOfKind) },
			func() ([]store.Found, error) { return s.findPools(ctx, text) },
			func() ([]store.Found, error) { return s.findDeployedAnywhere(ctx, workspace, text) })
	} else {
		looks = append(looks,
			func() ([]store.Found, error) { return s.findDeployed(ctx, tenant, workspace, text) },
			func() ([]store.Found, error) { return s.store.FindLocks(ctx, tenant, workspace, text, foundOfKind) })
	}
	var found []store.Found
	for _, look := range looks {
		some, err := look()
		if err != nil {
			return nil, err
		}
		found = append(found, some...)
	}
	return found, nil
}

// has reports whether a name contains a text, ignoring case.
func has(name, text string) bool {
	return strings.Contains(strings.ToLower(name), strings.ToLower(text))
}

func (s searchService) findPools(ctx context.Context, text string) (found []store.Found, err error) {
	pools, err := s.store.Pools(ctx)
	for _, p := range pools {
		if has(p.Name, text) && len(found) < foundOfKind {
			found = append(found, store.Found{Kind: kindPool, Name: p.Name})
		}
	}
	return found, err
}

// partial reports whether a search leaves out the pipelines, assets or locks of some tenants.
func (s searchService) partial(ctx context.Context, tenant id.Tenant) (bool, error) {
	if tenant != (id.Tenant{}) {
		return false, nil
	}
	tenants, err := s.store.ListTenants(ctx, "", searchedTenants+1)
	return len(tenants) > searchedTenants, err
}

// findDeployedAnywhere finds pipelines and assets in the first tenants by name.
func (s searchService) findDeployedAnywhere(ctx context.Context, workspace, text string) (all []store.Found, err error) {
	tenants, err := s.store.ListTenants(ctx, "", searchedTenants)
	if err != nil {
		return nil, err
	}
	count := map[string]int{}
	for _, t := range tenants {
		found, err := s.findDeployed(ctx, t.ID, workspace, text)
		if err != nil {
			return nil, err
		}
		for _, f := range found {
			if count[f.Kind]++; count[f.Kind] <= foundOfKind {
				all = append(all, f)
			}
		}
		if count[kindPipeline] >= foundOfKind && count[kindAsset] >= foundOfKind {
			break
		}
	}
	return all, nil
}

// findDeployed finds pipelines and assets in the active deployments of a tenant.
func (s searchService) findDeployed(ctx context.Context, tenant id.Tenant, workspace, text string) ([]store.Found, error) {
	workspaces, err := s.store.ListWorkspaces(ctx, tenant)
	if err != nil {
		return nil, err
	}
	workspaces = slices.DeleteFunc(workspaces, func(w store.WorkspaceView) bool {
		return w.Active == nil || workspace != "" && w.Name != workspace
	})
	var pipelines, assets []store.Found
	for _, w := range workspaces[:min(len(workspaces), searchedWorkspaces)] {
		d, err := s.manifests.of(ctx, tenant, *w.Active)
		if err != nil {
			return nil, err
		}
		for _, p := range d.manifest.Pipelines {
			if has(p.Name, text) && len(pipelines) < foundOfKind {
				pipelines = append(pipelines, store.Found{Kind: kindPipeline, Name: p.Name, Tenant: tenant, Workspace: w.Name})
			}
		}
		for _, a := range d.manifest.Assets {
			if has(a.Key, text) && len(assets) < foundOfKind {
				assets = append(assets, store.Found{Kind: kindAsset, Name: a.Key, Tenant: tenant, Workspace: w.Name})
			}
		}
	}
	return append(pipelines, assets...), nil
}
