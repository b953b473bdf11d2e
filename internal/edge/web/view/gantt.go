package view

import (
	"fmt"
	"time"

	servov1 "go.arco.dev/servo/gen/servo/v1"
)

// Gantt is the timeline of a run: the waits and attempts of its tasks.
type Gantt struct {
	Rows          []GanttRow
	Ticks         []GanttTick
	Width, Height int
	Cut           int  // rows that are not drawn
	More          bool // events that were not read
}

// GanttRow is a task.
type GanttRow struct {
	Label, At string
	Y         int
	Bars      []GanttBar
}

// GanttBar is a wait in a queue, or an attempt.
type GanttBar struct {
	X, Width int
	Class    string
	Label    string
}

// GanttTick is a label of the time axis.
type GanttTick struct {
	X     int
	Label string
}

// The sizes of the drawing.
const (
	ganttLeft  = 210
	ganttWidth = 770
	ganttRow   = 24
	ganttTop   = 26
	ganttRows  = 300
)

// ganttSpan is a wait or an attempt of a task.
type ganttSpan struct {
	from, to time.Time
	class    string
	label    string
}

// ganttTask collects the spans of a task from its events.
type ganttTask struct {
	id, asset string
	queued    time.Time
	claimed   time.Time
	attempt   int
	spans     []ganttSpan
}

// GanttOf draws the attempts of a run from its events.
func GanttOf(events []*servov1.Event, run *servov1.Run, now time.Time) Gantt {
	tasks, order := map[string]*ganttTask{}, []string{}
	for _, e := range events {
		if e.GetType() == "run.tasks_added" || e.GetType() == "run.created" {
			for _, t := range plannedTasks(e) {
				if tasks[t.id] == nil {
					tasks[t.id] = t
					order = append(order, t.id)
				}
			}
			continue
		}
		if e.GetTask() == "" {
			continue
		}
		t := tasks[e.GetTask()]
		if t == nil {
			t = &ganttTask{id: e.GetTask(), asset: ShortID(e.GetTask())}
			tasks[t.id] = t
			order = append(order, t.id)
		}
		t.add(e)
	}
	end := now
	if run.GetFinishedAt() != nil {
		end = run.GetFinishedAt().AsTime()
	}
	begin := run.GetCreatedAt().AsTime()
	g := Gantt{Width: ganttLeft + ganttWidth + 10}
	scale := scaleOf(begin, end)
	g.Ticks = scale.ticks()
	for _, id := range order {
		t := tasks[id]
		t.close(end, unfinished(run))
		if len(t.spans) == 0 {
			continue
		}
		if len(g.Rows) == ganttRows {
			g.Cut++
			continue
		}
		row := GanttRow{Label: t.asset, At: TaskPath(run.GetTenant(), run.GetId(), t.id), Y: ganttTop + len(g.Rows)*ganttRow}
		for _, s := range t.spans {
			x, z := scale.x(s.from), scale.x(s.to)
			row.Bars = append(row.Bars, GanttBar{X: x, Width: max(z-x, 2), Class: s.class, Label: fmt.Sprintf("%s: %s", s.label, Duration(s.to.Sub(s.from)))})
		}
		g.Rows = append(g.Rows, row)
	}
	g.Height = ganttTop + len(g.Rows)*ganttRow + 8
	return g
}

// plannedTasks are the tasks that an event adds.
func plannedTasks(e *servov1.Event) []*ganttTask {
	var out []*ganttTask
	for _, v := range e.GetData().GetFields()["tasks"].GetListValue().GetValues() {
		fields := v.GetStructValue().GetFields()
		label := fields["asset"].GetStringValue()
		if partition := fields["part"].GetStringValue(); partition != "" {
			label += " " + partition
		}
		out = append(out, &ganttTask{id: fields["id"].GetStringValue(), asset: label})
	}
	return out
}

// add reads one event of the task.
func (t *ganttTask) add(e *servov1.Event) {
	at := e.GetRecordedAt().AsTime()
	switch e.GetType() {
	case "task.readied", "task.queued":
		if t.queued.IsZero() {
			t.queued = at
		}
	case "task.claimed":
		t.attempt++
		t.waited(at)
		t.claimed = at
	case "task.succeeded":
		t.ended(at, "s-ok", "succeeded")
	case "task.failed":
		t.ended(at, "s-bad", "failed")
	case "task.retrying":
		t.ended(at, "s-late", "failed, retried")
	case "task.returned":
		t.ended(at, "s-idle", "returned")
	case "task.cancelled":
		t.ended(at, "s-off", "cancelled")
	}
}

func (t *ganttTask) waited(until time.Time) {
	if !t.queued.IsZero() {
		t.spans = append(t.spans, ganttSpan{t.queued, until, "queue", "queued"})
		t.queued = time.Time{}
	}
}

func (t *ganttTask) ended(at time.Time, class, how string) {
	if !t.claimed.IsZero() {
		t.spans = append(t.spans, ganttSpan{t.claimed, at, class, fmt.Sprintf("attempt %d %s", t.attempt, how)})
	}
	t.claimed, t.queued = time.Time{}, time.Time{}
}

// close ends the open span of a task of an unfinished run.
func (t *ganttTask) close(end time.Time, running bool) {
	if !running {
		return
	}
	t.waited(end)
	if !t.claimed.IsZero() {
		t.spans = append(t.spans, ganttSpan{t.claimed, end, "s-run", fmt.Sprintf("attempt %d running", t.attempt)})
	}
}

type ganttScale struct {
	begin time.Time
	whole time.Duration
}

func scaleOf(begin, end time.Time) ganttScale {
	return ganttScale{begin: begin, whole: max(end.Sub(begin), time.Second)}
}

func (s ganttScale) x(t time.Time) int {
	part := float64(t.Sub(s.begin)) / float64(s.whole)
	return ganttLeft + int(min(max(part, 0), 1)*ganttWidth)
}

// ticks are about six labels at round times.
func (s ganttScale) ticks() []GanttTick {
	steps := []time.Duration{
		100 * time.Millisecond, 200 * time.Millisecond, 500 * time.Millisecond, time.Second, 2 * time.Second, 5 * time.Second, 10 * time.Second, 30 * time.Second,
		time.Minute, 2 * time.Minute, 5 * time.Minute, 10 * time.Minute, 30 * time.Minute, time.Hour, 3 * time.Hour, 6 * time.Hour, 24 * time.Hour, 7 * 24 * time.Hour,
	}
	step := steps[len(steps)-1]
	for _, candidate := range steps {
		if s.whole/candidate <= 7 {
			step = candidate
			break
		}
	}
	var out []GanttTick
	for at := time.Duration(0); at <= s.whole; at += step {
		label := "0"
		if at > 0 {
			label = Duration(at)
		}
		out = append(out, GanttTick{X: s.x(s.begin.Add(at)), Label: label})
	}
	return out
}
