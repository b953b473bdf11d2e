package store

import (
	"context"
	"slices"
	"time"

	"go.arco.dev/servo/internal/store/internal/db"
)

// How long what was seen counts as being there.
const (
	// ServerLives is how long a server counts as alive after it was seen: three renewals.
	ServerLives = 15 * time.Second
	// WorkerLives is how long a worker does: the longest wait of a claim, and a minute.
	WorkerLives = 2 * time.Minute
	// workerSilent is when a worker is called silent: it is heard of each second while it waits for
	// tasks, with a heartbeat each ten seconds while it works, and written down each five.
	workerSilent = 25 * time.Second
	// keepPresence is how long rows are kept that nobody renews.
	keepPresence = 10 * time.Minute

	maxServers = 1_000
)

// Server is a server of this installation by what it last said.
type Server struct {
	Name      string
	Version   string
	StartedAt time.Time
	SeenAt    time.Time
}

// SeenWorker is a worker that was seen to serve a pool.
type SeenWorker struct {
	Name  string
	Pool  string
	Slots int32 // tasks that it can hold
	// Capabilities are what it can run, and Digest names that list; Everything has none.
	Digest       string
	Capabilities []string
}

// Presence is what a server says about itself and about the workers that it has seen.
type Presence struct {
	Name      string
	Version   string
	StartedAt time.Time
	Workers   []SeenWorker // each name and pool once
	Heard     []string     // names of workers that sent heartbeats, of whose pools nothing is known here
}

// RenewPresence says that a server is there, and whom it has seen. It answers whether there
// are other servers.
func (s *Store) RenewPresence(ctx context.Context, p Presence) (others bool, err error) {
	err = s.engineAt(ctx, func(ctx context.Context, tx *Tx, now time.Time) error {
		others, err = tx.q.RenewServer(ctx, db.RenewServerParams{
			Name: p.Name, Version: p.Version, StartedAt: p.StartedAt, Now: now, Since: now.Add(-ServerLives),
		})
		if err != nil {
			return err
		}
		if err := tx.seeCapabilities(ctx, p.Workers, now); err != nil {
			return err
		}
		if len(p.Workers) > 0 {
			err = tx.q.SeeWorkers(ctx, db.SeeWorkersParams{
				Now: now, Since: now.Add(-WorkerLives),
				Names:        column(p.Workers, func(w SeenWorker) string { return w.Name }),
				Pools:        column(p.Workers, func(w SeenWorker) string { return w.Pool }),
				Slots:        column(p.Workers, func(w SeenWorker) int32 { return w.Slots }),
				Capabilities: column(p.Workers, func(w SeenWorker) string { return w.Digest }),
			})
			if err != nil {
				return err
			}
		}
		if len(p.Heard) > 0 {
			return tx.q.SeeWorkersAgain(ctx, db.SeeWorkersAgainParams{Now: now, Names: p.Heard})
		}
		return nil
	})
	return others, err
}

// RemoveServer forgets a server that stops.
func (s *Store) RemoveServer(ctx context.Context, name string) error {
	return s.engine(ctx, func(ctx context.Context, tx *Tx) error { return tx.q.RemoveServer(ctx, name) })
}

// Servers are the servers that are alive, by name.
func (s *Store) Servers(ctx context.Context) ([]Server, error) {
	return read(ctx, s.engine, func(ctx context.Context, tx *Tx) ([]Server, error) {
		now, err := tx.Clock(ctx)
		if err != nil {
			return nil, err
		}
		return list(func(r db.ServoServer) Server { return Server(r) })(tx.q.Servers(ctx, db.ServersParams{Since: now.Add(-ServerLives), Most: maxServers}))
	})
}

// ServerLives reports whether a server was seen lately.
func (tx *Tx) ServerLives(ctx context.Context, name string, now time.Time) (bool, error) {
	rows, err := tx.q.Servers(ctx, db.ServersParams{Since: now.Add(-ServerLives), Most: maxServers})
	return slices.ContainsFunc(rows, func(r db.ServoServer) bool { return r.Name == name }), err
}

// Capacity is what the live workers of a pool can hold. A worker that serves several pools
// counts in each with all that it has.
type Capacity struct {
	Workers int
	Slots   int
}

// PoolCapacities are the capacities of the pools that have live workers.
func (s *Store) PoolCapacities(ctx context.Context) (map[string]Capacity, error) {
	return read(ctx, s.engine, func(ctx context.Context, tx *Tx) (map[string]Capacity, error) {
		now, err := tx.Clock(ctx)
		if err != nil {
			return nil, err
		}
		return tx.PoolCapacities(ctx, now)
	})
}

// PoolCapacities are the capacities of the pools that have live workers.
func (tx *Tx) PoolCapacities(ctx context.Context, now time.Time) (map[string]Capacity, error) {
	return index(func(r db.PoolCapacitiesRow) (string, Capacity) {
		return r.Pool, Capacity{Workers: int(r.Workers), Slots: int(r.Slots)}
	})(tx.q.PoolCapacities(ctx, db.PoolCapacitiesParams{Since: now.Add(-WorkerLives), Most: maxPools}))
}

// WorkerView is a live worker as operators see it.
type WorkerView struct {
	Name      string
	Pools     []string
	Slots     int32
	FirstSeen time.Time
	SeenAt    time.Time
	Leases    int32 // that it holds now
	// LeasesEndAt is when the last of them ends unless it is renewed; zero without any.
	LeasesEndAt  time.Time
	Capabilities []string // none is everything
	Silent       bool
}

// ListWorkers are up to most live workers in the order of their names, beginning after one;
// those of one pool if it is named.
func (s *Store) ListWorkers(ctx context.Context, pool, after string, most int) ([]WorkerView, error) {
	return read(ctx, s.Snapshot, func(ctx context.Context, tx *Tx) ([]WorkerView, error) {
		now, err := tx.Clock(ctx)
		if err != nil {
			return nil, err
		}
		return list(func(r db.WorkersRow) WorkerView {
			return WorkerView{
				Name: r.Name, Pools: r.Pools, Slots: r.Slots, FirstSeen: r.FirstSeen, SeenAt: r.SeenAt, Leases: r.Leases,
				LeasesEndAt: r.LeasesEndAt, Capabilities: r.Capabilities, Silent: now.Sub(r.SeenAt) > workerSilent,
			}
		})(tx.q.Workers(ctx, db.WorkersParams{
			Leases: MaxDepth, After: after, Since: now.Add(-WorkerLives), Pool: pool, Most: int32(most), //nolint:gosec // a page
		}))
	})
}

// ForgetPresence deletes servers and workers that have not been seen for a while.
func (s *Store) ForgetPresence(ctx context.Context) (servers, workers int64, err error) {
	err = s.engineAt(ctx, func(ctx context.Context, tx *Tx, now time.Time) error {
		if servers, err = tx.q.ForgetServers(ctx, now.Add(-keepPresence)); err != nil {
			return err
		}
		if workers, err = tx.q.ForgetWorkers(ctx, now.Add(-keepPresence)); err != nil {
			return err
		}
		_, err = tx.q.ForgetCapabilities(ctx, now.Add(-keepPresence))
		return err
	})
	return servers, workers, err
}
