package engine_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"go.arco.dev/servo/internal/engine"
)

// TestPace: workers take 1,000 tasks a second and a round takes 5 ms. The queue is to last for some
// rounds, however seldom a long queue lets them be made: else it would grow from its own length,
// and a tenant that arrives would wait behind all of it.
func TestPace(t *testing.T) {
	t.Parallel()
	const rate, took = 1000, 5 * time.Millisecond
	for _, every := range []time.Duration{10 * time.Millisecond, 90 * time.Millisecond, 200 * time.Millisecond} {
		synctest.Test(t, func(t *testing.T) {
			var pace engine.Pace
			const target = 1000
			left := target - int(every.Seconds()*rate) // before the next round
			ahead := 0
			for range 100 {
				ahead = pace.Round(left, target, took)
				time.Sleep(every - took)
			}
			require.InDelta(t, 3*rate*took.Seconds(), ahead, 2, "every %s", every)
		})
	}
}
