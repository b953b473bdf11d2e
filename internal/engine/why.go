package engine

import (
	"context"
	"fmt"
	"time"

	"go.arco.dev/servo/internal/base/id"
	"go.arco.dev/servo/internal/domain/platform"
	"go.arco.dev/servo/internal/domain/run"
	"go.arco.dev/servo/internal/store"
)

// AdmissionDuty is the duty under which runs start and tasks are admitted.
const AdmissionDuty = "admission"

// Why explains why a config, run or task has not run yet, or has not ended.
type Why struct {
	Run      id.Run
	Pipeline string
	Config   id.Config // set for a config; Run is then its last run, if any
	Name     string    // of the config
	Task     id.Task   // zero for a run
	Asset    string    // likewise
	Pool     string    // in whose queue it is; "" if in none

	State    string
	Since    time.Time // when it entered that state
	Next     string    // what happens next without blockers
	Blockers []Blocker // the first has to be removed first
}

// Blocker is one reason why it does not run.
type Blocker struct {
	Code    BlockerCode
	Message string         // a sentence that includes the values
	Remedy  string         // what would unblock it
	Values  map[string]any // the values for programs
}

// BlockerCode is a kind of blocker. The words are stable: programs may compare them.
type BlockerCode string

// The kinds of blockers.
const (
	// Of a run that waits for its start.
	BlockedByRuns    BlockerCode = "QUOTA_CONCURRENT_RUNS"
	BlockedByBacklog BlockerCode = "BACKLOG"
	BlockedByOlder   BlockerCode = "OWN_RUNS_FIRST"
	// Of a config whose slots do not fire, and the lock of a run that waits for it.
	BlockedByDisabling  BlockerCode = "CONFIG_DISABLED"
	BlockedByConfigStop BlockerCode = "CONFIG_PAUSED"
	BlockedByNoSlots    BlockerCode = "NO_SLOTS"
	BlockedByTime       BlockerCode = "NOT_DUE"
	BlockedByDependency BlockerCode = "DEPENDENCY"
	BlockedByPlan       BlockerCode = "CANNOT_BE_PLANNED"
	BlockedByLock       BlockerCode = "LOCK_HELD"
	BlockedByOverlap    BlockerCode = "MAX_OVERLAP"
	BlockedByDailyRuns  BlockerCode = "QUOTA_DAILY_RUNS"
	// Of a task that waits for others.
	BlockedByStart    BlockerCode = "RUN_PENDING"
	BlockedByUpstream BlockerCode = "UPSTREAM"
	// Of a task that waits for admission; the second and the last keep runs from starting, too.
	BlockedByAccess      BlockerCode = "POOL_ACCESS"
	BlockedByCapability  BlockerCode = "NO_CAPABLE_WORKER"
	BlockedByPause       BlockerCode = "ASSET_PAUSED"
	BlockedByPartition   BlockerCode = "PARTITION_HELD"
	BlockedByNoAdmission BlockerCode = "ADMISSION_STOPPED"
	BlockedByTasks       BlockerCode = "QUOTA_CONCURRENT_TASKS"
	BlockedByPool        BlockerCode = "POOL_CONCURRENCY"
	BlockedByQueue       BlockerCode = "POOL_QUEUE_FULL"
	BlockedByOthers      BlockerCode = "FAIRNESS"
	BlockedByOwnTasks    BlockerCode = "OWN_TASKS_FIRST"
	BlockedByRound       BlockerCode = "ROUND_FULL"
	// Of a task that waits for a worker, and of one behind a queue without workers.
	BlockedByDispatch    BlockerCode = "DISPATCH_PAUSED"
	BlockedByNoWorker    BlockerCode = "NO_LIVE_WORKER"
	BlockedByBusyWorkers BlockerCode = "WORKERS_BUSY"
	BlockedByBreaker     BlockerCode = "BREAKER_OPEN"
	// Of a task that was tried.
	BlockedByRetry   BlockerCode = "RETRY_WAIT"
	BlockedBySilence BlockerCode = "HEARTBEAT_OVERDUE"
	BlockedByCancel  BlockerCode = "CANCELLING"
	// Of a run or task that has ended.
	EndedByFailure  BlockerCode = "FAILED"
	EndedByUpstream BlockerCode = "UPSTREAM_FAILED"
	EndedByCancel   BlockerCode = "CANCELLED"
	EndedByTime     BlockerCode = "TIMED_OUT"
)

// maxUpstreamNamed is how many upstream tasks are named.
const maxUpstreamNamed = 10

// BreakerOpen adds that calls of a push pool's URL have failed and are suspended. Only the server that makes
// the calls has this state.
func (w Why) BreakerOpen(retryAt time.Time) Why {
	w.Blockers = append(w.Blockers, Blocker{
		Code:    BlockedByBreaker,
		Message: fmt.Sprintf("calls of pool %s have failed; the next one is tried at %s", w.Pool, retryAt.UTC().Format(time.RFC3339)),
		Remedy:  "fix the service at the pool's URL: servo pools get " + w.Pool + " shows the last error",
		Values:  map[string]any{"pool": w.Pool, "retry_at": retryAt.UTC().Format(time.RFC3339)},
	})
	return w
}

// inquiry is one question and the rows of one snapshot that answer it.
type inquiry struct {
	*Engine

	now  time.Time
	run  store.RunView
	task *store.TaskView // nil for a run

	unmet []store.UpstreamTask
	pause *store.AssetPause
	where []store.TasksIn
	cause *store.TaskView // of a failed run
	front *store.TaskView // of a run without running tasks: the task that has waited longest

	why Why
}

// WhyTask explains why a task has not run yet, with the predicates of the loops that would move it.
func (e *Engine) WhyTask(ctx context.Context, key store.TaskKey) (Why, error) {
	q := &inquiry{Engine: e}
	err := e.explain(ctx, key.Tenant, func(ctx context.Context, tx *store.Tx) error {
		*q = inquiry{Engine: e}
		var err error
		if q.run, err = tx.Run(ctx, store.RunKey{Tenant: key.Tenant, Run: key.Run}); err != nil {
			return err
		}
		task, err := tx.Task(ctx, key)
		if err != nil {
			return err
		}
		q.task = &task
		return q.readTask(ctx, tx, key)
	}, q.explainTask)
	return q.why, err
}

// WhyRun explains why a run has not started, or how far it is.
func (e *Engine) WhyRun(ctx context.Context, key store.RunKey) (Why, error) {
	q := &inquiry{Engine: e}
	err := e.explain(ctx, key.Tenant, func(ctx context.Context, tx *store.Tx) error {
		*q = inquiry{Engine: e}
		var err error
		if q.run, err = tx.Run(ctx, key); err != nil {
			return err
		}
		return q.readRun(ctx, tx, key)
	}, q.explainRun)
	return q.why, err
}

// readTask reads the task, as its tenant may see it.
func (q *inquiry) readTask(ctx context.Context, tx *store.Tx, key store.TaskKey) (err error) {
	switch q.task.State {
	case run.Pending, run.Skipped:
		q.unmet, err = tx.UnmetUpstream(ctx, key, maxUpstreamNamed)
	case run.Ready:
		q.pause, err = tx.PauseOf(ctx, key.Tenant, q.run.Workspace, q.task.Asset)
	default:
	}
	return err
}

// readRun reads the run, as its tenant may see it, and the task that delays it most.
func (q *inquiry) readRun(ctx context.Context, tx *store.Tx, key store.RunKey) (err error) {
	if q.run.State == run.RunFailed {
		q.cause, err = tx.FirstTaskIn(ctx, key, run.Failed)
		return err
	}
	if q.run.State.Terminal() {
		return nil
	}
	if q.where, err = tx.WhereTasksAre(ctx, key); err != nil || q.run.State != run.RunRunning {
		return err
	}
	var oldest id.Task
	for _, w := range q.where {
		switch w.State {
		case run.Dispatched, run.Running:
			return nil // a task is running
		case run.Ready, run.Queued, run.RetryWait:
			if oldest == (id.Task{}) {
				oldest = w.Oldest
			}
		default:
		}
	}
	if oldest == (id.Task{}) {
		return nil
	}
	front := store.TaskKey{Tenant: key.Tenant, Run: key.Run, Task: oldest}
	task, err := tx.Task(ctx, front)
	if err != nil {
		return err
	}
	q.front, q.task = &task, &task
	return q.readTask(ctx, tx, front)
}

// block adds a blocker.
func (q *inquiry) block(code BlockerCode, message, remedy string, values map[string]any) {
	q.why.Blockers = append(q.why.Blockers, Blocker{Code: code, Message: message, Remedy: remedy, Values: values})
}

func (q *inquiry) key() store.TaskKey {
	return store.TaskKey{Tenant: q.run.Tenant, Run: q.run.ID, Task: q.task.ID}
}

func (q *inquiry) explainTask(ctx context.Context, tx *store.Tx) (err error) {
	if q.now, err = tx.Clock(ctx); err != nil {
		return err
	}
	t := q.task
	q.why = Why{
		Run: q.run.ID, Pipeline: q.run.Pipeline, Task: t.ID, Asset: t.Asset, State: t.State.String(), Since: t.Since,
	}
	switch t.State {
	case run.Pending:
		return q.pending(ctx, tx)
	case run.Ready:
		return q.ready(ctx, tx)
	case run.Queued:
		return q.queued(ctx, tx)
	case run.Dispatched, run.Running:
		return q.leased(ctx, tx)
	case run.RetryWait:
		return q.retrying(ctx)
	default:
		q.ended()
	}
	return nil
}

// pending explains a task that waits for other tasks, or for the start of its run.
func (q *inquiry) pending(ctx context.Context, tx *store.Tx) error {
	q.why.Next = "it is ready when its upstream tasks have succeeded"
	waits := int(q.task.Unmet)
	if q.run.State == run.RunPending {
		if err := q.starting(ctx, tx); err != nil {
			return err
		}
		if len(q.unmet) == 0 {
			q.why.Next = "it is ready when its run starts"
			waits = 0
		}
		q.block(BlockedByStart, "its run waits for its start", "see servo why "+q.run.ID.String(), map[string]any{"run": q.run.ID.String()})
	}
	for _, u := range q.unmet {
		what := u.State.String()
		if u.Outcome != "" && string(u.Outcome) != what {
			what += " (" + string(u.Outcome) + ")"
		}
		q.block(BlockedByUpstream, fmt.Sprintf("upstream %s is %s", taskTitle(u.Asset, u.Partition), what),
			"see servo why "+q.run.ID.String()+" "+u.Task.String(),
			map[string]any{"task": u.Task.String(), "asset": u.Asset, "partition": u.Partition, "state": u.State.String()})
	}
	if more := waits - len(q.unmet); more > 0 {
		q.block(BlockedByUpstream, fmt.Sprintf("%d more upstream tasks have not succeeded", more), "see servo tasks list "+q.run.ID.String(),
			map[string]any{"more": more})
	}
	return nil
}

func taskTitle(asset, partition string) string {
	if partition == "" {
		return asset
	}
	return asset + "[" + partition + "]"
}

// queued explains a task that waits for a worker.
func (q *inquiry) queued(ctx context.Context, tx *store.Tx) error {
	ahead, err := tx.QueuePlace(ctx, q.key(), q.config.QueueTarget)
	if err != nil {
		return err
	}
	q.why.Next, q.why.Pool = "the next claim of a worker takes it", q.task.Pool
	if blocked, err := q.access(ctx, tx); err != nil || blocked {
		return err
	}
	if err := q.dispatching(ctx, tx); err != nil {
		return err
	}
	if blocked, err := q.capable(ctx, tx); err != nil || blocked {
		return err
	}
	capacity, busy, err := tx.PoolWorkers(ctx, q.task.Pool, q.now.Add(-workerAlive))
	if err != nil {
		return err
	}
	push, err := q.isPush(ctx, tx)
	if err != nil {
		return err
	}
	if capacity.Workers == 0 {
		return q.noWorker(ctx, push)
	}
	if push { // the dispatching server does not hold accepted tasks
		q.why.Next = "a server sends it to the pool's URL"
		return nil
	}
	if free := capacity.Slots - busy; ahead >= free {
		message := fmt.Sprintf("the capacity of %d of the workers of pool %s is in use", capacity.Slots, q.task.Pool)
		if free > 0 {
			message = fmt.Sprintf("%d tasks come before it and the workers of pool %s have %d free slots", ahead, q.task.Pool, free)
		}
		q.block(BlockedByBusyWorkers, message, "wait until a task ends, or start more workers",
			map[string]any{"pool": q.task.Pool, "workers": capacity.Workers, "slots": capacity.Slots, "busy": busy, "ahead": ahead})
	}
	return nil
}

// dispatching checks whether an operator has paused dispatch.
func (q *inquiry) dispatching(ctx context.Context, tx *store.Tx) error {
	dispatch, err := tx.Switch(ctx, platform.Dispatch)
	if err != nil || !dispatch.Off {
		return err
	}
	message := "dispatch is paused for all tenants since " + q.at(dispatch.ChangedAt)
	if dispatch.Reason != "" {
		message += ": " + dispatch.Reason
	}
	q.block(BlockedByDispatch, message, "resume it: servo admin dispatch resume",
		map[string]any{"since": q.at(dispatch.ChangedAt), "reason": dispatch.Reason})
	return nil
}

func (q *inquiry) isPush(ctx context.Context, tx *store.Tx) (bool, error) {
	pools, err := tx.Pools(ctx)
	for _, p := range pools {
		if p.Name == q.task.Pool {
			return p.Kind == platform.Push, err
		}
	}
	return false, err
}

// noWorker adds that the pool has no workers: a Go asset needs the program with its handler, any other asset
// servo worker.
func (q *inquiry) noWorker(ctx context.Context, push bool) error {
	message, remedy := fmt.Sprintf("no worker of pool %s was seen for %s", q.task.Pool, workerAlive), "start one: servo worker --pool "+q.task.Pool
	values := map[string]any{"pool": q.task.Pool}
	needs, err := q.needs(ctx)
	if err != nil {
		return err
	}
	if handler, isGo := run.HandlerOf(needs); isGo {
		message += "; the task needs the Go handler " + handler
		remedy = goWorkerRemedy(handler, q.task.Pool)
		values["handler"] = handler
	} else if code, isPython := run.PythonOf(needs); isPython {
		message += "; the task needs " + pythonNeed(code)
		remedy = pythonWorkerRemedy(code, q.task.Pool)
	}
	if push {
		message, remedy = fmt.Sprintf("no server has announced for %s that it sends to pool %s", workerAlive, q.task.Pool), "check that a server runs: servo doctor"
	}
	q.block(BlockedByNoWorker, message, remedy, values)
	return nil
}

// needs is the capability that the task's worker must have; "" if its deployment is gone.
func (q *inquiry) needs(ctx context.Context) (string, error) {
	key := store.DeploymentKey{Tenant: q.run.Tenant, Deployment: q.run.Deployment}
	found, err := q.deploymentsOf(ctx, []store.DeploymentKey{key})
	if err != nil || found[key.Deployment] == nil {
		return "", err
	}
	code, known := found[key.Deployment].Asset(q.task.Asset)
	if !known {
		return "", nil
	}
	return code.Capability(), nil
}

// capable checks whether a live worker of the pool can run the task. A pool without workers has another
// blocker.
func (q *inquiry) capable(ctx context.Context, tx *store.Tx) (blocked bool, err error) {
	needs, err := q.needs(ctx)
	if err != nil {
		return false, err
	}
	live, err := tx.LivePoolSets(ctx, []string{q.task.Pool}, workerAlive)
	if err != nil {
		return false, err
	}
	can, err := q.capabilities.ofWorkers(ctx, tx, live[q.task.Pool])
	if err != nil || can.canRun(needs) {
		return false, err
	}
	what, remedy := describeNeed(needs, q.task.Pool)
	values := map[string]any{"pool": q.task.Pool, "capability": needs}
	if handler, isGo := run.HandlerOf(needs); isGo {
		values["handler"] = handler
	}
	q.why.Next = "it waits until a worker of the pool can run it"
	q.block(BlockedByCapability, fmt.Sprintf("no live worker of pool %s has %s", q.task.Pool, what), remedy, values)
	return true, nil
}

// at is a time for people and for values.
func (q *inquiry) at(t time.Time) string { return t.UTC().Format(time.RFC3339) }

// ago is how long something is past, for people.
func (q *inquiry) ago(t time.Time) string { return q.now.Sub(t).Round(time.Second).String() + " ago" }
