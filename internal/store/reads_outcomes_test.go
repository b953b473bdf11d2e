package store_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"go.arco.dev/servo/internal/base/id"
	"go.arco.dev/servo/internal/domain/config"
	"go.arco.dev/servo/internal/domain/run"
	"go.arco.dev/servo/internal/store"
)

func TestSlotOutcomes(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	a, b := w.account(t, "acme"), w.account(t, "brick")
	c, other := w.config(t, a, "nightly", nil), w.config(t, a, "other", nil)
	late, fine := w.newRun(t, a, nil, nil).run.ID, w.newRun(t, a, nil, nil).run.ID
	w.Exec(t, fmt.Sprintf(`UPDATE servo.runs SET late = true WHERE id = '%s'`, late))
	midnight := w.now.UTC().Truncate(24 * time.Hour)
	bounds := []time.Time{midnight, midnight.Add(24 * time.Hour), midnight.Add(47 * time.Hour)} // a day and a shorter one
	hour := func(n int) time.Time { return midnight.Add(time.Duration(n) * time.Hour) }
	fired := func(of store.ConfigState, n int, made id.Run) store.FiredSlot {
		return store.FiredSlot{ConfigKey: of.Key(), At: hour(n), Run: made}
	}
	gone := id.New[id.Run](w.mint)
	w.engine(t, func(tx *Tx) {
		require.NoError(t, tx.WriteLedger(t.Context(), []store.FiredSlot{
			fired(c, -1, fine), fired(c, 0, fine), fired(c, 1, fine), fired(c, 2, late), fired(c, 24, gone), fired(c, 47, fine), fired(other, 3, fine),
		}, []store.SkippedSlots{
			skipped(c, hour(-9), hour(-8), 2), skipped(c, hour(-7), hour(-2), 6), // before
			skipped(c, hour(3), hour(5), 3), skipped(c, hour(6), hour(6), 1), skipped(c, hour(20), hour(30), 11), skipped(c, hour(46), hour(49), 4), skipped(c, hour(50), hour(51), 2),
		}, w.now, "a"))
	})
	firedAs := func(day int, state run.State, missed bool, slots int64) store.SlotOutcome {
		return store.SlotOutcome{First: day, Last: day, Outcome: config.Fired, State: state, Missed: missed, Slots: slots}
	}
	not := func(first, last int, slots int64) store.SlotOutcome {
		return store.SlotOutcome{First: first, Last: last, Outcome: config.SkippedCatchup, Slots: slots}
	}

	t.Run("slots are counted by day, outcome and where their runs are", func(t *testing.T) {
		t.Parallel()
		outcomes, oldest, err := w.SlotOutcomes(t.Context(), c.Key(), bounds)
		require.NoError(t, err)
		require.Zero(t, oldest, "all of them")
		require.ElementsMatch(t, []store.SlotOutcome{
			firedAs(0, run.RunRunning, false, 2), firedAs(0, run.RunRunning, true, 1), firedAs(1, 0, false, 1),
			not(0, 0, 4), not(0, 1, 11), not(1, 2, 4),
		}, outcomes)
	})

	t.Run("a range that began before the first day is seen on it", func(t *testing.T) {
		t.Parallel()
		outcomes, _, err := w.SlotOutcomes(t.Context(), c.Key(), []time.Time{hour(25), hour(26), hour(27)})
		require.NoError(t, err)
		require.Equal(t, []store.SlotOutcome{not(-1, 2, 11)}, outcomes)
		outcomes, _, err = w.SlotOutcomes(t.Context(), c.Key(), []time.Time{hour(7), hour(8)})
		require.NoError(t, err)
		require.Empty(t, outcomes, "one that is over is not")
	})

	t.Run("if there are too many the newest are counted, and the start is returned", func(t *testing.T) {
		t.Parallel()
		outcomes, oldest, err := w.CappedSlotOutcomes(t.Context(), c.Key(), bounds, 2)
		require.NoError(t, err)
		require.True(t, oldest.Equal(hour(20)), "of the ranges fewer hours are counted than of the others")
		require.ElementsMatch(t, []store.SlotOutcome{firedAs(0, run.RunRunning, true, 1), firedAs(1, 0, false, 1), not(0, 1, 11), not(1, 2, 4)}, outcomes)
	})

	t.Run("a config is its tenant's alone", func(t *testing.T) {
		t.Parallel()
		outcomes, _, err := w.SlotOutcomes(t.Context(), store.ConfigKey{Tenant: b.tenant, Config: c.ID}, bounds)
		require.NoError(t, err)
		require.Empty(t, outcomes)
	})
}
