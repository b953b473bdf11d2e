package store_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"go.arco.dev/servo/internal/base/id"
	"go.arco.dev/servo/internal/domain/run"
	"go.arco.dev/servo/internal/store"
)

func idsOf(tasks []run.Task) (ids []id.Task) {
	for _, t := range tasks {
		ids = append(ids, t.ID)
	}
	return ids
}

func offered(offers []store.Offer) (ids []id.Task) {
	for _, o := range offers {
		ids = append(ids, o.Task.ID)
	}
	return ids
}

func TestTake(t *testing.T) {
	t.Parallel()
	// three tasks of the same time, the last with the highest priority
	setup := func(t *testing.T, state run.TaskState) (*world, []id.Task) {
		t.Helper()
		w := newWorld(t)
		a := w.account(t, "acme")
		g := w.newRun(t, a, []run.TaskState{run.Skipped}, nil)
		var moves []store.Move
		var news []store.NewTask
		for i, priority := range []int16{1, 1, 9} {
			spec := run.TaskSpec{ID: id.New[id.Task](w.mint), Index: int32(i + 1), Asset: "asset", Partition: "p", Pool: "default", Priority: priority, Timeout: 60}
			task := w.taskIn(state, run.NewTask(g.run, spec, w.now))
			task.Since = w.now.Add(time.Duration(i) * time.Second)
			task.Rank = -int64(priority) // as admission would have it
			moves = append(moves, store.Move{Task: task})
			news = append(news, store.NewTask{Key: keyOf(task), Spec: spec})
		}
		w.apply(t, store.Changes{Moves: moves, NewTasks: news})
		return w, []id.Task{moves[2].Task.ID, moves[0].Task.ID, moves[1].Task.ID}
	}

	t.Run("ready tasks come by priority and time, to one taker each", func(t *testing.T) {
		t.Parallel()
		w, order := setup(t, run.Ready)
		var shares []store.ShareKey
		w.engine(t, func(tx *Tx) { shares = keysOf(waiting(t, tx, 100)) })
		require.Len(t, shares, 1, "of one tenant, in one pool")
		first := w.hold(t, func(ctx context.Context, tx *Tx) error {
			require.Equal(t, order[:2], readyIDs(must(tx.TakeReady(ctx, shares, []int32{2}))(t)))
			return nil
		})
		w.engine(t, func(tx *Tx) {
			require.Equal(t, order[2:], readyIDs(must(tx.TakeReady(t.Context(), shares, []int32{2}))(t)), "what is taken is passed over, not waited for")
		})
		first.commit(t)
	})

	t.Run("queued tasks come with a token each and with their assignment", func(t *testing.T) {
		t.Parallel()
		w, order := setup(t, run.Queued)
		var before []store.Offer
		first := w.hold(t, func(ctx context.Context, tx *Tx) error {
			before = must(tx.Assign(ctx, must(tx.TakeQueued(ctx, store.Demand{Pool: "default", Everything: true, Most: 2}))(t)))(t)
			return nil
		})
		require.Equal(t, order[:2], offered(before))
		w.engine(t, func(tx *Tx) {
			after := must(tx.Assign(t.Context(), must(tx.TakeQueued(t.Context(), store.Demand{Pool: "default", Everything: true, Most: 2}))(t)))(t)
			require.Equal(t, order[2:], offered(after))
			require.Empty(t, must(tx.TakeQueued(t.Context(), store.Demand{Pool: "other", Everything: true, Most: 2}))(t), "pools are apart")
			require.Greater(t, before[1].Token, before[0].Token)
			require.Greater(t, after[0].Token, before[1].Token)
			require.Equal(t, run.Queued, after[0].Task.State)
			given := after[0].Assignment
			require.JSONEq(t, `{"day": "2026-01-01"}`, string(given.Parameters))
			require.Equal(t, []string{"asset", "p", "daily"}, []string{given.Asset, given.Partition, given.Pipeline})
			require.EqualValues(t, 2, given.Index)
		})
		first.commit(t)
	})
}

func TestClaims(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	g := w.newRun(t, w.account(t, "acme"), []run.TaskState{run.Dispatched, run.Running, run.Running}, nil, nil, nil)
	claims := []id.Claim{g.tasks[0].Claim, g.tasks[1].Claim}

	t.Run("a repeat finds what its first try was given", func(t *testing.T) {
		t.Parallel()
		w.engine(t, func(tx *Tx) {
			offers := must(tx.Assign(t.Context(), must(tx.LeasesOfClaims(t.Context(), claims))(t)))(t)
			require.ElementsMatch(t, idsOf(g.tasks[:2]), offered(offers))
			require.EqualValues(t, 42, offers[0].Token)
			require.Equal(t, g.run.Deployment, offers[0].Deployment)
			require.Equal(t, g.run.Workspace, offers[0].Workspace)
			require.Empty(t, must(tx.LeasesOfClaims(t.Context(), []id.Claim{id.New[id.Claim](id.NewMinter(w.now))}))(t))
		})
	})

	t.Run("a repeat waits for its first try, and for no other", func(t *testing.T) {
		t.Parallel()
		first := w.hold(t, func(ctx context.Context, tx *Tx) error { return tx.LockClaims(ctx, claims) })
		w.engine(t, func(tx *Tx) { require.NoError(t, tx.LockClaims(t.Context(), []id.Claim{g.tasks[2].Claim})) })
		repeat := w.blocked(t, func(ctx context.Context, tx *Tx) error { return tx.LockClaims(ctx, claims[1:]) })
		first.commit(t)
		require.NoError(t, repeat())
	})
}

func TestLockRuns(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	a := w.account(t, "acme")
	lock := func(g graph, how store.RunLock) func(context.Context, *Tx) error {
		return func(ctx context.Context, tx *Tx) error {
			_, err := tx.LockRuns(ctx, how, []store.RunKey{g.key()})
			return err
		}
	}
	newRun := func(t *testing.T) graph {
		t.Helper()
		w := &world{Database: w.Database, now: w.now, mint: id.NewMinter(w.now)}
		return w.newRun(t, a, nil, nil)
	}

	t.Run("the next count sees the counters of the previous one", func(t *testing.T) {
		t.Parallel()
		g := newRun(t)
		changed := g.run.Count(run.Task{State: run.Succeeded})
		changed.Total, changed.Remaining = 2, 1
		first := w.hold(t, func(ctx context.Context, tx *Tx) error {
			require.NoError(t, lock(g, store.LockForCount)(ctx, tx))
			return tx.Apply(ctx, store.Changes{ChangedRuns: []run.Run{changed}})
		})
		var seen []run.Run
		second := w.blocked(t, func(ctx context.Context, tx *Tx) (err error) {
			seen, err = tx.LockRuns(ctx, store.LockForCount, []store.RunKey{g.key()})
			return err
		})
		first.commit(t)
		require.NoError(t, second())
		require.Equal(t, []run.Run{changed}, seen)
	})

	t.Run("moves continue beside a count and beside each other", func(t *testing.T) {
		t.Parallel()
		g := newRun(t)
		count := w.hold(t, lock(g, store.LockForCount))
		w.engine(t, func(tx *Tx) { require.NoError(t, lock(g, store.LockForMove)(t.Context(), tx)) })
		count.commit(t)
	})

	for name, how := range map[string]store.RunLock{"a move": store.LockForMove, "a count": store.LockForCount, "a cancel": store.LockForCancel} {
		t.Run("a cancel keeps out "+name, func(t *testing.T) {
			t.Parallel()
			g := newRun(t)
			cancel := w.hold(t, lock(g, store.LockForCancel))
			other := w.blocked(t, lock(g, how))
			cancel.commit(t)
			require.NoError(t, other())
		})
	}

	t.Run("no keys and unknown keys lock nothing", func(t *testing.T) {
		t.Parallel()
		g := newRun(t)
		other := store.RunKey{Tenant: id.Of[id.Tenant](g.run.ID.UUID), Run: g.run.ID}
		w.engine(t, func(tx *Tx) {
			require.Empty(t, must(tx.LockRuns(t.Context(), store.LockForCount, nil))(t))
			require.Empty(t, must(tx.LockRuns(t.Context(), store.LockForCount, []store.RunKey{other}))(t), "the tenant is part of the key")
			existing := must(tx.ExistingRuns(t.Context(), []store.RunKey{g.key(), other, {Tenant: a.tenant, Run: id.New[id.Run](id.NewMinter(w.now))}}))(t)
			require.Equal(t, map[id.Run]bool{g.run.ID: true}, existing)
		})
	})
}

func TestLockLeases(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	a := w.account(t, "acme")

	t.Run("leases are read, and tasks that are not leased left out", func(t *testing.T) {
		t.Parallel()
		w := &world{Database: w.Database, now: w.now, mint: id.NewMinter(w.now)}
		g := w.newRun(t, a, []run.TaskState{run.Dispatched, run.Running, run.Ready}, nil, nil, nil)
		foreign := g.keys(0)
		foreign[0].Tenant = id.New[id.Tenant](w.mint)
		w.engine(t, func(tx *Tx) {
			require.Equal(t, g.tasks[:2], must(tx.LockLeases(t.Context(), g.keys(2, 1, 0)))(t), "in id order")
			require.Equal(t, g.tasks[:2], must(tx.LockLeasesWithHeartbeats(t.Context(), g.keys(2, 1, 0)))(t))
			require.Empty(t, must(tx.LockLeases(t.Context(), nil))(t))
			require.Empty(t, must(tx.LockLeases(t.Context(), foreign))(t), "the tenant is part of the key")
			require.Empty(t, must(tx.LockLeasesWithHeartbeats(t.Context(), foreign))(t))
		})
	})

	t.Run("a transaction that waited for a lease reads its current row, or none", func(t *testing.T) {
		t.Parallel()
		w := &world{Database: w.Database, now: w.now, mint: id.NewMinter(w.now)}
		g := w.newRun(t, a, []run.TaskState{run.Running, run.Running}, nil, nil)
		advanced := w.moved(g.tasks[0], run.Running)
		first := w.hold(t, func(ctx context.Context, tx *Tx) error {
			must(tx.LockLeases(ctx, g.keys(0, 1)))(t)
			return tx.Apply(ctx, store.Changes{Moves: []store.Move{
				{From: run.Running, Task: advanced},
				{From: run.Running, Task: w.taskIn(run.Succeeded, g.tasks[1])},
			}})
		})
		var seen []run.Task
		second := w.blocked(t, func(ctx context.Context, tx *Tx) (err error) {
			seen, err = tx.LockLeases(ctx, g.keys(0, 1))
			return err
		})
		first.commit(t)
		require.NoError(t, second())
		require.Equal(t, []run.Task{advanced}, seen)
	})

	t.Run("a sweep waits for a mover and meets the task further on", func(t *testing.T) {
		t.Parallel()
		w := &world{Database: w.Database, now: w.now, mint: id.NewMinter(w.now)}
		g := w.newRun(t, a, []run.TaskState{run.Queued}, nil)
		leased := w.taskIn(run.Dispatched, g.tasks[0])
		mover := w.hold(t, func(ctx context.Context, tx *Tx) error {
			_, err := tx.Raw().Exec(ctx, `SELECT FROM servo.pool_q WHERE run_id = $1 FOR UPDATE`, g.run.ID.UUID)
			require.NoError(t, err)
			return tx.Apply(ctx, store.Changes{Moves: []store.Move{{From: run.Queued, Task: leased}}})
		})
		var met []run.Task
		sweep := w.blocked(t, func(ctx context.Context, tx *Tx) (err error) {
			met, err = tx.Sweep(ctx, []id.Run{g.run.ID})
			return err
		})
		mover.commit(t)
		require.NoError(t, sweep())
		require.Equal(t, []run.Task{leased}, met)
	})
}

func TestDownstream(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	a := w.account(t, "acme")
	// 0 ─ 2 ─ 4 ─ 5
	//   ╳
	// 1 ─ 3
	states := []run.TaskState{run.Running, run.Running, run.Pending, run.Pending, run.Pending, run.Pending}
	setup := func(t *testing.T) (*world, graph) {
		t.Helper()
		w := &world{Database: w.Database, now: w.now, mint: id.NewMinter(w.now)}
		return w, w.newRun(t, a, states, nil, nil, []int32{0, 1}, []int32{0, 1}, []int32{2}, []int32{4})
	}

	t.Run("dependents are read once for each upstream", func(t *testing.T) {
		t.Parallel()
		w, g := setup(t)
		w.engine(t, func(tx *Tx) {
			one := must(tx.Dependents(t.Context(), g.keys(0)))(t)
			require.Equal(t, []store.Dependent{{Upstream: g.tasks[0].ID, Task: g.tasks[2]}, {Upstream: g.tasks[0].ID, Task: g.tasks[3]}}, one)
			require.Len(t, must(tx.Dependents(t.Context(), g.keys(0, 1, 4)))(t), 5)
			require.Empty(t, must(tx.Dependents(t.Context(), g.keys(3, 5)))(t))
		})
	})

	t.Run("a cone is everything that waits downstream, a chunk of it", func(t *testing.T) {
		t.Parallel()
		w, g := setup(t)
		w.engine(t, func(tx *Tx) {
			require.Equal(t, g.tasks[2:], must(tx.Cone(t.Context(), g.keys(0, 1), 100))(t), "each once, though two ways lead there")
			require.Equal(t, g.tasks[4:], must(tx.Cone(t.Context(), g.keys(2), 100))(t))
			require.Len(t, must(tx.Cone(t.Context(), g.keys(0), 3))(t), 3)
		})
	})

	t.Run("doomed is who waits for a task that ended without success", func(t *testing.T) {
		t.Parallel()
		w, g := setup(t)
		w.engine(t, func(tx *Tx) { require.Empty(t, must(tx.Doomed(t.Context(), g.key(), 100))(t)) })
		w.apply(t, store.Changes{Moves: []store.Move{
			{From: run.Running, Task: w.taskIn(run.Succeeded, g.tasks[0])},
			{From: run.Running, Task: w.taskIn(run.Failed, g.tasks[1])},
		}})
		w.engine(t, func(tx *Tx) {
			doomed := must(tx.Doomed(t.Context(), g.key(), 100))(t)
			require.ElementsMatch(t, []store.Dependent{{Upstream: g.tasks[1].ID, Task: g.tasks[2]}, {Upstream: g.tasks[1].ID, Task: g.tasks[3]}}, doomed,
				"the next layer only, and not by the upstream that succeeded")
			require.Len(t, must(tx.Doomed(t.Context(), g.key(), 1))(t), 1)
			foreign := store.RunKey{Tenant: id.New[id.Tenant](w.mint), Run: g.run.ID}
			require.Empty(t, must(tx.Doomed(t.Context(), foreign, 100))(t), "the tenant is part of the key")
		})
	})

	t.Run("runs with more to skip are remembered until they are done", func(t *testing.T) {
		t.Parallel()
		w, g := setup(t)
		w.apply(t, store.Changes{OpenCones: []store.RunKey{g.key()}})
		w.apply(t, store.Changes{OpenCones: []store.RunKey{g.key()}})
		w.engine(t, func(tx *Tx) { require.Contains(t, must(tx.PendingCones(t.Context(), 10))(t), g.key()) })
		w.apply(t, store.Changes{CloseCones: []store.RunKey{g.key()}})
		w.engine(t, func(tx *Tx) { require.NotContains(t, must(tx.PendingCones(t.Context(), 10))(t), g.key()) })
	})
}
