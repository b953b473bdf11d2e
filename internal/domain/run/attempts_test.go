package run

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"go.arco.dev/servo/internal/base/event"
)

// history puts bodies a second apart.
func history(bodies ...event.Body) []event.Event {
	events := make([]event.Event, len(bodies))
	for i, body := range bodies {
		events[i] = event.Event{Version: int32(i + 1), At: at(i), Body: body}
	}
	return events
}

func at(seconds int) time.Time { return epoch.Add(time.Duration(seconds) * time.Second) }

func TestAttempts(t *testing.T) {
	t.Parallel()

	broken := Failure{Code: "NETWORK_ERROR", Message: "cut"}
	claimed := TaskClaimed{Attempt: 1, Worker: "w1"}
	started := TaskClaimed{Attempt: 1, Worker: "w1", Started: true}

	for name, c := range map[string]struct {
		events []event.Event
		want   []Attempt
	}{
		"a task that was never claimed has none": {
			events: history(TaskReadied{}, TaskQueued{}, TaskCancelled{}),
		},
		"one that is leased is under way": {
			events: history(TaskQueued{}, claimed),
			want:   []Attempt{{Number: 1, Worker: "w1", ClaimedAt: at(1)}},
		},
		"it may start later than it was claimed": {
			events: history(claimed, TaskStarted{}),
			want:   []Attempt{{Number: 1, Worker: "w1", ClaimedAt: at(0), StartedAt: at(1)}},
		},
		"a fan-out and a request to stop do not end it": {
			events: history(started, TaskFannedOut{}, TaskCancelRequested{}),
			want:   []Attempt{{Number: 1, Worker: "w1", ClaimedAt: at(0), StartedAt: at(0)}},
		},
		"success": {
			events: history(started, TaskSucceeded{Outcome: Success}),
			want:   []Attempt{{Number: 1, Worker: "w1", ClaimedAt: at(0), StartedAt: at(0), EndedAt: at(1), End: AttemptSucceeded}},
		},
		"a failure for good": {
			events: history(started, TaskFailed{Failure: broken}),
			want:   []Attempt{{Number: 1, Worker: "w1", ClaimedAt: at(0), StartedAt: at(0), EndedAt: at(1), End: AttemptFailed, Failure: &broken}},
		},
		"a retry, whose next attempt succeeds": {
			events: history(started, TaskRetrying{Failure: broken}, TaskReadied{}, TaskQueued{}, TaskClaimed{Attempt: 2, Worker: "w2", Started: true}, TaskSucceeded{}),
			want: []Attempt{
				{Number: 1, Worker: "w1", ClaimedAt: at(0), StartedAt: at(0), EndedAt: at(1), End: AttemptRetried, Failure: &broken},
				{Number: 2, Worker: "w2", ClaimedAt: at(4), StartedAt: at(4), EndedAt: at(5), End: AttemptSucceeded},
			},
		},
		"each return has its name": {
			events: history(
				claimed, TaskReturned{Reason: ReturnExpired},
				TaskClaimed{Attempt: 2, Worker: "w2", Started: true}, TaskReturned{Reason: ReturnYielded},
				TaskClaimed{Attempt: 3, Worker: "w3", Started: true}, TaskReturned{Reason: ReturnInterrupted},
			),
			want: []Attempt{
				{Number: 1, Worker: "w1", ClaimedAt: at(0), EndedAt: at(1), End: AttemptExpired},
				{Number: 2, Worker: "w2", ClaimedAt: at(2), StartedAt: at(2), EndedAt: at(3), End: AttemptYielded},
				{Number: 3, Worker: "w3", ClaimedAt: at(4), StartedAt: at(4), EndedAt: at(5), End: AttemptInterrupted},
			},
		},
		"a cancel keeps the worker's report": {
			events: history(started, TaskCancelRequested{}, TaskCancelled{Failure: &broken}),
			want:   []Attempt{{Number: 1, Worker: "w1", ClaimedAt: at(0), StartedAt: at(0), EndedAt: at(2), End: AttemptCancelled, Failure: &broken}},
		},
		"a cancel while it waits for its retry is no end of an attempt": {
			events: history(started, TaskRetrying{Failure: broken}, TaskCancelled{}),
			want:   []Attempt{{Number: 1, Worker: "w1", ClaimedAt: at(0), StartedAt: at(0), EndedAt: at(1), End: AttemptRetried, Failure: &broken}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			require.Equal(t, c.want, Attempts(c.events))
		})
	}

	t.Run("whatever happens to a task, its attempts are numbered, in order, and show its place", func(t *testing.T) {
		t.Parallel()
		rapid.Check(t, func(t *rapid.T) {
			task, now := genTask(t), epoch
			var events []event.Event
			for range rapid.IntRange(1, 60).Draw(t, "steps") {
				now = now.Add(time.Duration(rapid.IntRange(0, 100).Draw(t, "seconds")) * time.Second)
				body, err := task.Decide(genCommand(t, task), Facts{Now: now})
				if err != nil || body == nil {
					continue
				}
				e := event.Event{Version: task.Version + 1, At: now, Body: body}
				task, err = task.Evolve(e)
				require.NoError(t, err)
				events = append(events, e)
			}

			attempts := Attempts(events)
			require.Len(t, attempts, int(task.Attempt))
			failures := int32(0)
			for i, a := range attempts {
				last := i == len(attempts)-1
				require.EqualValues(t, i+1, a.Number)
				require.Equal(t, a.End == "", last && task.State.Leased(), "only the last of a leased task is under way")
				require.Equal(t, a.End == "", a.EndedAt.IsZero())
				require.False(t, a.End != "" && a.EndedAt.Before(a.ClaimedAt))
				if a.Failure != nil && a.Failure.Code != CodePoison && !a.Failure.IsWorkerDeath() {
					failures++
				}
			}
			require.Equal(t, task.Failures, failures, "max_attempts limits the number of failed attempts")
			if task.State.Leased() {
				last := attempts[len(attempts)-1]
				require.Equal(t, task.Worker, last.Worker)
				require.True(t, task.StartedAt.Equal(last.StartedAt))
			}
		})
	})
}
