package store_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"go.arco.dev/servo/internal/base/fault"
	"go.arco.dev/servo/internal/base/id"
	"go.arco.dev/servo/internal/domain/run"
	"go.arco.dev/servo/internal/domain/tenant"
	"go.arco.dev/servo/internal/store"
)

// request asks for a lock for a run that does not exist yet.
func (w *world) request(a account, key string) store.LockRequest {
	return store.LockRequest{
		LockKey: store.LockKey{Tenant: a.tenant, Key: key}, Run: id.New[id.Run](w.mint), Workspace: a.workspace.ID, Limit: 60, Priority: 5,
		By: "jo", Pipeline: "daily",
	}
}

func TestTakeLocks(t *testing.T) {
	t.Parallel()

	t.Run("a lock is given once, and its holder named", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t)
		a, other := w.account(t, "acme"), w.account(t, "brick")
		first, second, theirs := w.request(a, "k"), w.request(a, "k"), w.request(other, "k")
		w.engine(t, func(tx *Tx) {
			taken, holders, err := tx.TakeLocks(t.Context(), []store.LockRequest{theirs, first}, w.now)
			require.NoError(t, err)
			require.Equal(t, map[id.Run]bool{first.Run: true, theirs.Run: true}, taken)
			require.Empty(t, holders)
		})
		w.engine(t, func(tx *Tx) {
			taken, holders, err := tx.TakeLocks(t.Context(), []store.LockRequest{second}, w.now)
			require.NoError(t, err)
			require.Empty(t, taken)
			require.Equal(t, map[store.LockKey]id.Run{second.LockKey: first.Run}, holders)
		})
		locks := must(w.ListLocks(t.Context(), a.tenant, "", 10))(t)
		require.Equal(t, []store.LockView{{
			Key: "k", Run: first.Run, Workspace: tenant.DefaultWorkspace, Pipeline: "daily", LockedAt: w.now, LockedBy: "jo", DueAt: w.now.Add(time.Minute),
		}}, locks)
		require.Equal(t, locks[0], must(w.GetLock(t.Context(), a.tenant, "k"))(t))
		_, err := w.GetLock(t.Context(), a.tenant, "other")
		require.True(t, fault.Is(err, fault.NotFound), err)
	})

	t.Run("who asks for a lock that is being released waits, and gets it", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t)
		a := w.account(t, "acme")
		first, second := w.request(a, "k"), w.request(a, "k")
		w.engine(t, func(tx *Tx) {
			_, _, err := tx.TakeLocks(t.Context(), []store.LockRequest{first}, w.now)
			require.NoError(t, err)
		})
		ending := w.hold(t, func(ctx context.Context, tx *Tx) error {
			if err := tx.ReleaseLocks(ctx, []store.RunKey{{Tenant: a.tenant, Run: first.Run}}); err != nil {
				return err
			}
			return tx.Flush(ctx)
		})
		wait := w.blocked(t, func(ctx context.Context, tx *Tx) error {
			taken, _, err := tx.TakeLocks(ctx, []store.LockRequest{second}, w.now)
			if !taken[second.Run] {
				t.Error("the lock was not given")
			}
			return err
		})
		ending.commit(t)
		require.NoError(t, wait())
	})

	t.Run("nothing asked takes nothing", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t)
		w.engine(t, func(tx *Tx) {
			taken, holders, err := tx.TakeLocks(t.Context(), nil, w.now)
			require.NoError(t, err)
			require.Empty(t, taken)
			require.Empty(t, holders)
		})
	})
}

func TestLiveRuns(t *testing.T) {
	t.Parallel()

	t.Run("a run is live from its making to its end, waits or is due, and is found by both", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t)
		a := w.account(t, "acme")
		g := w.newRun(t, a, nil, nil)
		due := func(at time.Time) []store.DueRun {
			var found []store.DueRun
			w.engine(t, func(tx *Tx) { found = must(tx.DueRuns(t.Context(), at, 10))(t) })
			return found
		}
		require.Empty(t, due(w.now.Add(time.Hour-time.Microsecond)))
		require.Equal(t, []store.DueRun{{RunKey: g.key(), Limit: time.Hour, Pipeline: "daily", Deployment: a.deployment.ID}}, due(w.now.Add(time.Hour)))

		waiting := g.run
		waiting.State = run.RunPending
		w.apply(t, store.Changes{LiveRuns: []run.Run{waiting}})
		require.Empty(t, due(w.now.Add(time.Hour)))
		w.engine(t, func(tx *Tx) {
			require.Equal(t, []id.Tenant{a.tenant}, must(tx.WaitingTenants(t.Context()))(t))
			require.Equal(t, []store.RunKey{g.key()}, must(tx.NextRuns(t.Context(), []id.Tenant{a.tenant}, []int32{5}))(t))
			require.Empty(t, must(tx.NextRuns(t.Context(), []id.Tenant{a.tenant}, []int32{0}))(t))
			found := must(tx.WithLive(t.Context(), []run.Run{{Tenant: a.tenant, ID: g.run.ID}}))(t)
			require.Len(t, found, 1)
			require.EqualValues(t, 3600, found[0].Limit)
		})
		w.apply(t, store.Changes{EndedRuns: []store.RunKey{g.key()}})
		w.engine(t, func(tx *Tx) {
			require.Empty(t, must(tx.WaitingTenants(t.Context()))(t))
			require.Empty(t, must(tx.WithLive(t.Context(), []run.Run{{Tenant: a.tenant, ID: g.run.ID}}))(t))
		})
		err := w.Engine(t.Context(), func(ctx context.Context, tx *Tx) error {
			return tx.Apply(ctx, store.Changes{Now: w.now, EndedRuns: []store.RunKey{g.key()}})
		})
		require.Error(t, err, "a missing row is noticed")
	})

	t.Run("a run that waits for a lock starts with it, once it is free", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t)
		a, b := w.account(t, "acme"), w.account(t, "brick")
		nightly, other := w.config(t, a, "nightly", nil), w.config(t, a, "other", nil)
		holder, foreign := w.request(a, "k"), w.request(b, "k")
		holder.Config = nightly.ID
		w.engine(t, func(tx *Tx) {
			_, _, err := tx.TakeLocks(t.Context(), []store.LockRequest{holder, foreign}, w.now)
			require.NoError(t, err)
		})
		behind := func(key string, c store.ConfigState) run.Run {
			r := w.newRun(t, a, []run.TaskState{run.Skipped}, nil).run // what another has looked like
			w.apply(t, store.Changes{EndedRuns: []store.RunKey{{Tenant: a.tenant, Run: r.ID}}})
			r.ID, r.State, r.StartedAt = id.New[id.Run](w.mint), run.RunPending, time.Time{}
			r.Limit, r.Lock, r.LockedBy, r.Behind, r.Config, r.Slot = 60, key, "config/nightly", key != "", &c.ID, w.now
			w.apply(t, store.Changes{NewRuns: []run.Run{r}})
			return r
		}
		first, second, free := behind("k", nightly), behind("k", nightly), behind("", other)
		next := func(t *testing.T, want ...run.Run) {
			t.Helper()
			var keys []store.RunKey
			for _, r := range want {
				keys = append(keys, store.RunKey{Tenant: a.tenant, Run: r.ID})
			}
			w.engine(t, func(tx *Tx) {
				require.Equal(t, keys, must(tx.NextRuns(t.Context(), []id.Tenant{a.tenant}, []int32{9}))(t))
			})
		}
		load := func(t *testing.T) map[id.Config]store.ConfigLoad {
			t.Helper()
			var found map[id.Config]store.ConfigLoad
			w.engine(t, func(tx *Tx) {
				found = must(tx.LiveOfConfigs(t.Context(), []store.ConfigKey{nightly.Key(), other.Key()}))(t)
				require.Zero(t, must(tx.LiveOfConfigs(t.Context(), []store.ConfigKey{{Tenant: b.tenant, Config: nightly.ID}}))(t)[nightly.ID], "another tenant's")
				require.Empty(t, must(tx.LiveOfConfigs(t.Context(), nil))(t))
			})
			return found
		}
		next(t, free) // the others are passed over
		require.Equal(t, map[id.Config]store.ConfigLoad{nightly.ID: {Live: 3, Behind: 2}, other.ID: {Live: 1}}, load(t))
		w.engine(t, func(tx *Tx) {
			rows := must(tx.LockRuns(t.Context(), store.LockForCount, []store.RunKey{{Tenant: a.tenant, Run: first.ID}}))(t)
			require.Equal(t, []run.Run{first}, must(tx.WithLive(t.Context(), rows))(t), "with its config, its slot and the lock that it waits for")
		})

		starting := func(r run.Run) error {
			r.State, r.StartedAt, r.Behind = run.RunRunning, w.now, false
			return w.Engine(t.Context(), func(ctx context.Context, tx *Tx) error {
				return tx.Apply(ctx, store.Changes{Now: w.now, LiveRuns: []run.Run{r}})
			})
		}
		err := starting(first)
		require.True(t, store.IsLockTaken(err), err)
		w.engine(t, func(tx *Tx) {
			require.NoError(t, tx.ReleaseLocks(t.Context(), []store.RunKey{{Tenant: a.tenant, Run: holder.Run}}))
		})
		next(t, first, free) // the second comes after the first
		w.engine(t, func(tx *Tx) {
			turns := must(tx.LockTurns(t.Context(), 2))(t)
			require.Greater(t, turns[1], turns[0])
			require.Equal(t, map[id.Config][]id.Run{nightly.ID: {first.ID}}, must(tx.WaitingOfConfigs(t.Context(), []store.ConfigKey{nightly.Key(), other.Key()}, 1))(t))
			require.Equal(t, map[id.Run]bool{first.ID: true}, must(tx.GiveLocks(t.Context(), []run.Run{second, first}))(t))
			require.NoError(t, tx.ReturnLocks(t.Context(), []store.RunKey{{Tenant: a.tenant, Run: first.ID}}))
			late := w.request(a, "k")
			taken, holders, err := tx.TakeLocks(t.Context(), []store.LockRequest{late}, w.now)
			require.NoError(t, err)
			require.Empty(t, taken, "no run overtakes one that waits")
			require.Equal(t, map[store.LockKey]id.Run{late.LockKey: first.ID}, holders)
		})
		require.NoError(t, starting(first))
		require.Equal(t, first.ID, must(w.GetLock(t.Context(), a.tenant, "k"))(t).Run)
		require.Equal(t, map[id.Config]store.ConfigLoad{nightly.ID: {Live: 2, Behind: 1}, other.ID: {Live: 1}}, load(t))
		next(t, free)
		w.apply(t, store.Changes{LiveRuns: []run.Run{second}})
		next(t, free) // it waits on with the lock that it waits for
	})

	t.Run("the roots of a run wait for nothing else", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t)
		a := w.account(t, "acme")
		g := w.newRun(t, a, []run.TaskState{run.Pending, run.Pending, run.Pending}, nil, []int32{0}, nil)
		other := w.account(t, "brick")
		w.engine(t, func(tx *Tx) {
			roots := must(tx.Roots(t.Context(), []store.RunKey{g.key()}))(t)
			require.Len(t, roots, 2)
			for _, root := range roots {
				require.NotEqual(t, g.tasks[1].ID, root.ID)
			}
			require.Empty(t, must(tx.Roots(t.Context(), []store.RunKey{{Tenant: other.tenant, Run: g.run.ID}}))(t), "another tenant's run")
		})
	})
}

func TestUsage(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	a, b := w.account(t, "acme"), w.account(t, "brick")
	for range 3 {
		w.newRun(t, a, []run.TaskState{run.Ready, run.Ready, run.Queued}, nil, nil, nil)
	}
	g := w.newRun(t, a, []run.TaskState{run.Pending}, nil)
	waiting := g.run
	waiting.State = run.RunPending
	w.apply(t, store.Changes{LiveRuns: []run.Run{waiting}})
	day := w.now.Truncate(24 * time.Hour)
	ask := func(t *testing.T, q store.UsageQuestion) store.Usage {
		t.Helper()
		q.Tenant, q.DayFrom, q.DayUntil = a.tenant, day, day.Add(24*time.Hour)
		var got map[id.Tenant]store.Usage
		w.engine(t, func(tx *Tx) {
			got = must(tx.CountUsage(t.Context(), []store.UsageQuestion{q, {Tenant: b.tenant, Live: 9, Queued: 9}}))(t)
		})
		require.Zero(t, got[b.tenant], "nothing of it is another's")
		return got[a.tenant]
	}

	t.Run("everything is counted, up to its limit", func(t *testing.T) {
		t.Parallel()
		require.Equal(t, store.Usage{Live: 4, Running: 3, Queued: 6, Daily: 4}, ask(t, store.UsageQuestion{Live: 99, Running: 99, Queued: 99, Daily: 99}))
		require.Equal(t, store.Usage{Live: 2, Running: 1, Queued: 5, Daily: 3}, ask(t, store.UsageQuestion{Live: 2, Running: 1, Queued: 5, Daily: 3}))
		require.Equal(t, store.Usage{}, ask(t, store.UsageQuestion{}))
	})

	t.Run("a day is that of the ids", func(t *testing.T) {
		t.Parallel()
		w.engine(t, func(tx *Tx) {
			got := must(tx.CountUsage(t.Context(), []store.UsageQuestion{{Tenant: a.tenant, Daily: 9, DayFrom: day.Add(24 * time.Hour), DayUntil: day.Add(48 * time.Hour)}}))(t)
			require.Zero(t, got[a.tenant].Daily)
		})
	})

	t.Run("who locks a tenant keeps out who counts it too, and gets its quotas", func(t *testing.T) {
		t.Parallel()
		holding := w.hold(t, func(ctx context.Context, tx *Tx) error {
			quotas, err := tx.LockTenants(ctx, []id.Tenant{b.tenant, a.tenant})
			if len(quotas) != 2 || quotas[a.tenant].MaxConcurrentRuns != 10 || quotas[a.tenant].Zone != "UTC" {
				t.Errorf("quotas: %v", quotas)
			}
			return err
		})
		wait := w.blocked(t, func(ctx context.Context, tx *Tx) error {
			_, err := tx.LockTenants(ctx, []id.Tenant{a.tenant})
			return err
		})
		w.engine(t, func(tx *Tx) {
			require.Equal(t, 24*time.Hour, must(tx.RunQuotasOf(t.Context(), []id.Tenant{a.tenant}))(t)[a.tenant].MaxRunDuration, "reading does not wait")
		})
		holding.commit(t)
		require.NoError(t, wait())
	})
}

func TestQuotaRows(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	a := w.account(t, "acme")
	quotas := tenant.NoLimits()
	quotas.Zone, quotas.FairnessWeight, quotas.MaxDailyRuns = "Asia/Tokyo", 0.5, 7
	w.engine(t, func(tx *Tx) {
		before, version, err := tx.LockQuotas(t.Context(), a.tenant)
		require.NoError(t, err)
		require.Equal(t, tenant.DefaultQuotas(), before)
		require.NoError(t, tx.SetQuotas(t.Context(), a.tenant, version+1, quotas))
	})
	got, version, err := w.GetQuotas(t.Context(), a.tenant)
	require.NoError(t, err)
	require.Equal(t, quotas, got)
	require.EqualValues(t, 2, version)
	w.undone(t, func(tx *Tx) {
		require.Error(t, tx.SetQuotas(t.Context(), id.New[id.Tenant](w.mint), 1, quotas), "of no tenant")
	})
}

func TestTriggerKeysCanBeUndone(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	a := w.account(t, "acme")
	key := func(name string) store.TriggerKey {
		return store.TriggerKey{Tenant: a.tenant, Key: name, Digest: "d", Run: id.New[id.Run](w.mint)}
	}
	forgotten, moved := key("forgotten"), key("moved")
	holder := id.New[id.Run](w.mint)
	w.engine(t, func(tx *Tx) {
		must(tx.TakeTriggerKeys(t.Context(), []store.TriggerKey{forgotten, moved}, w.now))(t)
		require.NoError(t, tx.ForgetTriggerKeys(t.Context(), []store.TriggerKey{forgotten}))
		moved.Run = holder
		require.NoError(t, tx.RepointTriggerKeys(t.Context(), []store.TriggerKey{moved}))
	})
	require.Equal(t, 1, w.Count(t, `SELECT count(*) FROM servo.idempotency_keys`))
	require.Equal(t, 1, w.Count(t, `SELECT count(*) FROM servo.idempotency_keys WHERE key = 'moved' AND run_id = $1`, holder.UUID))
}
