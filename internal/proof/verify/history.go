package verify

import (
	"bytes"
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"

	"go.arco.dev/servo/internal/base/event"
	"go.arco.dev/servo/internal/base/id"
	"go.arco.dev/servo/internal/domain/run"
	"go.arco.dev/servo/internal/store"
)

// history is the fold of one run: the rows follow from it.
type history struct {
	key    store.RunKey
	report func(Divergence)
	limits limits

	run       run.Run
	beforeEnd *run.Run // as it was when it ended
	cancelled bool     // a cancel was requested
	inTime    bool     // a task was started by the time at which the run should have begun
	lateBy    int64    // the position of a breach of the start time
	tasks     map[id.Task]*task
	order     []*task // in the order of creation
	edges     []edge

	broken      bool // the run's own stream cannot be folded: its tasks are unknown
	brokenTasks bool // some task's stream cannot be folded: the counters are unknown
}

// limits are the last allocated token and position.
type limits struct{ token, position int64 }

// task is the fold of one task, and the tables that have its rows.
type task struct {
	run.Task

	spec        run.TaskSpec
	made        time.Time
	upstream    []*task     // with those of barriers
	planned     []uuid.UUID // those of the plan alone
	lastToken   int64
	broken      bool
	unexplained bool // it has rows but no events

	hasRow    bool // in tasks
	hasOutput bool // in materializations
	ended     bool // by its row
	places    place
}

type edge struct{ upstream, task uuid.UUID }

func compareEdges(a, b edge) int {
	return cmp.Or(bytes.Compare(a.upstream[:], b.upstream[:]), bytes.Compare(a.task[:], b.task[:]))
}

func newHistory(key store.RunKey, l limits, report func(Divergence)) *history {
	return &history{key: key, limits: l, report: report, tasks: map[id.Task]*task{}}
}

// diverges reports a divergence in the run's events.
func (h *history) diverges(kind Kind, column string, subject uuid.UUID, want, got string) {
	h.report(Divergence{Kind: kind, Table: "run_events", Column: column, Tenant: h.key.Tenant, Run: h.key.Run, Subject: subject, Want: want, Got: got})
}

// apply folds one event. The run's own stream comes first, each stream by its versions: the fold
// does not depend on the order of events in different streams.
func (h *history) apply(row store.EventRow, codec *event.Codec) {
	if row.Position > h.limits.position {
		h.diverges(Invariant, "position", row.SubjectID, fmt.Sprintf("at most %d, the last that was allocated", h.limits.position), fmt.Sprint(row.Position))
	}
	subject, isRun := h.tasks[id.Of[id.Task](row.SubjectID)], row.SubjectID == h.key.Run.UUID
	switch {
	case isRun && h.broken, !isRun && subject != nil && subject.broken:
		return // reported once
	case !isRun && subject == nil:
		if h.run.Version == 0 && !h.broken {
			h.giveUp(nil)
			h.diverges(Stream, "version", h.key.Run.UUID, "run.created with version 1", row.Type+" of a task")
		}
		if !h.broken {
			h.diverges(Surplus, "subject_id", row.SubjectID, "the run or one of its tasks", row.Type)
		}
		return
	}
	body, err := codec.Decode(event.Type(row.Type), row.Schema, row.Data)
	if err != nil {
		h.giveUp(subject)
		h.diverges(Undecidable, "type", row.SubjectID, "an event that this version can read", err.Error()+": refuses to decide on this stream")
		return
	}
	e := event.Event{
		Tenant: id.Of[id.Tenant](row.TenantID), Run: id.Of[id.Run](row.RunID), Subject: row.SubjectID,
		Version: row.Version, At: row.RecordedAt, Meta: event.Meta{Actor: row.Actor, Trace: row.Trace}, Body: body,
	}
	if isRun {
		if b, ok := body.(run.RunBreached); ok && b.SLA == run.SLAStartDelay {
			h.lateBy = row.Position
		}
		h.applyRun(e)
	} else {
		h.began(e, row.Position)
		h.applyTask(subject, e)
	}
}

// giveUp marks the stream of a task, or of the run, as one that cannot be folded.
func (h *history) giveUp(t *task) {
	if t == nil {
		h.broken = true
		return
	}
	t.broken, h.brokenTasks = true, true
}

// inOrder checks the version that an event must have.
func (h *history) inOrder(e event.Event, last int32) bool {
	if e.Version == last+1 {
		return true
	}
	h.diverges(Stream, "version", e.Subject, fmt.Sprintf("%s with version %d", e.Body.EventType(), last+1), fmt.Sprint(e.Version))
	return false
}

func (h *history) applyRun(e event.Event) {
	before := h.run
	if !h.inOrder(e, before.Version) {
		h.giveUp(nil)
		return
	}
	if !runMay(before.State, e.Body) {
		h.diverges(History, "type", e.Subject, "an event of a run that is "+stateName(before), string(e.Body.EventType()))
	}
	next, err := before.Evolve(e)
	if err != nil {
		h.diverges(Undecidable, "type", e.Subject, "an event of a run", err.Error())
		h.giveUp(nil)
		return
	}
	h.run = next
	switch body := e.Body.(type) {
	case run.RunCreated:
		h.make(body.Tasks, nil, e.At)
	case run.RunTasksAdded:
		h.make(body.Tasks, body.Barrier, e.At)
	case run.RunCancelRequested:
		h.cancelled = true
	case run.RunEnded:
		h.beforeEnd = &before
	}
}

func stateName(r run.Run) string {
	if r.Version == 0 {
		return "not created"
	}
	return r.State.String()
}

// make adds tasks, and lets those of the barrier wait for each of them.
func (h *history) make(specs []run.TaskSpec, barrier []id.Task, at time.Time) {
	for _, spec := range specs {
		if h.tasks[spec.ID] != nil {
			h.diverges(History, "data", spec.ID.UUID, "a task that is created once", "created again")
			continue
		}
		t := &task{Task: run.NewTask(h.run, spec, at), spec: spec, made: at}
		h.tasks[spec.ID] = t
		h.order = append(h.order, t)
		for _, waiting := range barrier {
			if b := h.tasks[waiting]; b != nil {
				b.upstream = append(b.upstream, t)
			} else {
				h.diverges(History, "data", waiting.UUID, "a barrier of tasks of the run", "an unknown task")
			}
		}
	}
}

func (h *history) applyTask(t *task, e event.Event) {
	if !h.inOrder(e, t.Version) {
		h.giveUp(t)
		return
	}
	if !taskMay(t.Task, e.Body) {
		h.diverges(History, "type", e.Subject, "an event of a task that is "+t.State.String(), string(e.Body.EventType()))
	}
	if want, got, wrong := miscounted(t, e.Body, h.limits); wrong {
		h.diverges(History, "data", e.Subject, want, got)
	}
	if claim, ok := e.Body.(run.TaskClaimed); ok {
		t.lastToken = claim.Token
	}
	next, err := t.Evolve(e)
	if err != nil {
		h.diverges(Undecidable, "type", e.Subject, "an event of a task", err.Error())
		h.giveUp(t)
		return
	}
	t.Task = next
}

// finish derives values that no single event contains: the edges, how many upstreams each task
// waits for, and the run's counters.
func (h *history) finish() {
	byIndex := make(map[int32]*task, len(h.order))
	for _, t := range h.order {
		if byIndex[t.spec.Index] != nil {
			h.diverges(History, "data", t.ID.UUID, "an index that no other task has", fmt.Sprint(t.spec.Index))
		}
		byIndex[t.spec.Index] = t
	}
	for _, t := range h.order {
		for _, index := range t.spec.Upstream {
			if up := byIndex[index]; up != nil {
				t.upstream = append(t.upstream, up)
				t.planned = append(t.planned, up.ID.UUID)
			} else {
				h.diverges(History, "data", t.ID.UUID, "upstream tasks of the run", fmt.Sprintf("index %d", index))
			}
		}
		t.spec.Upstream = nil
		for _, up := range t.upstream {
			h.edges = append(h.edges, edge{up.ID.UUID, t.ID.UUID})
		}
	}
	slices.SortFunc(h.edges, compareEdges)
	for _, t := range h.order {
		t.countUpstream(h.run)
		if t.State.Terminal() {
			h.run = h.run.Count(t.Task)
		}
	}
	if !h.broken && !h.brokenTasks && len(h.order) > 0 {
		h.checkRun()
	}
}

// countUpstream counts the unmet upstreams. A task without upstreams waits for its run to start.
func (t *task) countUpstream(of run.Run) {
	if t.State != run.Pending {
		return
	}
	t.Unmet = 0
	for _, up := range t.upstream {
		if up.State != run.Succeeded {
			t.Unmet++
		}
	}
	if len(t.upstream) == 0 && of.State == run.RunPending {
		t.Unmet = 1
	}
}

// doomed reports whether the task can never run: an upstream ended without success.
func (t *task) doomed() bool {
	return t.State == run.Pending && slices.ContainsFunc(t.upstream, func(up *task) bool {
		return up.State.Terminal() && up.State != run.Succeeded
	})
}
