package store

import (
	"context"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"go.arco.dev/servo/internal/store/internal/db"
)

// inlineRows is what the statements of the short way have answered.
type inlineRows struct {
	Hold    db.HoldInlineRow
	Shares  []db.InlineSharesRow
	Tasks   []db.InlineTasksRow
	Repeats []uuid.UUID
}

// readInline sends the statements of the short way in one message. They are not merged into
// one: each must see what was committed before the one before it had its locks.
func readInline(ctx context.Context, tx pgx.Tx, hold db.HoldInlineParams, shares db.InlineSharesParams, tasks db.InlineTasksParams, claims []uuid.UUID) (found inlineRows, err error) {
	batch := &pgx.Batch{}
	batch.Queue(db.HoldInline, hold.Keys, hold.Duty).QueryRow(func(row pgx.Row) error {
		return row.Scan(&found.Hold.Held, &found.Hold.Dispatches, &found.Hold.Claims)
	})
	batch.Queue(db.InlineShares, shares.MostReady, shares.TenantIds, shares.Pools, shares.Alive, shares.MostQueued).Query(collect(&found.Shares))
	batch.Queue(db.InlineTasks, tasks.Nths, tasks.TenantIds, tasks.RunIds, tasks.TaskIds, tasks.Assets).Query(collect(&found.Tasks))
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
