package engine_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"go.arco.dev/servo/internal/domain/run"
	"go.arco.dev/servo/internal/engine"
)

// TestEstimatesIgnoreDeaths: the time until a worker was considered dead is no estimate for
// the task.
func TestEstimatesIgnoreDeaths(t *testing.T) {
	t.Parallel()
	b := setup(t)
	learnt := func() int {
		t.Helper()
		b.admit(t) // it takes in what attempts have taken
		return b.db.Count(t, `SELECT coalesce(sum(samples), 0)::int FROM servo.durations WHERE asset = 's/one'`)
	}
	b.trigger(t, "single")
	died := b.one(t)
	b.db.Exec(t, `UPDATE servo.leases SET started_at = started_at - interval '1 hour', expires_at = '2000-01-01', due_at = '2000-01-01'`)
	_, err := b.Expire(t.Context(), 100)
	require.NoError(t, err)
	require.Zero(t, learnt())
	again := b.one(t)
	require.Equal(t, died.Task, again.Task)
	b.report(t, again, engine.Fail{Failure: run.Failure{Code: "WORKER_CRASH"}})
	require.Zero(t, learnt(), "a crash that the worker has seen itself")
	b.report(t, b.one(t), engine.Complete{})
	require.Equal(t, 1, learnt(), "the attempt that ended by itself")
	require.Equal(t, 1, b.db.Count(t, `SELECT count(*) FROM servo.durations WHERE asset = 's/one' AND seconds < 60`))
}
