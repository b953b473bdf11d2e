package run

import "fmt"

// TaskState is the state of a task.
type TaskState int16

// The states of a task. The numbers are stored and must not change.
const (
	Pending    TaskState = 1  // waits for upstream tasks of the run
	Ready      TaskState = 2  // may run; waits for admission
	Queued     TaskState = 3  // admitted, in its pool's queue
	Dispatched TaskState = 4  // leased to a worker, not started
	Running    TaskState = 5  // executing
	RetryWait  TaskState = 6  // failed an attempt, waits for its backoff
	Succeeded  TaskState = 10 // terminal from here on
	Failed     TaskState = 11
	Skipped    TaskState = 12
	Cancelled  TaskState = 13
)

// TaskStates returns all states, in the order of a task's life.
func TaskStates() []TaskState {
	return []TaskState{Pending, Ready, Queued, Dispatched, Running, RetryWait, Succeeded, Failed, Skipped, Cancelled}
}

// Terminal reports whether the task has ended.
func (s TaskState) Terminal() bool { return s >= Succeeded }

// Leased reports whether a worker holds the task.
func (s TaskState) Leased() bool { return s == Dispatched || s == Running }

func (s TaskState) String() string {
	switch s {
	case Pending:
		return "PENDING"
	case Ready:
		return "READY"
	case Queued:
		return "QUEUED"
	case Dispatched:
		return "DISPATCHED"
	case Running:
		return "RUNNING"
	case RetryWait:
		return "RETRY_WAIT"
	case Succeeded:
		return "SUCCEEDED"
	case Failed:
		return "FAILED"
	case Skipped:
		return "SKIPPED"
	case Cancelled:
		return "CANCELLED"
	}
	return fmt.Sprintf("TaskState(%d)", int16(s))
}

// Outcome is the detailed result of an ended task.
type Outcome string

// The outcomes; "" for tasks that have not ended.
const (
	Success        Outcome = "SUCCESS"
	PartialSuccess Outcome = "PARTIAL_SUCCESS"
	Quarantined    Outcome = "QUARANTINED" // succeeded; its output waits for review
	UserError      Outcome = "ERROR"
	TimedOut       Outcome = "TIMED_OUT"
	HeartbeatLost  Outcome = "HEARTBEAT_LOST"
	Poison         Outcome = "POISON"
	UpstreamFailed Outcome = "UPSTREAM_FAILED"
	// UpstreamQuarantined is the outcome of a task whose upstream is in quarantine and has no good version.
	UpstreamQuarantined Outcome = "UPSTREAM_QUARANTINED"
	WasCancelled        Outcome = "CANCELLED"
)

// State is the state of a run.
type State int16

// The states of a run. The numbers are stored and must not change.
const (
	RunPending    State = 1
	RunRunning    State = 2
	RunCancelling State = 3
	RunSucceeded  State = 10 // terminal from here on
	RunFailed     State = 11
	RunTimedOut   State = 12
	RunCancelled  State = 13
)

// States returns all states of a run, in the order of its life.
func States() []State {
	return []State{RunPending, RunRunning, RunCancelling, RunSucceeded, RunFailed, RunTimedOut, RunCancelled}
}

// Terminal reports whether the run has ended.
func (s State) Terminal() bool { return s >= RunSucceeded }

func (s State) String() string {
	switch s {
	case RunPending:
		return "PENDING"
	case RunRunning:
		return "RUNNING"
	case RunCancelling:
		return "CANCELLING"
	case RunSucceeded:
		return "SUCCEEDED"
	case RunFailed:
		return "FAILED"
	case RunTimedOut:
		return "TIMED_OUT"
	case RunCancelled:
		return "CANCELLED"
	}
	return fmt.Sprintf("State(%d)", int16(s))
}
