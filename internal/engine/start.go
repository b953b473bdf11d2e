package engine

import (
	"context"
	"maps"
	"slices"

	"go.arco.dev/servo/internal/base/event"
	"go.arco.dev/servo/internal/base/id"
	"go.arco.dev/servo/internal/domain/run"
	"go.arco.dev/servo/internal/store"
)

// StartRuns starts up to most runs that wait for their tenants' quotas, by priority and then by age, and
// returns how many. It works under the admission duty, and counts under the tenants' locks as a trigger
// does.
func (e *Engine) StartRuns(ctx context.Context, duty store.Duty, most int) (started int, err error) {
	waits := false
	err = e.transact(ctx, func(ctx context.Context, tx *store.Tx, w *working) error {
		waits, started = false, 0
		if err := tx.HoldDuty(ctx, duty); err != nil {
			return err
		}
		candidates, err := startable(ctx, tx, most)
		if waits = candidates != nil; err != nil || len(candidates) == 0 {
			return err
		}
		started, err = startRuns(ctx, tx, w, candidates)
		return err
	})
	if store.IsLockTaken(err) { // by a trigger that came first; the run keeps waiting
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	e.signals.SetStartWaits(waits)
	return started, nil
}

// StartsWanted reports, once, that a run may start which could not before.
func (e *Engine) StartsWanted() bool { return e.signals.StartWanted() }

// startable returns runs that may start, read without locks; nil if none waits.
func startable(ctx context.Context, tx *store.Tx, most int) ([]store.RunKey, error) {
	waiting, err := tx.WaitingTenants(ctx)
	if err != nil || len(waiting) == 0 {
		return nil, err
	}
	quotas, err := tx.RunQuotasOf(ctx, waiting)
	if err != nil {
		return nil, err
	}
	used, err := runningOf(ctx, tx, quotas)
	if err != nil {
		return nil, err
	}
	var (
		tenants []id.Tenant
		mosts   []int32
	)
	for _, owner := range waiting {
		if u, ok := used[owner]; ok && u.room(most) > 0 {
			tenants, mosts = append(tenants, owner), append(mosts, u.room(most))
		}
	}
	if len(tenants) == 0 {
		return []store.RunKey{}, nil
	}
	candidates, err := tx.NextRuns(ctx, tenants, mosts)
	return candidates[:min(len(candidates), most)], err
}

// runningOf counts what bounds the start of runs.
func runningOf(ctx context.Context, tx *store.Tx, quotas map[id.Tenant]store.RunQuotas) (map[id.Tenant]*usage, error) {
	used := make(map[id.Tenant]*usage, len(quotas))
	questions := make([]store.UsageQuestion, 0, len(quotas))
	for owner, q := range quotas {
		used[owner] = &usage{quotas: q}
		questions = append(questions, store.UsageQuestion{Tenant: owner, Running: max(q.MaxConcurrentRuns, 0), Queued: max(q.MaxQueuedTasks, 0)})
	}
	counted, err := tx.CountUsage(ctx, questions)
	for owner, u := range used {
		u.Usage = counted[owner]
	}
	return used, err
}

// room is how many runs may start, up to most.
func (u *usage) room(most int) int32 {
	switch {
	case u.backlogged():
		return 0
	case u.quotas.MaxConcurrentRuns < 0:
		return int32(most) //nolint:gosec // a batch size
	}
	return min(int32(most), max(u.quotas.MaxConcurrentRuns-u.Running, 0)) //nolint:gosec // likewise
}

// backlogged reports whether too many tasks are ready for another run to add more.
func (u *usage) backlogged() bool {
	return u.quotas.MaxQueuedTasks >= 0 && u.Queued >= u.quotas.MaxQueuedTasks
}

// startRuns locks the candidates and their tenants, counts again, and starts runs while there is room. The
// start counts as an upstream of tasks without another.
func startRuns(ctx context.Context, tx *store.Tx, w *working, candidates []store.RunKey) (started int, err error) {
	locked, err := tx.LockRuns(ctx, store.LockForCount, candidates)
	if err != nil {
		return 0, err
	}
	waiting, err := tx.WithLive(ctx, locked)
	if err != nil {
		return 0, err
	}
	given, err := giveLocks(ctx, tx, waiting)
	if err != nil {
		return 0, err
	}
	quotas, err := tx.LockTenants(ctx, tenantsOf(candidates))
	if err != nil {
		return 0, err
	}
	used, err := runningOf(ctx, tx, quotas)
	if err != nil {
		return 0, err
	}
	now, err := tx.Clock(ctx)
	if err != nil {
		return 0, err
	}
	w.at(now)
	w.addRuns(waiting)
	roots, err := rootsByRun(ctx, tx, w, candidates)
	if err != nil {
		return 0, err
	}
	if started, err = w.start(candidates, roots, used, given); err != nil {
		return 0, err
	}
	return started, returnLocks(ctx, tx, w, given)
}

// giveLocks takes the locks that runs wait for, before the tenants are locked: a trigger that has taken such
// a lock may be waiting for its tenant.
func giveLocks(ctx context.Context, tx *store.Tx, waiting []run.Run) (map[id.Run]bool, error) {
	var behind []run.Run
	for _, r := range waiting {
		if r.Behind {
			behind = append(behind, r)
		}
	}
	if len(behind) == 0 {
		return nil, nil
	}
	return tx.GiveLocks(ctx, behind)
}

// returnLocks releases the locks of runs that could not start.
func returnLocks(ctx context.Context, tx *store.Tx, w *working, given map[id.Run]bool) error {
	var left []store.RunKey
	for of := range given {
		if r := w.runs[of]; r != nil && r.run.State == run.RunPending {
			left = append(left, store.RunKey{Tenant: r.run.Tenant, Run: of})
		}
	}
	if len(left) == 0 {
		return nil
	}
	return tx.ReturnLocks(ctx, left)
}

// start starts the runs for which there is room, in their order.
func (w *working) start(candidates []store.RunKey, roots map[id.Run][]run.Task, used map[id.Tenant]*usage, given map[id.Run]bool) (started int, err error) {
	meta := event.Meta{Actor: "admission"}
	for _, key := range candidates {
		r, u := w.runs[key.Run], used[key.Tenant]
		if r == nil || u == nil || r.run.State != run.RunPending || len(roots[key.Run]) == 0 || u.room(1) == 0 {
			continue
		}
		if r.run.Behind && !given[key.Run] {
			continue
		}
		if err := w.decideRun(r, run.StartRun{}, meta); err != nil {
			return 0, err
		}
		for _, t := range roots[key.Run] {
			if err := w.decide(w.add(t), run.DependenciesMet{}, meta); err != nil {
				return 0, err
			}
		}
		u.Running++
		u.Queued += int32(len(roots[key.Run])) //nolint:gosec // bounded by the plan
		started++
	}
	return started, nil
}

// rootsByRun reads the tasks that the start of each run readies, until they are enough for one
// transaction.
func rootsByRun(ctx context.Context, tx *store.Tx, w *working, candidates []store.RunKey) (map[id.Run][]run.Task, error) {
	var keys []store.RunKey
	tasks := 0
	for _, key := range candidates {
		if r := w.runs[key.Run]; r != nil && tasks <= maxTasksPerBatch {
			keys = append(keys, key)
			tasks += int(r.run.Remaining)
		}
	}
	found, err := tx.Roots(ctx, keys)
	roots := make(map[id.Run][]run.Task, len(keys))
	for _, t := range found {
		roots[t.Run] = append(roots[t.Run], t)
	}
	return roots, err
}

func tenantsOf(keys []store.RunKey) []id.Tenant {
	seen := map[id.Tenant]bool{}
	for _, k := range keys {
		seen[k.Tenant] = true
	}
	return slices.Collect(maps.Keys(seen))
}
