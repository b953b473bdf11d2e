package store

import (
	"context"
	"slices"

	"go.arco.dev/servo/internal/base/id"
	"go.arco.dev/servo/internal/domain/run"
	"go.arco.dev/servo/internal/store/internal/db"
)

// PoolAccess says which tenants a pool accepts tasks of.
type PoolAccess struct {
	Owned   bool // by one of them; else they are listed
	Tenants []id.Tenant
}

// Accepts reports whether tasks of a tenant may use the pool.
func (a PoolAccess) Accepts(tenant id.Tenant) bool { return slices.Contains(a.Tenants, tenant) }

// PoolAccess reads which of the named pools do not accept all tenants, and which ones they
// accept: one statement.
func (tx *Tx) PoolAccess(ctx context.Context, names []string) (map[string]PoolAccess, error) {
	if len(names) == 0 {
		return nil, nil
	}
	rows, err := tx.q.PoolAccess(ctx, names)
	if err != nil {
		return nil, err
	}
	found := make(map[string]PoolAccess, len(rows))
	for _, r := range rows {
		found[r.Name] = PoolAccess{Owned: r.OwnerID != nil, Tenants: column(r.Accepts, id.Of[id.Tenant])}
	}
	return found, nil
}

// QueuedWithoutAccess are candidates: queued tasks of tenants that may no longer use their pool.
func (tx *Tx) QueuedWithoutAccess(ctx context.Context, most int) ([]TaskKey, error) {
	rows, err := tx.q.QueuedWithoutAccess(ctx, int32(most)) //nolint:gosec // a batch size
	if err != nil {
		return nil, err
	}
	return column(rows, func(r db.QueuedWithoutAccessRow) TaskKey { return taskKey(r.TenantID, r.RunID, r.TaskID) }), nil
}

// LockQueuedWithoutAccess locks those of the tasks that are queued in a pool which does not
// accept their tenant, and skips rows that are locked.
func (tx *Tx) LockQueuedWithoutAccess(ctx context.Context, keys []TaskKey) ([]run.Task, error) {
	rows, err := tx.q.LockQueuedWithoutAccess(ctx, db.LockQueuedWithoutAccessParams{
		RunIds: column(keys, TaskKey.runID), TaskIds: column(keys, TaskKey.taskID),
	})
	if err != nil {
		return nil, err
	}
	return column(rows, queuedTask), nil
}

func queuedTask(r db.LockQueuedWithoutAccessRow) run.Task {
	return taskFromQueued(db.ServoPoolQ{
		TenantID: r.TenantID, RunID: r.RunID, TaskID: r.TaskID, Since: r.Since, Version: r.Version, TimeoutS: r.TimeoutS,
		Priority: r.Priority, Dependents: r.Dependents, Pool: r.Pool, Needs: r.Needs, Attempt: r.Attempt, Failures: r.Failures,
		Fruitless: r.Fruitless, Deaths: r.Deaths, FanOuts: r.FanOuts, Cursor: r.Cursor, Cost: r.Cost, Asset: r.Asset, ReadyAt: r.ReadyAt,
	})
}
