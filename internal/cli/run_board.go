package cli

import (
	"fmt"
	"strings"
	"time"

	"google.golang.org/protobuf/types/known/structpb"

	servov1 "go.arco.dev/servo/gen/servo/v1"
)

// board is the state of a run, folded from its events. It is pure: it reads no clock and makes no
// calls.
type board struct {
	pipeline  string
	state     servov1.Run_State
	createdAt time.Time
	endedAt   time.Time
	tasks     []*boardTask // in the order of the plan
	byID      map[string]*boardTask
	counts    map[servov1.Task_State]int
}

// boardTask is a task as the last of its events left it.
type boardTask struct {
	id, name  string
	version   int32
	state     servov1.Task_State
	attempt   int
	worker    string
	startedAt time.Time
	endedAt   time.Time
	note      string // why it failed or waits
	progress  *servov1.Progress
}

func newBoard() *board {
	return &board{byID: map[string]*boardTask{}, counts: map[servov1.Task_State]int{}}
}

// apply folds an event in and returns its description.
func (b *board) apply(e *servov1.Event) string {
	if e.GetTask() != "" {
		t := b.task(e.GetTask())
		words := t.words(b, e)
		b.move(t, e)
		return t.name + " " + words
	}
	return "run " + b.applyRun(e)
}

// task returns a task, which may occur before the event that created it.
func (b *board) task(id string) *boardTask {
	t := b.byID[id]
	if t == nil {
		t = &boardTask{id: id, name: id, state: servov1.Task_PENDING}
		b.byID[id] = t
		b.tasks = append(b.tasks, t)
		b.counts[t.state]++
	}
	return t
}

func (b *board) applyRun(e *servov1.Event) string {
	data := e.GetData()
	switch e.GetType() {
	case "run.created":
		b.pipeline, b.createdAt, b.state = text(data, "pipeline"), e.GetRecordedAt().AsTime(), servov1.Run_PENDING
		if flag(data, "started") {
			b.state = servov1.Run_RUNNING
		}
		return fmt.Sprintf("%s %s, %s", b.state, orDash(b.pipeline), count(b.addTasks(data), "task"))
	case "run.tasks_added":
		return "has " + count(b.addTasks(data), "more task")
	case "run.started":
		b.state = servov1.Run_RUNNING
		return b.state.String()
	case "run.breached":
		limit := short(time.Duration(data.GetFields()["limit"].GetNumberValue()) * time.Second)
		if text(data, "sla") == "execution" {
			return "took longer than " + limit
		}
		return "is late: it had not begun within " + limit
	case "run.cancel_requested":
		b.state = servov1.Run_CANCELLING
		words := b.state.String()
		if flag(data, "timed_out") {
			words += " out of time"
		}
		if why := text(data, "reason"); why != "" {
			words += ": " + clip(why, 200)
		}
		return words
	case "run.ended":
		b.state, b.endedAt = servov1.Run_State(servov1.Run_State_value[text(data, "state")]), e.GetRecordedAt().AsTime()
		return b.state.String() + " in " + short(b.endedAt.Sub(b.createdAt))
	default:
		return strings.TrimPrefix(e.GetType(), "run.")
	}
}

// addTasks adds the tasks of an event and returns their number.
func (b *board) addTasks(data *structpb.Struct) int {
	specs := data.GetFields()["tasks"].GetListValue().GetValues()
	for _, value := range specs {
		spec := value.GetStructValue()
		t := b.task(text(spec, "id"))
		t.name = taskName(text(spec, "asset"), text(spec, "part"))
		if t.version == 0 && len(spec.GetFields()["up"].GetListValue().GetValues()) == 0 {
			b.enter(t, servov1.Task_READY)
		}
	}
	return len(specs)
}

// enter moves a task to a state.
func (b *board) enter(t *boardTask, state servov1.Task_State) {
	b.counts[t.state]--
	t.state = state
	b.counts[t.state]++
}

// move folds a task's event in. Events of different transactions may be seen in another
// order than that of the task: an older one changes nothing.
func (b *board) move(t *boardTask, e *servov1.Event) {
	if e.GetVersion() <= t.version {
		return
	}
	t.version = e.GetVersion()
	data, at := e.GetData(), e.GetRecordedAt().AsTime()
	switch e.GetType() {
	case "task.readied":
		t.note = ""
		b.enter(t, servov1.Task_READY)
	case "task.queued":
		b.enter(t, servov1.Task_QUEUED)
	case "task.claimed":
		t.attempt, t.worker, t.progress, t.note = int(number(data, "attempt")), text(data, "worker"), nil, ""
		b.enter(t, servov1.Task_DISPATCHED)
		if flag(data, "started") {
			t.startedAt = at
			b.enter(t, servov1.Task_RUNNING)
		}
	case "task.started":
		t.startedAt = at
		b.enter(t, servov1.Task_RUNNING)
	case "task.returned":
		t.note = strings.ToLower(strings.ReplaceAll(text(data, "reason"), "_", " "))
		next := servov1.Task_READY
		if t.state == servov1.Task_DISPATCHED {
			next = servov1.Task_QUEUED
		}
		b.enter(t, next)
	case "task.retrying":
		t.note = failure(data)
		b.enter(t, servov1.Task_RETRY_WAIT)
	case "task.succeeded":
		t.endedAt = at
		b.enter(t, servov1.Task_SUCCEEDED)
	case "task.failed":
		t.endedAt, t.note = at, failure(data)
		b.enter(t, servov1.Task_FAILED)
	case "task.skipped":
		t.endedAt = at
		b.enter(t, servov1.Task_SKIPPED)
	case "task.cancelled":
		t.endedAt = at
		b.enter(t, servov1.Task_CANCELLED)
	}
}

// words describes an event in one line.
func (t *boardTask) words(b *board, e *servov1.Event) string {
	data, at := e.GetData(), e.GetRecordedAt().AsTime()
	switch e.GetType() {
	case "task.readied":
		return "READY"
	case "task.queued":
		return "QUEUED"
	case "task.claimed":
		state := "DISPATCHED"
		if flag(data, "started") {
			state = "RUNNING"
		}
		return fmt.Sprintf("%s attempt %d on %s", state, int(number(data, "attempt")), clean(text(data, "worker")))
	case "task.started":
		return fmt.Sprintf("RUNNING attempt %d on %s", t.attempt, clean(t.worker))
	case "task.fanned_out":
		return "has added " + count(len(data.GetFields()["tasks"].GetListValue().GetValues()), "task")
	case "task.returned":
		return "given back: " + text(data, "reason")
	case "task.retrying":
		words := "RETRY_WAIT " + failure(data)
		if due, err := time.Parse(time.RFC3339, text(data, "due")); err == nil {
			words += ", again in " + short(due.Sub(at))
		}
		return words
	case "task.succeeded":
		words := "SUCCEEDED"
		if outcome := text(data, "outcome"); outcome != "SUCCESS" {
			words += " (" + clean(outcome) + ")"
		}
		if !t.startedAt.IsZero() {
			words += " in " + short(at.Sub(t.startedAt))
		}
		return words
	case "task.failed":
		return "FAILED " + failure(data)
	case "task.skipped":
		words := "SKIPPED"
		if upstream := b.byID[text(data, "upstream")]; upstream != nil {
			words += " because " + upstream.name + " did not succeed"
		}
		return words
	case "task.cancel_requested":
		return "is asked to stop"
	case "task.cancelled":
		return "CANCELLED"
	default:
		return strings.TrimPrefix(e.GetType(), "task.")
	}
}

// failure is the error of an event: its code and message.
func failure(data *structpb.Struct) string {
	f := data.GetFields()["error"].GetStructValue()
	return clip(strings.TrimSuffix(text(f, "code")+": "+text(f, "message"), ": "), 200)
}

func text(data *structpb.Struct, key string) string { return data.GetFields()[key].GetStringValue() }

func flag(data *structpb.Struct, key string) bool { return data.GetFields()[key].GetBoolValue() }

func number(data *structpb.Struct, key string) float64 { return data.GetFields()[key].GetNumberValue() }
