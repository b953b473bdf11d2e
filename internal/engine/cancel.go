package engine

import (
	"context"
	"time"

	"go.arco.dev/servo/internal/base/event"
	"go.arco.dev/servo/internal/base/fault"
	"go.arco.dev/servo/internal/base/id"
	"go.arco.dev/servo/internal/domain/run"
	"go.arco.dev/servo/internal/store"
)

// Cancel requests the end of a run.
type Cancel struct {
	Tenant   id.Tenant
	Run      id.Run
	Reason   string
	TimedOut bool // because it took longer than Limit
	Limit    time.Duration
	// Alone cancels in a transaction of its own, not in a batch with other commands: the caller commits
	// its answer with it.
	Alone bool
	Meta  event.Meta
}

// Cancelled is the answer to a cancel.
type Cancelled struct {
	State  run.State // CANCELLING while workers hold tasks, else a terminal state
	Repeat bool      // an earlier cancel has marked or ended it
}

// CancelRun marks a run, ends its tasks that are not leased, and requests the workers of the others to
// stop. A run that ended in another way cannot be cancelled any more.
func (e *Engine) CancelRun(ctx context.Context, c Cancel) (Cancelled, error) {
	if c.Alone {
		return e.cancelAlone(ctx, c)
	}
	answer, err := e.control.Do(ctx, controlRequest{cancel: &c})
	return answer.cancel, err
}

// cancelAlone cancels a run in a transaction of its own.
func (e *Engine) cancelAlone(ctx context.Context, c Cancel) (Cancelled, error) {
	results, err := e.runSomeCancels(ctx, []*Cancel{&c})
	if err != nil {
		return Cancelled{}, err
	}
	return results[0].Cancelled, results[0].err
}

// cancelResult is the answer to a cancel, or why it was refused.
type cancelResult struct {
	Cancelled

	err error
}

// runCancels cancels the runs of a batch, in one transaction unless they are large.
func (e *Engine) runCancels(ctx context.Context, calls []*controlCall) error {
	cancels := make([]*Cancel, len(calls))
	for i, c := range calls {
		cancels[i] = c.Request.cancel
	}
	for done := 0; done < len(calls); {
		results, err := e.runSomeCancels(ctx, cancels[done:])
		if err != nil {
			return err
		}
		for i, r := range results {
			calls[done+i].Answer.cancel, calls[done+i].Err = r.Cancelled, r.err
		}
		done += len(results)
	}
	return nil
}

// runSomeCancels marks the runs of the first cancels, cancels their tasks, and returns a result for
// each of these. The run must exist and must not have ended; a repeated cancel gets its state.
func (e *Engine) runSomeCancels(ctx context.Context, cancels []*Cancel) (results []cancelResult, err error) {
	var done *working
	err = e.transact(ctx, func(ctx context.Context, tx *store.Tx, w *working) error {
		done = w
		seen := map[store.RunKey]bool{}
		var keys []store.RunKey
		for _, c := range cancels {
			if key := (store.RunKey{Tenant: c.Tenant, Run: c.Run}); !seen[key] {
				seen[key] = true
				keys = append(keys, key)
			}
		}
		runs, err := tx.LockRuns(ctx, store.LockForCancel, keys)
		if err != nil {
			return err
		}
		w.addRuns(runs)
		alive, n := w.cancellable(cancels)
		tasks, err := tx.Sweep(ctx, alive)
		if err != nil {
			return err
		}
		now, err := tx.Clock(ctx)
		if err != nil {
			return err
		}
		w.at(now)
		w.addTasks(tasks)
		results = make([]cancelResult, n)
		for i, c := range cancels[:n] {
			results[i].Cancelled, results[i].err = w.mark(c)
		}
		return w.sweep(tasks)
	})
	if err != nil {
		return nil, err
	}
	for i, c := range cancels[:len(results)] {
		if results[i].err == nil {
			results[i].State = done.runs[c.Run].run.State // a run without leased tasks has ended
		}
	}
	return results, nil
}

// cancellable are the runs that the first n cancels of a batch are to end, bounded by the
// tasks that they have left.
func (w *working) cancellable(cancels []*Cancel) (alive []id.Run, n int) {
	seen := map[id.Run]bool{}
	for tasks := 0; n < len(cancels) && tasks <= maxTasksPerBatch; n++ {
		of := cancels[n].Run
		r, ok := w.runs[of]
		if !ok || seen[of] || r.run.State.Terminal() || r.run.State == run.RunCancelling {
			continue
		}
		seen[of] = true
		alive = append(alive, of)
		tasks += int(r.run.Remaining)
	}
	return alive, n
}

// mark decides one cancel of a batch.
func (w *working) mark(cmd *Cancel) (Cancelled, error) {
	r, ok := w.runs[cmd.Run]
	if !ok || r.run.Tenant != cmd.Tenant { // another tenant's run may be in the same batch
		return Cancelled{}, fault.New(fault.NotFound, "no run "+cmd.Run.String(), fault.Field("run"), fault.Remedy("check the id"))
	}
	switch r.run.State {
	case run.RunCancelling, run.RunCancelled, run.RunTimedOut:
		return Cancelled{State: r.run.State, Repeat: true}, nil
	default: // decided below
	}
	var action run.RunAction = run.CancelRun{Reason: cmd.Reason}
	if cmd.TimedOut {
		action = run.TimeOutRun{Reason: cmd.Reason}
	}
	body, err := r.run.Decide(action)
	if err != nil {
		return Cancelled{}, err
	}
	if breach, overran := r.run.Overrun(int32(cmd.Limit / time.Second)); cmd.TimedOut && overran { //nolint:gosec // at most a year
		if err := w.recordRun(r, breach, cmd.Meta); err != nil {
			return Cancelled{}, err
		}
	}
	if err := w.recordRun(r, body, cmd.Meta); err != nil {
		return Cancelled{}, err
	}
	return Cancelled{State: r.run.State}, nil
}

// sweep cancels the tasks of the runs that were marked.
func (w *working) sweep(tasks []run.Task) error {
	for _, t := range tasks {
		if r := w.runs[t.Run]; r == nil || r.run.State != run.RunCancelling {
			continue // its cancel was refused
		}
		if err := w.decide(w.tasks[t.ID], run.Cancel{}, event.Meta{Actor: "engine"}); err != nil {
			return err
		}
	}
	return nil
}
