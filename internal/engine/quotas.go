package engine

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"go.arco.dev/servo/internal/base/event"
	"go.arco.dev/servo/internal/base/fault"
	"go.arco.dev/servo/internal/base/id"
	"go.arco.dev/servo/internal/domain/plan"
	"go.arco.dev/servo/internal/domain/run"
	"go.arco.dev/servo/internal/domain/tenant"
	"go.arco.dev/servo/internal/engine/signal"
	"go.arco.dev/servo/internal/store"
)

// live collects the change of a run's row in the table of live runs: the row is deleted when the run ends,
// and updated when the run starts or is being cancelled.
func (w *working) live(r *liveRun) {
	switch {
	case r.isNew && (r.run.Lock == "" || r.run.State == run.RunRunning): // written as it is
	case r.run.State.Terminal():
		w.changes.EndedRuns = append(w.changes.EndedRuns, store.RunKey{Tenant: r.run.Tenant, Run: r.run.ID})
		if r.run.Config != nil {
			w.changes.Results = append(w.changes.Results, store.ConfigResult{
				ConfigKey: store.ConfigKey{Tenant: r.run.Tenant, Config: *r.run.Config}, Run: r.run.ID, State: r.run.State,
			})
		}
	case r.isNew, r.run.State != r.from:
		w.changes.LiveRuns = append(w.changes.LiveRuns, r.run)
	}
}

// SetQuotas updates the quotas of a tenant, and returns the new version. It is refused if the tenant has
// another version than the caller expects.
func (e *Engine) SetQuotas(ctx context.Context, owner id.Tenant, quotas tenant.Quotas, expectedVersion int32, meta event.Meta) (version int32, err error) {
	if err := quotas.Validate(); err != nil {
		return 0, err
	}
	err = e.store.Engine(ctx, func(ctx context.Context, tx *store.Tx) error {
		before, current, err := tx.LockQuotas(ctx, owner)
		if err != nil {
			return err
		}
		if current != expectedVersion {
			return fault.New(fault.Conflict, fmt.Sprintf("the tenant has version %d by now, not %d", current, expectedVersion),
				fault.Field("version"), fault.Remedy("reload the quotas and apply the change to them"),
				fault.Value("version", current))
		}
		if version = current; quotas == before {
			return nil
		}
		version++
		now, err := tx.Clock(ctx)
		if err != nil {
			return err
		}
		if err := tx.SetQuotas(ctx, owner, version, quotas); err != nil {
			return err
		}
		return tx.AppendEntityEvents(ctx, event.Event{
			Tenant: owner, Subject: owner.UUID, Version: version, At: now, Meta: meta, Body: tenant.QuotasSet{Quotas: quotas},
		})
	})
	if err != nil {
		return 0, err
	}
	store.AfterCommit(ctx, func() { e.signals.Publish(signal.Ready, signal.Start) }) // more may be admitted, and more may start
	return version, nil
}

// Names of the quotas of runs.
const (
	quotaQueued = "max_queued_tasks"
	quotaRuns   = "max_concurrent_runs"
	quotaDaily  = "max_daily_runs"
	// quotaBackfills limits the runs of a tenant's backfills.
	quotaBackfills = "max_backfill_runs"
)

// allowedTrigger is a trigger whose run is created.
type allowedTrigger struct {
	*lockedTrigger

	pending bool // the run waits for its start
}

// underQuotas counts the usage of the triggers' tenants, under their locks, and returns the triggers
// whose runs may be created and those that it refuses. Triggers of one batch count each other.
func underQuotas(ctx context.Context, tx *store.Tx, w *working, locked []*lockedTrigger) (allowed []*allowedTrigger, refused []*lockedTrigger, err error) {
	own := map[id.Tenant]int32{} // how many of a tenant's live runs are of this batch
	backfills := false
	for _, t := range locked {
		backfills = backfills || t.backfill != nil
		if q := t.quotas; q.MaxQueuedTasks >= 0 || q.MaxConcurrentRuns >= 0 || q.MaxDailyRuns >= 0 || t.backfill != nil && q.MaxBackfillRuns >= 0 {
			if own[t.Tenant] += 0; t.lock != "" && !t.waits {
				own[t.Tenant]++
			}
		}
	}
	var used map[id.Tenant]*usage
	if len(own) > 0 {
		quotas, err := tx.LockTenants(ctx, slices.Collect(maps.Keys(own)))
		if err != nil {
			return nil, nil, err
		}
		if used, err = usageOf(ctx, tx, quotas, own, w.now, backfills); err != nil {
			return nil, nil, err
		}
	}
	for _, t := range locked {
		pending := false
		if u, counted := used[t.Tenant]; counted {
			if pending, t.result.err = u.decide(t.plannedTrigger, w.now); t.result.err != nil {
				refused = append(refused, t)
				continue
			}
		}
		allowed = append(allowed, &allowedTrigger{t, pending || t.waits})
	}
	return allowed, refused, nil
}

// usage is what a tenant uses of its quotas.
type usage struct {
	store.Usage

	quotas    store.RunQuotas
	nextDayAt time.Time
}

// overCount is how far past a limit usage is counted, so that a refusal reports the real value of a tenant
// whose quota was lowered. It costs only as much as there are rows.
const overCount = 1000

// usageOf counts usage up to a little more than each limit, and does not count what has no limit.
func usageOf(ctx context.Context, tx *store.Tx, quotas map[id.Tenant]store.RunQuotas, own map[id.Tenant]int32, now time.Time, backfills bool) (map[id.Tenant]*usage, error) {
	used := make(map[id.Tenant]*usage, len(quotas))
	questions := make([]store.UsageQuestion, 0, len(quotas))
	for owner, q := range quotas {
		question := store.UsageQuestion{Tenant: owner}
		if q.MaxQueuedTasks >= 0 {
			question.Queued = q.MaxQueuedTasks + overCount
		}
		if q.MaxDailyRuns >= 0 {
			question.Daily = q.MaxDailyRuns + overCount
		}
		if q.MaxConcurrentRuns >= 0 {
			question.Live = q.MaxConcurrentRuns + own[owner] + overCount
		}
		if backfills && q.MaxBackfillRuns >= 0 {
			question.Backfills = q.MaxBackfillRuns + overCount
		}
		u := &usage{quotas: q}
		if q.MaxDailyRuns >= 0 {
			var err error
			if question.DayFrom, question.DayUntil, err = (tenant.Quotas{Zone: q.Zone}).Day(now); err != nil {
				return nil, err
			}
			u.nextDayAt = question.DayUntil
		}
		used[owner] = u
		questions = append(questions, question)
	}
	counted, err := tx.CountUsage(ctx, questions)
	for owner, u := range used {
		u.Usage = counted[owner]
		u.Live -= own[owner]
	}
	return used, err
}

// decide reports whether a run may be created, and whether it waits for its start. Waiting runs count like
// running ones, so that no run overtakes them.
func (u *usage) decide(t *plannedTrigger, now time.Time) (pending bool, err error) {
	q := u.quotas
	over := func(limit, current int32) bool { return limit >= 0 && current >= limit }
	if over(q.MaxDailyRuns, u.Daily) {
		return false, quotaExceeded(quotaDaily, "runs were created today", q.MaxDailyRuns, u.Daily, u.nextDayAt.Sub(now), "wait for the next day in "+q.Zone)
	}
	switch {
	case t.backfill != nil && over(q.MaxBackfillRuns, u.Backfills):
		return false, quotaExceeded(quotaBackfills, "runs of backfills have not ended", q.MaxBackfillRuns, u.Backfills, quotaRetry, "wait for one to end")
	case over(q.MaxQueuedTasks, u.Queued) && !t.WaitForQuota:
		return false, quotaExceeded(quotaQueued, "tasks are ready and wait", q.MaxQueuedTasks, u.Queued, quotaRetry, "wait until some are done")
	case over(q.MaxConcurrentRuns, u.Live) && !t.WaitForQuota:
		return false, quotaExceeded(quotaRuns, "runs have not ended", q.MaxConcurrentRuns, u.Live, quotaRetry, "wait for one to end, or let the run wait for its start")
	}
	pending = over(q.MaxQueuedTasks, u.Queued) || over(q.MaxConcurrentRuns, u.Live)
	u.Live++
	u.Daily++
	if t.backfill != nil {
		u.Backfills++
	}
	if !pending {
		u.Queued += int32(rootsOf(t.plan)) //nolint:gosec // bounded by the plan
	}
	return pending, nil
}

// quotaRetry is when to retry after a quota that may be free at any moment.
const quotaRetry = 5 * time.Second

func quotaExceeded(quota, what string, limit, current int32, after time.Duration, remedy string) error {
	return fault.New(fault.LimitExceeded, fmt.Sprintf("%d %s, the quota %s is %d", current, what, quota, limit), fault.Field("tenant"),
		fault.Remedy(remedy+", or ask for a higher quota"), fault.RetryAfter(after),
		fault.Value("quota", quota), fault.Value("limit", limit), fault.Value("current", current))
}

// rootsOf counts the tasks of a plan without upstreams.
func rootsOf(p plan.Plan) int {
	waits := make(map[int]bool, len(p.Tasks))
	for _, e := range p.Edges {
		waits[e[1]] = true
	}
	return len(p.Tasks) - len(waits)
}

// ExpireRuns times out up to most overdue runs, and returns how many it examined.
func (e *Engine) ExpireRuns(ctx context.Context, most int) (int, error) {
	var (
		due   []store.DueRun
		codes map[id.Deployment]*deployment
	)
	err := e.engineWithCode(ctx, func(ctx context.Context, tx *store.Tx) error {
		now, err := tx.Clock(ctx)
		if err != nil {
			return err
		}
		if due, err = tx.DueRuns(ctx, now, most); err != nil || len(due) == 0 {
			return err
		}
		keys := make([]store.DeploymentKey, len(due))
		for i, d := range due {
			keys[i] = store.DeploymentKey{Tenant: d.Tenant, Deployment: d.Deployment}
		}
		codes, err = e.deploymentsOf(ctx, keys)
		return err
	})
	if err != nil || len(due) == 0 {
		return 0, err
	}
	requests := make([]controlRequest, len(due))
	for i, d := range due {
		requests[i].cancel = &Cancel{
			Tenant: d.Tenant, Run: d.Run, TimedOut: true, Limit: d.Limit, Reason: overtime(d, codes[d.Deployment]), Meta: event.Meta{Actor: "reaper"},
		}
	}
	_, errs := e.control.DoAll(ctx, requests)
	var failed error
	for _, err := range errs {
		if err != nil && !fault.Is(err, fault.Conflict) && !fault.Is(err, fault.NotFound) { // ended in the meantime
			failed = errors.Join(failed, err)
		}
	}
	return len(due), failed
}

// overtime names the limit that a run has exceeded.
func overtime(d store.DueRun, code *deployment) string {
	whose := "the tenant's max_run_duration"
	if code != nil {
		if p, ok := code.Pipeline(d.Pipeline); ok && p.MaxExecution.Std() == d.Limit {
			whose = "the pipeline's max_execution"
		}
	}
	return fmt.Sprintf("it ran longer than %s of %s", whose, d.Limit)
}
