package store

import (
	"context"
	"slices"
	"time"

	"go.arco.dev/servo/internal/store/internal/db"
)

// How long servers and workers count as alive.
const (
	// ServerLives is how long a server counts as alive after a renewal: three renewals.
	ServerLives = 15 * time.Second
	// WorkerLives is how long a worker counts as alive: the longest wait of a claim and a minute.
	WorkerLives = 2 * time.Minute
	// workerSilent is after which time a worker is shown as silent: it contacts the server each
	// second while it waits for tasks and each ten seconds while it works, and the server writes
	// this each five seconds.
	workerSilent = 25 * time.Second
	// keepPresence is how long rows are kept after the last renewal.
	keepPresence = 10 * time.Minute

	maxServers = 1_000
)

// Server is a server of this installation by its last renewal.
type Server struct {
	Name      string
	Version   string
	StartedAt time.Time
	SeenAt    time.Time
}

// SeenWorker is a worker that serves a pool.
type SeenWorker struct {
	Name  string
	Pool  string
	Slots int32 // its capacity in tasks
	// Capabilities list what it can run; Digest identifies the list. Everything has none.
	Digest       string
	Capabilities []string
}

// Presence is a server's report about itself and the workers that have contacted it.
type Presence struct {
	Name      string
	Version   string
	StartedAt time.Time
	Workers   []SeenWorker // each name and pool once
	Alive     []string     // names of workers that sent heartbeats, whose pools are unknown to this server
}

// RenewPresence writes that a server and its workers are alive. It returns whether there are other
// servers.
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
		if len(p.Alive) > 0 {
			return tx.q.SeeWorkersAgain(ctx, db.SeeWorkersAgainParams{Now: now, Names: p.Alive})
		}
		return nil
	})
	return others, err
}

// RemoveServer deletes a server that stops.
func (s *Store) RemoveServer(ctx context.Context, name string) error {
	return s.engine(ctx, func(ctx context.Context, tx *Tx) error { return tx.q.RemoveServer(ctx, name) })
}

// Servers returns the live servers, by name.
func (s *Store) Servers(ctx context.Context) ([]Server, error) {
	return read(ctx, s.engine, func(ctx context.Context, tx *Tx) ([]Server, error) {
		now, err := tx.Clock(ctx)
		if err != nil {
			return nil, err
		}
		return list(func(r db.ServoServer) Server { return Server(r) })(tx.q.Servers(ctx, db.ServersParams{Since: now.Add(-ServerLives), Most: maxServers}))
	})
}

// ServerLives reports whether a server is alive.
func (tx *Tx) ServerLives(ctx context.Context, name string, now time.Time) (bool, error) {
	rows, err := tx.q.Servers(ctx, db.ServersParams{Since: now.Add(-ServerLives), Most: maxServers})
	return slices.ContainsFunc(rows, func(r db.ServoServer) bool { return r.Name == name }), err
}

// Capacity is the number of live workers of a pool and of their tasks. A worker that serves several
// pools counts in each with its whole capacity.
type Capacity struct {
	Workers int
	Slots   int
}

// PoolCapacities returns the capacities of the pools with live workers.
func (s *Store) PoolCapacities(ctx context.Context) (map[string]Capacity, error) {
	return read(ctx, s.engine, func(ctx context.Context, tx *Tx) (map[string]Capacity, error) {
		now, err := tx.Clock(ctx)
		if err != nil {
			return nil, err
		}
		return tx.PoolCapacities(ctx, now)
	})
}

// PoolCapacities returns the capacities of the pools with live workers.
func (tx *Tx) PoolCapacities(ctx context.Context, now time.Time) (map[string]Capacity, error) {
	return index(func(r db.PoolCapacitiesRow) (string, Capacity) {
		return r.Pool, Capacity{Workers: int(r.Workers), Slots: int(r.Slots)}
	})(tx.q.PoolCapacities(ctx, db.PoolCapacitiesParams{Since: now.Add(-WorkerLives), Most: maxPools}))
}

// WorkerView is a live worker, for operators.
type WorkerView struct {
	Name      string
	Pools     []string
	Slots     int32
	FirstSeen time.Time
	SeenAt    time.Time
	Leases    int32 // that it holds
	// LeasesEndAt is when the last of them ends unless it is renewed; zero without any.
	LeasesEndAt  time.Time
	Capabilities []string // none means every task
	Silent       bool
}

// ListWorkers returns up to most live workers in the order of their names, after a name; only those
// of one pool if it is not "".
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
