package view

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	servov1 "go.arco.dev/servo/gen/servo/v1"
)

// Timeline is the history of the tasks of a run: every wait and every attempt is a segment.
type Timeline struct {
	Rows     []TimelineRow
	Ticks    []TimelineTick
	Begin    time.Time // of the visible part
	End      time.Time
	Zoomed   bool
	Critical time.Duration // sum of the segments on the critical path
	More     bool          // events that were not read
	Paging   Paging
	path     string
}

// TimelineRow is a task, or the tasks of an asset.
type TimelineRow struct {
	Label, At string
	Tasks     int  // in a group; 0 for a task
	Open      bool // the tasks of the group follow
	Nested    bool // a task of a group
	Critical  bool // on the critical path
	Segments  []Segment
	Took      string // execution time of the last attempt
	Waited    string // from creation to the first start
}

// Segment is a wait or an attempt. Its place is in percent of the visible part.
type Segment struct {
	Kind     string // upstream, ready, queued, starting, running, backoff
	Class    string
	X, Width float64
	From, To int64 // in milliseconds
	Title    string
}

// TimelineTick is a label of the time axis.
type TimelineTick struct {
	At    float64
	Label string
}

// TimelineOptions select the visible part of a timeline.
type TimelineOptions struct {
	Now      time.Time
	From, To time.Time // zoom; zero is the whole run
	Open     string    // asset whose tasks are listed
	First    int       // of the listed rows
	Graph    *servov1.RunGraph
	Path     string // address of the page with its query
}

// The numbers of rows.
const (
	maxUngrouped = 60  // tasks that are shown without grouping by asset
	timelineRows = 200 // rows of a page
)

// span is a wait or an attempt of a task.
type span struct {
	kind, class, what string
	from, to          time.Time
}

// taskHistory collects the spans of a task from its events.
type taskHistory struct {
	id, asset, partition string
	at                   time.Time // of the last change
	kind                 string    // of the span that is open
	attempt              int
	spans                []span
	ended                bool
	started, finished    time.Time
	created              time.Time
}

func (t *taskHistory) label() string { return strings.TrimSpace(t.asset + " " + t.partition) }

// next ends the open span and begins another.
func (t *taskHistory) next(at time.Time, kind, class, what string) {
	if t.ended {
		return
	}
	if t.kind != "" {
		t.spans = append(t.spans, span{t.kind, class, what, t.at, at})
	}
	t.at, t.kind = at, kind
}

// add reads one event of the task.
func (t *taskHistory) add(e *servov1.Event) {
	at := e.GetRecordedAt().AsTime()
	tries := func(how string) string { return fmt.Sprintf("attempt %d %s", t.attempt, how) }
	switch e.GetType() {
	case "task.readied":
		if t.kind == segBackoff {
			t.next(at, segReady, segBackoff, "backoff")
		} else {
			t.next(at, segReady, segUpstream, "waits for upstream tasks")
		}
	case "task.queued":
		t.kind = cmp.Or(replaced(t.kind, segUpstream, segReady), segReady) // a task without upstream tasks is ready at once
		t.next(at, segQueued, segReady, "ready, waits for admission")
	case "task.withdrawn":
		t.next(at, segReady, segQueued, "queued")
	case "task.claimed":
		t.attempt++
		t.next(at, segStarting, segQueued, "queued, waits for a worker")
		if e.GetData().GetFields()["started"].GetBoolValue() {
			t.kind = segRunning
			t.started = at
		}
	case "task.started":
		if t.kind == segStarting {
			t.next(at, segRunning, segStarting, tries("starts"))
			t.started = at
		}
	case "task.succeeded":
		t.end(at, "s-ok", tries("succeeded"))
	case "task.failed":
		t.end(at, "s-bad", tries("failed"))
	case "task.retrying":
		t.next(at, segBackoff, "s-late", tries("failed, is retried"))
	case "task.returned":
		t.next(at, segReady, "s-idle", tries("returned"))
	case "task.cancelled", "task.skipped":
		t.end(at, "s-off", "cancelled or skipped")
	}
}

func replaced(text, old, by string) string {
	if text == old {
		return by
	}
	return text
}

// The kinds of segments; their style classes are seg- with the kind.
const (
	segUpstream = "upstream"
	segReady    = "ready"
	segQueued   = "queued"
	segStarting = "starting"
	segRunning  = "running"
	segBackoff  = "backoff"
)

func (t *taskHistory) end(at time.Time, class, what string) {
	if t.kind != segRunning && t.kind != segStarting {
		class, what = t.kind, waitWords(t.kind)
	}
	t.next(at, "", class, what)
	t.ended, t.finished = true, at
}

// close ends the open span of a task that has not ended.
func (t *taskHistory) close(end time.Time) {
	if t.ended || t.kind == "" {
		return
	}
	class, what := t.kind, waitWords(t.kind)
	if t.kind == segRunning {
		class, what = "s-run", fmt.Sprintf("attempt %d runs", t.attempt)
	}
	t.next(end, "", class, what)
}

// waitWords describes a wait.
func waitWords(kind string) string {
	switch kind {
	case segUpstream:
		return "waits for upstream tasks"
	case segReady:
		return "ready, waits for admission"
	case segQueued:
		return "queued, waits for a worker"
	case segStarting:
		return "claimed, starts"
	case segBackoff:
		return "backoff"
	}
	return kind
}

// historiesOf are the tasks of a run in the order of its plan.
func historiesOf(events []*servov1.Event, begin, end time.Time) []*taskHistory {
	tasks, order := map[string]*taskHistory{}, []*taskHistory{}
	known := func(t *taskHistory) *taskHistory {
		if tasks[t.id] == nil {
			tasks[t.id] = t
			order = append(order, t)
		}
		return tasks[t.id]
	}
	for _, e := range events {
		if e.GetType() == "run.tasks_added" || e.GetType() == "run.created" {
			for _, t := range plannedTasks(e) {
				known(t)
			}
			continue
		}
		if e.GetTask() != "" {
			known(&taskHistory{id: e.GetTask(), asset: ShortID(e.GetTask()), at: begin, created: begin, kind: segUpstream}).add(e)
		}
	}
	for _, t := range order {
		t.close(end)
	}
	return order
}

// plannedTasks are the tasks that an event adds.
func plannedTasks(e *servov1.Event) []*taskHistory {
	var out []*taskHistory
	at := e.GetRecordedAt().AsTime()
	for _, v := range e.GetData().GetFields()["tasks"].GetListValue().GetValues() {
		fields := v.GetStructValue().GetFields()
		out = append(out, &taskHistory{
			id: fields["id"].GetStringValue(), asset: fields["asset"].GetStringValue(), partition: fields["part"].GetStringValue(), at: at, created: at, kind: segUpstream,
		})
	}
	return out
}

// TimelineOf arranges the events of a run. Many tasks are grouped by asset.
func TimelineOf(events []*servov1.Event, run *servov1.Run, o TimelineOptions) Timeline {
	end := o.Now
	if run.GetFinishedAt() != nil {
		end = run.GetFinishedAt().AsTime()
	}
	begin := run.GetCreatedAt().AsTime()
	tasks := historiesOf(events, begin, end)
	t := Timeline{Begin: begin, End: end, path: o.Path}
	if o.To.After(o.From) && !o.From.IsZero() {
		t.Begin, t.End, t.Zoomed = o.From, o.To, true
	}
	critical := criticalPath(tasks, o.Graph)
	for _, id := range critical {
		t.Critical += id.finished.Sub(id.started)
	}
	t.Ticks = t.ticks()
	var rows []TimelineRow
	if len(tasks) <= maxUngrouped {
		for _, task := range tasks {
			rows = append(rows, t.row(task, run, slices.Contains(critical, task)))
		}
	} else {
		rows = t.grouped(tasks, run, critical, o.Open)
	}
	first := min(max(o.First, 0), len(rows))
	t.Paging = Paging{First: first == 0, FirstAt: t.with("row", "")}
	if first+timelineRows < len(rows) {
		t.Paging.NextAt = t.with("row", strconv.Itoa(first+timelineRows))
	}
	t.Rows = rows[first:min(first+timelineRows, len(rows))]
	return t
}

// grouped are the assets of a run, each with its tasks if it is open.
func (t Timeline) grouped(tasks []*taskHistory, run *servov1.Run, critical []*taskHistory, open string) (rows []TimelineRow) {
	var assets []string
	byAsset := map[string][]*taskHistory{}
	for _, task := range tasks {
		if byAsset[task.asset] == nil {
			assets = append(assets, task.asset)
		}
		byAsset[task.asset] = append(byAsset[task.asset], task)
	}
	for _, asset := range assets {
		members := byAsset[asset]
		if len(members) == 1 {
			rows = append(rows, t.row(members[0], run, slices.Contains(critical, members[0])))
			continue
		}
		group := t.groupRow(asset, members)
		group.Open = asset == open
		group.Critical = slices.ContainsFunc(members, func(m *taskHistory) bool { return slices.Contains(critical, m) })
		if group.At = t.with("open", asset); group.Open {
			group.At = t.with("open", "")
		}
		rows = append(rows, group)
		for i := 0; group.Open && i < len(members); i++ {
			row := t.row(members[i], run, slices.Contains(critical, members[i]))
			row.Nested = true
			row.Label = cmp.Or(members[i].partition, "task "+strconv.Itoa(i+1))
			rows = append(rows, row)
		}
	}
	return rows
}

// groupRow shows the time until the first task of an asset started, and until the last one ended.
func (t Timeline) groupRow(asset string, members []*taskHistory) TimelineRow {
	row := TimelineRow{Label: asset, Tasks: len(members)}
	var created, started, ended time.Time
	unfinished, failed := false, 0
	for _, m := range members {
		created = earlier(created, m.created)
		started = earlier(started, m.started)
		for _, s := range m.spans {
			if s.to.After(ended) {
				ended = s.to
			}
			if s.class == "s-bad" {
				failed++
			}
		}
		unfinished = unfinished || !m.ended
	}
	class := "s-ok"
	switch {
	case failed > 0:
		class = "s-bad"
	case unfinished:
		class = "s-run"
	}
	if started.IsZero() {
		row.Segments = t.segments([]span{{segUpstream, segUpstream, "no task has started", created, ended}})
		return row
	}
	row.Segments = t.segments([]span{
		{segUpstream, segUpstream, "until the first task starts", created, started},
		{segRunning, class, "from the first start to the last end", started, ended},
	})
	row.Took, row.Waited = Duration(ended.Sub(started)), Duration(started.Sub(created))
	return row
}

func earlier(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}

// row is a task.
func (t Timeline) row(task *taskHistory, run *servov1.Run, critical bool) TimelineRow {
	row := TimelineRow{Label: task.label(), At: TaskPath(run.GetTenant(), run.GetId(), task.id), Critical: critical, Segments: t.segments(task.spans)}
	if !task.started.IsZero() {
		for _, s := range task.spans { // the last attempt: a task that was returned waits again
			if s.kind == segRunning {
				row.Took = Duration(s.to.Sub(s.from))
			}
		}
		row.Waited = Duration(task.spans[0].to.Sub(task.created))
		for _, s := range task.spans {
			if s.kind == segRunning {
				row.Waited = Duration(s.from.Sub(task.created))
				break
			}
		}
	}
	return row
}

// segments are the visible parts of spans.
func (t Timeline) segments(spans []span) (out []Segment) {
	whole := float64(max(t.End.Sub(t.Begin), time.Millisecond))
	place := func(at time.Time) float64 { return min(max(float64(at.Sub(t.Begin))/whole*100, 0), 100) }
	for _, s := range spans {
		if s.to.Before(t.Begin) || s.from.After(t.End) {
			continue
		}
		x, z := place(s.from), place(s.to)
		class := s.class
		if !strings.HasPrefix(class, "s-") {
			class = "seg-" + class
		}
		out = append(out, Segment{
			Kind: s.kind, Class: class, X: x, Width: max(z-x, 0.15), From: s.from.UnixMilli(), To: s.to.UnixMilli(),
			Title: s.what + ": " + Duration(s.to.Sub(s.from)) + ", from " + offset(s.from.Sub(t.Begin)),
		})
	}
	return out
}

// offset is a time after the begin of the run.
func offset(d time.Duration) string { return "+" + Duration(max(d, 0)) }

// criticalPath is the chain of tasks that determined the end of the run: from the task that ended
// last, each time the upstream task that ended last.
func criticalPath(tasks []*taskHistory, g *servov1.RunGraph) (path []*taskHistory) {
	byID := map[string]*taskHistory{}
	var last *taskHistory
	for _, t := range tasks {
		byID[t.id] = t
		if !t.started.IsZero() && t.ended && (last == nil || t.finished.After(last.finished)) {
			last = t
		}
	}
	byIndex, upstream := map[int32]*taskHistory{}, map[string][]*taskHistory{}
	for _, n := range g.GetNodes() {
		byIndex[n.GetIndex()] = byID[n.GetTask()]
	}
	for _, e := range g.GetEdges() {
		if from, to := byIndex[e.GetFrom()], byIndex[e.GetTo()]; from != nil && to != nil {
			upstream[to.id] = append(upstream[to.id], from)
		}
	}
	if len(upstream) == 0 {
		return nil
	}
	for t := last; t != nil && len(path) <= len(tasks); {
		path = append(path, t)
		var next *taskHistory
		for _, up := range upstream[t.id] {
			if !up.started.IsZero() && up.ended && (next == nil || up.finished.After(next.finished)) {
				next = up
			}
		}
		t = next
	}
	return path
}
