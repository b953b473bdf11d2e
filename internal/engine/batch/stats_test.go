package batch

import (
	"io"
	"testing"

	"github.com/stretchr/testify/require"

	"go.arco.dev/servo/internal/store"
)

func TestLaneStats(t *testing.T) {
	t.Parallel()

	t.Run("what went through is counted, and what it took", func(t *testing.T) {
		t.Parallel()
		l := newFakeLane(t, Limits{}, 1, nil)
		for _, err := range l.doAll(t.Context(), []int{1, 2, 3}) {
			require.NoError(t, err)
		}
		got := l.Stats()
		require.Positive(t, got.Seconds)
		got.Seconds = 0
		require.Equal(t, Stats{Name: "fake", Batches: 1, Commands: 3}, got)
	})

	t.Run("trouble and tries again are counted", func(t *testing.T) {
		t.Parallel()
		var l *fakeLane
		l = newFakeLane(t, Limits{}, 1, func([]int) error {
			if l.tried() <= 2 {
				return io.ErrUnexpectedEOF
			}
			return nil
		})
		require.NoError(t, l.do(t.Context(), 1))
		got := l.Stats()
		require.Equal(t, []int64{1, 1, 2, 2}, []int64{got.Batches, got.Commands, got.Retries, got.Failures})
	})

	t.Run("a command that poisons its batch is one of several tries", func(t *testing.T) {
		t.Parallel()
		l := newFakeLane(t, Limits{}, 1, func(batch []int) error {
			for _, n := range batch {
				if n == 2 {
					return &store.MismatchError{Statement: "poison", Want: 1}
				}
			}
			return nil
		})
		l.doAll(t.Context(), []int{1, 2})
		got := l.Stats()
		require.Equal(t, []int64{1, 1, 2, 2}, []int64{got.Batches, got.Commands, got.Retries, got.Failures})
	})

	t.Run("what waits and what was turned away can be seen", func(t *testing.T) {
		t.Parallel()
		entered, release := make(chan struct{}), make(chan struct{})
		l := newFakeLane(t, Limits{Waiting: 2, Batch: 1}, 1, func(batch []int) error {
			if batch[0] == 0 {
				close(entered)
				<-release
			}
			return nil
		})
		done := make(chan error, 3)
		go func() { done <- l.do(t.Context(), 0) }()
		<-entered
		require.NoError(t, l.enqueue([]*Call[int, struct{}]{{ctx: t.Context(), Request: 1, done: make(chan struct{})}, {ctx: t.Context(), Request: 2, done: make(chan struct{})}}))
		require.Error(t, l.do(t.Context(), 3))
		got := l.Stats()
		require.Equal(t, []int64{2, 1}, []int64{got.Waiting, got.Refused})
		close(release)
		require.NoError(t, <-done)
	})
}
