package store

import (
	"context"
	"time"

	"github.com/google/uuid"

	"go.arco.dev/servo/internal/base/id"
	"go.arco.dev/servo/internal/store/internal/db"
)

// Overdue reports which kinds of rows are due for the reaper.
type Overdue struct{ Leases, Retries, Cones, Runs, Late, Deltas, Partitions bool }

// Overdue reads which kinds of rows are due.
func (s *Store) Overdue(ctx context.Context) (Overdue, error) {
	return read(ctx, s.engine, func(ctx context.Context, tx *Tx) (Overdue, error) {
		row, err := tx.q.Overdue(ctx)
		return Overdue(row), err
	})
}

// DueLeases returns candidates for expiry or timeout, which are checked again under locks.
func (tx *Tx) DueLeases(ctx context.Context, now time.Time, most int) ([]TaskKey, error) {
	return list(func(r db.DueLeasesRow) TaskKey { return taskKey(r.TenantID, r.RunID, r.TaskID) })(tx.q.DueLeases(ctx, db.DueLeasesParams{Now: now, Most: int32(most)})) //nolint:gosec // a batch size
}

// DueRetries returns candidates whose backoff has ended.
func (tx *Tx) DueRetries(ctx context.Context, now time.Time, most int) ([]TaskKey, error) {
	return list(func(r db.DueRetriesRow) TaskKey { return taskKey(r.TenantID, r.RunID, r.TaskID) })(tx.q.DueRetries(ctx, db.DueRetriesParams{Now: now, Most: int32(most)})) //nolint:gosec // a batch size
}

func taskKey(tenant, run, task uuid.UUID) TaskKey {
	return TaskKey{Tenant: id.Of[id.Tenant](tenant), Run: id.Of[id.Run](run), Task: id.Of[id.Task](task)}
}

// PendingCones returns runs with tasks that are still to be skipped.
func (tx *Tx) PendingCones(ctx context.Context, most int) ([]RunKey, error) {
	return list(func(r db.ServoCone) RunKey {
		return RunKey{Tenant: id.Of[id.Tenant](r.TenantID), Run: id.Of[id.Run](r.RunID)}
	})(tx.q.PendingCones(ctx, int32(most))) //nolint:gosec // a batch size
}

// Forget deletes heartbeats of ended leases, and idempotency keys older than keep.
func (s *Store) Forget(ctx context.Context, keep time.Duration) (heartbeats, keys int64, err error) {
	err = s.engineAt(ctx, func(ctx context.Context, tx *Tx, now time.Time) error {
		if heartbeats, err = tx.q.ForgetHeartbeats(ctx, now); err != nil {
			return err
		}
		keys, err = tx.q.ForgetIdempotencyKeys(ctx, now.Add(-keep))
		return err
	})
	return heartbeats, keys, err
}
