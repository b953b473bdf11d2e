package chaos

import (
	"encoding/json"
	"fmt"

	"github.com/google/uuid"

	"go.arco.dev/servo/internal/base/event"
	"go.arco.dev/servo/internal/base/id"
	"go.arco.dev/servo/internal/domain/run"
)

// history is all that the database knows of one run.
type history struct {
	tenant id.Tenant
	run    id.Run
	state  run.State
	tasks  map[id.Task]taskRow
	events []event.Event // by subject and version
	queued int           // rows in queue tables
}

// taskRow is the end of a task in its row; the zero state has not ended.
type taskRow struct {
	state run.TaskState
	token int64
}

// attempt is one claim of a task, as the events record it.
type attempt struct {
	token int64
	ended bool
}

// stream is a walk over the events of one task.
type stream struct {
	versions int32
	attempts []attempt
	end      run.TaskState // zero while it lives
}

// lastToken is the token of the last attempt, 0 if there was none.
func (s *stream) lastToken() int64 {
	if len(s.attempts) == 0 {
		return 0
	}
	return s.attempts[len(s.attempts)-1].token
}

// mark is what an event did for the request that caused it.
type mark struct {
	body  event.Body
	task  id.Task
	token int64 // of the attempt that it happened to
}

// auditRun compares the rows and events of a run with the answers about it. It
// returns what is wrong, in words.
func auditRun(h history, answers []entry) []string {
	var wrong []string
	complain := func(format string, args ...any) { wrong = append(wrong, fmt.Sprintf(format, args...)) }
	if !h.state.Terminal() {
		complain("it is %s", h.state)
	}
	if h.queued > 0 {
		complain("%d of its tasks remain in queues", h.queued)
	}
	marks, streams := walk(h, complain)
	for task, row := range h.tasks {
		s := streams[task]
		switch {
		case row.state == 0:
			complain("task %s has not ended", task)
		case s == nil:
			complain("task %s is %s without an event", task, row.state)
		case row.state != s.end:
			complain("task %s is %s in its row and %s in its events", task, row.state, s.end)
		case row.token != 0 && row.token != s.lastToken():
			complain("task %s has token %d in its row and %d in its events", task, row.token, s.lastToken())
		}
	}
	for _, e := range answers {
		for _, text := range auditEntry(h, e, marks[e.Trace]) {
			complain("%s of %s (%s at %s): %s", e.Kind+" "+e.Action, e.Who, e.Trace, e.At.UTC().Format("15:04:05.000"), text)
		}
	}
	return wrong
}

// walk goes through the events of a run: versions without gaps, one end of each attempt,
// of each task and of the run. It gives the events by the request that caused them.
func walk(h history, complain func(string, ...any)) (map[string][]mark, map[id.Task]*stream) {
	marks := map[string][]mark{}
	streams := map[id.Task]*stream{}
	var runVersion int32
	runEnds := 0
	for _, e := range h.events {
		if e.Subject == h.run.UUID {
			if runVersion++; e.Version != runVersion {
				complain("event %s of the run has version %d, not %d", e.Body.EventType(), e.Version, runVersion)
			}
			if runEnds > 0 {
				complain("%s comes after the end of the run", e.Body.EventType())
			}
			if ended, ok := e.Body.(run.RunEnded); ok {
				runEnds++
				if ended.State != h.state {
					complain("it is %s in its row and %s in its events", h.state, ended.State)
				}
			}
			if e.Meta.Trace != "" {
				marks[e.Meta.Trace] = append(marks[e.Meta.Trace], mark{body: e.Body})
			}
			continue
		}
		task := id.Of[id.Task](e.Subject)
		s := streams[task]
		if s == nil {
			s = &stream{}
			streams[task] = s
		}
		token := s.step(e, func(format string, args ...any) { complain("task %s: "+format, append([]any{task}, args...)...) })
		if e.Meta.Trace != "" {
			marks[e.Meta.Trace] = append(marks[e.Meta.Trace], mark{body: e.Body, task: task, token: token})
		}
	}
	if runEnds != 1 {
		complain("it has %d ends", runEnds)
	}
	return marks, streams
}

// step takes the next event of a task and gives the token of its attempt.
func (s *stream) step(e event.Event, complain func(string, ...any)) int64 {
	if s.versions++; e.Version != s.versions {
		complain("%s has version %d, not %d", e.Body.EventType(), e.Version, s.versions)
	}
	if s.end != 0 {
		complain("%s comes after its end", e.Body.EventType())
	}
	if claimed, ok := e.Body.(run.TaskClaimed); ok {
		if n := len(s.attempts); n > 0 && (!s.attempts[n-1].ended || s.attempts[n-1].token >= claimed.Token) {
			complain("attempt %d with token %d comes while token %d was held", claimed.Attempt, claimed.Token, s.attempts[n-1].token)
		}
		s.attempts = append(s.attempts, attempt{token: claimed.Token})
		if int(claimed.Attempt) != len(s.attempts) {
			complain("attempt %d is the claim number %d", claimed.Attempt, len(s.attempts))
		}
	}
	held := len(s.attempts) > 0 && !s.attempts[len(s.attempts)-1].ended
	var token int64
	if held {
		token = s.attempts[len(s.attempts)-1].token
	}
	if state, ends := endOf(e.Body); ends {
		switch e.Body.(type) {
		case run.TaskSkipped, run.TaskCancelled: // those need no lease
		default:
			if !held {
				complain("%s ends an attempt that is over", e.Body.EventType())
			}
		}
		if held {
			s.attempts[len(s.attempts)-1].ended = true
		}
		if state.Terminal() {
			s.end = state
		}
	}
	return token
}

// endOf reports whether an event ends an attempt, and the state in which the task is then. A
// return leads to READY or QUEUED: the answer states which.
func endOf(body event.Body) (run.TaskState, bool) {
	switch body.(type) {
	case run.TaskSucceeded:
		return run.Succeeded, true
	case run.TaskFailed:
		return run.Failed, true
	case run.TaskSkipped:
		return run.Skipped, true
	case run.TaskCancelled:
		return run.Cancelled, true
	case run.TaskRetrying:
		return run.RetryWait, true
	case run.TaskReturned:
		return run.Ready, true
	}
	return 0, false
}

// auditEntry compares one answer with the events that carry its request's name.
func auditEntry(h history, e entry, marks []mark) []string {
	if e.Broken != "" {
		return []string{"the engine broke: " + e.Broken}
	}
	switch {
	case e.unfounded():
		return []string{"it was refused as " + e.Refused}
	case e.Kind == kindTrigger:
		// A repeat may be of another server's request, or of its own.
		if created := count[run.RunCreated](marks); created > 1 || created == 0 && !e.Repeat {
			return []string{fmt.Sprintf("it made %d runs", created)}
		}
		return nil
	case e.Kind == kindCancel && e.accepted() && h.state != run.RunCancelled:
		return []string{fmt.Sprintf("it was accepted (%s), and the run is %s", e.RunState, h.state)}
	case e.Kind != kindReport:
		return nil
	}
	switch e.Action {
	case actAdvance:
		if len(marks) > 0 {
			return []string{fmt.Sprintf("it left %s: a move of the cursor is no event", marks[0].body.EventType())}
		}
		return nil
	case actStart:
		// A refusal with an event: it was accepted, and the lease was over when it was repeated.
		if len(marks) > 1 || e.accepted() && (len(marks) == 0 || marks[0].token != e.Token) {
			return []string{fmt.Sprintf("it left %d events", len(marks))}
		}
		return nil
	case actFanOut:
		return auditFanOut(h, e, marks)
	}
	if !e.accepted() {
		if len(marks) > 0 {
			return []string{fmt.Sprintf("it was refused as %s, and left %s", e.Refused, marks[0].body.EventType())}
		}
		return nil
	}
	if len(marks) != 1 {
		return []string{fmt.Sprintf("it was accepted, and left %d events", len(marks))}
	}
	m := marks[0]
	state, ends := endOf(m.body)
	switch {
	case !ends || m.task != e.Task || m.token != e.Token:
		return []string{fmt.Sprintf("it was accepted for token %d, and left %s of task %s with token %d", e.Token, m.body.EventType(), m.task, m.token)}
	case state != e.State && !(state == run.Ready && e.State == run.Queued):
		return []string{fmt.Sprintf("the answer was %s, the event is %s", e.State, m.body.EventType())}
	case state.Terminal() && h.tasks[e.Task].token != e.Token:
		return []string{fmt.Sprintf("it ended the task with token %d, and the row has %d", e.Token, h.tasks[e.Task].token)}
	}
	return nil
}

// count is how many events of one type there are.
func count[T event.Body](marks []mark) int {
	n := 0
	for _, m := range marks {
		if _, ok := m.body.(T); ok {
			n++
		}
	}
	return n
}

func auditFanOut(h history, e entry, marks []mark) []string {
	fanned := count[run.TaskFannedOut](marks)
	// A later attempt may be answered with what an earlier one has added; and a repeat is
	// refused if the lease was over by then.
	if fanned > 1 || fanned == 0 && e.accepted() && !e.Repeat {
		return []string{fmt.Sprintf("it left %d fan-outs", fanned)}
	}
	var wrong []string
	for _, added := range e.Added {
		if _, there := h.tasks[added]; !there {
			wrong = append(wrong, "the added task "+added.String()+" does not exist")
		}
	}
	return wrong
}

// auditKeys looks for idempotency keys that stand for two runs.
func auditKeys(answers []entry) []string {
	type owned struct {
		tenant id.Tenant
		key    string
	}
	runs := map[owned]id.Run{}
	var wrong []string
	for _, e := range answers {
		if e.Kind != kindTrigger || e.Key == "" || !e.accepted() {
			continue
		}
		key := owned{e.Tenant, e.Key}
		if first, seen := runs[key]; seen && first != e.Run {
			wrong = append(wrong, fmt.Sprintf("key %s stands for the runs %s and %s", e.Key, first, e.Run))
		}
		runs[key] = e.Run
	}
	return wrong
}

// Bounds of a described history.
const (
	maxLines = 300
	maxLine  = 400
)

// describe writes a history as people read it.
func (h history) describe() []string {
	lines := []string{fmt.Sprintf("run %s of tenant %s: %s", h.run, h.tenant, h.state)}
	for _, e := range h.events[:min(len(h.events), maxLines)] {
		what := "run"
		if e.Subject != h.run.UUID {
			what = "task " + shorten(e.Subject)
		}
		body, _ := json.Marshal(e.Body)
		line := fmt.Sprintf("  %s %s v%d %s by %s (%s) %s", e.At.Format("15:04:05.000"), what, e.Version, e.Body.EventType(), e.Meta.Actor, e.Meta.Trace, body)
		lines = append(lines, line[:min(len(line), maxLine)])
	}
	if more := len(h.events) - maxLines; more > 0 {
		lines = append(lines, fmt.Sprintf("  and %d more", more))
	}
	return lines
}

func shorten(u uuid.UUID) string { return u.String()[24:] }
