package engine

import (
	"context"
	"errors"
	"time"

	"go.arco.dev/servo/internal/base/event"
	"go.arco.dev/servo/internal/base/fault"
	"go.arco.dev/servo/internal/base/id"
	"go.arco.dev/servo/internal/domain/backfill"
	"go.arco.dev/servo/internal/domain/partition"
	"go.arco.dev/servo/internal/domain/run"
	"go.arco.dev/servo/internal/store"
)

// backfiller is the actor of the events that the loop of backfills records.
const backfiller = "backfills"

// backfillRun is the backfill of a trigger.
type backfillRun struct {
	id         id.Backfill
	deployment id.Deployment // zero is the active one
	asset      string
	set        partition.Set // of the chunk
}

// backfillPriority is the priority of the runs of backfills. Other runs have 1 to 10. Every OldestEvery-th
// admitted task of a tenant is its oldest, so a backfill proceeds beside any amount of other work.
const backfillPriority = 0

// pinned is the deployment that a run must use; zero is the active one.
func (b *backfillRun) pinned() id.Deployment {
	if b == nil {
		return id.Deployment{}
	}
	return b.deployment
}

// StartBackfillRuns starts the next run of up to most backfills, under the duty, and returns how many it
// started. The row of the chunk, the run and the events are one transaction: after a crash the chunk has
// its run or has none. The limits are checked in it: that of the backfill on its locked row, and
// max_backfill_runs under the tenant's lock.
func (e *Engine) StartBackfillRuns(ctx context.Context, duty store.Duty, most int) (started int, err error) {
	err = e.transact(ctx, func(ctx context.Context, tx *store.Tx, w *working) error {
		started = 0
		if err := tx.HoldDuty(ctx, duty); err != nil {
			return err
		}
		keys, err := tx.StartableBackfills(ctx, most)
		if err != nil || len(keys) == 0 {
			return err
		}
		locked, err := tx.LockBackfills(ctx, keys)
		if err != nil {
			return err
		}
		now, err := tx.Clock(ctx)
		if err != nil {
			return err
		}
		w.at(now)
		starts, err := backfillTriggers(ctx, tx, locked)
		if err != nil {
			return err
		}
		if err := e.createBackfillRuns(ctx, tx, w, starts); err != nil {
			return err
		}
		for _, s := range starts {
			ok, err := s.record(ctx, tx, now)
			if err != nil {
				return err
			}
			if ok {
				started++
			}
		}
		return nil
	})
	if err != nil {
		return 0, err
	}
	return started, nil
}

// backfillStart is the next chunk of a locked backfill, and the trigger of its run.
type backfillStart struct {
	backfill.Backfill

	trigger *triggerCommand
	result  *triggerResult // nil if the batch was too large for it
}

// backfillTriggers requests the next run of each backfill that may start one.
func backfillTriggers(ctx context.Context, tx *store.Tx, locked []backfill.Backfill) ([]*backfillStart, error) {
	names, err := tx.WorkspaceNames(ctx, locked)
	if err != nil {
		return nil, err
	}
	var starts []*backfillStart
	for _, b := range locked {
		if !b.CanStart() { // changed since it was found
			continue
		}
		t := newTrigger(Trigger{
			Tenant: b.Tenant, Workspace: names[b.Workspace], Pipeline: b.Settings.Pipeline, Select: b.Settings.Select, Parameters: b.Settings.Parameters,
			TriggerType: TriggerBackfill, TriggeredBy: "backfill/" + b.ID.String(), Note: b.Settings.Note, Meta: event.Meta{Actor: backfiller},
		})
		t.fired = true
		t.backfill = &backfillRun{id: b.ID, deployment: b.Settings.Deployment, asset: b.Settings.Asset, set: b.ChunkSet(b.Next)}
		starts = append(starts, &backfillStart{Backfill: b, trigger: t})
	}
	return starts, nil
}

// createBackfillRuns creates the runs of as many starts as one transaction may have tasks of.
func (e *Engine) createBackfillRuns(ctx context.Context, tx *store.Tx, w *working, starts []*backfillStart) error {
	cmds := make([]*triggerCommand, len(starts))
	for i, s := range starts {
		cmds[i] = s.trigger
	}
	planned, results, err := e.planTriggers(ctx, tx, cmds, maxTasksPerBatch)
	if err != nil {
		return err
	}
	for _, t := range planned {
		t.run = id.New[id.Run](w.mint)
		t.result.Run = t.run
	}
	if _, err = createRuns(ctx, tx, w, planned, planned, nil); err != nil {
		return err
	}
	for i := range results {
		starts[i].result = &results[i]
	}
	return nil
}

// record writes the chunk of a created run. Without a run it notes the quota that the chunk waits for, or
// fails a backfill whose run cannot be planned.
func (s *backfillStart) record(ctx context.Context, tx *store.Tx, now time.Time) (started bool, err error) {
	meta := event.Meta{Actor: backfiller}
	key := store.BackfillKey{Tenant: s.Tenant, Backfill: s.ID}
	switch {
	case s.result == nil:
		return false, nil
	case s.result.err == nil:
		chunk := store.Chunk{BackfillKey: key, Round: s.Round, Number: s.Next, Run: s.result.Run}
		if err := tx.InsertChunk(ctx, chunk, now); err != nil {
			return false, err
		}
		_, err = applyToBackfill(ctx, tx, s.Backfill, backfill.StartChunk{Run: s.result.Run}, now, meta)
		return true, err
	case waitsForQuota(s.result.err), fault.Is(s.result.err, fault.Unavailable):
		return false, tx.BackfillWaits(ctx, key, clipped(s.result.err.Error(), backfill.MaxReason))
	}
	if _, refused := fault.As(s.result.err); !refused {
		return false, s.result.err
	}
	_, err = applyToBackfill(ctx, tx, s.Backfill, backfill.Stop{Reason: clipped("the next run cannot be planned: "+s.result.err.Error(), backfill.MaxReason)}, now, meta)
	return false, err
}

// waitsForQuota reports whether a trigger was refused by a quota that frees again: a plan that is too large
// for one run never fits.
func waitsForQuota(err error) bool {
	f, ok := fault.As(err)
	return ok && f.Code == fault.LimitExceeded && f.Values["quota"] != "max_tasks_per_run"
}

// EndBackfillRuns records the results of up to most runs of backfills that have ended, under the duty, and
// returns how many. A run that has ended does not change, so it is read without a lock.
func (e *Engine) EndBackfillRuns(ctx context.Context, duty store.Duty, most int) (ended int, err error) {
	err = e.store.Engine(ctx, func(ctx context.Context, tx *store.Tx) error {
		ended = 0
		if err := tx.HoldDuty(ctx, duty); err != nil {
			return err
		}
		chunks, err := tx.EndedChunks(ctx, most)
		if err != nil || len(chunks) == 0 {
			return err
		}
		backfills, err := lockBackfillsOf(ctx, tx, chunks)
		if err != nil {
			return err
		}
		now, err := tx.Clock(ctx)
		if err != nil {
			return err
		}
		for _, c := range chunks {
			b, found := backfills[c.BackfillKey]
			if !found {
				continue
			}
			if b, err = e.endChunk(ctx, tx, b, c, now); err != nil {
				return err
			}
			backfills[c.BackfillKey] = b
			ended++
		}
		return nil
	})
	return ended, err
}

func lockBackfillsOf(ctx context.Context, tx *store.Tx, chunks []store.Chunk) (map[store.BackfillKey]backfill.Backfill, error) {
	seen := map[store.BackfillKey]bool{}
	var keys []store.BackfillKey
	for _, c := range chunks {
		if !seen[c.BackfillKey] {
			seen[c.BackfillKey] = true
			keys = append(keys, c.BackfillKey)
		}
	}
	locked, err := tx.LockBackfills(ctx, keys)
	found := make(map[store.BackfillKey]backfill.Backfill, len(locked))
	for _, b := range locked {
		found[store.BackfillKey{Tenant: b.Tenant, Backfill: b.ID}] = b
	}
	return found, err
}

func (e *Engine) endChunk(ctx context.Context, tx *store.Tx, b backfill.Backfill, c store.Chunk, now time.Time) (backfill.Backfill, error) {
	end := backfill.EndChunk{Round: c.Round, Chunk: c.Number, Run: c.Run}
	var err error
	if end.Failed, end.Skipped, err = e.chunkResults(ctx, tx, b, c); err != nil {
		return b, err
	}
	first, err := tx.EndChunk(ctx, c, end.Failed.Count(), end.Skipped.Count(), now)
	if err != nil || !first {
		return b, err
	}
	return applyToBackfill(ctx, tx, b, end, now, event.Meta{Actor: backfiller})
}

// CancelBackfillRuns cancels up to most live runs of cancelled backfills, and returns how many it found.
func (e *Engine) CancelBackfillRuns(ctx context.Context, most int) (int, error) {
	found, err := e.store.ChunksToCancel(ctx, most)
	if err != nil || len(found) == 0 {
		return 0, err
	}
	requests := make([]controlRequest, len(found))
	for i, c := range found {
		requests[i].cancel = &Cancel{
			Tenant: c.Tenant, Run: c.Run, Reason: clipped(backfillCancelled(c.Reason), run.MaxReasonLength), Meta: event.Meta{Actor: backfiller},
		}
	}
	_, errs := e.control.DoAll(ctx, requests)
	var failed error
	for _, err := range errs {
		if err != nil && !fault.Is(err, fault.Conflict) && !fault.Is(err, fault.NotFound) { // ended in the meantime
			failed = errors.Join(failed, err)
		}
	}
	return len(found), failed
}

func backfillCancelled(reason string) string {
	if reason == "" {
		return "its backfill was cancelled"
	}
	return "its backfill was cancelled: " + reason
}
