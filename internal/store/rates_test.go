package store_test

import (
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"go.arco.dev/servo/internal/base/id"
	"go.arco.dev/servo/internal/devkit/servotest"
	"go.arco.dev/servo/internal/store"
)

func TestInstallationSecret(t *testing.T) {
	t.Parallel()
	one, two := newWorld(t), newWorld(t)
	secret := must(one.InstallationSecret(t.Context(), store.PageTokenSecret))(t)
	require.Len(t, secret, 32)
	require.Equal(t, secret, must(one.InstallationSecret(t.Context(), store.PageTokenSecret))(t))
	_, err := one.InstallationSecret(t.Context(), "another")
	require.Error(t, err)
	require.NotEmpty(t, must(two.InstallationSecret(t.Context(), store.PageTokenSecret))(t))
}

func TestRates(t *testing.T) {
	t.Parallel()
	noon := time.Date(2026, 5, 1, 12, 0, 30, 0, time.UTC)
	window := noon.Truncate(time.Minute)
	setup := func(t *testing.T) *servotest.Database {
		t.Helper()
		db := newWorld(t).Database
		db.SetClock(t, noon)
		return db
	}
	key := store.RateKey{Tenant: id.Tenant{UUID: uuid.New()}, Class: 1}
	ask := func(want, debt int) store.RateRequest {
		return store.RateRequest{Want: want, Debt: debt, Most: 100, Window: time.Minute}
	}

	t.Run("a window has a number of calls, for all callers, and the next one has them again", func(t *testing.T) {
		t.Parallel()
		db := setup(t)
		for _, step := range []struct{ want, debt, granted, leased int }{
			{40, 0, 40, 40},
			{10, 5, 10, 55}, // what had passed before counts
			{40, 0, 40, 95},
			{10, 3, 2, 100}, // the rest
			{10, 0, 0, 100},
			{10, 4, 0, 104}, // over it, by what had passed
		} {
			got := must(db.LeaseRate(t.Context(), key, ask(step.want, step.debt)))(t)
			require.Equal(t, store.RateLease{Granted: step.granted, Leased: step.leased, Window: window, Now: noon}, got)
		}
		db.SetClock(t, noon.Add(time.Minute))
		got := must(db.LeaseRate(t.Context(), key, ask(10, 1)))(t)
		require.Equal(t, store.RateLease{Granted: 10, Leased: 11, Window: window.Add(time.Minute), Now: noon.Add(time.Minute)}, got)

		db.SetClock(t, noon) // who has looked at the clock before, and comes after
		got = must(db.LeaseRate(t.Context(), key, ask(10, 0)))(t)
		require.Equal(t, store.RateLease{Granted: 10, Leased: 21, Window: window.Add(time.Minute), Now: window.Add(time.Minute)}, got)

		db.SetClock(t, noon.Add(-time.Hour)) // a clock that was wrong blocks no caller
		got = must(db.LeaseRate(t.Context(), key, ask(100, 0)))(t)
		require.Equal(t, 100, got.Granted)
	})

	t.Run("the first to ask may owe more than there is", func(t *testing.T) {
		t.Parallel()
		db := setup(t)
		got := must(db.LeaseRate(t.Context(), key, ask(10, 120)))(t)
		require.Equal(t, store.RateLease{Granted: 0, Leased: 120, Window: window, Now: noon}, got)
	})

	t.Run("tenants, classes and scopes have limits of their own", func(t *testing.T) {
		t.Parallel()
		db := setup(t)
		other, class, scope := key, key, key
		other.Tenant, class.Class, scope.Scope = id.Tenant{UUID: uuid.New()}, 2, "lab"
		for _, k := range []store.RateKey{key, other, class, scope, {Class: 1}} {
			require.Equal(t, 100, must(db.LeaseRate(t.Context(), k, ask(100, 0)))(t).Granted)
		}
	})

	t.Run("fifty askers get no more than there is", func(t *testing.T) {
		t.Parallel()
		db := setup(t)
		var mu sync.Mutex
		var all sync.WaitGroup
		granted := 0
		for range 50 {
			all.Go(func() {
				got, err := db.LeaseRate(t.Context(), key, ask(7, 0))
				mu.Lock()
				defer mu.Unlock()
				granted += got.Granted
				if err != nil {
					granted += 1_000
				}
			})
		}
		all.Wait()
		require.Equal(t, 100, granted)
	})

	t.Run("servers learn of each other's streams, until these are silent for a while", func(t *testing.T) {
		t.Parallel()
		db := setup(t)
		a, b := uuid.New(), uuid.New()
		require.Zero(t, must(db.ReportStreams(t.Context(), key.Tenant, a, 3, time.Minute))(t))
		require.Zero(t, must(db.ReportStreams(t.Context(), key.Tenant, a, 4, time.Minute))(t), "its own do not count")
		require.Zero(t, must(db.ReportStreams(t.Context(), id.Tenant{UUID: uuid.New()}, b, 9, time.Minute))(t))
		require.Equal(t, 4, must(db.ReportStreams(t.Context(), key.Tenant, b, 2, time.Hour))(t))
		require.Equal(t, 2, must(db.ReportStreams(t.Context(), key.Tenant, a, 0, time.Minute))(t))
		require.Zero(t, must(db.ReportStreams(t.Context(), key.Tenant, b, 2, time.Hour))(t))
		require.Equal(t, 2, must(db.ReportStreams(t.Context(), key.Tenant, a, 1, time.Minute))(t))
		db.SetClock(t, noon.Add(time.Minute))
		require.Zero(t, must(db.ReportStreams(t.Context(), key.Tenant, b, 2, time.Hour))(t), "server a reports nothing any more")
	})

	t.Run("unused rows are deleted", func(t *testing.T) {
		t.Parallel()
		db := setup(t)
		must(db.LeaseRate(t.Context(), key, ask(1, 0)))(t)
		must(db.ReportStreams(t.Context(), key.Tenant, uuid.New(), 1, time.Minute))(t)
		require.Zero(t, must(db.ForgetRates(t.Context()))(t))
		db.SetClock(t, noon.Add(time.Hour))
		require.EqualValues(t, 2, must(db.ForgetRates(t.Context()))(t))
	})
}
