package store

import (
	"context"
	"slices"
	"time"

	"github.com/google/uuid"

	"go.arco.dev/servo/internal/base/id"
	"go.arco.dev/servo/internal/domain/run"
	"go.arco.dev/servo/internal/store/internal/db"
)

// ShareKey identifies the share of a tenant in a pool.
type ShareKey struct {
	Tenant id.Tenant
	Pool   string
}

func (k ShareKey) tenantID() uuid.UUID { return k.Tenant.UUID }
func (k ShareKey) pool() string        { return k.Pool }

// ReadyShare is the share of a tenant with ready tasks in a pool, and the limits of both.
type ReadyShare struct {
	ShareKey
	PoolRoom

	Weight      float64
	EvenAt      float64 // of the tenant in this pool (package fair)
	Waits       bool    // likewise
	MaxInFlight int     // of the tenant in all pools; -1 is no limit
	InFlight    int     // likewise
	Pauses      bool    // some asset of the tenant is paused
	Admitted    int64   // tasks of the tenant in this pool, ever
}

// PoolRoom is the capacity of a pool and its use.
type PoolRoom struct {
	PoolClock       float64
	PoolMaxInFlight int // -1 is no limit
	PoolInFlight    int
	PoolQueued      int       // counted up to a limit
	PoolWorkers     int       // live workers
	PoolCapacity    int       // their capacity in tasks
	PoolSets        []string  // digests of their capabilities; none without workers
	PoolAhead       int       // how many tasks they currently start in the time of a few rounds
	PoolDemand      int       // how many tasks the claims of this transaction want; 0 for the admission loop
	PoolByClaims    bool      // claims of its workers admit its tasks
	PoolClaimedAt   time.Time // when one last did
	PoolLeft        bool      // the round leaves the pool to them
}

// ReadyPools are pools with ready tasks, by name, and their capacity.
type ReadyPools struct {
	Names []string
	Rooms []PoolRoom
}

// AdmissionWork reports whether there are tasks to admit or runs to start.
func (s *Store) AdmissionWork(ctx context.Context) (admits, starts bool, err error) {
	err = s.engine(ctx, func(ctx context.Context, tx *Tx) error {
		work, err := tx.q.AdmissionWork(ctx)
		admits, starts = work.Ready || work.Notes, work.Starts
		return err
	})
	return admits, starts, err
}

// FoldSettlements adds up to most settlements to shares and durations, and returns their number.
func (tx *Tx) FoldSettlements(ctx context.Context, most int) (int, error) {
	folded, err := tx.q.FoldSettlements(ctx, int32(most)) //nolint:gosec // a batch size
	return int(folded), err
}

// RecountShares counts again the tasks of all tenants in flight, and which tenants wait.
func (tx *Tx) RecountShares(ctx context.Context) error {
	if err := tx.q.RecountShares(ctx); err != nil {
		return err
	}
	return tx.q.RenoteReady(ctx)
}

// PoolQuestion selects the pools that a round of admission reads.
type PoolQuestion struct {
	Alive      time.Duration // how long after its last sign of life a worker counts
	MostQueued int           // up to which queued tasks are counted
	Named      []string      // pools to read, with tasks or without
	Only       bool          // read no other pools
}

// ReadyPools reads the pools with ready tasks, and the named ones.
func (tx *Tx) ReadyPools(ctx context.Context, q PoolQuestion) (ReadyPools, error) {
	rows, err := tx.q.ReadyPools(ctx, db.ReadyPoolsParams{
		Alive: q.Alive.Seconds(), MostQueued: int32(q.MostQueued), Also: append([]string{}, q.Named...), NamedOnly: q.Only, //nolint:gosec // a queue length
	})
	return ReadyPools{
		Names: column(rows, func(r db.ReadyPoolsRow) string { return r.Pool }),
		Rooms: column(rows, func(r db.ReadyPoolsRow) PoolRoom {
			return PoolRoom{
				PoolClock: r.Clock, PoolMaxInFlight: int(r.MaxConcurrency), PoolInFlight: int(r.InFlight),
				PoolQueued: int(r.Queued), PoolWorkers: int(r.Workers), PoolCapacity: int(r.Slots), PoolSets: r.Sets, PoolByClaims: r.ByClaims, PoolClaimedAt: r.ClaimedAt,
			}
		}),
	}, err
}

// TryAdmission takes the admission duty for this transaction without waiting for it, if tasks of
// these pools may be ready and dispatch is on. It reports whether they may, and whether no other
// transaction admits until this one has ended.
func (tx *Tx) TryAdmission(ctx context.Context, duty string, pools []string) (waits, held bool, err error) {
	found, err := tx.q.TryAdmission(ctx, db.TryAdmissionParams{Duty: duty, Pools: pools})
	return found.Waits, found.Held, err
}

// HeadShares reads the shares that are served next, up to mosts of each pool, in their order. With a
// tenant it reads the shares of that tenant only.
func (tx *Tx) HeadShares(ctx context.Context, pools ReadyPools, mosts []int32, of id.Tenant) ([]ReadyShare, error) {
	rows, err := tx.q.HeadShares(ctx, db.HeadSharesParams{Pools: pools.Names, Mosts: mosts, TenantID: of.UUID})
	if err != nil {
		return nil, err
	}
	rooms := make(map[string]PoolRoom, len(pools.Names))
	for i, name := range pools.Names {
		rooms[name] = pools.Rooms[i]
	}
	return column(rows, func(r db.HeadSharesRow) ReadyShare {
		return ReadyShare{
			ShareKey: ShareKey{Tenant: id.Of[id.Tenant](r.TenantID), Pool: r.Pool}, PoolRoom: rooms[r.Pool],
			Weight: r.FairnessWeight, EvenAt: r.EvenAt, Waits: true, Admitted: r.Admitted,
			MaxInFlight: int(r.MaxConcurrentTasks), InFlight: int(r.TenantInFlight), Pauses: r.Pauses,
		}
	}), nil
}

// ReadyTask is a task that may be admitted, with the usual duration of its asset.
type ReadyTask struct {
	run.Task

	Seconds float64 // below 0 if unknown
	Hold    *Hold   // partitions that it holds when it is admitted; nil for none and for those that it holds already
}

// TakeReady locks the next ready tasks, up to mosts of each share, in the order of the share. It
// skips locked rows.
func (tx *Tx) TakeReady(ctx context.Context, shares []ShareKey, mosts []int32) ([]ReadyTask, error) {
	if len(shares) == 0 {
		return nil, nil
	}
	return list(readyTask)(tx.q.TakeReady(ctx, db.TakeReadyParams{
		TenantIds: column(shares, ShareKey.tenantID), Pools: column(shares, ShareKey.pool), Mosts: mosts,
	}))
}

// TakeOldest locks the oldest ready tasks of any priority, up to mosts of each share, in the order
// of the share. It skips locked rows.
func (tx *Tx) TakeOldest(ctx context.Context, shares []ShareKey, mosts []int32) ([]ReadyTask, error) {
	if len(shares) == 0 {
		return nil, nil
	}
	return list(func(r db.TakeOldestRow) ReadyTask { return readyTask(db.TakeReadyRow(r)) })(tx.q.TakeOldest(ctx, db.TakeOldestParams{
		TenantIds: column(shares, ShareKey.tenantID), Pools: column(shares, ShareKey.pool), Mosts: mosts,
	}))
}

func readyTask(r db.TakeReadyRow) ReadyTask {
	t := taskFromReady(db.ServoReadyQ{
		TenantID: r.TenantID, RunID: r.RunID, TaskID: r.TaskID, Since: r.Since, Version: r.Version, TimeoutS: r.TimeoutS,
		Priority: r.Priority, Dependents: r.Dependents, Pool: r.Pool, Needs: r.Needs, Attempt: r.Attempt, Failures: r.Failures,
		Fruitless: r.Fruitless, Deaths: r.Deaths, FanOuts: r.FanOuts, Cursor: r.Cursor, Asset: r.Asset, Divided: r.Divided,
	})
	return ReadyTask{Task: t, Seconds: r.Seconds}
}

// HoldPaused holds the tasks of paused assets, and returns them.
func (tx *Tx) HoldPaused(ctx context.Context, tasks []run.Task) (map[id.Task]bool, error) {
	if len(tasks) == 0 {
		return nil, nil
	}
	rows, err := tx.q.PausedTasks(ctx, db.PausedTasksParams{
		TenantIds: column(tasks, func(t run.Task) uuid.UUID { return t.Tenant.UUID }),
		RunIds:    column(tasks, func(t run.Task) uuid.UUID { return t.Run.UUID }),
		TaskIds:   column(tasks, func(t run.Task) uuid.UUID { return t.ID.UUID }),
		Assets:    column(tasks, func(t run.Task) string { return t.Asset }),
	})
	if err != nil {
		return nil, err
	}
	held := make(map[id.Task]bool, len(rows))
	for _, r := range rows {
		held[id.Of[id.Task](r.TaskID)] = true
	}
	return held, tx.writes.write("hold ready_q", len(rows), func(q *db.Queries) error {
		return q.HoldReady(ctx, db.HoldReadyParams{
			RunIds:  column(rows, func(r db.PausedTasksRow) uuid.UUID { return r.RunID }),
			TaskIds: column(rows, func(r db.PausedTasksRow) uuid.UUID { return r.TaskID }),
		})
	})
}

// Charge is the change of a share by a round of admission.
type Charge struct {
	ShareKey

	Admitted  int
	EvenAt    float64
	OverQuota bool // its tenant has reached its limit of tasks in flight
}

// chargeShares writes the charges of a round and the pools' clocks.
func (tx *Tx) chargeShares(ctx context.Context, c Changes) error {
	charges := c.Charges
	err := tx.writes.write("charge shares", len(charges), func(q *db.Queries) error {
		return q.ChargeShares(ctx, db.ChargeSharesParams{
			TenantIds:  column(charges, func(c Charge) uuid.UUID { return c.Tenant.UUID }),
			Pools:      column(charges, func(c Charge) string { return c.Pool }),
			Added:      column(charges, func(c Charge) int32 { return int32(c.Admitted) }), //nolint:gosec // a batch size
			EvenAts:    column(charges, func(c Charge) float64 { return c.EvenAt }),
			OverQuotas: column(charges, func(c Charge) bool { return c.OverQuota }),
			Now:        c.Now,
		})
	})
	if err != nil {
		return err
	}
	params := db.SetPoolClocksParams{Now: c.Now, ByClaims: c.ByClaims}
	for pool, clock := range c.Clocks {
		params.Pools, params.Clocks = append(params.Pools, pool), append(params.Clocks, clock)
	}
	return tx.writes.write("set pool clocks", len(c.Clocks), func(q *db.Queries) error { return q.SetPoolClocks(ctx, params) })
}

// Settlement is a note of a transaction for admission about the tasks of one asset: how many left
// flight, their charged cost, the duration of their attempts, and whether tasks became ready.
type Settlement struct {
	ShareKey

	Asset   string
	Left    int
	Ended   int
	Seconds float64
	Charged float64
	Arrived bool
}

func (tx *Tx) insertSettlements(ctx context.Context, c Changes) error {
	rows := withArrivals(c.Settlements, c.Moves)
	return tx.writes.write("insert settlements", len(rows), func(q *db.Queries) error {
		return q.InsertSettlements(ctx, db.InsertSettlementsParams{
			TenantIds: column(rows, func(s Settlement) uuid.UUID { return s.Tenant.UUID }),
			Pools:     column(rows, func(s Settlement) string { return s.Pool }),
			Assets:    column(rows, func(s Settlement) string { return s.Asset }),
			LeftBys:   column(rows, func(s Settlement) int32 { return int32(s.Left) }),  //nolint:gosec // a batch size
			Endeds:    column(rows, func(s Settlement) int32 { return int32(s.Ended) }), //nolint:gosec // likewise
			Seconds:   column(rows, func(s Settlement) float64 { return s.Seconds }),
			Chargeds:  column(rows, func(s Settlement) float64 { return s.Charged }),
			Arriveds:  column(rows, func(s Settlement) bool { return s.Arrived }),
		})
	})
}

// withArrivals adds settlements for tenants that begin to wait for pools: admission reads only
// shares with a settlement. An existing settlement of the same tenant and pool is extended.
func withArrivals(notes []Settlement, moves []Move) []Settlement {
	var place map[ShareKey]int
	for _, m := range moves {
		if m.Task.State != run.Ready || m.From == run.Ready {
			continue
		}
		if place == nil {
			notes = slices.Clone(notes)
			place = make(map[ShareKey]int, len(notes)+1)
			for i, n := range notes {
				place[n.ShareKey] = i
			}
		}
		key := ShareKey{Tenant: m.Task.Tenant, Pool: m.Task.Pool}
		i, known := place[key]
		if !known {
			i = len(notes)
			place[key] = i
			notes = append(notes, Settlement{ShareKey: key})
		}
		notes[i].Arrived = true
	}
	return notes
}
