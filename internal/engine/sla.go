package engine

import (
	"context"
	"slices"
	"time"

	"go.arco.dev/servo/internal/base/canon"
	"go.arco.dev/servo/internal/base/event"
	"go.arco.dev/servo/internal/base/id"
	"go.arco.dev/servo/internal/domain/run"
	"go.arco.dev/servo/internal/store"
)

// labelText is the canonical text of labels, as runs and totals store it.
func labelText(labels map[string]string) string {
	if len(labels) == 0 {
		return ""
	}
	text, err := canon.Marshal(labels)
	if err != nil { // labels are text, which was checked when the config was saved
		return ""
	}
	return string(text)
}

// slaBreach is an SLA breach that the transaction records.
type slaBreach struct {
	of  *liveRun
	sla run.SLA
}

func (t *triggerCommand) labels() string {
	if t.For == nil {
		return ""
	}
	return t.For.Labels
}

// startBy is when the run should have begun, and the delay that this allows, in seconds.
func (t *triggerCommand) startBy(now time.Time) (*time.Time, int32) {
	if t.For == nil || t.For.Within == 0 {
		return nil, 0
	}
	from := now
	if !t.For.Slot.IsZero() {
		from = t.For.Slot.Add(t.For.Delay)
	}
	by := from.Add(t.For.Within).Truncate(time.Microsecond) // the precision of the database
	return &by, int32(t.For.Within / time.Second)           //nolint:gosec // at most a week
}

// lateAt returns the values of the live-run row of a run that is created now.
func (t *triggerCommand) lateAt(now time.Time) (at time.Time, breaches int16) {
	by, _ := t.startBy(now)
	switch {
	case by == nil:
		return time.Time{}, 0
	case now.After(*by):
		return time.Time{}, store.BreachedStart
	}
	return *by, 0
}

// missedStart records the breach of a run that did not begin in time.
func (w *working) missedStart(r *liveRun, begunInTime bool, meta event.Meta) error {
	breach, missed := r.run.MissedStart(begunInTime, w.now)
	if !missed {
		return nil
	}
	return w.recordRun(r, breach, meta)
}

// missedStarts checks the runs that end with this transaction after the time at which they should have
// begun: the reaper may not have checked them yet. Other runs cost nothing.
func missedStarts(ctx context.Context, tx *store.Tx, w *working) error {
	var ending []run.Run
	for _, r := range w.touched {
		if r.run.Remaining == 0 && r.run.MayBeLate(w.now) {
			ending = append(ending, r.run)
		}
	}
	if len(ending) == 0 {
		return nil
	}
	begun, err := tx.BegunInTime(ctx, ending)
	if err != nil {
		return err
	}
	for _, r := range ending {
		if err := w.missedStart(w.runs[r.ID], begun[r.ID], event.Meta{Actor: "engine"}); err != nil {
			return err
		}
	}
	return nil
}

// RecordLateStarts checks up to most runs that should have begun by now, and records a breach of those that have not
// or began too late. It returns how many it checked.
func (e *Engine) RecordLateStarts(ctx context.Context, most int) (int, error) {
	looked := 0
	var held []string
	err := e.transact(ctx, func(ctx context.Context, tx *store.Tx, w *working) error {
		looked, held = 0, nil
		now, err := tx.Clock(ctx)
		if err != nil {
			return err
		}
		candidates, err := tx.LateRuns(ctx, now, most)
		if err != nil || len(candidates) == 0 {
			return err
		}
		looked = len(candidates)
		locked, err := tx.LockRuns(ctx, store.LockForCount, candidates)
		if err != nil {
			return err
		}
		runs := slices.DeleteFunc(locked, func(r run.Run) bool { return r.State.Terminal() }) // its row is gone
		begun, pools, err := begunInTime(ctx, tx, runs)
		if err != nil {
			return err
		}
		held = pools
		if now, err = tx.Clock(ctx); err != nil {
			return err
		}
		w.at(now)
		w.addRuns(runs)
		for _, r := range runs {
			live := w.runs[r.ID]
			if err := w.missedStart(live, begun[r.ID], event.Meta{Actor: "reaper"}); err != nil {
				return err
			}
			w.changes.Looked = append(w.changes.Looked, live.run)
		}
		return nil
	})
	if err == nil && len(held) > 0 {
		e.signals.Publish(held...) // claims have skipped the locked tasks
	}
	return looked, err
}

// begunInTime returns which of some locked runs began in time. A claim reads the clock before it commits, so
// for runs that seem not to have begun it waits for transactions that are about to start a task.
func begunInTime(ctx context.Context, tx *store.Tx, runs []run.Run) (begun map[id.Run]bool, pools []string, err error) {
	if begun, err = tx.BegunInTime(ctx, runs); err != nil {
		return nil, nil, err
	}
	var doubtful []run.Run
	for _, r := range runs {
		if !begun[r.ID] && !r.Late {
			doubtful = append(doubtful, r)
		}
	}
	if len(doubtful) == 0 {
		return begun, nil, nil
	}
	if pools, err = tx.LockStarts(ctx, doubtful); err != nil {
		return nil, nil, err
	}
	again, err := tx.BegunInTime(ctx, doubtful)
	for r := range again {
		begun[r] = true
	}
	slices.Sort(pools)
	return begun, slices.Compact(pools), err
}

// total adds up the changes of runs: one row for each tenant and set of labels.
func (w *working) total() {
	type key struct {
		tenant id.Tenant
		labels string
	}
	places := map[key]int{}
	of := func(r run.Run) *store.RunDelta {
		k := key{r.Tenant, r.Labels}
		i, known := places[k]
		if !known {
			i = len(w.changes.Deltas)
			places[k] = i
			w.changes.Deltas = append(w.changes.Deltas, store.RunDelta{Tenant: r.Tenant, Labels: r.Labels})
		}
		return &w.changes.Deltas[i]
	}
	for _, r := range w.touched {
		if r.run.State.Terminal() && !r.from.Terminal() {
			d := of(r.run)
			d.Add(endOf(r.run))
			d.Delay = max(d.Delay, delayOf(r.run))
			if r.run.Released && r.run.State != run.RunCancelled {
				w.changes.Released = append(w.changes.Released, r.run)
			}
		}
	}
	for _, b := range w.breaches {
		of(b.of.run).Breaches++
	}
}

// endOf returns what the end of a run adds to the totals.
func endOf(r run.Run) store.Totals {
	t := store.Totals{Ended: 1}
	switch r.State { //nolint:exhaustive // the other states are no ends
	case run.RunSucceeded:
		t.Succeeded = 1
	case run.RunFailed:
		t.Failed = 1
	case run.RunTimedOut:
		t.TimedOut = 1
	case run.RunCancelled:
		t.Cancelled = 1
	}
	if !r.StartedAt.IsZero() {
		t.Started, t.Seconds = 1, max(0, r.FinishedAt.Sub(r.StartedAt).Seconds())
	}
	if r.Breached() {
		t.Breached = 1
	}
	return t
}

// delayOf is how many seconds a run waited for its start since it was due, or else since it was created; 0
// for a run that never started.
func delayOf(r run.Run) float64 {
	if r.StartedAt.IsZero() {
		return 0
	}
	due := r.CreatedAt
	if !r.StartBy.IsZero() {
		due = r.StartBy.Add(-time.Duration(r.StartLimit) * time.Second)
	}
	return max(0, r.StartedAt.Sub(due).Seconds())
}
