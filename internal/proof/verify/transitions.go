package verify

import (
	"fmt"
	"time"

	"go.arco.dev/servo/internal/base/event"
	"go.arco.dev/servo/internal/domain/run"
)

// A wrong event makes wrong rows that agree with it. Therefore the events are checked too: against
// the state machines, stated here a second time from the side of the events, and against the
// conditions for a run as a whole.

// taskMay reports whether an event may happen to a task in its state. A barrier only ends.
func taskMay(t run.Task, body event.Body) bool {
	from := t.State
	if t.Needs == run.NeedsBarrier {
		switch body.(type) {
		case run.TaskSucceeded, run.TaskSkipped, run.TaskCancelled:
			return from == run.Pending
		}
		return false
	}
	switch b := body.(type) {
	case run.TaskReadied:
		return from == run.Pending || from == run.RetryWait
	case run.TaskQueued:
		return from == run.Ready
	case run.TaskWithdrawn, run.TaskClaimed:
		return from == run.Queued
	case run.TaskStarted:
		return from == run.Dispatched || from == run.Running && b.Instance != ""
	case run.TaskFannedOut, run.TaskSucceeded:
		return from == run.Running
	case run.TaskReturned, run.TaskRetrying, run.TaskFailed, run.TaskCancelRequested:
		return from.Leased()
	case run.TaskSkipped:
		return from == run.Pending
	case run.TaskCancelled:
		return !from.Terminal()
	}
	return true // not an event of a task: Evolve rejects it
}

// runMay reports whether an event may happen to a run in a state; 0 is before its first.
func runMay(from run.State, body event.Body) bool {
	switch b := body.(type) {
	case run.RunCreated:
		return from == 0
	case run.RunStarted:
		return from == run.RunPending
	case run.RunTasksAdded, run.RunCancelRequested:
		return from == run.RunPending || from == run.RunRunning
	case run.RunBreached:
		return from == run.RunPending || from == run.RunRunning || from == run.RunCancelling && b.SLA == run.SLAStartDelay
	case run.RunEnded:
		switch b.State { //nolint:exhaustive // the other states are no ends
		case run.RunSucceeded, run.RunFailed:
			return from == run.RunRunning
		case run.RunCancelled, run.RunTimedOut:
			return from == run.RunCancelling
		}
		return false
	}
	return true // not an event of a run: Evolve rejects it
}

// miscounted checks the numbers in an event: attempts, failures, fan-outs, tokens.
func miscounted(t *task, body event.Body, given limits) (want, got string, wrong bool) {
	switch b := body.(type) {
	case run.TaskClaimed:
		switch {
		case b.Attempt != t.Attempt+1:
			return fmt.Sprintf("attempt %d", t.Attempt+1), fmt.Sprint(b.Attempt), true
		case b.Token <= t.lastToken:
			return fmt.Sprintf("a token above %d, the one before", t.lastToken), fmt.Sprint(b.Token), true
		case b.Token > given.token:
			return fmt.Sprintf("a token of at most %d, the last that was allocated", given.token), fmt.Sprint(b.Token), true
		}
	case run.TaskRetrying:
		if b.Failures != t.Failures+1 {
			return fmt.Sprintf("failure %d", t.Failures+1), fmt.Sprint(b.Failures), true
		}
	case run.TaskFailed:
		death := b.Failure.IsWorkerDeath() && b.Failures == t.Failures // counted apart from failures
		if b.Outcome != run.Poison && !death && b.Failures != t.Failures+1 {
			return fmt.Sprintf("failure %d", t.Failures+1), fmt.Sprint(b.Failures), true
		}
	case run.TaskFannedOut:
		if b.Ordinal != t.FanOuts {
			return fmt.Sprintf("fan-out %d", t.FanOuts), fmt.Sprint(b.Ordinal), true
		}
	}
	return "", "", false
}

// checkRun checks the conditions for the run as a whole.
func (h *history) checkRun() {
	wrong := func(t *task, want, got string) { h.diverges(History, "type", t.ID.UUID, want, got) }
	for _, t := range h.order {
		switch t.State {
		case run.Pending:
			if t.Unmet == 0 {
				wrong(t, "READY: every upstream has succeeded", "PENDING")
			}
		case run.Skipped:
			if h.run.State.Terminal() && !t.hasUpstream(func(s run.TaskState) bool { return s != run.Succeeded }) {
				wrong(t, "an upstream that did not succeed", "SKIPPED")
			}
		case run.Cancelled:
			if !h.cancelled {
				wrong(t, "a run that was cancelled", "CANCELLED")
			}
		case run.Ready, run.Queued, run.Dispatched, run.Running, run.RetryWait, run.Succeeded, run.Failed:
			if t.hasUpstream(func(s run.TaskState) bool { return s != run.Succeeded }) {
				wrong(t, "PENDING: an upstream has not succeeded", t.State.String())
			}
		}
	}
	h.checkEnd()
	h.checkStart()
}

func (t *task) hasUpstream(in func(run.TaskState) bool) bool {
	for _, up := range t.upstream {
		if in(up.State) {
			return true
		}
	}
	return false
}

// checkEnd compares the end of the run with the decision of the state machine.
func (h *history) checkEnd() {
	wrong := func(want, got string) { h.diverges(History, "type", h.key.Run.UUID, want, got) }
	if h.run.State.Terminal() != (h.run.Remaining == 0) {
		wrong("the end of the run with its last task", fmt.Sprintf("%s with %d tasks left", h.run.State, h.run.Remaining))
		return
	}
	if h.beforeEnd == nil {
		return
	}
	last := h.run
	last.State = h.beforeEnd.State
	if body, err := last.Decide(run.EndRun{}); err != nil || body != (run.RunEnded{State: h.run.State}) {
		wrong(fmt.Sprintf("the end that the machine decides: %v", body), h.run.State.String())
	}
}

// checkStart checks that a run has a breach if no task was started in time and the run ended
// after that time.
func (h *history) checkStart() {
	r := h.run
	if !r.StartBy.IsZero() && r.State.Terminal() && r.FinishedAt.After(r.StartBy) && !h.inTime && !r.Late {
		h.diverges(History, "type", h.key.Run.UUID, "run.breached: nothing was started by "+r.StartBy.UTC().Format(time.RFC3339Nano), "none")
	}
}

// began notes that a task was started in time. A breach that was recorded after it is wrong.
func (h *history) began(e event.Event, position int64) {
	switch body := e.Body.(type) {
	case run.TaskStarted:
	case run.TaskClaimed:
		if !body.Started {
			return
		}
	default:
		return
	}
	if h.run.StartBy.IsZero() || e.At.After(h.run.StartBy) {
		return
	}
	if !h.inTime && position < h.lateBy {
		h.diverges(History, "type", h.key.Run.UUID, "no breach: a task was started at "+e.At.UTC().Format(time.RFC3339Nano), string(run.RunBreached{}.EventType()))
	}
	h.inTime = true
}
