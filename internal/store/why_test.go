package store_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"go.arco.dev/servo/internal/base/fault"
	"go.arco.dev/servo/internal/base/id"
	"go.arco.dev/servo/internal/devkit/servotest"
	"go.arco.dev/servo/internal/domain/run"
	"go.arco.dev/servo/internal/store"
)

// explain reads one moment in both roles.
func (w *world) explain(t testing.TB, a account, mine, all func(tx *Tx)) {
	t.Helper()
	require.NoError(t, w.Explain(t.Context(), a.tenant, func(_ context.Context, tx *Tx) error {
		mine(tx)
		return nil
	}, func(_ context.Context, tx *Tx) error {
		all(tx)
		return nil
	}))
}

func nothing(*Tx) {}

func TestExplain(t *testing.T) {
	t.Parallel()

	t.Run("the first part sees one tenant, the second all, both the same moment, and neither writes", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t)
		a, b := w.account(t, "acme"), w.account(t, "brick")
		mine := w.newRun(t, a, nil, nil, []int32{0})
		other := w.newRun(t, b, nil, nil)
		w.explain(t, a, func(tx *Tx) {
			found := must(tx.Run(t.Context(), mine.key()))(t)
			require.Equal(t, mine.run.ID, found.ID)
			require.Equal(t, run.Pending, must(tx.Task(t.Context(), keyOf(mine.tasks[1])))(t).State)
			_, err := tx.Run(t.Context(), other.key())
			require.True(t, fault.Is(err, fault.NotFound), err)
			_, err = tx.Task(t.Context(), keyOf(other.tasks[0]))
			require.True(t, fault.Is(err, fault.NotFound), err)
		}, func(tx *Tx) {
			w.newRun(t, b, nil, nil) // committed by another transaction in between
			runs := must(tx.LookRuns(t.Context(), []store.RunKey{mine.key(), other.key()}))(t)
			require.Len(t, runs, 2)
			require.Len(t, must(tx.LookShares(t.Context(), shareOf(a), time.Minute, 10, 10, headsOf))(t), 2)
		})
		err := w.Explain(t.Context(), a.tenant, func(context.Context, *Tx) error { return nil }, func(ctx context.Context, tx *Tx) error {
			return tx.RecountShares(ctx)
		})
		require.Equal(t, "25006", servotest.SQLState(err), "read only")
	})

	t.Run("upstreams that have not succeeded are named in the order of the plan", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t)
		a := w.account(t, "acme")
		g := w.newRun(t, a, []run.TaskState{run.Running, run.Succeeded, run.Queued, run.Failed, run.Pending}, nil, nil, nil, nil, []int32{0, 1, 2, 3})
		w.explain(t, a, func(tx *Tx) {
			states := func(most int) (found []run.TaskState) {
				for _, u := range must(tx.UnmetUpstream(t.Context(), keyOf(g.tasks[4]), most))(t) {
					require.Equal(t, "asset", u.Asset)
					found = append(found, u.State)
				}
				return found
			}
			require.Equal(t, []run.TaskState{run.Running, run.Queued, run.Failed}, states(10))
			require.Equal(t, []run.TaskState{run.Running, run.Queued}, states(2))
			where := must(tx.WhereTasksAre(t.Context(), g.key()))(t)
			require.Equal(t, []store.TasksIn{
				{State: run.Pending, Tasks: 1, Oldest: g.tasks[4].ID},
				{State: run.Queued, Tasks: 1, Oldest: g.tasks[2].ID},
				{State: run.Running, Tasks: 1, Oldest: g.tasks[0].ID},
			}, where)
			require.Equal(t, g.tasks[3].ID, must(tx.FirstTaskIn(t.Context(), g.key(), run.Failed))(t).ID)
			require.Nil(t, must(tx.FirstTaskIn(t.Context(), g.key(), run.Skipped))(t))
		}, nothing)
	})

	t.Run("a pause is read with who and why", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t)
		a := w.account(t, "acme")
		pause := store.AssetPause{Asset: "s/one", PausedAt: w.now, PausedBy: "jo", Reason: "source is down"}
		w.engine(t, func(tx *Tx) { must(tx.PauseAsset(t.Context(), a.workspace, pause))(t) })
		w.explain(t, a, func(tx *Tx) {
			found := must(tx.PauseOf(t.Context(), a.tenant, a.workspace.ID, "s/one"))(t)
			require.Equal(t, "source is down", found.Reason)
			require.Equal(t, "jo", found.PausedBy)
			require.Nil(t, must(tx.PauseOf(t.Context(), a.tenant, a.workspace.ID, "s/two"))(t))
		}, nothing)
	})
}

// shareOf is what a tenant has of the default pool.
func shareOf(a account) store.ShareKey { return store.ShareKey{Tenant: a.tenant, Pool: "default"} }

// TestUnlockedReads: what is read without a lock is what the loops read.
func TestUnlockedReads(t *testing.T) {
	t.Parallel()

	t.Run("shares are as they will be when what others have noted is folded in", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t)
		a := w.account(t, "acme")
		w.newRun(t, a, []run.TaskState{run.Ready, run.Queued}, nil, nil)
		key := store.ShareKey{Tenant: a.tenant, Pool: "default"}
		w.Exec(t, `INSERT INTO servo.pools (name, kind, max_concurrency, version, created_at, updated_at) VALUES ('default', 'pull', 9, 1, servo.clock(), servo.clock())`)
		w.apply(t, store.Changes{Charges: []store.Charge{{ShareKey: key, Admitted: 5, EvenAt: 7}}, Clocks: map[string]float64{"default": 2}})
		w.apply(t, store.Changes{Settlements: []store.Settlement{
			{ShareKey: key, Asset: "s/one", Left: 2, Ended: 1, Seconds: 4, Charged: 2},
			{ShareKey: store.ShareKey{Tenant: a.tenant, Pool: "other"}, Asset: "s/one", Left: 1, Charged: 1},
		}})
		var seen []store.ReadyShare
		w.explain(t, a, nothing, func(tx *Tx) { seen = must(tx.LookShares(t.Context(), shareOf(a), time.Minute, 100, 100, headsOf))(t) })
		w.engine(t, func(tx *Tx) {
			require.Equal(t, waiting(t, tx, 100), seen)
		})
		require.Equal(t, 2, seen[0].InFlight)
	})

	t.Run("shares that begin to wait, or have room again, have the place where they will join", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t)
		a, b, c, d := w.account(t, "acme"), w.account(t, "brick"), w.account(t, "corner"), w.account(t, "dairy")
		for _, x := range []account{a, b} {
			w.newRun(t, x, nil, nil)
		}
		w.engine(t, func(tx *Tx) { require.Len(t, waiting(t, tx, 100), 2) })
		w.apply(t, store.Changes{
			Charges: []store.Charge{{ShareKey: shareOf(a), Admitted: 5, EvenAt: 3}, {ShareKey: shareOf(b), EvenAt: 20, OverQuota: true}, {ShareKey: shareOf(c), EvenAt: 12}},
			Clocks:  map[string]float64{"default": 8},
		})
		for _, x := range []account{a, b, c, d} {
			w.newRun(t, x, nil, nil)
		}
		w.apply(t, store.Changes{Settlements: []store.Settlement{
			{ShareKey: shareOf(a), Asset: "s/one", Left: 2, Ended: 1, Seconds: 4, Charged: 2},
			{ShareKey: store.ShareKey{Tenant: b.tenant, Pool: "other"}, Asset: "s/one", Left: 1, Charged: 1},
			{ShareKey: shareOf(c), Asset: "s/one", Ended: 1, Seconds: 1, Charged: 3},
		}})
		var seen []store.ReadyShare
		w.explain(t, a, nothing, func(tx *Tx) { seen = must(tx.LookShares(t.Context(), shareOf(a), time.Minute, 100, 100, headsOf))(t) })
		w.engine(t, func(tx *Tx) { require.Equal(t, waiting(t, tx, 100), seen) })
		require.Len(t, seen, 4)
	})

	t.Run("tasks are those that admission would take, and hold", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t)
		a := w.account(t, "acme")
		g := w.newRun(t, a, nil, nil, nil, nil)
		w.Exec(t, `UPDATE servo.ready_q SET rank = x.n FROM (SELECT task_id, row_number() OVER (ORDER BY task_id DESC) AS n FROM servo.ready_q) AS x
			WHERE x.task_id = servo.ready_q.task_id`)
		w.Exec(t, `UPDATE servo.tasks SET asset = 'paused' WHERE ix = 1`)
		w.engine(t, func(tx *Tx) {
			must(tx.PauseAsset(t.Context(), a.workspace, store.AssetPause{Asset: "paused", PausedAt: w.now}))(t)
		})
		w.explain(t, a, nothing, func(tx *Tx) {
			shares := must(tx.LookShares(t.Context(), shareOf(a), time.Minute, 100, 100, headsOf))(t)
			tasks, paused, err := tx.LookReady(t.Context(), shares, []int32{2}, false)
			require.NoError(t, err)
			require.Equal(t, []id.Task{g.tasks[2].ID, g.tasks[1].ID}, readyIDs(tasks))
			require.Equal(t, map[id.Task]bool{g.tasks[1].ID: true}, paused)
			require.Equal(t, run.Ready, tasks[0].State)
			oldest, _, err := tx.LookReady(t.Context(), shares, []int32{1}, true)
			require.NoError(t, err)
			require.Len(t, oldest, 1)
			require.Equal(t, store.ReadyPlace{Ahead: 2, Older: 2}, must(tx.ReadyPlace(t.Context(), keyOf(g.tasks[0]), 100))(t))
			require.Equal(t, store.ReadyPlace{Ahead: 1, Older: 1}, must(tx.ReadyPlace(t.Context(), keyOf(g.tasks[0]), 1))(t), "no further than asked")
		})
		w.engine(t, func(tx *Tx) {
			shares := waiting(t, tx, 100)
			require.Equal(t, []id.Task{g.tasks[2].ID, g.tasks[1].ID}, readyIDs(must(tx.TakeReady(t.Context(), keysOf(shares), []int32{2}))(t)))
		})
	})

	t.Run("a queued task is behind those of all tenants, and workers are free for what they do not hold", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t)
		a, b := w.account(t, "acme"), w.account(t, "brick")
		first := w.newRun(t, b, []run.TaskState{run.Queued}, nil)
		g := w.newRun(t, a, []run.TaskState{run.Queued, run.Running}, nil, nil)
		w.Exec(t, `UPDATE servo.pool_q SET rank = CASE WHEN tenant_id = '`+b.tenant.String()+`' THEN 1 ELSE 2 END`)
		w.Exec(t, `INSERT INTO servo.workers (name, pool, slots, first_seen, seen_at)
			SELECT n, 'default', 4, servo.clock(), servo.clock() - age FROM (VALUES ('idle', interval '1 s'), ('gone', interval '2 min')) AS w(n, age)
			UNION ALL SELECT worker, 'default', 3, servo.clock(), servo.clock() FROM servo.leases`)
		w.explain(t, a, nothing, func(tx *Tx) {
			require.Equal(t, 1, must(tx.QueuePlace(t.Context(), keyOf(g.tasks[0]), 100))(t))
			require.Zero(t, must(tx.QueuePlace(t.Context(), keyOf(first.tasks[0]), 100))(t))
			capacity, busy, err := tx.PoolWorkers(t.Context(), "default", w.now.Add(-time.Minute))
			require.NoError(t, err)
			require.Equal(t, store.Capacity{Workers: 2, Slots: 7}, capacity)
			require.Equal(t, 1, busy)
		})
	})

	t.Run("a waiting run is behind those of a higher priority, then of a greater age", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t)
		a := w.account(t, "acme")
		var runs []graph
		for range 3 {
			runs = append(runs, w.newRun(t, a, nil, nil))
		}
		w.Exec(t, `UPDATE servo.live_runs SET pending = true, due_at = NULL`)
		w.Exec(t, `UPDATE servo.live_runs SET priority = 9 WHERE run_id = '`+runs[2].run.ID.String()+`'`)
		w.explain(t, a, nothing, func(tx *Tx) {
			for i, ahead := range []int{1, 2, 0} {
				require.Equal(t, ahead, must(tx.StartPlace(t.Context(), runs[i].key(), 100))(t))
			}
			require.Equal(t, []store.RunKey{runs[2].key(), runs[0].key(), runs[1].key()}, must(tx.NextRuns(t.Context(), []id.Tenant{a.tenant}, []int32{5}))(t))
		})
	})

	t.Run("a duty has its holder and its expiry", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t)
		a := w.account(t, "acme")
		duty := must(w.TakeDuty(t.Context(), "admission", "one", time.Hour))(t)
		w.explain(t, a, nothing, func(tx *Tx) {
			held := must(tx.DutyOf(t.Context(), "admission"))(t)
			require.Equal(t, duty, held.Duty)
			require.True(t, held.ExpiresAt.After(w.now))
			require.True(t, must(tx.DutyOf(t.Context(), "unknown"))(t).ExpiresAt.IsZero())
		})
	})
}
