package store

import (
	"context"
	"time"

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

// ReadyShare is a tenant with ready tasks in a pool, and what bounds both.
type ReadyShare struct {
	ShareKey

	Weight         float64
	Deficit, Clock float64 // of the tenant in this pool (package fair)
	Waits          bool    // likewise
	MaxInFlight    int     // of the tenant in all pools; -1 is no limit
	InFlight       int     // likewise
	Pauses         bool    // some asset of the tenant is paused

	PoolClock       float64
	PoolMaxInFlight int // -1 is no limit
	PoolInFlight    int // counted only if there is a limit
	PoolQueued      int // counted no further than asked
	PoolWorkers     int // that were seen lately
	PoolSlots       int // how many tasks these can hold
}

// AdmissionWork says whether there is anything to admit or any run to start: a server that has
// nothing to do asks nothing more.
func (s *Store) AdmissionWork(ctx context.Context) (admits, starts bool, err error) {
	err = s.engine(ctx, func(ctx context.Context, tx *Tx) error {
		work, err := tx.q.AdmissionWork(ctx)
		admits, starts = work.Ready || work.Notes, work.Starts
		return err
	})
	return admits, starts, err
}

// FoldSettlements takes up to most notes of other transactions into shares and durations.
func (tx *Tx) FoldSettlements(ctx context.Context, most int) error {
	return tx.q.FoldSettlements(ctx, int32(most)) //nolint:gosec // a batch size
}

// RecountShares counts anew what every tenant has in flight.
func (tx *Tx) RecountShares(ctx context.Context) error { return tx.q.RecountShares(ctx) }

// ReadyShares are the tenants and pools with tasks that may be admitted. Workers count that
// were seen within alive, queued tasks no further than mostQueued for each pool.
func (tx *Tx) ReadyShares(ctx context.Context, alive time.Duration, mostQueued int) ([]ReadyShare, error) {
	rows, err := tx.q.ReadyShares(ctx, db.ReadySharesParams{Alive: alive.Seconds(), MostQueued: int32(mostQueued)}) //nolint:gosec // a queue length
	if err != nil {
		return nil, err
	}
	return column(rows, func(r db.ReadySharesRow) ReadyShare {
		return ReadyShare{
			ShareKey: ShareKey{Tenant: id.Of[id.Tenant](r.TenantID), Pool: r.Pool},
			Weight:   r.FairnessWeight, Deficit: r.Deficit, Clock: r.Clock, Waits: r.Waits,
			MaxInFlight: int(r.MaxConcurrentTasks), InFlight: int(r.TenantInFlight), Pauses: r.Pauses,
			PoolClock: r.PoolClock, PoolMaxInFlight: int(r.PoolMaxConcurrency), PoolInFlight: int(r.PoolInFlight),
			PoolQueued: int(r.PoolQueued), PoolWorkers: int(r.PoolWorkers), PoolSlots: int(r.PoolSlots),
		}
	}), nil
}

// ReadyTask is a task that may be admitted, and what its asset takes by experience.
type ReadyTask struct {
	run.Task

	Seconds float64 // below 0 if nothing is known
}

// TakeReady locks the ready tasks that come next, at most so many of each share, waiting for
// nobody. The tasks of a share come in their order.
func (tx *Tx) TakeReady(ctx context.Context, shares []ShareKey, mosts []int32) ([]ReadyTask, error) {
	if len(shares) == 0 {
		return nil, nil
	}
	rows, err := tx.q.TakeReady(ctx, db.TakeReadyParams{
		TenantIds: column(shares, ShareKey.tenantID), Pools: column(shares, ShareKey.pool), Mosts: mosts,
	})
	if err != nil {
		return nil, err
	}
	return column(rows, func(r db.TakeReadyRow) ReadyTask {
		t := taskFromReady(db.ServoReadyQ{
			TenantID: r.TenantID, RunID: r.RunID, TaskID: r.TaskID, Since: r.Since, Version: r.Version, TimeoutS: r.TimeoutS,
			Priority: r.Priority, Dependents: r.Dependents, Pool: r.Pool, Attempt: r.Attempt, Failures: r.Failures,
			Fruitless: r.Fruitless, FanOuts: r.FanOuts, Cursor: r.Cursor,
		})
		t.Asset = r.Asset
		return ReadyTask{Task: t, Seconds: r.Seconds}
	}), nil
}

// HoldPaused takes the tasks of paused assets out of the order, and says which they are.
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

// Charge is what a round does to a share.
type Charge struct {
	ShareKey

	Admitted       int
	Deficit, Clock float64
	Waits          bool
}

// ChargeShares collects what a round has done to shares, and how far the pools' clocks have come.
func (tx *Tx) ChargeShares(ctx context.Context, charges []Charge, clocks map[string]float64, now time.Time) error {
	err := tx.writes.write("charge shares", len(charges), func(q *db.Queries) error {
		return q.ChargeShares(ctx, db.ChargeSharesParams{
			TenantIds: column(charges, func(c Charge) uuid.UUID { return c.Tenant.UUID }),
			Pools:     column(charges, func(c Charge) string { return c.Pool }),
			Added:     column(charges, func(c Charge) int32 { return int32(c.Admitted) }), //nolint:gosec // a batch size
			Deficits:  column(charges, func(c Charge) float64 { return c.Deficit }),
			Clocks:    column(charges, func(c Charge) float64 { return c.Clock }),
			Waits:     column(charges, func(c Charge) bool { return c.Waits }),
			Now:       now,
		})
	})
	if err != nil {
		return err
	}
	params := db.SetPoolClocksParams{}
	for pool, clock := range clocks {
		params.Pools, params.Clocks = append(params.Pools, pool), append(params.Clocks, clock)
	}
	return tx.writes.write("set pool clocks", len(clocks), func(q *db.Queries) error { return q.SetPoolClocks(ctx, params) })
}

// Settlement is what a transaction has to say to admission about the tasks of one asset: how
// many are in flight no longer, what those had been charged, and what attempts have taken.
type Settlement struct {
	ShareKey

	Asset   string
	Left    int
	Ended   int
	Seconds float64
	Charged float64
}

func (tx *Tx) insertSettlements(ctx context.Context, c Changes) error {
	rows := c.Settlements
	return tx.writes.write("insert settlements", len(rows), func(q *db.Queries) error {
		return q.InsertSettlements(ctx, db.InsertSettlementsParams{
			TenantIds: column(rows, func(s Settlement) uuid.UUID { return s.Tenant.UUID }),
			Pools:     column(rows, func(s Settlement) string { return s.Pool }),
			Assets:    column(rows, func(s Settlement) string { return s.Asset }),
			LeftBys:   column(rows, func(s Settlement) int32 { return int32(s.Left) }),  //nolint:gosec // a batch size
			Endeds:    column(rows, func(s Settlement) int32 { return int32(s.Ended) }), //nolint:gosec // likewise
			Seconds:   column(rows, func(s Settlement) float64 { return s.Seconds }),
			Chargeds:  column(rows, func(s Settlement) float64 { return s.Charged }),
		})
	})
}
