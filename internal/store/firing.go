package store

import (
	"context"
	"time"
)

// TakeFiringSeat returns the time, and whether the transaction is one of the few that may fire
// slots at the same time. It never waits.
func (tx *Tx) TakeFiringSeat(ctx context.Context, seats int) (now time.Time, seated bool, err error) {
	row, err := tx.q.TakeFiringSeat(ctx, int32(seats)) //nolint:gosec // a few
	return row.Now, row.Seated, err
}
