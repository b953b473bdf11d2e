package store_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"go.arco.dev/servo/internal/id"
	"go.arco.dev/servo/internal/run"
	"go.arco.dev/servo/internal/store"
)

// pulse is a sign of life for a lease of taskIn.
func pulse(t run.Task) store.Pulse {
	return store.Pulse{
		Key: keyOf(t), Token: t.Token, Phase: "load", Stage: "2 of 3", Progress: 0.5,
		RecordsExtracted: 30, RecordsTransformed: 20, RecordsLoaded: 10, Bytes: 4 << 40, ETA: t.Since.Add(time.Hour),
	}
}

// expiry is until when a lease lives, heartbeats counted in.
func (w *world) expiry(t testing.TB, key store.TaskKey) time.Time {
	t.Helper()
	var leases []run.Task
	w.engine(t, func(tx *Tx) { leases = must(tx.LockLeasesWithHeartbeats(t.Context(), []store.TaskKey{key}))(t) })
	require.Len(t, leases, 1)
	return leases[0].ExpiresAt
}

func TestHeartbeat(t *testing.T) {
	t.Parallel()
	noon := time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)
	setup := func(t *testing.T, states ...run.TaskState) (*world, graph) {
		t.Helper()
		w := newWorld(t)
		w.SetClock(t, noon)
		w.now = noon
		w.engine(t, func(tx *Tx) {
			_, err := tx.Raw().Exec(t.Context(), `SELECT servo.make_partitions(0)`)
			require.NoError(t, err)
		})
		w.mint = id.NewMinter(noon)
		return w, w.newRun(t, w.account(t, "acme"), states, make([][]int32, len(states))...)
	}
	beat := func(t *testing.T, w *world, ttl time.Duration, pulses ...store.Pulse) map[id.Task]store.PulseAnswer {
		t.Helper()
		answers := map[id.Task]store.PulseAnswer{}
		for key, answer := range must(w.Heartbeat(t.Context(), pulses, ttl))(t) {
			answers[key.Task] = answer
		}
		return answers
	}

	t.Run("a heartbeat renews a lease, and says when to stop", func(t *testing.T) {
		t.Parallel()
		w, g := setup(t, run.Running, run.Queued)
		require.Equal(t, noon.Add(time.Minute), w.expiry(t, keyOf(g.tasks[0])))
		answers := beat(t, w, time.Hour, pulse(g.tasks[0]), pulse(g.tasks[1]))
		require.Equal(t, map[id.Task]store.PulseAnswer{g.tasks[0].ID: {Alive: true, ShouldCancel: true}}, answers, "the other is not leased")
		require.Equal(t, noon.Add(time.Hour), w.expiry(t, keyOf(g.tasks[0])))
		require.Equal(t, 1, w.Count(t, `
			SELECT count(*) FROM servo.heartbeats WHERE phase = 'load' AND stage = '2 of 3' AND progress = 0.5 AND seen_at = $1
			AND   records_extracted = 30 AND records_transformed = 20 AND records_loaded = 10 AND bytes = 4::bigint << 40 AND eta = $2`,
			noon, g.tasks[0].Since.Add(time.Hour)))

		silent := pulse(g.tasks[0])
		silent.RecordsLoaded, silent.ETA = 11, time.Time{}
		beat(t, w, time.Hour, silent)
		require.Equal(t, 1, w.Count(t, `SELECT count(*) FROM servo.heartbeats WHERE records_loaded = 11 AND eta IS NULL`), "the next one counts")
		beat(t, w, time.Second, pulse(g.tasks[0]))
		require.Equal(t, noon.Add(time.Minute), w.expiry(t, keyOf(g.tasks[0])), "a lease is never cut short")
	})

	t.Run("only the token of the lease keeps it alive", func(t *testing.T) {
		t.Parallel()
		w, g := setup(t, run.Running)
		older, newer, foreign := pulse(g.tasks[0]), pulse(g.tasks[0]), pulse(g.tasks[0])
		older.Token--
		newer.Token++
		foreign.Key.Tenant = id.New[id.Tenant](w.mint)
		for _, p := range []store.Pulse{older, newer, foreign} {
			require.Empty(t, beat(t, w, time.Hour, p))
		}
		require.Zero(t, w.Count(t, `SELECT count(*) FROM servo.heartbeats`))
	})

	t.Run("a heartbeat of the attempt before does not count, and gives way to the next", func(t *testing.T) {
		t.Parallel()
		w, g := setup(t, run.Running)
		beat(t, w, time.Hour, pulse(g.tasks[0]))
		again := g.tasks[0]
		again.Token++
		w.apply(t, store.Changes{Moves: []store.Move{{From: run.Running, Task: w.taskIn(run.Ready, again)}}})
		w.apply(t, store.Changes{Moves: []store.Move{{From: run.Ready, Task: again}}})
		require.Equal(t, noon.Add(time.Minute), w.expiry(t, keyOf(again)))
		beat(t, w, 2*time.Hour, pulse(again))
		require.Equal(t, noon.Add(2*time.Hour), w.expiry(t, keyOf(again)))
	})

	t.Run("a late heartbeat does not overwrite that of a newer attempt", func(t *testing.T) {
		t.Parallel()
		w, g := setup(t, run.Running)
		w.Exec(t, `INSERT INTO servo.heartbeats (tenant_id, run_id, task_id, token, seen_at, expires_at)
			SELECT tenant_id, run_id, task_id, token + 1, servo.clock(), servo.clock() FROM servo.leases`)
		beat(t, w, time.Hour, pulse(g.tasks[0]))
		require.Equal(t, 1, w.Count(t, `SELECT count(*) FROM servo.heartbeats WHERE token = 43 AND expires_at = $1`, noon))
	})

	t.Run("heartbeats of leases that are over are forgotten, those of living ones kept", func(t *testing.T) {
		t.Parallel()
		w, g := setup(t, run.Running, run.Running, run.Running)
		beat(t, w, time.Minute, pulse(g.tasks[0]), pulse(g.tasks[1]))
		beat(t, w, time.Hour, pulse(g.tasks[2]))
		w.apply(t, store.Changes{Moves: []store.Move{
			{From: run.Running, Task: w.taskIn(run.Succeeded, g.tasks[0])},
			{From: run.Running, Task: w.taskIn(run.Succeeded, g.tasks[2])},
		}})
		w.SetClock(t, noon.Add(2*time.Minute))
		heartbeats, _, err := w.Forget(t.Context(), time.Hour)
		require.NoError(t, err)
		require.EqualValues(t, 1, heartbeats, "one lease lives, one heartbeat has not expired")
		require.Equal(t, 2, w.Count(t, `SELECT count(*) FROM servo.heartbeats`))
	})
}

func TestDue(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	states := []run.TaskState{run.Dispatched, run.Running, run.Running, run.RetryWait, run.RetryWait}
	g := w.newRun(t, w.account(t, "acme"), states, make([][]int32, len(states))...)
	early := w.now.Add(-time.Second)

	t.Run("leases are due at the earlier of expiry and deadline", func(t *testing.T) {
		t.Parallel()
		at := func(tx *Tx, now time.Time, most int) []store.TaskKey {
			return must(tx.DueLeases(t.Context(), now, most))(t)
		}
		w.engine(t, func(tx *Tx) {
			require.Empty(t, at(tx, w.now.Add(time.Minute-time.Second), 10))
			require.ElementsMatch(t, g.keys(0, 1, 2), at(tx, w.now.Add(time.Minute), 10))
		})
		renewed, slow := g.tasks[0], g.tasks[1]
		renewed.ExpiresAt = w.now.Add(time.Hour)
		slow.Deadline = early
		w.apply(t, store.Changes{Reschedule: []run.Task{renewed, slow}})
		w.engine(t, func(tx *Tx) {
			require.Equal(t, g.keys(1), at(tx, w.now, 10), "past its deadline")
			require.Equal(t, g.keys(1, 2), at(tx, w.now.Add(time.Minute), 10), "the soonest first")
			require.Equal(t, g.keys(1), at(tx, w.now.Add(time.Minute), 1))
			require.Equal(t, g.keys(1, 2, 0), at(tx, w.now.Add(time.Hour), 10))
			require.Equal(t, renewed.ExpiresAt, must(tx.LockLeases(t.Context(), g.keys(0)))(t)[0].ExpiresAt)
		})
	})

	t.Run("retries are locked when they are due, and passed over when another works on them", func(t *testing.T) {
		t.Parallel()
		due := w.now.Add(time.Second)
		w.engine(t, func(tx *Tx) {
			require.Empty(t, must(tx.DueRetries(t.Context(), w.now, 10))(t))
			require.ElementsMatch(t, g.keys(3, 4), must(tx.DueRetries(t.Context(), due, 10))(t))
			require.Len(t, must(tx.DueRetries(t.Context(), due, 1))(t), 1)
			require.Empty(t, must(tx.LockRetries(t.Context(), g.keys(3, 4), w.now))(t), "looked at again under the lock")
		})
		first := w.hold(t, func(ctx context.Context, tx *Tx) error {
			require.Equal(t, g.tasks[3:4], must(tx.LockRetries(ctx, g.keys(3), due))(t))
			return nil
		})
		w.engine(t, func(tx *Tx) { require.Equal(t, g.tasks[4:], must(tx.LockRetries(t.Context(), g.keys(3, 4), due))(t)) })
		first.commit(t)
	})
}
