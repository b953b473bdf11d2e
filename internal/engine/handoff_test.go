package engine_test

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"go.arco.dev/servo/internal/base/id"
	"go.arco.dev/servo/internal/devkit/servotest"
	"go.arco.dev/servo/internal/devkit/servotest/verifytest"
	"go.arco.dev/servo/internal/domain/run"
	"go.arco.dev/servo/internal/domain/tenant"
	"go.arco.dev/servo/internal/engine"
)

func setupInline(t *testing.T) *bundle {
	t.Helper()
	return setupOn(t, servotest.DB(t), engine.Config{Handoff: true})
}

// waitingClaim has a claim wait and gives what it gets, once it waits.
func (b *bundle) waitingClaim(t *testing.T, r engine.ClaimRequest) <-chan []engine.Lease {
	t.Helper()
	r.Worker, r.Wait, r.Start = "w1", time.Minute, true
	if r.Claim == (id.Claim{}) {
		r.Claim = newClaim()
	}
	if r.Pools == nil {
		r.Pools = []string{"default"}
	}
	before := b.WaitingClaims()
	got := make(chan []engine.Lease, 1)
	ctx := t.Context()
	go func() {
		leases, err := b.Claim(ctx, r)
		if err == nil {
			got <- leases
		}
		close(got)
	}()
	for b.WaitingClaims() == before {
		require.NoError(t, ctx.Err())
		time.Sleep(time.Millisecond)
	}
	return got
}

func (b *bundle) events(t *testing.T) map[string]int {
	t.Helper()
	found := map[string]int{}
	for _, name := range b.db.Texts(t, `SELECT type FROM servo.run_events`) {
		found[name]++
	}
	return found
}

// inFlight is what admission has counted.
func (b *bundle) inFlight(t *testing.T) int {
	t.Helper()
	return b.db.Count(t, `SELECT coalesce(sum(in_flight), 0) FROM servo.shares`)
}

func TestHandoff(t *testing.T) {
	t.Parallel()

	t.Run("a task goes from its trigger to a claim that waits in one transaction", func(t *testing.T) {
		t.Parallel()
		b := setupInline(t)
		got := b.waitingClaim(t, engine.ClaimRequest{Max: 10})
		before := b.db.Stats().Transactions
		key := b.trigger(t, "single")
		leases := <-got
		require.EqualValues(t, 1, b.db.Stats().Transactions-before)
		require.Len(t, leases, 1)
		require.True(t, leases[0].Started)
		require.Equal(t, "s/one", leases[0].Asset)
		require.Equal(t, []string{"run"}, leases[0].Code.Exec.Command)
		require.Equal(t, time.Minute, leases[0].Timeout)
		b.requireStates(t, key, run.RunRunning, "s/one=RUNNING")
		require.Equal(t, map[string]int{"run.created": 1, "task.queued": 1, "task.claimed": 1}, b.events(t), "no step is left out of the log")
		require.Equal(t, 1, b.inFlight(t))
		require.Equal(t, 1, b.db.Count(t, `SELECT count(*) FROM servo.shares WHERE even_at > 0`), "its tenant was charged")
		b.report(t, leases[0], engine.Complete{})
		b.admit(t)
		require.Zero(t, b.inFlight(t))
		verifytest.Clean(t, b.db)
	})

	t.Run("what a task has left comes along with the tasks that it readies", func(t *testing.T) {
		t.Parallel()
		b := setupInline(t)
		first := b.waitingClaim(t, engine.ClaimRequest{Max: 1})
		key := b.trigger(t, "diamond")
		a := <-first
		require.Len(t, a, 1)
		next := b.waitingClaim(t, engine.ClaimRequest{Max: 10})
		before := b.db.Stats().Transactions
		b.report(t, a[0], engine.Complete{Result: json.RawMessage(`{"rows": 7}`)})
		leases := <-next
		require.EqualValues(t, 1, b.db.Stats().Transactions-before)
		require.Len(t, leases, 2)
		for _, l := range leases {
			require.Len(t, l.Upstream, 1)
			require.Equal(t, "d/a", l.Upstream[0].Asset)
			require.JSONEq(t, `{"rows": 7}`, string(l.Upstream[0].Result))
		}
		b.requireStates(t, key, run.RunRunning, "d/a=SUCCEEDED", "d/b=RUNNING", "d/c=RUNNING", "d/d=PENDING")
		verifytest.Clean(t, b.db)
	})

	t.Run("a claim that came along with the report gets what the report readies", func(t *testing.T) {
		t.Parallel()
		b := setupInline(t)
		first := b.waitingClaim(t, engine.ClaimRequest{Max: 1})
		b.trigger(t, "diamond")
		a := <-first
		claimed, errs := b.Together(t.Context(), engine.ClaimRequest{Worker: "w1", Claim: newClaim(), Pools: []string{"default"}, Max: 10, Lease: time.Minute}, report(a[0], engine.Complete{}))
		require.Equal(t, []error{nil, nil}, errs)
		require.Len(t, claimed, 2)
		verifytest.Clean(t, b.db)
	})

	t.Run("the claim that waits longest comes first, and none gets more than requested", func(t *testing.T) {
		t.Parallel()
		b := setupInline(t)
		old := b.waitingClaim(t, engine.ClaimRequest{Max: 1})
		other := b.waitingClaim(t, engine.ClaimRequest{Max: 1, Pools: []string{"fetch"}})
		young := b.waitingClaim(t, engine.ClaimRequest{Max: 1, Pools: []string{"fetch", "default"}})
		b.trigger(t, "single")
		require.Len(t, <-old, 1)
		b.trigger(t, "single")
		require.Len(t, <-young, 1)
		require.Empty(t, other)
		b.trigger(t, "single")
		require.Equal(t, 1, b.db.Count(t, `SELECT count(*) FROM servo.pool_q`), "no claim waits for the third, so it is queued")
		verifytest.Clean(t, b.db)
	})

	t.Run("without waiting claims tasks are queued at once, and later claims find them", func(t *testing.T) {
		t.Parallel()
		b := setupInline(t)
		require.Empty(t, b.claim(t, 1, true)) // and remembers that there was nothing
		b.trigger(t, "single")
		require.Equal(t, 1, b.db.Count(t, `SELECT count(*) FROM servo.pool_q`))
		leases, err := b.Claim(t.Context(), engine.ClaimRequest{Worker: "w2", Claim: newClaim(), Pools: []string{"default"}, Max: 1, Wait: time.Minute})
		require.NoError(t, err)
		require.Len(t, leases, 1)
		verifytest.Clean(t, b.db)
	})

	t.Run("a task that yields goes the long way: what its attempt took is settled first", func(t *testing.T) {
		t.Parallel()
		b := setupInline(t)
		got := b.waitingClaim(t, engine.ClaimRequest{Max: 1})
		key := b.trigger(t, "single")
		l := (<-got)[0]
		b.report(t, l, engine.Yield{})
		b.requireStates(t, key, run.RunRunning, "s/one=READY")
		require.Equal(t, 1, b.db.Count(t, `SELECT count(*) FROM servo.settlements WHERE ended = 1`))
		require.Equal(t, 1, b.admit(t))
		verifytest.Clean(t, b.db)
	})

	t.Run("a repeat of a claim that holds leases gets these and no others", func(t *testing.T) {
		t.Parallel()
		b := setupInline(t)
		request := engine.ClaimRequest{Max: 1, Claim: newClaim()}
		got := b.waitingClaim(t, request)
		b.trigger(t, "single")
		first := <-got
		again := b.waitingClaim(t, request) // the answer was lost; it waits without having looked
		b.trigger(t, "single")
		require.Equal(t, first[0].TaskKey, (<-again)[0].TaskKey)
		require.Equal(t, 1, b.db.Count(t, `SELECT count(*) FROM servo.leases`))
		require.Equal(t, 1, b.db.Count(t, `SELECT count(*) FROM servo.pool_q`))
		verifytest.Clean(t, b.db)
	})
}

// TestTasksWithoutHandoff shows when a task goes the long way, through the rounds of admission.
func TestTasksWithoutHandoff(t *testing.T) {
	t.Parallel()
	for name, hinder := range map[string]func(t *testing.T, b *bundle) (state string){
		"a tenant has no room in its quota": func(t *testing.T, b *bundle) string {
			t.Helper()
			b.limited(t, func(q *tenant.Quotas) { q.MaxConcurrentTasks = 1 })
			b.trigger(t, "single")
			require.Len(t, b.claim(t, 1, true), 1)
			return "READY"
		},
		"admission is at work": func(t *testing.T, b *bundle) string {
			t.Helper()
			tx, err := b.db.Connect(t).Begin(t.Context())
			require.NoError(t, err)
			_, err = tx.Exec(t.Context(), `SELECT FROM servo.duties WHERE name = 'admission' FOR NO KEY UPDATE`)
			require.NoError(t, err)
			return "READY"
		},
		"dispatch is off": func(t *testing.T, b *bundle) string {
			t.Helper()
			_, err := b.PauseDispatch(t.Context(), engine.Turn{Meta: engineMeta})
			require.NoError(t, err)
			return "QUEUED"
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setupInline(t)
			want := hinder(t, b)
			got := b.waitingClaim(t, engine.ClaimRequest{Max: 1})
			key := b.trigger(t, "single")
			b.requireStates(t, key, run.RunRunning, "s/one="+want)
			select {
			case leases := <-got:
				require.Empty(t, leases)
			default:
			}
		})
	}
}

// TestHandoffLostCommit cuts the connection at the COMMIT of a transaction that has something for
// a claim that waits: the claim looks for itself, and has it once.
func TestHandoffLostCommit(t *testing.T) {
	t.Parallel()
	for fate, when := range map[servotest.Fate]string{servotest.CutBefore: "before", servotest.CutAfter: "after"} {
		t.Run("cut "+when+" the commit", func(t *testing.T) {
			t.Parallel()
			db := servotest.DB(t)
			proxy := servotest.Proxy(t, db.URL)
			b := setupOn(t, behind(t, db, proxy), engine.Config{Handoff: true})
			got := b.waitingClaim(t, engine.ClaimRequest{Max: 1})
			proxy.Next(1, fate)
			key := b.trigger(t, "single")
			leases := <-got
			require.Equal(t, 1, proxy.Cuts())
			require.Len(t, leases, 1)
			require.Equal(t, key.Run, leases[0].Run)
			require.Equal(t, 1, db.Count(t, `SELECT count(*) FROM servo.run_events WHERE type = 'task.claimed'`))
			verifytest.Clean(t, db)
		})
	}
}

// TestHandoffTogether lets two servers complete diamonds by handoff and
// by admission, under a quota: everything is done once, and never more at a time than allowed.
func TestHandoffTogether(t *testing.T) {
	t.Parallel()
	const runs, quota, workers = 40, 3, 4
	db := servotest.DB(t)
	b := setupOn(t, db, engine.Config{Handoff: true, PollEvery: 50 * time.Millisecond})
	b.limited(t, func(q *tenant.Quotas) { q.MaxConcurrentTasks = quota })
	second := engine.New(db.Store, engine.Config{Handoff: true, PollEvery: 50 * time.Millisecond}, nil)
	t.Cleanup(second.Stop)
	servers := []*engine.Engine{b.Engine, second}
	ctx, cancel := context.WithCancel(t.Context())
	var (
		working     sync.WaitGroup
		done        atomic.Int64
		busy, worst atomic.Int64
		doubles     atomic.Int64
		seen        sync.Map
	)
	working.Go(func() { // the loop of admission
		for ctx.Err() == nil {
			ready := b.Ready()
			if _, more, err := b.Admit(ctx, b.duty, 100); err == nil && more {
				continue
			}
			select {
			case <-ready:
			case <-time.After(20 * time.Millisecond):
			case <-ctx.Done():
			}
		}
	})
	for i := range workers {
		working.Go(func() {
			for ctx.Err() == nil {
				leases, err := servers[i%2].Claim(ctx, engine.ClaimRequest{
					Worker: fmt.Sprint("w", i), Claim: newClaim(), Pools: []string{"default"}, Max: 2, Wait: 200 * time.Millisecond, Start: true,
				})
				if err != nil {
					continue
				}
				for _, l := range leases {
					if _, twice := seen.LoadOrStore(l.Task, true); twice {
						doubles.Add(1)
					}
					if n := busy.Add(1); n > worst.Load() {
						worst.Store(n)
					}
				}
				for _, l := range leases {
					busy.Add(-1)
					if _, err := servers[(i+1)%2].ReportOne(t.Context(), report(l, engine.Complete{})); err == nil {
						done.Add(1)
					}
				}
			}
		})
	}
	for range runs {
		_, err := servers[0].TriggerRun(t.Context(), engine.Trigger{Tenant: b.tenant, Pipeline: "diamond"})
		require.NoError(t, err)
	}
	for db.Count(t, `SELECT count(*) FROM servo.runs WHERE finished_at IS NULL`) > 0 {
		require.NoError(t, t.Context().Err())
		time.Sleep(20 * time.Millisecond)
	}
	cancel()
	working.Wait()
	require.EqualValues(t, 4*runs, done.Load())
	require.Zero(t, doubles.Load())
	require.LessOrEqual(t, worst.Load(), int64(quota))
	require.Equal(t, runs, db.Count(t, `SELECT count(*) FROM servo.runs WHERE state = $1`, int16(run.RunSucceeded)))
	verifytest.Clean(t, db)
}
