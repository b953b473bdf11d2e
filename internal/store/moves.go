package store

import (
	"context"
	"time"

	"github.com/google/uuid"

	"go.arco.dev/servo/internal/domain/fair"
	"go.arco.dev/servo/internal/domain/run"
	"go.arco.dev/servo/internal/store/internal/db"
)

// table is a queue table. The order is that in which transactions lock and write them.
type table int

const (
	noTable table = iota
	waitingTable
	readyTable
	poolTable
	leaseTable
	retryTable
	tables
)

var tableNames = [tables]string{waitingTable: "waiting", readyTable: "ready_q", poolTable: "pool_q", leaseTable: "leases", retryTable: "retry_q"}

func tableOf(s run.TaskState) table {
	switch s {
	case run.Pending:
		return waitingTable
	case run.Ready:
		return readyTable
	case run.Queued:
		return poolTable
	case run.Dispatched, run.Running:
		return leaseTable
	case run.RetryWait:
		return retryTable
	case run.Succeeded, run.Failed, run.Skipped, run.Cancelled:
	}
	return noTable
}

// moveTasks deletes each moved task from its old table and inserts it into the new one, updates
// tasks that stay in their table, and ends the others: one statement for each table and kind.
func (tx *Tx) moveTasks(ctx context.Context, c Changes) error {
	var (
		gone, come [tables][]run.Task
		stayed     [tables][]run.Task
		ended      []run.Task
	)
	for _, m := range c.Moves {
		from, to := noTable, tableOf(m.Task.State)
		if m.From != 0 {
			from = tableOf(m.From)
		}
		if from == to && (to == waitingTable || to == leaseTable) {
			stayed[to] = append(stayed[to], m.Task)
			continue
		}
		if from != noTable {
			gone[from] = append(gone[from], m.Task)
		}
		if to == noTable {
			ended = append(ended, m.Task)
		} else {
			come[to] = append(come[to], m.Task)
		}
	}
	for t := waitingTable; t < tables; t++ {
		if err := tx.deleteFrom(ctx, t, gone[t]); err != nil {
			return err
		}
	}
	if err := tx.updateWaiting(ctx, stayed[waitingTable]); err != nil {
		return err
	}
	if err := tx.updateLeases(ctx, stayed[leaseTable]); err != nil {
		return err
	}
	for t := waitingTable; t < tables; t++ {
		if err := tx.insertInto(ctx, t, come[t]); err != nil {
			return err
		}
	}
	return tx.endTasks(ctx, ended)
}

func (tx *Tx) deleteFrom(ctx context.Context, t table, rows []run.Task) error {
	keys := db.DeleteWaitingParams{
		RunIds:  column(rows, func(t run.Task) uuid.UUID { return t.Run.UUID }),
		TaskIds: column(rows, func(t run.Task) uuid.UUID { return t.ID.UUID }),
	}
	return tx.writes.write("delete "+tableNames[t], len(rows), func(q *db.Queries) error {
		switch t {
		case waitingTable:
			return q.DeleteWaiting(ctx, keys)
		case readyTable:
			return q.DeleteReady(ctx, db.DeleteReadyParams(keys))
		case poolTable:
			return q.DeleteQueued(ctx, db.DeleteQueuedParams(keys))
		case leaseTable:
			return q.DeleteLeases(ctx, db.DeleteLeasesParams(keys))
		case retryTable:
			return q.DeleteRetrying(ctx, db.DeleteRetryingParams(keys))
		case noTable, tables:
		}
		return nil
	})
}

func (tx *Tx) insertInto(ctx context.Context, t table, rows []run.Task) error {
	c := columnsOf(rows)
	switch t {
	case waitingTable:
		return tx.writes.write("insert waiting", len(rows), func(q *db.Queries) error {
			return q.InsertWaiting(ctx, db.InsertWaitingParams{
				TenantIds: c.TenantIds, RunIds: c.RunIds, TaskIds: c.TaskIds, Sinces: c.Sinces, Versions: c.Versions,
				TimeoutSs: c.TimeoutSs, Priorities: c.Priorities, Dependents: c.Dependents, Pools: c.Pools, Needs: c.Needs,
				Unmets: column(rows, func(t run.Task) int32 { return t.Unmet }), Assets: c.Assets,
			})
		})
	case readyTable:
		return tx.writes.write("insert ready_q", len(rows), func(q *db.Queries) error { return q.InsertReady(ctx, c) })
	case poolTable:
		return tx.writes.write("insert pool_q", len(rows), func(q *db.Queries) error {
			return q.InsertQueued(ctx, db.InsertQueuedParams{
				TenantIds: c.TenantIds, RunIds: c.RunIds, TaskIds: c.TaskIds, Sinces: c.Sinces, Versions: c.Versions,
				TimeoutSs: c.TimeoutSs, Priorities: c.Priorities, Dependents: c.Dependents, Pools: c.Pools, Needs: c.Needs,
				Attempts: c.Attempts, FailureCounts: c.FailureCounts, Fruitlesses: c.Fruitlesses, Deaths: c.Deaths, FanOuts: c.FanOuts, Cursors: c.Cursors,
				Ranks:    column(rows, func(t run.Task) int64 { return t.Rank }),
				Costs:    column(rows, func(t run.Task) float32 { return t.Cost }),
				Assets:   c.Assets,
				ReadyAts: column(rows, func(t run.Task) time.Time { return t.ReadyAt }),
			})
		})
	case leaseTable:
		return tx.writes.write("insert leases", len(rows), func(q *db.Queries) error {
			return q.InsertLeases(ctx, db.InsertLeasesParams{
				TenantIds: c.TenantIds, RunIds: c.RunIds, TaskIds: c.TaskIds, Sinces: c.Sinces, Versions: c.Versions,
				TimeoutSs: c.TimeoutSs, Priorities: c.Priorities, Dependents: c.Dependents, Pools: c.Pools, Needs: c.Needs,
				Attempts: c.Attempts, FailureCounts: c.FailureCounts, Fruitlesses: c.Fruitlesses, Deaths: c.Deaths, FanOuts: c.FanOuts, Cursors: c.Cursors,
				Tokens:           column(rows, func(t run.Task) int64 { return t.Token }),
				ClaimIds:         column(rows, func(t run.Task) uuid.UUID { return t.Claim.UUID }),
				StartedAts:       column(rows, func(t run.Task) time.Time { return t.StartedAt }),
				Deadlines:        column(rows, func(t run.Task) time.Time { return t.Deadline }),
				ExpiresAts:       column(rows, func(t run.Task) time.Time { return t.ExpiresAt }),
				DueAts:           column(rows, leaseDue),
				CancelRequesteds: column(rows, func(t run.Task) bool { return t.CancelRequested }),
				Workers:          column(rows, func(t run.Task) string { return t.Worker }),
				Costs:            column(rows, func(t run.Task) float32 { return t.Cost }),
				Assets:           c.Assets,
				ReadyAts:         column(rows, func(t run.Task) time.Time { return t.ReadyAt }),
				ClaimCursors:     column(rows, func(t run.Task) string { return t.ClaimCursor }),
				LeaseMss:         column(rows, func(t run.Task) int32 { return int32(t.Lease.Milliseconds()) }), //nolint:gosec // an hour at most
			})
		})
	case retryTable:
		failures, err := convert(rows, func(t run.Task) (string, error) { return jsonText(t.Failure) })
		if err != nil {
			return err
		}
		return tx.writes.write("insert retry_q", len(rows), func(q *db.Queries) error {
			return q.InsertRetrying(ctx, db.InsertRetryingParams{
				TenantIds: c.TenantIds, RunIds: c.RunIds, TaskIds: c.TaskIds, Sinces: c.Sinces, Versions: c.Versions,
				TimeoutSs: c.TimeoutSs, Priorities: c.Priorities, Dependents: c.Dependents, Pools: c.Pools, Needs: c.Needs,
				Attempts: c.Attempts, FailureCounts: c.FailureCounts, Fruitlesses: c.Fruitlesses, Deaths: c.Deaths, FanOuts: c.FanOuts, Cursors: c.Cursors,
				DueAts: column(rows, func(t run.Task) time.Time { return t.DueAt }), Failures: failures, Assets: c.Assets,
			})
		})
	case noTable, tables:
	}
	return nil
}

// columnsOf transposes the common columns of all queue tables.
func columnsOf(rows []run.Task) db.InsertReadyParams {
	return db.InsertReadyParams{
		TenantIds:     column(rows, func(t run.Task) uuid.UUID { return t.Tenant.UUID }),
		RunIds:        column(rows, func(t run.Task) uuid.UUID { return t.Run.UUID }),
		TaskIds:       column(rows, func(t run.Task) uuid.UUID { return t.ID.UUID }),
		Sinces:        column(rows, func(t run.Task) time.Time { return t.Since }),
		Versions:      column(rows, func(t run.Task) int32 { return t.Version }),
		TimeoutSs:     column(rows, func(t run.Task) int32 { return t.Timeout }),
		Priorities:    column(rows, func(t run.Task) int16 { return t.Priority }),
		Dependents:    column(rows, func(t run.Task) bool { return t.Dependents }),
		Pools:         column(rows, func(t run.Task) string { return t.Pool }),
		Needs:         column(rows, func(t run.Task) string { return t.Needs }),
		Attempts:      column(rows, func(t run.Task) int32 { return t.Attempt }),
		FailureCounts: column(rows, func(t run.Task) int32 { return t.Failures }),
		Fruitlesses:   column(rows, func(t run.Task) int32 { return t.Fruitless }),
		Deaths:        column(rows, func(t run.Task) int32 { return t.Deaths }),
		FanOuts:       column(rows, func(t run.Task) int32 { return t.FanOuts }),
		Cursors:       column(rows, func(t run.Task) string { return t.Cursor }),
		Ranks:         column(rows, func(t run.Task) int64 { return fair.Rank(t.Priority, t.Since) }),
		Assets:        column(rows, func(t run.Task) string { return t.Asset }),
		Divideds:      column(rows, func(t run.Task) bool { return t.Divided }),
	}
}

func (tx *Tx) updateWaiting(ctx context.Context, rows []run.Task) error {
	return tx.writes.write("update waiting", len(rows), func(q *db.Queries) error {
		return q.UpdateWaiting(ctx, db.UpdateWaitingParams{
			RunIds:  column(rows, func(t run.Task) uuid.UUID { return t.Run.UUID }),
			TaskIds: column(rows, func(t run.Task) uuid.UUID { return t.ID.UUID }),
			Unmets:  column(rows, func(t run.Task) int32 { return t.Unmet }),
		})
	})
}

func (tx *Tx) updateLeases(ctx context.Context, rows []run.Task) error {
	return tx.writes.write("update leases", len(rows), func(q *db.Queries) error {
		return q.UpdateLeases(ctx, db.UpdateLeasesParams{
			RunIds:           column(rows, func(t run.Task) uuid.UUID { return t.Run.UUID }),
			TaskIds:          column(rows, func(t run.Task) uuid.UUID { return t.ID.UUID }),
			Sinces:           column(rows, func(t run.Task) time.Time { return t.Since }),
			Versions:         column(rows, func(t run.Task) int32 { return t.Version }),
			Fruitlesses:      column(rows, func(t run.Task) int32 { return t.Fruitless }),
			FanOuts:          column(rows, func(t run.Task) int32 { return t.FanOuts }),
			Cursors:          column(rows, func(t run.Task) string { return t.Cursor }),
			Dependents:       column(rows, func(t run.Task) bool { return t.Dependents }),
			StartedAts:       column(rows, func(t run.Task) time.Time { return t.StartedAt }),
			Deadlines:        column(rows, func(t run.Task) time.Time { return t.Deadline }),
			CancelRequesteds: column(rows, func(t run.Task) bool { return t.CancelRequested }),
			Instances:        column(rows, func(t run.Task) string { return t.Instance }),
		})
	})
}

func (tx *Tx) endTasks(ctx context.Context, rows []run.Task) error {
	failures, err := convert(rows, func(t run.Task) (string, error) { return jsonText(t.Failure) })
	if err != nil {
		return err
	}
	return tx.writes.write("end tasks", len(rows), func(q *db.Queries) error {
		return q.EndTasks(ctx, db.EndTasksParams{
			TenantIds:     column(rows, func(t run.Task) uuid.UUID { return t.Tenant.UUID }),
			RunIds:        column(rows, func(t run.Task) uuid.UUID { return t.Run.UUID }),
			Ids:           column(rows, func(t run.Task) uuid.UUID { return t.ID.UUID }),
			States:        column(rows, func(t run.Task) int16 { return int16(t.State) }),
			Outcomes:      column(rows, func(t run.Task) string { return string(t.Outcome) }),
			Versions:      column(rows, func(t run.Task) int32 { return t.Version }),
			Attempts:      column(rows, func(t run.Task) int32 { return t.Attempt }),
			FailureCounts: column(rows, func(t run.Task) int32 { return t.Failures }),
			FanOuts:       column(rows, func(t run.Task) int32 { return t.FanOuts }),
			Tokens:        column(rows, func(t run.Task) int64 { return t.Token }),
			FinishedAts:   column(rows, func(t run.Task) time.Time { return t.Since }),
			LateResults:   column(rows, func(t run.Task) bool { return t.LateResult }),
			Cursors:       column(rows, func(t run.Task) string { return t.Cursor }),
			Results:       column(rows, func(t run.Task) string { return string(t.Result) }),
			Failures:      failures,
		})
	})
}
