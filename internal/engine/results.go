package engine

import (
	"bytes"
	"context"
	"errors"
	"slices"
	"time"

	"go.arco.dev/servo/internal/base/fault"
	"go.arco.dev/servo/internal/base/id"
	"go.arco.dev/servo/internal/domain/config"
	"go.arco.dev/servo/internal/domain/run"
	"go.arco.dev/servo/internal/domain/schedule"
	"go.arco.dev/servo/internal/store"
)

// FoldResults applies the results of up to most ended runs to their configs: it counts successes and
// failures, disables a config that has failed too often, and creates the runs of configs that run after
// others. It returns how many results it applied, which are fewer if their runs would be too large for one
// transaction.
func (e *Engine) FoldResults(ctx context.Context, most int) (taken int, err error) {
	for {
		if taken, err = e.foldResults(ctx, most); !errors.Is(err, errTooLarge) {
			return taken, err
		}
		most /= 2
	}
}

// errTooLarge is the error of a transaction with too many tasks.
var errTooLarge = errors.New("too many tasks for one transaction")

func (e *Engine) foldResults(ctx context.Context, most int) (taken int, err error) {
	var f *firing
	err = e.transact(ctx, func(ctx context.Context, tx *store.Tx, w *working) error {
		f, taken = nil, 0
		results, err := tx.TakeConfigResults(ctx, most)
		if err != nil || len(results) == 0 {
			return err
		}
		configs, results, left, err := lockConfigsOf(ctx, tx, results)
		if err != nil {
			return err
		}
		if err := tx.LeaveConfigResults(ctx, left); err != nil || len(results) == 0 {
			return err
		}
		taken = len(results)
		now, err := tx.Clock(ctx)
		if err != nil {
			return err
		}
		w.at(now)
		f = newFiring(e, now)
		claimed, err := claimedRuns(ctx, tx, results)
		if err != nil {
			return err
		}
		succeeded, err := f.fold(configs, results, claimed)
		if err != nil {
			return err
		}
		if err := f.listeners(ctx, tx, configs, succeeded); err != nil {
			return err
		}
		n, err := f.createRuns(ctx, tx, w, maxTasksPerBatch)
		if err != nil {
			return err
		}
		if err := contended(f.batch[:n]); err != nil {
			return err
		}
		if err := f.refused(configs, f.batch[:n]); err != nil {
			return err
		}
		switch {
		case n == len(f.batch):
		case len(results) > 1:
			return errTooLarge
		default: // the note stays for the others, in the order of their ids
			last := f.batch[n-1].configID()
			results[0].After = &last
			if err := tx.LeaveConfigResults(ctx, results); err != nil {
				return err
			}
		}
		return f.save(ctx, tx)
	})
	if err != nil || f == nil {
		return 0, err
	}
	return taken, f.followUp(ctx)
}

// lockConfigsOf locks the configs of results, and those that run after the ones that have succeeded: all at
// once, in the order of their ids, without waiting. Results that concern a locked config are left, in their
// order, so that they do not delay the others.
func lockConfigsOf(ctx context.Context, tx *store.Tx, results []store.ConfigResult) (configs map[id.Config]*firingConfig, ready, left []store.ConfigResult, err error) {
	seen := map[store.ConfigKey]bool{}
	var keys []store.ConfigKey
	add := func(key store.ConfigKey) {
		if !seen[key] {
			seen[key] = true
			keys = append(keys, key)
		}
	}
	for _, r := range results {
		add(r.ConfigKey)
	}
	after, err := tx.ListenersOf(ctx, keys)
	if err != nil {
		return nil, nil, nil, err
	}
	for _, listeners := range after {
		for _, key := range listeners {
			add(key)
		}
	}
	locked, err := tx.LockFreeConfigs(ctx, keys)
	if err != nil {
		return nil, nil, nil, err
	}
	configs = byID(locked)
	held := map[id.Config]bool{}
	for _, r := range results {
		held[r.Config] = held[r.Config] || configs[r.Config] == nil || r.State == run.RunSucceeded &&
			slices.ContainsFunc(after[r.Config], func(key store.ConfigKey) bool { return configs[key.Config] == nil })
		if held[r.Config] {
			left = append(left, r)
		} else {
			ready = append(ready, r)
		}
	}
	return configs, ready, left, nil
}

// lockListeners locks configs in the order of their ids.
func lockListeners(ctx context.Context, tx *store.Tx, keys []store.ConfigKey) (map[id.Config]*firingConfig, error) {
	locked, err := tx.LockConfigs(ctx, keys)
	return byID(locked), err
}

func byID(locked []store.ConfigState) map[id.Config]*firingConfig {
	configs := make(map[id.Config]*firingConfig, len(locked))
	for i := range locked {
		configs[locked[i].ID] = &firingConfig{ConfigState: &locked[i]}
	}
	return configs
}

// contended is the error of a trigger whose lock may be free in a moment. No slot would repeat it, so the
// transaction is repeated as a whole.
func contended(batch []*firedTrigger) error {
	for _, t := range batch {
		if fault.Is(t.result.err, fault.Unavailable) {
			return t.result.err
		}
	}
	return nil
}

// refused counts runs that could not be created against their configs: no slot records them.
func (f *firing) refused(configs map[id.Config]*firingConfig, batch []*firedTrigger) error {
	for _, t := range batch {
		if r, _ := (firingSlot{trigger: t}).outcome(); r == nil || r.Outcome != config.Failed {
			continue
		}
		c := configs[t.configID()]
		if c == nil {
			continue
		}
		f.engine.log.Error("no run of a config that runs after another", "tenant", c.Tenant, "config", c.ID, "error", t.result.err)
		if !c.noted {
			c.noted = true
			f.configs = append(f.configs, c)
		}
		if err := f.failed(c); err != nil {
			return err
		}
		if c.changed {
			c.DueAt = time.Time{} // it was disabled
		}
	}
	return nil
}

// claimedRuns returns the timed-out runs of which a worker has claimed a task. The others timed out because
// workers are missing, which is no failure of their configs.
func claimedRuns(ctx context.Context, tx *store.Tx, results []store.ConfigResult) (map[id.Run]bool, error) {
	var timedOut []store.RunKey
	for _, r := range results {
		if r.State == run.RunTimedOut {
			timedOut = append(timedOut, store.RunKey{Tenant: r.Tenant, Run: r.Run})
		}
	}
	return tx.ClaimedRuns(ctx, timedOut)
}

// fold counts results in their order, and returns the successes.
func (f *firing) fold(configs map[id.Config]*firingConfig, results []store.ConfigResult, claimed map[id.Run]bool) (succeeded []store.ConfigResult, err error) {
	for _, r := range results {
		c := configs[r.Config]
		if c == nil || !c.DeletedAt.IsZero() {
			continue // the config was deleted
		}
		if r.After != nil { // it was counted with the first of its listeners
			succeeded = append(succeeded, r)
			continue
		}
		if !c.noted {
			c.noted = true
			f.configs = append(f.configs, c)
		}
		// The last run is the one that was created last, and once that has ended, the one that ended last.
		if c.LastRun == nil || *c.LastRun == r.Run || !c.LastRunAt.IsZero() && !c.LastRunAt.After(r.At) {
			run := r.Run
			c.LastRun, c.LastState, c.LastRunAt = &run, int16(r.State), r.At
		}
		switch r.State {
		case run.RunSucceeded:
			c.Failures, c.LastSuccessAt = 0, r.At
			succeeded = append(succeeded, r)
		case run.RunFailed, run.RunTimedOut:
			if r.State == run.RunTimedOut && !claimed[r.Run] {
				continue
			}
			if err := f.failed(c); err != nil {
				return nil, err
			}
			if c.changed {
				c.DueAt = time.Time{} // it was disabled
			}
		default: // a cancelled run does not count
		}
	}
	return succeeded, nil
}

// listeners adds the triggers of configs that run after those that have succeeded: one for each success.
func (f *firing) listeners(ctx context.Context, tx *store.Tx, configs map[id.Config]*firingConfig, succeeded []store.ConfigResult) error {
	byName := map[store.ConfigName][]*firingConfig{}
	var counted []store.ConfigKey
	for _, c := range configs {
		if on := c.Spec.Trigger.Event; on != nil && on.Config != "" && c.Fires() {
			name := store.ConfigName{Tenant: c.Tenant, Workspace: c.Workspace, Name: on.Config}
			byName[name] = append(byName[name], c)
			counted = append(counted, c.Key())
		}
	}
	var err error
	if f.loads, err = tx.LiveOfConfigs(ctx, counted); err != nil {
		return err
	}
	for _, after := range byName {
		slices.SortFunc(after, func(a, b *firingConfig) int { return bytes.Compare(a.ID.UUID[:], b.ID.UUID[:]) })
	}
	hops, err := hopsOf(ctx, tx, succeeded, len(byName) > 0)
	if err != nil {
		return err
	}
	for _, r := range succeeded {
		source := configs[r.Config]
		if hops[r.Run] >= maxHops {
			f.engine.log.Error("a chain of configs that run after each other is too long", "tenant", source.Tenant, "config", source.Name, "run", r.Run, "hops", hops[r.Run])
			continue
		}
		for _, c := range byName[store.ConfigName{Tenant: source.Tenant, Workspace: source.Workspace, Name: source.Name}] {
			if r.After == nil || bytes.Compare(c.ID.UUID[:], r.After.UUID[:]) > 0 {
				if t := f.eventTrigger(c.ConfigState); t != nil {
					t.For.Window.Hops = hops[r.Run] + 1
					f.add(t)
				}
			}
		}
	}
	return nil
}

// maxHops bounds how many configs run after each other because of one run. Cycles are refused when configs
// are saved; this ends any other.
const maxHops = 100

// hopsOf counts the successes of configs that have led to each run.
func hopsOf(ctx context.Context, tx *store.Tx, results []store.ConfigResult, wanted bool) (map[id.Run]int, error) {
	if !wanted || len(results) == 0 {
		return nil, nil
	}
	keys := make([]store.RunKey, len(results))
	for i, r := range results {
		keys[i] = store.RunKey{Tenant: r.Tenant, Run: r.Run}
	}
	runs, err := tx.LookRuns(ctx, keys)
	hops := make(map[id.Run]int, len(runs))
	for _, r := range runs {
		if r.Window != nil {
			hops[r.ID] = r.Window.Hops
		}
	}
	return hops, err
}

// eventTrigger returns the trigger of a config because of an event; nil if max_overlap is reached.
func (f *firing) eventTrigger(c *store.ConfigState) *triggerCommand {
	load := f.loads[c.ID]
	if c.Spec.MaxOverlap > 0 && load.Live >= c.Spec.MaxOverlap {
		return nil
	}
	if load.Live++; f.loads != nil {
		f.loads[c.ID] = load
	}
	return configTrigger(c, scheduleOf(c), time.Time{}, f.now, "event")
}

// scheduleOf is the schedule of a config; nil if it cannot be read.
func scheduleOf(c *store.ConfigState) *schedule.Schedule {
	s, err := c.Spec.Schedule()
	if err != nil {
		return nil
	}
	return s
}

// now is the database's time.
func (e *Engine) now(ctx context.Context) (now time.Time, err error) {
	err = e.store.Engine(ctx, func(ctx context.Context, tx *store.Tx) error {
		now, err = tx.Clock(ctx)
		return err
	})
	return now, err
}

// TriggerConfig creates a run of a config now. Its slots do not change.
func (e *Engine) TriggerConfig(ctx context.Context, owner id.Tenant, of id.Config, t Trigger) (Triggered, error) {
	c, err := e.store.GetConfig(ctx, store.ConfigKey{Tenant: owner, Config: of})
	if err != nil {
		return Triggered{}, err
	}
	now, err := e.now(ctx)
	if err != nil {
		return Triggered{}, err
	}
	cmd := configTrigger(&c.ConfigState, scheduleOf(&c.ConfigState), time.Time{}, now, "manual")
	cmd.IdempotencyKey, cmd.WaitForQuota, cmd.WaitForLock, cmd.Queue, cmd.Meta = t.IdempotencyKey, t.WaitForQuota, t.WaitForLock, t.Queue, t.Meta
	cmd.TriggeredBy, cmd.Note, cmd.Partitions = t.TriggeredBy, t.Note, t.Partitions
	if len(t.Parameters) > 0 {
		if cmd.Parameters, err = config.With(cmd.Parameters, t.Parameters); err != nil {
			return Triggered{}, err
		}
	}
	if cmd.broken != nil {
		return Triggered{}, cmd.broken
	}
	return e.withLock(ctx, cmd.WaitForLock, func() (Triggered, error) {
		again := newTrigger(cmd.Trigger)
		again.cover = cmd.cover
		return e.trigger(ctx, again)
	})
}
