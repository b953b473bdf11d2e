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

// triedTenantRuns is how many runs of a tenant a filter is applied to for one page.
const triedTenantRuns = 10_000

// RunFilter selects runs of a tenant. Zero fields match all.
type RunFilter struct {
	Workspace string
	Pipeline  string
	States    []run.State
	// From (inclusive) and To (exclusive) bound the time of creation, to the millisecond. Adjacent
	// windows neither share nor miss a run.
	From, To time.Time
	Parent   *id.Run // retries of this run
	Config   *id.Config
}

// runWalk is one page of a list of runs: its filter and its range of ids.
type runWalk struct {
	RunFilter

	tenant       id.Tenant
	lower, upper uuid.UUID
	most         int32
}

// ListRuns reads runs of a tenant, the newest first, that are older than before. It applies the
// filter to a bounded number of runs, so that a filter without matches does not read the whole
// history: next is where the next page begins, nil at the end.
func (s *Store) ListRuns(ctx context.Context, tenant id.Tenant, f RunFilter, before *id.Run, most int) (runs []RunView, next *id.Run, err error) {
	w := runWalk{RunFilter: f, tenant: tenant, upper: uuid.Max, most: int32(most + 1)} //nolint:gosec // a page size
	if before != nil {
		w.upper = before.UUID
	}
	if !f.To.IsZero() {
		w.upper = earlier(w.upper, floor(f.To))
	}
	if !f.From.IsZero() {
		w.lower = floor(f.From)
	}
	err = s.tenantSnapshot(tenant)(ctx, func(ctx context.Context, tx *Tx) error {
		if next, err = tx.boundRuns(ctx, &w); err != nil {
			return err
		}
		runs, err = tx.listRuns(ctx, w)
		return err
	})
	if len(runs) > most {
		runs = runs[:most]
		next = &runs[most-1].ID
	}
	return runs, next, err
}

// inStates reports whether the filter selects only states with an index, which is all except
// SUCCEEDED.
func (w *runWalk) inStates() bool {
	return w.Config == nil && w.Parent == nil && len(w.States) > 0 && !slices.Contains(w.States, run.RunSucceeded)
}

// ended returns the selected states of runs that ended without success.
func (w *runWalk) ended() []int16 {
	return stateNumbers(slices.DeleteFunc(slices.Clone(w.States), func(s run.State) bool { return !s.Terminal() }))
}

// live reports whether the filter selects runs that have not ended.
func (w *runWalk) live() bool {
	return slices.ContainsFunc(w.States, func(s run.State) bool { return !s.Terminal() })
}

// plain reports whether the filter has neither workspace nor pipeline.
func (w *runWalk) plain() bool { return w.Workspace == "" && w.Pipeline == "" }

// boundRuns raises the lower end of the range to where this page stops, and returns that id; nil if
// the page reaches the end of the history.
func (tx *Tx) boundRuns(ctx context.Context, w *runWalk) (next *id.Run, err error) {
	var bound []uuid.UUID
	switch {
	case w.Parent != nil: // a run has few retries
	case w.inStates():
		params := db.RunsInStatesBoundParams{
			TenantID: w.tenant.UUID, Lower: w.lower, Upper: w.upper, Live: w.live(), Walk: triedTenantRuns,
		}
		if !w.plain() {
			params.Ended = w.ended()
		}
		bound, err = tx.q.RunsInStatesBound(ctx, params)
	case w.plain() && len(w.States) == 0:
	case w.Config != nil:
		bound, err = tx.q.ConfigRunsBound(ctx, db.ConfigRunsBoundParams{
			TenantID: w.tenant.UUID, ConfigID: w.Config.UUID, Lower: w.lower, Upper: w.upper, Walk: triedTenantRuns,
		})
	default:
		bound, err = tx.q.RunsBound(ctx, db.RunsBoundParams{TenantID: w.tenant.UUID, Lower: w.lower, Upper: w.upper, Walk: triedTenantRuns})
	}
	if err != nil || len(bound) == 0 {
		return nil, err
	}
	w.lower = bound[0]
	place := id.Of[id.Run](bound[0])
	return &place, nil
}

func (tx *Tx) listRuns(ctx context.Context, w runWalk) ([]RunView, error) {
	switch {
	case w.Parent != nil:
		params := db.ListRetriesParams{
			TenantID: w.tenant.UUID, Parent: w.Parent.UUID, Lower: w.lower, Upper: w.upper, Workspace: w.Workspace, Pipeline: w.Pipeline,
			States: stateNumbers(w.States), Most: w.most,
		}
		if w.Config != nil {
			params.Config = w.Config.UUID
		}
		return tryList(func(r db.ListRetriesRow) (RunView, error) { return runView(db.GetRunRow(r)) })(tx.q.ListRetries(ctx, params))
	case w.inStates():
		return tx.runsInStates(ctx, w)
	case w.Config != nil: // a config is in one workspace
		return tryList(func(r db.ListConfigRunsRow) (RunView, error) { return runView(db.GetRunRow(r)) })(tx.q.ListConfigRuns(ctx, db.ListConfigRunsParams{
			TenantID: w.tenant.UUID, ConfigID: w.Config.UUID, Lower: w.lower, Upper: w.upper, Pipeline: w.Pipeline, States: stateNumbers(w.States), Most: w.most,
		}))
	default:
		return tryList(func(r db.ListRunsRow) (RunView, error) { return runView(db.GetRunRow(r)) })(tx.q.ListRuns(ctx, db.ListRunsParams{
			TenantID: w.tenant.UUID, Lower: w.lower, Upper: w.upper, Workspace: w.Workspace, Pipeline: w.Pipeline, States: stateNumbers(w.States), Most: w.most,
		}))
	}
}

func (tx *Tx) runsInStates(ctx context.Context, w runWalk) ([]RunView, error) {
	params := db.RunsInStatesParams{
		TenantID: w.tenant.UUID, Lower: w.lower, Upper: w.upper, Workspace: w.Workspace, Pipeline: w.Pipeline, States: stateNumbers(w.States),
		Ended: w.ended(), Live: w.live(), WalkEnded: w.most, WalkLive: triedTenantRuns + 1, Most: w.most,
	}
	if !w.plain() {
		params.WalkEnded = triedTenantRuns + 1
	}
	rows, err := tx.q.RunsInStates(ctx, params)
	if err != nil {
		return nil, err
	}
	tenants := slices.Repeat([]uuid.UUID{w.tenant.UUID}, len(rows))
	found, err := tx.runsByKey(ctx, tenants, column(rows, func(r db.RunsInStatesRow) uuid.UUID { return r.ID }))
	if err != nil {
		return nil, err
	}
	return convert(rows, func(r db.RunsInStatesRow) (RunView, error) {
		return runView(db.GetRunRow{ServoRun: found[r.ID], Workspace: r.Workspace, Config: r.Config})
	})
}
