package engine

import (
	"context"
	"fmt"

	"go.arco.dev/servo/internal/base/fault"
	"go.arco.dev/servo/internal/base/id"
	"go.arco.dev/servo/internal/base/suggest"
	"go.arco.dev/servo/internal/domain/run"
	"go.arco.dev/servo/internal/store"
)

// maxFanOutCall bounds the tasks that one call adds.
const (
	maxFanOutCall      = 10_000
	maxPartitionLength = 1000
)

// fanOut adds tasks to a running task's run.
func (e *Engine) fanOut(ctx context.Context, tx *store.Tx, w *working, t *liveTask, r *Report, a FanOut) (Answer, error) {
	parent, ok := w.runs[t.task.Run]
	if !ok {
		return Answer{}, fmt.Errorf("run %s is not loaded", t.task.Run)
	}
	if a.Ordinal < 0 {
		return Answer{}, fault.New(fault.InvalidArgument, fmt.Sprintf("is %d", a.Ordinal), fault.Field("ordinal"), fault.Remedy("number the fan-outs of a task from 0"))
	}
	if a.Ordinal < t.task.FanOuts {
		return e.repeatFanOut(ctx, tx, w, t, r, a)
	}
	specs, err := e.fanOutSpecs(ctx, w, parent.run, a)
	if err != nil {
		return Answer{}, err
	}
	added := make([]id.Task, len(specs))
	for i, spec := range specs {
		added[i] = spec.ID
	}
	if err := w.decide(t, run.FanOut{Token: r.Token, Ordinal: a.Ordinal, Tasks: added}, r.Meta); err != nil {
		return Answer{}, err
	}
	barrier, err := e.raiseBarrier(ctx, tx, w, t, specs, a.Barrier)
	if err != nil {
		return Answer{}, err
	}
	by := t.task.ID
	if err := w.addToRun(parent, run.RunTasksAdded{By: &by, Tasks: specs, Barrier: barrier}, r.Meta); err != nil {
		return Answer{}, err
	}
	w.insertTasks(parent.run, specs)
	return Answer{State: t.task.State, Deadline: t.task.Deadline, Added: added}, nil
}

// raiseBarrier makes the dependents of the task wait for the added tasks too.
func (e *Engine) raiseBarrier(ctx context.Context, tx *store.Tx, w *working, t *liveTask, specs []run.TaskSpec, barrier bool) ([]id.Task, error) {
	if !barrier || !t.task.Dependents {
		return nil, nil
	}
	dependents, err := tx.Dependents(ctx, []store.TaskKey{keyOf(t.task)})
	if err != nil {
		return nil, err
	}
	waiting := make([]id.Task, len(dependents))
	for i, d := range dependents {
		live := w.add(d.Task)
		live.task.Unmet += int32(len(specs)) //nolint:gosec // bounded by maxFanOutCall
		w.change(live)
		waiting[i] = live.task.ID
		for j := range specs {
			specs[j].Dependents = true
			w.changes.NewEdges = append(w.changes.NewEdges, store.Edge{Key: runKeyOf(t.task), Upstream: specs[j].ID, Task: live.task.ID})
		}
	}
	return waiting, nil
}

// fanOutSpecs checks the tasks to add and mints their ids.
func (e *Engine) fanOutSpecs(ctx context.Context, w *working, parent run.Run, a FanOut) ([]run.TaskSpec, error) {
	total := int(parent.Total) + len(a.Tasks)
	switch {
	case len(a.Tasks) == 0:
		return nil, fault.New(fault.InvalidArgument, "is empty", fault.Field("tasks"), fault.Remedy("add at least one task, or do not fan out"))
	case len(a.Tasks) > maxFanOutCall:
		return nil, fault.New(fault.LimitExceeded, fmt.Sprintf("has %d tasks, the limit of one call is %d", len(a.Tasks), maxFanOutCall),
			fault.Field("tasks"), fault.Remedy("fan out in several calls"), fault.Value("limit", maxFanOutCall))
	case total > MaxFanOut:
		return nil, fault.New(fault.LimitExceeded, fmt.Sprintf("the run would have %d tasks, the limit is %d", total, MaxFanOut),
			fault.Field("tasks"), fault.Remedy("make larger partitions"), fault.Value("limit", MaxFanOut), fault.Value("current", parent.Total))
	}
	found, err := e.deploymentsOf(ctx, []store.DeploymentKey{{Tenant: parent.Tenant, Deployment: parent.Deployment}})
	if err != nil {
		return nil, err
	}
	d := found[parent.Deployment]
	if d == nil {
		return nil, fmt.Errorf("deployment %s of run %s is gone", parent.Deployment, parent.ID)
	}
	specs := make([]run.TaskSpec, len(a.Tasks))
	seen := make(map[FanOutTask]bool, len(a.Tasks))
	for i, task := range a.Tasks {
		field := fmt.Sprintf("tasks[%d]", i)
		code, known := d.Asset(task.Asset)
		switch {
		case !known:
			return nil, fault.New(fault.InvalidArgument, fmt.Sprintf("unknown asset %.100q", task.Asset)+suggest.DidYouMean(task.Asset, d.keys()),
				fault.Field(field+".asset"), fault.Remedy("use an asset of the run's deployment"))
		case seen[task]:
			return nil, fault.New(fault.InvalidArgument, "duplicate task", fault.Field(field), fault.Remedy("add each asset and partition once"))
		}
		if err := checkText(field+".partition", task.Partition, maxPartitionLength); err != nil {
			return nil, err
		}
		seen[task] = true
		specs[i] = run.TaskSpec{
			ID: id.New[id.Task](w.mint), Index: parent.Total + int32(i), Asset: task.Asset, Partition: task.Partition,
			Pool: code.Pool, Needs: code.Capability(), Priority: parent.Priority, Timeout: int32(code.Timeout.Std().Seconds()),
		}
	}
	return specs, nil
}

// repeatFanOut answers a repeated fan-out with the tasks that the first one added.
func (e *Engine) repeatFanOut(ctx context.Context, tx *store.Tx, w *working, t *liveTask, r *Report, a FanOut) (Answer, error) {
	streams, err := tx.TaskEvents(ctx, []store.TaskKey{r.TaskKey})
	if err != nil {
		return Answer{}, err
	}
	for _, recorded := range w.streams(streams)[r.TaskKey] {
		if body, ok := recorded.Body.(run.TaskFannedOut); ok && body.Ordinal == a.Ordinal {
			return Answer{State: t.task.State, Deadline: t.task.Deadline, Added: body.Tasks, Repeat: true}, nil
		}
	}
	return Answer{}, fmt.Errorf("task %s has no fan-out %d in its events", r.Task, a.Ordinal)
}
