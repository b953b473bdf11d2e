package api

import (
	"context"

	servov1 "go.arco.dev/servo/gen/servo/v1"
	"go.arco.dev/servo/internal/base/fault"
	"go.arco.dev/servo/internal/base/id"
	"go.arco.dev/servo/internal/domain/asset"
	"go.arco.dev/servo/internal/edge/intercept"
	"go.arco.dev/servo/internal/store"
)

// ActivateDeployment implements servov1.DeploymentServiceServer.
func (s deploymentService) ActivateDeployment(ctx context.Context, req *servov1.ActivateDeploymentRequest) (*servov1.ActivateDeploymentResponse, error) {
	tenant, view, err := s.reached(ctx, req)
	if err != nil {
		return nil, err
	}
	workspace, err := s.workspace(ctx, tenant, view.WorkspaceName)
	if err != nil {
		return nil, err
	}
	after, err := s.manifests.of(ctx, tenant, view.ID)
	if err != nil {
		return nil, err
	}
	answer := &servov1.ActivateDeploymentResponse{}
	var before *asset.Manifest
	if workspace.Active != nil && workspace.Channel == "" {
		active, err := s.manifests.of(ctx, tenant, *workspace.Active)
		if err != nil {
			return nil, err
		}
		before = active.manifest
	}
	if answer.Changes, err = changes(before, after.manifest); err != nil {
		return nil, err
	}
	if answer.OrphanedConfigs, err = s.orphanedConfigs(ctx, tenant, view.WorkspaceName, after.manifest); err != nil {
		return nil, err
	}
	if req.GetDryRun() {
		err = s.engine.CheckManifest(ctx, tenant, view.WorkspaceName, after.manifest)
	} else {
		err = s.engine.ActivateDeployment(ctx, tenant, view.WorkspaceName, view.ID, intercept.Meta(ctx))
		view.Active = err == nil
	}
	if err != nil {
		return nil, err
	}
	view.Manifest = nil
	answer.Deployment, err = deploymentToProto(view)
	return answer, err
}

// reached reads the deployment of a request, if the caller may reach its workspace.
func (s deploymentService) reached(ctx context.Context, req interface {
	GetTenant() string
	GetDeployment() string
},
) (tenant id.Tenant, view store.DeploymentView, err error) {
	if tenant, err = s.tenants.ID(ctx, req.GetTenant()); err != nil {
		return tenant, view, err
	}
	wanted, err := id.Parse[id.Deployment]("deployment", req.GetDeployment())
	if err != nil {
		return tenant, view, err
	}
	if view, err = s.store.GetDeployment(ctx, tenant, wanted); err == nil {
		err = intercept.Reaches(ctx, view.WorkspaceName, "deployment", wanted.String())
	}
	return tenant, view, err
}

// CopyDeployment implements servov1.DeploymentServiceServer.
func (s deploymentService) CopyDeployment(ctx context.Context, req *servov1.CopyDeploymentRequest) (*servov1.DeployResponse, error) {
	_, view, err := s.reached(ctx, req)
	if err != nil {
		return nil, err
	}
	if view.WorkspaceName == req.GetTo() {
		return nil, fault.New(fault.InvalidArgument, "is the workspace of the deployment", fault.Field("to"), fault.Remedy("name another workspace"))
	}
	manifest, compressed, err := manifestToProto(view.Manifest)
	if err != nil {
		return nil, err
	}
	return s.Deploy(ctx, &servov1.DeployRequest{Tenant: req.GetTenant(), Workspace: req.GetTo(), Manifest: manifest, ManifestGzip: compressed, DryRun: req.GetDryRun()})
}

// DiffDeployments implements servov1.DeploymentServiceServer.
func (s deploymentService) DiffDeployments(ctx context.Context, req *servov1.DiffDeploymentsRequest) (*servov1.DiffDeploymentsResponse, error) {
	tenant, view, err := s.reached(ctx, req)
	if err != nil {
		return nil, err
	}
	to, err := id.Parse[id.Deployment]("to", req.GetTo())
	if err != nil {
		return nil, err
	}
	other, err := s.store.GetDeployment(ctx, tenant, to)
	if err != nil {
		return nil, err
	}
	before, err := s.manifests.of(ctx, tenant, view.ID)
	if err != nil {
		return nil, err
	}
	after, err := s.manifests.of(ctx, tenant, other.ID)
	if err != nil {
		return nil, err
	}
	found, err := changes(before.manifest, after.manifest)
	return &servov1.DiffDeploymentsResponse{Changes: found}, err
}
