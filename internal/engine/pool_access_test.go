package engine_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"go.arco.dev/servo/internal/base/fault"
	"go.arco.dev/servo/internal/base/id"
	"go.arco.dev/servo/internal/devkit/servotest/verifytest"
	"go.arco.dev/servo/internal/domain/asset"
	"go.arco.dev/servo/internal/domain/config"
	"go.arco.dev/servo/internal/domain/platform"
	"go.arco.dev/servo/internal/domain/run"
	"go.arco.dev/servo/internal/engine"
)

// accessManifest has a chain whose second task is in another pool.
const accessManifest = `
version: 1
assets:
  - {key: c/first, exec: {command: [run]}}
  - {key: c/second, exec: {command: [run]}, pool: gpu, upstream: [c/first]}
  - {key: g/one, exec: {command: [run]}, pool: gpu}
pipelines:
  - {name: chain, overlap: allow, select: ["c/*"]}
  - {name: gpu, overlap: allow, select: [g/one]}
`

// restricted makes the pool gpu one that accepts another tenant only.
func (b *bundle) restricted(t *testing.T) (other id.Tenant) {
	t.Helper()
	other, err := b.CreateTenant(t.Context(), "bravo", engineMeta)
	require.NoError(t, err)
	_, err = b.CreatePool(t.Context(), "gpu", platform.PoolSettings{
		Kind: platform.Pull, MaxConcurrency: platform.NoLimit, TimeoutSeconds: 30, Tenants: []id.Tenant{other},
	}, engineMeta)
	require.NoError(t, err)
	return other
}

// shared lets all tenants use the pool gpu.
func (b *bundle) shared(t *testing.T) {
	t.Helper()
	_, err := b.ChangePool(t.Context(), "gpu", 0, func(p *platform.PoolSettings) { p.Owner, p.Tenants = id.Tenant{}, nil }, engineMeta)
	require.NoError(t, err)
}

func (b *bundle) claimGPU(t *testing.T, of id.Tenant) []engine.Lease {
	t.Helper()
	leases, err := b.Claim(t.Context(), engine.ClaimRequest{Worker: "w2", Claim: newClaim(), Pools: []string{"gpu"}, Tenant: of, Max: 10, Start: true})
	require.NoError(t, err)
	return leases
}

func TestPoolAccess(t *testing.T) {
	t.Parallel()

	t.Run("each asset of a manifest whose pool is not for the tenant is refused by its field", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		b.restricted(t)
		manifest, err := asset.Parse([]byte(accessManifest), "servo.yaml")
		require.NoError(t, err)
		_, err = b.Deploy(t.Context(), b.tenant, "default", manifest, engineMeta)
		refused, ok := fault.As(err)
		require.True(t, ok, err)
		require.Equal(t, fault.Forbidden, refused.Code)
		require.Len(t, refused.Violations(), 2)
		require.Equal(t, "assets[c/second].pool", refused.Field)
		require.Equal(t, `pool "gpu" is shared with listed tenants and does not accept tasks of tenant "acme"`, refused.Message)
		require.Equal(t, `use a shared pool, or ask the platform team to share "gpu" with "acme"`, refused.Remedy)
	})

	t.Run("a handoff leases no task of a tenant that may not use the pool", func(t *testing.T) {
		t.Parallel()
		b := setupInline(t)
		b.deploy(t, accessManifest)
		key := b.trigger(t, "chain")
		first := b.one(t)
		b.restricted(t)
		got := b.waitingClaim(t, engine.ClaimRequest{Pools: []string{"gpu"}, Max: 1})
		b.report(t, first, engine.Complete{})
		require.Zero(t, b.admit(t))
		require.Empty(t, b.claimGPU(t, id.Tenant{}))
		why, err := b.WhyRun(t.Context(), key)
		require.NoError(t, err)
		require.Equal(t, engine.BlockedByAccess, why.Blockers[0].Code)
		b.shared(t)
		require.Equal(t, 1, b.admit(t))
		require.Equal(t, "c/second", (<-got)[0].Asset)
		verifytest.Clean(t, b.db)
	})

	t.Run("a worker of one tenant gets no task of another, queued or handed off", func(t *testing.T) {
		t.Parallel()
		b := setupInline(t)
		b.deploy(t, accessManifest)
		other, err := b.CreateTenant(t.Context(), "bravo", engineMeta)
		require.NoError(t, err)
		mine := b.waitingClaim(t, engine.ClaimRequest{Pools: []string{"gpu"}, Tenant: other, Max: 1})
		b.trigger(t, "gpu")
		b.admit(t)
		require.Empty(t, b.claimGPU(t, other))
		require.Len(t, b.claimGPU(t, b.tenant), 1)
		require.Empty(t, mine)
	})

	t.Run("queued tasks go back to ready, and free the quota and the pool", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		b.deploy(t, accessManifest)
		for range 3 {
			b.trigger(t, "gpu")
		}
		require.Equal(t, 3, b.admit(t))
		held := b.claimGPU(t, id.Tenant{})[:1]
		b.report(t, held[0], engine.Complete{})
		for range 2 {
			b.trigger(t, "gpu")
		}
		require.Equal(t, 2, b.admit(t))
		require.Equal(t, 4, b.inFlight(t), "two are leased, two queued")
		b.restricted(t)
		require.Empty(t, b.claimGPU(t, id.Tenant{}))
		looked, err := b.WithdrawQueued(t.Context(), 100)
		require.NoError(t, err)
		require.Equal(t, 2, looked)
		require.Zero(t, b.admit(t))
		require.Equal(t, 2, b.inFlight(t), "what workers hold stays with them")
		require.Equal(t, 2, b.events(t)["task.withdrawn"])
		again, err := b.WithdrawQueued(t.Context(), 100)
		require.NoError(t, err)
		require.Zero(t, again)
		verifytest.Clean(t, b.db)
	})

	t.Run("a slot of a config whose pool is not for the tenant any more is recorded with the reason", func(t *testing.T) {
		t.Parallel()
		w := newClockwork(t)
		w.deploy(t, accessManifest)
		w.save(t, "hourly", config.Spec{Pipeline: "gpu"})
		w.restricted(t)
		w.forward(t, time.Minute)
		w.fire(t)
		require.Equal(t, []string{"00:01 ERROR"}, w.slots(t, "hourly"))
		c := w.get(t, "hourly")
		entries, err := w.db.ListSlots(t.Context(), c.Key(), time.Time{}, w.now.AddDate(1, 0, 0), 10)
		require.NoError(t, err)
		require.Contains(t, entries[0].Reason, `pool "gpu" is shared with listed tenants`)
		require.EqualValues(t, 1, c.Failures)
	})

	t.Run("a config that runs after another counts a run that its pool refuses", func(t *testing.T) {
		t.Parallel()
		w := newClockwork(t)
		w.deploy(t, accessManifest+`  - {name: source, overlap: allow, select: [c/first]}`)
		w.save(t, "source", config.Spec{Pipeline: "source"})
		w.save(t, "after", config.Spec{Pipeline: "gpu", Trigger: config.Trigger{Event: &config.Event{Config: "source"}}})
		w.restricted(t)
		w.forward(t, time.Minute)
		w.fire(t)
		w.finish(t, engine.Complete{})
		require.EqualValues(t, 1, w.get(t, "after").Failures)
		require.Zero(t, w.get(t, "source").Failures)
	})

	t.Run("a retry and a trigger of a config are refused", func(t *testing.T) {
		t.Parallel()
		w := newClockwork(t)
		w.deploy(t, accessManifest)
		c := w.save(t, "hourly", config.Spec{Pipeline: "gpu"})
		key := w.trigger(t, "gpu")
		w.admit(t)
		w.report(t, w.claimGPU(t, id.Tenant{})[0], engine.Fail{Failure: run.Failure{Code: "USER_CODE_EXCEPTION"}})
		w.restricted(t)
		_, err := w.RetryRun(t.Context(), engine.RetryRun{Tenant: w.tenant, Run: key.Run, Mode: engine.RetryFailed, Meta: engineMeta})
		require.True(t, fault.Is(err, fault.Forbidden), err)
		_, err = w.TriggerConfig(t.Context(), w.tenant, c.ID, engine.Trigger{Meta: engineMeta})
		require.True(t, fault.Is(err, fault.Forbidden), err)
	})
}
