package run_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"go.arco.dev/servo/internal/base/id"
	"go.arco.dev/servo/internal/domain/run"
)

// TestDelayAsked holds that no attempt begins before an endpoint asked for it, or after the
// policy's maximum.
func TestDelayAsked(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		p := run.RetryPolicy{
			MaxDelay: time.Duration(rapid.Int64Range(int64(time.Second), int64(48*time.Hour)).Draw(t, "max")), Jitter: rapid.Float64Range(0, 1).Draw(t, "jitter"),
		}
		asked := time.Duration(rapid.Int64Range(1, int64(24*time.Hour)).Draw(t, "asked"))
		delay := p.DelayAsked(asked, rapid.Int32Range(1, 10).Draw(t, "failures"), id.Task{})
		require.LessOrEqual(t, delay, p.MaxDelay)
		require.GreaterOrEqual(t, delay, min(asked, p.MaxDelay).Truncate(time.Microsecond))
	})
}
