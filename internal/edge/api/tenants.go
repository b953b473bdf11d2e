package api

import (
	"context"
	"slices"

	servov1 "go.arco.dev/servo/gen/servo/v1"
	"go.arco.dev/servo/internal/base/fault"
	"go.arco.dev/servo/internal/base/id"
	"go.arco.dev/servo/internal/edge/intercept"
	"go.arco.dev/servo/internal/store"
)

// tenantService implements servo.v1.TenantService.
type tenantService struct {
	servov1.UnimplementedTenantServiceServer
	*Server
}

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
	page, err := pageOf(req)
	if err != nil {
		return nil, err
	}
	answer := &servov1.ListTenantsResponse{}
	if caller := intercept.Caller(ctx); caller.Person && !caller.Everywhere() {
		return s.grantedTenants(ctx, caller.Tenants(), page)
	} else if !caller.Everywhere() { // who has one sees that one
		own, err := s.store.GetTenant(ctx, caller.Tenant)
		if err != nil {
			return nil, err
		}
		answer.Tenants = append(answer.Tenants, tenantToProto(own))
		return answer, nil
	}
	tenants, err := s.store.ListTenants(ctx, page.after, page.size+1)
	if err != nil {
		return nil, err
	}
	tenants, answer.NextPageToken = cut(page, tenants, small, func(t store.TenantView) string { return t.Name })
	for _, t := range tenants {
		answer.Tenants = append(answer.Tenants, tenantToProto(t))
	}
	return answer, nil
}

// grantedTenants lists the tenants that a person has grants in. A grant of a tenant that is not
// there yet shows nothing.
func (s tenantService) grantedTenants(ctx context.Context, names []string, page page) (*servov1.ListTenantsResponse, error) {
	names = slices.Sorted(slices.Values(names))
	var own []store.TenantView
	for _, name := range names {
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
	answer := &servov1.ListTenantsResponse{}
	own, answer.NextPageToken = cut(page, own, small, func(t store.TenantView) string { return t.Name })
	for _, t := range own {
		answer.Tenants = append(answer.Tenants, tenantToProto(t))
	}
	return answer, nil
}

func tenantToProto(t store.TenantView) *servov1.Tenant {
	return &servov1.Tenant{Id: t.ID.String(), Name: t.Name, CreatedAt: timestamp(t.CreatedAt)}
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
	answer := &servov1.ListWorkspacesResponse{}
	for _, w := range workspaces {
		answer.Workspaces = append(answer.Workspaces, workspaceToProto(w))
	}
	return answer, nil
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
	return store.WorkspaceView{}, fault.New(fault.NotFound, "no workspace "+name, fault.Field("workspace"), fault.Remedy("check the name"))
}

func workspaceToProto(w store.WorkspaceView) *servov1.Workspace {
	out := &servov1.Workspace{Id: w.ID.String(), Name: w.Name, CreatedAt: timestamp(w.CreatedAt)}
	if w.Active != nil {
		out.ActiveDeployment = w.Active.String()
	}
	return out
}
