package store

import (
	"context"

	"github.com/google/uuid"

	"go.arco.dev/servo/internal/base/id"
	"go.arco.dev/servo/internal/store/internal/db"
)

type (
	// MaterializationRow is a row of materializations.
	MaterializationRow = db.ServoMaterialization
	// WrongPointerRow is a pointer that contradicts the versions of its partition.
	WrongPointerRow = db.VerifyPointersRow
)

// EachMaterialization streams the versions of runs.
func (tx *Tx) EachMaterialization(ctx context.Context, keys []RunKey, each func(MaterializationRow) error) error {
	return streamWhole(ctx, tx, each, keyed("materializations", "run_id")+", q.id", column(keys, RunKey.tenantID), column(keys, RunKey.runID))()
}

// WrongPointers streams the pointers that contradict the versions of their partitions, of one tenant or of all.
func (tx *Tx) WrongPointers(ctx context.Context, tenant *id.Tenant, each func(WrongPointerRow) error) error {
	first, _ := bounds(tenant)
	return stream(ctx, tx, each, db.VerifyPointers, tenant == nil, first)()
}

// repairMaterializations replaces versions of a run. Pointers are not changed: the row alone decides what is
// promoted.
func (tx *Tx) repairMaterializations(ctx context.Context, r RunRepair) error {
	err := tx.writes.write("drop materializations", len(r.DropOutputs), func(q *db.Queries) error {
		return q.DropMaterializations(ctx, db.DropMaterializationsParams{
			TenantIds: column(r.DropOutputs, TaskKey.tenantID), Ids: column(r.DropOutputs, func(k TaskKey) uuid.UUID { return k.Task.UUID }),
		})
	})
	if err != nil {
		return err
	}
	return tx.insertMaterializations(ctx, Changes{Materializations: r.NewOutputs})
}
