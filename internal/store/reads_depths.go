package store

import (
	"context"
	"maps"
	"slices"
	"time"

	"go.arco.dev/servo/internal/domain/run"
	"go.arco.dev/servo/internal/store/internal/db"
)

// Bounds for counts in the queues of all tenants.
const (
	// MaxDepth is where counting stops: a longer queue counts as this long.
	MaxDepth = 100_000
	maxPools = 1_000
)

// QueueDepths counts the live tasks of all tenants by state, each up to MaxDepth (DISPATCHED and
// RUNNING together).
func (s *Store) QueueDepths(ctx context.Context) (map[run.TaskState]int, error) {
	return s.queueDepths(ctx, MaxDepth)
}

func (s *Store) queueDepths(ctx context.Context, most int32) (map[run.TaskState]int, error) {
	return read(ctx, s.Snapshot, func(ctx context.Context, tx *Tx) (map[run.TaskState]int, error) {
		row, err := tx.q.QueueDepths(ctx, most)
		return map[run.TaskState]int{
			run.Pending: int(row.Pending), run.Ready: int(row.Ready), run.Queued: int(row.Queued),
			run.Dispatched: int(row.Dispatched), run.Running: int(row.Running), run.RetryWait: int(row.RetryWait),
		}, err
	})
}

// PoolDepth counts the queued and leased tasks of a pool.
type PoolDepth struct {
	Pool           string
	Queued, Leased int
}

// PoolDepths counts queued and leased tasks of the pools that have any, by name: up to MaxDepth of
// each queue, and up to MaxDepth leases together.
func (s *Store) PoolDepths(ctx context.Context) ([]PoolDepth, error) {
	return s.poolDepths(ctx, MaxDepth)
}

func (s *Store) poolDepths(ctx context.Context, most int32) ([]PoolDepth, error) {
	depths := map[string]PoolDepth{}
	err := s.engine(ctx, func(ctx context.Context, tx *Tx) error {
		queued, err := tx.q.QueuedByPool(ctx, db.QueuedByPoolParams{Most: most, Pools: maxPools})
		if err != nil {
			return err
		}
		for _, r := range queued {
			depths[r.Pool] = PoolDepth{Pool: r.Pool, Queued: int(r.Tasks)}
		}
		leased, err := tx.q.LeasedByPool(ctx, db.LeasedByPoolParams{Most: most, Pools: maxPools})
		for _, r := range leased {
			depths[r.Pool] = PoolDepth{Pool: r.Pool, Queued: depths[r.Pool].Queued, Leased: int(r.Tasks)}
		}
		return err
	})
	pools := make([]PoolDepth, 0, len(depths))
	for _, name := range slices.Sorted(maps.Keys(depths)) {
		pools = append(pools, depths[name])
	}
	return pools, err
}

// DutyView is the current or last holder of a duty.
type DutyView struct {
	Duty

	ExpiresAt time.Time // zero if it was released or never taken
}

// Duties reads the holders of all duties.
func (s *Store) Duties(ctx context.Context) ([]DutyView, error) {
	return read(ctx, s.Snapshot, func(ctx context.Context, tx *Tx) ([]DutyView, error) {
		return list(func(r db.DutiesRow) DutyView {
			return DutyView{Duty: Duty{Name: r.Name, Holder: r.Holder, Epoch: r.Epoch}, ExpiresAt: r.ExpiresAt}
		})(tx.q.Duties(ctx))
	})
}

// Ping checks that the database answers.
func (s *Store) Ping(ctx context.Context) error { return s.pool.Ping(ctx) }

// PoolStats counts the connections to the database, and the waits for one since the store was
// opened.
type PoolStats struct {
	Acquired, Idle, Total, Max int32

	AcquireCount      int64         // how often a connection was acquired
	AcquireDuration   time.Duration // time spent on acquiring them
	EmptyAcquireCount int64         // how often none was free
}

// PoolStats returns the current figures.
func (s *Store) PoolStats() PoolStats {
	stat := s.pool.Stat()
	return PoolStats{
		Acquired: stat.AcquiredConns(), Idle: stat.IdleConns(), Total: stat.TotalConns(), Max: stat.MaxConns(),
		AcquireCount: stat.AcquireCount(), AcquireDuration: stat.AcquireDuration(), EmptyAcquireCount: stat.EmptyAcquireCount(),
	}
}
