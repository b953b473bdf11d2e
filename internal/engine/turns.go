package engine

import (
	"context"
	"fmt"

	"go.arco.dev/servo/internal/base/event"
	"go.arco.dev/servo/internal/base/fault"
	"go.arco.dev/servo/internal/base/id"
	"go.arco.dev/servo/internal/domain/config"
	"go.arco.dev/servo/internal/domain/run"
	"go.arco.dev/servo/internal/store"
)

// maxReplaced bounds how many waiting runs of one config a newer slot cancels.
const maxReplaced = 100

// queueBehind lets the triggers of a batch wait whose lock another run has, if they ask for it or
// their configs do, and gives each its turn: the order in which they came. It says of the others
// whether the run that has the lock does the same.
func (e *Engine) queueBehind(ctx context.Context, tx *store.Tx, batch []*call[controlCommand], loads map[id.Config]store.ConfigLoad) ([]*call[controlCommand], error) {
	var late []*call[controlCommand]
	newest := map[id.Config]*call[controlCommand]{}
	for _, c := range batch {
		t := c.cmd.(*triggerCommand) //nolint:forcetypeassert // sorted by runControl
		if c.err != nil || !t.answer.AlreadyRunning && t.behind == nil {
			continue
		}
		late = append(late, c)
		if t.overlap() == config.OverlapCancelRunning {
			newest[t.For.Config] = c
		}
	}
	if len(late) == 0 {
		return nil, nil
	}
	replaced, err := replacedRuns(ctx, tx, newest)
	if err != nil {
		return nil, err
	}
	if err := compareWithHolders(ctx, tx, late); err != nil {
		return nil, err
	}
	var waiting []*call[controlCommand]
	ahead := map[id.Config]int{}
	for _, c := range late {
		t := c.cmd.(*triggerCommand) //nolint:forcetypeassert // likewise
		of := t.configID()
		if !t.fired && !t.answer.Differs || !t.mayWait(loads[of].Behind+ahead[of], newest[of] == c) {
			continue
		}
		if t.overlap() == config.OverlapCancelRunning {
			t.makeWay = cancelsOf(t, replaced[of])
		}
		ahead[of]++
		t.waits, t.behind, t.answer = true, nil, Triggered{Run: t.run}
		waiting = append(waiting, c)
	}
	turns, err := tx.LockTurns(ctx, len(waiting))
	for i := range turns {
		waiting[i].cmd.(*triggerCommand).turn = turns[i] //nolint:forcetypeassert // likewise
	}
	return waiting, err
}

// loadsOf counts the runs of configs whose overlap asks for it.
func loadsOf(ctx context.Context, tx *store.Tx, batch []*call[controlCommand]) (map[id.Config]store.ConfigLoad, error) {
	var keys []store.ConfigKey
	for _, c := range batch {
		if t := c.cmd.(*triggerCommand); t.answer.AlreadyRunning && t.overlap() == config.OverlapBufferOne { //nolint:forcetypeassert // likewise
			keys = append(keys, store.ConfigKey{Tenant: t.Tenant, Config: t.For.Config})
		}
	}
	return tx.LiveOfConfigs(ctx, keys)
}

// overlap is what the config says about its own runs; "" without a config.
func (t *triggerCommand) overlap() config.Overlap {
	if t.For == nil {
		return ""
	}
	return t.For.Overlap
}

// mayWait reports whether a run waits for its lock, with so many of its config ahead of it. With
// cancel_running only the newest does.
func (t *triggerCommand) mayWait(ahead int, newest bool) bool {
	switch t.overlap() {
	case config.OverlapBufferAll:
		return true
	case config.OverlapBufferOne:
		return ahead == 0 || t.Queue
	case config.OverlapCancelRunning:
		return newest
	default:
		return t.Queue
	}
}

// holder is the run that has the lock which a trigger could not have.
func (t *triggerCommand) holder() id.Run {
	if t.behind != nil {
		return t.behind.cmd.(*triggerCommand).run //nolint:forcetypeassert // sorted by runControl
	}
	return t.answer.Run
}

// replacedRuns are the runs of configs that wait for their lock and that a newer one replaces.
func replacedRuns(ctx context.Context, tx *store.Tx, newest map[id.Config]*call[controlCommand]) (map[id.Config][]id.Run, error) {
	if len(newest) == 0 {
		return nil, nil
	}
	keys := make([]store.ConfigKey, 0, len(newest))
	for of, c := range newest {
		keys = append(keys, store.ConfigKey{Tenant: c.cmd.(*triggerCommand).Tenant, Config: of}) //nolint:forcetypeassert // likewise
	}
	return tx.WaitingOfConfigs(ctx, keys, maxReplaced)
}

// cancelsOf cancels the holder of the lock and the runs of the same config that wait for it.
func cancelsOf(t *triggerCommand, replaced []id.Run) []Cancel {
	runs := []id.Run{t.holder()}
	for _, r := range replaced {
		if r != runs[0] {
			runs = append(runs, r)
		}
	}
	cancels := make([]Cancel, len(runs))
	for i, r := range runs {
		cancels[i] = Cancel{Tenant: t.Tenant, Run: r, Reason: "a newer run of its config replaces it (overlap: cancel_running)", Meta: event.Meta{Actor: scheduler}}
	}
	return cancels
}

// compareWithHolders says of each trigger that people sent whether the run that has its lock does
// something else than it asks for.
func compareWithHolders(ctx context.Context, tx *store.Tx, late []*call[controlCommand]) error {
	var keys []store.RunKey
	for _, c := range late {
		if t := c.cmd.(*triggerCommand); !t.fired && t.behind == nil { //nolint:forcetypeassert // likewise
			keys = append(keys, store.RunKey{Tenant: t.Tenant, Run: t.answer.Run})
		}
	}
	runs, err := tx.LookRuns(ctx, keys)
	if err != nil {
		return err
	}
	holders := make(map[id.Run]run.Run, len(runs))
	for _, r := range runs {
		holders[r.ID] = r
	}
	for _, c := range late {
		t := c.cmd.(*triggerCommand) //nolint:forcetypeassert // likewise
		if t.fired {
			continue
		}
		holder := holders[t.answer.Run]
		if t.behind != nil {
			first := t.behind.cmd.(*triggerCommand) //nolint:forcetypeassert // likewise
			holder = run.Run{Parameters: first.planned.Parameters, Deployment: first.deployment, Fingerprint: first.planned.Fingerprint}
		}
		same, err := t.sameAs(holder)
		if err != nil {
			return err
		}
		t.answer.Differs = !same
	}
	return nil
}

// sameAs reports whether a run does what the trigger asks for: the same parameters and, by the same
// code, the same tasks.
func (t *triggerCommand) sameAs(r run.Run) (bool, error) {
	if t.deployment == r.Deployment && t.planned.Fingerprint != r.Fingerprint {
		return false, nil
	}
	return sameJSON(t.planned.Parameters, r.Parameters)
}

// conflict refuses a trigger whose lock is held by a run that does something else.
func (t Triggered) conflict() error {
	if !t.AlreadyRunning || !t.Differs {
		return nil
	}
	return fault.New(fault.Conflict, fmt.Sprintf("run %s holds the lock and has other parameters or tasks", t.Run), fault.Field("pipeline"),
		fault.Remedy("wait until that run ends, cancel it, or queue this run behind it (queue: true)"), fault.Value("run", t.Run.String()))
}

// replace cancels the runs that a trigger replaces. Runs are locked after configs and keys, so
// this is a transaction of its own. A run that has ended in the meantime needs no cancel.
func (e *Engine) replace(ctx context.Context, cancels []Cancel) (failed error) {
	for _, c := range cancels {
		if _, err := e.CancelRun(ctx, c); err != nil && !fault.Is(err, fault.Conflict) && !fault.Is(err, fault.NotFound) && failed == nil {
			failed = err
		}
	}
	return failed
}
