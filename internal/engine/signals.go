package engine

import (
	"maps"
	"slices"
	"time"

	"go.arco.dev/servo/internal/base/id"
	"go.arco.dev/servo/internal/domain/run"
	"go.arco.dev/servo/internal/engine/signal"
)

// Ready is signalled when a task has become ready.
func (e *Engine) Ready() <-chan struct{} { return e.signals.Wait(signal.Ready) }

// WakeAdmission signals Ready in this process: another server may have been notified of tasks to admit.
func (e *Engine) WakeAdmission() { e.signals.Wake(signal.Ready) }

// Due is signalled when a config may be due earlier than was known.
func (e *Engine) Due() <-chan struct{} { return e.signals.Wait(signal.Due) }

// Backfills is signalled when a backfill may start a run, or one of its runs has ended.
func (e *Engine) Backfills() <-chan struct{} { return e.signals.Wait(signal.Backfill) }

// FollowUp is signalled when a transaction left work for another one (see SkipDoomed).
func (e *Engine) FollowUp() <-chan struct{} { return e.signals.Wait(signal.FollowUp) }

// RunChanged is signalled at the next event of a run or of one of its tasks. Take the channel first,
// look second, and call stop when done, signalled or not. A change by another server may be missed:
// look from time to time.
func (e *Engine) RunChanged(run id.Run) (changed <-chan struct{}, stop func()) {
	return e.signals.RunChanged(run)
}

// SetOthers sets whether there are other servers to notify.
func (e *Engine) SetOthers(others bool) { e.signals.SetOthers(others) }

// SetListening sets whether this server receives notices of others from now on.
func (e *Engine) SetListening(listening bool) { e.signals.SetListening(listening) }

// Receive handles a notice that this server received, and reports whether it was its own.
func (e *Engine) Receive(notice string) (own bool) { return e.signals.Receive(notice) }

// EndSession notifies other servers that a session was logged out. The notice may be lost: a key that is
// revoked ends its sessions for certain.
func (e *Engine) EndSession(session string, until time.Time) { e.signals.EndSession(session, until) }

// OnSessionEnd calls fn for each session that was logged out at another server.
func (e *Engine) OnSessionEnd(fn func(session string, until time.Time)) { e.signals.OnSessionEnd(fn) }

// signals is what the commit of a working set makes possible.
func (w *working) signals() signal.Commit {
	found := map[string]bool{}
	for _, t := range w.changed {
		switch t.task.State {
		case run.Ready:
			found[signal.Ready] = true
			if w.wakesClaims {
				found[t.task.Pool] = true
			}
		case run.Queued:
			found[t.task.Pool] = true
		default: // no other state wakes a waiter by itself
		}
		if makesRoom(t.from, t.task.State) {
			found[signal.Room] = true
		}
	}
	for _, pool := range w.wakes {
		found[pool] = true
	}
	for _, pool := range w.reopened {
		found[signal.Ready], found[pool] = true, true
	}
	if len(w.changes.OpenCones) > 0 {
		found[signal.FollowUp] = true
	}
	if len(w.changes.Results) > 0 {
		found[signal.Due] = true
	}
	for _, r := range w.touched {
		if r.run.TriggerType == TriggerBackfill && r.run.State.Terminal() {
			found[signal.Backfill] = true
		}
	}
	var ended []id.Run
	for _, key := range w.changes.EndedRuns {
		found[signal.Start] = true
		ended = append(ended, key.Run)
	}
	return signal.Commit{
		Topics: slices.Collect(maps.Keys(found)), Ended: ended, Changed: w.runsWithEvents,
		Pending: slices.ContainsFunc(w.changes.NewRuns, func(r run.Run) bool { return r.State == run.RunPending }),
	}
}

// runsWithEvents are the runs that the transaction has changed: nothing changes without an event.
func (w *working) runsWithEvents() []id.Run {
	found := map[id.Run]bool{}
	for _, e := range w.changes.Events {
		found[e.Run] = true
	}
	return slices.Collect(maps.Keys(found))
}

// makesRoom reports whether a move leaves room for the next task: in a queue, or in what a
// tenant may have in flight.
func makesRoom(from, to run.TaskState) bool {
	return from == run.Queued && to != run.Queued || from.Leased() && !to.Leased()
}
