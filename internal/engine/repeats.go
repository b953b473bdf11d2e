package engine

import (
	"context"

	"go.arco.dev/servo/internal/base/event"
	"go.arco.dev/servo/internal/base/fault"
	"go.arco.dev/servo/internal/base/id"
	"go.arco.dev/servo/internal/domain/run"
	"go.arco.dev/servo/internal/store"
)

// ending is how an attempt ended, from the task's row or from its events.
type ending struct {
	state  run.TaskState
	answer Answer
	code   string           // of the failure
	reason run.ReturnReason // of a return
}

// answerRepeats answers reports whose lease is over: a repeat of the report that ended the lease gets its
// answer, any other is stale.
func (e *Engine) answerRepeats(ctx context.Context, tx *store.Tx, w *working, calls []*workCall) error {
	if len(calls) == 0 {
		return nil
	}
	attempts := make([]attemptKey, len(calls))
	for i, c := range calls {
		r := c.Request.report
		attempts[i] = attemptKey{r.TaskKey, r.Token}
	}
	endings, err := e.endings(ctx, tx, w, attempts)
	if err != nil {
		return err
	}
	for _, c := range calls {
		r := c.Request.report
		// An earlier report of this batch may have ended the task.
		if t, ok := w.tasks[r.Task]; ok && keyOf(t.task) == r.TaskKey && t.changed && t.task.Token == r.Token && t.task.State.Terminal() {
			endings[attemptKey{r.TaskKey, r.Token}] = endingOf(t.task)
		}
		end, known := endings[attemptKey{r.TaskKey, r.Token}]
		if known && end.repeats(r.Action) {
			c.Answer.report = end.answer
			c.Answer.report.Repeat = true
			continue
		}
		c.Err = staleReport(r, end, known)
	}
	return nil
}

type attemptKey struct {
	task  store.TaskKey
	token int64
}

// endings finds how attempts ended: from the tasks' rows for those that ended their tasks, from the events
// for the others, including those of this transaction.
func (e *Engine) endings(ctx context.Context, tx *store.Tx, w *working, attempts []attemptKey) (map[attemptKey]ending, error) {
	keys := make([]store.TaskKey, len(attempts))
	for i, a := range attempts {
		keys[i] = a.task
	}
	found := map[attemptKey]ending{}
	ended, err := tx.EndedTasks(ctx, unique(keys))
	if err != nil {
		return nil, err
	}
	for _, t := range ended {
		found[attemptKey{t.TaskKey, t.Token}] = ending{
			state: t.State, code: t.Code,
			answer: Answer{State: t.State, Outcome: t.Outcome, Late: t.LateResult},
		}
	}
	var rest []store.TaskKey
	for _, a := range attempts {
		if _, known := found[a]; !known {
			rest = append(rest, a.task)
		}
	}
	if len(rest) == 0 {
		return found, nil
	}
	streams, err := tx.TaskEvents(ctx, unique(rest))
	if err != nil {
		return nil, err
	}
	for key, stream := range w.streams(streams) {
		endingsOf(key, stream, found)
	}
	return found, nil
}

// streams adds the events of this transaction to recorded streams.
func (w *working) streams(recorded map[store.TaskKey][]event.Event) map[store.TaskKey][]event.Event {
	for _, e := range w.changes.Events {
		key := store.TaskKey{Tenant: e.Tenant, Run: e.Run, Task: id.Of[id.Task](e.Subject)}
		if stream, known := recorded[key]; known {
			recorded[key] = append(stream, e)
		}
	}
	return recorded
}

// endingsOf adds how each attempt of a stream ended.
func endingsOf(task store.TaskKey, stream []event.Event, into map[attemptKey]ending) {
	var token int64
	back := run.Queued // where a return leads: a task that was not started keeps its admission
	for _, recorded := range stream {
		switch body := recorded.Body.(type) {
		case run.TaskClaimed:
			token, back = body.Token, run.Queued
			if body.Started {
				back = run.Ready
			}
		case run.TaskStarted:
			back = run.Ready
		case run.TaskRetrying:
			into[attemptKey{task, token}] = ending{
				state: run.RetryWait, code: body.Failure.Code, answer: Answer{State: run.RetryWait, DueAt: body.DueAt},
			}
		case run.TaskReturned:
			into[attemptKey{task, token}] = ending{state: back, reason: body.Reason, answer: Answer{State: back}}
		}
	}
}

func endingOf(t run.Task) ending {
	end := ending{state: t.State, answer: Answer{State: t.State, Outcome: t.Outcome, Late: t.LateResult}}
	if t.Failure != nil {
		end.code = t.Failure.Code
	}
	return end
}

// repeats reports whether this ending came from such a report, rather than from the reaper or
// a cancel.
func (end ending) repeats(a Action) bool {
	switch a := a.(type) {
	case Complete:
		return end.state == run.Succeeded || end.answer.Late
	case Fail:
		if a.Failure.Code == run.CodeInterrupted && (end.reason == run.ReturnInterrupted || end.code == run.CodePoison) {
			return true
		}
		return end.code == a.Failure.Code && end.code != ""
	case Yield:
		cancelled := end.state == run.Cancelled && end.code == "" && !end.answer.Late
		return end.reason == run.ReturnYielded || end.code == run.CodePoison || cancelled
	}
	return false
}

func staleReport(r *Report, end ending, known bool) error {
	if known {
		return leaseOver(r.Task, fault.Value("state", end.state.String()))
	}
	return leaseOver(r.Task)
}

// leaseOver answers a worker that does not hold the task any more.
func leaseOver(task id.Task, options ...fault.Option) error {
	options = append(options, fault.Field("lease"), fault.Remedy("stop working on this task and claim another"))
	return fault.New(fault.Stale, "the lease of task "+task.String()+" is over: another worker may hold it", options...)
}
