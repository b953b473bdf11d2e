package store_test

import (
	"context"
	"encoding/json"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"go.arco.dev/servo/internal/base/fault"
	"go.arco.dev/servo/internal/base/id"
	"go.arco.dev/servo/internal/domain/access"
	"go.arco.dev/servo/internal/domain/platform"
	"go.arco.dev/servo/internal/store"
)

// key writes a key of a tenant, or of the installation.
func (w *world) key(t testing.TB, owner id.Tenant, settings access.Settings) (access.Key, access.Secret) {
	t.Helper()
	made := id.New[id.Key](w.mint)
	secret, err := access.NewSecret(&digits{next: made.UUID[:]})
	require.NoError(t, err)
	k := access.Key{Tenant: owner, ID: made, Version: 1, Public: secret.ID, Settings: settings, CreatedBy: "jo", CreatedAt: w.now}
	w.engine(t, func(tx *Tx) { require.NoError(t, tx.InsertKey(t.Context(), k, secret.Digest())) })
	return k, secret
}

// digits are random enough for a test: they come from an id.
type digits struct{ next []byte }

func (d *digits) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = d.next[(i+8)%len(d.next)] ^ byte(len(p))
	}
	return len(p), nil
}

// audited writes a call down.
func (w *world) audited(t testing.TB, owner id.Tenant, actor string, at time.Time) store.Audit {
	t.Helper()
	a := store.Audit{
		Tenant: owner, ID: id.New[id.Event](id.NewMinter(at)).UUID, At: at, Actor: actor, Address: "127.0.0.1", RequestID: "r", Method: "RunService/CancelRun",
		Subject: "run/1", Allowed: true, Code: "CONFLICT", Request: json.RawMessage(`{"a": "b"}`),
	}
	w.engine(t, func(tx *Tx) { require.NoError(t, tx.InsertAudit(t.Context(), []store.Audit{a})) })
	return a
}

func TestKeyRows(t *testing.T) {
	t.Parallel()

	t.Run("keys come back as they were written, and a tenant sees its own without their digests", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t)
		acme, brick := w.account(t, "acme"), w.account(t, "brick")
		ci, secret := w.key(t, acme.tenant, access.Settings{Name: "ci", Role: access.Developer, Workspace: "default", ExpiresAt: w.now.Add(time.Hour)})
		ops, _ := w.key(t, id.Tenant{}, access.Settings{Name: "ops", Role: access.Platform})
		shown := must(w.KeyByPublicID(t.Context(), ci.Public))(t)
		require.Equal(t, ci, shown.Key)
		require.Equal(t, "acme", shown.TenantName)
		require.True(t, secret.Is(shown.Digest))
		require.WithinDuration(t, w.now, shown.Now, time.Hour)
		require.Empty(t, must(w.KeyByPublicID(t.Context(), ops.Public))(t).TenantName)
		_, err := w.KeyByPublicID(t.Context(), "0000000000000000")
		require.True(t, fault.Is(err, fault.NotFound), err)

		list := func(owner id.Tenant, everything bool, before id.Key) (names []string) {
			found, _, err := w.Keys(t.Context(), owner, everything, before, 10)
			require.NoError(t, err)
			for _, k := range found {
				names = append(names, k.Name)
			}
			return names
		}
		require.Equal(t, []string{"ci"}, list(acme.tenant, false, id.Key{}))
		require.Equal(t, []string{"ops"}, list(id.Tenant{}, false, id.Key{}))
		require.Empty(t, list(brick.tenant, true, id.Key{}))
		require.Empty(t, list(acme.tenant, true, ci.ID))

		require.Zero(t, w.Count(t, `SELECT has_column_privilege('servo_tenant', 'servo.api_keys', 'digest', 'SELECT')::int`), "nor could a tenant read one")
		require.Zero(t, w.Count(t, `SELECT has_column_privilege('servo_engine', 'servo.api_keys', 'digest', 'UPDATE')::int`), "a digest is never changed")
	})

	t.Run("a name is free again when its key was rotated or revoked", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t)
		acme := w.account(t, "acme")
		k, _ := w.key(t, acme.tenant, access.Settings{Name: "ci", Role: access.Viewer})
		again := k
		again.ID, again.Public = id.New[id.Key](w.mint), "00000000000000aa"
		insert := func() error {
			return w.Engine(t.Context(), func(ctx context.Context, tx *Tx) error { return tx.InsertKey(ctx, again, access.Digest{}) })
		}
		require.True(t, fault.Is(insert(), fault.AlreadyExists))
		w.engine(t, func(tx *Tx) {
			require.Equal(t, 1, must(tx.LockKeys(t.Context(), acme.tenant, "", w.now))(t))
			require.Equal(t, 0, must(tx.LockKeys(t.Context(), acme.tenant, access.Platform, w.now))(t))
			locked := must(tx.LockKey(t.Context(), acme.tenant, "ci"))(t)
			require.Equal(t, k, locked)
			locked.Version, locked.ReplacedBy, locked.ExpiresAt = 2, again.Public, w.now.Add(time.Hour)
			require.NoError(t, tx.UpdateKey(t.Context(), locked))
			_, err := tx.LockKey(t.Context(), acme.tenant, "ci")
			require.True(t, fault.Is(err, fault.NotFound), err)
			require.Equal(t, locked, must(tx.LockKey(t.Context(), acme.tenant, k.Public))(t))
			_, err = tx.LockKey(t.Context(), id.Tenant{}, k.Public)
			require.True(t, fault.Is(err, fault.NotFound), err)
		})
		require.NoError(t, insert())
	})

	t.Run("a worker key of a tenant claims from the pools that the tenant owns now", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t)
		acme := w.account(t, "acme")
		for name, owner := range map[string]id.Tenant{"mine": acme.tenant, "shared": {}} {
			w.engine(t, func(tx *Tx) {
				_, err := tx.InsertPool(t.Context(), store.Pool{Name: name, Version: 1, CreatedAt: w.now, UpdatedAt: w.now, PoolSettings: platform.PoolSettings{
					Kind: platform.Pull, Owner: owner, MaxConcurrency: platform.NoLimit, TimeoutSeconds: 30,
				}})
				require.NoError(t, err)
			})
		}
		pools := []string{"mine", "unowned", "shared"}
		own, _ := w.key(t, acme.tenant, access.Settings{Name: "own", Role: access.Worker, Pools: pools})
		fleet, _ := w.key(t, id.Tenant{}, access.Settings{Name: "fleet", Role: access.Worker, Pools: pools})
		shown := must(w.KeyByPublicID(t.Context(), own.Public))(t)
		require.Equal(t, []string{"mine"}, shown.Claims)
		require.Equal(t, pools, shown.Pools, "what it claimed from these before it may still report")
		require.Equal(t, pools, must(w.KeyByPublicID(t.Context(), fleet.Public))(t).Claims)
	})

	t.Run("the last use is written for many at once, and never backwards", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t)
		acme := w.account(t, "acme")
		a, _ := w.key(t, acme.tenant, access.Settings{Name: "a", Role: access.Viewer})
		b, _ := w.key(t, acme.tenant, access.Settings{Name: "b", Role: access.Viewer})
		later := w.now.Add(time.Minute)
		require.NoError(t, w.TouchKeys(t.Context(), nil))
		require.NoError(t, w.TouchKeys(t.Context(), []store.KeyUse{{a.Tenant, a.ID, later}, {b.Tenant, b.ID, w.now}}))
		require.NoError(t, w.TouchKeys(t.Context(), []store.KeyUse{{a.Tenant, a.ID, w.now}, {b.Tenant, b.ID, later}}))
		found, _, err := w.Keys(t.Context(), acme.tenant, false, id.Key{}, 10)
		require.NoError(t, err)
		require.Len(t, found, 2)
		for _, k := range found {
			require.Equal(t, later, k.LastUsedAt, k.Name)
		}
	})
}

func TestAuditRows(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	acme, brick := w.account(t, "acme"), w.account(t, "brick")
	first := w.audited(t, acme.tenant, "key/ci", w.now.Add(-time.Hour))
	second := w.audited(t, acme.tenant, "key/jo", w.now)
	own := w.audited(t, id.Tenant{}, "platform/ops", w.now)
	list := func(f store.AuditFilter) []store.Audit { return must(w.Audit(t.Context(), f, 10))(t) }
	require.Equal(t, []store.Audit{second, first}, list(store.AuditFilter{Tenant: acme.tenant}))
	require.Equal(t, []store.Audit{first}, list(store.AuditFilter{Tenant: acme.tenant, Before: second.ID}))
	require.Equal(t, []store.Audit{first}, list(store.AuditFilter{Tenant: acme.tenant, Actor: "key/ci"}))
	require.Equal(t, []store.Audit{second}, list(store.AuditFilter{Tenant: acme.tenant, Since: w.now.Add(-time.Minute)}))
	require.Empty(t, list(store.AuditFilter{Tenant: acme.tenant, Actor: "key/ci", Since: w.now}))
	require.Equal(t, []store.Audit{second, first}, list(store.AuditFilter{Tenant: acme.tenant, Since: time.Unix(-5, 0)}))
	require.Equal(t, []store.Audit{own}, list(store.AuditFilter{}))
	require.Empty(t, list(store.AuditFilter{Tenant: brick.tenant}))
	w.engine(t, func(tx *Tx) {
		require.NoError(t, tx.InsertAudit(t.Context(), []store.Audit{second}), "the same again is there once")
	})
	require.Len(t, list(store.AuditFilter{Tenant: acme.tenant}), 2)
	require.NotEqual(t, uuid.Nil, first.ID)
	require.Zero(t, w.Count(t, `SELECT (has_table_privilege('servo_engine', 'servo.audit_log', 'UPDATE') OR has_table_privilege('servo_engine', 'servo.audit_log', 'DELETE'))::int`),
		"no role changes the audit")
}
