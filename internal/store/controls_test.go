package store_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"go.arco.dev/servo/internal/base/id"
	"go.arco.dev/servo/internal/domain/platform"
	"go.arco.dev/servo/internal/domain/run"
	"go.arco.dev/servo/internal/domain/tenant"
	"go.arco.dev/servo/internal/store"
)

func TestSwitches(t *testing.T) {
	t.Parallel()

	t.Run("an untouched one is on", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t)
		require.Equal(t, store.Switch{Name: "dispatch"}, must(w.GetSwitch(t.Context(), "dispatch"))(t))
	})

	t.Run("it is written once for each version", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t)
		off := store.Switch{Name: "dispatch", Version: 1, Switch: platform.Switch{Off: true, Reason: "upgrade", ChangedBy: "ann", ChangedAt: w.now}}
		w.engine(t, func(tx *Tx) { require.NoError(t, tx.WriteSwitch(t.Context(), off)) })
		require.Equal(t, off, must(w.GetSwitch(t.Context(), "dispatch"))(t))
		w.undone(t, func(tx *Tx) {
			err := tx.WriteSwitch(t.Context(), off)
			require.ErrorContains(t, err, "UpsertSwitch touched 0 rows instead of 1")
		})
		on := store.Switch{Name: "dispatch", Version: 2, Switch: platform.Switch{ChangedBy: "bob", ChangedAt: w.now}}
		w.engine(t, func(tx *Tx) { require.NoError(t, tx.WriteSwitch(t.Context(), on)) })
		require.Equal(t, on, must(w.GetSwitch(t.Context(), "dispatch"))(t))
	})

	t.Run("pausing dispatch waits for the claims that have seen it on, and later ones see it off", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t)
		w.newRun(t, w.account(t, "a"), []run.TaskState{run.Queued, run.Queued}, nil, nil)
		claim := func(ctx context.Context, tx *Tx, into *[]run.Task) error {
			if err := tx.LockClaims(ctx, []id.Claim{id.New[id.Claim](id.NewMinter(w.now))}); err != nil {
				return err
			}
			offers, err := tx.TakeQueued(ctx, store.Demand{Pool: "default", Everything: true, Most: 1})
			*into = offers
			return err
		}
		var first, second []run.Task
		early := w.hold(t, func(ctx context.Context, tx *Tx) error { return claim(ctx, tx, &first) })
		turned := w.blocked(t, func(ctx context.Context, tx *Tx) error {
			if err := tx.LockSwitch(ctx, platform.Dispatch); err != nil {
				return err
			}
			return tx.WriteSwitch(ctx, store.Switch{Name: platform.Dispatch, Version: 1, Switch: platform.Switch{Off: true, ChangedAt: w.now}})
		})
		late := w.blocked(t, func(ctx context.Context, tx *Tx) error { return claim(ctx, tx, &second) })
		early.commit(t)
		require.NoError(t, turned())
		require.NoError(t, late())
		require.Len(t, first, 1)
		require.Empty(t, second)
	})
}

func TestBusy(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	held, oldest, err := w.Busy(t.Context(), 10)
	require.NoError(t, err)
	require.Zero(t, held)
	require.Empty(t, oldest)

	a := w.newRun(t, w.account(t, "a"), []run.TaskState{run.Dispatched, run.Queued}, nil, nil)
	b := w.newRun(t, w.account(t, "b"), []run.TaskState{run.Running, run.Running}, nil, nil)
	w.Exec(t, `UPDATE servo.leases SET since = since - interval '1 h', asset = 'n/old' WHERE task_id = '`+b.tasks[1].ID.String()+`'`)
	held, oldest, err = w.Busy(t.Context(), 1)
	require.NoError(t, err)
	require.Equal(t, 3, held)
	require.Equal(t, []store.BusyTask{{
		TenantName: "b", Run: b.run.ID, Task: b.tasks[1].ID, Asset: "n/old", Pool: "default", Worker: "worker",
		Since: b.tasks[1].Since.Add(-time.Hour), CancelRequested: true,
	}}, oldest)
	_, oldest, err = w.Busy(t.Context(), 10)
	require.NoError(t, err)
	require.Len(t, oldest, 3)
	require.Contains(t, []string{a.run.ID.String(), b.run.ID.String()}, oldest[2].Run.String())
}

func TestHeartbeatSeen(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	a, b := w.account(t, "a"), w.account(t, "b")
	g := w.newRun(t, a, []run.TaskState{run.Running, run.Running}, nil, nil)
	w.Exec(t, `INSERT INTO servo.heartbeats (tenant_id, run_id, task_id, token, seen_at, expires_at)
		SELECT tenant_id, run_id, task_id, token, expires_at, expires_at FROM servo.leases WHERE task_id = '`+g.tasks[0].ID.String()+`'`)
	w.engine(t, func(tx *Tx) {
		seen := must(tx.HeartbeatSeen(t.Context(), g.keys(0, 1)))(t)
		require.Equal(t, map[store.PulseKey]time.Time{{TaskKey: g.keys(0)[0], Token: 42}: g.tasks[0].ExpiresAt}, seen)
		foreign := g.keys(0)
		foreign[0].Tenant = b.tenant
		require.Empty(t, must(tx.HeartbeatSeen(t.Context(), foreign))(t))
	})
}

func TestAssetPauses(t *testing.T) {
	t.Parallel()

	t.Run("an asset is paused once, and by its own workspace and tenant", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t)
		a, b := w.account(t, "a"), w.account(t, "b")
		pause := store.AssetPause{Asset: "n/x", PausedAt: w.now, PausedBy: "ann", Reason: "wrong"}
		w.engine(t, func(tx *Tx) {
			require.True(t, must(tx.PauseAsset(t.Context(), a.workspace, pause))(t))
			require.False(t, must(tx.PauseAsset(t.Context(), a.workspace, store.AssetPause{Asset: "n/x", PausedAt: w.now}))(t))
			require.True(t, must(tx.PauseAsset(t.Context(), a.workspace, store.AssetPause{Asset: "n/a", PausedAt: w.now}))(t))
		})
		list := must(w.ListAssetPauses(t.Context(), a.tenant, "default"))(t)
		require.Len(t, list, 2)
		require.Equal(t, pause, list[1])
		require.Empty(t, must(w.ListAssetPauses(t.Context(), a.tenant, "staging"))(t))
		require.Empty(t, must(w.ListAssetPauses(t.Context(), b.tenant, "default"))(t))
		w.engine(t, func(tx *Tx) {
			foreign := a.workspace
			foreign.Tenant = b.tenant
			require.False(t, must(tx.ResumeAsset(t.Context(), foreign, "n/x"))(t))
			require.True(t, must(tx.ResumeAsset(t.Context(), a.workspace, "n/x"))(t))
			require.False(t, must(tx.ResumeAsset(t.Context(), a.workspace, "n/x"))(t))
		})
		require.Len(t, must(w.ListAssetPauses(t.Context(), a.tenant, "default"))(t), 1)
	})

	t.Run("a resumed asset's held tasks return to the order, and no others", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t)
		a, b := w.account(t, "a"), w.account(t, "b")
		of := w.newRun(t, a, nil, nil, nil)
		other := w.newRun(t, a, nil, nil)
		foreign := w.newRun(t, b, nil, nil)
		w.Exec(t, `UPDATE servo.ready_q SET held = true`)
		w.Exec(t, `UPDATE servo.tasks SET asset = 'n/other' WHERE run_id = '`+other.run.ID.String()+`'`)
		w.engine(t, func(tx *Tx) {
			elsewhere := a.workspace
			elsewhere.ID = b.workspace.ID
			require.Zero(t, must(tx.ReleaseHeld(t.Context(), elsewhere, "asset"))(t))
			require.Equal(t, 2, must(tx.ReleaseHeld(t.Context(), a.workspace, "asset"))(t))
		})
		for g, held := range map[*graph]int{&of: 0, &other: 1, &foreign: 1} {
			require.Equal(t, held, w.Count(t, `SELECT count(*) FROM servo.ready_q WHERE held AND run_id = $1`, g.run.ID.UUID))
		}
	})

	t.Run("the events of a workspace are counted one by one", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t)
		a := w.account(t, "a")
		next := a.workspace
		next.Version++
		w.engine(t, func(tx *Tx) { require.NoError(t, tx.WriteWorkspaceVersion(t.Context(), next)) })
		w.undone(t, func(tx *Tx) {
			require.ErrorContains(t, tx.WriteWorkspaceVersion(t.Context(), next), "BumpWorkspace touched 0 rows")
		})
	})
}

func TestTenantUsage(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	a, b := w.account(t, "a"), w.account(t, "b")
	w.newRun(t, a, []run.TaskState{run.Ready, run.Ready, run.Queued}, nil, nil, nil)
	held := w.newRun(t, a, nil, nil)
	w.newRun(t, b, nil, nil)
	w.Exec(t, `UPDATE servo.ready_q SET held = true WHERE run_id = '`+held.run.ID.String()+`'`)
	w.Exec(t, `UPDATE servo.live_runs SET pending = true, due_at = NULL WHERE run_id = '`+held.run.ID.String()+`'`)
	w.Exec(t, `INSERT INTO servo.shares (tenant_id, pool, in_flight, updated_at)
		SELECT id, pool, n, now() FROM servo.tenants, (VALUES ('default', 4), ('big', 3)) AS p(pool, n) WHERE name = 'a'`)
	usage := must(w.GetTenantUsage(t.Context(), a.tenant, tenant.DefaultQuotas()))(t)
	midnight := w.now.Truncate(24 * time.Hour)
	require.Equal(t, store.TenantUsage{InFlight: 7, Ready: 3, Live: 1, Pending: 1, Today: 2, DayBegan: midnight}, usage)
	require.Zero(t, must(w.GetTenantUsage(t.Context(), b.tenant, tenant.DefaultQuotas()))(t).InFlight)

	// tomorrow
	w.SetClock(t, midnight.Add(24*time.Hour))
	require.Zero(t, must(w.GetTenantUsage(t.Context(), a.tenant, tenant.DefaultQuotas()))(t).Today)
}
