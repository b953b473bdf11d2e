package engine_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"go.arco.dev/servo/internal/domain/run"
	"go.arco.dev/servo/internal/engine"
)

// TestRetryAfter holds that the delay which an endpoint asked for takes the place of the policy's.
func TestRetryAfter(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.trigger(t, "single")
	l := b.one(t)
	_, errs := b.Report(t.Context(), []engine.Report{{TaskKey: l.TaskKey, Token: l.Token, Action: engine.Fail{Failure: run.Failure{Code: "RATE_LIMITED"}, After: 100 * time.Second}}})
	require.Equal(t, []error{nil}, errs)
	seconds := b.db.Count(t, `SELECT extract(epoch FROM due_at - servo.clock())::int FROM servo.retry_q`)
	require.InDelta(t, 110, seconds, 20, "100 s, and at most 20 %% more")
}
