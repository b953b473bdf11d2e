package engine_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"go.arco.dev/servo/internal/devkit/servotest"
	"go.arco.dev/servo/internal/devkit/servotest/verifytest"
	"go.arco.dev/servo/internal/domain/run"
	"go.arco.dev/servo/internal/engine"
)

func TestWaitingClaim(t *testing.T) {
	t.Parallel()
	// wait begins a claim and returns when it has found no task.
	wait := func(ctx context.Context, t *testing.T, b *bundle, r engine.ClaimRequest) <-chan []engine.Lease {
		t.Helper()
		r.Worker, r.Claim, r.Max = "w", newClaim(), 10
		before := b.db.Stats().Transactions
		got := make(chan []engine.Lease, 1)
		go func() {
			leases, err := b.Claim(ctx, r)
			if err != nil {
				leases = nil
			}
			got <- leases
		}()
		for b.db.Stats().Transactions == before {
			require.NoError(t, t.Context().Err())
		}
		return got
	}

	t.Run("a claim that waits gets what is admitted, as soon as it is", func(t *testing.T) {
		t.Parallel()
		for name, pools := range map[string][]string{"of its pool": {"default"}, "of any of its pools": {"fetch", "default"}} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				b := setupOn(t, servotest.DB(t), engine.Config{PollEvery: time.Hour})
				got := wait(t.Context(), t, b, engine.ClaimRequest{Pools: pools, Wait: time.Hour})
				b.trigger(t, "single")
				b.admit(t)
				require.Len(t, <-got, 1)
			})
		}
	})

	t.Run("what another server has admitted is found by looking", func(t *testing.T) {
		t.Parallel()
		b := setupOn(t, servotest.DB(t), engine.Config{PollEvery: time.Millisecond})
		other := engine.New(b.db.Store, engine.Config{}, nil)
		t.Cleanup(other.Stop)
		got := wait(t.Context(), t, b, engine.ClaimRequest{Pools: []string{"default"}, Wait: time.Hour})
		b.trigger(t, "single")
		_, _, err := other.Admit(t.Context(), b.duty, 10)
		require.NoError(t, err)
		require.Len(t, <-got, 1)
	})

	t.Run("who has waited long enough, or goes away, gets nothing and no error", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		leases, err := b.Claim(t.Context(), engine.ClaimRequest{Worker: "w", Claim: newClaim(), Pools: []string{"default"}, Max: 1, Wait: time.Millisecond})
		require.NoError(t, err)
		require.Empty(t, leases)
		ctx, leave := context.WithCancel(t.Context())
		got := wait(ctx, t, b, engine.ClaimRequest{Pools: []string{"default"}, Wait: time.Hour})
		leave()
		require.Empty(t, <-got)
	})

	t.Run("a claim takes from its pools in the order it names them, up to what it wants", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		b.trigger(t, "fan")
		scan := b.one(t)
		b.report(t, scan, engine.FanOut{Tasks: pages(0, 2)})
		for range 2 {
			_, err := b.TriggerRun(t.Context(), engine.Trigger{Tenant: b.tenant, Select: []string{"s/one"}})
			require.NoError(t, err)
		}
		b.admit(t)
		leases, err := b.Claim(t.Context(), engine.ClaimRequest{Worker: "w", Claim: newClaim(), Pools: []string{"fetch", "default", "fetch"}, Max: 3})
		require.NoError(t, err)
		require.Len(t, leases, 3)
		require.Equal(t, []string{"f/fetch", "f/fetch", "s/one"}, []string{leases[0].Asset, leases[1].Asset, leases[2].Asset})
		require.Len(t, b.claim(t, 10, true), 1, "the last is free for the next")
	})
}

// What is asked twice at the same time, of two servers.
func TestRaceRepeats(t *testing.T) {
	t.Parallel()
	const n = 100

	t.Run("a claim and its repeat get the same leases", func(t *testing.T) {
		t.Parallel()
		tr := newTrack(t)
		tr.rounds(t, 2, func() {
			tr.runs(t, "single", n+20)
			tr.admit(t)
			claims := make([]engine.ClaimRequest, n)
			for i := range claims {
				claims[i] = engine.ClaimRequest{Worker: "w", Claim: newClaim(), Pools: []string{"default"}, Max: 1, Start: true}
			}
			first, again, errs := make([][]engine.Lease, n), make([][]engine.Lease, n), make([]error, 2*n)
			tr.race(n, func(server *engine.Engine, i int) {
				first[i], errs[2*i] = server.Claim(t.Context(), claims[i])
			}, func(server *engine.Engine, i int) {
				again[i], errs[2*i+1] = server.Claim(t.Context(), claims[i])
			})
			requireNone(t, errs)
			for i := range n {
				require.Len(t, first[i], 1)
				require.Equal(t, first[i], again[i])
			}
			tr.drainLeased(t, first)
		})
	})

	t.Run("a trigger and its repeat get the same run", func(t *testing.T) {
		t.Parallel()
		tr := newTrack(t)
		round := 0
		tr.rounds(t, 2, func() {
			round++
			first, again, errs := make([]engine.Triggered, n), make([]engine.Triggered, n), make([]error, 2*n)
			trigger := func(i int) engine.Trigger {
				return engine.Trigger{Tenant: tr.tenant, Pipeline: "single", IdempotencyKey: fmt.Sprint(round, i)}
			}
			tr.race(n, func(server *engine.Engine, i int) {
				first[i], errs[2*i] = server.TriggerRun(t.Context(), trigger(i))
			}, func(server *engine.Engine, i int) {
				again[i], errs[2*i+1] = server.TriggerRun(t.Context(), trigger(i))
			})
			requireNone(t, errs)
			for i := range n {
				require.Equal(t, first[i].Run, again[i].Run)
				require.NotEqual(t, first[i].Repeat, again[i].Repeat, "one of them was the first")
			}
			require.Equal(t, round*n, tr.db.Count(t, `SELECT count(*) FROM servo.runs`))
		})
	})

	t.Run("a report and its repeat count once", func(t *testing.T) {
		t.Parallel()
		tr := newTrack(t)
		tr.rounds(t, 4, func() {
			tr.runs(t, "single", n)
			leases := tr.lease(t, n, true)
			actions := []engine.Action{engine.Complete{}, networkError, engine.Yield{}, fatal}
			first, again, errs := make([]engine.Answer, n), make([]engine.Answer, n), make([]error, 2*n)
			tr.race(n, func(server *engine.Engine, i int) {
				first[i], errs[2*i] = server.ReportOne(t.Context(), report(leases[i], actions[i%4]))
			}, func(server *engine.Engine, i int) {
				again[i], errs[2*i+1] = server.ReportOne(t.Context(), report(leases[i], actions[i%4]))
			})
			requireNone(t, errs)
			for i := range n {
				require.NotEqual(t, first[i].Repeat, again[i].Repeat)
				first[i].Repeat, again[i].Repeat = false, false
				require.Equal(t, first[i], again[i])
			}
			tr.drain(t, succeed)
		})
		require.Equal(t, 4*n/4, tr.db.Count(t, `SELECT count(*) FROM servo.retry_q WHERE failures = 1`))
	})

	t.Run("a fan-out and its repeat add once", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		other := engine.New(b.db.Store, engine.Config{}, nil)
		t.Cleanup(other.Stop)
		tr := &track{bundle: b, servers: [2]*engine.Engine{b.Engine, other}}
		key := b.trigger(t, "fan")
		scan := b.one(t)
		answers, errs := make([]engine.Answer, 2*n), make([]error, 2*n)
		for ordinal := range int32(n) {
			fan := engine.FanOut{Ordinal: ordinal, Tasks: pages(int(ordinal), 1), Barrier: true}
			tr.race(1, func(server *engine.Engine, _ int) {
				answers[2*ordinal], errs[2*ordinal] = server.ReportOne(t.Context(), report(scan, fan))
			}, func(server *engine.Engine, _ int) {
				answers[2*ordinal+1], errs[2*ordinal+1] = server.ReportOne(t.Context(), report(scan, fan))
			})
		}
		requireNone(t, errs)
		for i := range n {
			require.Equal(t, answers[2*i].Added, answers[2*i+1].Added)
		}
		b.report(t, scan, engine.Complete{})
		b.drain(t, succeed)
		require.EqualValues(t, n+2, b.row(t, key).Total)
		b.requireStates(t, key, run.RunSucceeded)
		verifytest.Clean(t, b.db)
	})
}

// drainLeased completes leases and what is left after them.
func (tr *track) drainLeased(t testing.TB, leases [][]engine.Lease) {
	t.Helper()
	for _, l := range leases {
		tr.all(t, l, engine.Complete{})
	}
	tr.drain(t, succeed)
}
