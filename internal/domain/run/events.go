package run

import (
	"encoding/json"
	"time"

	"go.arco.dev/servo/internal/base/event"
	"go.arco.dev/servo/internal/base/id"
)

// Events declares every event of this package.
func Events() []event.Definition {
	return []event.Definition{
		event.Define[RunCreated](),
		event.Define[RunTasksAdded](),
		event.Define[RunStarted](),
		event.Define[RunBreached](),
		event.Define[RunCancelRequested](),
		event.Define[RunEnded](),
		event.Define[TaskReadied](),
		event.Define[TaskQueued](),
		event.Define[TaskWithdrawn](),
		event.Define[TaskClaimed](),
		event.Define[TaskStarted](),
		event.Define[TaskCursorAdvanced](),
		event.Define[TaskFannedOut](),
		event.Define[TaskReturned](),
		event.Define[TaskRetrying](),
		event.Define[TaskSucceeded](),
		event.Define[TaskFailed](),
		event.Define[TaskSkipped](),
		event.Define[TaskCancelRequested](),
		event.Define[TaskCancelled](),
	}
}

// TaskSpec is a task as it is made: what it is and what it waits for.
type TaskSpec struct {
	ID        id.Task `json:"id"`
	Index     int32   `json:"ix"` // its place in the run's plan; fan-outs count on
	Asset     string  `json:"asset"`
	Partition string  `json:"part,omitempty"`
	Pool      string  `json:"pool"`
	Needs     string  `json:"needs,omitempty"` // the capability that its worker must have
	Priority  int16   `json:"prio"`
	Timeout   int32   `json:"timeout"` // seconds
	Upstream  []int32 `json:"up,omitempty"`
	// Dependents reports whether any task waits for this one when it is made.
	Dependents bool `json:"deps,omitempty"`
	// Inherited are the upstreams that the run does not execute, with the tasks that did.
	Inherited []Inherited `json:"in,omitempty"`
}

// Inherited is a task of an earlier run of the same tenant, which succeeded. A task is given its
// result as if it had waited for it: a retry's that of a run before it, and a task whose upstream
// was not selected the latest one of the workspace.
type Inherited struct {
	Asset string `json:"asset"`
	// Run and Task are zero if the asset had no result when the run was created.
	Run  id.Run  `json:"run,omitzero"`
	Task id.Task `json:"task,omitzero"`
	// Outside says that it was the latest of the workspace, not one of a run that is retried.
	Outside bool `json:"outside,omitempty"`
}

// Window is what the code of a run is told about its config. A retry has that of the run which it
// does again.
type Window struct {
	Config string `json:"config"`
	// Slot is the slot that the run works for; zero if it was triggered by a call or an event.
	Slot time.Time `json:"slot,omitzero"`
	// Start and End are the data interval: the slot before, and the slot, or the time of the
	// trigger. Zero if the config has no slots.
	Start time.Time `json:"start,omitzero"`
	End   time.Time `json:"end,omitzero"`
	// Hops counts the configs whose success led to this run, one after the other.
	Hops int `json:"hops,omitempty"`
}

type (
	// RunCreated begins a run. It carries the first tasks; RunTasksAdded the rest.
	RunCreated struct {
		Workspace   id.Workspace    `json:"workspace"`
		Deployment  id.Deployment   `json:"deployment"`
		Pipeline    string          `json:"pipeline"`
		Parameters  json.RawMessage `json:"params,omitempty"`
		Priority    int16           `json:"prio"`
		TriggerType string          `json:"trigger"`
		TriggeredBy string          `json:"by,omitempty"`
		Note        string          `json:"note,omitempty"` // of the caller, for people
		Parent      *id.Run         `json:"parent,omitempty"`
		Fingerprint string          `json:"fingerprint"`
		Retry       *RetryPolicy    `json:"retry,omitempty"`
		Started     bool            `json:"started,omitempty"` // RUNNING at once
		Limit       int32           `json:"limit,omitempty"`   // seconds that it may take once started
		Lock        string          `json:"lock,omitempty"`    // what it excludes other runs by
		Behind      bool            `json:"behind,omitempty"`  // another holds that lock: it waits until it can have it
		Turn        int64           `json:"turn,omitempty"`    // its place among those that wait for that lock
		Config      *id.Config      `json:"config,omitempty"`  // that it was made for
		Slot        *time.Time      `json:"slot,omitempty"`    // of the config; nil if it was triggered by hand or by an event
		Window      *Window         `json:"window,omitempty"`
		Labels      string          `json:"labels,omitempty"`      // of its config when it was made: JSON with sorted keys
		StartBy     *time.Time      `json:"start_by,omitempty"`    // when it should have begun
		StartLimit  int32           `json:"start_limit,omitempty"` // the seconds of delay that this allows
		Tasks       []TaskSpec      `json:"tasks"`
	}

	// RunTasksAdded adds tasks to a run: the rest of a large plan, or a fan-out of By.
	RunTasksAdded struct {
		By    *id.Task   `json:"by,omitempty"`
		Tasks []TaskSpec `json:"tasks"`
		// Barrier lists the tasks that now wait for the added ones too.
		Barrier []id.Task `json:"barrier,omitempty"`
	}

	// RunStarted lets a waiting run go.
	RunStarted struct{}

	// RunBreached says that a promise about the run was broken, when it was. Each is broken
	// once at most.
	RunBreached struct {
		SLA   SLA       `json:"sla"`
		Limit int32     `json:"limit"` // seconds that were promised
		Due   time.Time `json:"due"`   // when they were over
	}

	// RunCancelRequested marks a run: its tasks end as soon as they can.
	RunCancelRequested struct {
		TimedOut bool   `json:"timed_out,omitempty"`
		Reason   string `json:"reason,omitempty"`
	}

	// RunEnded ends a run.
	RunEnded struct {
		State State `json:"state"`
	}
)

type (
	// TaskReadied makes a task ready: its upstreams succeeded, its run has started, or its
	// backoff is over.
	TaskReadied struct{}

	// TaskQueued admits a task into its pool's queue.
	TaskQueued struct{}

	// TaskWithdrawn takes a task out of its pool's queue: it is ready again, and waits for the
	// reason to go.
	TaskWithdrawn struct {
		Reason string `json:"reason"`
	}

	// TaskClaimed is a new attempt, leased to a worker; started in the same step if said.
	TaskClaimed struct {
		Attempt  int32     `json:"attempt"`
		Token    int64     `json:"token"`
		Worker   string    `json:"worker"`
		Claim    id.Claim  `json:"claim"`
		Started  bool      `json:"started,omitempty"`
		Deadline time.Time `json:"deadline,omitzero"`
	}

	// TaskStarted says that the worker executes the task. It comes a second time when the server
	// knew of the start before the instance had named itself.
	TaskStarted struct {
		Deadline time.Time `json:"deadline"`
		Instance string    `json:"instance,omitempty"`
	}

	// TaskCursorAdvanced moves the resumable position.
	TaskCursorAdvanced struct {
		Cursor string `json:"cursor"`
	}

	// TaskFannedOut says that the task has added tasks to its run.
	TaskFannedOut struct {
		Ordinal int32     `json:"ordinal"`
		Tasks   []id.Task `json:"tasks"`
	}

	// TaskReturned ends an attempt without the task's fault: back to where it can be
	// claimed again.
	TaskReturned struct {
		Reason    ReturnReason `json:"reason"`
		Fruitless int32        `json:"fruitless"`
		Cursor    *string      `json:"cursor,omitempty"`
		Deaths    int32        `json:"deaths,omitempty"` // set if the worker died
		Failure   *Failure     `json:"error,omitempty"`  // how it died
	}

	// TaskRetrying ends an attempt in failure, with another to come.
	TaskRetrying struct {
		Failures int32     `json:"failures"`
		Failure  Failure   `json:"error"`
		DueAt    time.Time `json:"due"`
		Timeout  int32     `json:"timeout"`
	}

	// TaskSucceeded ends a task well.
	TaskSucceeded struct {
		Outcome Outcome         `json:"outcome"`
		Result  json.RawMessage `json:"result,omitempty"`
	}

	// TaskFailed ends a task in failure.
	TaskFailed struct {
		Outcome  Outcome `json:"outcome"`
		Failures int32   `json:"failures"`
		Failure  Failure `json:"error"`
	}

	// TaskSkipped ends a task that cannot run because Upstream did not succeed.
	TaskSkipped struct {
		Upstream id.Task `json:"upstream"`
	}

	// TaskCancelRequested asks the task's worker to stop.
	TaskCancelRequested struct{}

	// TaskCancelled ends a task because its run was cancelled. A result that came too
	// late is kept, and nothing comes of it.
	TaskCancelled struct {
		LateResult bool            `json:"late_result,omitempty"`
		Result     json.RawMessage `json:"result,omitempty"`
		Failure    *Failure        `json:"error,omitempty"`
		Forced     bool            `json:"forced,omitempty"` // by somebody, since its worker was silent
		Reason     string          `json:"reason,omitempty"` // why it was forced
	}
)

// ReturnReason says why an attempt ended without the task's fault.
type ReturnReason string

// The reasons for a return.
const (
	ReturnExpired     ReturnReason = "LEASE_EXPIRED"
	ReturnYielded     ReturnReason = "YIELDED"
	ReturnInterrupted ReturnReason = "INTERRUPTED"
	ReturnWorkerDied  ReturnReason = "WORKER_DIED"
)

// EventType implements event.Body.
func (RunCreated) EventType() event.Type          { return "run.created" }
func (RunTasksAdded) EventType() event.Type       { return "run.tasks_added" }
func (RunStarted) EventType() event.Type          { return "run.started" }
func (RunBreached) EventType() event.Type         { return "run.breached" }
func (RunCancelRequested) EventType() event.Type  { return "run.cancel_requested" }
func (RunEnded) EventType() event.Type            { return "run.ended" }
func (TaskReadied) EventType() event.Type         { return "task.readied" }
func (TaskQueued) EventType() event.Type          { return "task.queued" }
func (TaskWithdrawn) EventType() event.Type       { return "task.withdrawn" }
func (TaskClaimed) EventType() event.Type         { return "task.claimed" }
func (TaskStarted) EventType() event.Type         { return "task.started" }
func (TaskCursorAdvanced) EventType() event.Type  { return "task.cursor_advanced" }
func (TaskFannedOut) EventType() event.Type       { return "task.fanned_out" }
func (TaskReturned) EventType() event.Type        { return "task.returned" }
func (TaskRetrying) EventType() event.Type        { return "task.retrying" }
func (TaskSucceeded) EventType() event.Type       { return "task.succeeded" }
func (TaskFailed) EventType() event.Type          { return "task.failed" }
func (TaskSkipped) EventType() event.Type         { return "task.skipped" }
func (TaskCancelRequested) EventType() event.Type { return "task.cancel_requested" }
func (TaskCancelled) EventType() event.Type       { return "task.cancelled" }
