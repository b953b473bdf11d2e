package store_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"go.arco.dev/servo/internal/domain/partition"
	"go.arco.dev/servo/internal/store"
)

// TestHolds executes the statements of holds; the rules are tested in the engine.
func TestHolds(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	a := w.account(t, "acme")
	holder, other := w.newRun(t, a, nil, nil), w.newRun(t, a, nil, nil)
	hold := func(g graph, first, last int64) store.Hold {
		return store.Hold{TaskKey: keyOf(g.tasks[0]), Workspace: a.workspace.ID, Asset: "asset", Range: partition.Range{First: first, Last: last}}
	}
	wanted := func(h store.Hold) []store.HoldWanted {
		return []store.HoldWanted{{TaskKey: h.TaskKey, Asset: h.Asset, New: &h}}
	}
	w.apply(t, store.Changes{Holds: []store.Hold{hold(holder, 1, 10)}})

	w.engine(t, func(tx *Tx) {
		apart := must(tx.HoldsInTheWay(t.Context(), wanted(hold(other, 11, 12))))(t)
		require.Equal(t, []store.HoldFound{{Hold: hold(other, 11, 12)}}, apart)
		found := must(tx.HoldsInTheWay(t.Context(), wanted(hold(other, 10, 12))))(t)
		require.Equal(t, []store.HoldFound{{Hold: hold(other, 10, 12), Holder: keyOf(holder.tasks[0])}}, found)
		waits := must(tx.WaitForHolds(t.Context(), found))(t)
		require.True(t, waits[other.tasks[0].ID])
	})
	require.Equal(t, 1, w.Count(t, `SELECT count(*) FROM servo.partition_waits`))

	w.engine(t, func(tx *Tx) {
		var wrong []string
		require.NoError(t, tx.WrongHolds(t.Context(), &a.tenant, func(r store.WrongHold) error { wrong = append(wrong, r.Problem); return nil }))
		require.Equal(t, []string{"surplus"}, wrong, "the task of the hold was not admitted")
		opened := must(tx.ReleaseHolds(t.Context(), holder.keys(0)))(t)
		require.Len(t, opened, 1, "the task that waited is in the order of admission again")
	})
	require.Zero(t, w.Count(t, `SELECT count(*) FROM servo.partition_holds`))
	require.Zero(t, w.Count(t, `SELECT count(*) FROM servo.partition_waits`))

	w.apply(t, store.Changes{Holds: []store.Hold{hold(holder, 1, 10)}})
	w.engine(t, func(tx *Tx) { require.NoError(t, tx.RepairHolds(t.Context(), holder.key())) })
	require.Zero(t, w.Count(t, `SELECT count(*) FROM servo.partition_holds`), "a task without partitions holds nothing")
}
