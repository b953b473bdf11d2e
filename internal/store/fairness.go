package store

import (
	"context"

	"go.arco.dev/servo/internal/base/id"
	"go.arco.dev/servo/internal/domain/fair"
	"go.arco.dev/servo/internal/store/internal/db"
)

// ShareView is the share of a tenant in a pool, for people.
type ShareView struct {
	Pool          string
	Tenant        string // its name
	Weight        float64
	Deficit       float64 // at the pool's current clock
	Waiting       int     // counted up to MaxWaitingShown
	InFlight      int
	TenantFlight  int // in all pools
	MaxConcurrent int // -1 is no limit
	Served        float64
	Attempts      int64
	Competes      bool    // it waits or has tasks in flight
	PoolWeight    float64 // of all tenants that compete for the pool
	PoolFlight    int64   // tasks of all tenants
}

const (
	// MaxWaitingShown bounds the count of waiting tasks.
	MaxWaitingShown = 200
	// weighedShares bounds how many waiting shares, and shares with tasks in flight, are read.
	weighedShares = 10_000
)

// ListShares reads the shares of one pool, or of all if it is "", and of one tenant, or of all for
// the zero tenant. It returns up to most shares, those with most tasks in flight first. More is
// true if there are others, or if more tenants wait than it has read.
func (s *Store) ListShares(ctx context.Context, pool string, tenant id.Tenant, most int) (shares []ShareView, more bool, err error) {
	err = s.engine(ctx, func(ctx context.Context, tx *Tx) error {
		rows, err := tx.q.ListShares(ctx, db.ListSharesParams{
			Pool: pool, TenantID: tenant.UUID, Walk: weighedShares, MostWaiting: MaxWaitingShown, Most: int32(most), //nolint:gosec // a page size
		})
		shares = column(rows, func(r db.ListSharesRow) ShareView {
			deficit := fair.Share{Weight: r.FairnessWeight, EvenAt: r.EvenAt, Waits: r.Keeps}.Deficit(r.PoolClock)
			more = more || r.More
			return ShareView{
				Pool: r.Pool, Tenant: r.Name, Weight: r.FairnessWeight, Deficit: deficit, Waiting: int(r.Waiting), InFlight: int(r.InFlight),
				TenantFlight: int(r.TenantInFlight), MaxConcurrent: int(r.MaxConcurrentTasks), Served: r.Served, Attempts: r.Tasks,
				Competes: r.Waits || r.InFlight > 0, PoolWeight: r.PoolWeight, PoolFlight: r.PoolInFlight,
			}
		})
		return err
	})
	return shares, more, err
}
