package store

import (
	"context"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"go.arco.dev/servo/internal/base/id"
	"go.arco.dev/servo/internal/domain/partition"
	"go.arco.dev/servo/internal/store/internal/db"
)

// Hold is the partitions of an asset that a task writes, from its first admission to its end. No two holds
// overlap (docs/adr/0049-partition-holds.md).
type Hold struct {
	TaskKey

	Workspace id.Workspace
	Asset     string
	Series    string
	Range     partition.Range
}

// Overlaps reports whether two holds have a partition in common.
func (h Hold) Overlaps(other Hold) bool {
	return h.Tenant == other.Tenant && h.Workspace == other.Workspace && h.Asset == other.Asset && h.Series == other.Series &&
		h.Range.First <= other.Range.Last && other.Range.First <= h.Range.Last
}

// HoldWanted is a task that wants to hold its partitions.
type HoldWanted struct {
	TaskKey

	Asset string
	New   *Hold // its partitions, if the transaction has created it
}

// HoldFound is the hold that a task would have, and the task that has it or overlaps it; a zero holder is
// none.
type HoldFound struct {
	Hold

	Holder TaskKey
}

// HoldsInTheWay reads the partitions of tasks and the holds that overlap them. Tasks without declared
// partitions are left out.
func (tx *Tx) HoldsInTheWay(ctx context.Context, wanted []HoldWanted) ([]HoldFound, error) {
	if len(wanted) == 0 {
		return nil, nil
	}
	given := column(wanted, func(w HoldWanted) Hold {
		if w.New == nil {
			return Hold{}
		}
		return *w.New
	})
	rows, err := tx.q.HoldsInTheWay(ctx, db.HoldsInTheWayParams{
		Nths:      ordinals(len(wanted)),
		TenantIds: column(wanted, func(w HoldWanted) uuid.UUID { return w.Tenant.UUID }),
		RunIds:    column(wanted, func(w HoldWanted) uuid.UUID { return w.Run.UUID }),
		TaskIds:   column(wanted, func(w HoldWanted) uuid.UUID { return w.Task.UUID }),
		Assets:    column(wanted, func(w HoldWanted) string { return w.Asset }),
		News:      column(wanted, func(w HoldWanted) bool { return w.New != nil }),

		WorkspaceIds: column(given, func(h Hold) uuid.UUID { return h.Workspace.UUID }),
		Series:       column(given, func(h Hold) string { return h.Series }),
		Firsts:       column(given, func(h Hold) int64 { return h.Range.First }),
		Lasts:        column(given, func(h Hold) int64 { return h.Range.Last }),
	})
	return column(rows, func(r db.HoldsInTheWayRow) HoldFound {
		w := wanted[r.Nth]
		found := HoldFound{Hold: Hold{
			TaskKey: w.TaskKey, Workspace: id.Of[id.Workspace](r.WorkspaceID), Asset: w.Asset, Series: r.Series, Range: partition.Range{First: r.First, Last: r.Last},
		}}
		if r.HolderTaskID != uuid.Nil {
			found.Holder = taskKey(w.Tenant.UUID, r.HolderRunID, r.HolderTaskID)
		}
		return found
	}), err
}

// WaitForHolds takes ready tasks out of the order of admission until the holds in their way are released,
// and returns them. The others stay in it: their holds are being released.
func (tx *Tx) WaitForHolds(ctx context.Context, found []HoldFound) (map[id.Task]bool, error) {
	if len(found) == 0 {
		return nil, nil
	}
	tasks, err := tx.q.WaitForHolds(ctx, db.WaitForHoldsParams{
		TenantIds:     column(found, func(f HoldFound) uuid.UUID { return f.Tenant.UUID }),
		RunIds:        column(found, func(f HoldFound) uuid.UUID { return f.Run.UUID }),
		TaskIds:       column(found, func(f HoldFound) uuid.UUID { return f.Task.UUID }),
		HolderRunIds:  column(found, func(f HoldFound) uuid.UUID { return f.Holder.Run.UUID }),
		HolderTaskIds: column(found, func(f HoldFound) uuid.UUID { return f.Holder.Task.UUID }),
	})
	out := make(map[id.Task]bool, len(tasks))
	for _, t := range tasks {
		out[id.Of[id.Task](t)] = true
	}
	return out, err
}

// insertHolds writes the holds of admitted tasks.
func (tx *Tx) insertHolds(ctx context.Context, c Changes) error {
	rows := c.Holds
	return tx.writes.write("insert partition holds", len(rows), func(q *db.Queries) error {
		return q.InsertHolds(ctx, db.InsertHoldsParams{
			Now:          c.Now,
			TenantIds:    column(rows, func(h Hold) uuid.UUID { return h.Tenant.UUID }),
			WorkspaceIds: column(rows, func(h Hold) uuid.UUID { return h.Workspace.UUID }),
			Assets:       column(rows, func(h Hold) string { return h.Asset }),
			Series:       column(rows, func(h Hold) string { return h.Series }),
			Firsts:       column(rows, func(h Hold) int64 { return h.Range.First }),
			Lasts:        column(rows, func(h Hold) int64 { return h.Range.Last }),
			RunIds:       column(rows, func(h Hold) uuid.UUID { return h.Run.UUID }),
			TaskIds:      column(rows, func(h Hold) uuid.UUID { return h.Task.UUID }),
		})
	})
}

// ReleaseHolds deletes the holds and the waits of tasks that end, and returns the tasks that waited for
// them to the order of admission. It returns their shares. The two statements are sent together; the second
// sees what was committed before the first had its locks.
func (tx *Tx) ReleaseHolds(ctx context.Context, ended []TaskKey) ([]ShareKey, error) {
	if len(ended) == 0 {
		return nil, nil
	}
	tenants, runs, tasks := column(ended, TaskKey.tenantID), column(ended, TaskKey.runID), column(ended, TaskKey.taskID)
	var opened []db.ReopenWaitingRow
	batch := &pgx.Batch{}
	batch.Queue(db.ReleaseHolds, tenants, runs, tasks)
	batch.Queue(db.ReopenWaiting, tenants, runs, tasks).Query(collect(&opened))
	err := tx.tx.SendBatch(ctx, batch).Close()
	return column(opened, openedShare), err
}

// HolderOf returns the other task that holds partitions of a task; false if there is none.
func (tx *Tx) HolderOf(ctx context.Context, of TaskKey, asset string) (holder TaskKey, ok bool, err error) {
	found, err := tx.HoldsInTheWay(ctx, []HoldWanted{{TaskKey: of, Asset: asset}})
	if err != nil || len(found) == 0 {
		return TaskKey{}, false, err
	}
	holder = found[0].Holder
	return holder, holder != TaskKey{} && holder != of, nil
}

// WrongHold is a row of partition_holds or partition_waits that does not fit the tasks, or a missing one.
type WrongHold = db.VerifyHoldsRow

// WrongHolds compares the holds of partitions with the tasks that were admitted, of one tenant or of all.
func (tx *Tx) WrongHolds(ctx context.Context, tenant *id.Tenant, report func(WrongHold) error) error {
	first, _ := bounds(tenant)
	return stream(ctx, tx, report, db.VerifyHolds, tenant == nil, first)()
}

// LockDuty waits for the current transaction under a duty, and excludes the next one.
func (tx *Tx) LockDuty(ctx context.Context, name string) error { return tx.q.WaitForDuty(ctx, name) }

// RepairHolds writes the holds of a run's tasks again, after its other rows are right. The transaction has
// locked the admission duty.
func (tx *Tx) RepairHolds(ctx context.Context, key RunKey) error {
	if err := tx.Flush(ctx); err != nil {
		return err
	}
	shares, err := list(func(r db.DropHoldsRow) ShareKey { return openedShare(db.ReopenWaitingRow(r)) })(
		tx.q.DropHolds(ctx, db.DropHoldsParams{TenantID: key.Tenant.UUID, RunID: key.Run.UUID}))
	if err != nil {
		return err
	}
	if err := tx.q.RepairHolds(ctx, db.RepairHoldsParams{TenantID: key.Tenant.UUID, RunID: key.Run.UUID}); err != nil {
		return err
	}
	return tx.insertSettlements(ctx, Changes{Settlements: Arrivals(shares)})
}

func openedShare(r db.ReopenWaitingRow) ShareKey {
	return ShareKey{Tenant: id.Of[id.Tenant](r.TenantID), Pool: r.Pool}
}

// Arrivals are settlements for shares with tasks that are in the order of admission again.
func Arrivals(shares []ShareKey) []Settlement {
	return column(shares, func(k ShareKey) Settlement { return Settlement{ShareKey: k, Arrived: true} })
}
