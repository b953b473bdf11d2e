package store

import (
	"context"
	"slices"

	"go.arco.dev/servo/internal/base/id"
	"go.arco.dev/servo/internal/domain/run"
	"go.arco.dev/servo/internal/store/internal/db"
)

// PoolAccess lists the tenants whose tasks a pool accepts.
type PoolAccess struct {
	Owned   bool // one tenant owns the pool; otherwise the tenants are listed
	Tenants []id.Tenant
}

// Accepts reports whether tasks of a tenant may use the pool.
func (a PoolAccess) Accepts(tenant id.Tenant) bool { return slices.Contains(a.Tenants, tenant) }

// PoolAccess reads which of the named pools do not accept all tenants, and the tenants that they
// accept.
func (tx *Tx) PoolAccess(ctx context.Context, names []string) (map[string]PoolAccess, error) {
	if len(names) == 0 {
		return nil, nil
	}
	return index(func(r db.PoolAccessRow) (string, PoolAccess) {
		return r.Name, PoolAccess{Owned: r.OwnerID != nil, Tenants: column(r.Accepts, id.Of[id.Tenant])}
	})(tx.q.PoolAccess(ctx, names))
}

// QueuedWithoutAccess returns candidates: queued tasks of tenants that may no longer use their pool.
func (tx *Tx) QueuedWithoutAccess(ctx context.Context, most int) ([]TaskKey, error) {
	return list(func(r db.QueuedWithoutAccessRow) TaskKey { return taskKey(r.TenantID, r.RunID, r.TaskID) })(tx.q.QueuedWithoutAccess(ctx, int32(most))) //nolint:gosec // a batch size
}

// LockQueuedWithoutAccess locks those of the tasks that are queued in a pool which does not
// accept their tenant, and skips rows that are locked.
func (tx *Tx) LockQueuedWithoutAccess(ctx context.Context, keys []TaskKey) ([]run.Task, error) {
	return list(taskFromQueued)(tx.q.LockQueuedWithoutAccess(ctx, db.LockQueuedWithoutAccessParams{
		RunIds: column(keys, TaskKey.runID), TaskIds: column(keys, TaskKey.taskID),
	}))
}
