package store_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"go.arco.dev/servo/internal/base/id"
	"go.arco.dev/servo/internal/domain/fair"
	"go.arco.dev/servo/internal/domain/run"
	"go.arco.dev/servo/internal/domain/tenant"
	"go.arco.dev/servo/internal/store"
)

func keysOf(shares []store.ReadyShare) []store.ShareKey {
	keys := make([]store.ShareKey, len(shares))
	for i, s := range shares {
		keys[i] = s.ShareKey
	}
	return keys
}

func readyIDs(tasks []store.ReadyTask) []id.Task {
	ids := make([]id.Task, len(tasks))
	for i, t := range tasks {
		ids[i] = t.ID
	}
	return ids
}

// waiting folds what was noted, and reads the shares that come next.
func waiting(t testing.TB, tx *Tx, mostQueued int) []store.ReadyShare {
	t.Helper()
	must(tx.FoldSettlements(t.Context(), 100))(t)
	pools := must(tx.ReadyPools(t.Context(), store.PoolQuestion{Alive: time.Minute, MostQueued: mostQueued}))(t)
	return must(tx.HeadShares(t.Context(), pools, headsOf(pools), id.Tenant{}))(t)
}

// headsOf has 100 shares of each pool read.
func headsOf(pools store.ReadyPools) []int32 {
	heads := make([]int32, len(pools.Names))
	for i := range heads {
		heads[i] = 100
	}
	return heads
}

// settle fills the tables that admission keeps about a tenant.
func (w *world) settle(t testing.TB, a account, n store.Settlement) {
	t.Helper()
	n.Tenant = a.tenant
	w.apply(t, store.Changes{Settlements: []store.Settlement{n}})
	w.engine(t, func(tx *Tx) { must(tx.FoldSettlements(t.Context(), 100))(t) })
}

func TestShares(t *testing.T) {
	t.Parallel()

	t.Run("what other transactions have noted is folded in once", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t)
		a := w.account(t, "acme")
		key := store.ShareKey{Tenant: a.tenant, Pool: "default"}
		w.apply(t, store.Changes{Charges: []store.Charge{{ShareKey: key, Admitted: 5, EvenAt: 7}}, Clocks: map[string]float64{"default": 2}})
		w.settle(t, a, store.Settlement{ShareKey: key, Asset: "s/one", Left: 2, Ended: 1, Seconds: 4, Charged: 2})
		w.settle(t, a, store.Settlement{ShareKey: key, Asset: "s/one", Left: 1, Ended: 1, Seconds: 9, Charged: 1})
		require.Equal(t, 1, w.Count(t, `SELECT count(*) FROM servo.shares
			WHERE in_flight = 2 AND even_at = 7 - 3 + 13 AND served = 13 AND tasks = 2 AND NOT waits`))
		require.Equal(t, 1, w.Count(t, `SELECT count(*) FROM servo.durations WHERE asset = 's/one' AND seconds = 5 AND samples = 2`), "the mean leans to the last")
		require.Zero(t, w.Count(t, `SELECT count(*) FROM servo.settlements`))
	})

	t.Run("a recount finds tasks that are queued, leased, or have left without being folded in", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t)
		a := w.account(t, "acme")
		w.newRun(t, a, []run.TaskState{run.Queued, run.Running, run.Dispatched, run.Ready, run.RetryWait}, nil, nil, nil, nil, nil)
		key := store.ShareKey{Tenant: a.tenant, Pool: "default"}
		w.apply(t, store.Changes{Charges: []store.Charge{{ShareKey: store.ShareKey{Tenant: a.tenant, Pool: "gone"}, Admitted: 7}}})
		w.apply(t, store.Changes{Settlements: []store.Settlement{{ShareKey: key, Left: 4}}})
		recount := func() { w.engine(t, func(tx *Tx) { require.NoError(t, tx.RecountShares(t.Context())) }) }
		recount()
		require.Equal(t, 7, w.Count(t, `SELECT in_flight FROM servo.shares WHERE pool = 'default'`), "3 are there, and 4 will be taken off")
		require.Zero(t, w.Count(t, `SELECT in_flight FROM servo.shares WHERE pool = 'gone'`))
		w.engine(t, func(tx *Tx) { must(tx.FoldSettlements(t.Context(), 100))(t) })
		recount()
		require.Equal(t, 3, w.Count(t, `SELECT in_flight FROM servo.shares WHERE pool = 'default'`))
	})

	t.Run("a tenant with ready tasks comes with what bounds it and its pool", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t)
		a, b := w.account(t, "acme"), w.account(t, "brick")
		w.newRun(t, a, []run.TaskState{run.Ready, run.Ready, run.Queued}, nil, nil, nil)
		w.newRun(t, b, []run.TaskState{run.Queued}, nil)
		key := store.ShareKey{Tenant: a.tenant, Pool: "default"}
		w.Exec(t, `UPDATE servo.tenants SET max_concurrent_tasks = 7, fairness_weight = 2.5 WHERE name = 'acme'`)
		w.Exec(t, `INSERT INTO servo.pools (name, kind, max_concurrency, version, created_at, updated_at) VALUES ('default', 'pull', 9, 1, servo.clock(), servo.clock())`)
		w.Exec(t, `INSERT INTO servo.workers (name, pool, slots, first_seen, seen_at) SELECT n, 'default', 5, servo.clock(), servo.clock() - age
			FROM (VALUES ('a', interval '1 s'), ('b', interval '50 s'), ('gone', interval '2 min')) AS w(n, age)`)
		w.apply(t, store.Changes{Charges: []store.Charge{
			{ShareKey: key, Admitted: 3, EvenAt: 5.5},
			{ShareKey: store.ShareKey{Tenant: a.tenant, Pool: "other"}, Admitted: 1},
			{ShareKey: store.ShareKey{Tenant: b.tenant, Pool: "default"}, Admitted: 2},
		}, Clocks: map[string]float64{"default": 4.5}})
		w.engine(t, func(tx *Tx) {
			require.Equal(t, []store.ReadyShare{{
				ShareKey: key, Weight: 2.5, EvenAt: 5.5, Waits: true, MaxInFlight: 7, InFlight: 4, Admitted: 3,
				PoolRoom: store.PoolRoom{PoolClock: 4.5, PoolMaxInFlight: 9, PoolInFlight: 5, PoolQueued: 2, PoolWorkers: 2, PoolCapacity: 10, PoolSets: []string{store.Everything}, PoolByClaims: true},
			}}, waiting(t, tx, 100))
			require.Equal(t, 1, waiting(t, tx, 1)[0].PoolQueued, "no further than asked")
		})
	})

	t.Run("tasks of a paused asset leave the order, the others stay", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t)
		a := w.account(t, "acme")
		w.newRun(t, a, []run.TaskState{run.Ready, run.Ready}, nil, nil)
		w.settle(t, a, store.Settlement{ShareKey: store.ShareKey{Pool: "default"}, Asset: "asset", Left: 1, Ended: 1, Seconds: 3})
		w.Exec(t, `INSERT INTO servo.asset_pauses (tenant_id, workspace_id, asset, paused_at) SELECT tenant_id, workspace_id, 'paused', servo.clock() FROM servo.runs LIMIT 1`)
		w.engine(t, func(tx *Tx) {
			shares := waiting(t, tx, 100)
			require.True(t, shares[0].Pauses)
			tasks := must(tx.TakeReady(t.Context(), keysOf(shares), []int32{10}))(t)
			require.Len(t, tasks, 2)
			require.InDelta(t, 3, tasks[0].Seconds, 0, "what the asset takes by experience")
			tasks[0].Asset = "paused"
			held := must(tx.HoldPaused(t.Context(), []run.Task{tasks[0].Task, tasks[1].Task}))(t)
			require.Equal(t, map[id.Task]bool{tasks[0].ID: true}, held)
		})
		w.engine(t, func(tx *Tx) {
			shares := waiting(t, tx, 100)
			require.Len(t, must(tx.TakeReady(t.Context(), keysOf(shares), []int32{10}))(t), 1)
		})
	})
}

// TestWaitingShares: waiting tenants are known from notes, in the order of package fair.
func TestWaitingShares(t *testing.T) {
	t.Parallel()
	evenAts := func(t testing.TB, w *world) map[id.Tenant]float64 {
		t.Helper()
		found := map[id.Tenant]float64{}
		w.engine(t, func(tx *Tx) {
			for _, s := range waiting(t, tx, 100) {
				found[s.Tenant] = s.EvenAt
			}
		})
		return found
	}
	charge := func(t testing.TB, w *world, clock float64, charges ...store.Charge) {
		t.Helper()
		w.apply(t, store.Changes{Charges: charges, Clocks: map[string]float64{"default": clock}})
	}
	key := func(a account) store.ShareKey { return store.ShareKey{Tenant: a.tenant, Pool: "default"} }

	t.Run("a tenant that begins to wait joins the one that is owed most, behind it by its debt", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t)
		first, debtor, fresh := w.account(t, "first"), w.account(t, "debtor"), w.account(t, "fresh")
		w.newRun(t, first, []run.TaskState{run.Ready}, nil)
		evenAts(t, w)
		charge(t, w, 50, store.Charge{ShareKey: key(first), EvenAt: 40}, store.Charge{ShareKey: key(debtor), EvenAt: 53})
		w.newRun(t, debtor, []run.TaskState{run.Ready}, nil)
		w.newRun(t, fresh, []run.TaskState{run.Ready}, nil)
		require.Equal(t, map[id.Tenant]float64{
			first.tenant: 40, debtor.tenant: fair.Join(53, 40, 50), fresh.tenant: fair.Join(50, 40, 50),
		}, evenAts(t, w))
		w.newRun(t, debtor, []run.TaskState{run.Ready}, nil)
		require.InDelta(t, 43, evenAts(t, w)[debtor.tenant], 0, "more tasks change nothing")
	})

	t.Run("a share leaves the order when nothing is ready, and not before", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t)
		a := w.account(t, "acme")
		g := w.newRun(t, a, []run.TaskState{run.Ready}, nil)
		require.Len(t, evenAts(t, w), 1)
		charge(t, w, 1, store.Charge{ShareKey: key(a)})
		require.Len(t, evenAts(t, w), 1, "a task is left, or locked by another transaction")
		w.apply(t, store.Changes{
			Moves: []store.Move{{From: run.Ready, Task: w.taskIn(run.Queued, g.tasks[0])}}, Charges: []store.Charge{{ShareKey: key(a), Admitted: 1}},
		})
		require.Empty(t, evenAts(t, w))
	})

	t.Run("a tenant over its quota leaves the order until a task leaves in any pool, or its quotas change", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t)
		a := w.account(t, "acme")
		w.newRun(t, a, []run.TaskState{run.Ready}, nil)
		full := func() {
			charge(t, w, 9, store.Charge{ShareKey: key(a), EvenAt: 3, OverQuota: true})
			require.Empty(t, evenAts(t, w))
		}
		full()
		w.newRun(t, a, []run.TaskState{run.Ready}, nil)
		require.Empty(t, evenAts(t, w), "more tasks change nothing")
		w.apply(t, store.Changes{Settlements: []store.Settlement{{ShareKey: store.ShareKey{Tenant: a.tenant, Pool: "other"}, Left: 1}}})
		require.Equal(t, map[id.Tenant]float64{a.tenant: 9}, evenAts(t, w), "its credit is gone")
		full()
		w.engine(t, func(tx *Tx) { require.NoError(t, tx.SetQuotas(t.Context(), a.tenant, 2, tenant.NoLimits())) })
		require.Len(t, evenAts(t, w), 1)
		full()
		w.engine(t, func(tx *Tx) { require.NoError(t, tx.RecountShares(t.Context())) })
		require.Len(t, evenAts(t, w), 1, "and a new count reads them again")
	})

	t.Run("held tasks do not wait, released ones do", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t)
		a := w.account(t, "acme")
		w.newRun(t, a, []run.TaskState{run.Ready}, nil)
		w.Exec(t, `UPDATE servo.ready_q SET held = true`)
		evenAts(t, w)
		charge(t, w, 1, store.Charge{ShareKey: key(a)})
		require.Empty(t, evenAts(t, w))
		w.engine(t, func(tx *Tx) { require.Equal(t, 1, must(tx.ReleaseHeld(t.Context(), a.workspace, "asset"))(t)) })
		require.Len(t, evenAts(t, w), 1)
	})

	t.Run("a recount finds tenants without a note", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t)
		w.newRun(t, w.account(t, "acme"), []run.TaskState{run.Ready}, nil)
		w.Exec(t, `DELETE FROM servo.settlements`)
		require.Empty(t, evenAts(t, w))
		w.engine(t, func(tx *Tx) { require.NoError(t, tx.RecountShares(t.Context())) })
		require.Len(t, evenAts(t, w), 1)
	})
}

func TestAdmissionWork(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	a := w.account(t, "acme")
	look := func() [2]bool {
		admits, starts, err := w.AdmissionWork(t.Context())
		require.NoError(t, err)
		return [2]bool{admits, starts}
	}
	require.Equal(t, [2]bool{false, false}, look())
	w.apply(t, store.Changes{Settlements: []store.Settlement{{ShareKey: store.ShareKey{Tenant: a.tenant, Pool: "default"}, Left: 1}}})
	require.Equal(t, [2]bool{true, false}, look(), "there is a note to fold in")
	w.engine(t, func(tx *Tx) { must(tx.FoldSettlements(t.Context(), 100))(t) })
	require.Equal(t, [2]bool{false, false}, look())
	w.newRun(t, a, []run.TaskState{run.Ready, run.Queued, run.Running}, nil, nil, nil)
	require.Equal(t, [2]bool{true, false}, look(), "a task is ready")
	w.Exec(t, `UPDATE servo.ready_q SET held = true`)
	w.engine(t, func(tx *Tx) { must(tx.FoldSettlements(t.Context(), 100))(t) })
	require.Equal(t, [2]bool{false, false}, look(), "its asset is paused")
	w.Exec(t, `UPDATE servo.live_runs SET pending = true, due_at = NULL`)
	require.Equal(t, [2]bool{false, true}, look(), "a run waits for its start")
}

func TestListShares(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	a, b := w.account(t, "acme"), w.account(t, "brick")
	w.newRun(t, a, []run.TaskState{run.Ready, run.Ready}, nil, nil)
	w.Exec(t, `UPDATE servo.tenants SET fairness_weight = 2, max_concurrent_tasks = 50 WHERE name = 'brick'`)
	w.settle(t, b, store.Settlement{ShareKey: store.ShareKey{Pool: "default"}, Asset: "s/one", Left: -2, Ended: 1, Seconds: 3, Charged: 1})
	list := func(pool string, of id.Tenant, most int, wantMore bool) []store.ShareView {
		shares, more, err := w.ListShares(t.Context(), pool, of, most)
		require.NoError(t, err)
		require.LessOrEqual(t, len(shares), most)
		require.Equal(t, wantMore, more)
		return shares
	}
	require.Equal(t, []store.ShareView{
		{Pool: "default", Tenant: "acme", Weight: 1, Waiting: 2, MaxConcurrent: 100, Competes: true, PoolWeight: 3, PoolFlight: 2},
		{Pool: "default", Tenant: "brick", Weight: 2, Deficit: -2, InFlight: 2, TenantFlight: 2, MaxConcurrent: 50, Served: 3, Attempts: 1, Competes: true, PoolWeight: 3, PoolFlight: 2},
	}, list("", id.Tenant{}, 10, false))
	one := list("default", id.Tenant{}, 1, true)
	require.Equal(t, "brick", one[0].Tenant, "first those with most in flight")
	mine := list("", a.tenant, 10, false)
	require.Len(t, mine, 1)
	require.InDelta(t, 3, mine[0].PoolWeight, 0, "weighed against all")
	require.Empty(t, list("other", id.Tenant{}, 10, false))
}
