package engine_test

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"go.arco.dev/servo/internal/base/id"
	"go.arco.dev/servo/internal/devkit/servotest/verifytest"
	"go.arco.dev/servo/internal/domain/asset"
	"go.arco.dev/servo/internal/domain/tenant"
	"go.arco.dev/servo/internal/engine"
)

// backlog creates single-task runs whose tasks stay ready: a server without handoff creates them.
func (b *bundle) backlog(t *testing.T, of id.Tenant, n int) {
	t.Helper()
	other := engine.New(b.db.Store, engine.Config{}, nil)
	t.Cleanup(other.Stop)
	triggers := make([]engine.Trigger, n)
	for i := range triggers {
		triggers[i] = engine.Trigger{Tenant: of, Pipeline: "single"}
	}
	_, errs := other.TriggerRuns(t.Context(), triggers)
	for _, err := range errs {
		require.NoError(t, err)
	}
}

// neighbour is another tenant with the same pipelines.
func (b *bundle) neighbour(t *testing.T) id.Tenant {
	t.Helper()
	other := b.otherTenant(t)
	manifest, err := asset.Parse([]byte(manifestText), "servo.yaml")
	require.NoError(t, err)
	_, err = b.Deploy(t.Context(), other, "default", manifest, engineMeta)
	require.NoError(t, err)
	return other
}

func (b *bundle) rows(t *testing.T, table string) int {
	t.Helper()
	return b.db.Count(t, `SELECT count(*) FROM servo.`+table)
}

func TestClaimsAdmit(t *testing.T) {
	t.Parallel()

	t.Run("a claim leases ready tasks without the queue, with all events", func(t *testing.T) {
		t.Parallel()
		b := setupInline(t)
		b.backlog(t, b.tenant, 3)
		leases := b.claim(t, 2, true)
		require.Len(t, leases, 2)
		require.Equal(t, "s/one", leases[0].Asset)
		require.NotEmpty(t, leases[0].Code.Key)
		require.Equal(t, []int{1, 0, 2}, []int{b.rows(t, "ready_q"), b.rows(t, "pool_q"), b.rows(t, "leases")})
		require.Equal(t, map[string]int{"run.created": 3, "task.queued": 2, "task.claimed": 2}, b.events(t))
		require.Equal(t, 2, b.inFlight(t))
		verifytest.Clean(t, b.db)
		require.Len(t, b.claim(t, 2, true), 1)
		for _, l := range leases {
			b.report(t, l, engine.Complete{})
		}
		verifytest.Clean(t, b.db)
	})

	t.Run("a claim takes the queue first, and fills up with ready tasks", func(t *testing.T) {
		t.Parallel()
		b := setupInline(t)
		b.trigger(t, "single") // queued by its own transaction
		require.Equal(t, 1, b.rows(t, "pool_q"))
		b.backlog(t, b.tenant, 2)
		require.Len(t, b.claim(t, 5, true), 3)
		verifytest.Clean(t, b.db)
	})

	t.Run("a repeated claim gets its leases and no more", func(t *testing.T) {
		t.Parallel()
		b := setupInline(t)
		b.backlog(t, b.tenant, 3)
		request := engine.ClaimRequest{Worker: "w1", Claim: newClaim(), Pools: []string{"default"}, Max: 2, Start: true}
		first, err := b.Claim(t.Context(), request)
		require.NoError(t, err)
		again, err := b.Claim(t.Context(), request)
		require.NoError(t, err)
		require.Len(t, again, 2)
		require.Equal(t, first[0].Token, again[0].Token)
		require.Equal(t, 1, b.rows(t, "ready_q"))
	})

	t.Run("tenants take turns", func(t *testing.T) {
		t.Parallel()
		b := setupInline(t)
		other := b.neighbour(t)
		b.backlog(t, b.tenant, 8)
		b.backlog(t, other, 2)
		of := map[id.Tenant]int{}
		for _, l := range b.claim(t, 4, true) {
			of[l.Tenant]++
		}
		require.Equal(t, map[id.Tenant]int{b.tenant: 2, other: 2}, of)
	})

	t.Run("a worker of one tenant gets its tasks, regardless of the next tenant", func(t *testing.T) {
		t.Parallel()
		b := setupInline(t)
		other := b.neighbour(t)
		b.backlog(t, b.tenant, 3)
		b.backlog(t, other, 2)
		leases, err := b.Claim(t.Context(), engine.ClaimRequest{Worker: "w1", Claim: newClaim(), Pools: []string{"default"}, Max: 5, Start: true, Tenant: other})
		require.NoError(t, err)
		require.Len(t, leases, 2)
		require.Equal(t, other, leases[0].Tenant)
		require.Equal(t, 3, b.rows(t, "ready_q"))
	})

	t.Run("a worker gets only what it can run, and the rest is neither queued nor charged", func(t *testing.T) {
		t.Parallel()
		b := setupInline(t)
		b.backlog(t, b.tenant, 2)
		b.db.Exec(t, `INSERT INTO servo.workers (name, pool, slots, first_seen, seen_at) VALUES ('w', 'default', 10, servo.clock(), servo.clock())`)
		leases, err := b.Claim(t.Context(), engine.ClaimRequest{Worker: "w1", Claim: newClaim(), Pools: []string{"default"}, Max: 5, Start: true, Capabilities: []string{"http"}})
		require.NoError(t, err)
		require.Empty(t, leases)
		require.Equal(t, []int{2, 0, 0}, []int{b.rows(t, "ready_q"), b.rows(t, "pool_q"), b.inFlight(t)})
		require.Len(t, b.claim(t, 5, true), 2)
	})

	t.Run("tasks of a paused asset, and all tasks while dispatch is off, stay ready", func(t *testing.T) {
		t.Parallel()
		b := setupInline(t)
		b.backlog(t, b.tenant, 2)
		_, err := b.PauseDispatch(t.Context(), engine.Turn{Meta: engineMeta})
		require.NoError(t, err)
		require.Empty(t, b.claim(t, 5, true))
		_, err = b.ResumeDispatch(t.Context(), engine.Turn{Meta: engineMeta})
		require.NoError(t, err)
		_, err = b.PauseAsset(t.Context(), engine.AssetPause{Tenant: b.tenant, Workspace: "default", Asset: "s/one", Meta: engineMeta})
		require.NoError(t, err)
		require.Empty(t, b.claim(t, 5, true))
		require.Equal(t, 2, b.db.Count(t, `SELECT count(*) FROM servo.ready_q WHERE held`))
		verifytest.Clean(t, b.db)
	})

	t.Run("while another transaction admits a claim waits, and looks again", func(t *testing.T) {
		t.Parallel()
		b := setupInline(t)
		b.backlog(t, b.tenant, 1)
		tx, err := b.db.Connect(t).Begin(t.Context())
		require.NoError(t, err)
		_, err = tx.Exec(t.Context(), `SELECT FROM servo.duties WHERE name = 'admission' FOR NO KEY UPDATE`)
		require.NoError(t, err)
		got := b.waitingClaim(t, engine.ClaimRequest{Max: 1})
		require.Equal(t, 1, b.rows(t, "ready_q"))
		require.NoError(t, tx.Rollback(t.Context()))
		require.Len(t, <-got, 1)
	})

	t.Run("the admission loop leaves a pool with workers to their claims, until none of them admits", func(t *testing.T) {
		t.Parallel()
		b := setupInline(t)
		b.backlog(t, b.tenant, 3)
		b.db.Exec(t, `INSERT INTO servo.workers (name, pool, slots, first_seen, seen_at) VALUES ('w', 'default', 10, servo.clock(), servo.clock())`)
		require.Zero(t, b.admit(t))
		for b.rows(t, "pool_q") == 0 { // bounded by the timeout of the test
			require.NoError(t, t.Context().Err())
			b.admit(t)
		}
		require.Equal(t, 3, b.rows(t, "pool_q"))
	})
}

// TestClaimsAdmitQuota has claims of two servers, the admission loop and reports run against one quota.
func TestClaimsAdmitQuota(t *testing.T) {
	t.Parallel()
	const limit, tasks, workers = 7, 150, 6
	b := setupInline(t)
	b.limited(t, func(q *tenant.Quotas) { q.MaxConcurrentTasks = limit })
	second := engine.New(b.db.Store, engine.Config{Handoff: true}, nil)
	t.Cleanup(second.Stop)
	b.backlog(t, b.tenant, tasks)

	var done, most atomic.Int64
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var group sync.WaitGroup
	for i := range workers {
		server := []*engine.Engine{b.Engine, second}[i%2]
		group.Go(func() {
			for done.Load() < tasks && ctx.Err() == nil {
				leases, err := server.Claim(ctx, engine.ClaimRequest{
					Worker: "w", Claim: newClaim(), Pools: []string{"default"}, Max: 3, Start: true, Wait: 50 * time.Millisecond,
				})
				if err != nil {
					continue
				}
				for _, l := range leases {
					if _, err := server.ReportOne(ctx, report(l, engine.Complete{})); err == nil {
						done.Add(1)
					}
				}
			}
		})
	}
	group.Go(func() {
		for done.Load() < tasks && ctx.Err() == nil {
			_, _, _ = b.Admit(ctx, b.duty, 1000)
			in := b.db.Count(t, `SELECT (SELECT count(*) FROM servo.leases) + (SELECT count(*) FROM servo.pool_q)`)
			most.Store(max(most.Load(), int64(in)))
		}
	})
	group.Wait()
	require.EqualValues(t, tasks, done.Load())
	require.LessOrEqual(t, most.Load(), int64(limit))
	verifytest.Clean(t, b.db)
}
