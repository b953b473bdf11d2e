package store_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestFiringSeats(t *testing.T) {
	t.Parallel()

	seated := func(t *testing.T, w *world) (got bool) {
		t.Helper()
		w.engine(t, func(tx *Tx) {
			now, ok, err := tx.TakeFiringSeat(t.Context(), 2)
			require.NoError(t, err)
			require.Equal(t, w.now, now)
			got = ok
		})
		return got
	}
	sit := func(ctx context.Context, tx *Tx) error {
		_, ok, err := tx.TakeFiringSeat(ctx, 2)
		if !ok {
			return errUndo
		}
		return err
	}

	t.Run("there are as many as are asked for, and who finds none does not wait", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t)
		w.SetClock(t, w.now)
		require.True(t, seated(t, w))
		first, second := w.hold(t, sit), w.hold(t, sit)
		require.False(t, seated(t, w))
		first.commit(t)
		require.True(t, seated(t, w), "a seat is free when its transaction has ended")
		second.commit(t)
	})

	t.Run("a transaction that was given up leaves its seat", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t)
		w.SetClock(t, w.now)
		for range 5 {
			w.undone(t, func(tx *Tx) { require.NoError(t, sit(t.Context(), tx)) })
		}
		require.True(t, seated(t, w))
	})

	t.Run("the seats of one database are not another's", func(t *testing.T) {
		t.Parallel()
		w, other := newWorld(t), newWorld(t)
		other.SetClock(t, other.now)
		first, second := w.hold(t, sit), w.hold(t, sit)
		require.True(t, seated(t, other))
		first.commit(t)
		second.commit(t)
	})
}
