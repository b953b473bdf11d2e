package api

import (
	"context"
	"sync"

	"go.arco.dev/servo/internal/base/id"
	"go.arco.dev/servo/internal/domain/asset"
	"go.arco.dev/servo/internal/domain/plan"
	"go.arco.dev/servo/internal/store"
)

// deployed is a parsed deployment.
type deployed struct {
	id       id.Deployment
	manifest *asset.Manifest
	graph    *asset.Graph
	planner  *plan.Planner
}

// manifests caches recently read deployments, which never change.
type manifests struct {
	store *store.Store

	mu     sync.Mutex
	latest map[id.Deployment]*deployed
}

// maxManifests bounds the cache. Beyond it the cache is cleared.
const maxManifests = 100

func newManifests(s *store.Store) *manifests {
	return &manifests{store: s, latest: map[id.Deployment]*deployed{}}
}

// active returns the active deployment of a workspace.
func (m *manifests) active(ctx context.Context, tenant id.Tenant, workspace string) (*deployed, error) {
	view, err := m.store.ActiveDeployment(ctx, tenant, orDefault(workspace))
	if err != nil {
		return nil, err
	}
	return m.read(view.Deployment)
}

// of returns a deployment by its id, from the cache if possible.
func (m *manifests) of(ctx context.Context, tenant id.Tenant, deployment id.Deployment) (*deployed, error) {
	m.mu.Lock()
	found, ok := m.latest[deployment]
	m.mu.Unlock()
	if ok {
		return found, nil
	}
	view, err := m.store.GetDeployment(ctx, tenant, deployment)
	if err != nil {
		return nil, err
	}
	return m.read(view.Deployment)
}

// read parses a deployment, or returns it from the cache.
func (m *manifests) read(d store.Deployment) (*deployed, error) {
	m.mu.Lock()
	found, ok := m.latest[d.ID]
	m.mu.Unlock()
	if ok {
		return found, nil
	}
	manifest, err := asset.Parse(d.Manifest, "manifest.json")
	if err != nil {
		return nil, err
	}
	found = &deployed{id: d.ID, manifest: manifest}
	if found.graph, err = asset.NewGraph(manifest.Assets); err != nil {
		return nil, err
	}
	if found.planner, err = plan.NewPlanner(manifest); err != nil {
		return nil, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(m.latest) >= maxManifests {
		clear(m.latest)
	}
	m.latest[d.ID] = found
	return found, nil
}
