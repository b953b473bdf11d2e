package run

import (
	"encoding/json"
	"time"

	"go.arco.dev/servo/internal/base/event"
	"go.arco.dev/servo/internal/base/id"
	"go.arco.dev/servo/internal/domain/output"
)

// Task is one asset × partition inside a run: the narrow row that moves between the queue tables, and
// the result that the wide row keeps.
type Task struct {
	Tenant id.Tenant
	Run    id.Run
	ID     id.Task

	State    TaskState
	Version  int32 // of the task's stream: how many events it has
	Pool     string
	Needs    string // the capability that its worker needs; "" is any worker
	Priority int16
	Timeout  int32 // maximum seconds of one attempt

	Attempt    int32  // how often it was claimed
	Failures   int32  // limited by max_attempts
	Fruitless  int32  // deliveries in a row that ended without failure and without progress
	Deaths     int32  // how often its worker died; limited by max_deaths
	FanOuts    int32  // how often it has added tasks
	Cursor     string // its resumable position; volatile while leased, recorded when the lease ends
	Dependents bool   // whether any task waits for it

	// Set while QUEUED or leased. Rank and Cost are volatile: no event has them.
	Asset string
	// Divided is set while READY: its run has partitions.
	Divided bool
	Rank    int64   // QUEUED: its place in the pool's queue, the lowest first
	Cost    float32 // worker-seconds that its tenant was charged for this attempt

	Unmet int32     // PENDING: upstreams that have not succeeded; the start of its run counts as one
	Since time.Time // when it entered its state; when it ended
	// ReadyAt is when it became ready for the next or current attempt.
	ReadyAt time.Time
	DueAt   time.Time // RETRY_WAIT: when it is ready again

	// The lease of the attempt, while DISPATCHED or RUNNING. The token of the attempt that ended
	// the task stays, so that a repeated report is recognised.
	Token           int64
	Worker          string
	Instance        string // of the worker, if it was named at the start
	Claim           id.Claim
	StartedAt       time.Time
	Deadline        time.Time
	ExpiresAt       time.Time     // volatile: renewed by heartbeats, no event has it
	Lease           time.Duration // volatile: how long a heartbeat renews it
	CancelRequested bool
	ClaimCursor     string // the cursor at the claim: progress is measured against it

	Outcome    Outcome
	Result     json.RawMessage
	Failure    *Failure // why it waits for a retry, or how it ended
	LateResult bool
	Output     *output.Materialization // its version; loaded tasks do not have it
}

// NewTask returns a new task: PENDING with upstreams, READY otherwise. A task without upstreams waits
// for its run to start.
func NewTask(of Run, spec TaskSpec, now time.Time) Task {
	t := Task{
		Tenant: of.Tenant, Run: of.ID, ID: spec.ID,
		State: Ready, Asset: spec.Asset, Pool: spec.Pool, Needs: spec.Needs, Priority: spec.Priority, Timeout: spec.Timeout,
		Dependents: spec.Dependents, Unmet: int32(len(spec.Upstream)), Since: now, //nolint:gosec // bounded by the plan
	}
	if t.Unmet == 0 && of.State == RunPending {
		t.Unmet = 1
	}
	t.ReadyAt = now
	if t.Unmet > 0 {
		t.State, t.ReadyAt = Pending, time.Time{}
	}
	return t
}

// Moved returns the task after a move of the cursor that Decide has permitted. A move is state of the
// lease, not an event: the event that ends the lease records the cursor.
func (t Task) Moved(c Advance) Task {
	t.Cursor = c.Next
	return t
}

// progress returns the cursor of a leased task if it has moved since the claim.
func (t Task) progress() *string {
	if !t.State.Leased() || t.Cursor == t.ClaimCursor {
		return nil
	}
	return &t.Cursor
}

// Evolve applies one event to the row.
func (t Task) Evolve(e event.Event) (Task, error) {
	if err := e.Follows(t.Version); err != nil {
		return t, err
	}
	t.Version = e.Version
	from := t.State

	switch body := e.Body.(type) {
	case TaskReadied:
		t.State, t.Unmet, t.DueAt, t.Failure = Ready, 0, time.Time{}, nil
	case TaskQueued:
		t.State = Queued
	case TaskWithdrawn:
		t.State = Ready
	case TaskClaimed:
		t.State, t.Attempt, t.Token, t.Worker, t.Claim = Dispatched, body.Attempt, body.Token, body.Worker, body.Claim
		t.CancelRequested, t.ClaimCursor = false, t.Cursor
		if body.Started {
			t.State, t.StartedAt, t.Deadline = Running, e.At, body.Deadline
		}
	case TaskStarted:
		if t.State != Running {
			t.StartedAt = e.At
		}
		t.State, t.Deadline, t.Instance = Running, body.Deadline, body.Instance
	case TaskFannedOut:
		t.FanOuts = body.Ordinal + 1
	case TaskReturned:
		t.State = Ready
		if from == Dispatched {
			t.State = Queued
		}
		t.Fruitless = body.Fruitless
		t.Deaths = max(t.Deaths, body.Deaths)
		t.Token = 0
		t.endLease(from, body.Cursor)
	case TaskRetrying:
		t.State, t.Failures, t.Failure, t.DueAt, t.Timeout = RetryWait, body.Failures, &body.Failure, body.DueAt, body.Timeout
		t.Token = 0
		t.endLease(from, body.Cursor)
	case TaskSucceeded:
		t.State, t.Outcome, t.Result, t.Output = Succeeded, body.Outcome, body.Result, body.Output
		t.endLease(from, body.Cursor)
	case TaskFailed:
		t.State, t.Outcome, t.Failures, t.Failure = Failed, body.Outcome, body.Failures, &body.Failure
		t.endLease(from, body.Cursor)
	case TaskSkipped:
		t.State, t.Outcome = Skipped, UpstreamFailed
		if body.Quarantined {
			t.Outcome = UpstreamQuarantined
		}
	case TaskCancelRequested:
		t.CancelRequested = true
	case TaskCancelled:
		t.State, t.Outcome, t.LateResult, t.Result = Cancelled, WasCancelled, body.LateResult, body.Result
		if body.Failure != nil {
			t.Failure = body.Failure
		}
		t.DueAt = time.Time{}
		t.endLease(from, body.Cursor)
	default:
		return t, e.Unexpected()
	}
	if t.State != from {
		t.Since = e.At
	}
	if t.State == Ready && from != Ready {
		t.ReadyAt = e.At
	}
	return t, nil
}

// endLease clears the fields of the attempt and records its cursor, nil if it has not moved.
func (t *Task) endLease(from TaskState, cursor *string) {
	if from.Leased() {
		t.Cursor = t.ClaimCursor
	}
	if cursor != nil {
		t.Cursor, t.Fruitless = *cursor, 0
	}
	t.ClaimCursor = ""
	t.Worker, t.Instance, t.Claim = "", "", id.Claim{}
	t.StartedAt, t.Deadline, t.ExpiresAt, t.Lease = time.Time{}, time.Time{}, time.Time{}, 0
	t.CancelRequested = false
}
