package run

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"go.arco.dev/servo/internal/base/event"
	"go.arco.dev/servo/internal/base/fault"
)

func TestForceCancel(t *testing.T) {
	t.Parallel()
	const silence = 5 * time.Minute
	late := Facts{Now: epoch.Add(10 * time.Minute), Cancelling: true}

	t.Run("ends a task whose worker is silent, and fences its token", func(t *testing.T) {
		t.Parallel()
		for _, state := range []TaskState{Dispatched, Running} {
			task := running()
			task.State, task.Since, task.CancelRequested = state, epoch, true
			ended := after(t, task, ForceCancel{SeenAt: epoch.Add(time.Minute), Silence: silence, Reason: "gone"}, late)
			require.Equal(t, Cancelled, ended.State)
			require.Equal(t, WasCancelled, ended.Outcome)
			require.False(t, ended.LateResult)
			_, err := ended.Decide(Succeed{Token: 7, Outcome: Success}, late)
			require.True(t, fault.Is(err, fault.Stale))
		}
	})

	t.Run("is refused while the run is not being cancelled", func(t *testing.T) {
		t.Parallel()
		_, err := running().Decide(ForceCancel{Silence: silence}, Facts{Now: late.Now})
		require.True(t, fault.Is(err, fault.Conflict))
		require.ErrorContains(t, err, "not being cancelled")
	})

	t.Run("a refusal contains when it will be possible", func(t *testing.T) {
		t.Parallel()
		rapid.Check(t, func(t *rapid.T) {
			second := func(name string) time.Time {
				return epoch.Add(time.Duration(rapid.IntRange(0, 900).Draw(t, name)) * time.Second)
			}
			task := running()
			task.Since = second("since")
			cmd := ForceCancel{SeenAt: second("seen"), Silence: silence}
			now := second("now")
			_, err := task.Decide(cmd, Facts{Now: now, Cancelling: true})
			lastSeen := task.Since
			if cmd.SeenAt.After(lastSeen) {
				lastSeen = cmd.SeenAt
			}
			require.Equal(t, now.Sub(lastSeen) >= silence, err == nil)
			if err == nil {
				return
			}
			refused, ok := fault.As(err)
			require.True(t, ok)
			require.NotEmpty(t, refused.Violation.Remedy)
			possible, ok := refused.Values["possible_at"].(time.Time)
			require.True(t, ok)
			_, err = task.Decide(cmd, Facts{Now: possible, Cancelling: true})
			require.NoError(t, err, "at the time that was named")
			_, err = task.Decide(cmd, Facts{Now: possible.Add(-1), Cancelling: true})
			require.Error(t, err, "and not before")
		})
	})

	t.Run("a task without a lease is not forced, and a reason must be text", func(t *testing.T) {
		t.Parallel()
		for _, state := range TaskStates() {
			task := running()
			task.State = state
			_, err := task.Decide(ForceCancel{}, late)
			require.Equal(t, state.Leased(), err == nil, state)
		}
		for _, reason := range []string{"a\x00b", strings.Repeat("x", MaxReasonLength+1)} {
			_, err := running().Decide(ForceCancel{Reason: reason}, late)
			refused, ok := fault.As(err)
			require.True(t, ok)
			require.Equal(t, "reason", refused.Violation.Field)
		}
	})

	t.Run("its attempt has its end", func(t *testing.T) {
		t.Parallel()
		attempts := Attempts(history(event.Body(TaskClaimed{Attempt: 1, Worker: "w"}), TaskCancelRequested{}, TaskCancelled{Forced: true}))
		require.Equal(t, AttemptForced, attempts[0].End)
	})
}
