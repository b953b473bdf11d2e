package api

import (
	"context"
	"fmt"
	"slices"

	servov1 "go.arco.dev/servo/gen/servo/v1"
	"go.arco.dev/servo/internal/base/fault"
	"go.arco.dev/servo/internal/base/id"
	"go.arco.dev/servo/internal/edge/intercept"
	"go.arco.dev/servo/internal/store"
)

// tenantService implements servo.v1.TenantService.
type tenantService struct{ *Server }

// CreateTenant implements servov1.TenantServiceServer.
func (s tenantService) CreateTenant(ctx context.Context, req *servov1.CreateTenantRequest) (*servov1.Tenant, error) {
	created, err := s.engine.CreateTenant(ctx, req.GetName(), intercept.Meta(ctx))
	if err != nil {
		return nil, err
	}
	return s.readTenant(ctx, created)
}

// GetTenant implements servov1.TenantServiceServer.
func (s tenantService) GetTenant(ctx context.Context, req *servov1.GetTenantRequest) (*servov1.Tenant, error) {
	tenant, err := s.tenants.ID(ctx, req.GetTenant())
	if err != nil {
		return nil, err
	}
	return s.readTenant(ctx, tenant)
}

func (s tenantService) readTenant(ctx context.Context, tenant id.Tenant) (*servov1.Tenant, error) {
	view, err := s.store.GetTenant(ctx, tenant)
	if err != nil {
		return nil, err
	}
	return tenantToProto(view), nil
}

// ListTenants implements servov1.TenantServiceServer.
func (s tenantService) ListTenants(ctx context.Context, req *servov1.ListTenantsRequest) (*servov1.ListTenantsResponse, error) {
	read := func(p page) ([]store.TenantView, error) { return s.store.ListTenants(ctx, p.after, p.size+1) }
	if caller := intercept.Caller(ctx); caller.Person && !caller.Everywhere() {
		read = func(p page) ([]store.TenantView, error) { return s.grantedTenants(ctx, caller.Tenants(), p) }
	} else if !caller.Everywhere() {
		read = func(page) ([]store.TenantView, error) {
			own, err := s.store.GetTenant(ctx, caller.Tenant)
			return []store.TenantView{own}, err
		}
	}
	tenants, next, err := list(req, read, func(t store.TenantView) string { return t.Name }, nil, sure(tenantToProto))
	return &servov1.ListTenantsResponse{Tenants: tenants, NextPageToken: next}, err
}

// grantedTenants returns the tenants in which a person has grants. It skips grants of tenants that do
// not exist.
func (s tenantService) grantedTenants(ctx context.Context, names []string, page page) ([]store.TenantView, error) {
	var own []store.TenantView
	for _, name := range slices.Sorted(slices.Values(names)) {
		if name <= page.after || len(own) > page.size {
			continue
		}
		found, err := s.tenants.ID(ctx, name)
		if fault.Is(err, fault.NotFound) {
			continue
		}
		if err != nil {
			return nil, err
		}
		view, err := s.store.GetTenant(ctx, found)
		if err != nil {
			return nil, err
		}
		own = append(own, view)
	}
	return own, nil
}

func tenantToProto(t store.TenantView) *servov1.Tenant {
	return &servov1.Tenant{Id: t.ID.String(), Name: t.Name, CreatedAt: timestamp(t.CreatedAt), Labels: t.Labels}
}

// CreateWorkspace implements servov1.TenantServiceServer.
func (s tenantService) CreateWorkspace(ctx context.Context, req *servov1.CreateWorkspaceRequest) (*servov1.Workspace, error) {
	tenant, err := s.tenants.ID(ctx, req.GetTenant())
	if err != nil {
		return nil, err
	}
	if _, err := s.engine.CreateWorkspace(ctx, tenant, req.GetName(), intercept.Meta(ctx)); err != nil {
		return nil, err
	}
	created, err := s.workspace(ctx, tenant, req.GetName())
	if err != nil {
		return nil, err
	}
	return workspaceToProto(created), nil
}

// ListWorkspaces implements servov1.TenantServiceServer.
func (s tenantService) ListWorkspaces(ctx context.Context, req *servov1.ListWorkspacesRequest) (*servov1.ListWorkspacesResponse, error) {
	tenant, err := s.tenants.ID(ctx, req.GetTenant())
	if err != nil {
		return nil, err
	}
	workspaces, err := s.store.ListWorkspaces(ctx, tenant)
	if err != nil {
		return nil, err
	}
	out := mapAll(workspaces, workspaceToProto)
	return &servov1.ListWorkspacesResponse{Workspaces: out}, s.addReleases(ctx, out)
}

// addReleases adds the names of the releases that workspaces use through their channels.
func (s *Server) addReleases(ctx context.Context, workspaces []*servov1.Workspace) error {
	used := map[string]id.Release{}
	var ids []id.Release
	for _, w := range workspaces {
		if w.GetChannel() == "" || w.GetActiveDeployment() == "" {
			continue
		}
		of, err := id.Parse[id.Release]("release", w.GetActiveDeployment())
		if err != nil {
			return err
		}
		used[w.GetActiveDeployment()] = of
		ids = append(ids, of)
	}
	if len(ids) == 0 {
		return nil
	}
	names, err := s.store.ReleasesByID(ctx, ids)
	for _, w := range workspaces {
		if of, follows := used[w.GetActiveDeployment()]; follows && w.GetChannel() != "" {
			w.Release = nameOf(names, of)
		}
	}
	return err
}

// workspace finds a workspace of a tenant by its name.
func (s *Server) workspace(ctx context.Context, tenant id.Tenant, name string) (store.WorkspaceView, error) {
	workspaces, err := s.store.ListWorkspaces(ctx, tenant)
	if err != nil {
		return store.WorkspaceView{}, err
	}
	for _, w := range workspaces {
		if w.Name == name {
			return w, nil
		}
	}
	return store.WorkspaceView{}, fault.New(fault.NotFound, fmt.Sprintf("no workspace %q", name), fault.Field("workspace"), fault.Remedy("check the name"))
}

func workspaceToProto(w store.WorkspaceView) *servov1.Workspace {
	out := &servov1.Workspace{Id: w.ID.String(), Name: w.Name, CreatedAt: timestamp(w.CreatedAt), Channel: w.Channel}
	if w.Active != nil {
		out.ActiveDeployment = w.Active.String()
	}
	return out
}
