package engine

import (
	"context"
	"fmt"
	"time"

	"go.arco.dev/servo/internal/base/fault"
	"go.arco.dev/servo/internal/base/id"
	"go.arco.dev/servo/internal/base/suggest"
	"go.arco.dev/servo/internal/domain/asset"
	"go.arco.dev/servo/internal/domain/backfill"
	"go.arco.dev/servo/internal/domain/partition"
	"go.arco.dev/servo/internal/domain/plan"
	"go.arco.dev/servo/internal/domain/tenant"
	"go.arco.dev/servo/internal/store"
)

// resolvedBackfill is a request with its workspace, code and partitions.
type resolvedBackfill struct {
	settings   backfill.Settings
	workspace  store.Workspace
	deployment id.Deployment
	code       *deployment
	scheme     *partition.Scheme // of the asset
	assets     []string          // of each run
	set        partition.Set
}

// resolveBackfill checks a request and resolves its partitions, once: later changes of the manifest, of
// dynamic values or of the status change nothing.
func (e *Engine) resolveBackfill(ctx context.Context, tx *store.Tx, request Backfill, now time.Time) (r resolvedBackfill, err error) {
	r.settings = request.Settings.WithDefaults()
	if err := r.settings.Validate(); err != nil {
		return r, err
	}
	if err := e.backfillCode(ctx, tx, request, &r); err != nil {
		return r, err
	}
	if err := r.targets(); err != nil {
		return r, err
	}
	r.scheme = r.code.planner.Scheme(r.settings.Asset)
	if err := r.partitions(ctx, tx, now); err != nil {
		return r, err
	}
	if !request.Follow {
		r.settings.Deployment = r.deployment
	}
	return r, r.settings.CheckSize(r.set)
}

// backfillCode finds the workspace and its active deployment.
func (e *Engine) backfillCode(ctx context.Context, tx *store.Tx, request Backfill, r *resolvedBackfill) error {
	name := workspaceOr(request.Workspace)
	if err := tenant.ValidateName("workspace", name); err != nil {
		return err
	}
	cmd := newTrigger(Trigger{Tenant: request.Tenant, Workspace: name})
	workspaces, codes, err := e.workspacesOf(ctx, tx, []*triggerCommand{cmd})
	if err != nil {
		return err
	}
	w, found := workspaces[cmd.workspaceName()]
	switch {
	case !found:
		return fault.New(fault.NotFound, "no workspace "+name, fault.Field("workspace"), fault.Remedy("check the name"))
	case w.Active == nil:
		return noCode(w)
	case codes[*w.Active] == nil:
		return fmt.Errorf("deployment %s cannot be read", *w.Active)
	}
	r.workspace, r.deployment, r.code = w, *w.Active, codes[*w.Active]
	return nil
}

// targets determines the asset whose partitions are covered and the assets of each run. All of them must
// have the same partitions: then the result of a partition is that of its tasks.
func (r *resolvedBackfill) targets() error {
	s := &r.settings
	if s.Pipeline == "" && len(s.Select) == 0 {
		if s.Asset == "" {
			return fault.Invalid("asset", "is missing", "name an asset, a pipeline or a selection")
		}
		s.Select = []string{s.Asset}
	}
	if _, known := r.code.Asset(s.Asset); s.Asset != "" && !known {
		return fault.Invalid("asset", fmt.Sprintf("unknown asset %.100q", s.Asset)+suggest.DidYouMean(s.Asset, r.code.keys()), "use an asset of the active deployment")
	}
	whole, err := r.code.planner.Plan(plan.Request{Pipeline: s.Pipeline, Select: s.Select, Parameters: s.Parameters, Undivided: true})
	if err != nil {
		return err
	}
	if len(whole.Tasks) == 0 {
		return fault.Invalid("select", "selects no asset", "select at least one asset")
	}
	r.assets = whole.Keys()
	if s.Asset == "" {
		s.Asset = r.assets[0]
	}
	scheme := r.code.planner.Scheme(s.Asset)
	if scheme == nil {
		return fault.Invalid("asset", fmt.Sprintf("asset %s has no partitions", s.Asset), "declare partitions in the manifest, or trigger a run")
	}
	for _, key := range r.assets {
		if other := r.code.planner.Scheme(key); other != scheme {
			has := "no partitions"
			if other != nil {
				has = "the partitions " + other.String()
			}
			return fault.Invalid("select", fmt.Sprintf("asset %s has %s, %s has %s", key, has, s.Asset, scheme), "select assets with the same partitions, and create a backfill for each kind")
		}
	}
	return nil
}

// partitions resolves the selection and restricts it by the status of the partitions.
func (r *resolvedBackfill) partitions(ctx context.Context, tx *store.Tx, now time.Time) (err error) {
	if len(r.settings.Partitions) == 0 {
		r.set, err = r.scheme.Existing(now)
	} else {
		var selection partition.Selection
		if selection, err = partition.ParseSelection(r.settings.Partitions...); err == nil {
			r.set, err = selection.Resolve(r.scheme, now)
		}
	}
	if err != nil || r.settings.Only == backfill.All {
		return err
	}
	// A partition is missing if any of the assets has never made it, failed if it failed last for any.
	var only partition.Set
	for _, key := range r.assets {
		status, err := tx.PartitionStatus(ctx, store.PartitionedAsset{Tenant: r.workspace.Tenant, Workspace: r.workspace.ID, Asset: key})
		if err != nil {
			return err
		}
		if r.settings.Only == backfill.OnlyFailed {
			only = only.Union(r.set.Intersect(status.Failed))
		} else {
			only = only.Union(r.set.Difference(status.Succeeded))
		}
	}
	r.set = only
	return nil
}

// previewOf estimates how long a backfill takes.
func (e *Engine) previewOf(ctx context.Context, tx *store.Tx, r resolvedBackfill) (BackfillPreview, error) {
	p := BackfillPreview{Asset: r.settings.Asset, Deployment: r.deployment, Partitions: r.set.Count()}
	b := backfill.Backfill{Settings: r.settings, Set: r.set}
	p.Runs = b.Chunks()
	p.First, p.Last = r.edge(b.ChunkSet(0), true), r.edge(b.ChunkSet(p.Runs-1), false)
	facts, err := tx.BackfillFacts(ctx, r.workspace.Tenant, r.assets, workerAlive)
	if err != nil {
		return p, err
	}
	for _, key := range r.assets {
		a, _ := r.code.Asset(key)
		tasks := tasksOf(r.set, a)
		p.Tasks += tasks
		seconds, known := facts.Seconds[key]
		if !known {
			seconds = unknownCost
			p.Unknown++
		}
		p.Work += time.Duration(float64(tasks) * seconds * float64(time.Second))
	}
	// What one backfill can have in flight, what the tenant may, and its share of the workers.
	p.Parallel = int(min(p.Tasks, int64(r.settings.ChunkSize)*int64(r.settings.MaxConcurrentRuns)*int64(len(r.assets))))
	if facts.MaxTasks >= 0 {
		p.Parallel = min(p.Parallel, max(facts.MaxTasks-facts.InFlight, 1))
	}
	p.Parallel = max(1, min(p.Parallel, int(float64(facts.Capacity)*facts.Share)))
	p.ETA = p.Work / time.Duration(p.Parallel)
	return p, nil
}

// edge is the key of the first or last partition of a chunk, by its order.
func (r *resolvedBackfill) edge(chunk partition.Set, first bool) (key string) {
	for p := range chunk.All(r.settings.Order) {
		if key = partition.Bare(r.scheme.Key(p)); first {
			break
		}
	}
	return key
}

// tasksOf is how many tasks cover a set: each covers consecutive partitions of a series.
func tasksOf(set partition.Set, a asset.Asset) (n int64) {
	most := a.PartitionsPerTask.Most()
	for _, series := range set.Series() {
		for _, r := range set.Ranges(series) {
			n += (r.Len() + most - 1) / most
		}
	}
	return n
}

// chunkResults returns the partitions of a chunk that failed, and those that neither failed nor succeeded. A
// partition has succeeded if all its tasks have.
func (e *Engine) chunkResults(ctx context.Context, tx *store.Tx, b backfill.Backfill, c store.Chunk) (failed, skipped partition.Set, err error) {
	ends, err := tx.PartitionEnds(ctx, store.RunKey{Tenant: c.Tenant, Run: c.Run})
	if err != nil {
		return failed, skipped, err
	}
	chunk := b.ChunkSet(c.Number)
	failed = ends.Failed.Intersect(chunk)
	undone := ends.Undone.Union(chunk.Difference(ends.Covered)) // a partition without a task has not succeeded
	return failed, undone.Intersect(chunk).Difference(failed), nil
}
