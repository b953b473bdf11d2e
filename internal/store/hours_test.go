package store_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"go.arco.dev/servo/internal/base/id"
	"go.arco.dev/servo/internal/store"
)

func TestHours(t *testing.T) {
	t.Parallel()
	last := time.Date(2026, 3, 1, 23, 59, 59, 999_999_000, time.UTC) // the last moment of an hour and of a day
	first := last.Truncate(time.Hour)
	next := first.Add(time.Hour)
	// ended is a transaction in which four runs of each tenant end, each in its way.
	ended := func(t testing.TB, w *world, at time.Time, delay float64, owners ...id.Tenant) {
		t.Helper()
		var deltas []store.RunDelta
		for _, owner := range owners {
			totals := store.Totals{Ended: 4, Succeeded: 1, Failed: 1, TimedOut: 1, Cancelled: 1, Started: 3, Seconds: 30, Breaches: 2}
			deltas = append(deltas, store.RunDelta{Tenant: owner, Labels: "aws", Delay: delay, Totals: totals})
		}
		w.engine(t, func(tx *Tx) { require.NoError(t, tx.Apply(t.Context(), store.Changes{Now: at, Deltas: deltas})) })
	}
	sum := func(at time.Time, n int64, delay float64) store.Hour {
		return store.Hour{At: at, Succeeded: n, Failed: n, TimedOut: n, Cancelled: n, Started: 3 * n, Seconds: 30 * float64(n), Breaches: 2 * n, Delay: delay}
	}

	t.Run("what ends in the last moment of an hour is in it, and what ends in the next is in the next, merged or not, once", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t)
		mine, other := id.New[id.Tenant](w.mint), id.New[id.Tenant](w.mint)
		ended(t, w, first, 5, mine, other)
		ended(t, w, last.In(time.FixedZone("east", 5*3600+1800)), 9, mine)
		ended(t, w, next, 1, mine)
		ended(t, w, next.Add(time.Hour), 100, mine)
		for _, taken := range []int{0, 2, 3, 0} { // none, some and all of it, and then once more
			if taken > 0 {
				require.Equal(t, taken, must(w.MergeTotals(t.Context(), taken))(t))
			}
			require.Equal(t, []store.Hour{sum(first, 2, 9), sum(next, 1, 1)}, must(w.Hours(t.Context(), mine, last, next))(t))
			require.Equal(t, []store.Hour{sum(first, 1, 5)}, must(w.Hours(t.Context(), other, first, next))(t))
			require.Equal(t, []store.Hour{sum(first, 3, 9), sum(next, 1, 1)}, must(w.Hours(t.Context(), id.Tenant{}, first, next.Add(time.Hour-1)))(t), "all together")
		}
		require.Zero(t, must(w.MergeTotals(t.Context(), 10))(t), "everything was taken")
		require.Equal(t, 3+1+3, w.Count(t, `SELECT count(*) FROM servo.run_hours`), "an hour of all is a row, however many tenants")

		ended(t, w, first, 7, other)
		require.Equal(t, 1, must(w.MergeTotals(t.Context(), 10))(t))
		require.Equal(t, []store.Hour{sum(first, 4, 9)}, must(w.Hours(t.Context(), id.Tenant{}, first, first))(t), "later ones are added to it")
	})

	t.Run("a merge that does not commit leaves the hours as they were", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t)
		mine := id.New[id.Tenant](w.mint)
		ended(t, w, last, 5, mine)
		killed := errors.New("killed")
		require.ErrorIs(t, w.Engine(t.Context(), func(ctx context.Context, tx *Tx) error {
			require.Equal(t, 1, must(tx.MergeTotals(ctx, 10))(t))
			return killed
		}), killed)
		require.Equal(t, 1, must(w.MergeTotals(t.Context(), 10))(t))
		require.Equal(t, []store.Hour{sum(first, 1, 5)}, must(w.Hours(t.Context(), id.Tenant{}, first, first))(t))
	})

	t.Run("old hours are forgotten in batches, and the totals by day stay", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t)
		mine := id.New[id.Tenant](w.mint)
		ended(t, w, first, 5, mine)
		ended(t, w, next, 5, mine)
		require.Equal(t, 2, must(w.MergeTotals(t.Context(), 10))(t))
		w.Exec(t, `INSERT INTO servo.run_hours SELECT gen_random_uuid(), '2026-01-01', 1, 0, 0, 0, 0, 0, 0, 0 FROM generate_series(1, 1500)`)
		w.SetClock(t, first.Add(store.HoursKept))
		n, more, err := w.ForgetHours(t.Context())
		require.NoError(t, err)
		require.EqualValues(t, 1000, n)
		require.True(t, more)
		n, more, err = w.ForgetHours(t.Context())
		require.NoError(t, err)
		require.EqualValues(t, 500, n)
		require.False(t, more)
		require.Len(t, must(w.Hours(t.Context(), mine, first, next))(t), 2, "they are not old yet")
		w.SetClock(t, first.Add(store.HoursKept+time.Second))
		n, _, err = w.ForgetHours(t.Context())
		require.NoError(t, err)
		require.EqualValues(t, 2, n, "the tenant's and that of all")
		require.Equal(t, []store.Hour{sum(next, 1, 5)}, must(w.Hours(t.Context(), mine, first, next))(t))
		require.Len(t, must(w.TenantTotals(t.Context(), mine, first, next))(t), 2)
	})
}
