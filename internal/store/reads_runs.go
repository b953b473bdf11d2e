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

// triedTenantRuns is on how many runs of a tenant a filter is tried for one page.
const triedTenantRuns = 10_000

// RunFilter says which runs of a tenant are wanted. Zero fields ask for nothing.
type RunFilter struct {
	Workspace string
	Pipeline  string
	States    []run.State
	// From and To bound the time of creation, to the millisecond: from the one on, before
	// the other. Windows that meet share no run and miss none.
	From, To time.Time
	Parent   *id.Run // retries of this run
	Config   *id.Config
}

// runWalk is one page of a list of runs: its filter, and between which ids it is tried.
type runWalk struct {
	RunFilter

	tenant       id.Tenant
	lower, upper uuid.UUID
	most         int32
}

// ListRuns reads runs of a tenant, the newest first, that are older than before. It tries a
// filter on a bounded number of runs, so that one which nothing passes costs no walk over the
// history: next is where to continue, nil if there is nothing more.
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

// inStates says that a list asks only for states of which every run is found by an index: not
// for runs that succeeded.
func (w *runWalk) inStates() bool {
	return w.Config == nil && w.Parent == nil && len(w.States) > 0 && !slices.Contains(w.States, run.RunSucceeded)
}

// ended are the ends without success that are asked for.
func (w *runWalk) ended() []int16 {
	return stateNumbers(slices.DeleteFunc(slices.Clone(w.States), func(s run.State) bool { return !s.Terminal() }))
}

// live says that runs which have not ended are asked for.
func (w *runWalk) live() bool {
	return slices.ContainsFunc(w.States, func(s run.State) bool { return !s.Terminal() })
}

// plain says that the state alone decides.
func (w *runWalk) plain() bool { return w.Workspace == "" && w.Pipeline == "" }

// boundRuns raises the lower end of a walk to where this page stops trying, and gives that place;
// nil if the page is tried to the end of the history.
func (tx *Tx) boundRuns(ctx context.Context, w *runWalk) (next *id.Run, err error) {
	var bound []uuid.UUID
	switch {
	case w.Parent != nil: // few, whatever the filter
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
	case w.Config != nil: // which is in one workspace
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
