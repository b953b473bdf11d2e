package store

import (
	"context"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"go.arco.dev/servo/internal/store/internal/db"
)

// handoffRows are the answers of the statements of a handoff.
type handoffRows struct {
	Hold    db.HoldHandoffRow
	Shares  []db.HandoffSharesRow
	Tasks   []db.HandoffTasksRow
	Repeats []uuid.UUID
}

// readHandoff sends the statements of a handoff in one message. They are not merged into one: each
// must see what was committed before the statement before it had its locks.
func readHandoff(ctx context.Context, tx pgx.Tx, hold db.HoldHandoffParams, shares db.HandoffSharesParams, tasks db.HandoffTasksParams, claims []uuid.UUID) (found handoffRows, err error) {
	batch := &pgx.Batch{}
	batch.Queue(db.HoldHandoff, hold.Keys, hold.Duty).QueryRow(func(row pgx.Row) error {
		return row.Scan(&found.Hold.Held, &found.Hold.Dispatches, &found.Hold.Claims)
	})
	batch.Queue(db.HandoffShares, shares.MostReady, shares.TenantIds, shares.Pools, shares.Alive, shares.MostQueued).Query(collect(&found.Shares))
	batch.Queue(db.HandoffTasks, tasks.Nths, tasks.TenantIds, tasks.Assets).Query(collect(&found.Tasks))
	if len(claims) > 0 {
		batch.Queue(db.ClaimsWithLeases, claims).Query(func(rows pgx.Rows) error {
			found.Repeats, err = pgx.CollectRows(rows, pgx.RowTo[uuid.UUID])
			return err
		})
	}
	err = tx.SendBatch(ctx, batch).Close()
	return found, err
}

// collect reads rows whose columns are the fields of T, in their order.
func collect[T any](into *[]T) func(pgx.Rows) error {
	return func(rows pgx.Rows) (err error) {
		*into, err = pgx.CollectRows(rows, pgx.RowToStructByPos[T])
		return err
	}
}
