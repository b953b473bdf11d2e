package store_test

import (
	"context"
	"encoding/json"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"go.arco.dev/servo/internal/base/event"
	"go.arco.dev/servo/internal/base/fault"
	"go.arco.dev/servo/internal/base/id"
	"go.arco.dev/servo/internal/domain/tenant"
	"go.arco.dev/servo/internal/store"
)

func TestTriggerKeys(t *testing.T) {
	t.Parallel()
	setup := func(t *testing.T) (*world, store.TriggerKey) {
		t.Helper()
		w := newWorld(t)
		return w, store.TriggerKey{Tenant: id.New[id.Tenant](w.mint), Key: "order 7", Digest: "d1", Run: id.New[id.Run](w.mint)}
	}
	take := func(t *testing.T, w *world, keys ...store.TriggerKey) (earlier []store.TriggerKey) {
		t.Helper()
		w.engine(t, func(tx *Tx) { earlier = must(tx.TakeTriggerKeys(t.Context(), keys, w.now))(t) })
		return earlier
	}

	t.Run("the first key wins, and its repeat gets the run of the first", func(t *testing.T) {
		t.Parallel()
		w, key := setup(t)
		require.Empty(t, take(t, w))
		require.Empty(t, take(t, w, key))
		repeat, other, foreign := key, key, key
		repeat.Run, repeat.Digest = id.New[id.Run](w.mint), "d2"
		other.Key = "order 8"
		foreign.Tenant = id.New[id.Tenant](w.mint)
		require.ElementsMatch(t, []store.TriggerKey{key, other, foreign}, take(t, w, repeat, other, foreign),
			"another key and another tenant's are new, and stand for their own runs")
	})

	t.Run("of two in one transaction the first wins", func(t *testing.T) {
		t.Parallel()
		w, key := setup(t)
		repeat := key
		repeat.Run = id.New[id.Run](w.mint)
		for _, holder := range take(t, w, key, repeat) {
			require.Equal(t, key, holder)
		}
		require.Equal(t, []store.TriggerKey{key}, take(t, w, repeat))
	})

	t.Run("of two at once one waits, and gets the other's run", func(t *testing.T) {
		t.Parallel()
		w, key := setup(t)
		repeat := key
		repeat.Run = id.New[id.Run](w.mint)
		first := w.hold(t, func(ctx context.Context, tx *Tx) error {
			require.Empty(t, must(tx.TakeTriggerKeys(ctx, []store.TriggerKey{key}, w.now))(t))
			return nil
		})
		var earlier []store.TriggerKey
		second := w.blocked(t, func(ctx context.Context, tx *Tx) (err error) {
			earlier, err = tx.TakeTriggerKeys(ctx, []store.TriggerKey{repeat}, w.now)
			return err
		})
		first.commit(t)
		require.NoError(t, second())
		require.Equal(t, []store.TriggerKey{key}, earlier)
	})

	t.Run("of two at once the second is new if the first fails", func(t *testing.T) {
		t.Parallel()
		w, key := setup(t)
		first := w.hold(t, func(ctx context.Context, tx *Tx) error {
			must(tx.TakeTriggerKeys(ctx, []store.TriggerKey{key}, w.now))(t)
			return errUndo
		})
		second := w.blocked(t, func(ctx context.Context, tx *Tx) error {
			require.Empty(t, must(tx.TakeTriggerKeys(ctx, []store.TriggerKey{key}, w.now))(t))
			return nil
		})
		close(first.release)
		require.ErrorIs(t, <-first.done, errUndo)
		require.NoError(t, second())
	})

	t.Run("keys are forgotten when they are old", func(t *testing.T) {
		t.Parallel()
		w, key := setup(t)
		take(t, w, key)
		_, keys, err := w.Forget(t.Context(), time.Hour)
		require.NoError(t, err)
		require.Zero(t, keys)
		w.SetClock(t, w.now.Add(2*time.Hour))
		_, keys, err = w.Forget(t.Context(), time.Hour)
		require.NoError(t, err)
		require.EqualValues(t, 1, keys)
		require.Empty(t, take(t, w, key), "as if it had never been")
	})
}

func TestTenants(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	a, b := w.account(t, "acme"), w.account(t, "brick")

	t.Run("tenants are found and listed by name", func(t *testing.T) {
		t.Parallel()
		require.Equal(t, b.tenant, must(w.TenantByName(t.Context(), "brick"))(t))
		_, err := w.TenantByName(t.Context(), "missing")
		require.True(t, fault.Is(err, fault.NotFound), err)
		acme := store.TenantView{ID: a.tenant, Name: "acme", CreatedAt: w.now}
		brick := store.TenantView{ID: b.tenant, Name: "brick", CreatedAt: w.now}
		require.Equal(t, []store.TenantView{acme, brick}, must(w.ListTenants(t.Context(), "", 10))(t))
		require.Equal(t, []store.TenantView{acme}, must(w.ListTenants(t.Context(), "", 1))(t))
		require.Equal(t, []store.TenantView{brick}, must(w.ListTenants(t.Context(), "acme", 10))(t))
	})

	t.Run("a name is taken once", func(t *testing.T) {
		t.Parallel()
		mint := id.NewMinter(w.now)
		for field, insert := range map[string]func(ctx context.Context, tx *Tx) error{
			"tenant": func(ctx context.Context, tx *Tx) error {
				return tx.InsertTenant(ctx, id.New[id.Tenant](mint), "acme", 1, tenant.DefaultQuotas(), w.now)
			},
			"workspace": func(ctx context.Context, tx *Tx) error {
				again := a.workspace
				again.ID = id.New[id.Workspace](mint)
				return tx.InsertWorkspace(ctx, again, w.now)
			},
		} {
			err := w.Engine(t.Context(), insert)
			require.True(t, fault.Is(err, fault.AlreadyExists), err)
			require.ErrorContains(t, err, field)
		}
	})

	t.Run("a workspace is locked with its active deployment", func(t *testing.T) {
		t.Parallel()
		w.engine(t, func(tx *Tx) {
			require.Equal(t, a.workspace, must(tx.LockWorkspace(t.Context(), a.tenant, a.workspace.Name))(t))
			_, err := tx.LockWorkspace(t.Context(), a.tenant, "nowhere")
			require.True(t, fault.Is(err, fault.NotFound), err)
		})
	})

	t.Run("a workspace without a deployment has none", func(t *testing.T) {
		t.Parallel()
		bare := store.Workspace{Tenant: a.tenant, ID: id.New[id.Workspace](id.NewMinter(w.now)), Name: "bare", Version: 1}
		w.engine(t, func(tx *Tx) {
			require.NoError(t, tx.InsertWorkspace(t.Context(), bare, w.now))
			require.Equal(t, bare, must(tx.LockWorkspace(t.Context(), a.tenant, "bare"))(t))
		})
	})

	t.Run("workspaces and deployments of many tenants are read at once", func(t *testing.T) {
		t.Parallel()
		w.engine(t, func(tx *Tx) {
			found := must(tx.Workspaces(t.Context(), []store.WorkspaceName{
				{Tenant: a.tenant, Name: "default"},
				{Tenant: b.tenant, Name: "default"},
				{Tenant: b.tenant, Name: "nowhere"},
			}))(t)
			require.Len(t, found, 2)
			for _, ws := range found {
				owner := map[id.Tenant]account{a.tenant: a, b.tenant: b}[ws.Tenant]
				require.Equal(t, owner.workspace.ID, ws.ID)
				require.Equal(t, owner.deployment.ID, *ws.Active)
			}
			deployments := must(tx.Deployments(t.Context(), []store.DeploymentKey{
				{Tenant: a.tenant, Deployment: a.deployment.ID},
				{Tenant: b.tenant, Deployment: a.deployment.ID}, // not theirs
			}))(t)
			want := a.deployment
			want.Manifest = nil // read by its digest
			require.Equal(t, []store.Deployment{want}, deployments)
		})
	})

	t.Run("the same manifest is the same deployment", func(t *testing.T) {
		t.Parallel()
		again := a.deployment
		again.ID, again.Manifest = id.New[id.Deployment](id.NewMinter(w.now)), json.RawMessage(`{}`)
		w.engine(t, func(tx *Tx) {
			found, isNew, err := tx.InsertDeployment(t.Context(), again, w.now)
			require.NoError(t, err)
			require.False(t, isNew)
			require.Equal(t, a.deployment.ID, found)
		})
	})

	t.Run("a version of an entity is recorded once", func(t *testing.T) {
		t.Parallel()
		err := w.Engine(t.Context(), func(ctx context.Context, tx *Tx) error {
			return tx.AppendEntityEvents(ctx, event.Event{Tenant: a.tenant, Subject: a.tenant.UUID, Version: 1, At: w.now, Body: tenant.Created{}})
		})
		require.ErrorContains(t, err, "entity_events_pkey")
		require.Equal(t, 2, w.Count(t, `SELECT count(*) FROM servo.entity_events WHERE tenant_id = $1`, a.tenant.UUID))
	})

	t.Run("an event that is not declared is not written", func(t *testing.T) {
		t.Parallel()
		for _, write := range []func(ctx context.Context, tx *Tx) error{
			func(ctx context.Context, tx *Tx) error {
				return tx.AppendEntityEvents(ctx, event.Event{Body: undeclared{}})
			},
			func(ctx context.Context, tx *Tx) error {
				return tx.Apply(ctx, store.Changes{Events: []event.Event{{Body: undeclared{}}}})
			},
		} {
			require.ErrorContains(t, w.Engine(t.Context(), write), "is not declared")
		}
	})
}

type undeclared struct{}

func (undeclared) EventType() event.Type { return "wall.razed" }
