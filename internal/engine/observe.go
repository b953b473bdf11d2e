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

// Observer is told what happened, after it was committed. It is called by the goroutines
// that commit, several at once: it must be quick, and must not call the engine.
type Observer interface {
	// Committed is told what one transaction has done. Nothing of it may be kept after the
	// call but copies: the next transaction uses the same memory.
	Committed(done *Committed)
	// Refused is told of a trigger that a quota has turned away.
	Refused(quota string)
	// Contended is told of a trigger that met a lock which another run held: whether it got it
	// in the end, and how long it waited.
	Contended(got bool, waited time.Duration)
	// Admitted is told of a round of admission.
	Admitted(round AdmissionRound)
	// Decided is told of slots that have their outcome.
	Decided(slots []SlotsDecided)
}

// SlotsDecided are slots of a config with one outcome.
type SlotsDecided struct {
	Outcome config.Outcome
	Slots   int64
	Lag     time.Duration // of one that fired: from its due time to the decision
}

// AdmissionRound is one look of admission at the tasks that are ready.
type AdmissionRound struct {
	Admitted int
	Took     time.Duration
	Failed   bool
}

// Committed is what one transaction has done.
type Committed struct {
	At    time.Time // the database's time of the transaction
	Tasks []TaskMove
	Runs  []RunChange
	// Breaches are the promises about runs that were broken.
	Breaches []run.SLA
}

// TaskMove is one change of a task's state.
type TaskMove struct {
	Tenant    id.Tenant
	Workspace id.Workspace // zero where nobody needed to read it: admission, starts
	Run       id.Run
	Task      id.Task
	Asset     string // "" for tasks that have not been queued
	Pool      string
	Trace     string // of the run; "" where nobody needed to read it
	From, To  run.TaskState
	Outcome   run.Outcome // of an end
	Failure   string      // the code of what ended the attempt in failure
	Attempt   int32
	Since     time.Time // when it came into From
	ReadyAt   time.Time // when it became ready for this attempt; zero if not known
	StartedAt time.Time // of the attempt that ends; zero if it was not started
}

// RunChange is a run that was made or changed. From is 0 if it was made.
type RunChange struct {
	From run.State
	Run  *run.Run // as it is by now; not to be changed, nor kept
}

// watch prepares a working set for whoever observes. Without an observer nothing is noted.
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

// tell tells the observer what a committed working set has done; of one that was rolled
// back it is told nothing.
func (e *Engine) tell(w *working, err error) {
	if w.seen == nil {
		return
	}
	if err == nil && (len(w.seen.Tasks) > 0 || len(w.touched) > 0) {
		w.seen.At = w.now
		w.seen.Runs, w.seen.Breaches = w.seen.Runs[:0], w.seen.Breaches[:0]
		for _, b := range w.broken {
			w.seen.Breaches = append(w.seen.Breaches, b.sla)
		}
		for _, r := range w.touched {
			w.seen.Runs = append(w.seen.Runs, RunChange{From: r.from, Run: &r.run})
		}
		e.config.Observer.Committed(w.seen)
	}
	clear(w.seen.Tasks) // the texts in them are somebody's rows
	clear(w.seen.Runs)
	e.observed.Put(w.seen)
	w.seen = nil
}

// note takes note of a task's change of state.
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

// known adds to the latest note what a claim knows of the task's run.
func (w *working) known(workspace id.Workspace, trace string) {
	if w.seen != nil && len(w.seen.Tasks) > 0 {
		move := &w.seen.Tasks[len(w.seen.Tasks)-1]
		move.Workspace, move.Trace = workspace, trace
	}
}

// answered tells the observer of a trigger that was refused by a quota or met a held lock.
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

// toldRound tells the observer of a round of admission. That another server admits is no
// failure, and no round.
func (e *Engine) toldRound(begun time.Time, admitted *int, err *error) {
	if e.config.Observer == nil || errors.Is(*err, store.ErrDutyLost) {
		return
	}
	e.config.Observer.Admitted(AdmissionRound{Admitted: *admitted, Took: time.Since(begun), Failed: *err != nil})
}
