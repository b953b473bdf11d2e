package store_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"go.arco.dev/servo/internal/base/id"
	"go.arco.dev/servo/internal/domain/run"
	"go.arco.dev/servo/internal/store"
)

// pulse is a sign of life for a lease of taskIn, which asks for an hour.
func pulse(t run.Task) store.Pulse { return store.Pulse{Key: keyOf(t), Token: t.Token} }

// progress is how far the attempt of a lease of taskIn is.
func progress(t run.Task) store.ProgressReport {
	return store.ProgressReport{Key: keyOf(t), Token: t.Token, Progress: store.Progress{
		Phase: "load", Stage: "2 of 3", Fraction: 0.5,
		RecordsExtracted: 30, RecordsTransformed: 20, RecordsLoaded: 10, Bytes: 4 << 40, ETA: t.Since.Add(time.Hour),
	}}
}

// expiry is until when a lease lives, heartbeats counted in.
func (w *world) expiry(t testing.TB, key store.TaskKey) time.Time {
	t.Helper()
	var leases []run.Task
	w.engine(t, func(tx *Tx) { leases = must(tx.LockLeasesWithHeartbeats(t.Context(), []store.TaskKey{key}))(t) })
	require.Len(t, leases, 1)
	return leases[0].ExpiresAt
}

var noon = time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)

// atNoon is a run with tasks in these states, in a world with a stopped clock.
func atNoon(t *testing.T, states ...run.TaskState) (*world, graph) {
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

func TestHeartbeat(t *testing.T) {
	t.Parallel()
	beat := func(t *testing.T, w *world, pulses ...store.Pulse) map[id.Task]store.PulseAnswer {
		t.Helper()
		answers := map[id.Task]store.PulseAnswer{}
		for key, answer := range must(w.Heartbeat(t.Context(), pulses))(t) {
			answers[key.Task] = answer
		}
		return answers
	}

	t.Run("a heartbeat renews a lease by its own length, and returns whether to stop", func(t *testing.T) {
		t.Parallel()
		w, g := atNoon(t, run.Running, run.Queued, run.Dispatched)
		w.Exec(t, fmt.Sprintf(`UPDATE servo.leases SET lease_ms = 90500 WHERE task_id = '%s'`, g.tasks[2].ID))
		require.Equal(t, noon.Add(time.Minute), w.expiry(t, keyOf(g.tasks[0])))
		answers := beat(t, w, pulse(g.tasks[0]), pulse(g.tasks[1]), pulse(g.tasks[2]))
		stop := store.PulseAnswer{Alive: true, ShouldCancel: true}
		require.Equal(t, map[id.Task]store.PulseAnswer{g.tasks[0].ID: stop, g.tasks[2].ID: stop}, answers, "the other is not leased")
		require.Equal(t, noon.Add(time.Hour), w.expiry(t, keyOf(g.tasks[0])))
		require.Equal(t, noon.Add(90*time.Second+500*time.Millisecond), w.expiry(t, keyOf(g.tasks[2])))
		require.Equal(t, 2, w.Count(t, `SELECT count(*) FROM servo.heartbeats WHERE seen_at = $1`, noon))

		w.Exec(t, `UPDATE servo.leases SET lease_ms = 1000`)
		beat(t, w, pulse(g.tasks[0]))
		require.Equal(t, noon.Add(time.Hour), w.expiry(t, keyOf(g.tasks[0])), "a renewal is never cut short")
	})

	t.Run("a beat with a length renews by that, and never shortens the renewal of the worker", func(t *testing.T) {
		t.Parallel()
		w, g := atNoon(t, run.Dispatched)
		short := pulse(g.tasks[0])
		short.Lease = 2 * time.Minute
		beat(t, w, short)
		require.Equal(t, noon.Add(2*time.Minute), w.expiry(t, keyOf(g.tasks[0])))
		beat(t, w, pulse(g.tasks[0]))
		beat(t, w, short)
		require.Equal(t, noon.Add(time.Hour), w.expiry(t, keyOf(g.tasks[0])))
	})

	t.Run("the leases that a worker has not started are found by the prefix of its name", func(t *testing.T) {
		t.Parallel()
		w, g := atNoon(t, run.Dispatched, run.Running, run.Dispatched)
		w.Exec(t, `UPDATE servo.leases SET worker = 'push/a/remote'`)
		w.Exec(t, fmt.Sprintf(`UPDATE servo.leases SET worker = 'push/ab/remote' WHERE task_id = '%s'`, g.tasks[2].ID))
		held := must(w.UnstartedLeases(t.Context(), "push/a/", 10))(t)
		require.Equal(t, []store.PulseKey{{TaskKey: keyOf(g.tasks[0]), Token: g.tasks[0].Token}}, held)
	})

	t.Run("the leases of a range of claims are those of its worker", func(t *testing.T) {
		t.Parallel()
		w, g := atNoon(t, run.Dispatched, run.Running, run.Dispatched)
		first, last := id.Of[id.Claim](uuid.UUID{1, 1}), id.Of[id.Claim](uuid.UUID{1, 9})
		for i, claim := range []uuid.UUID{{1, 1}, {1, 9}, {1, 10}} {
			w.Exec(t, fmt.Sprintf(`UPDATE servo.leases SET worker = 'w', claim_id = '%s' WHERE task_id = '%s'`, claim, g.tasks[i].ID))
		}
		held := must(w.LeasesOfClaimRange(t.Context(), "w", first, last, 10))(t)
		require.ElementsMatch(t, []store.PulseKey{{TaskKey: keyOf(g.tasks[0]), Token: g.tasks[0].Token}, {TaskKey: keyOf(g.tasks[1]), Token: g.tasks[1].Token}}, held)
		require.Empty(t, must(w.LeasesOfClaimRange(t.Context(), "another", first, last, 10))(t))
	})

	t.Run("only the token of the lease keeps it alive", func(t *testing.T) {
		t.Parallel()
		w, g := atNoon(t, run.Running)
		older, newer, foreign := pulse(g.tasks[0]), pulse(g.tasks[0]), pulse(g.tasks[0])
		older.Token--
		newer.Token++
		foreign.Key.Tenant = id.New[id.Tenant](w.mint)
		for _, p := range []store.Pulse{older, newer, foreign} {
			require.Empty(t, beat(t, w, p))
		}
		require.Zero(t, w.Count(t, `SELECT count(*) FROM servo.heartbeats`))
	})

	t.Run("a heartbeat of the attempt before does not count, and gives way to the next", func(t *testing.T) {
		t.Parallel()
		w, g := atNoon(t, run.Running)
		beat(t, w, pulse(g.tasks[0]))
		again := g.tasks[0]
		again.Token++
		again.Lease = 2 * time.Hour
		w.apply(t, store.Changes{Moves: []store.Move{{From: run.Running, Task: w.taskIn(run.Ready, again)}}})
		w.apply(t, store.Changes{Moves: []store.Move{{From: run.Ready, Task: again}}})
		require.Equal(t, noon.Add(time.Minute), w.expiry(t, keyOf(again)))
		beat(t, w, pulse(again))
		require.Equal(t, noon.Add(2*time.Hour), w.expiry(t, keyOf(again)))
	})

	t.Run("a late heartbeat does not overwrite that of a newer attempt", func(t *testing.T) {
		t.Parallel()
		w, g := atNoon(t, run.Running)
		w.Exec(t, `INSERT INTO servo.heartbeats (tenant_id, run_id, task_id, token, seen_at, expires_at)
			SELECT tenant_id, run_id, task_id, token + 1, servo.clock(), servo.clock() FROM servo.leases`)
		beat(t, w, pulse(g.tasks[0]))
		require.Equal(t, 1, w.Count(t, `SELECT count(*) FROM servo.heartbeats WHERE token = 43 AND expires_at = $1`, noon))
	})

	t.Run("heartbeats of leases that are over are forgotten, those of living ones kept", func(t *testing.T) {
		t.Parallel()
		w, g := atNoon(t, run.Running, run.Running, run.Running)
		w.Exec(t, fmt.Sprintf(`UPDATE servo.leases SET lease_ms = 60000 WHERE task_id <> '%s'`, g.tasks[2].ID))
		beat(t, w, pulse(g.tasks[0]), pulse(g.tasks[1]), pulse(g.tasks[2]))
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

func TestProgress(t *testing.T) {
	t.Parallel()
	send := func(t *testing.T, w *world, reports ...store.ProgressReport) map[id.Task]store.PulseAnswer {
		t.Helper()
		answers := map[id.Task]store.PulseAnswer{}
		for key, answer := range must(w.WriteProgress(t.Context(), reports))(t) {
			answers[key.Task] = answer
		}
		return answers
	}
	in := func(task run.Task, phase, stage string) store.ProgressReport {
		p := progress(task)
		p.Phase, p.Stage = phase, stage
		return p
	}
	kept := func(t *testing.T, w *world, task run.Task) store.AttemptProgress {
		t.Helper()
		return must(w.AttemptProgress(t.Context(), keyOf(task)))(t)[task.Attempt]
	}

	t.Run("the latest is kept, by the holder of the lease", func(t *testing.T) {
		t.Parallel()
		w, g := atNoon(t, run.Running, run.Queued)
		answers := send(t, w, progress(g.tasks[0]), progress(g.tasks[1]))
		require.Equal(t, map[id.Task]store.PulseAnswer{g.tasks[0].ID: {Alive: true, ShouldCancel: true}}, answers, "the other is not leased")
		want := store.ProgressView{Progress: progress(g.tasks[0]).Progress, Stages: 1, StageSince: noon, UpdatedAt: noon}
		require.Equal(t, want, kept(t, w, g.tasks[0]).ProgressView)
		require.Equal(t, &want, must(w.GetTask(t.Context(), keyOf(g.tasks[0])))(t).Progress)
		require.Nil(t, must(w.GetTask(t.Context(), keyOf(g.tasks[1])))(t).Progress)

		next := progress(g.tasks[0])
		next.RecordsLoaded, next.ETA, next.Fraction = 11, time.Time{}, 0.75
		w.SetClock(t, noon.Add(time.Second))
		send(t, w, next)
		want.Progress, want.UpdatedAt = next.Progress, noon.Add(time.Second)
		require.Equal(t, want, kept(t, w, g.tasks[0]).ProgressView)

		older, newer, foreign := next, next, next
		older.Token--
		newer.Token++
		foreign.Key.Tenant = id.New[id.Tenant](w.mint)
		for _, p := range []store.ProgressReport{older, newer, foreign} {
			p.Fraction = 1
			require.Empty(t, send(t, w, p))
		}
		require.Equal(t, want, kept(t, w, g.tasks[0]).ProgressView)
	})

	t.Run("a repeated value is not written again", func(t *testing.T) {
		t.Parallel()
		w, g := atNoon(t, run.Running)
		send(t, w, progress(g.tasks[0]))
		const writers = `SELECT (SELECT xmin::text::int FROM servo.attempt_progress) + (SELECT xmin::text::int FROM servo.heartbeats)`
		before := w.Count(t, writers)
		w.SetClock(t, noon.Add(10*time.Minute))
		require.Len(t, send(t, w, progress(g.tasks[0])), 1)
		require.Equal(t, before, w.Count(t, writers))
	})

	t.Run("it renews a lease whose heartbeat is a quarter of its length old", func(t *testing.T) {
		t.Parallel()
		w, g := atNoon(t, run.Running)
		for _, at := range []struct{ sent, expires time.Duration }{
			{0, time.Hour}, {15 * time.Minute, time.Hour}, {16 * time.Minute, 76 * time.Minute}, {20 * time.Minute, 76 * time.Minute},
		} {
			w.SetClock(t, noon.Add(at.sent))
			send(t, w, progress(g.tasks[0]))
			require.Equal(t, noon.Add(at.expires), w.expiry(t, keyOf(g.tasks[0])), at.sent)
		}
	})

	t.Run("a stage lasts until the next one", func(t *testing.T) {
		t.Parallel()
		w, g := atNoon(t, run.Running)
		steps := []store.ProgressReport{
			in(g.tasks[0], "", ""), in(g.tasks[0], "extract", ""), in(g.tasks[0], "extract", "page 1"), in(g.tasks[0], "extract", "page 1"),
			in(g.tasks[0], "load", "page 1"), in(g.tasks[0], "", ""), in(g.tasks[0], "extract", ""),
		}
		for i, step := range steps {
			w.SetClock(t, noon.Add(time.Duration(i)*time.Minute))
			send(t, w, step)
		}
		at := func(minutes int) time.Time { return noon.Add(time.Duration(minutes) * time.Minute) }
		require.Equal(t, []store.Stage{
			{Phase: "extract", StartedAt: at(1), EndedAt: at(2), Count: 1},
			{Phase: "extract", Stage: "page 1", StartedAt: at(2), EndedAt: at(4), Count: 1},
			{Phase: "load", Stage: "page 1", StartedAt: at(4), EndedAt: at(5), Count: 1},
			{StartedAt: at(5), EndedAt: at(6), Count: 1},
			{Phase: "extract", StartedAt: at(6), Count: 1},
		}, kept(t, w, g.tasks[0]).Kept)
		require.Equal(t, at(6), kept(t, w, g.tasks[0]).StageSince)
	})

	t.Run("of many stages the first and the last are kept, and nothing of the time is lost", func(t *testing.T) {
		t.Parallel()
		w, g := atNoon(t, run.Running)
		const stages = 130
		for i := range stages {
			w.SetClock(t, noon.Add(time.Duration(i)*time.Second))
			send(t, w, in(g.tasks[0], "load", fmt.Sprint("page ", i+1)))
		}
		require.Equal(t, 100, w.Count(t, `SELECT count(*) FROM servo.attempt_stages`))
		found := kept(t, w, g.tasks[0])
		require.EqualValues(t, stages, found.Stages)
		require.Len(t, found.Kept, 100)
		at, counted := noon, int32(0)
		for i, stage := range found.Kept {
			require.Equal(t, at, stage.StartedAt, "stage %d", i)
			require.Equal(t, fmt.Sprint("page ", counted+1), stage.Stage)
			at, counted = stage.EndedAt, counted+stage.Count
		}
		require.EqualValues(t, stages, counted)
		require.EqualValues(t, 31, found.Kept[50].Count, "the 51st counts the omitted ones")
	})

	t.Run("each attempt has a progress of its own, the latest are read", func(t *testing.T) {
		t.Parallel()
		w, g := atNoon(t, run.Running)
		task := g.tasks[0]
		for range 8 {
			task.Attempt++
			w.Exec(t, fmt.Sprintf(`UPDATE servo.leases SET attempt = %d`, task.Attempt))
			for i := range 80 {
				send(t, w, in(task, "load", fmt.Sprint(task.Attempt, "/", i)))
			}
		}
		found := must(w.AttemptProgress(t.Context(), keyOf(task)))(t)
		require.Len(t, found, 8)
		for attempt, p := range found {
			require.Equal(t, fmt.Sprint(attempt, "/79"), p.Stage)
			if attempt > task.Attempt-6 {
				require.Len(t, p.Kept, 80)
			} else {
				require.Empty(t, p.Kept, "stages of long ago are left out, whole")
			}
		}
		require.Equal(t, fmt.Sprint(task.Attempt, "/79"), must(w.GetTask(t.Context(), keyOf(task)))(t).Progress.Stage)
		require.Empty(t, must(w.AttemptProgress(t.Context(), store.TaskKey{Tenant: id.New[id.Tenant](w.mint), Run: task.Run, Task: task.ID}))(t))
	})

	t.Run("several servers that receive the same attempts do not block each other", func(t *testing.T) {
		t.Parallel()
		w, g := atNoon(t, run.Running, run.Running, run.Running)
		w.Exec(t, `CREATE OR REPLACE FUNCTION servo.clock() RETURNS timestamptz LANGUAGE sql VOLATILE AS 'SELECT clock_timestamp()'`)
		var group errgroup.Group
		for server := range 4 {
			group.Go(func() error {
				for i := range 25 {
					reports := []store.ProgressReport{in(g.tasks[0], "p", fmt.Sprint(server, i)), in(g.tasks[1], "p", fmt.Sprint(i)), in(g.tasks[2], "p", "same")}
					if server%2 == 1 {
						reports[0], reports[2] = reports[2], reports[0]
					}
					if _, err := w.WriteProgress(t.Context(), reports); err != nil {
						return err
					}
				}
				return nil
			})
		}
		require.NoError(t, group.Wait())
		for i, task := range g.tasks {
			p := kept(t, w, task)
			require.Len(t, p.Kept, int(p.Stages), "task %d", i)
			require.Equal(t, p.Stage, p.Kept[len(p.Kept)-1].Stage)
		}
		require.EqualValues(t, 1, kept(t, w, g.tasks[2]).Stages)
	})
}
