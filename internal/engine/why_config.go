package engine

import (
	"context"
	"fmt"
	"time"

	"go.arco.dev/servo/internal/base/fault"
	"go.arco.dev/servo/internal/base/id"
	"go.arco.dev/servo/internal/store"
)

// WhyConfig explains why a config has not fired yet, by what FireDue would find on one snapshot. Without a
// blocker its slot fires next.
func (e *Engine) WhyConfig(ctx context.Context, key store.ConfigKey) (Why, error) {
	q := &configInquiry{inquiry: inquiry{Engine: e}}
	err := e.explain(ctx, key.Tenant, func(ctx context.Context, tx *store.Tx) error {
		q.inquiry = inquiry{Engine: e}
		found, err := tx.Config(ctx, key)
		if err != nil {
			return err
		}
		q.config = found.ConfigState
		if d := q.config.Spec.DependsOn; d != nil {
			other, err := tx.ConfigByName(ctx, key.Tenant, q.config.WorkspaceName, d.Config)
			if err != nil && !fault.Is(err, fault.NotFound) {
				return err
			}
			q.config.DependencyAt = other.LastSuccessAt
		}
		return nil
	}, q.explain)
	return q.why, err
}

type configInquiry struct {
	inquiry

	config store.ConfigState
}

func (q *configInquiry) explain(ctx context.Context, tx *store.Tx) (err error) {
	if q.now, err = tx.Clock(ctx); err != nil {
		return err
	}
	c := &q.config
	q.why = Why{Config: c.ID, Name: c.Name, Pipeline: c.Spec.Pipeline, State: "ACTIVE", Since: c.UpdatedAt}
	if c.LastRun != nil {
		q.why.Run = *c.LastRun
	}
	switch {
	case !c.Enabled:
		q.why.State = "DISABLED"
		q.block(BlockedByDisabling, because("it is disabled", c.DisabledReason), "fix the cause and resume it: servo configs resume "+c.Name, map[string]any{"failures": c.Failures})
	case !c.PausedAt.IsZero():
		q.why.State, q.why.Since = "PAUSED", c.PausedAt
		q.block(BlockedByConfigStop, because("it is paused", c.PauseNote), "resume it: servo configs resume "+c.Name, map[string]any{"paused_at": c.PausedAt.Format(time.RFC3339)})
	}
	if !c.Fires() {
		return nil // no slot fires until it is resumed
	}
	return q.slots(ctx, tx)
}

// because adds a reason, if there is one.
func because(text, reason string) string {
	if reason == "" {
		return text
	}
	return text + ": " + reason
}

// slots explains the next slot.
func (q *configInquiry) slots(ctx context.Context, tx *store.Tx) error {
	c := &q.config
	s, err := c.Spec.Schedule()
	if err != nil {
		return err
	}
	slot, due := c.MovedTo, c.MovedTo
	if slot.IsZero() {
		next, ok := s.Next(c.DecidedUntil)
		if !ok {
			q.block(BlockedByNoSlots, "its trigger has no slots", "trigger it: servo configs trigger "+c.Name, nil)
			return nil
		}
		slot, due = next, next.Add(c.Delay())
	}
	q.why.Next = "its slot " + slot.Format(time.RFC3339) + " fires"
	if due.After(q.now) {
		q.block(BlockedByTime, fmt.Sprintf("its next slot is %s, due at %s", slot.Format(time.RFC3339), due.Format(time.RFC3339)),
			"wait, trigger it, or move the slot: servo configs reschedule "+c.Name, map[string]any{"slot": slot.Format(time.RFC3339), "due_at": due.Format(time.RFC3339)})
	}
	f := &firingConfig{ConfigState: c, schedule: s}
	if met, _ := dependencyMet(f, slot, q.now); !met {
		d := c.Spec.DependsOn
		q.block(BlockedByDependency, fmt.Sprintf("%s has not succeeded within %s before the slot", d.Config, d.Within),
			"see why: servo why "+d.Config, map[string]any{"config": d.Config, "within": d.Within.String()})
	}
	return q.nextRun(ctx, tx, slot)
}

// nextRun explains why the slot's run cannot be created.
func (q *configInquiry) nextRun(ctx context.Context, tx *store.Tx, slot time.Time) error {
	c := &q.config
	cmd := configTrigger(c, scheduleOf(c), slot, q.now, "schedule")
	planned, results, err := q.planTriggers(ctx, tx, []*triggerCommand{cmd}, maxTasksPerBatch)
	if err != nil {
		return err
	}
	if err := results[0].err; err != nil {
		q.block(BlockedByPlan, err.Error(), "deploy the pipeline, or change the config: servo configs get "+c.Name, nil)
		return nil
	}
	t := planned[0]
	if err := q.overlap(ctx, tx, t); err != nil {
		return err
	}
	if t.quotas.MaxDailyRuns < 0 {
		return nil
	}
	used, err := usageOf(ctx, tx, map[id.Tenant]store.RunQuotas{c.Tenant: t.quotas}, nil, q.now, false)
	if err != nil {
		return err
	}
	if u := used[c.Tenant]; u.Daily >= t.quotas.MaxDailyRuns {
		q.block(BlockedByDailyRuns, fmt.Sprintf("%d runs were created today, the quota max_daily_runs is %d", u.Daily, t.quotas.MaxDailyRuns),
			"wait for the next day in "+t.quotas.Zone+", or raise the quota: servo quotas set", map[string]any{"quota": quotaDaily, "limit": t.quotas.MaxDailyRuns})
	}
	return nil
}

// overlap explains runs that have not ended.
func (q *configInquiry) overlap(ctx context.Context, tx *store.Tx, t *plannedTrigger) error {
	c := &q.config
	loads, err := tx.LiveOfConfigs(ctx, []store.ConfigKey{c.Key()})
	if err != nil {
		return err
	}
	load := loads[c.ID]
	if c.Spec.MaxOverlap > 0 && load.Live >= c.Spec.MaxOverlap {
		q.block(BlockedByOverlap, fmt.Sprintf("%d of its runs have not ended, max_overlap is %d", load.Live, c.Spec.MaxOverlap), "wait until one ends, or cancel one",
			map[string]any{"live": load.Live, "limit": c.Spec.MaxOverlap})
	}
	if t.lock == "" || t.mayWait(load.Behind, true) {
		return nil
	}
	key := t.lockKey()
	holders, err := tx.LockHolders(ctx, []store.LockKey{key})
	if holder, held := holders[key]; held {
		q.block(BlockedByLock, fmt.Sprintf("run %s holds the lock %s: the slot would be skipped", holder, key.Key), "wait until that run ends, or cancel it: servo runs cancel "+holder.String(),
			map[string]any{"lock": key.Key, "run": holder.String()})
	}
	return err
}
