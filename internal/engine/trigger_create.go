package engine

import (
	"context"
	"time"

	"go.arco.dev/servo/internal/base/fault"
	"go.arco.dev/servo/internal/base/id"
	"go.arco.dev/servo/internal/domain/run"
	"go.arco.dev/servo/internal/store"
)

// answerRepeatedTriggers mints run ids, takes the idempotency keys, and answers the triggers whose run
// exists. It returns the others.
func answerRepeatedTriggers(ctx context.Context, tx *store.Tx, w *working, planned []*plannedTrigger) ([]*plannedTrigger, error) {
	var (
		keys  []store.TriggerKey
		again []store.RunKey
	)
	for _, t := range planned {
		if t.run == (id.Run{}) {
			t.run = id.New[id.Run](w.mint)
		} else { // an earlier transaction may have been committed
			again = append(again, store.RunKey{Tenant: t.Tenant, Run: t.run})
		}
		if t.IdempotencyKey != "" {
			keys = append(keys, store.TriggerKey{Tenant: t.Tenant, Key: t.IdempotencyKey, Digest: t.digest, Run: t.run})
		}
	}
	holders, err := tx.TakeTriggerKeys(ctx, keys, w.now)
	if err != nil {
		return nil, err
	}
	var existing map[id.Run]bool
	if len(again) > 0 {
		if existing, err = tx.ExistingRuns(ctx, again); err != nil {
			return nil, err
		}
	}
	type owned struct {
		tenant id.Tenant
		key    string
	}
	holder := make(map[owned]store.TriggerKey, len(holders))
	for _, k := range holders {
		holder[owned{k.Tenant, k.Key}] = k
	}
	var fresh []*plannedTrigger
	for _, t := range planned {
		t.result.Run = t.run
		k, held := holder[owned{t.Tenant, t.IdempotencyKey}]
		switch {
		case held && k.Run != t.run && k.Digest != t.digest:
			t.result.err = fault.New(fault.Conflict, "this idempotency key was used for another request", fault.Field("idempotency_key"),
				fault.Remedy("use a new key for a new request"), fault.Value("run", k.Run.String()))
		case held && k.Run != t.run:
			t.result.Run, t.result.Repeat = k.Run, true
		case existing[t.run]: // committed by an earlier transaction whose answer was lost
		default:
			fresh = append(fresh, t)
		}
	}
	return fresh, nil
}

// createRuns creates the runs of the fresh among the planned triggers, as far as locks and quotas
// allow, sets the results of all, and returns how many runs it created. Loads count the runs of
// configs; nil counts them here.
func createRuns(ctx context.Context, tx *store.Tx, w *working, planned, fresh []*plannedTrigger, loads map[id.Config]store.ConfigLoad) (created int, err error) {
	locked, late, err := takeLocks(ctx, tx, w, fresh)
	if err != nil {
		return 0, err
	}
	if loads == nil {
		if loads, err = loadsOf(ctx, tx, late); err != nil {
			return 0, err
		}
	}
	waiting, skipped, err := queueBehind(ctx, tx, late, loads)
	if err != nil {
		return 0, err
	}
	allowed, refused, err := underQuotas(ctx, tx, w, append(locked, waiting...))
	if err != nil {
		return 0, err
	}
	for _, t := range allowed {
		if err := w.create(t); err != nil {
			return 0, err
		}
		t.result.replaces = t.replaces
	}
	followDecided(planned, fresh, skipped)
	return len(allowed), undoRefused(ctx, tx, fresh, refused)
}

// create adds a new run and its tasks to the working set.
func (w *working) create(t *allowedTrigger) error {
	specs, edges, err := w.specs(t.plannedTrigger)
	if err != nil {
		return err
	}
	first := specs[:min(len(specs), maxTasksPerEvent)]
	created := &liveRun{run: run.Run{Tenant: t.Tenant, ID: t.run}, isNew: true}
	w.runs[t.run] = created
	startBy, startLimit := t.startBy(w.now)
	err = w.recordRun(created, run.RunCreated{
		Workspace: t.workspace, Deployment: t.deployment, Released: t.released, Pipeline: t.Pipeline, Parameters: t.plan.Parameters, Priority: t.priority,
		TriggerType: t.triggerType, TriggeredBy: t.TriggeredBy, Note: t.Note, Parent: t.Parent, Fingerprint: t.plan.Fingerprint, Retry: t.Retry,
		Started: !t.pending, Limit: t.limit, Lock: t.lock, Behind: t.waits, Turn: t.turn, Config: t.config(), Slot: t.slot(), Window: t.window(), Tasks: first,
		Labels: t.labels(), StartBy: startBy, StartLimit: startLimit,
	}, t.Meta)
	if err != nil {
		return err
	}
	if err := w.missedStart(created, false, t.Meta); err != nil { // created too late, after an outage
		return err
	}
	if err := w.addToRun(created, run.RunTasksAdded{Tasks: specs[len(first):]}, t.Meta); err != nil {
		return err
	}
	w.insertTasks(created.run, specs)
	w.changes.NewEdges = append(w.changes.NewEdges, edges...)
	return nil
}

func (t *triggerCommand) config() *id.Config {
	if t.For == nil {
		return nil
	}
	return &t.For.Config
}

func (t *triggerCommand) configID() (of id.Config) {
	if t.For != nil {
		of = t.For.Config
	}
	return of
}

func (t *triggerCommand) window() *run.Window {
	if t.For == nil {
		return nil
	}
	return t.For.Window
}

func (t *triggerCommand) slot() *time.Time {
	if t.For == nil || t.For.Slot.IsZero() {
		return nil
	}
	return &t.For.Slot
}
