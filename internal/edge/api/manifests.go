package api

import (
	"context"

	"go.arco.dev/servo/internal/base/id"
	"go.arco.dev/servo/internal/domain/asset"
	"go.arco.dev/servo/internal/domain/plan"
	"go.arco.dev/servo/internal/engine"
	"go.arco.dev/servo/internal/store"
)

// deployed is a parsed deployment.
type deployed struct {
	id       id.Deployment
	manifest *asset.Manifest
	graph    *asset.Graph
	planner  *plan.Planner
}

// manifests reads the parsed deployments of tenants from the engine's cache.
type manifests struct {
	store  *store.Store
	engine *engine.Engine
}

// active returns the active deployment of a workspace, or the release that it follows.
func (m *manifests) active(ctx context.Context, tenant id.Tenant, workspace string) (*deployed, error) {
	active, err := m.store.ActiveCode(ctx, tenant, orDefault(workspace))
	if err != nil {
		return nil, err
	}
	return m.of(ctx, tenant, active)
}

// of returns a deployment by its id, which comes from a row that the tenant may read.
func (m *manifests) of(ctx context.Context, tenant id.Tenant, deployment id.Deployment) (*deployed, error) {
	manifest, planner, err := m.engine.Code(ctx, store.DeploymentKey{Tenant: tenant, Deployment: deployment})
	if err != nil {
		return nil, err
	}
	return &deployed{id: deployment, manifest: manifest, graph: planner.Graph(), planner: planner}, nil
}
