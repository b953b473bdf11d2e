package engine

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"sync"

	"go.arco.dev/servo/internal/base/id"
	"go.arco.dev/servo/internal/domain/asset"
	"go.arco.dev/servo/internal/domain/plan"
	"go.arco.dev/servo/internal/store"
)

// deployment is a parsed manifest with its planner. All deployments with the same digest share one.
type deployment struct {
	*asset.Manifest

	planner *plan.Planner
	locks   map[string]*asset.LockKey // by pipeline
	outputs map[string]bool           // assets with an output; nil if there is none
}

// declaresOutput reports whether an asset has an output.
func (d *deployment) declaresOutput(key string) bool { return d.outputs[key] }

func (d *deployment) keys() []string {
	keys := make([]string, len(d.Assets))
	for i, a := range d.Assets {
		keys[i] = a.Key
	}
	return keys
}

// deployments caches parsed manifests by digest, and which deployment has which. Neither ever changes, so
// no entry is stale.
type deployments struct {
	loading sync.Mutex // one call at a time reads and parses: a manifest is parsed once

	mu       sync.Mutex
	latest   map[id.Deployment]*deployment
	byDigest map[string]*deployment
	bytes    int // of the parsed manifests
}

// Bounds of the cache. A full cache is emptied: simple, and rare enough.
const (
	maxDeployments   = 100_000
	maxManifests     = 1000
	maxManifestBytes = 256 << 20
)

func newDeployments() *deployments {
	return &deployments{latest: map[id.Deployment]*deployment{}, byDigest: map[string]*deployment{}}
}

func (c *deployments) get(d id.Deployment) (*deployment, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	found, ok := c.latest[d]
	return found, ok
}

func (c *deployments) put(d id.Deployment, used *deployment) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.latest) >= maxDeployments {
		clear(c.latest)
	}
	c.latest[d] = used
}

func (c *deployments) ofDigest(digest string) *deployment {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.byDigest[digest]
}

func (c *deployments) putDigest(digest string, used *deployment, bytes int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.byDigest) >= maxManifests || c.bytes+bytes > maxManifestBytes {
		clear(c.byDigest)
		clear(c.latest)
		c.bytes = 0
	}
	c.byDigest[digest] = used
	c.bytes += bytes
}

// codeMissingError ends a transaction that needs deployments which are not cached. withCode reads them and
// repeats the transaction.
type codeMissingError struct{ keys []store.DeploymentKey }

func (e *codeMissingError) Error() string {
	return fmt.Sprintf("%d deployments are not in the cache", len(e.keys))
}

type loadedKey struct{}

// withCode runs a transaction. If it needs deployments that are not cached, they are read and parsed
// between two tries: a manifest takes up to seconds to parse, and no row is locked meanwhile.
func (e *Engine) withCode(ctx context.Context, transaction func(ctx context.Context) error) error {
	for {
		err := transaction(ctx)
		missing, ok := errors.AsType[*codeMissingError](err)
		if !ok {
			return err
		}
		loaded, err := e.loadCode(ctx, missing.keys)
		if err != nil {
			return err
		}
		// The cache may be emptied before the next try, so what was read is passed on.
		maps.Copy(loaded, loadedCode(ctx))
		ctx = context.WithValue(ctx, loadedKey{}, loaded)
	}
}

// engineWithCode is store.Engine for transactions that need code.
func (e *Engine) engineWithCode(ctx context.Context, fn func(ctx context.Context, tx *store.Tx) error) error {
	return e.withCode(ctx, func(ctx context.Context) error { return e.store.Engine(ctx, fn) })
}

// explain is store.Explain for transactions that need code.
func (e *Engine) explain(ctx context.Context, owner id.Tenant, mine, all func(ctx context.Context, tx *store.Tx) error) error {
	return e.withCode(ctx, func(ctx context.Context) error { return e.store.Explain(ctx, owner, mine, all) })
}

func loadedCode(ctx context.Context) map[id.Deployment]*deployment {
	loaded, _ := ctx.Value(loadedKey{}).(map[id.Deployment]*deployment)
	return loaded
}

// deploymentsOf returns deployments by id from the cache; if one is missing, it ends the transaction (see
// withCode). One that cannot be read is nil: it cannot be planned, but its tasks can end, and those of
// others do not wait for it.
func (e *Engine) deploymentsOf(ctx context.Context, keys []store.DeploymentKey) (map[id.Deployment]*deployment, error) {
	found := make(map[id.Deployment]*deployment, len(keys))
	var missing []store.DeploymentKey
	for _, k := range keys {
		if _, seen := found[k.Deployment]; seen {
			continue
		}
		known, ok := e.deployments.get(k.Deployment)
		if !ok {
			if known, ok = loadedCode(ctx)[k.Deployment]; !ok {
				missing = append(missing, k)
			}
		}
		found[k.Deployment] = known
	}
	if len(missing) > 0 {
		return nil, &codeMissingError{missing}
	}
	return found, nil
}

// loadCode reads and parses deployments. It has an entry for each: nil if the deployment is unknown or
// cannot be read.
func (e *Engine) loadCode(ctx context.Context, keys []store.DeploymentKey) (map[id.Deployment]*deployment, error) {
	e.deployments.loading.Lock()
	defer e.deployments.loading.Unlock()
	parsed := map[string]*deployment{}
	rows, manifests, err := e.store.Code(ctx, keys, func(digest string) bool {
		used := e.deployments.ofDigest(digest)
		parsed[digest] = used
		return used != nil
	})
	if err != nil {
		return nil, err
	}
	for digest, text := range manifests {
		used, err := readDeployment(text)
		if err != nil {
			e.log.Error("a manifest cannot be read", "digest", digest, "error", err)
			continue
		}
		parsed[digest] = used
		e.deployments.putDigest(digest, used, len(text))
	}
	loaded := make(map[id.Deployment]*deployment, len(keys))
	for _, k := range keys {
		loaded[k.Deployment] = nil
	}
	for _, row := range rows {
		if used := parsed[row.Digest]; used != nil {
			loaded[row.Deployment] = used
			e.deployments.put(row.Deployment, used)
		}
	}
	return loaded, nil
}

// Code returns the manifest and the planner of a deployment, from the cache if possible. The caller has
// checked that the tenant may read it.
func (e *Engine) Code(ctx context.Context, key store.DeploymentKey) (*asset.Manifest, *plan.Planner, error) {
	used, ok := e.deployments.get(key.Deployment)
	if !ok {
		loaded, err := e.loadCode(ctx, []store.DeploymentKey{key})
		if err != nil {
			return nil, nil, err
		}
		used = loaded[key.Deployment]
	}
	if used == nil {
		return nil, nil, fmt.Errorf("deployment %s cannot be read", key.Deployment)
	}
	return used.Manifest, used.planner, nil
}

func readDeployment(text []byte) (*deployment, error) {
	manifest, err := asset.Parse(text, "manifest.json")
	if err != nil {
		return nil, err
	}
	planner, err := plan.NewPlanner(manifest)
	if err != nil {
		return nil, err
	}
	locks := make(map[string]*asset.LockKey, len(manifest.Pipelines))
	for _, p := range manifest.Pipelines {
		if locks[p.Name], err = asset.NewLockKey(p); err != nil {
			return nil, err
		}
	}
	var outputs map[string]bool
	for _, a := range manifest.Assets {
		if a.Output != nil {
			if outputs == nil {
				outputs = map[string]bool{}
			}
			outputs[a.Key] = true
		}
	}
	return &deployment{Manifest: manifest, planner: planner, locks: locks, outputs: outputs}, nil
}
