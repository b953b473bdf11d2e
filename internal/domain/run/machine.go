package run

import (
	"fmt"
	"slices"
	"strings"

	"go.arco.dev/servo/internal/base/fault"
)

// TaskCommand is the name of a command to a task.
type TaskCommand string

// The commands of the task machine.
const (
	OnDependenciesMet TaskCommand = "dependencies met"
	OnAdmit           TaskCommand = "admit"
	OnWithdraw        TaskCommand = "withdraw"
	OnClaim           TaskCommand = "claim"
	OnStart           TaskCommand = "start"
	OnAdvance         TaskCommand = "advance cursor"
	OnFanOut          TaskCommand = "fan out"
	OnYield           TaskCommand = "yield"
	OnSucceed         TaskCommand = "succeed"
	OnFail            TaskCommand = "fail"
	OnExpire          TaskCommand = "expire"
	OnTimeOut         TaskCommand = "time out"
	OnRetryDue        TaskCommand = "retry due"
	OnSkip            TaskCommand = "skip"
	OnCancel          TaskCommand = "cancel"
	OnForceCancel     TaskCommand = "force cancel"
)

// transition is one row of a state machine: from any of these states, on this command, to one of
// those. Only the command's facts decide which one.
type transition[S ~int16, C ~string] struct {
	From []S
	On   C
	To   []S
}

func states[S ~int16](s ...S) []S { return s }

// taskTransitions is the complete task machine. Decide, the property tests and the diagram in
// docs/state-machines.md use it; the queue tables mirror its states.
var taskTransitions = []transition[TaskState, TaskCommand]{
	{From: states(Pending), On: OnDependenciesMet, To: states(Ready, Succeeded)}, // Succeeded for a barrier
	{From: states(Ready), On: OnAdmit, To: states(Queued)},
	{From: states(Queued), On: OnWithdraw, To: states(Ready)},            // its tenant may no longer use the pool
	{From: states(Queued), On: OnClaim, To: states(Dispatched, Running)}, // Running when claimed and started in one step
	{From: states(Dispatched), On: OnStart, To: states(Running)},
	{From: states(Running), On: OnStart, To: states(Running)}, // a repeat

	{From: states(Running), On: OnAdvance, To: states(Running)},
	{From: states(Running), On: OnFanOut, To: states(Running)},

	{From: states(Dispatched), On: OnYield, To: states(Queued, Failed, Cancelled)},
	{From: states(Running), On: OnYield, To: states(Ready, Failed, Cancelled)},

	{From: states(Running), On: OnSucceed, To: states(Succeeded, Cancelled)},
	{From: states(Dispatched), On: OnFail, To: states(Queued, RetryWait, Failed, Cancelled)},
	{From: states(Running), On: OnFail, To: states(Ready, RetryWait, Failed, Cancelled)},

	{From: states(Dispatched), On: OnExpire, To: states(Queued, Failed, Cancelled)},
	{From: states(Running), On: OnExpire, To: states(Ready, Failed, Cancelled)}, // ready immediately: its worker died
	{From: states(Running), On: OnTimeOut, To: states(RetryWait, Failed, Cancelled)},
	{From: states(RetryWait), On: OnRetryDue, To: states(Ready)},

	{From: states(Pending), On: OnSkip, To: states(Skipped)},
	{From: states(Pending, Ready, Queued, RetryWait), On: OnCancel, To: states(Cancelled)},
	{From: states(Dispatched), On: OnCancel, To: states(Dispatched)}, // asks the worker to stop
	{From: states(Running), On: OnCancel, To: states(Running)},
	{From: states(Dispatched, Running), On: OnForceCancel, To: states(Cancelled)}, // of a worker that does not respond
}

// RunCommand is the name of a command to a run.
type RunCommand string

// The commands of the run machine.
const (
	OnRunStart   RunCommand = "start"
	OnRunCancel  RunCommand = "cancel"
	OnRunTimeOut RunCommand = "time out"
	OnRunEnd     RunCommand = "all tasks ended"
)

// runTransitions is the complete run machine. A run that is cancelled or timed out becomes CANCELLING
// and ends when the last of its tasks has ended.
var runTransitions = []transition[State, RunCommand]{
	{From: states(RunPending), On: OnRunStart, To: states(RunRunning)},
	{From: states(RunPending, RunRunning), On: OnRunCancel, To: states(RunCancelling)},
	{From: states(RunPending, RunRunning), On: OnRunTimeOut, To: states(RunCancelling)},
	{From: states(RunRunning), On: OnRunEnd, To: states(RunSucceeded, RunFailed)},
	{From: states(RunCancelling), On: OnRunEnd, To: states(RunCancelled, RunTimedOut)},
}

// allowed returns the row for a state and a command, or a fault that names both.
func allowed[S interface {
	~int16
	fmt.Stringer
}, C ~string](table []transition[S, C], from S, on C,
) ([]S, error) {
	var possible []string
	for _, row := range table {
		if row.On != on {
			continue
		}
		if slices.Contains(row.From, from) {
			return row.To, nil
		}
		for _, state := range row.From {
			possible = append(possible, state.String())
		}
	}
	return nil, fault.New(fault.Conflict, fmt.Sprintf("cannot %s: the state is %s", on, from), fault.Field("state"),
		fault.Remedy("possible in "+strings.Join(possible, ", ")),
		fault.Value("state", from.String()), fault.Value("command", string(on)))
}
