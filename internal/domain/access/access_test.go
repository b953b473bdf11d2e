package access_test

import (
	"bytes"
	"crypto/rand"
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"go.arco.dev/servo/internal/base/event"
	"go.arco.dev/servo/internal/base/fault"
	"go.arco.dev/servo/internal/base/id"
	"go.arco.dev/servo/internal/domain/access"
)

func TestRoles(t *testing.T) {
	t.Parallel()

	t.Run("each role of people has all that the one before has, and something more", func(t *testing.T) {
		t.Parallel()
		ladder := []access.Role{access.Viewer, access.Operator, access.Developer, access.TenantAdmin, access.Platform}
		for i, role := range ladder[1:] {
			before := ladder[i].Permissions()
			for _, p := range before {
				require.True(t, role.Has(p), "%s %s", role, p)
			}
			require.Greater(t, len(role.Permissions()), len(before))
		}
	})

	t.Run("a viewer changes nothing, a worker only works, an unknown role does nothing", func(t *testing.T) {
		t.Parallel()
		for _, p := range access.Viewer.Permissions() {
			require.True(t, p.Reads(), p)
		}
		require.Equal(t, []access.Permission{access.TasksWork}, access.Worker.Permissions())
		require.Equal(t, []access.Permission{access.SchedulerTick}, access.Tick.Permissions())
		require.Empty(t, access.Role("root").Permissions())
		require.Empty(t, access.Role("").Permissions())
		require.False(t, access.Role("root").Known())
	})

	t.Run("the least role of a permission has it, and no weaker one does", func(t *testing.T) {
		t.Parallel()
		for _, p := range access.Platform.Permissions() {
			least := access.Least(p)
			require.True(t, least.Has(p), p)
			if least == access.Worker || least == access.Tick {
				continue
			}
			for _, weaker := range access.Roles()[2:slices.Index(access.Roles(), least)] {
				require.False(t, weaker.Has(p), "%s %s", weaker, p)
			}
		}
	})

	t.Run("what each role may do is what was agreed", func(t *testing.T) {
		t.Parallel()
		for role, has := range map[access.Role][]access.Permission{
			access.Viewer:      {"ASSETS_READ", "RUNS_READ", "CONFIGS_READ", "COSTS_READ", "QUOTAS_READ"},
			access.Operator:    {"RUNS_TRIGGER", "RUNS_CANCEL", "RUNS_RETRY", "CONFIGS_OPERATE", "QUARANTINE_REVIEW", "LOCKS_RELEASE", "ALERTS_SILENCE"},
			access.Developer:   {"ASSETS_DEPLOY", "ASSETS_DELETE", "CONFIGS_WRITE", "BACKFILLS_CREATE", "BACKFILLS_MANAGE", "EVENTS_SEND"},
			access.TenantAdmin: {"KEYS_MANAGE", "SUBSCRIPTIONS_MANAGE", "AUDIT_READ"},
			access.Tick:        {"SCHEDULER_TICK"},
			access.Platform:    {"TENANTS_MANAGE", "QUOTAS_MANAGE", "POOLS_MANAGE", "DISPATCH_PAUSE", "PROJECTIONS", "SIGNING_KEYS", "ADMIN"},
		} {
			for _, p := range has {
				require.Equal(t, role, access.Least(p), p)
			}
		}
	})
}

func TestMethods(t *testing.T) {
	t.Parallel()
	for name, m := range access.Methods() {
		require.NotEmpty(t, m.Permission, name)
		require.NotZero(t, m.Scope, name)
		require.True(t, access.Platform.Has(m.Permission), name)
		least := access.Least(m.Permission)
		require.Equal(t, m.Scope == access.OfPlatform, least == access.Platform || least == access.Tick, "%s: a permission of the platform is for calls about it", name)
		require.Equal(t, m.Scope == access.OfWorker, least == access.Worker, name)
	}
}

func TestSecrets(t *testing.T) {
	t.Parallel()

	t.Run("a key is read as it was written, and only as it was written", func(t *testing.T) {
		t.Parallel()
		rapid.Check(t, func(t *rapid.T) {
			made, err := access.NewSecret(bytes.NewReader(rapid.SliceOfN(rapid.Byte(), 40, 40).Draw(t, "random")))
			require.NoError(t, err)
			text := made.Text()
			require.Regexp(t, `^sk_[0-9a-f]{16}_[A-Za-z0-9_-]{43}$`, text)
			read, ok := access.ParseSecret(text)
			require.True(t, ok)
			require.Equal(t, made, read)
			require.True(t, read.Is(made.Digest()))

			at := rapid.IntRange(0, len(text)-1).Draw(t, "at")
			other := rapid.Byte().Draw(t, "other")
			changed := text[:at] + string([]byte{other}) + text[at+1:]
			if read, ok := access.ParseSecret(changed); ok && changed != text {
				require.True(t, read.ID != made.ID || !read.Is(made.Digest()), "another key: %s", changed)
			}
		})
	})

	t.Run("what is no key is not read", func(t *testing.T) {
		t.Parallel()
		good, err := access.NewSecret(rand.Reader)
		require.NoError(t, err)
		text := good.Text()
		for _, bad := range []string{
			"", "sk_", text + "=", text + "A", text[:len(text)-1], " " + text, text + " ", strings.ToUpper(text), strings.Replace(text, "sk_", "pk_", 1),
			"sk_" + good.ID, "sk_" + good.ID + "_", "sk__" + text[20:], "Bearer " + text, text + "\n",
		} {
			_, ok := access.ParseSecret(bad)
			require.False(t, ok, "%q", bad)
		}
	})

	t.Run("no random numbers, no key", func(t *testing.T) {
		t.Parallel()
		_, err := access.NewSecret(bytes.NewReader(make([]byte, 39)))
		require.Error(t, err)
		_, err = access.NewSecret(bytes.NewReader(nil))
		require.Error(t, err)
	})
}

func TestSettings(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 1, 31, 12, 0, 0, 0, time.UTC)
	tenant := id.Of[id.Tenant](uuid.New())
	good := access.Settings{Name: "ci", Role: access.Developer}
	require.NoError(t, good.Validate(tenant, now))
	require.NoError(t, access.Settings{Name: "ops", Role: access.Platform}.Validate(id.Tenant{}, now))
	require.NoError(t, access.Settings{Name: "w", Role: access.Worker, Pools: []string{"a", "b"}}.Validate(id.Tenant{}, now))
	require.NoError(t, access.Settings{Name: "clock", Role: access.Tick}.Validate(id.Tenant{}, now))
	for _, bad := range []struct {
		field string
		owner id.Tenant
		access.Settings
	}{
		{"name", tenant, access.Settings{Role: access.Viewer}},
		{"name", tenant, access.Settings{Name: "a b", Role: access.Viewer}},
		{"name", tenant, access.Settings{Name: "platform/x", Role: access.Viewer}},
		{"name", tenant, access.Settings{Name: strings.Repeat("x", 101), Role: access.Viewer}},
		{"name", tenant, access.Settings{Name: "0123456789abcdef", Role: access.Viewer}},
		{"role", tenant, access.Settings{Name: "x"}},
		{"role", tenant, access.Settings{Name: "x", Role: "root"}},
		{"role", tenant, access.Settings{Name: "x", Role: access.Platform}},
		{"role", id.Tenant{}, access.Settings{Name: "x", Role: access.TenantAdmin}},
		{"workspace", id.Tenant{}, access.Settings{Name: "x", Role: access.Platform, Workspace: "default"}},
		{"pools", tenant, access.Settings{Name: "x", Role: access.Worker}},
		{"role", tenant, access.Settings{Name: "x", Role: access.Tick}},
		{"pools", id.Tenant{}, access.Settings{Name: "x", Role: access.Tick, Pools: []string{"a"}}},
		{"pools", tenant, access.Settings{Name: "x", Role: access.Viewer, Pools: []string{"a"}}},
		{"pools[1]", tenant, access.Settings{Name: "x", Role: access.Worker, Pools: []string{"a", "a"}}},
		{"pools[0]", tenant, access.Settings{Name: "x", Role: access.Worker, Pools: []string{""}}},
		{"expires_in", tenant, access.Settings{Name: "x", Role: access.Viewer, ExpiresAt: now}},
		{"expires_in", tenant, access.Settings{Name: "x", Role: access.Viewer, ExpiresAt: now.Add(access.MaxLife + 1)}},
	} {
		f, ok := fault.As(bad.Validate(bad.owner, now))
		require.True(t, ok, "%+v", bad)
		require.Equal(t, bad.field, f.Violation.Field, "%+v", bad)
		require.NotEmpty(t, f.Violation.Remedy)
	}
}

func TestKeyLife(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 1, 31, 12, 0, 0, 0, time.UTC)
	subject := uuid.New()
	at := func(k access.Key, body event.Body) event.Event {
		return event.Event{Subject: subject, Version: k.Version + 1, At: now, Meta: event.Meta{Actor: "ann"}, Body: body}
	}
	born, err := access.Key{}.Evolve(at(access.Key{}, access.KeyCreated{Key: "0123456789abcdef", Settings: access.Settings{Name: "ci", Role: access.Viewer}}))
	require.NoError(t, err)
	require.Equal(t, access.Active, born.StateAt(now))

	t.Run("a rotated key is accepted for the overlap, and no longer than its own expiry", func(t *testing.T) {
		t.Parallel()
		end, err := born.Rotate(now, time.Hour)
		require.NoError(t, err)
		require.Equal(t, now.Add(time.Hour), end)
		old, err := born.Evolve(at(born, access.KeyRotated{By: "x", ExpiresAt: end}))
		require.NoError(t, err)
		require.Equal(t, access.Retiring, old.StateAt(end.Add(-1)))
		require.Equal(t, access.Expired, old.StateAt(end))
		_, err = old.Rotate(now, time.Hour)
		require.True(t, fault.Is(err, fault.Conflict), err)
		_, err = born.Rotate(now, -1)
		require.True(t, fault.Is(err, fault.InvalidArgument), err)
		_, err = born.Rotate(now, access.MaxOverlap+1)
		require.True(t, fault.Is(err, fault.InvalidArgument), err)
		mortal := born
		mortal.ExpiresAt = now.Add(time.Minute)
		end, err = mortal.Rotate(now, time.Hour)
		require.NoError(t, err)
		require.Equal(t, mortal.ExpiresAt, end)
	})

	t.Run("a revoked key stays revoked", func(t *testing.T) {
		t.Parallel()
		gone, err := born.Evolve(at(born, access.KeyRevoked{}))
		require.NoError(t, err)
		require.Equal(t, access.Revoked, gone.StateAt(now.Add(-time.Hour)))
		for _, body := range []event.Body{access.KeyRevoked{}, access.KeyRotated{}, access.KeyCreated{}} {
			_, err := gone.Evolve(at(gone, body))
			require.ErrorContains(t, err, "unexpected event")
		}
		_, err = access.Key{}.Evolve(at(access.Key{}, access.KeyRevoked{}))
		require.ErrorContains(t, err, "unexpected event")
		_, err = born.Evolve(event.Event{Version: 7, Body: access.KeyRevoked{}})
		require.ErrorContains(t, err, "version 7, expected 2")
	})

	t.Run("no event has room for a secret", func(t *testing.T) {
		t.Parallel()
		for _, body := range []any{access.KeyCreated{}, access.KeyRotated{}, access.KeyRevoked{}} {
			raw, err := json.Marshal(body)
			require.NoError(t, err)
			require.NotContains(t, strings.ToLower(string(raw)), "secret")
			require.NotContains(t, strings.ToLower(string(raw)), "digest")
		}
	})
}

func TestCaller(t *testing.T) {
	t.Parallel()
	acme := id.Of[id.Tenant](uuid.New())
	of := func(role access.Role) access.Caller {
		return access.Key{Tenant: acme, Settings: access.Settings{Name: "k", Role: role}}.Caller("acme")
	}
	read := access.Methods()["/servo.v1.RunService/ListRuns"]
	write := access.Methods()["/servo.v1.RunService/TriggerRun"]

	t.Run("another tenant and an unknown one get the same answer", func(t *testing.T) {
		t.Parallel()
		for _, role := range []access.Role{access.Viewer, access.TenantAdmin} {
			for _, m := range []access.Method{read, write} {
				other, none := of(role).May(m, access.Request{Tenant: "brick"}), of(role).May(m, access.Request{Tenant: "missing"})
				require.True(t, fault.Is(other, fault.NotFound))
				require.Equal(t, strings.ReplaceAll(other.Error(), "brick", "?"), strings.ReplaceAll(none.Error(), "missing", "?"))
			}
		}
	})

	t.Run("a denied call names the missing permission and the roles that have it", func(t *testing.T) {
		t.Parallel()
		f, ok := fault.As(of(access.Viewer).May(write, access.Request{Tenant: "acme"}))
		require.True(t, ok)
		require.Equal(t, fault.Forbidden, f.Code)
		require.Equal(t, map[string]any{"permission": "RUNS_TRIGGER", "role": "operator"}, f.Values)
	})

	t.Run("a key of one workspace does not leave it", func(t *testing.T) {
		t.Parallel()
		c := of(access.TenantAdmin)
		c.Workspaces = []string{"prod"}
		require.NoError(t, c.May(read, access.Request{Tenant: "acme", Workspace: "prod"}))
		require.Error(t, c.May(read, access.Request{Tenant: "acme"}), "all of them")
		require.Error(t, c.May(write, access.Request{Tenant: "acme"}), "the default one")
		require.NoError(t, c.May(write, access.Request{Tenant: "acme", Workspace: "prod"}))
		require.Error(t, c.May(access.Methods()["/servo.v1.KeyService/CreateKey"], access.Request{Tenant: "acme", Workspace: "prod"}), "it would make one that may do more")
		c.Workspaces = []string{"default"}
		require.NoError(t, c.May(write, access.Request{Tenant: "acme"}))
		require.True(t, c.Reaches("default"))
		require.False(t, c.Reaches("prod"))
	})

	t.Run("a worker works for its pools", func(t *testing.T) {
		t.Parallel()
		claim := access.Methods()["/servo.v1.WorkerService/Claim"]
		c := of(access.Worker)
		c.Pools = []string{"a", "b"}
		require.NoError(t, c.May(claim, access.Request{Pools: []string{"b", "a"}}))
		require.True(t, fault.Is(c.May(claim, access.Request{Pools: []string{"a", "c"}}), fault.Forbidden))
		require.True(t, fault.Is(c.May(read, access.Request{Tenant: "acme"}), fault.Forbidden))
		upstream := access.Methods()["/servo.v1.TaskService/GetTask"]
		require.NoError(t, c.May(upstream, access.Request{Tenant: "acme"}))
		require.True(t, fault.Is(c.May(upstream, access.Request{Tenant: "brick"}), fault.NotFound))
		require.True(t, fault.Is(of(access.TenantAdmin).May(claim, access.Request{Pools: []string{"a"}}), fault.Forbidden))
	})

	t.Run("what names no tenant is for the platform", func(t *testing.T) {
		t.Parallel()
		keys := access.Methods()["/servo.v1.KeyService/CreateKey"]
		require.NoError(t, of(access.TenantAdmin).May(keys, access.Request{}))
		require.True(t, fault.Is(of(access.TenantAdmin).ForAll(keys, access.Request{}), fault.Forbidden))
		require.NoError(t, of(access.TenantAdmin).ForAll(keys, access.Request{Tenant: "acme"}))
		require.NoError(t, access.Open().ForAll(keys, access.Request{}))
	})

	t.Run("a call without a line in the table is refused to all but the platform, and the empty role has no permission", func(t *testing.T) {
		t.Parallel()
		require.True(t, fault.Is(of(access.TenantAdmin).May(access.Method{}, access.Request{}), fault.Forbidden))
		require.True(t, fault.Is(access.Caller{}.May(read, access.Request{Tenant: "acme"}), fault.NotFound))
		require.True(t, fault.Is(access.Caller{}.May(access.Methods()["/servo.v1.TenantService/ListTenants"], access.Request{}), fault.Forbidden))
	})

	t.Run("a tenant cannot name a key so that it looks like one of the installation", func(t *testing.T) {
		t.Parallel()
		require.Equal(t, "key/k", of(access.TenantAdmin).Actor)
		require.Equal(t, "platform/k", access.Key{Settings: access.Settings{Name: "k", Role: access.Platform}}.Caller("").Actor)
	})
}
