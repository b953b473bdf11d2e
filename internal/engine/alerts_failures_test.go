package engine_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"go.arco.dev/servo/internal/devkit/servotest/verifytest"
	"go.arco.dev/servo/internal/domain/config"
	"go.arco.dev/servo/internal/domain/run"
	"go.arco.dev/servo/internal/engine"
	"go.arco.dev/servo/internal/store"
)

// TestFailureAlerts follows the alerts of a config from its first failure on.
func TestFailureAlerts(t *testing.T) {
	t.Parallel()

	t.Run("the first failure raises LOW, the third one MEDIUM, and a success resolves both", func(t *testing.T) {
		t.Parallel()
		w := newClockwork(t)
		w.save(t, "cost", config.Spec{})
		w.failOnce(t)
		w.watch(t)
		require.Equal(t, []string{"PIPELINE_FAILED LOW default/cost"}, w.open(t, w.tenant))
		found, err := w.db.Alerts(t.Context(), store.AlertFilter{Tenant: w.tenant}, 10)
		require.NoError(t, err)
		require.Equal(t, "config default/cost has failed once; servo slots list cost shows its runs", found[0].Message)
		w.failOnce(t)
		w.watch(t)
		require.Equal(t, []string{"PIPELINE_FAILED LOW default/cost"}, w.open(t, w.tenant))
		w.failOnce(t)
		w.watch(t)
		require.ElementsMatch(t, []string{"PIPELINE_FAILED LOW default/cost", "PIPELINE_FAILING MEDIUM default/cost"}, w.open(t, w.tenant))
		w.forward(t, time.Minute)
		w.fire(t)
		w.finish(t, engine.Complete{})
		w.watch(t)
		require.Empty(t, w.open(t, w.tenant))
		require.Equal(t, 2, w.db.Count(t, `SELECT count(*) FROM servo.alerts`), "each is reported once")
		verifytest.Clean(t, w.db)
	})

	t.Run("a config sets the failures that raise its alerts", func(t *testing.T) {
		t.Parallel()
		for _, c := range []struct {
			alerts      config.Alerts
			low, medium int
		}{
			{config.Alerts{Failures: 2}, 2, 3},
			{config.Alerts{MediumFailures: 1}, 1, 1},
			{config.Alerts{Failures: 2, MediumFailures: 4}, 2, 4},
			{config.Alerts{Failures: 4}, 4, 4},
		} {
			w := newClockwork(t)
			w.save(t, "cost", config.Spec{Alerts: &c.alerts, MaxConsecutiveFailures: 100})
			for n := 1; n <= 4; n++ {
				w.failOnce(t)
				w.watch(t)
				var want []string
				if n >= c.low {
					want = append(want, "PIPELINE_FAILED LOW default/cost")
				}
				if n >= c.medium {
					want = append(want, "PIPELINE_FAILING MEDIUM default/cost")
				}
				require.ElementsMatch(t, want, w.open(t, w.tenant), "%+v after %d failures", c.alerts, n)
			}
		}
	})

	t.Run("a run that no worker has picked up is no failure of its config", func(t *testing.T) {
		t.Parallel()
		w := newClockwork(t)
		w.save(t, "cost", config.Spec{MaxExecution: minutes(1), MaxConsecutiveFailures: 2})
		w.failOnce(t)
		for range 3 {
			w.forward(t, time.Minute)
			w.fire(t)
			w.forward(t, 61*time.Second)
			_, err := w.ExpireRuns(t.Context(), 10)
			require.NoError(t, err)
			w.fold(t)
		}
		c := w.get(t, "cost")
		require.Equal(t, run.RunTimedOut, run.State(c.LastState))
		require.Equal(t, int32(1), c.Failures, "the streak neither grows nor ends")
		require.True(t, c.Enabled)
		w.watch(t)
		require.ElementsMatch(t, []string{"PIPELINE_FAILED LOW default/cost", "RUN_OVERRAN MEDIUM default/cost"}, w.open(t, w.tenant))
	})
}
