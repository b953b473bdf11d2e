package engine_test

import (
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"go.arco.dev/servo/internal/devkit/servotest"
	"go.arco.dev/servo/internal/engine"
)

// TestHandoffReportsEveryLease is about handoffs to claims that are repeated or time out.
func TestHandoffReportsEveryLease(t *testing.T) {
	t.Parallel()

	t.Run("a repeat gets its first answer, although other claims have just found nothing", func(t *testing.T) {
		t.Parallel()
		b := setupInline(t)
		b.trigger(t, "single")
		r := engine.ClaimRequest{Worker: "w1", Claim: newClaim(), Pools: []string{"default"}, Max: 1, Wait: 100 * time.Millisecond}
		first, err := b.Claim(t.Context(), r)
		require.NoError(t, err)
		require.Len(t, first, 1)
		other := r
		other.Claim = newClaim()
		nothing, err := b.Claim(t.Context(), other)
		require.NoError(t, err)
		require.Empty(t, nothing)
		again, err := b.Claim(t.Context(), r)
		require.NoError(t, err)
		require.Len(t, again, 1)
	})

	t.Run("a claim checks once more if its patience ends during a transaction without a signal", func(t *testing.T) {
		t.Parallel()
		const wait = 300 * time.Millisecond
		db := servotest.DB(t)
		proxy := servotest.Proxy(t, db.URL)
		b := setupOn(t, behind(t, db, proxy), engine.Config{Handoff: true})
		r := engine.ClaimRequest{Worker: "w1", Claim: newClaim(), Pools: []string{"default"}, Max: 1, Wait: wait}
		got := make(chan []engine.Lease, 1)
		go func() {
			leases, _ := b.Claim(t.Context(), r)
			got <- leases
		}()
		for b.WaitingClaims() == 0 {
			time.Sleep(time.Millisecond)
		}
		var cut atomic.Bool
		proxy.OnCommit(func() servotest.Fate {
			if cut.Swap(true) {
				return servotest.Pass
			}
			time.Sleep(2 * wait)
			return servotest.CutAfter
		})
		b.trigger(t, "single")
		leases := <-got
		require.Equal(t, 1, db.Count(t, `SELECT count(*) FROM servo.leases`))
		require.Len(t, leases, 1)
	})

	t.Run("a claim that waits here twice gets no more than it asked for", func(t *testing.T) {
		t.Parallel()
		b := setupInline(t)
		r := engine.ClaimRequest{Claim: newClaim(), Max: 1}
		first, again := b.waitingClaim(t, r), b.waitingClaim(t, r)
		_, errs := b.TriggerRuns(t.Context(), []engine.Trigger{{Tenant: b.tenant, Pipeline: "single"}, {Tenant: b.tenant, Pipeline: "single"}})
		require.Equal(t, []error{nil, nil}, errs)
		require.Len(t, <-first, 1)
		require.Len(t, <-again, 1)
		require.Equal(t, 1, b.db.Count(t, `SELECT count(*) FROM servo.leases`))
	})
}
