package store

import (
	"context"
	"time"

	"github.com/google/uuid"

	"go.arco.dev/servo/internal/base/id"
	"go.arco.dev/servo/internal/store/internal/db"
)

const (
	// triedRuns is how many runs of all tenants a filter is applied to for one page.
	triedRuns = 5_000
	// triedLive is how many live runs are read for one answer.
	triedLive = 10_000
	// triedLate is how many late runs are read for one answer.
	triedLate = 1_000
)

// endOfTime is later than all recorded times.
func endOfTime() time.Time { return time.Date(9999, 12, 31, 0, 0, 0, 0, time.UTC) }

// scoped reads one moment of the rows of one tenant or, for the zero tenant, of all tenants, with
// plans that walk indexes.
func (s *Store) scoped(tenant id.Tenant) within {
	if tenant != (id.Tenant{}) {
		return s.tenantSnapshot(tenant)
	}
	return s.entered(snapshot, (*db.Queries).EnterAllTenants)
}

// RunPlace is a position among the runs of all tenants, by age. The zero value is before the newest.
type RunPlace struct {
	At  time.Time
	Run uuid.UUID
}

// ListAllRuns reads runs of all tenants, the newest first, that are older than a position. It
// applies the filter to a bounded number of runs: next is where the next page begins, nil at the
// end. It ignores Config and Parent.
func (s *Store) ListAllRuns(ctx context.Context, f RunFilter, before RunPlace, most int) (runs []RunView, next *RunPlace, err error) {
	if before.At.IsZero() {
		before = RunPlace{At: endOfTime(), Run: uuid.Max}
	}
	params := db.RunsOfAllParams{
		FromAt: f.From, ToAt: f.To, BeforeAt: before.At, BeforeID: before.Run, Workspace: f.Workspace, Pipeline: f.Pipeline,
		States: stateNumbers(f.States), Most: int32(most + 1), //nolint:gosec // a page size
	}
	if params.ToAt.IsZero() {
		params.ToAt = endOfTime()
	}
	err = s.scoped(id.Tenant{})(ctx, func(ctx context.Context, tx *Tx) error {
		var bound []time.Time
		if f.Workspace != "" || f.Pipeline != "" || len(f.States) > 0 {
			if bound, err = tx.q.RunsOfAllBound(ctx, db.RunsOfAllBoundParams{
				FromAt: params.FromAt, ToAt: params.ToAt, BeforeAt: params.BeforeAt, Walk: triedRuns,
			}); err != nil {
				return err
			}
			if len(bound) > 0 {
				params.FromAt, next = bound[0], &RunPlace{At: bound[0]}
			}
		}
		rows, err := tx.q.RunsOfAll(ctx, params)
		if err != nil {
			return err
		}
		if len(rows) > most {
			rows = rows[:most]
			next = &RunPlace{At: rows[most-1].ServoRun.CreatedAt, Run: rows[most-1].ServoRun.ID}
		}
		runs, err = convert(rows, func(r db.RunsOfAllRow) (RunView, error) { return runView(db.GetRunRow(r)) })
		return err
	})
	return runs, next, err
}

// runsByKey reads runs by their keys. It omits runs that do not exist.
func (tx *Tx) runsByKey(ctx context.Context, tenants, runs []uuid.UUID) (map[uuid.UUID]db.ServoRun, error) {
	if len(runs) == 0 {
		return nil, nil
	}
	return index(func(r db.ServoRun) (uuid.UUID, db.ServoRun) {
		return r.ID, r
	})(tx.q.RunsByKey(ctx, db.RunsByKeyParams{TenantIds: tenants, RunIds: runs}))
}

// ListLateRuns reads live runs that should have begun and have not, the latest first, after a
// position: of one tenant, or of all for the zero tenant. Now is the database's time.
func (s *Store) ListLateRuns(ctx context.Context, tenant id.Tenant, workspace string, after RunPlace, most int) (late []RunView, now time.Time, err error) {
	err = s.scoped(tenant)(ctx, func(ctx context.Context, tx *Tx) error {
		rows, err := tx.q.LateNow(ctx, db.LateNowParams{Walk: triedLate, AfterAt: after.At, AfterID: after.Run, Workspace: workspace, Most: int32(most)}) //nolint:gosec // a page size
		if err != nil {
			return err
		}
		found, err := tx.runsByKey(ctx, column(rows, func(r db.LateNowRow) uuid.UUID { return r.TenantID }), column(rows, func(r db.LateNowRow) uuid.UUID { return r.RunID }))
		if err != nil {
			return err
		}
		if late, err = convert(rows, func(r db.LateNowRow) (RunView, error) {
			return runView(db.GetRunRow{ServoRun: found[r.RunID], Workspace: r.Workspace, Config: r.Config})
		}); err != nil {
			return err
		}
		now, err = tx.Clock(ctx)
		return err
	})
	return late, now, err
}

// RunningRun is a started run with the last reported progress of its tasks.
type RunningRun struct {
	RunView

	Task     *id.Task // nil without a report
	Asset    string
	Progress ProgressView
}

// RunningRuns reads runs that have started and not ended, the oldest first, after one: of one
// tenant, or of all for the zero tenant.
func (s *Store) RunningRuns(ctx context.Context, tenant id.Tenant, workspace string, after *id.Run, most int) (running []RunningRun, err error) {
	params := db.RunningNowParams{Walk: triedLive, Workspace: workspace, Most: int32(most)} //nolint:gosec // a page size
	if after != nil {
		params.After = after.UUID
	}
	err = s.scoped(tenant)(ctx, func(ctx context.Context, tx *Tx) error {
		rows, err := tx.q.RunningNow(ctx, params)
		if err != nil {
			return err
		}
		found, err := tx.runsByKey(ctx, column(rows, func(r db.RunningNowRow) uuid.UUID { return r.TenantID }), column(rows, func(r db.RunningNowRow) uuid.UUID { return r.RunID }))
		if err != nil {
			return err
		}
		running, err = convert(rows, func(r db.RunningNowRow) (RunningRun, error) {
			view, err := runView(db.GetRunRow{ServoRun: found[r.RunID], Workspace: r.Workspace, Config: r.Config})
			out := RunningRun{RunView: view, Asset: r.Asset}
			if r.TaskID != uuid.Nil {
				task := id.Of[id.Task](r.TaskID)
				out.Task, out.Progress = &task, ProgressView{
					Progress: Progress{
						Phase: r.Phase, Stage: r.Stage, Fraction: r.Fraction, RecordsExtracted: r.RecordsExtracted,
						RecordsTransformed: r.RecordsTransformed, RecordsLoaded: r.RecordsLoaded, Bytes: r.Bytes, ETA: r.Eta,
					},
					Stages: r.Stages, StageSince: r.StageSince, UpdatedAt: r.UpdatedAt,
				}
			}
			return out, err
		})
		return err
	})
	return running, err
}
