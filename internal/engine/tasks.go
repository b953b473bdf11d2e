package engine

import (
	"go.arco.dev/servo/internal/base/event"
	"go.arco.dev/servo/internal/base/id"
	"go.arco.dev/servo/internal/domain/run"
	"go.arco.dev/servo/internal/store"
)

// addToRun records added tasks, in events of bounded size.
func (w *working) addToRun(r *liveRun, added run.RunTasksAdded, meta event.Meta) error {
	for rest := added.Tasks; len(rest) > 0; {
		n := min(len(rest), maxTasksPerEvent)
		chunk := added
		chunk.Tasks = rest[:n]
		if err := w.recordRun(r, chunk, meta); err != nil {
			return err
		}
		rest = rest[n:]
	}
	return nil
}

// insertTasks puts new tasks of a run into the working set.
func (w *working) insertTasks(r run.Run, specs []run.TaskSpec) {
	for _, spec := range specs {
		w.changes.NewTasks = append(w.changes.NewTasks, store.NewTask{
			Key: store.TaskKey{Tenant: r.Tenant, Run: r.ID, Task: spec.ID}, Spec: spec,
		})
		live := &liveTask{task: run.NewTask(r, spec, w.now)}
		w.tasks[spec.ID] = live
		w.change(live)
	}
}

// specs turns a plan into tasks with ids and into edges between them.
func (w *working) specs(t *plannedTrigger) ([]run.TaskSpec, []store.Edge, error) {
	p := t.plan
	specs := make([]run.TaskSpec, len(p.Tasks))
	for i, task := range p.Tasks {
		specs[i] = run.TaskSpec{
			ID: id.New[id.Task](w.mint), Index: int32(i), Asset: task.Key, Partition: task.Partition, Pool: task.Pool, Needs: task.Needs,
			Priority: t.priority, Timeout: int32(task.Timeout.Std().Seconds()), Range: specRange(task),
		}
		if task.Barrier {
			specs[i].Needs = run.NeedsBarrier
		}
	}
	edges := make([]store.Edge, len(p.Edges))
	for i, e := range p.Edges {
		from, to := e[0], e[1]
		specs[to].Upstream = append(specs[to].Upstream, int32(from)) //nolint:gosec // an index of a task
		specs[from].Dependents = true
		edges[i] = store.Edge{Key: store.RunKey{Tenant: t.Tenant, Run: t.run}, Upstream: specs[from].ID, Task: specs[to].ID}
	}
	t.giveInputs(specs)
	return specs, edges, t.givePartitions(specs)
}
