package verify_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"go.arco.dev/servo/internal/base/event"
	"go.arco.dev/servo/internal/domain/run"
	"go.arco.dev/servo/internal/proof/verify"
)

// The machines are written down twice: in package run from the side of commands, here from
// the side of events. Each command in each state, with each kind of facts, shows which
// events really happen.

func TestTaskEventsAreJudgedAsTheMachineDecides(t *testing.T) {
	t.Parallel()
	now := time.Now()
	no, moved := false, "moved"
	once := run.RetryPolicy{MaxAttempts: 1}
	often := run.RetryPolicy{MaxAttempts: 9, InitialDelay: time.Second, MaxDelay: time.Second, Multiplier: 1}
	commands := []run.Command{
		run.DependenciesMet{},
		run.Admit{},
		run.Claim{Token: 2},
		run.Claim{Token: 2, Start: true},
		run.Withdraw{Reason: "no access"},
		run.Start{Token: 1},
		run.Start{Token: 1, Instance: "a"},
		run.Advance{Token: 1, Next: moved},
		run.FanOut{Token: 1},
		run.Yield{Token: 1},
		run.Yield{Token: 1, Cursor: &moved},
		run.Succeed{Token: 1, Outcome: run.Success},
		run.Fail{Token: 1, Failure: run.Failure{Code: "NETWORK_ERROR"}, Policy: often},
		run.Fail{Token: 1, Failure: run.Failure{Code: "NETWORK_ERROR"}, Policy: once},
		run.Fail{Token: 1, Failure: run.Failure{Code: "NETWORK_ERROR"}, Retry: &no, Policy: often},
		run.Fail{Token: 1, Failure: run.Failure{Code: run.CodeInterrupted}, Policy: often},
		run.Expire{Policy: once},
		run.Expire{Policy: often},
		run.TimeOut{Policy: once},
		run.TimeOut{Policy: often},
		run.RetryDue{},
		run.Skip{},
		run.Cancel{},
		run.ForceCancel{},
	}
	happens := map[string]bool{}
	for _, state := range run.TaskStates() {
		for _, cmd := range commands {
			for _, cancelling := range []bool{false, true} {
				for _, fruitless := range []int32{0, 9} {
					task := run.Task{State: state, Token: 1, Fruitless: fruitless, Timeout: 1}
					if body, err := task.Decide(cmd, run.Facts{Now: now, Cancelling: cancelling}); err == nil && body != nil {
						happens[fmt.Sprint(state, " ", body.EventType())] = true
					}
				}
			}
		}
	}
	for _, state := range run.TaskStates() {
		for _, body := range []event.Body{
			run.TaskReadied{},
			run.TaskQueued{},
			run.TaskWithdrawn{},
			run.TaskClaimed{},
			run.TaskStarted{Instance: "a"},
			run.TaskFannedOut{},
			run.TaskReturned{},
			run.TaskRetrying{},
			run.TaskSucceeded{},
			run.TaskFailed{},
			run.TaskSkipped{},
			run.TaskCancelRequested{},
			run.TaskCancelled{},
		} {
			require.Equal(t, happens[fmt.Sprint(state, " ", body.EventType())], verify.TaskMay(run.Task{State: state}, body), "%s in %s", body.EventType(), state)
		}
	}
}

func TestABarrierOnlyEnds(t *testing.T) {
	t.Parallel()
	waits := run.Task{State: run.Pending, Needs: run.NeedsBarrier}
	body, err := waits.Decide(run.DependenciesMet{}, run.Facts{})
	require.NoError(t, err)
	require.Equal(t, run.TaskSucceeded{Outcome: run.Success}, body)
	require.True(t, verify.TaskMay(waits, body))
	require.True(t, verify.TaskMay(waits, run.TaskSkipped{}))
	require.False(t, verify.TaskMay(waits, run.TaskReadied{}))
	require.False(t, verify.TaskMay(run.Task{State: run.Pending}, body))
}

func TestRunEventsAreJudgedAsTheMachineDecides(t *testing.T) {
	t.Parallel()
	happens := map[string]bool{}
	for _, state := range run.States() {
		for _, timedOut := range []bool{false, true} {
			for _, failed := range []int32{0, 1} {
				for _, cmd := range []run.RunAction{run.StartRun{}, run.CancelRun{}, run.TimeOutRun{}, run.EndRun{}} {
					r := run.Run{State: state, TimedOut: timedOut, Failed: failed}
					if body, err := r.Decide(cmd); err == nil {
						happens[fmt.Sprintf("%s %s %v", state, body.EventType(), endOf(body))] = true
					}
				}
			}
		}
	}
	bodies := []event.Body{run.RunStarted{}, run.RunCancelRequested{}}
	for _, state := range run.States() {
		bodies = append(bodies, run.RunEnded{State: state})
	}
	for _, state := range run.States() {
		for _, body := range bodies {
			require.Equal(t, happens[fmt.Sprintf("%s %s %v", state, body.EventType(), endOf(body))], verify.RunMay(state, body),
				"%s %v in %s", body.EventType(), endOf(body), state)
		}
		require.Equal(t, state == run.RunPending || state == run.RunRunning, verify.RunMay(state, run.RunTasksAdded{}), "tasks are added to a run that has not ended")
		require.False(t, verify.RunMay(state, run.RunCreated{}), "a run is created once")
		promised := run.Run{State: state, StartBy: time.Unix(1, 0)}
		late, missed := promised.MissedStart(false, time.Unix(2, 0))
		late.SLA = run.SLAStartDelay
		require.Equal(t, missed, verify.RunMay(state, late), "late in %s", state)
		long, overran := promised.Overrun(1)
		long.SLA = run.SLAExecution
		require.Equal(t, overran, verify.RunMay(state, long), "too long in %s", state)
	}
	require.True(t, verify.RunMay(0, run.RunCreated{}))
	require.False(t, verify.RunMay(0, run.RunStarted{}))
}

func endOf(body event.Body) run.State {
	if ended, ok := body.(run.RunEnded); ok {
		return ended.State
	}
	return 0
}
