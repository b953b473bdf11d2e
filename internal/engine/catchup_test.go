package engine_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"go.arco.dev/servo/internal/domain/config"
)

// TestMissedSlotsOfOverlap: a config that catches up with all slots and does not let its runs
// overlap skips most of them, and the ledger states why.
func TestMissedSlotsOfOverlap(t *testing.T) {
	t.Parallel()
	for overlap, want := range map[config.Overlap]struct {
		slots  []string
		reason string
	}{
		config.OverlapSkip:      {[]string{"00:01 FIRED", "00:02-00:05 SKIPPED_OVERLAP 4"}, "missed; catchup is all, but overlap is skip, and a run has not ended"},
		config.OverlapBufferOne: {[]string{"00:01 FIRED", "00:02 FIRED", "00:03-00:05 SKIPPED_OVERLAP 3"}, "missed; catchup is all, but overlap is buffer_one, and a run waits already"},
		config.OverlapBufferAll: {[]string{"00:01 FIRED", "00:02 FIRED", "00:03 FIRED", "00:04 FIRED", "00:05 FIRED"}, ""},
	} {
		w := newClockwork(t)
		c := w.save(t, "cost", config.Spec{Trigger: config.Trigger{Cron: "* * * * *"}, Overlap: overlap, Catchup: config.Catchup{Policy: config.CatchupAll}})
		require.Equal(t, want.reason != "", len(c.Spec.Warnings()) == 1, overlap)
		w.forward(t, 5*time.Minute)
		w.fire(t)
		require.Equal(t, want.slots, w.slots(t, "cost"), overlap)
		entries, err := w.db.ListSlots(t.Context(), c.Key(), time.Time{}, w.now, 10)
		require.NoError(t, err)
		require.Equal(t, want.reason, entries[0].Reason, overlap)
	}
	w := newClockwork(t)
	c := w.save(t, "cost", config.Spec{Trigger: config.Trigger{Cron: "* * * * *"}})
	for range 2 {
		w.forward(t, time.Minute)
		w.fire(t)
	}
	entries, err := w.db.ListSlots(t.Context(), c.Key(), time.Time{}, w.now, 10)
	require.NoError(t, err)
	require.Equal(t, "overlap is skip, and a run has not ended", entries[0].Reason)
}
