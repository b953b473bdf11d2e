package engine_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"go.arco.dev/servo/internal/domain/config"
	"go.arco.dev/servo/internal/engine"
	"go.arco.dev/servo/internal/store"
)

func TestSeats(t *testing.T) {
	t.Parallel()

	// occupied keeps so many seats taken, as servers do that have stopped in the middle of a look.
	occupied := func(t *testing.T, w *clockwork, n int) (leave func()) {
		t.Helper()
		over, seated := make(chan struct{}), make(chan bool, n)
		group, ctx := errgroup.WithContext(t.Context())
		for range n {
			group.Go(func() error {
				return w.db.Engine(ctx, func(ctx context.Context, tx *store.Tx) error {
					_, ok, err := tx.TakeFiringSeat(ctx, engine.FiringSeats)
					seated <- ok
					select {
					case <-over:
					case <-ctx.Done():
					}
					return err
				})
			})
		}
		for range n {
			require.True(t, <-seated)
		}
		return func() {
			close(over)
			require.NoError(t, group.Wait())
		}
	}
	due := func(t *testing.T) *clockwork {
		t.Helper()
		w := newClockwork(t)
		w.save(t, "a", config.Spec{})
		w.forward(t, time.Minute)
		return w
	}

	t.Run("who finds all seats taken goes away, and what is due stays due", func(t *testing.T) {
		t.Parallel()
		w := due(t)
		leave := occupied(t, w, engine.FiringSeats)
		require.Equal(t, engine.Fired{}, w.fire(t))
		require.Zero(t, w.db.Count(t, `SELECT count(*) FROM servo.runs`))
		leave()
		require.Equal(t, engine.Fired{Configs: 1, Runs: 1}, w.fire(t))
	})

	t.Run("as long as one seat is free everything fires", func(t *testing.T) {
		t.Parallel()
		w := due(t)
		leave := occupied(t, w, engine.FiringSeats-1)
		require.Equal(t, engine.Fired{Configs: 1, Runs: 1}, w.fire(t))
		leave()
	})

	t.Run("a look is fourteen statements however many configs are due, and three without a seat", func(t *testing.T) {
		t.Parallel()
		w := newClockwork(t)
		statements := func(want engine.Fired) int64 {
			before := w.db.Stats().Statements
			require.Equal(t, want, w.fire(t))
			return w.db.Stats().Statements - before
		}
		w.save(t, "a", config.Spec{})
		w.forward(t, time.Minute)
		require.EqualValues(t, 14, statements(engine.Fired{Configs: 1, Runs: 1}))
		for i := range 30 {
			w.save(t, fmt.Sprintf("b%d", i), config.Spec{Overlap: config.OverlapSkip})
		}
		w.forward(t, time.Minute)
		w.finish(t, engine.Complete{})
		require.EqualValues(t, 14, statements(engine.Fired{Configs: 31, Runs: 31}))
		leave := occupied(t, w, engine.FiringSeats)
		require.EqualValues(t, 3, statements(engine.Fired{}))
		leave()
	})
}
