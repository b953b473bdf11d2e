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

// queueBehind gives late triggers that may wait for their lock a turn, in the order in which they came,
// and answers the others with the run that has the lock.
func queueBehind(ctx context.Context, tx *store.Tx, late []lateTrigger, loads map[id.Config]store.ConfigLoad) (waiting []*lockedTrigger, skipped []lateTrigger, err error) {
	if len(late) == 0 {
		return nil, nil, nil
	}
	newest := map[id.Config]*plannedTrigger{}
	for _, t := range late {
		if t.overlap() == config.OverlapCancelRunning {
			newest[t.For.Config] = t.plannedTrigger
		}
	}
	replaced, err := replacedRuns(ctx, tx, newest)
	if err != nil {
		return nil, nil, err
	}
	holders, err := holdersOf(ctx, tx, late)
	if err != nil {
		return nil, nil, err
	}
	ahead := map[id.Config]int{}
	for i, t := range late {
		same := true
		if !t.fired {
			if same, err = t.sameAs(holders[i]); err != nil {
				return nil, nil, err
			}
		}
		of := t.configID()
		if !t.fired && same || !t.mayWait(loads[of].Behind+ahead[of], newest[of] == t.plannedTrigger) {
			t.result.Triggered = Triggered{Run: t.holder, AlreadyRunning: true, Differs: !same}
			skipped = append(skipped, t)
			continue
		}
		ahead[of]++
		place := &lockedTrigger{plannedTrigger: t.plannedTrigger, waits: true}
		if t.overlap() == config.OverlapCancelRunning {
			place.replaces = t.cancelsFor(replaced[of])
		}
		waiting = append(waiting, place)
	}
	turns, err := tx.LockTurns(ctx, len(waiting))
	for i := range turns {
		waiting[i].turn = turns[i]
	}
	return waiting, skipped, err
}

// loadsOf counts the runs of configs whose overlap depends on them.
func loadsOf(ctx context.Context, tx *store.Tx, late []lateTrigger) (map[id.Config]store.ConfigLoad, error) {
	var keys []store.ConfigKey
	for _, t := range late {
		if t.first == nil && t.overlap() == config.OverlapBufferOne {
			keys = append(keys, store.ConfigKey{Tenant: t.Tenant, Config: t.For.Config})
		}
	}
	return tx.LiveOfConfigs(ctx, keys)
}

// overlap is the overlap policy of the config; "" without a config.
func (t *triggerCommand) overlap() config.Overlap {
	if t.For == nil {
		return ""
	}
	return t.For.Overlap
}

// mayWait reports whether a run may wait for its lock, with this many runs of its config ahead of it. With
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

// replacedRuns are the runs of configs that wait for their lock and that a newer one replaces.
func replacedRuns(ctx context.Context, tx *store.Tx, newest map[id.Config]*plannedTrigger) (map[id.Config][]id.Run, error) {
	if len(newest) == 0 {
		return nil, nil
	}
	keys := make([]store.ConfigKey, 0, len(newest))
	for of, t := range newest {
		keys = append(keys, store.ConfigKey{Tenant: t.Tenant, Config: of})
	}
	return tx.WaitingOfConfigs(ctx, keys, maxReplaced)
}

// cancelsFor cancels the holder of the lock and the runs of the same config that wait for it.
func (t lateTrigger) cancelsFor(replaced []id.Run) []Cancel {
	runs := []id.Run{t.holder}
	for _, r := range replaced {
		if r != t.holder {
			runs = append(runs, r)
		}
	}
	cancels := make([]Cancel, len(runs))
	for i, r := range runs {
		cancels[i] = Cancel{Tenant: t.Tenant, Run: r, Reason: "a newer run of its config replaces it (overlap: cancel_running)", Meta: event.Meta{Actor: scheduler}}
	}
	return cancels
}

// holdersOf returns for each late trigger the run that has its lock. Triggers of configs are not
// compared with it and get none.
func holdersOf(ctx context.Context, tx *store.Tx, late []lateTrigger) ([]run.Run, error) {
	var keys []store.RunKey
	for _, t := range late {
		if !t.fired && t.first == nil {
			keys = append(keys, store.RunKey{Tenant: t.Tenant, Run: t.holder})
		}
	}
	found, err := tx.LookRuns(ctx, keys)
	if err != nil {
		return nil, err
	}
	byID := make(map[id.Run]run.Run, len(found))
	for _, r := range found {
		byID[r.ID] = r
	}
	holders := make([]run.Run, len(late))
	for i, t := range late {
		if holders[i] = byID[t.holder]; t.first != nil {
			holders[i] = run.Run{Parameters: t.first.plan.Parameters, Deployment: t.first.deployment, Fingerprint: t.first.plan.Fingerprint}
		}
	}
	return holders, nil
}

// sameAs reports whether a run does what the trigger requests: the same parameters and, with the same code,
// the same tasks.
func (t *plannedTrigger) sameAs(r run.Run) (bool, error) {
	if t.deployment == r.Deployment && t.plan.Fingerprint != r.Fingerprint {
		return false, nil
	}
	return sameJSON(t.plan.Parameters, r.Parameters)
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
