package run

import (
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"go.arco.dev/servo/internal/base/event"
	"go.arco.dev/servo/internal/base/fault"
)

var epoch = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// genCommand draws any command, with the right token most of the time.
func genCommand(t *rapid.T, task Task) Command {
	token := task.Token
	if rapid.IntRange(0, 9).Draw(t, "stale") == 0 {
		token++
	}
	policy := Resolve("", RetryPolicy{MaxAttempts: rapid.IntRange(1, 4).Draw(t, "max")})
	cursor := rapid.StringMatching(`[0-9]{0,3}`)
	return rapid.SampledFrom([]Command{
		DependenciesMet{},
		Admit{},
		Claim{Token: task.Token + 1, Worker: "w", Start: rapid.Bool().Draw(t, "start")},
		Start{Token: token, Instance: rapid.SampledFrom([]string{"", "a", "b"}).Draw(t, "instance")},
		Advance{Token: token, Expected: task.Cursor, Next: cursor.Draw(t, "next")},
		FanOut{Token: token, Ordinal: rapid.Int32Range(0, 2).Draw(t, "ordinal")},
		Yield{Token: token},
		Succeed{Token: token, Outcome: Success},
		Fail{Token: token, Failure: Failure{Code: rapid.SampledFrom([]string{
			"NETWORK_ERROR", "INTERRUPTED", "USER_CODE_EXCEPTION", "MY_OWN", "TIMEOUT", "WORKER_CRASH",
		}).Draw(t, "code")}, Policy: policy},
		Expire{Policy: policy},
		TimeOut{Policy: policy},
		RetryDue{},
		Skip{},
		Cancel{},
		ForceCancel{SeenAt: epoch.Add(time.Duration(rapid.IntRange(0, 300).Draw(t, "seen")) * time.Second), Silence: time.Minute},
	}).Draw(t, "command")
}

func genTask(t *rapid.T) Task {
	return NewTask(Run{}, TaskSpec{Pool: "default", Timeout: 60, Upstream: make([]int32, rapid.IntRange(0, 2).Draw(t, "upstream"))}, epoch)
}

func TestTaskMachine(t *testing.T) {
	t.Parallel()

	t.Run("no sequence of commands leaves the table, and replaying the events gives the same row", func(t *testing.T) {
		t.Parallel()
		rapid.Check(t, func(t *rapid.T) {
			first := genTask(t)
			task, history := first, []event.Event{}
			now := epoch
			for range rapid.IntRange(1, 60).Draw(t, "steps") {
				now = now.Add(time.Duration(rapid.IntRange(0, 100).Draw(t, "seconds")) * time.Second)
				cmd := genCommand(t, task)
				facts := Facts{Now: now, Cancelling: rapid.IntRange(0, 19).Draw(t, "cancelling") == 0}
				body, err := task.Decide(cmd, facts)
				if move, ok := cmd.(Advance); ok && err == nil {
					task = task.Moved(move)
				}
				if err != nil || body == nil {
					continue
				}
				to, err := allowed(taskTransitions, task.State, cmd.On())
				require.NoError(t, err, "an event came out of a transition that does not exist")

				e := event.Event{Version: task.Version + 1, At: now, Body: body}
				next, err := task.Evolve(e)
				require.NoError(t, err)
				require.Contains(t, to, next.State, "%s on %s", cmd.On(), task.State)
				require.False(t, task.State.Terminal(), "terminal is terminal")
				require.GreaterOrEqual(t, next.Attempt, task.Attempt)
				require.GreaterOrEqual(t, next.Failures, task.Failures)
				require.Less(t, next.Fruitless, int32(maxFruitless))
				task, history = next, append(history, e)
			}

			replayed := first
			for _, e := range history {
				var err error
				replayed, err = replayed.Evolve(throughJSON(t, e))
				require.NoError(t, err)
			}
			if task.State.Leased() {
				replayed.Cursor = task.Cursor // moves are state of the lease: the event that ends it records the cursor
			}
			require.Empty(t, cmp.Diff(task, replayed, cmpopts.EquateEmpty()))
		})
	})

	t.Run("every state can be left but the terminal ones, and every state can be reached", func(t *testing.T) {
		t.Parallel()
		leaves, reached := map[TaskState]bool{}, map[TaskState]bool{Pending: true, Ready: true}
		for _, row := range taskTransitions {
			for _, from := range row.From {
				leaves[from] = true
			}
			for _, to := range row.To {
				reached[to] = true
			}
		}
		for _, state := range TaskStates() {
			require.True(t, reached[state], state)
			require.Equal(t, !state.Terminal(), leaves[state], state)
		}
	})

	t.Run("each pair of state and command is in at most one row", func(t *testing.T) {
		t.Parallel()
		seen := map[TaskState]map[TaskCommand]bool{}
		for _, row := range taskTransitions {
			for _, from := range row.From {
				if seen[from] == nil {
					seen[from] = map[TaskCommand]bool{}
				}
				require.False(t, seen[from][row.On], "%s on %s", row.On, from)
				seen[from][row.On] = true
			}
		}
	})

	t.Run("a refusal names the state and the command", func(t *testing.T) {
		t.Parallel()
		_, err := Task{State: Succeeded}.Decide(Admit{}, Facts{Now: epoch})
		require.True(t, fault.Is(err, fault.Conflict))
		require.ErrorContains(t, err, "SUCCEEDED")
		require.ErrorContains(t, err, "admit")
	})
}

// throughJSON records an event and reads it back, as a rebuild does.
func throughJSON(t *rapid.T, e event.Event) event.Event {
	codec := event.NewCodec(Events()...)
	schema, data, err := codec.Encode(e.Body)
	require.NoError(t, err)
	e.Body, err = codec.Decode(e.Body.EventType(), schema, data)
	require.NoError(t, err)
	return e
}

func TestRunMachine(t *testing.T) {
	t.Parallel()

	rapid.Check(t, func(t *rapid.T) {
		r := Run{}
		apply := func(body event.Body) {
			var err error
			r, err = r.Evolve(event.Event{Version: r.Version + 1, At: epoch, Body: body})
			require.NoError(t, err)
		}
		n := rapid.IntRange(1, 5).Draw(t, "tasks")
		apply(RunCreated{Tasks: make([]TaskSpec, n), Started: rapid.Bool().Draw(t, "started")})
		for range 20 {
			cmd := rapid.SampledFrom([]RunAction{StartRun{}, CancelRun{}, TimeOutRun{}, EndRun{}, nil}).Draw(t, "command")
			if cmd == nil {
				if r.Remaining > 0 {
					r = r.Count(Task{State: rapid.SampledFrom([]TaskState{Succeeded, Failed, Skipped, Cancelled}).Draw(t, "end")})
				}
				continue
			}
			body, err := r.Decide(cmd)
			if err != nil {
				continue
			}
			to, err := allowed(runTransitions, r.State, cmd.OnRun())
			require.NoError(t, err)
			before := r.State
			apply(body)
			require.True(t, slices.Contains(to, r.State), "%s on %s gave %s", cmd.OnRun(), before, r.State)
			require.False(t, before.Terminal())
			require.Equal(t, r.Total, r.Remaining+r.Succeeded+r.Failed+r.Skipped+r.Cancelled)
			if r.State.Terminal() {
				require.Zero(t, r.Remaining, "a run ends when its last task has")
				require.Equal(t, r.State == RunFailed, before == RunRunning && r.Failed > 0)
			}
		}
	})
}
