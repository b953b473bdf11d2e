package store_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"go.arco.dev/servo/internal/store"
)

func TestDuties(t *testing.T) {
	t.Parallel()
	const name, ttl = "admission", time.Minute
	noon := time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)
	setup := func(t *testing.T) *world {
		t.Helper()
		w := newWorld(t)
		w.SetClock(t, noon)
		return w
	}
	take := func(t *testing.T, w *world, holder string) store.Duty {
		t.Helper()
		return must(w.TakeDuty(t.Context(), name, holder, ttl))(t)
	}

	t.Run("a duty has one holder, who may renew it", func(t *testing.T) {
		t.Parallel()
		w := setup(t)
		mine := take(t, w, "a")
		require.Equal(t, store.Duty{Name: name, Holder: "a", Epoch: 1}, mine)
		_, err := w.TakeDuty(t.Context(), name, "b", ttl)
		require.ErrorIs(t, err, store.ErrDutyLost)

		w.SetClock(t, noon.Add(ttl-time.Second))
		require.Equal(t, mine, take(t, w, "a"), "a renewal keeps the epoch")
		w.SetClock(t, noon.Add(ttl+time.Second))
		_, err = w.TakeDuty(t.Context(), name, "b", ttl)
		require.ErrorIs(t, err, store.ErrDutyLost, "it was renewed")
	})

	t.Run("an unknown duty has no holder", func(t *testing.T) {
		t.Parallel()
		_, err := setup(t).TakeDuty(t.Context(), "cooking", "a", ttl)
		require.ErrorIs(t, err, store.ErrDutyLost)
	})

	t.Run("a takeover raises the epoch, and the holder before it learns that it lost", func(t *testing.T) {
		t.Parallel()
		w := setup(t)
		before := take(t, w, "a")
		w.SetClock(t, noon.Add(ttl))
		after := take(t, w, "b")
		require.Equal(t, store.Duty{Name: name, Holder: "b", Epoch: 2}, after)
		w.engine(t, func(tx *Tx) {
			require.ErrorIs(t, tx.HoldDuty(t.Context(), before), store.ErrDutyLost)
			require.NoError(t, tx.HoldDuty(t.Context(), after))
		})
	})

	t.Run("who let it expire and takes it again does so in a new epoch", func(t *testing.T) {
		t.Parallel()
		w := setup(t)
		before := take(t, w, "a")
		w.SetClock(t, noon.Add(2*ttl))
		require.EqualValues(t, 2, take(t, w, "a").Epoch)
		w.engine(t, func(tx *Tx) { require.ErrorIs(t, tx.HoldDuty(t.Context(), before), store.ErrDutyLost) })
	})

	t.Run("a released duty is free at once, and only its holder can release it", func(t *testing.T) {
		t.Parallel()
		w := setup(t)
		mine := take(t, w, "a")
		require.NoError(t, w.ReleaseDuty(t.Context(), store.Duty{Name: name, Holder: "b"}))
		_, err := w.TakeDuty(t.Context(), name, "b", ttl)
		require.ErrorIs(t, err, store.ErrDutyLost)
		require.NoError(t, w.ReleaseDuty(t.Context(), mine))
		require.EqualValues(t, 2, take(t, w, "b").Epoch)
	})

	t.Run("work under a duty waits for work under the same duty", func(t *testing.T) {
		t.Parallel()
		w := setup(t)
		mine := take(t, w, "a")
		first := w.hold(t, func(ctx context.Context, tx *Tx) error { return tx.HoldDuty(ctx, mine) })
		second := w.blocked(t, func(ctx context.Context, tx *Tx) error { return tx.HoldDuty(ctx, mine) })
		first.commit(t)
		require.NoError(t, second())
	})

	t.Run("a renewal waits neither for work under the duty nor for a connection", func(t *testing.T) {
		t.Parallel()
		w := setup(t)
		mine := take(t, w, "a")
		held := []*open{w.hold(t, func(ctx context.Context, tx *Tx) error { return tx.HoldDuty(ctx, mine) })}
		for w.Pool().Stat().AcquiredConns() < w.Pool().Config().MaxConns {
			held = append(held, w.hold(t, func(context.Context, *Tx) error { return nil }))
		}
		w.SetClock(t, noon.Add(ttl-time.Second))
		require.Equal(t, mine, take(t, w, "a"))
		for _, h := range held {
			h.commit(t)
		}
	})

	t.Run("a takeover that had to wait lasts from its end", func(t *testing.T) {
		t.Parallel()
		w := setup(t)
		mine := take(t, w, "a")
		work := w.hold(t, func(ctx context.Context, tx *Tx) error { return tx.HoldDuty(ctx, mine) })
		w.SetClock(t, noon.Add(ttl))
		done := make(chan error, 1)
		go func() {
			_, err := w.TakeDuty(t.Context(), name, "b", ttl)
			done <- err
		}()
		w.untilWaiting(t, "servo.duties", done)
		w.Exec(t, `UPDATE servo.test_clock SET now = now + interval '1 hour'`) // beside the one who reads it
		work.commit(t)
		require.NoError(t, <-done)
		_, err := w.TakeDuty(t.Context(), name, "c", ttl)
		require.ErrorIs(t, err, store.ErrDutyLost)
	})

	t.Run("a takeover waits for work under the duty to commit", func(t *testing.T) {
		t.Parallel()
		w := setup(t)
		mine := take(t, w, "a")
		work := w.hold(t, func(ctx context.Context, tx *Tx) error { return tx.HoldDuty(ctx, mine) })
		w.SetClock(t, noon.Add(ttl))
		done := make(chan error, 1)
		go func() {
			_, err := w.TakeDuty(t.Context(), name, "b", ttl)
			done <- err
		}()
		w.untilWaiting(t, "servo.duties", done)
		work.commit(t)
		require.NoError(t, <-done)
		w.engine(t, func(tx *Tx) { require.ErrorIs(t, tx.HoldDuty(t.Context(), mine), store.ErrDutyLost) })
	})
}

// untilWaiting returns when some statement that names the text waits for a lock.
func (w *world) untilWaiting(t testing.TB, text string, done <-chan error) {
	t.Helper()
	w.until(t, done, `
		SELECT count(*) FROM pg_stat_activity
		WHERE datname = current_database() AND wait_event_type = 'Lock' AND strpos(query, $1) > 0 AND pid <> pg_backend_pid()`, text)
}
