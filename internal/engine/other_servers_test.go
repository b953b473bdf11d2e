package engine_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"go.arco.dev/servo/internal/devkit/servotest"
	"go.arco.dev/servo/internal/engine"
	"go.arco.dev/servo/internal/store"
)

// listenTo lets an engine receive the notices of its database, until the test ends.
func listenTo(t *testing.T, e *engine.Engine, url string) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	var listener sync.WaitGroup
	listening := make(chan struct{})
	listener.Go(func() {
		_ = store.Listen(ctx, url, func() { e.SetListening(true); close(listening) }, func(n string) { e.Receive(n) })
	})
	t.Cleanup(func() { cancel(); listener.Wait() })
	<-listening
}

// TestOtherServers: two servers share a database. No server polls without a signal (an hour is
// longer than the test), so a waiter that wakes was notified.
func TestOtherServers(t *testing.T) {
	t.Parallel()
	setup := func(t *testing.T, poll time.Duration) (a *bundle, b *engine.Engine) {
		t.Helper()
		a = setupOn(t, servotest.DB(t), engine.Config{PollEvery: poll})
		b = engine.New(a.db.Store, engine.Config{PollEvery: poll}, nil)
		t.Cleanup(b.Stop)
		return a, b
	}
	claimOn := func(t *testing.T, e *engine.Engine) <-chan []engine.Lease {
		t.Helper()
		got := make(chan []engine.Lease, 1)
		go func() {
			leases, _ := e.Claim(context.Background(), engine.ClaimRequest{
				Worker: "w", Claim: newClaim(), Pools: []string{"default"}, Max: 1, Wait: time.Hour,
			})
			got <- leases
		}()
		return got
	}

	t.Run("a claim that waits at one server is woken by the other", func(t *testing.T) {
		t.Parallel()
		a, b := setup(t, time.Hour)
		listenTo(t, b, a.db.URL)
		a.SetOthers(true)
		got := claimOn(t, b)
		a.trigger(t, "single")
		a.admit(t)
		require.Len(t, <-got, 1)
	})

	t.Run("without listening it looks from time to time", func(t *testing.T) {
		t.Parallel()
		a, b := setup(t, 50*time.Millisecond)
		got := claimOn(t, b)
		a.trigger(t, "single")
		a.admit(t)
		require.Len(t, <-got, 1)
	})

	t.Run("admission at one server is woken by what the other makes ready", func(t *testing.T) {
		t.Parallel()
		a, b := setup(t, time.Hour)
		listenTo(t, b, a.db.URL)
		a.SetOthers(true)
		ready := b.Ready()
		a.trigger(t, "single")
		<-ready
	})

	t.Run("a watcher of a run is woken by what another server did to it", func(t *testing.T) {
		t.Parallel()
		a, b := setup(t, time.Hour)
		listenTo(t, a.Engine, a.db.URL)
		listenTo(t, b, a.db.URL)
		a.SetOthers(true)
		b.SetOthers(true)
		key := a.trigger(t, "single")
		lease := a.one(t)
		changed, stop := b.RunChanged(key.Run)
		defer stop()
		// the waiter has to begin first: until then the run only continues
		for at := ""; ; at += "." {
			select {
			case <-changed:
				return
			default:
				a.report(t, lease, engine.Advance{Expected: at, Next: at + "."})
				a.report(t, lease, engine.Yield{})
				lease = a.one(t)
			}
		}
	})

	t.Run("a listener that comes back looks at everything", func(t *testing.T) {
		t.Parallel()
		a, _ := setup(t, time.Hour)
		got := claimOn(t, a.Engine)
		ready := a.Ready()
		a.SetListening(true)
		<-ready
		a.trigger(t, "single")
		a.admit(t)
		require.Len(t, <-got, 1)
	})
}
