package bench

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestPaced(t *testing.T) {
	t.Parallel()

	t.Run("every call that is due is made, and those that fail are counted", func(t *testing.T) {
		t.Parallel()
		var made atomic.Int64
		result, err := paced(t.Context(), APIOptions{Rate: 1000, For: 100 * time.Millisecond}, func(_ context.Context, number int) error {
			made.Add(1)
			if number%4 == 0 {
				return errors.New("no")
			}
			return nil
		})
		require.NoError(t, err)
		require.EqualValues(t, 100, made.Load())
		require.Equal(t, 100, result.Calls)
		require.Equal(t, 25, result.Failed)
		require.LessOrEqual(t, result.P50, result.P99)
		require.LessOrEqual(t, result.P99, result.Max)
	})

	t.Run("a call does not wait for the one before it", func(t *testing.T) {
		t.Parallel()
		second := make(chan struct{})
		_, err := paced(t.Context(), APIOptions{Rate: 1000, For: 2 * time.Millisecond}, func(_ context.Context, number int) error {
			if number == 1 {
				close(second)
			}
			<-second
			return nil
		})
		require.NoError(t, err)
	})
}
