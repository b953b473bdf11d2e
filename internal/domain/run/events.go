package run

import (
	"encoding/json"
	"time"

	"go.arco.dev/servo/internal/base/event"
	"go.arco.dev/servo/internal/base/id"
	"go.arco.dev/servo/internal/domain/output"
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

// TaskSpec is a new task: its properties and its upstreams.
type TaskSpec struct {
	ID        id.Task `json:"id"`
	Index     int32   `json:"ix"` // its index in the run's plan; fan-outs continue the count
	Asset     string  `json:"asset"`
	Partition string  `json:"part,omitempty"` // the key of its partition or range; free text of a fan-out
	Pool      string  `json:"pool"`
	Needs     string  `json:"needs,omitempty"` // the capability that its worker needs
	Priority  int16   `json:"prio"`
	Timeout   int32   `json:"timeout"` // seconds
	Upstream  []int32 `json:"up,omitempty"`
	// Dependents reports whether a task waits for this one when it is created.
	Dependents bool `json:"deps,omitempty"`
	// Inherited are the upstreams that the run does not execute, with the tasks that did.
	Inherited []Inherited `json:"in,omitempty"`
	// Range is Partition in numbers; nil without declared partitions.
	Range *PartitionRange `json:"range,omitempty"`
}

// PartitionRange is consecutive partitions of one series of an asset, as package partition numbers
// them. Both ends are included.
type PartitionRange struct {
	Series string `json:"series,omitempty"`
	First  int64  `json:"first"`
	Last   int64  `json:"last"`
}

// Target is the asset and partition of the task.
func (s TaskSpec) Target() Target { return Target{s.Asset, s.Partition} }

// NeedsBarrier is what a barrier needs instead of a worker's capability. A barrier is a task that
// executes nothing: it succeeds when its upstreams have.
const NeedsBarrier = "servo:barrier"

// IsBarrier reports whether the task is a barrier.
func (s TaskSpec) IsBarrier() bool { return s.Needs == NeedsBarrier }

// Inherited is a succeeded task of an earlier run of the same tenant. A task receives its result as
// if it had waited for it: a retry that of an earlier run, and a task whose upstream was not selected
// the latest one of the workspace.
type Inherited struct {
	Asset     string `json:"asset"`
	Partition string `json:"part,omitempty"`
	// Run and Task are zero if the asset had no result when the run was created.
	Run  id.Run  `json:"run,omitzero"`
	Task id.Task `json:"task,omitzero"`
	// Outside is true for the latest result of the workspace, false for one of a retried run.
	Outside bool `json:"outside,omitempty"`
}

// Window is the information about a config that the code of a run receives. A retry has the window of
// the run that it repeats.
type Window struct {
	Config string `json:"config"`
	// Slot is the slot of the run; zero if a call or an event triggered it.
	Slot time.Time `json:"slot,omitzero"`
	// Start and End are the data interval: from the previous slot to the slot, or to the time of
	// the trigger. Zero if the config has no slots.
	Start time.Time `json:"start,omitzero"`
	End   time.Time `json:"end,omitzero"`
	// Hops is the length of the chain of configs whose success led to this run.
	Hops int `json:"hops,omitempty"`
}

type (
	// RunCreated creates a run. It has the first tasks; RunTasksAdded the rest.
	RunCreated struct {
		Workspace  id.Workspace  `json:"workspace"`
		Deployment id.Deployment `json:"deployment"`
		// Released reports that the deployment is a release.
		Released    bool            `json:"released,omitempty"`
		Pipeline    string          `json:"pipeline"`
		Parameters  json.RawMessage `json:"params,omitempty"`
		Priority    int16           `json:"prio"`
		TriggerType string          `json:"trigger"`
		TriggeredBy string          `json:"by,omitempty"`
		Note        string          `json:"note,omitempty"` // the caller's reason
		Parent      *id.Run         `json:"parent,omitempty"`
		Fingerprint string          `json:"fingerprint"`
		Retry       *RetryPolicy    `json:"retry,omitempty"`
		Started     bool            `json:"started,omitempty"` // RUNNING immediately
		Limit       int32           `json:"limit,omitempty"`   // maximum seconds after its start
		Lock        string          `json:"lock,omitempty"`    // the name of its lock
		Behind      bool            `json:"behind,omitempty"`  // another run holds the lock: it waits
		Turn        int64           `json:"turn,omitempty"`    // its place among the runs that wait for the lock
		Config      *id.Config      `json:"config,omitempty"`  // that it was created for
		Slot        *time.Time      `json:"slot,omitempty"`    // of the config; nil if a call or an event triggered it
		Window      *Window         `json:"window,omitempty"`
		Labels      string          `json:"labels,omitempty"`      // of its config at its creation: JSON with sorted keys
		StartBy     *time.Time      `json:"start_by,omitempty"`    // when it must have started
		StartLimit  int32           `json:"start_limit,omitempty"` // the delay in seconds that this allows
		Tasks       []TaskSpec      `json:"tasks"`
	}

	// RunTasksAdded adds tasks to a run: the rest of a large plan, or a fan-out of By.
	RunTasksAdded struct {
		By    *id.Task   `json:"by,omitempty"`
		Tasks []TaskSpec `json:"tasks"`
		// Barrier lists the tasks that also wait for the added ones from now on.
		Barrier []id.Task `json:"barrier,omitempty"`
	}

	// RunStarted starts a waiting run.
	RunStarted struct{}

	// RunBreached records the breach of an SLA and when it happened. Each SLA of a run is breached
	// once at most.
	RunBreached struct {
		SLA   SLA       `json:"sla"`
		Limit int32     `json:"limit"` // in seconds
		Due   time.Time `json:"due"`   // when the limit passed
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

	// TaskWithdrawn removes a task from its pool's queue: it is ready again, and waits until the
	// reason no longer applies.
	TaskWithdrawn struct {
		Reason string `json:"reason"`
	}

	// TaskClaimed begins an attempt, leased to a worker; Started also starts it.
	TaskClaimed struct {
		Attempt  int32     `json:"attempt"`
		Token    int64     `json:"token"`
		Worker   string    `json:"worker"`
		Claim    id.Claim  `json:"claim"`
		Started  bool      `json:"started,omitempty"`
		Deadline time.Time `json:"deadline,omitzero"`
	}

	// TaskStarted reports that the worker executes the task. It is recorded a second time if the
	// server started the task before the instance had named itself.
	TaskStarted struct {
		Deadline time.Time `json:"deadline"`
		Instance string    `json:"instance,omitempty"`
	}

	// TaskFannedOut reports that the task has added tasks to its run.
	TaskFannedOut struct {
		Ordinal int32     `json:"ordinal"`
		Tasks   []id.Task `json:"tasks"`
	}

	// The events that end an attempt have the cursor if it has moved since the claim.

	// TaskReturned ends an attempt that neither failed nor succeeded: the task can be claimed
	// again.
	TaskReturned struct {
		Reason    ReturnReason `json:"reason"`
		Fruitless int32        `json:"fruitless"`
		Cursor    *string      `json:"cursor,omitempty"`
		Deaths    int32        `json:"deaths,omitempty"` // set if the worker died
		Failure   *Failure     `json:"error,omitempty"`  // how it died
	}

	// TaskRetrying ends an attempt in failure, and the task is retried.
	TaskRetrying struct {
		Failures int32     `json:"failures"`
		Failure  Failure   `json:"error"`
		DueAt    time.Time `json:"due"`
		Timeout  int32     `json:"timeout"`
		Cursor   *string   `json:"cursor,omitempty"`
	}

	// TaskSucceeded completes a task, with the version of its declared output.
	TaskSucceeded struct {
		Outcome Outcome                 `json:"outcome"`
		Result  json.RawMessage         `json:"result,omitempty"`
		Output  *output.Materialization `json:"output,omitempty"`
		Cursor  *string                 `json:"cursor,omitempty"`
	}

	// TaskFailed ends a task in failure.
	TaskFailed struct {
		Outcome  Outcome `json:"outcome"`
		Failures int32   `json:"failures"`
		Failure  Failure `json:"error"`
		Cursor   *string `json:"cursor,omitempty"`
	}

	// TaskSkipped ends a task that cannot run because Upstream did not succeed, or is in quarantine
	// without a good version.
	TaskSkipped struct {
		Upstream    id.Task `json:"upstream"`
		Quarantined bool    `json:"quarantined,omitempty"`
	}

	// TaskCancelRequested asks the task's worker to stop.
	TaskCancelRequested struct{}

	// TaskCancelled ends a task because its run was cancelled. A late result is kept without any
	// effect.
	TaskCancelled struct {
		LateResult bool            `json:"late_result,omitempty"`
		Result     json.RawMessage `json:"result,omitempty"`
		Failure    *Failure        `json:"error,omitempty"`
		Forced     bool            `json:"forced,omitempty"` // by an operator, since its worker did not respond
		Reason     string          `json:"reason,omitempty"` // why it was forced
		Cursor     *string         `json:"cursor,omitempty"`
	}
)

// ReturnReason is why an attempt ended without failure or success.
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
func (TaskFannedOut) EventType() event.Type       { return "task.fanned_out" }
func (TaskReturned) EventType() event.Type        { return "task.returned" }
func (TaskRetrying) EventType() event.Type        { return "task.retrying" }
func (TaskSucceeded) EventType() event.Type       { return "task.succeeded" }
func (TaskFailed) EventType() event.Type          { return "task.failed" }
func (TaskSkipped) EventType() event.Type         { return "task.skipped" }
func (TaskCancelRequested) EventType() event.Type { return "task.cancel_requested" }
func (TaskCancelled) EventType() event.Type       { return "task.cancelled" }
