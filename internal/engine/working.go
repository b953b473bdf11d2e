package engine

import (
	"cmp"
	"fmt"
	"time"

	"go.arco.dev/servo/internal/base/event"
	"go.arco.dev/servo/internal/base/id"
	"go.arco.dev/servo/internal/domain/output"
	"go.arco.dev/servo/internal/domain/run"
	"go.arco.dev/servo/internal/store"
)

// working is the working set of one transaction: the locked rows as they were loaded and as they are now,
// and the events in between. Commands are decided one after the other against it; the store writes the
// difference.
type working struct {
	now  time.Time
	mint *id.Minter

	runs     map[id.Run]*liveRun
	tasks    map[id.Task]*liveTask
	changed  []*liveTask // in the order of their first change
	touched  []*liveRun
	changes  store.Changes
	breaches []slaBreach
	seen     *Committed // for the observer; nil without one
	claims   []*openClaim

	pointers      map[store.PointerKey]output.Pointer // locked, as they are now
	movedPointers []store.PointerKey

	wakesClaims bool            // claims admit ready tasks, so that these wake them
	wakes       []string        // pools whose claims should look again
	ended       []store.TaskKey // tasks of runs with partitions that have ended
	reopened    []string        // pools of tasks that may be admitted again
}

type liveRun struct {
	run     run.Run
	from    run.State // as loaded; 0 if new
	isNew   bool
	touched bool
}

type liveTask struct {
	task    run.Task
	from    run.TaskState // as loaded; 0 if new
	changed bool
	// startedAt is when its attempt began; it is kept after the end.
	startedAt time.Time
	deaths    int32 // as loaded
	// dueChanged reports that the reaper must check the lease at another time.
	dueChanged bool
}

func newWorking() *working {
	return &working{runs: map[id.Run]*liveRun{}, tasks: map[id.Task]*liveTask{}}
}

// at sets the time of the transaction, once its locks are taken.
func (w *working) at(now time.Time) {
	w.now, w.mint = now, id.NewMinter(now)
	w.changes.Now = now
}

func (w *working) addRuns(runs []run.Run) {
	for _, r := range runs {
		w.runs[r.ID] = &liveRun{run: r, from: r.State}
	}
}

func (w *working) addTasks(tasks []run.Task) {
	for _, t := range tasks {
		w.add(t)
	}
}

// add adds a loaded row to the set. A row that is in it is not replaced: loads after a decision must not
// undo it.
func (w *working) add(t run.Task) *liveTask {
	if known, ok := w.tasks[t.ID]; ok {
		return known
	}
	live := &liveTask{task: t, from: t.State, startedAt: t.StartedAt, deaths: t.Deaths}
	w.tasks[t.ID] = live
	return live
}

// decide applies a command to a task and records the event. A refusal changes nothing.
func (w *working) decide(t *liveTask, cmd run.Command, meta event.Meta) error {
	parent := w.runs[t.task.Run]
	facts := run.Facts{Now: w.now, Cancelling: parent != nil && parent.run.State == run.RunCancelling}
	body, err := t.task.Decide(cmd, facts)
	if move, ok := cmd.(run.Advance); ok && err == nil && t.task.Cursor != move.Next {
		t.task = t.task.Moved(move)
		w.change(t)
	}
	if err != nil || body == nil {
		return err
	}
	if parent != nil {
		meta.Trace = cmp.Or(meta.Trace, parent.run.Trace) // a worker's report belongs to its run
	}
	e := event.Event{
		Tenant: t.task.Tenant, Run: t.task.Run, Subject: t.task.ID.UUID, Version: t.task.Version + 1,
		At: w.now, Meta: meta, Body: body,
	}
	next, err := t.task.Evolve(e)
	if err != nil {
		return err
	}
	if next.State.Terminal() {
		if parent == nil {
			return fmt.Errorf("task %s ends without its run's lock", t.task.ID)
		}
		parent.run = parent.run.Count(next)
		w.touch(parent)
		w.endPartitions(parent.run, next)
		w.endHold(parent.run, next, t.task.State)
	}
	w.note(&t.task, &next, parent)
	t.task = next
	if next.State == run.Running {
		t.startedAt = next.StartedAt
	}
	w.changes.Events = append(w.changes.Events, e)
	w.change(t)
	return nil
}

// endPartitions adds the end of a task to the status of its partitions. Tasks that were skipped or cancelled
// leave it as it is, and runs without partitions write nothing.
func (w *working) endPartitions(of run.Run, ended run.Task) {
	if of.Divided && (ended.State == run.Succeeded || ended.State == run.Failed) {
		w.changes.PartitionEnds = append(w.changes.PartitionEnds, store.PartitionEnd{
			TaskKey: keyOf(ended), Workspace: of.Workspace, Succeeded: ended.State == run.Succeeded,
		})
	}
}

func (w *working) change(t *liveTask) {
	if !t.changed {
		t.changed = true
		w.changed = append(w.changed, t)
	}
}

func (w *working) touch(r *liveRun) {
	if !r.touched {
		r.touched = true
		w.touched = append(w.touched, r)
	}
}

// decideRun applies a command to a run and records the event.
func (w *working) decideRun(r *liveRun, cmd run.RunAction, meta event.Meta) error {
	body, err := r.run.Decide(cmd)
	if err != nil {
		return err
	}
	return w.recordRun(r, body, meta)
}

func (w *working) recordRun(r *liveRun, body event.Body, meta event.Meta) error {
	meta.Trace = cmp.Or(meta.Trace, r.run.Trace)
	e := event.Event{
		Tenant: r.run.Tenant, Run: r.run.ID, Subject: r.run.ID.UUID, Version: r.run.Version + 1,
		At: w.now, Meta: meta, Body: body,
	}
	next, err := r.run.Evolve(e)
	if err != nil {
		return err
	}
	r.run = next
	w.touch(r)
	if breach, ok := body.(run.RunBreached); ok {
		w.breaches = append(w.breaches, slaBreach{r, breach.SLA})
	}
	w.changes.Events = append(w.changes.Events, e)
	return nil
}

// finish ends the runs whose last task has ended, and returns the difference to write.
func (w *working) finish() (store.Changes, error) {
	for _, r := range w.touched {
		if r.run.Remaining == 0 && !r.run.State.Terminal() {
			if err := w.decideRun(r, run.EndRun{}, event.Meta{Actor: "engine"}); err != nil {
				return store.Changes{}, err
			}
		}
		if r.isNew {
			w.changes.NewRuns = append(w.changes.NewRuns, r.run)
		} else {
			w.changes.ChangedRuns = append(w.changes.ChangedRuns, r.run)
		}
		w.live(r)
	}
	for _, t := range w.changed {
		if parent := w.runs[t.task.Run]; parent != nil {
			t.task.Divided = parent.run.Divided
		} else if t.task.State == run.Ready && t.from != run.Ready {
			return store.Changes{}, fmt.Errorf("task %s becomes ready without its run's lock", t.task.ID)
		}
		w.changes.Moves = append(w.changes.Moves, store.Move{From: t.from, Task: t.task})
		if t.dueChanged && t.task.State.Leased() {
			w.changes.Reschedule = append(w.changes.Reschedule, t.task)
		}
	}
	w.collectPointers()
	w.settle()
	w.total()
	return w.changes, nil
}

// keyOf is the key of a task's rows.
func keyOf(t run.Task) store.TaskKey {
	return store.TaskKey{Tenant: t.Tenant, Run: t.Run, Task: t.ID}
}

func runKeyOf(t run.Task) store.RunKey { return store.RunKey{Tenant: t.Tenant, Run: t.Run} }

// runKeys returns the runs of tasks, each once.
func runKeys(keys []store.TaskKey) []store.RunKey {
	seen := make(map[store.RunKey]bool, len(keys))
	var runs []store.RunKey
	for _, k := range keys {
		if key := (store.RunKey{Tenant: k.Tenant, Run: k.Run}); !seen[key] {
			seen[key] = true
			runs = append(runs, key)
		}
	}
	return runs
}
