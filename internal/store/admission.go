package store

import (
	"context"

	"github.com/google/uuid"

	"go.arco.dev/servo/internal/id"
	"go.arco.dev/servo/internal/run"
	"go.arco.dev/servo/internal/store/internal/db"
)

// ShareKey finds what a tenant has of a pool.
type ShareKey struct {
	Tenant id.Tenant
	Pool   string
}

func (k ShareKey) tenantID() uuid.UUID { return k.Tenant.UUID }
func (k ShareKey) pool() string        { return k.Pool }

// ReadyShares are the tenants and pools with tasks that may be admitted.
func (tx *Tx) ReadyShares(ctx context.Context) ([]ShareKey, error) {
	rows, err := tx.q.ReadyShares(ctx)
	if err != nil {
		return nil, err
	}
	return column(rows, func(r db.ReadySharesRow) ShareKey { return ShareKey{Tenant: id.Of[id.Tenant](r.TenantID), Pool: r.Pool} }), nil
}

// TakeReady locks the ready tasks that come next, at most so many of each share, waiting for
// nobody. The tasks of a share come in their order.
func (tx *Tx) TakeReady(ctx context.Context, shares []ShareKey, mosts []int32) ([]run.Task, error) {
	if len(shares) == 0 {
		return nil, nil
	}
	rows, err := tx.q.TakeReady(ctx, db.TakeReadyParams{
		TenantIds: column(shares, ShareKey.tenantID), Pools: column(shares, ShareKey.pool), Mosts: mosts,
	})
	if err != nil {
		return nil, err
	}
	return column(rows, func(r db.TakeReadyRow) run.Task {
		t := taskFromReady(db.ServoReadyQ{
			TenantID: r.TenantID, RunID: r.RunID, TaskID: r.TaskID, Since: r.Since, Version: r.Version, TimeoutS: r.TimeoutS,
			Priority: r.Priority, Dependents: r.Dependents, Pool: r.Pool, Attempt: r.Attempt, Failures: r.Failures,
			Fruitless: r.Fruitless, FanOuts: r.FanOuts, Cursor: r.Cursor,
		})
		t.Asset = r.Asset
		return t
	}), nil
}
