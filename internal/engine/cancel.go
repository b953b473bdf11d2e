package engine

import (
	"cmp"
	"context"
	"time"

	"go.arco.dev/servo/internal/base/event"
	"go.arco.dev/servo/internal/base/fault"
	"go.arco.dev/servo/internal/base/id"
	"go.arco.dev/servo/internal/domain/run"
	"go.arco.dev/servo/internal/store"
)

// Cancel asks for a run to end.
type Cancel struct {
	Tenant   id.Tenant
	Run      id.Run
	Reason   string
	TimedOut bool // because it took longer than Limit
	Limit    time.Duration
	Meta     event.Meta
}

// Cancelled is the answer to a cancel.
type Cancelled struct {
	State  run.State // CANCELLING while workers hold tasks, else the end
	Repeat bool      // it was being cancelled, or had ended by a cancel
}

// CancelRun marks a run, ends the tasks that nobody holds, and asks the workers of the
// others to stop. A run that ended in another way cannot be cancelled any more.
func (e *Engine) CancelRun(ctx context.Context, c Cancel) (Cancelled, error) {
	cmd := &cancelCommand{Cancel: c}
	if store.Claimed(ctx) {
		return e.cancelAlone(ctx, cmd)
	}
	if err := e.control.do(ctx, cmd); err != nil {
		return Cancelled{}, err
	}
	return cmd.answer, nil
}

// cancelAlone is for a call whose answer is committed with its effect: a batch would belong to
// others too.
func (e *Engine) cancelAlone(ctx context.Context, cmd *cancelCommand) (Cancelled, error) {
	alone := &call[controlCommand]{ctx: ctx, cmd: cmd}
	_, err := e.runSomeCancels(ctx, []*call[controlCommand]{alone})
	if err = cmp.Or(err, alone.err); err != nil {
		return Cancelled{}, err
	}
	return cmd.answer, nil
}

type cancelCommand struct {
	Cancel

	answer Cancelled
}

func (*cancelCommand) control() {}

// runCancels cancels the runs of a batch, in one transaction unless they are large.
func (e *Engine) runCancels(ctx context.Context, batch []*call[controlCommand]) error {
	for len(batch) > 0 {
		n, err := e.runSomeCancels(ctx, batch)
		if err != nil {
			return err
		}
		batch = batch[n:]
	}
	return nil
}

// runSomeCancels marks the first runs of a batch and sweeps their tasks, and says how many
// cancels that were. A run must exist and be alive; whoever asks again gets the state it
// is in.
func (e *Engine) runSomeCancels(ctx context.Context, batch []*call[controlCommand]) (n int, err error) {
	var done *working
	err = e.transact(ctx, func(ctx context.Context, tx *store.Tx, w *working) error {
		done = w
		seen := map[store.RunKey]bool{}
		var keys []store.RunKey
		for _, c := range batch {
			c.err = nil                   // of a try before
			cmd := c.cmd.(*cancelCommand) //nolint:forcetypeassert // sorted by runControl
			if key := (store.RunKey{Tenant: cmd.Tenant, Run: cmd.Run}); !seen[key] {
				seen[key] = true
				keys = append(keys, key)
			}
		}
		runs, err := tx.LockRuns(ctx, store.LockForCancel, keys)
		if err != nil {
			return err
		}
		w.addRuns(runs)
		var alive []id.Run
		alive, n = w.cancellable(batch)
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
		for _, c := range batch[:n] {
			cmd := c.cmd.(*cancelCommand) //nolint:forcetypeassert // sorted by runControl
			c.err = w.mark(cmd)
		}
		return w.sweep(tasks)
	})
	if err != nil {
		return 0, err
	}
	for _, c := range batch[:n] {
		if cmd := c.cmd.(*cancelCommand); c.err == nil { //nolint:forcetypeassert // sorted by runControl
			cmd.answer.State = done.runs[cmd.Run].run.State // where nobody held a task, the run has ended
		}
	}
	return n, nil
}

// cancellable are the runs that the first n cancels of a batch are to end, bounded by the
// tasks that they have left.
func (w *working) cancellable(batch []*call[controlCommand]) (alive []id.Run, n int) {
	seen := map[id.Run]bool{}
	for tasks := 0; n < len(batch) && tasks <= maxTasksPerBatch; n++ {
		cmd := batch[n].cmd.(*cancelCommand) //nolint:forcetypeassert // sorted by runControl
		r, ok := w.runs[cmd.Run]
		if !ok || seen[cmd.Run] || r.run.State.Terminal() || r.run.State == run.RunCancelling {
			continue
		}
		seen[cmd.Run] = true
		alive = append(alive, cmd.Run)
		tasks += int(r.run.Remaining)
	}
	return alive, n
}

// mark decides one cancel of a batch.
func (w *working) mark(cmd *cancelCommand) error {
	r, ok := w.runs[cmd.Run]
	if !ok || r.run.Tenant != cmd.Tenant { // another tenant's run may be in the same batch
		return fault.New(fault.NotFound, "no run "+cmd.Run.String(), fault.Field("run"), fault.Remedy("check the id"))
	}
	cmd.answer = Cancelled{State: r.run.State, Repeat: true}
	switch r.run.State {
	case run.RunCancelling, run.RunCancelled, run.RunTimedOut:
		return nil
	default: // decided below
	}
	var action run.RunAction = run.CancelRun{Reason: cmd.Reason}
	if cmd.TimedOut {
		action = run.TimeOutRun{Reason: cmd.Reason}
	}
	body, err := r.run.Decide(action)
	if err != nil {
		return err
	}
	if breach, overran := r.run.Overrun(int32(cmd.Limit / time.Second)); cmd.TimedOut && overran { //nolint:gosec // at most a year
		if err := w.recordRun(r, breach, cmd.Meta); err != nil {
			return err
		}
	}
	if err := w.recordRun(r, body, cmd.Meta); err != nil {
		return err
	}
	cmd.answer = Cancelled{State: r.run.State}
	return nil
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
