package store

import (
	"context"
	"time"

	"github.com/google/uuid"

	"go.arco.dev/servo/internal/base/id"
	"go.arco.dev/servo/internal/store/internal/db"
)

// DeploymentView is a deployment for readers. Lists omit its manifest.
type DeploymentView struct {
	Deployment

	WorkspaceName string
	CreatedAt     time.Time
	Active        bool // currently, in its workspace
}

// ListDeployments reads deployments, the newest first, that are older than before; of one
// workspace, or of all if it is "".
func (s *Store) ListDeployments(ctx context.Context, tenant id.Tenant, workspace string, before *id.Deployment, most int) ([]DeploymentView, error) {
	upper := uuid.Max
	if before != nil {
		upper = before.UUID
	}
	return read(ctx, s.tenant(tenant), func(ctx context.Context, tx *Tx) ([]DeploymentView, error) {
		return list(func(r db.ListDeploymentsRow) DeploymentView {
			return deploymentView(tenant, db.GetDeploymentRow{
				ID: r.ID, WorkspaceID: r.WorkspaceID, Workspace: r.Workspace, Digest: r.Digest, CreatedAt: r.CreatedAt, Active: r.Active,
			})
		})(tx.q.ListDeployments(ctx, db.ListDeploymentsParams{
			TenantID: tenant.UUID, Workspace: workspace, Upper: upper, Most: int32(most), //nolint:gosec // a page size
		}))
	})
}

// GetDeployment reads a deployment with its manifest: the deployment as its tenant, then the manifest by
// its digest.
func (s *Store) GetDeployment(ctx context.Context, tenant id.Tenant, deployment id.Deployment) (DeploymentView, error) {
	return read(ctx, s.tenant(tenant), func(ctx context.Context, tx *Tx) (DeploymentView, error) {
		view, err := tx.getDeployment(ctx, tenant, deployment.UUID)
		if err != nil {
			return view, err
		}
		if err := tx.q.EnterEngine(ctx); err != nil {
			return view, err
		}
		found, err := tx.Manifests(ctx, []string{view.Digest})
		view.Manifest = found[view.Digest]
		return view, err
	})
}

func (tx *Tx) getDeployment(ctx context.Context, tenant id.Tenant, deployment uuid.UUID) (DeploymentView, error) {
	row, err := tx.q.GetDeployment(ctx, db.GetDeploymentParams{TenantID: tenant.UUID, ID: deployment})
	if err != nil {
		return DeploymentView{}, notFound(err, "deployment", deployment.String())
	}
	return deploymentView(tenant, row), nil
}

func deploymentView(tenant id.Tenant, r db.GetDeploymentRow) DeploymentView {
	return DeploymentView{
		Deployment: Deployment{
			Tenant: tenant, ID: id.Of[id.Deployment](r.ID), Workspace: id.Of[id.Workspace](r.WorkspaceID), Digest: r.Digest,
		},
		WorkspaceName: r.Workspace, CreatedAt: r.CreatedAt, Active: r.Active,
	}
}

// WorkspaceView is a workspace with its time of creation.
type WorkspaceView struct {
	Workspace

	CreatedAt time.Time
}

// maxWorkspaces bounds the list of a tenant's workspaces, which has no pages.
const maxWorkspaces = 1000

// ListWorkspaces reads the workspaces of a tenant by name, with the releases of the channels that they
// follow.
func (s *Store) ListWorkspaces(ctx context.Context, tenant id.Tenant) ([]WorkspaceView, error) {
	return read(ctx, s.tenant(tenant), func(ctx context.Context, tx *Tx) ([]WorkspaceView, error) {
		found, err := list(func(r db.ListWorkspacesRow) WorkspaceView {
			w := WorkspaceView{
				Workspace: Workspace{Tenant: tenant, ID: id.Of[id.Workspace](r.ID), Name: r.Name, Version: r.Version, Channel: r.Channel}, CreatedAt: r.CreatedAt,
			}
			if r.ActiveDeploymentID != nil {
				active := id.Of[id.Deployment](*r.ActiveDeploymentID)
				w.Active = &active
			}
			return w
		})(tx.q.ListWorkspaces(ctx, db.ListWorkspacesParams{TenantID: tenant.UUID, Most: maxWorkspaces}))
		if err != nil {
			return nil, err
		}
		workspaces := column(found, func(w WorkspaceView) Workspace { return w.Workspace })
		if err := tx.followAsTenant(ctx, tenant, workspaces); err != nil {
			return nil, err
		}
		for i := range found {
			found[i].Workspace = workspaces[i]
		}
		return found, nil
	})
}

// TenantName returns the name of a tenant.
func (tx *Tx) TenantName(ctx context.Context, tenant id.Tenant) (string, error) {
	row, err := tx.q.GetTenant(ctx, tenant.UUID)
	return row.Name, notFound(err, "tenant", tenant.String())
}

// GetTenant reads a tenant with its own role.
func (s *Store) GetTenant(ctx context.Context, tenant id.Tenant) (TenantView, error) {
	return read(ctx, s.tenant(tenant), func(ctx context.Context, tx *Tx) (TenantView, error) {
		row, err := tx.q.GetTenant(ctx, tenant.UUID)
		return TenantView{ID: id.Of[id.Tenant](row.ID), Name: row.Name, CreatedAt: row.CreatedAt, Labels: labelsOf(row.Labels)}, notFound(err, "tenant", tenant.String())
	})
}
