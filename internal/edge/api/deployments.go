package api

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"google.golang.org/protobuf/types/known/structpb"

	servov1 "go.arco.dev/servo/gen/servo/v1"
	"go.arco.dev/servo/internal/base/canon"
	"go.arco.dev/servo/internal/base/fault"
	"go.arco.dev/servo/internal/base/id"
	"go.arco.dev/servo/internal/domain/asset"
	"go.arco.dev/servo/internal/edge/intercept"
	"go.arco.dev/servo/internal/store"
)

// deploymentService implements servo.v1.DeploymentService.
type deploymentService struct{ *Server }

// warnOfWorkers adds warnings about assets that no live worker can run.
func (s deploymentService) warnOfWorkers(ctx context.Context, manifest *asset.Manifest, answer *servov1.DeployResponse) error {
	warnings, err := s.engine.WorkerWarnings(ctx, manifest)
	for _, w := range warnings {
		answer.WorkerWarnings = append(answer.WorkerWarnings, &servov1.WorkerWarning{
			Pool: w.Pool, Capabilities: w.Capabilities, Assets: w.Assets, Message: w.Message, Remedy: w.Remedy,
		})
	}
	return err
}

// Deploy implements servov1.DeploymentServiceServer.
func (s deploymentService) Deploy(ctx context.Context, req *servov1.DeployRequest) (*servov1.DeployResponse, error) {
	tenant, err := s.tenants.ID(ctx, req.GetTenant())
	if err != nil {
		return nil, err
	}
	manifest, err := manifestOf(req)
	if err != nil {
		return nil, err
	}
	if err := s.checkEndpoints(manifest); err != nil {
		return nil, err
	}
	digest, err := manifest.Digest()
	if err != nil {
		return nil, err
	}
	workspace, err := s.workspace(ctx, tenant, orDefault(req.GetWorkspace()))
	if err != nil {
		return nil, err
	}
	answer := &servov1.DeployResponse{}
	var before *asset.Manifest
	if workspace.Active != nil {
		read, err := s.manifests.of(ctx, tenant, *workspace.Active)
		if err != nil {
			return nil, err
		}
		before = read.manifest
		active, err := before.Digest()
		if err != nil {
			return nil, err
		}
		answer.Unchanged = active == digest
	}
	if answer.Changes, err = changes(before, manifest); err != nil {
		return nil, err
	}
	if answer.OrphanedConfigs, err = s.orphanedConfigs(ctx, tenant, workspace.Name, manifest); err != nil {
		return nil, err
	}
	if err := s.warnOfWorkers(ctx, manifest, answer); err != nil {
		return nil, err
	}
	if req.GetDryRun() {
		if err := s.engine.CheckManifest(ctx, tenant, workspace.Name, manifest); err != nil {
			return nil, err
		}
		answer.Deployment, err = s.dryRun(ctx, tenant, workspace.Name, manifest, digest)
		return answer, err
	}
	deployed, err := s.engine.Deploy(ctx, tenant, workspace.Name, manifest, intercept.Meta(ctx))
	if err != nil {
		return nil, err
	}
	view, err := s.store.GetDeployment(ctx, tenant, deployed)
	if err != nil {
		return nil, err
	}
	answer.Deployment, err = deploymentToProto(view)
	return answer, err
}

// maxOrphaned bounds the orphaned configs in an answer.
const maxOrphaned = 100

// orphanedConfigs returns active configs whose pipeline is not in a manifest.
func (s deploymentService) orphanedConfigs(ctx context.Context, tenant id.Tenant, workspace string, manifest *asset.Manifest) (orphaned []*servov1.OrphanedConfig, err error) {
	pipelines := make([]string, len(manifest.Pipelines))
	for i, p := range manifest.Pipelines {
		pipelines[i] = p.Name
	}
	found, err := s.store.OrphanedConfigs(ctx, tenant, workspace, pipelines, maxOrphaned)
	for _, c := range found {
		orphaned = append(orphaned, &servov1.OrphanedConfig{Config: c.Name, Pipeline: c.Pipeline})
	}
	return orphaned, err
}

// withManifest is a request that carries a manifest.
type withManifest interface {
	GetManifest() *structpb.Struct
	GetManifestGzip() []byte
}

// manifestOf parses the manifest of a request. Errors name fields of the manifest.
func manifestOf(req withManifest) (*asset.Manifest, error) {
	inline, compressed := req.GetManifest() != nil, len(req.GetManifestGzip()) > 0
	switch {
	case inline && compressed:
		return nil, fault.New(fault.InvalidArgument, "is set beside manifest", fault.Field("manifest_gzip"), fault.Remedy("set one of them"))
	case compressed:
		text, err := gunzip(req.GetManifestGzip())
		if err != nil {
			return nil, err
		}
		return asset.Parse(text, "manifest.json")
	case !inline:
		return nil, fault.New(fault.InvalidArgument, "is missing", fault.Field("manifest"), fault.Remedy("send a manifest"))
	}
	text, err := jsonOfStruct("", req.GetManifest())
	if err != nil {
		return nil, err
	}
	if err := asset.CheckInline(text); err != nil {
		return nil, err
	}
	return asset.Parse(text, "manifest.json")
}

// gunzip decompresses a manifest, up to its largest size.
func gunzip(compressed []byte) ([]byte, error) {
	refuse := func(err error) error {
		return fault.New(fault.InvalidArgument, "is not valid gzip: "+err.Error(), fault.Field("manifest_gzip"), fault.Remedy("compress the manifest with gzip"))
	}
	r, err := gzip.NewReader(bytes.NewReader(compressed))
	if err != nil {
		return nil, refuse(err)
	}
	text, err := io.ReadAll(io.LimitReader(r, asset.MaxBytes+1))
	switch {
	case err != nil:
		return nil, refuse(err)
	case len(text) > asset.MaxBytes:
		return nil, fault.New(fault.LimitExceeded, fmt.Sprintf("has more than %d bytes uncompressed", asset.MaxBytes), fault.Field("manifest_gzip"),
			fault.Remedy("split the manifest into several deployments"), fault.Value("limit", asset.MaxBytes))
	}
	return text, nil
}

// manifestToProto returns a manifest as JSON, or compressed if it is large.
func manifestToProto(text []byte) (manifest *structpb.Struct, compressed []byte, err error) {
	if len(text) <= asset.MaxInlineBytes {
		manifest, err = structOf(text)
		return manifest, nil, err
	}
	var out bytes.Buffer
	w := gzip.NewWriter(&out)
	if _, err := w.Write(text); err != nil {
		return nil, nil, err
	}
	err = w.Close()
	return nil, out.Bytes(), err
}

// checkEndpoints refuses http assets whose URL names an address that may not be called. Host
// names are resolved by the worker that calls them, in its own network, under its own list.
func (s deploymentService) checkEndpoints(manifest *asset.Manifest) error {
	var found []fault.Violation
	for _, a := range manifest.Assets {
		if a.HTTP == nil {
			continue
		}
		if f, refused := fault.As(s.options.Guard.CheckURL("assets["+a.Key+"].http.url", a.HTTP.URL)); refused {
			found = append(found, f.Violation)
		}
	}
	return fault.FromViolations(found)
}

// maxSearched bounds the deployments that a dry run compares.
const maxSearched = 1000

// dryRun returns the deployment that a manifest would become: an existing one, or one without an id.
func (s deploymentService) dryRun(ctx context.Context, tenant id.Tenant, workspace string, manifest *asset.Manifest, digest string) (*servov1.Deployment, error) {
	canonical, err := manifest.Canonical()
	if err != nil {
		return nil, err
	}
	earlier, err := s.store.ListDeployments(ctx, tenant, workspace, nil, maxSearched)
	if err != nil {
		return nil, err
	}
	for _, d := range earlier {
		if d.Digest == digest {
			d.Manifest = canonical
			return deploymentToProto(d)
		}
	}
	fields, compressed, err := manifestToProto(canonical)
	return &servov1.Deployment{Workspace: workspace, Digest: digest, Manifest: fields, ManifestGzip: compressed}, err
}

// GetDeployment implements servov1.DeploymentServiceServer.
func (s deploymentService) GetDeployment(ctx context.Context, req *servov1.GetDeploymentRequest) (*servov1.Deployment, error) {
	tenant, err := s.tenants.ID(ctx, req.GetTenant())
	if err != nil {
		return nil, err
	}
	wanted, err := id.Parse[id.Deployment]("deployment", req.GetDeployment())
	if err != nil {
		return nil, err
	}
	view, err := s.store.GetDeployment(ctx, tenant, wanted)
	if err == nil {
		err = intercept.Reaches(ctx, view.WorkspaceName, "deployment", wanted.String())
	}
	if err != nil {
		return nil, err
	}
	return deploymentToProto(view)
}

// ListDeployments implements servov1.DeploymentServiceServer.
func (s deploymentService) ListDeployments(ctx context.Context, req *servov1.ListDeploymentsRequest) (*servov1.ListDeploymentsResponse, error) {
	tenant, err := s.tenants.ID(ctx, req.GetTenant())
	if err != nil {
		return nil, err
	}
	deployments, next, err := list(req, func(p page) ([]store.DeploymentView, error) {
		before, err := idPosition[id.Deployment](p)
		if err != nil {
			return nil, err
		}
		return s.store.ListDeployments(ctx, tenant, req.GetWorkspace(), before, p.size+1)
	}, func(d store.DeploymentView) string { return d.ID.String() }, nil, deploymentToProto)
	return &servov1.ListDeploymentsResponse{Deployments: deployments, NextPageToken: next}, err
}

func deploymentToProto(d store.DeploymentView) (*servov1.Deployment, error) {
	manifest, compressed, err := manifestToProto(d.Manifest)
	return &servov1.Deployment{
		Id: d.ID.String(), Workspace: d.WorkspaceName, Digest: d.Digest, Active: d.Active, CreatedAt: timestamp(d.CreatedAt),
		Manifest: manifest, ManifestGzip: compressed,
	}, err
}

// changes returns the changed assets and pipelines, each by name.
func changes(before, after *asset.Manifest) ([]*servov1.DeploymentChange, error) {
	diff, err := asset.Diff(before, after)
	if err != nil {
		return nil, err
	}
	list := changesOf("asset", diff.Assets)
	for _, c := range list {
		if c.GetAction() == servov1.DeploymentChange_CHANGED {
			was, _ := before.Asset(c.GetName())
			is, _ := after.Asset(c.GetName())
			if c.Fields, err = changedFields(was, is); err != nil {
				return nil, err
			}
		}
	}
	pipelines := changesOf("pipeline", diff.Pipelines)
	for _, c := range pipelines {
		if c.GetAction() == servov1.DeploymentChange_CHANGED {
			was, _ := before.Pipeline(c.GetName())
			is, _ := after.Pipeline(c.GetName())
			if c.Fields, err = changedFields(was, is); err != nil {
				return nil, err
			}
		}
	}
	return append(list, pipelines...), nil
}

func changesOf(kind string, c asset.Changes) []*servov1.DeploymentChange {
	var list []*servov1.DeploymentChange
	add := func(action servov1.DeploymentChange_Action, names []string) {
		for _, name := range names {
			list = append(list, &servov1.DeploymentChange{Action: action, Kind: kind, Name: name})
		}
	}
	add(servov1.DeploymentChange_ADDED, c.Added)
	add(servov1.DeploymentChange_CHANGED, c.Changed)
	add(servov1.DeploymentChange_REMOVED, c.Removed)
	slices.SortFunc(list, func(a, b *servov1.DeploymentChange) int { return strings.Compare(a.GetName(), b.GetName()) })
	return list
}

// changedFields returns the fields in which two assets or pipelines differ, by their names in a
// manifest.
func changedFields(before, after any) ([]string, error) {
	was, err := fieldsOf(before)
	if err != nil {
		return nil, err
	}
	is, err := fieldsOf(after)
	if err != nil {
		return nil, err
	}
	differ := map[string]bool{}
	for name, value := range is {
		differ[name] = !bytes.Equal(was[name], value)
	}
	for name := range was {
		if _, stays := is[name]; !stays {
			differ[name] = true
		}
	}
	maps.DeleteFunc(differ, func(_ string, yes bool) bool { return !yes })
	return slices.Sorted(maps.Keys(differ)), nil
}

func fieldsOf(entry any) (map[string]json.RawMessage, error) {
	canonical, err := canon.Marshal(entry)
	if err != nil {
		return nil, err
	}
	var fields map[string]json.RawMessage
	err = json.Unmarshal(canonical, &fields)
	return fields, err
}
