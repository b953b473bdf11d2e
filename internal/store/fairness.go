package store

import (
	"context"

	"go.arco.dev/servo/internal/fair"
	"go.arco.dev/servo/internal/store/internal/db"
)

// ShareView is what a tenant has of a pool, for people.
type ShareView struct {
	Pool          string
	Tenant        string // its name
	Weight        float64
	Deficit       float64 // at the pool's clock of now
	Waiting       int     // counted no further than MaxWaitingShown
	InFlight      int
	TenantFlight  int // in all pools
	MaxConcurrent int // -1 is no limit
	Served        float64
	Attempts      int64
}

// MaxWaitingShown bounds how far the tasks that wait are counted.
const MaxWaitingShown = 1000

// ListShares reads the shares of one pool, or of all if it is "", at most so many.
func (s *Store) ListShares(ctx context.Context, pool string, most int) ([]ShareView, error) {
	var shares []ShareView
	err := s.engine(ctx, func(ctx context.Context, tx *Tx) error {
		rows, err := tx.q.ListShares(ctx, db.ListSharesParams{Pool: pool, MostWaiting: MaxWaitingShown, Most: int32(most)}) //nolint:gosec // a page size
		shares = column(rows, func(r db.ListSharesRow) ShareView {
			deficit := fair.Share{Weight: r.FairnessWeight, Deficit: r.Deficit, Clock: r.Clock}.Now(r.PoolClock)
			return ShareView{
				Pool: r.Pool, Tenant: r.Name, Weight: r.FairnessWeight, Deficit: deficit, Waiting: int(r.Waiting), InFlight: int(r.InFlight),
				TenantFlight: int(r.TenantInFlight), MaxConcurrent: int(r.MaxConcurrentTasks), Served: r.Served, Attempts: r.Tasks,
			}
		})
		return err
	})
	return shares, err
}
