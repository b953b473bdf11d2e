package store_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"go.arco.dev/servo/internal/domain/output"
	"go.arco.dev/servo/internal/domain/quality"
	"go.arco.dev/servo/internal/store"
)

// TestMaterializations executes the statements of versions and pointers; the rules are tested in the engine.
func TestMaterializations(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	a := w.account(t, "acme")
	g := w.newRun(t, a, nil, nil, nil)
	version := func(nth int, token int64, inputs ...output.Input) store.Materialization {
		return store.Materialization{
			Tenant: a.tenant, Workspace: a.workspace.ID, Asset: "asset", Token: token, ID: g.tasks[nth].ID.UUID, Run: g.run.ID, Attempt: 1, Deployment: a.deployment.ID, RecordedAt: w.now,
			Materialization: output.Materialization{State: output.Promoted, Gate: quality.Allow, Format: "csv", Rows: 3, Detail: output.Detail{Inputs: inputs}},
		}
	}
	found := must(w.OutputTasks(t.Context(), g.keys(0)))(t)
	require.Equal(t, "acme", found[0].Tenant)
	require.Equal(t, a.workspace.ID, found[0].WorkspaceID)

	key := store.PointerKey{Tenant: a.tenant, Workspace: a.workspace.ID, Asset: "asset"}
	w.engine(t, func(tx *Tx) {
		pointers := must(tx.LockPointers(t.Context(), []store.PointerKey{key}))(t)
		require.Equal(t, output.Pointer{}, pointers[key])
		require.NoError(t, tx.Apply(t.Context(), store.Changes{
			Now: w.now, Materializations: []store.Materialization{version(0, 1), version(1, 2)},
			Pointers: []store.Pointer{{PointerKey: key, Pointer: output.Pointer{Current: 2, Highest: 2}}},
		}))
	})
	tokens := func(f store.MaterializationFilter) (all []int64) {
		f.Tenant, f.Workspace, f.Asset = a.tenant, a.workspace.Name, "asset"
		for _, m := range must(w.ListMaterializations(t.Context(), f, 0, 10))(t) {
			all = append(all, m.Token)
		}
		return all
	}
	whole, missing := "", "other"
	require.Equal(t, []int64{2, 1}, tokens(store.MaterializationFilter{}))
	require.Equal(t, []int64{2, 1}, tokens(store.MaterializationFilter{Run: &g.run.ID}))
	require.Equal(t, []int64{2, 1}, tokens(store.MaterializationFilter{Partition: &whole}))
	require.Empty(t, tokens(store.MaterializationFilter{Partition: &missing}))

	of := store.MaterializationKey{Tenant: a.tenant, Workspace: a.workspace.Name, Asset: "asset", Token: 2}
	one := must(w.GetMaterialization(t.Context(), of))(t)
	require.True(t, one.Current)
	require.Equal(t, int64(3), one.Rows)
	from, made, err := w.Lineage(t.Context(), of, 10)
	require.NoError(t, err)
	require.Empty(t, from)
	require.Empty(t, made)

	w.engine(t, func(tx *Tx) {
		require.NoError(t, tx.WrongPointers(t.Context(), nil, func(r store.WrongPointerRow) error { require.Fail(t, "wrong pointer", "%v", r); return nil }))
		require.NoError(t, tx.Repair(t.Context(), store.RunRepair{DropOutputs: g.keys(1)}))
	})
	require.Equal(t, []int64{1}, tokens(store.MaterializationFilter{}))
	w.engine(t, func(tx *Tx) {
		var wrong []int64
		require.NoError(t, tx.WrongPointers(t.Context(), &a.tenant, func(r store.WrongPointerRow) error { wrong = append(wrong, r.Token); return nil }))
		require.Equal(t, []int64{2}, wrong, "the pointer names a version that does not exist")
	})
}
