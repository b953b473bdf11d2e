package engine

import (
	"errors"
	"time"

	"go.arco.dev/servo/internal/base/fault"
	"go.arco.dev/servo/internal/base/id"
	"go.arco.dev/servo/internal/domain/config"
	"go.arco.dev/servo/internal/domain/run"
	"go.arco.dev/servo/internal/store"
)

// Observer receives what was committed. The goroutines that commit call it, several at once: it must be
// quick, and must not call the engine.
type Observer interface {
	// Committed receives the changes of one transaction. After the call only copies may be used: the next
	// transaction uses the same memory.
	Committed(done *Committed)
	// Refused receives a trigger that a quota has refused.
	Refused(quota string)
	// Contended receives a trigger whose lock another run held: whether it got the lock in the end, and how
	// long it waited.
	Contended(got bool, waited time.Duration)
	// Admitted receives a round of admission.
	Admitted(round AdmissionRound)
	// Decided receives slots with their outcomes.
	Decided(slots []SlotsDecided)
}

// SlotsDecided are slots of a config with one outcome.
type SlotsDecided struct {
	Outcome config.Outcome
	Slots   int64
	Lag     time.Duration // of one that fired: from its due time to the decision
}

// AdmissionRound is one round of admission.
type AdmissionRound struct {
	Admitted int
	Took     time.Duration
	Failed   bool
}

// Committed are the changes of one transaction.
type Committed struct {
	At    time.Time // the database's time of the transaction
	Tasks []TaskMove
	Runs  []RunChange
	// Breaches are the breached SLAs of runs.
	Breaches []run.SLA
}

// TaskMove is one change of a task's state.
type TaskMove struct {
	Tenant    id.Tenant
	Workspace id.Workspace // zero if the transaction did not read it: admission, starts
	Run       id.Run
	Task      id.Task
	Asset     string // "" for tasks that have not been queued
	Pool      string
	Trace     string // of the run; "" if the transaction did not read it
	From, To  run.TaskState
	Outcome   run.Outcome // of an end
	Failure   string      // the code of the failure that ended the attempt
	Attempt   int32
	Since     time.Time // when it entered From
	ReadyAt   time.Time // when it became ready for this attempt; zero if not known
	StartedAt time.Time // of the attempt that ends; zero if it was not started
}

// RunChange is a run that was created or changed. From is 0 if it was created.
type RunChange struct {
	From run.State
	Run  *run.Run // after the transaction; do not change or keep it
}

// watch prepares a working set for the observer, if there is one.
func (e *Engine) watch(w *working) {
	if e.config.Observer == nil {
		return
	}
	w.seen, _ = e.observed.Get().(*Committed)
	if w.seen == nil {
		w.seen = &Committed{}
	}
	w.seen.Tasks = w.seen.Tasks[:0]
}

// observe reports a committed working set to the observer, and drops one that was rolled back.
func (e *Engine) observe(w *working, err error) {
	if w.seen == nil {
		return
	}
	if err == nil && (len(w.seen.Tasks) > 0 || len(w.touched) > 0) {
		w.seen.At = w.now
		w.seen.Runs, w.seen.Breaches = w.seen.Runs[:0], w.seen.Breaches[:0]
		for _, b := range w.breaches {
			w.seen.Breaches = append(w.seen.Breaches, b.sla)
		}
		for _, r := range w.touched {
			w.seen.Runs = append(w.seen.Runs, RunChange{From: r.from, Run: &r.run})
		}
		e.config.Observer.Committed(w.seen)
	}
	clear(w.seen.Tasks) // their strings keep rows alive
	clear(w.seen.Runs)
	e.observed.Put(w.seen)
	w.seen = nil
}

// note adds a task's change of state for the observer.
func (w *working) note(before, after *run.Task, parent *liveRun) {
	if w.seen == nil || before.State == after.State {
		return
	}
	w.seen.Tasks = append(w.seen.Tasks, TaskMove{
		Tenant: after.Tenant, Run: after.Run, Task: after.ID, Asset: after.Asset, Pool: after.Pool, From: before.State, To: after.State,
		Outcome: after.Outcome, Attempt: after.Attempt, Since: before.Since, ReadyAt: after.ReadyAt, StartedAt: before.StartedAt,
	})
	move := &w.seen.Tasks[len(w.seen.Tasks)-1]
	if parent != nil {
		move.Workspace, move.Trace = parent.run.Workspace, parent.run.Trace
	}
	if after.Failure != nil && before.State.Leased() {
		move.Failure = after.Failure.Code
	}
}

// known adds what a claim has read of the task's run to the latest move.
func (w *working) known(workspace id.Workspace, trace string) {
	if w.seen != nil && len(w.seen.Tasks) > 0 {
		move := &w.seen.Tasks[len(w.seen.Tasks)-1]
		move.Workspace, move.Trace = workspace, trace
	}
}

// answered reports a trigger that a quota refused, or whose lock was held, to the observer.
func (e *Engine) answered(triggered Triggered, err error, contended bool, waited time.Duration) {
	if e.config.Observer == nil {
		return
	}
	if refusal, ok := fault.As(err); ok {
		if quota, named := refusal.Values["quota"].(string); named {
			e.config.Observer.Refused(quota)
		}
	}
	if contended {
		e.config.Observer.Contended(err == nil && !triggered.AlreadyRunning, waited)
	}
}

// observeRound reports a round of admission to the observer. While another server admits there is neither
// a failure nor a round.
func (e *Engine) observeRound(begun time.Time, admitted *int, err *error) {
	if e.config.Observer == nil || errors.Is(*err, store.ErrDutyLost) {
		return
	}
	e.config.Observer.Admitted(AdmissionRound{Admitted: *admitted, Took: time.Since(begun), Failed: *err != nil})
}
