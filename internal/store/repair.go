package store

import (
	"context"
	"time"

	"github.com/google/uuid"

	"go.arco.dev/servo/internal/base/id"
	"go.arco.dev/servo/internal/domain/run"
	"go.arco.dev/servo/internal/store/internal/db"
)

// RunRepair is the difference between the rows of one run and its events. Wrong rows are deleted
// and inserted again. The run's own row is updated in place, since other transactions wait for it.
type RunRepair struct {
	Run       *run.Run // the correct run; nil if its row is right
	DropLive  *RunKey  // its row in live_runs, of any tenant
	NewLive   *run.Run
	DropTasks []TaskKey
	NewTasks  []TaskRow
	DropEdges []Edge
	NewEdges  []Edge
	DropQueue []run.Task // State names the queue table that the row is in
	NewQueue  []run.Task
	DropRuns  []RunKey // rows of other tenants under this run's id
	DropCone  *RunKey
	NewCone   *RunKey

	DropOutputs []TaskKey // versions, by their tasks
	NewOutputs  []Materialization
}

// LockRun locks a run as a cancel does. Its row may be wrong.
func (tx *Tx) LockRun(ctx context.Context, key RunKey) error {
	_, err := tx.q.LockRunsForUpdate(ctx, db.LockRunsForUpdateParams{TenantIds: []uuid.UUID{key.Tenant.UUID}, Ids: []uuid.UUID{key.Run.UUID}})
	return err
}

// LockQueues locks every queue row of a run, in the order in which tasks move. Together with the
// run's lock for a cancel, no task of the run moves until the transaction ends.
func (tx *Tx) LockQueues(ctx context.Context, run id.Run) error {
	ids := []uuid.UUID{run.UUID}
	return inOrder(
		func() error { _, err := tx.q.SweepWaiting(ctx, ids); return err },
		func() error { _, err := tx.q.SweepReady(ctx, ids); return err },
		func() error { _, err := tx.q.SweepQueued(ctx, ids); return err },
		func() error { _, err := tx.q.SweepLeases(ctx, ids); return err },
		func() error { _, err := tx.q.SweepRetrying(ctx, ids); return err },
	)
}

// Foreign is the set of rows with a run's id and another tenant.
type Foreign struct {
	Runs   []RunKey
	Tasks  []TaskKey
	Edges  []Edge
	Events int
}

// ForeignRows finds the foreign rows of a run. It reads whole partitions.
func (tx *Tx) ForeignRows(ctx context.Context, key RunKey) (Foreign, error) {
	var found Foreign
	runs, err := tx.q.ForeignRuns(ctx, db.ForeignRunsParams{RunID: key.Run.UUID, TenantID: key.Tenant.UUID})
	if err != nil {
		return found, err
	}
	found.Runs = column(runs, func(tenant uuid.UUID) RunKey { return RunKey{Tenant: id.Of[id.Tenant](tenant), Run: key.Run} })
	tasks, err := tx.q.ForeignTasks(ctx, db.ForeignTasksParams{RunID: key.Run.UUID, TenantID: key.Tenant.UUID})
	if err != nil {
		return found, err
	}
	found.Tasks = column(tasks, func(r db.ForeignTasksRow) TaskKey { return taskKey(r.TenantID, key.Run.UUID, r.ID) })
	edges, err := tx.q.ForeignEdges(ctx, db.ForeignEdgesParams{RunID: key.Run.UUID, TenantID: key.Tenant.UUID})
	if err != nil {
		return found, err
	}
	found.Edges = column(edges, func(r db.ForeignEdgesRow) Edge {
		return Edge{
			Key:      RunKey{Tenant: id.Of[id.Tenant](r.TenantID), Run: key.Run},
			Upstream: id.Of[id.Task](r.UpstreamID), Task: id.Of[id.Task](r.TaskID),
		}
	})
	events, err := tx.q.ForeignEvents(ctx, db.ForeignEventsParams{RunID: key.Run.UUID, TenantID: key.Tenant.UUID})
	found.Events = int(events)
	return found, err
}

// Repair collects the statements that repair the rows.
func (tx *Tx) Repair(ctx context.Context, r RunRepair) error {
	for _, step := range []func(context.Context, RunRepair) error{
		tx.repairRun, tx.repairLive, tx.dropTasks, tx.repairTasks, tx.repairEdges, tx.repairQueues, tx.repairCones, tx.repairMaterializations,
	} {
		if err := step(ctx, r); err != nil {
			return err
		}
	}
	return nil
}

func (tx *Tx) repairRun(ctx context.Context, r RunRepair) error {
	err := tx.writes.write("drop runs", len(r.DropRuns), func(q *db.Queries) error {
		return q.DropRuns(ctx, db.DropRunsParams{TenantIds: column(r.DropRuns, RunKey.tenantID), RunID: r.DropRuns[0].Run.UUID})
	})
	if err != nil || r.Run == nil {
		return err
	}
	retry, err := jsonText(r.Run.Retry)
	if err != nil {
		return err
	}
	window, err := jsonText(r.Run.Window)
	if err != nil {
		return err
	}
	row := r.Run
	params := db.RepairRunParams{
		TenantID: row.Tenant.UUID, ID: row.ID.UUID, WorkspaceID: row.Workspace.UUID, DeploymentID: row.Deployment.UUID,
		CreatedAt: row.CreatedAt, StartedAt: orNil(row.StartedAt), FinishedAt: orNil(row.FinishedAt), Version: row.Version,
		Total: row.Total, Remaining: row.Remaining, Succeeded: row.Succeeded, Failed: row.Failed, Skipped: row.Skipped, Cancelled: row.Cancelled,
		State: int16(row.State), Priority: row.Priority, TimedOut: row.TimedOut, CancelReason: row.CancelReason, Pipeline: row.Pipeline,
		TriggerType: row.TriggerType, TriggeredBy: row.TriggeredBy, Fingerprint: row.Fingerprint, Parameters: string(row.Parameters), Retry: retry,
		Trace: row.Trace, SlotAt: orNil(row.Slot), Labels: row.Labels, StartBy: orNil(row.StartBy), StartLimitS: row.StartLimit, Late: row.Late, WindowOf: window,
		Released: row.Released, Divided: row.Divided, Warned: row.Warned, Quarantined: row.Quarantined,
	}
	if row.Config != nil {
		params.ConfigID = &row.Config.UUID
	}
	if row.Parent != nil {
		params.ParentRunID = &row.Parent.UUID
	}
	return tx.writes.write("repair run", 1, func(q *db.Queries) error { return q.RepairRun(ctx, params) })
}

func (tx *Tx) repairLive(ctx context.Context, r RunRepair) error {
	if r.DropLive != nil {
		err := tx.writes.write("drop live run", anyRows, func(q *db.Queries) error { return q.DropLiveRuns(ctx, r.DropLive.Run.UUID) })
		if err != nil {
			return err
		}
	}
	if r.NewLive == nil {
		return nil
	}
	return tx.insertLiveRuns(ctx, []run.Run{*r.NewLive})
}

func orNil(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	return &t
}

func (tx *Tx) dropTasks(ctx context.Context, r RunRepair) error {
	return tx.writes.write("drop tasks", len(r.DropTasks), func(q *db.Queries) error {
		return q.DropTasks(ctx, db.DropTasksParams{
			TenantIds: column(r.DropTasks, TaskKey.tenantID), RunIds: column(r.DropTasks, TaskKey.runID), Ids: column(r.DropTasks, TaskKey.taskID),
		})
	})
}

func (tx *Tx) repairTasks(ctx context.Context, r RunRepair) error {
	rows := r.NewTasks
	return tx.writes.write("repair tasks", len(rows), func(q *db.Queries) error {
		return q.RepairTasks(ctx, db.RepairTasksParams{
			TenantIds:     column(rows, func(t TaskRow) uuid.UUID { return t.TenantID }),
			RunIds:        column(rows, func(t TaskRow) uuid.UUID { return t.RunID }),
			Ids:           column(rows, func(t TaskRow) uuid.UUID { return t.ID }),
			CreatedAts:    column(rows, func(t TaskRow) time.Time { return t.CreatedAt }),
			FinishedAts:   column(rows, func(t TaskRow) time.Time { return orZero(t.FinishedAt) }),
			Tokens:        column(rows, func(t TaskRow) int64 { return orZero(t.Token) }),
			Ixs:           column(rows, func(t TaskRow) int32 { return t.Ix }),
			Timeouts:      column(rows, func(t TaskRow) int32 { return t.TimeoutS }),
			Versions:      column(rows, func(t TaskRow) int32 { return orZero(t.Version) }),
			Attempts:      column(rows, func(t TaskRow) int32 { return orZero(t.Attempt) }),
			FailureCounts: column(rows, func(t TaskRow) int32 { return orZero(t.Failures) }),
			FanOuts:       column(rows, func(t TaskRow) int32 { return orZero(t.FanOuts) }),
			States:        column(rows, func(t TaskRow) int16 { return orZero(t.State) }),
			Priorities:    column(rows, func(t TaskRow) int16 { return t.Priority }),
			LateResults:   column(rows, func(t TaskRow) bool { return t.LateResult }),
			Assets:        column(rows, func(t TaskRow) string { return t.Asset }),
			Partitions:    column(rows, func(t TaskRow) string { return t.Partition }),
			Pools:         column(rows, func(t TaskRow) string { return t.Pool }),
			Outcomes:      column(rows, func(t TaskRow) string { return orZero(t.Outcome) }),
			Cursors:       column(rows, func(t TaskRow) string { return orZero(t.Cursor) }),
			Results:       column(rows, func(t TaskRow) string { return string(t.Result) }),
			Failures:      column(rows, func(t TaskRow) string { return string(t.Failure) }),
			Upstreams:     column(rows, func(t TaskRow) string { return idsText(t.Upstream) }),
			Inheritances:  column(rows, func(t TaskRow) string { return idsText(t.Inherited) }),
			NoOrdinal:     noOrdinal,
			Series:        column(rows, func(t TaskRow) string { return t.Series }),
			FirstOrdinals: column(rows, func(t TaskRow) int64 { return ordinalOr(t.FirstOrdinal) }),
			LastOrdinals:  column(rows, func(t TaskRow) int64 { return ordinalOr(t.LastOrdinal) }),
		})
	})
}

func orZero[T any](p *T) T {
	if p == nil {
		var zero T
		return zero
	}
	return *p
}

func (tx *Tx) repairEdges(ctx context.Context, r RunRepair) error {
	rows := r.DropEdges
	err := tx.writes.write("drop edges", len(rows), func(q *db.Queries) error {
		return q.DropEdges(ctx, db.DropEdgesParams{
			TenantIds:   column(rows, func(e Edge) uuid.UUID { return e.Key.Tenant.UUID }),
			RunIds:      column(rows, func(e Edge) uuid.UUID { return e.Key.Run.UUID }),
			UpstreamIds: column(rows, func(e Edge) uuid.UUID { return e.Upstream.UUID }),
			TaskIds:     column(rows, func(e Edge) uuid.UUID { return e.Task.UUID }),
		})
	})
	if err != nil {
		return err
	}
	return tx.insertEdges(ctx, Changes{NewEdges: r.NewEdges})
}

// repairQueues deletes rows before it inserts, as a move does.
func (tx *Tx) repairQueues(ctx context.Context, r RunRepair) error {
	var gone, come [tables][]run.Task
	for _, t := range r.DropQueue {
		gone[tableOf(t.State)] = append(gone[tableOf(t.State)], t)
	}
	for _, t := range r.NewQueue {
		come[tableOf(t.State)] = append(come[tableOf(t.State)], t)
	}
	for t := waitingTable; t < tables; t++ {
		if err := tx.deleteFrom(ctx, t, gone[t]); err != nil {
			return err
		}
	}
	for t := waitingTable; t < tables; t++ {
		if err := tx.insertInto(ctx, t, come[t]); err != nil {
			return err
		}
	}
	return nil
}

func (tx *Tx) repairCones(ctx context.Context, r RunRepair) error {
	if r.DropCone != nil {
		err := tx.writes.write("drop cone", 1, func(q *db.Queries) error { return q.DeleteCones(ctx, []uuid.UUID{r.DropCone.Run.UUID}) })
		if err != nil {
			return err
		}
	}
	if r.NewCone == nil {
		return nil
	}
	return tx.writes.write("open cone", 1, func(q *db.Queries) error {
		return q.InsertCones(ctx, db.InsertConesParams{TenantIds: []uuid.UUID{r.NewCone.Tenant.UUID}, RunIds: []uuid.UUID{r.NewCone.Run.UUID}})
	})
}
