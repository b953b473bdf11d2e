package engine_test

import (
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"go.arco.dev/servo/internal/base/event"
	"go.arco.dev/servo/internal/base/id"
	"go.arco.dev/servo/internal/devkit/servotest"
	"go.arco.dev/servo/internal/devkit/servotest/verifytest"
	"go.arco.dev/servo/internal/domain/asset"
	"go.arco.dev/servo/internal/domain/fair"
	"go.arco.dev/servo/internal/domain/platform"
	"go.arco.dev/servo/internal/domain/run"
	"go.arco.dev/servo/internal/domain/tenant"
	"go.arco.dev/servo/internal/engine"
	"go.arco.dev/servo/internal/store"
)

// market is a database with tenants that compete for a pool.
type market struct {
	*bundle

	tenants map[string]id.Tenant
}

func newMarket(t *testing.T, config engine.Config, names ...string) *market {
	t.Helper()
	m := &market{bundle: setupOn(t, servotest.DB(t), config), tenants: map[string]id.Tenant{}}
	m.tenants["acme"] = m.tenant
	for _, name := range names {
		created, err := m.CreateTenant(t.Context(), name, event.Meta{})
		require.NoError(t, err)
		m.tenants[name] = created
		manifest, err := asset.Parse([]byte(manifestText), "servo.yaml")
		require.NoError(t, err)
		_, err = m.Deploy(t.Context(), created, "default", manifest, event.Meta{})
		require.NoError(t, err)
	}
	return m
}

// ready gives a tenant n ready tasks.
func (m *market) ready(t *testing.T, name string, n int, priority int16) {
	t.Helper()
	triggers := make([]engine.Trigger, n)
	for i := range triggers {
		triggers[i] = engine.Trigger{Tenant: m.tenants[name], Select: []string{"s/one"}, Priority: priority}
	}
	_, errs := m.TriggerRuns(t.Context(), triggers)
	for _, err := range errs {
		require.NoError(t, err)
	}
}

// admitAll makes rounds until nothing more is admitted.
func (m *market) admitAll(t *testing.T) {
	t.Helper()
	for n := m.admit(t); n > 0; n = m.admit(t) {
		require.Less(t, n, 1000)
	}
}

// queued counts a tenant's tasks in the pool's queue.
func (m *market) queued(t *testing.T, name string) int {
	t.Helper()
	return m.db.Count(t, `SELECT count(*) FROM servo.pool_q q JOIN servo.tenants n ON n.id = q.tenant_id WHERE n.name = $1`, name)
}

func (m *market) inFlight(t *testing.T, name string) int {
	t.Helper()
	return m.db.Count(t, `SELECT coalesce(sum(in_flight), 0) FROM servo.shares s JOIN servo.tenants n ON n.id = s.tenant_id WHERE n.name = $1`, name)
}

func (m *market) quotas(t *testing.T, name string, change func(*tenant.Quotas)) {
	t.Helper()
	q := tenant.NoLimits()
	change(&q)
	version := m.db.Count(t, `SELECT version FROM servo.tenants WHERE name = $1`, name)
	_, err := m.SetQuotas(t.Context(), m.tenants[name], q, int32(version), event.Meta{})
	require.NoError(t, err)
}

// names of the tenants of leases, in their order.
func (m *market) names(leases []engine.Lease) []string {
	out := make([]string, len(leases))
	for i, l := range leases {
		for name, of := range m.tenants {
			if of == l.Tenant {
				out[i] = name
			}
		}
	}
	return out
}

func TestAdmit(t *testing.T) {
	t.Parallel()

	t.Run("who comes late is served next, not after the backlog", func(t *testing.T) {
		t.Parallel()
		m := newMarket(t, engine.Config{QueueWithoutWorkers: 4}, "late")
		m.ready(t, "acme", 50, 0)
		require.Equal(t, 4, m.admit(t), "no more than is taken soon")
		require.Zero(t, m.admit(t))
		m.claim(t, 4, true)
		m.ready(t, "late", 2, 0)
		require.Equal(t, 4, m.admit(t))
		require.Equal(t, 2, m.queued(t, "late"))
		require.Equal(t, []string{"late", "acme"}, m.names(m.claim(t, 2, true)), "it comes before tenants served lately, and then in turns")
	})

	t.Run("a quota is counted over what is queued, dispatched and running, and freed by every way out", func(t *testing.T) {
		t.Parallel()
		m := newMarket(t, engine.Config{})
		m.quotas(t, "acme", func(q *tenant.Quotas) { q.MaxConcurrentTasks = 3 })
		m.ready(t, "acme", 20, 0)
		require.Equal(t, 3, m.admit(t))
		leases := m.claim(t, 2, true)
		require.Zero(t, m.admit(t))

		m.report(t, leases[0], engine.Complete{})
		require.Equal(t, 1, m.admit(t), "ended")
		m.report(t, leases[1], engine.Yield{})
		require.Equal(t, 1, m.admit(t), "given back")
		leases = m.claim(t, 1, true)
		m.report(t, leases[0], engine.Fail{Failure: run.Failure{Code: "NETWORK_ERROR"}})
		require.Equal(t, 1, m.admit(t), "waiting for a retry")
		queued := m.db.Count(t, `SELECT count(*) FROM servo.pool_q`)
		require.Equal(t, 3, queued)
		m.quotas(t, "acme", func(q *tenant.Quotas) { q.MaxConcurrentTasks = 0 })
		m.drainOne(t)
		require.Zero(t, m.admit(t), "0 isolates a tenant")
		require.Equal(t, 2, m.inFlight(t, "acme"))
		verifytest.Clean(t, m.db)
	})

	t.Run("a tenant whose quota is used up leaves the round to the others", func(t *testing.T) {
		t.Parallel()
		m := newMarket(t, engine.Config{QueueWithoutWorkers: 20}, "other")
		m.quotas(t, "acme", func(q *tenant.Quotas) { q.MaxConcurrentTasks = 2 })
		m.ready(t, "acme", 10, 0)
		m.ready(t, "other", 30, 0)
		m.admitAll(t)
		require.Equal(t, 2, m.queued(t, "acme"))
		require.Equal(t, 18, m.queued(t, "other"))
	})

	t.Run("within a tenant the urgent come first", func(t *testing.T) {
		t.Parallel()
		m := newMarket(t, engine.Config{QueueWithoutWorkers: 1})
		m.ready(t, "acme", 3, 1)
		m.ready(t, "acme", 1, 9)
		m.admit(t)
		require.Equal(t, 1, m.db.Count(t, `SELECT count(*) FROM servo.pool_q WHERE priority = 9`))
	})

	t.Run("a pool's own limit holds over all tenants", func(t *testing.T) {
		t.Parallel()
		m := newMarket(t, engine.Config{}, "other")
		_, err := m.CreatePool(t.Context(), "default", platform.PoolSettings{Kind: platform.Pull, MaxConcurrency: 3, TimeoutSeconds: 30}, event.Meta{})
		require.NoError(t, err)
		m.ready(t, "acme", 5, 0)
		m.ready(t, "other", 5, 0)
		require.Equal(t, 3, m.admit(t))
		require.Zero(t, m.admit(t))
		m.claim(t, 3, true)
		require.Zero(t, m.admit(t))
	})

	t.Run("queues are as long as the pool's workers are wide", func(t *testing.T) {
		t.Parallel()
		m := newMarket(t, engine.Config{QueueWithoutWorkers: 7, QueueTarget: 30})
		m.ready(t, "acme", 60, 0)
		m.admitAll(t)
		require.Equal(t, 7, m.queued(t, "acme"), "for the first that comes")
		m.db.Exec(t, `INSERT INTO servo.workers (name, pool, slots, first_seen, seen_at) VALUES ('w', 'default', 10, servo.clock(), servo.clock())`)
		m.admitAll(t)
		require.Equal(t, 12, m.queued(t, "acme"), "what they can take at once, and a quarter of their capacity")
		m.db.Exec(t, `UPDATE servo.workers SET slots = 1000`)
		m.admitAll(t)
		require.Equal(t, 30, m.queued(t, "acme"))
	})

	t.Run("a tenant that arrives waits behind what is taken at once, and a quarter of the capacity or three rounds", func(t *testing.T) {
		t.Parallel()
		config := engine.Config{QueueTarget: 5000, QueueWithoutWorkers: 100}
		for want, pool := range map[int]store.PoolRoom{
			100:  {},                                                     // no worker was seen
			125:  {PoolWorkers: 1, PoolCapacity: 100},                    // all of it is free
			25:   {PoolWorkers: 1, PoolCapacity: 100, PoolInFlight: 100}, // none of it
			60:   {PoolWorkers: 1, PoolCapacity: 100, PoolInFlight: 75, PoolQueued: 10, PoolAhead: 3},
			90:   {PoolWorkers: 1, PoolCapacity: 32, PoolInFlight: 32, PoolAhead: 90}, // short tasks
			1:    {PoolWorkers: 1, PoolCapacity: 1, PoolInFlight: 1},
			5000: {PoolWorkers: 1, PoolCapacity: 100_000},
		} {
			require.Equal(t, want, config.PoolTarget(pool), "%+v", pool)
		}
	})

	t.Run("a round reads as many tenants as it can serve, and all of them in turn", func(t *testing.T) {
		t.Parallel()
		names := make([]string, 12)
		for i := range names {
			names[i] = fmt.Sprintf("tenant-%d", i)
		}
		m := newMarket(t, engine.Config{QueueWithoutWorkers: 2}, names...)
		for _, name := range names {
			m.ready(t, name, 2, 0)
		}
		served := map[string]int{}
		for range 24 / 2 {
			require.Equal(t, 2, m.admit(t))
			for _, name := range m.names(m.claim(t, 2, true)) {
				served[name]++
			}
			if len(served) < len(names) {
				require.Equal(t, 1, slices.Max(slices.Collect(maps.Values(served))), "none is served twice before each was served once")
			}
		}
		require.Len(t, served, len(names))
		require.Zero(t, m.admit(t))
		require.Zero(t, m.db.Count(t, `SELECT count(*) FROM servo.shares WHERE waits`), "all have left the order")
	})

	t.Run("a patient task starts within its bound under a steady load of urgent ones", func(t *testing.T) {
		t.Parallel()
		m := newMarket(t, engine.Config{QueueWithoutWorkers: 1})
		const patient = 3
		m.ready(t, "acme", patient, 1)
		started := 0
		for range fair.OldestEvery * patient {
			m.ready(t, "acme", 2, 10) // more than are served
			require.Equal(t, 1, m.admit(t))
			m.claim(t, 1, true)
			started = m.db.Count(t, `SELECT count(*) FROM servo.leases WHERE priority = 1`)
		}
		require.Equal(t, patient, started)
		require.Equal(t, fair.OldestEvery*patient-patient, m.db.Count(t, `SELECT count(*) FROM servo.leases WHERE priority = 10`), "and no more than that")
		verifytest.Clean(t, m.db)
	})

	t.Run("a tenant without room in its quota is not read again before it has room", func(t *testing.T) {
		t.Parallel()
		m := newMarket(t, engine.Config{QueueWithoutWorkers: 1}, "one", "two", "three")
		for name := range m.tenants {
			m.quotas(t, name, func(q *tenant.Quotas) { q.MaxConcurrentTasks = 0 })
			m.ready(t, name, 1, 0)
		}
		m.quotas(t, "two", func(q *tenant.Quotas) { q.MaxConcurrentTasks = 1 })
		for range 3 {
			m.admit(t)
		}
		require.Equal(t, 1, m.queued(t, "two"), "the others do not hide it")
		require.Equal(t, 3, m.db.Count(t, `SELECT count(*) FROM servo.shares WHERE waits AND over_quota`))
		m.quotas(t, "three", func(q *tenant.Quotas) { q.MaxConcurrentTasks = 1 })
		m.claim(t, 1, true)
		m.admitAll(t)
		require.Equal(t, 1, m.queued(t, "three"))
		verifytest.Clean(t, m.db)
	})

	t.Run("the next holder of the duty counts the tasks in flight", func(t *testing.T) {
		t.Parallel()
		m := newMarket(t, engine.Config{})
		m.quotas(t, "acme", func(q *tenant.Quotas) { q.MaxConcurrentTasks = 4 })
		m.ready(t, "acme", 10, 0)
		require.Equal(t, 4, m.admit(t))
		m.db.Exec(t, `UPDATE servo.shares SET in_flight = 1`) // as after a repair
		require.NoError(t, m.RecountShares(t.Context(), m.duty))
		require.Zero(t, m.admit(t))
		m.db.Exec(t, `UPDATE servo.shares SET in_flight = 9`)
		m.drainOne(t) // and its note is not folded in yet
		require.NoError(t, m.RecountShares(t.Context(), m.duty))
		require.Equal(t, 1, m.admit(t))
		require.Equal(t, 4, m.inFlight(t, "acme"))
	})
}

// drainOne claims and completes one task.
func (m *market) drainOne(t *testing.T) {
	t.Helper()
	leases := m.claim(t, 1, true)
	require.Len(t, leases, 1)
	m.report(t, leases[0], engine.Complete{})
}

// TestWeights: three tenants with weights 1:2:4 and tasks of unequal length share ten slots;
// the length of a task is not known in advance. The database's clock is moved by hand.
func TestWeights(t *testing.T) {
	t.Parallel()
	m := newMarket(t, engine.Config{QueueWithoutWorkers: 10}, "two", "four")
	weights := map[string]float64{"acme": 1, "two": 2, "four": 4}
	length := map[string]time.Duration{"acme": 4 * time.Second, "two": time.Second, "four": 2 * time.Second}
	for name, weight := range weights {
		m.quotas(t, name, func(q *tenant.Quotas) { q.FairnessWeight = weight })
		m.ready(t, name, 700, 0)
	}
	type running struct {
		engine.Lease

		until time.Time
	}
	now := time.Date(2026, 11, 15, 12, 0, 0, 0, time.UTC)
	m.db.SetClock(t, now)
	var slots []running
	served, total := map[string]time.Duration{}, time.Duration(0)
	for tasks := 0; tasks < 700; {
		m.admit(t)
		if free := 10 - len(slots); free > 0 {
			for _, l := range m.claim(t, free, true) {
				slots = append(slots, running{l, now.Add(length[m.names([]engine.Lease{l})[0]])})
			}
		}
		slices.SortFunc(slots, func(a, b running) int { return a.until.Compare(b.until) })
		now = slots[0].until
		m.db.SetClock(t, now)
		var done []engine.Report
		for len(slots) > 0 && !slots[0].until.After(now) {
			name := m.names([]engine.Lease{slots[0].Lease})[0]
			served[name] += length[name]
			total += length[name]
			done = append(done, report(slots[0].Lease, engine.Complete{}))
			slots = slots[1:]
			tasks++
		}
		_, errs := m.Report(t.Context(), done)
		for _, err := range errs {
			require.NoError(t, err)
		}
	}
	for name, weight := range weights {
		require.InDelta(t, weight/7, float64(served[name])/float64(total), 0.05, "%s of %v", name, served)
	}
	verifytest.Clean(t, m.db)
}

// TestQuotaOverPools: a quota is for all pools together, and no pool takes what another needs.
func TestQuotaOverPools(t *testing.T) {
	t.Parallel()
	m := newMarket(t, engine.Config{})
	m.trigger(t, "fan")
	m.report(t, m.one(t), engine.FanOut{Tasks: pages(0, 20)}) // in the pool fetch
	m.ready(t, "acme", 20, 0)
	m.quotas(t, "acme", func(q *tenant.Quotas) { q.MaxConcurrentTasks = 11 })
	m.admitAll(t)
	require.Equal(t, 10, m.queued(t, "acme"), "one is leased")
	require.Equal(t, 5, m.db.Count(t, `SELECT count(*) FROM servo.pool_q WHERE pool = 'fetch'`))
	m.quotas(t, "acme", func(q *tenant.Quotas) { q.MaxConcurrentTasks = tenant.Unlimited })
	m.admitAll(t)
	require.Equal(t, 40, m.queued(t, "acme"))
}
