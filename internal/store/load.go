package store

import (
	"cmp"
	"context"
	"encoding/json"
	"slices"
	"time"

	"github.com/google/uuid"

	"go.arco.dev/servo/internal/base/id"
	"go.arco.dev/servo/internal/domain/run"
	"go.arco.dev/servo/internal/store/internal/db"
)

// RunLock is the mode in which a transaction locks the rows of its runs (docs/adr/0002).
type RunLock int

const (
	// LockForMove excludes a cancel while a task moves backward.
	LockForMove RunLock = iota
	// LockForCount excludes other changes of the run's counters.
	LockForCount
	// LockForCancel excludes everything except forward moves.
	LockForCancel
)

// LockRuns locks runs in id order and reads them. It omits runs that do not exist.
func (tx *Tx) LockRuns(ctx context.Context, lock RunLock, keys []RunKey) ([]run.Run, error) {
	if len(keys) == 0 {
		return nil, nil
	}
	tenants, ids := column(keys, RunKey.tenantID), column(keys, RunKey.runID)
	var (
		rows []db.ServoRun
		err  error
	)
	switch lock {
	case LockForMove:
		rows, err = tx.q.LockRunsForMove(ctx, db.LockRunsForMoveParams{TenantIds: tenants, Ids: ids})
	case LockForCount:
		rows, err = tx.q.LockRunsForCount(ctx, db.LockRunsForCountParams{TenantIds: tenants, Ids: ids})
	case LockForCancel:
		rows, err = tx.q.LockRunsForUpdate(ctx, db.LockRunsForUpdateParams{TenantIds: tenants, Ids: ids})
	}
	if err != nil {
		return nil, err
	}
	return convert(rows, runFromRow)
}

// LockLeases locks the leases of these tasks in id order. It omits tasks that are not leased.
func (tx *Tx) LockLeases(ctx context.Context, keys []TaskKey) ([]run.Task, error) {
	if len(keys) == 0 {
		return nil, nil
	}
	return list(taskFromLease)(tx.q.LockLeasesOnly(ctx, db.LockLeasesOnlyParams{
		TenantIds: column(keys, TaskKey.tenantID), RunIds: column(keys, TaskKey.runID), TaskIds: column(keys, TaskKey.taskID),
	}))
}

// LockLeasesWithHeartbeats is LockLeases where a later heartbeat counts as the expiry.
func (tx *Tx) LockLeasesWithHeartbeats(ctx context.Context, keys []TaskKey) ([]run.Task, error) {
	return list(func(r db.LockLeasesRow) run.Task {
		t := taskFromLease(db.ServoLease{
			TenantID: r.TenantID, RunID: r.RunID, TaskID: r.TaskID, Since: r.Since, Version: r.Version, TimeoutS: r.TimeoutS,
			Priority: r.Priority, Dependents: r.Dependents, Pool: r.Pool, Needs: r.Needs, Attempt: r.Attempt, Failures: r.Failures,
			Fruitless: r.Fruitless, Deaths: r.Deaths, FanOuts: r.FanOuts, Cursor: r.Cursor, Token: r.Token, ClaimID: r.ClaimID, StartedAt: r.StartedAt,
			Deadline: r.Deadline, ExpiresAt: r.ExpiresAt, DueAt: r.DueAt, CancelRequested: r.CancelRequested, Worker: r.Worker, Instance: r.Instance,
			Cost: r.Cost, Asset: r.Asset, ReadyAt: r.ReadyAt, LeaseMs: r.LeaseMs, ClaimCursor: r.ClaimCursor,
		})
		if r.HeartbeatExpiresAt.After(t.ExpiresAt) {
			t.ExpiresAt = r.HeartbeatExpiresAt
		}
		return t
	})(tx.q.LockLeases(ctx, db.LockLeasesParams{
		TenantIds: column(keys, TaskKey.tenantID), RunIds: column(keys, TaskKey.runID), TaskIds: column(keys, TaskKey.taskID),
	}))
}

// Dependent is a waiting task and one upstream of it.
type Dependent struct {
	Upstream id.Task
	Task     run.Task
}

// Dependents reads the tasks that wait for these tasks, once for each upstream. Their runs must be locked: the lock of a run guards its waiting rows.
func (tx *Tx) Dependents(ctx context.Context, keys []TaskKey) ([]Dependent, error) {
	return list(dependent)(tx.q.Dependents(ctx, db.DependentsParams{
		TenantIds: column(keys, TaskKey.tenantID), RunIds: column(keys, TaskKey.runID), TaskIds: column(keys, TaskKey.taskID),
	}))
}

func dependent(r db.DependentsRow) Dependent {
	return Dependent{Upstream: id.Of[id.Task](r.UpstreamID), Task: taskFromWaiting(db.ServoWaiting{
		TenantID: r.TenantID, RunID: r.RunID, TaskID: r.TaskID, Since: r.Since, Version: r.Version, TimeoutS: r.TimeoutS,
		Priority: r.Priority, Dependents: r.Dependents, Pool: r.Pool, Needs: r.Needs, Unmet: r.Unmet, Asset: r.Asset,
	})}
}

// Cone reads up to chunk waiting tasks downstream of these, at any distance.
func (tx *Tx) Cone(ctx context.Context, keys []TaskKey, chunk int) ([]run.Task, error) {
	return list(taskFromWaiting)(tx.q.Cone(ctx, db.ConeParams{
		TenantIds: column(keys, TaskKey.tenantID), RunIds: column(keys, TaskKey.runID), TaskIds: column(keys, TaskKey.taskID),
		Chunk: int32(chunk), //nolint:gosec // a small constant
	}))
}

// Doomed reads up to chunk waiting tasks of one run that have an upstream
// which ended without success.
func (tx *Tx) Doomed(ctx context.Context, key RunKey, chunk int) ([]Dependent, error) {
	return list(func(r db.DoomedRow) Dependent { return dependent(db.DependentsRow(r)) })(tx.q.Doomed(ctx, db.DoomedParams{
		TenantID: key.Tenant.UUID, RunID: key.Run.UUID, Chunk: int32(chunk), //nolint:gosec // a small constant
	}))
}

// Sweep locks and reads every queue row of these runs, in the order in which tasks move, with one
// statement for each table (docs/adr/0002 explains why this finds every task).
func (tx *Tx) Sweep(ctx context.Context, runs []id.Run) ([]run.Task, error) {
	ids := column(runs, func(r id.Run) uuid.UUID { return r.UUID })
	waiting, err1 := list(taskFromWaiting)(tx.q.SweepWaiting(ctx, ids))
	ready, err2 := list(taskFromReady)(tx.q.SweepReady(ctx, ids))
	queued, err3 := list(taskFromQueued)(tx.q.SweepQueued(ctx, ids))
	leased, err4 := list(taskFromLease)(tx.q.SweepLeases(ctx, ids))
	retrying, err5 := tryList(taskFromRetry)(tx.q.SweepRetrying(ctx, ids))
	return slices.Concat(waiting, ready, queued, leased, retrying), cmp.Or(err1, err2, err3, err4, err5)
}

// Assignment is the description of a task that a worker gets with its lease.
type Assignment struct {
	Index      int32
	Asset      string
	Partition  string
	Workspace  id.Workspace
	Deployment id.Deployment
	Pipeline   string
	Parameters json.RawMessage
	Trace      string // of the run: a W3C traceparent

	TriggerType string
	Window      *run.Window // of the run; nil if no config created it
}

// Offer is a task with its assignment, and the token of its attempt.
type Offer struct {
	Task      run.Task
	Token     int64
	Upstream  []id.Task // its upstream tasks in the plan
	Inherited []TaskKey // upstream tasks of earlier runs
	Assignment
}

// Demand is the request of claims for tasks of a pool.
type Demand struct {
	Pool         string
	Tenant       id.Tenant // only tasks of this tenant, if it is not zero
	Everything   bool      // tasks with any needs
	Capabilities []string  // otherwise tasks that need one of these, or none
	Taken        []id.Task // tasks that this transaction has taken already
	Most         int
}

// TakeQueued locks the next tasks of a pool that the claims can run, of tenants that may use the
// pool. It skips locked rows.
func (tx *Tx) TakeQueued(ctx context.Context, d Demand) ([]run.Task, error) {
	return list(taskFromQueued)(tx.q.TakeQueued(ctx, db.TakeQueuedParams{
		Pool: d.Pool, TenantID: d.Tenant.UUID, Everything: d.Everything, Capabilities: append([]string{}, d.Capabilities...),
		Taken: column(d.Taken, func(t id.Task) uuid.UUID { return t.UUID }), Most: int32(d.Most), //nolint:gosec // a batch size
	}))
}

// Assign reads the assignments of tasks. A task without a lease gets a new token.
func (tx *Tx) Assign(ctx context.Context, tasks []run.Task) ([]Offer, error) {
	if len(tasks) == 0 {
		return nil, nil
	}
	rows, err := tx.q.Assignments(ctx, db.AssignmentsParams{
		Nths: ordinals(len(tasks)), TenantIds: column(tasks, func(t run.Task) uuid.UUID { return t.Tenant.UUID }),
		RunIds: column(tasks, func(t run.Task) uuid.UUID { return t.Run.UUID }), TaskIds: column(tasks, func(t run.Task) uuid.UUID { return t.ID.UUID }),
	})
	if err != nil {
		return nil, err
	}
	if len(rows) != len(tasks) {
		return nil, &MismatchError{Statement: "assignments", Want: len(tasks), Got: len(rows)}
	}
	offers := make([]Offer, len(tasks))
	for _, r := range rows {
		t := tasks[r.Nth]
		offer := Offer{Task: t, Token: r.Token, Upstream: taskIDs(r.Upstream), Inherited: inheritedFrom(t.Tenant.UUID, r.Inherited), Assignment: Assignment{
			Index: r.Ix, Asset: r.Asset, Partition: r.Partition, Workspace: id.Of[id.Workspace](r.WorkspaceID),
			Deployment: id.Of[id.Deployment](r.DeploymentID), Pipeline: r.Pipeline, Parameters: r.Parameters, Trace: r.Trace,
			TriggerType: r.TriggerType, Window: windowOf(r.WindowOf),
		}}
		if t.State.Leased() {
			offer.Token = t.Token
		}
		offers[r.Nth] = offer
	}
	return offers, nil
}

// windowOf reads the window of a run's config. The JSON of the engine is always valid.
func windowOf(data []byte) *run.Window {
	if len(data) == 0 {
		return nil
	}
	w := &run.Window{}
	if json.Unmarshal(data, w) != nil {
		return nil
	}
	return w
}

func taskIDs(ids []uuid.UUID) []id.Task { return column(ids, id.Of[id.Task]) }

// LockClaims makes a repeated claim wait until the transaction of its first try ends.
func (tx *Tx) LockClaims(ctx context.Context, claims []id.Claim) error {
	return tx.q.LockClaims(ctx, column(claims, claimLock))
}

// claimLock is the key of a claim's lock: the random half of its id.
func claimLock(c id.Claim) int64 {
	var key int64
	for _, b := range c.UUID[8:] {
		key = key<<8 | int64(b)
	}
	return key
}

// LeasesOfClaims returns the leased tasks of these claims, in the order of their tokens.
func (tx *Tx) LeasesOfClaims(ctx context.Context, claims []id.Claim) ([]run.Task, error) {
	return list(taskFromLease)(tx.q.LeasesOfClaims(ctx, column(claims, func(c id.Claim) uuid.UUID { return c.UUID })))
}

// LockRetries locks those of the retries that are due, and skips locked rows.
func (tx *Tx) LockRetries(ctx context.Context, keys []TaskKey, now time.Time) ([]run.Task, error) {
	return tryList(taskFromRetry)(tx.q.LockRetries(ctx, db.LockRetriesParams{RunIds: column(keys, TaskKey.runID), TaskIds: column(keys, TaskKey.taskID), Now: now}))
}
