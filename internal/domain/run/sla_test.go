package run

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"go.arco.dev/servo/internal/base/event"
	"go.arco.dev/servo/internal/base/id"
)

func TestPromises(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 3, 1, 2, 0, 0, 0, time.UTC)
	by := now.Add(5 * time.Minute)
	created := RunCreated{StartBy: &by, StartLimit: 300, Labels: `{"provider":"aws"}`, Limit: 60, Started: true, Tasks: make([]TaskSpec, 1)}
	made, err := Run{}.Evolve(event.Event{Version: 1, At: now, Body: created})
	require.NoError(t, err)

	t.Run("a run knows what it was promised", func(t *testing.T) {
		t.Parallel()
		require.Equal(t, by, made.StartBy)
		require.Equal(t, by, made.LateAt())
		require.Equal(t, `{"provider":"aws"}`, made.Labels)
		require.False(t, made.Breached())
		plain, err := Run{}.Evolve(event.Event{Version: 1, At: now, Body: RunCreated{Tasks: make([]TaskSpec, 1)}})
		require.NoError(t, err)
		require.False(t, plain.MayBeLate(now.AddDate(10, 0, 0)), "nothing was promised")
	})

	t.Run("it is late after the time, not at it, and only if nothing was started", func(t *testing.T) {
		t.Parallel()
		_, missed := made.MissedStart(false, by)
		require.False(t, missed)
		_, missed = made.MissedStart(true, by.Add(time.Hour))
		require.False(t, missed)
		breach, missed := made.MissedStart(false, by.Add(1))
		require.True(t, missed)
		require.Equal(t, RunBreached{SLA: SLAStartDelay, Limit: 300, Due: by}, breach)
	})

	t.Run("it overruns once", func(t *testing.T) {
		t.Parallel()
		breach, overran := made.Overrun(60)
		require.True(t, overran)
		require.Equal(t, RunBreached{SLA: SLAExecution, Limit: 60, Due: now.Add(time.Minute)}, breach)
		for _, state := range []State{RunCancelling, RunSucceeded} {
			ended := made
			ended.State = state
			_, overran = ended.Overrun(60)
			require.False(t, overran, state)
		}
	})

	t.Run("a breach of an unknown kind, or a second one, is no event of a run", func(t *testing.T) {
		t.Parallel()
		for _, sla := range SLAs() {
			once, err := made.Evolve(event.Event{Version: 2, At: now, Body: RunBreached{SLA: sla}})
			require.NoError(t, err)
			require.True(t, once.Breached())
			_, err = once.Evolve(event.Event{Version: 3, At: now, Body: RunBreached{SLA: sla}})
			require.ErrorContains(t, err, "a second time")
		}
		_, err := made.Evolve(event.Event{Version: 2, At: now, Body: RunBreached{SLA: "freshness"}})
		require.ErrorContains(t, err, `"freshness"`)
	})

	t.Run("an event from before there were promises has none", func(t *testing.T) {
		t.Parallel()
		text, err := json.Marshal(RunCreated{Tasks: []TaskSpec{}})
		require.NoError(t, err)
		for _, name := range []string{"labels", "start_by", "start_limit"} {
			require.NotContains(t, string(text), `"`+name+`"`)
		}
	})
}

// TestBreachedOnce checks for breaches at every possible place in any order: each promise is
// broken once at most, by a run that deserves it.
func TestBreachedOnce(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		now := time.Date(2026, 3, 1, 2, 0, 0, 0, time.UTC)
		by := now.Add(time.Minute)
		var (
			r     Run
			begun time.Time
		)
		of, seen := id.Of[id.Run](uuid.New()), map[SLA]int{}
		record := func(body event.Body) {
			next, err := r.Evolve(event.Event{Run: of, Subject: of.UUID, Version: r.Version + 1, At: now, Body: body})
			require.NoError(t, err)
			if b, ok := body.(RunBreached); ok {
				seen[b.SLA]++
			}
			r = next
		}
		look := func() {
			if breach, missed := r.MissedStart(!begun.IsZero() && !begun.After(by), now); missed {
				record(breach)
			}
		}
		record(RunCreated{StartBy: &by, Limit: 60, Started: rapid.Bool().Draw(t, "started"), Tasks: make([]TaskSpec, 1)})
		for range rapid.IntRange(1, 30).Draw(t, "steps") {
			now = now.Add(time.Duration(rapid.IntRange(0, 20).Draw(t, "seconds")) * time.Second)
			switch rapid.IntRange(0, 4).Draw(t, "step") {
			case 0:
				look()
			case 1:
				if body, err := r.Decide(StartRun{}); err == nil {
					record(body)
				}
			case 2:
				if r.State == RunRunning && begun.IsZero() {
					begun = now
				}
			case 3:
				if body, err := r.Decide(TimeOutRun{}); err == nil {
					if breach, overran := r.Overrun(60); overran {
						record(breach)
					}
					record(body)
				}
			case 4:
				look() // before the end, as the command that ends it does
				ended := r
				ended.Remaining = 0
				if body, err := ended.Decide(EndRun{}); err == nil {
					record(body)
				}
			}
		}
		for sla, times := range seen {
			require.Equal(t, 1, times, sla)
		}
		deserved := now.After(by) && (begun.IsZero() || begun.After(by)) && (!r.State.Terminal() || r.FinishedAt.After(by))
		require.False(t, r.Late && !deserved, "it began in time")
		if r.State.Terminal() {
			require.Equal(t, deserved, r.Late, "none is lost")
			require.Equal(t, r.TimedOut, r.Overran)
		}
	})
}
