package engine_test

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"go.arco.dev/servo/internal/devkit/servotest/verifytest"
	"go.arco.dev/servo/internal/domain/config"
	"go.arco.dev/servo/internal/engine"
	"go.arco.dev/servo/internal/store"
)

// ledgerOf is the ledger of a config with its partitions, the oldest first.
func (w *clockwork) covered(t testing.TB, name string) (lines []string) {
	t.Helper()
	entries, err := w.db.ListSlots(t.Context(), w.get(t, name).Key(), time.Time{}, midnight.AddDate(10, 0, 0), 1000)
	require.NoError(t, err)
	for _, e := range entries {
		line := e.Outcome.String()
		if len(e.Partitions) > 0 {
			line += " " + strings.Join(e.Partitions, " ")
		}
		lines = append([]string{line}, lines...)
	}
	return lines
}

func TestSlotsCoverPartitions(t *testing.T) {
	t.Parallel()
	days := func(n int) []string { // the days before midnight
		var names []string
		for i := range n {
			names = append(names, midnight.AddDate(0, 0, i-1).Format(time.DateOnly))
		}
		return names
	}
	day := days(9)

	t.Run("a pause, an outage and an overlap lose no partition", func(t *testing.T) {
		t.Parallel()
		w := newClockwork(t)
		w.deploy(t, dividedText)
		w.save(t, "c", config.Spec{Pipeline: "sums", Trigger: config.Trigger{Cron: "0 2 * * *"}, Overlap: config.OverlapSkip, MaxExecution: 0})
		w.forward(t, 3*time.Hour)
		require.Equal(t, 1, w.fire(t).Runs)
		w.forward(t, 24*time.Hour) // the run of the first slot still holds the lock
		require.Equal(t, 0, w.fire(t).Runs)
		w.finish(t, engine.Complete{})
		w.forward(t, 72*time.Hour) // an outage
		require.Equal(t, 1, w.fire(t).Runs)
		require.Equal(t, []string{
			"FIRED date=" + day[0], "SKIPPED_OVERLAP", "SKIPPED_CATCHUP", "FIRED date=" + day[1] + ".." + day[4],
		}, w.covered(t, "c"))
		tasks := w.tasks(t, store.RunKey{Tenant: w.tenant, Run: *w.get(t, "c").LastRun})
		require.Len(t, tasks, 4+1)
		w.finish(t, engine.Complete{})
		verifytest.Clean(t, w.db)
	})

	t.Run("a slot without a new partition is skipped", func(t *testing.T) {
		t.Parallel()
		w := newClockwork(t)
		w.deploy(t, dividedText)
		w.save(t, "c", config.Spec{Pipeline: "sums", Trigger: config.Trigger{Cron: "0 */8 * * *"}, Overlap: config.OverlapAllow})
		for range 4 {
			w.forward(t, 8*time.Hour)
			w.fire(t)
		}
		require.Equal(t, []string{"FIRED date=" + day[0], "SKIPPED_NO_PARTITION", "FIRED date=" + day[1], "SKIPPED_NO_PARTITION"}, w.covered(t, "c"))
		verifytest.Clean(t, w.db)
	})

	t.Run("missed slots that fire together divide the partitions", func(t *testing.T) {
		t.Parallel()
		w := newClockwork(t)
		w.deploy(t, dividedText)
		w.save(t, "c", config.Spec{
			Pipeline: "sums", Trigger: config.Trigger{Cron: "0 2 * * *"}, Overlap: config.OverlapAllow, Catchup: config.Catchup{Policy: config.CatchupAll},
			Partitions: &config.Partitions{Max: 1},
		})
		w.forward(t, 3*time.Hour+72*time.Hour)
		for fired := w.fire(t); fired.More || fired.Configs > 0; fired = w.fire(t) {
			require.LessOrEqual(t, fired.Runs, 1)
		}
		require.Equal(t, []string{"FIRED date=" + day[0], "FIRED date=" + day[1], "FIRED date=" + day[2], "FIRED date=" + day[3]}, w.covered(t, "c"))
		w.finish(t, engine.Complete{})
		verifytest.Clean(t, w.db)
	})

	t.Run("a limit leaves the rest to the next slots, and an offset names one", func(t *testing.T) {
		t.Parallel()
		w := newClockwork(t)
		w.deploy(t, dividedText)
		w.save(t, "c", config.Spec{Pipeline: "sums", Trigger: config.Trigger{Cron: "0 2 * * *"}, Overlap: config.OverlapAllow, Partitions: &config.Partitions{Max: 2}})
		w.save(t, "o", config.Spec{Pipeline: "sums", Trigger: config.Trigger{Cron: "0 2 * * *"}, Overlap: config.OverlapAllow, Partitions: &config.Partitions{Values: map[string]string{"date": "slot-2d"}}})
		w.forward(t, 3*time.Hour)
		w.fire(t)
		w.forward(t, 72*time.Hour)
		w.fire(t)
		w.forward(t, 24*time.Hour)
		w.fire(t)
		require.Equal(t, []string{"FIRED date=" + day[0], "SKIPPED_CATCHUP", "FIRED date=" + day[1] + ".." + day[2], "FIRED date=" + day[3] + ".." + day[4]}, w.covered(t, "c"))
		before := midnight.AddDate(0, 0, -2).Format(time.DateOnly)
		require.Equal(t, "FIRED date="+before, w.covered(t, "o")[0])
		verifytest.Clean(t, w.db)
	})

	t.Run("a call runs the last completed partition, or those that it names", func(t *testing.T) {
		t.Parallel()
		w := newClockwork(t)
		w.deploy(t, dividedText)
		c := w.save(t, "c", config.Spec{Pipeline: "sums", Trigger: config.Trigger{Manual: true}, Overlap: config.OverlapAllow})
		one, err := w.TriggerConfig(t.Context(), w.tenant, c.ID, engine.Trigger{Meta: engineMeta})
		require.NoError(t, err)
		require.Contains(t, titlesOf(w.tasks(t, store.RunKey{Tenant: w.tenant, Run: one.Run})), `b/clean {"date":"`+day[0]+`"}`)
		two, err := w.TriggerConfig(t.Context(), w.tenant, c.ID, engine.Trigger{Partitions: []string{"date=2020-01-01..2020-01-02"}, Meta: engineMeta})
		require.NoError(t, err)
		require.Len(t, w.tasks(t, store.RunKey{Tenant: w.tenant, Run: two.Run}), 3)
		require.Zero(t, w.get(t, "c").CoveredUntil)
	})

	t.Run("a spec is checked against the schemes", func(t *testing.T) {
		t.Parallel()
		w := newClockwork(t)
		w.deploy(t, dividedText)
		_, err := w.SaveConfigs(t.Context(), engine.SaveConfigs{Tenant: w.tenant, Configs: []engine.SaveConfig{{Name: "c", Spec: config.Spec{
			Pipeline: "sums", Trigger: config.Trigger{Manual: true}, Partitions: &config.Partitions{Values: map[string]string{"region": "eu"}},
		}}}, Meta: engineMeta})
		require.ErrorContains(t, err, `unknown dimension "region"`)
	})
}
