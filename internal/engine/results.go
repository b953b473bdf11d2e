package engine

import (
	"context"
	"errors"
	"math"
	"time"

	"go.arco.dev/servo/internal/id"
	"go.arco.dev/servo/internal/run"
	"go.arco.dev/servo/internal/store"
)

// FoldResults takes in what up to most runs that have ended mean for their configs: success
// and failure are counted, a config that has failed too often is disabled, and those that run
// after others get their runs. It says how many it took. If the runs of so many would be too
// large for one transaction it takes fewer.
func (e *Engine) FoldResults(ctx context.Context, most int) (taken int, err error) {
	for {
		if taken, err = e.foldResults(ctx, most); !errors.Is(err, errTooLarge) {
			return taken, err
		}
		most /= 2
	}
}

// errTooLarge says that a transaction would have more tasks than it may.
var errTooLarge = errors.New("too many tasks for one transaction")

func (e *Engine) foldResults(ctx context.Context, most int) (taken int, err error) {
	var f *firing
	err = e.transact(ctx, func(ctx context.Context, tx *store.Tx, w *working) error {
		results, err := tx.TakeConfigResults(ctx, most)
		if err != nil || len(results) == 0 {
			return err
		}
		taken = len(results)
		configs, err := lockConfigsOf(ctx, tx, results)
		if err != nil {
			return err
		}
		now, err := tx.Clock(ctx)
		if err != nil {
			return err
		}
		w.at(now)
		f = newFiring(e, now)
		succeeded, err := f.fold(configs, results)
		if err != nil {
			return err
		}
		if err := f.listeners(ctx, tx, configs, succeeded); err != nil {
			return err
		}
		// One result has all of its runs, however large: nothing of it is left for the next time.
		limit := maxTasksPerBatch
		if most == 1 {
			limit = math.MaxInt
		}
		n, err := f.makeRuns(ctx, tx, w, limit)
		if err != nil {
			return err
		}
		if n < len(f.batch) {
			return errTooLarge
		}
		return f.save(ctx, tx)
	})
	if err != nil || f == nil {
		return 0, err
	}
	return taken, f.followUp(ctx)
}

// lockConfigsOf locks the configs of results, and those that run after the ones that have
// succeeded: all at once, in the order of their ids.
func lockConfigsOf(ctx context.Context, tx *store.Tx, results []store.ConfigResult) (map[id.Config]*firingConfig, error) {
	seen := map[store.ConfigKey]bool{}
	var keys []store.ConfigKey
	for _, r := range results {
		if !seen[r.ConfigKey] {
			seen[r.ConfigKey] = true
			keys = append(keys, r.ConfigKey)
		}
	}
	after, err := tx.ListenersOf(ctx, keys)
	if err != nil {
		return nil, err
	}
	for _, key := range after {
		if !seen[key] {
			seen[key] = true
			keys = append(keys, key)
		}
	}
	locked, err := tx.LockConfigs(ctx, keys)
	if err != nil {
		return nil, err
	}
	configs := make(map[id.Config]*firingConfig, len(locked))
	for i := range locked {
		configs[locked[i].ID] = &firingConfig{ConfigState: &locked[i]}
	}
	return configs, nil
}

// fold counts results, each in its turn, and gives the runs that have succeeded.
func (f *firing) fold(configs map[id.Config]*firingConfig, results []store.ConfigResult) (succeeded []store.ConfigResult, err error) {
	for _, r := range results {
		c := configs[r.Config]
		if c == nil || !c.DeletedAt.IsZero() {
			continue // nobody asks any more
		}
		if !c.noted {
			c.noted = true
			f.configs = append(f.configs, c)
		}
		// The last run is the one that was made last, and once that has ended, the one that ended last.
		if c.LastRun == nil || *c.LastRun == r.Run || !c.LastRunAt.IsZero() && !c.LastRunAt.After(r.At) {
			run := r.Run
			c.LastRun, c.LastState, c.LastRunAt = &run, int16(r.State), r.At
		}
		switch r.State {
		case run.RunSucceeded:
			c.Failures, c.LastSuccessAt = 0, r.At
			succeeded = append(succeeded, r)
		case run.RunFailed, run.RunTimedOut:
			if err := f.failed(c); err != nil {
				return nil, err
			}
			if c.changed {
				c.DueAt = time.Time{} // it was disabled
			}
		default: // a cancelled run says nothing about its config
		}
	}
	return succeeded, nil
}

// listeners asks for the runs of configs that run after those that have succeeded: one for
// each success.
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
	for _, r := range succeeded {
		source := configs[r.Config]
		for _, c := range byName[store.ConfigName{Tenant: source.Tenant, Workspace: source.Workspace, Name: source.Name}] {
			f.command(c.ConfigState, time.Time{}, "event")
		}
	}
	return nil
}

// TriggerConfig makes a run of a config now. Its slots stay as they are.
func (e *Engine) TriggerConfig(ctx context.Context, owner id.Tenant, of id.Config, t Trigger) (Triggered, error) {
	c, err := e.store.GetConfig(ctx, store.ConfigKey{Tenant: owner, Config: of})
	if err != nil {
		return Triggered{}, err
	}
	f := newFiring(e, time.Time{})
	cmd := f.command(&c.ConfigState, time.Time{}, "manual").cmd.(*triggerCommand) //nolint:forcetypeassert // just made
	cmd.IdempotencyKey, cmd.WaitForQuota, cmd.WaitForLock, cmd.Meta = t.IdempotencyKey, t.WaitForQuota, t.WaitForLock, t.Meta
	cmd.TriggeredBy = t.TriggeredBy
	return e.TriggerRun(ctx, cmd.Trigger)
}
