package store

import (
	"bytes"
	"cmp"
	"context"
	"encoding/binary"
	"math"
	"slices"
	"time"

	"github.com/google/uuid"

	"go.arco.dev/servo/internal/base/id"
	"go.arco.dev/servo/internal/domain/run"
	"go.arco.dev/servo/internal/domain/tenant"
	"go.arco.dev/servo/internal/store/internal/db"
)

// writeLiveRuns writes the rows of live_runs.
func (tx *Tx) writeLiveRuns(ctx context.Context, c Changes) error {
	var fresh []run.Run
	for _, r := range c.NewRuns {
		if (r.Lock == "" || r.Behind) && !r.State.Terminal() {
			fresh = append(fresh, r)
		}
	}
	if err := tx.insertLiveRuns(ctx, fresh); err != nil {
		return err
	}
	rows := c.LiveRuns
	err := tx.writes.write("update live_runs", len(rows), func(q *db.Queries) error {
		return q.UpdateLiveRuns(ctx, db.UpdateLiveRunsParams{
			TenantIds: column(rows, func(r run.Run) uuid.UUID { return r.Tenant.UUID }),
			RunIds:    column(rows, func(r run.Run) uuid.UUID { return r.ID.UUID }),
			Pendings:  column(rows, isPending),
			Starts:    column(rows, func(r run.Run) bool { return r.State == run.RunRunning }),
			DueAts:    column(rows, run.Run.DueAt),
			Breaches:  column(rows, BreachesOf),
		})
	})
	if err != nil {
		return err
	}
	return tx.writes.write("delete live_runs", len(c.EndedRuns), func(q *db.Queries) error {
		return q.DeleteLiveRuns(ctx, db.DeleteLiveRunsParams{TenantIds: column(c.EndedRuns, RunKey.tenantID), RunIds: column(c.EndedRuns, RunKey.runID)})
	})
}

// heldLock returns the lock of a run that holds it, wantedLock that of a run that waits for it.
func heldLock(r run.Run) string {
	if r.Behind {
		return ""
	}
	return r.Lock
}

func wantedLock(r run.Run) string {
	if r.Behind {
		return r.Lock
	}
	return ""
}

func isPending(r run.Run) bool { return r.State == run.RunPending }

func (tx *Tx) insertLiveRuns(ctx context.Context, rows []run.Run) error {
	return tx.writes.write("insert live_runs", len(rows), func(q *db.Queries) error {
		return q.InsertLiveRuns(ctx, db.InsertLiveRunsParams{
			TenantIds:    column(rows, func(r run.Run) uuid.UUID { return r.Tenant.UUID }),
			RunIds:       column(rows, func(r run.Run) uuid.UUID { return r.ID.UUID }),
			WorkspaceIds: column(rows, func(r run.Run) uuid.UUID { return r.Workspace.UUID }),
			CreatedAts:   column(rows, func(r run.Run) time.Time { return r.CreatedAt }),
			DueAts:       column(rows, run.Run.DueAt),
			LateAts:      column(rows, run.Run.LateAt),
			Breaches:     column(rows, BreachesOf),
			Limits:       column(rows, func(r run.Run) int32 { return r.Limit }),
			Priorities:   column(rows, func(r run.Run) int16 { return r.Priority }),
			Pendings:     column(rows, isPending),
			LockKeys:     column(rows, heldLock),
			WaitKeys:     column(rows, wantedLock),
			ConfigIds:    column(rows, configOf),
			LockedBys:    column(rows, func(r run.Run) string { return r.LockedBy }),
			Pipelines:    column(rows, func(r run.Run) string { return r.Pipeline }),
			Turns:        column(rows, func(r run.Run) int64 { return r.Turn }),
		})
	})
}

// LockKey identifies a lock.
type LockKey struct {
	Tenant id.Tenant
	Key    string
}

// LockRequest is a run that requests its lock, with the columns of its row in live_runs.
type LockRequest struct {
	LockKey

	Run       id.Run
	Workspace id.Workspace
	Limit     int32 // seconds
	Priority  int16
	By        string
	Pipeline  string
	Config    id.Config // zero without a config
	LateAt    time.Time // see run.Run
	Breaches  int16     // see BreachesOf
}

// TakeLocks gives each lock to the run that requests it, unless another run holds it or waits for
// it. It returns which runs got their locks, and for the other locks the run that holds them or
// gets them next. A run with its lock has a row in live_runs and counts as running; Changes can
// make it wait after all. Each key may be requested once. A key in neither result was released
// meanwhile: request it again.
func (tx *Tx) TakeLocks(ctx context.Context, requests []LockRequest, now time.Time) (taken map[id.Run]bool, holders map[LockKey]id.Run, err error) {
	if len(requests) == 0 {
		return nil, nil, nil
	}
	rows, err := tx.q.InsertLocks(ctx, db.InsertLocksParams{
		Now:          now,
		TenantIds:    column(requests, func(r LockRequest) uuid.UUID { return r.Tenant.UUID }),
		RunIds:       column(requests, func(r LockRequest) uuid.UUID { return r.Run.UUID }),
		WorkspaceIds: column(requests, func(r LockRequest) uuid.UUID { return r.Workspace.UUID }),
		DueAts:       column(requests, func(r LockRequest) time.Time { return now.Add(time.Duration(r.Limit) * time.Second) }),
		Limits:       column(requests, func(r LockRequest) int32 { return r.Limit }),
		LateAts:      column(requests, func(r LockRequest) time.Time { return r.LateAt }),
		Breaches:     column(requests, func(r LockRequest) int16 { return r.Breaches }),
		Priorities:   column(requests, func(r LockRequest) int16 { return r.Priority }),
		LockKeys:     column(requests, func(r LockRequest) string { return r.Key }),
		LockedBys:    column(requests, func(r LockRequest) string { return r.By }),
		Pipelines:    column(requests, func(r LockRequest) string { return r.Pipeline }),
		ConfigIds:    column(requests, func(r LockRequest) uuid.UUID { return r.Config.UUID }),
	})
	if err != nil {
		return nil, nil, err
	}
	taken = make(map[id.Run]bool, len(rows))
	for _, u := range rows {
		taken[id.Of[id.Run](u)] = true
	}
	var held []LockKey
	for _, r := range requests {
		if !taken[r.Run] {
			held = append(held, r.LockKey)
		}
	}
	if len(held) == 0 {
		return taken, nil, nil
	}
	holders, err = tx.LockHolders(ctx, held)
	return taken, holders, err
}

// LockHolders returns the runs that hold locks, or get them next. It omits keys without such a run.
func (tx *Tx) LockHolders(ctx context.Context, keys []LockKey) (map[LockKey]id.Run, error) {
	return index(func(r db.LockHoldersRow) (LockKey, id.Run) {
		return LockKey{Tenant: id.Of[id.Tenant](r.TenantID), Key: r.LockKey}, id.Of[id.Run](r.RunID)
	})(tx.q.LockHolders(ctx, db.LockHoldersParams{
		TenantIds: column(keys, func(k LockKey) uuid.UUID { return k.Tenant.UUID }),
		LockKeys:  column(keys, func(k LockKey) string { return k.Key }),
	}))
}

// LockTurns allocates the positions of n runs that wait for locks.
func (tx *Tx) LockTurns(ctx context.Context, n int) ([]int64, error) {
	if n == 0 {
		return nil, nil
	}
	return tx.q.LockTurns(ctx, int32(n)) //nolint:gosec // a batch size
}

// GiveLocks gives waiting runs, whose rows are locked, their locks if these are free and no other
// run has waited longer, and returns the runs that got them. These start in this transaction, or
// return the lock with ReturnLocks.
func (tx *Tx) GiveLocks(ctx context.Context, runs []run.Run) (given map[id.Run]bool, err error) {
	runs = slices.Clone(runs)
	slices.SortFunc(runs, func(a, b run.Run) int {
		return cmp.Or(bytes.Compare(a.Tenant.UUID[:], b.Tenant.UUID[:]), cmp.Compare(a.Lock, b.Lock))
	})
	rows, err := tx.q.GiveLocks(ctx, db.GiveLocksParams{
		TenantIds: column(runs, func(r run.Run) uuid.UUID { return r.Tenant.UUID }), RunIds: column(runs, func(r run.Run) uuid.UUID { return r.ID.UUID }),
	})
	given = make(map[id.Run]bool, len(rows))
	for _, u := range rows {
		given[id.Of[id.Run](u)] = true
	}
	return given, err
}

// ReturnLocks releases locks that GiveLocks gave in this transaction to runs that do not start.
func (tx *Tx) ReturnLocks(ctx context.Context, runs []RunKey) error {
	return tx.writes.write("return locks", anyRows, func(q *db.Queries) error {
		return q.ReturnLocks(ctx, db.ReturnLocksParams{TenantIds: column(runs, RunKey.tenantID), RunIds: column(runs, RunKey.runID)})
	})
}

// ReleaseLocks releases locks that TakeLocks gave in this transaction to runs that are not created
// after all.
func (tx *Tx) ReleaseLocks(ctx context.Context, runs []RunKey) error {
	return tx.writes.write("release locks", len(runs), func(q *db.Queries) error {
		return q.DeleteLiveRuns(ctx, db.DeleteLiveRunsParams{TenantIds: column(runs, RunKey.tenantID), RunIds: column(runs, RunKey.runID)})
	})
}

// RunQuotas are the quotas for runs.
type RunQuotas struct {
	MaxQueuedTasks, MaxConcurrentRuns, MaxDailyRuns, MaxTasksPerRun, MaxBackfillRuns int32

	MaxRunDuration time.Duration
	Zone           string
}

func runQuotas(queued, runs, daily, duration, tasks, backfills int32, zone string) RunQuotas {
	return RunQuotas{
		MaxQueuedTasks: queued, MaxConcurrentRuns: runs, MaxDailyRuns: daily, MaxTasksPerRun: tasks, MaxBackfillRuns: backfills,
		MaxRunDuration: time.Duration(duration) * time.Second, Zone: zone,
	}
}

func tenantIDs(tenants []id.Tenant) []uuid.UUID {
	return column(tenants, func(t id.Tenant) uuid.UUID { return t.UUID })
}

// RunQuotasOf reads the quotas for runs of tenants.
func (tx *Tx) RunQuotasOf(ctx context.Context, tenants []id.Tenant) (map[id.Tenant]RunQuotas, error) {
	return index(func(r db.TenantQuotasRow) (id.Tenant, RunQuotas) {
		return id.Of[id.Tenant](r.ID), runQuotas(r.MaxQueuedTasks, r.MaxConcurrentRuns, r.MaxDailyRuns, r.MaxRunDurationS, r.MaxTasksPerRun, r.MaxBackfillRuns, r.Zone)
	})(tx.q.TenantQuotas(ctx, tenantIDs(tenants)))
}

// LockTenants locks tenants in id order, so that counts of their runs stay valid until the
// transaction ends, and reads their quotas for runs.
func (tx *Tx) LockTenants(ctx context.Context, tenants []id.Tenant) (map[id.Tenant]RunQuotas, error) {
	return index(func(r db.LockTenantsRow) (id.Tenant, RunQuotas) {
		return id.Of[id.Tenant](r.ID), runQuotas(r.MaxQueuedTasks, r.MaxConcurrentRuns, r.MaxDailyRuns, r.MaxRunDurationS, r.MaxTasksPerRun, r.MaxBackfillRuns, r.Zone)
	})(tx.q.LockTenants(ctx, tenantIDs(tenants)))
}

// UsageQuestion requests counts of a tenant's runs and tasks, each up to a limit; 0 is not counted.
type UsageQuestion struct {
	Tenant                       id.Tenant
	Live, Running, Queued, Daily int32
	Backfills                    int32
	DayFrom, DayUntil            time.Time // for Daily
}

// Usage counts the runs and tasks of a tenant, up to the limits of the question.
type Usage struct {
	Live    int32 // runs that have not ended
	Running int32 // of these, which have started
	Queued  int32 // ready tasks
	Daily   int32 // runs created that day
	// Backfills counts the runs of backfills that have not ended.
	Backfills int32
}

// CountUsage counts the runs and tasks of tenants.
func (tx *Tx) CountUsage(ctx context.Context, questions []UsageQuestion) (map[id.Tenant]Usage, error) {
	return index(func(r db.CountUsageRow) (id.Tenant, Usage) {
		return id.Of[id.Tenant](r.TenantID), Usage{Live: r.Live, Running: r.Running, Queued: r.Queued, Daily: r.Daily, Backfills: r.Backfills}
	})(tx.q.CountUsage(ctx, db.CountUsageParams{
		TenantIds: column(questions, func(q UsageQuestion) uuid.UUID { return q.Tenant.UUID }),
		Lives:     column(questions, func(q UsageQuestion) int32 { return q.Live }),
		Runnings:  column(questions, func(q UsageQuestion) int32 { return q.Running }),
		Queueds:   column(questions, func(q UsageQuestion) int32 { return q.Queued }),
		Dailies:   column(questions, func(q UsageQuestion) int32 { return q.Daily }),
		Backfills: column(questions, func(q UsageQuestion) int32 { return q.Backfills }),
		DayFroms:  column(questions, func(q UsageQuestion) uuid.UUID { return firstID(q.DayFrom) }),
		DayUntils: column(questions, func(q UsageQuestion) uuid.UUID { return firstID(q.DayUntil) }),
	}))
}

// firstID is below every id that is created from t on, and above every earlier one.
func firstID(t time.Time) uuid.UUID {
	var u uuid.UUID
	if t.IsZero() {
		return u
	}
	var millis [8]byte
	binary.BigEndian.PutUint64(millis[:], uint64(t.UnixMilli()))
	copy(u[:6], millis[2:])
	return u
}

// DueRun is a run past its time limit.
type DueRun struct {
	RunKey

	Limit      time.Duration
	Pipeline   string
	Deployment id.Deployment
}

// DueRuns returns runs past their time limit.
func (tx *Tx) DueRuns(ctx context.Context, now time.Time, most int) ([]DueRun, error) {
	return list(func(r db.DueRunsRow) DueRun {
		return DueRun{
			RunKey: runKey(r.TenantID, r.RunID), Limit: time.Duration(r.LimitS) * time.Second, Pipeline: r.Pipeline,
			Deployment: id.Of[id.Deployment](r.DeploymentID),
		}
	})(tx.q.DueRuns(ctx, db.DueRunsParams{Now: now, Most: int32(most)})) //nolint:gosec // a batch size
}

func runKey(tenant, run uuid.UUID) RunKey {
	return RunKey{Tenant: id.Of[id.Tenant](tenant), Run: id.Of[id.Run](run)}
}

// WaitingTenants returns the tenants with runs that wait for their start.
func (tx *Tx) WaitingTenants(ctx context.Context) ([]id.Tenant, error) {
	return list(id.Of[id.Tenant])(tx.q.WaitingTenants(ctx))
}

// NextRuns returns the runs of tenants that start next, up to mosts of each, in their order.
func (tx *Tx) NextRuns(ctx context.Context, tenants []id.Tenant, mosts []int32) ([]RunKey, error) {
	return list(func(r db.NextRunsRow) RunKey { return runKey(r.TenantID, r.RunID) })(tx.q.NextRuns(ctx, db.NextRunsParams{TenantIds: tenantIDs(tenants), Mosts: mosts}))
}

// WithLive adds the columns of live_runs to locked runs. It omits runs that do not wait for their
// start.
func (tx *Tx) WithLive(ctx context.Context, runs []run.Run) ([]run.Run, error) {
	rows, err := tx.q.LiveRuns(ctx, db.LiveRunsParams{
		TenantIds: column(runs, func(r run.Run) uuid.UUID { return r.Tenant.UUID }), RunIds: column(runs, func(r run.Run) uuid.UUID { return r.ID.UUID }),
	})
	if err != nil {
		return nil, err
	}
	live := make(map[RunKey]db.LiveRunsRow, len(rows))
	for _, r := range rows {
		live[runKey(r.TenantID, r.RunID)] = r
	}
	var waiting []run.Run
	for _, r := range runs {
		if row, ok := live[RunKey{Tenant: r.Tenant, Run: r.ID}]; ok && row.Pending {
			r.Limit, r.Lock, r.LockedBy, r.Behind = row.LimitS, cmp.Or(row.WaitKey, row.LockKey), row.LockedBy, row.WaitKey != ""
			waiting = append(waiting, r)
		}
	}
	return waiting, nil
}

// Roots returns the tasks of locked runs that wait for the start only.
func (tx *Tx) Roots(ctx context.Context, runs []RunKey) ([]run.Task, error) {
	return list(taskFromWaiting)(tx.q.Roots(ctx, db.RootsParams{TenantIds: column(runs, RunKey.tenantID), RunIds: column(runs, RunKey.runID)}))
}

// ForgetTriggerKeys deletes the idempotency keys of triggers that created no run.
func (tx *Tx) ForgetTriggerKeys(ctx context.Context, keys []TriggerKey) error {
	return tx.writes.write("forget trigger keys", len(keys), func(q *db.Queries) error {
		return q.ForgetTriggerKeys(ctx, db.ForgetTriggerKeysParams{
			TenantIds: column(keys, func(k TriggerKey) uuid.UUID { return k.Tenant.UUID }), Keys: column(keys, func(k TriggerKey) string { return k.Key }),
		})
	})
}

// RepointTriggerKeys sets the runs of idempotency keys to those that their triggers were answered with.
func (tx *Tx) RepointTriggerKeys(ctx context.Context, keys []TriggerKey) error {
	return tx.writes.write("repoint trigger keys", len(keys), func(q *db.Queries) error {
		return q.RepointTriggerKeys(ctx, db.RepointTriggerKeysParams{
			TenantIds: column(keys, func(k TriggerKey) uuid.UUID { return k.Tenant.UUID }), Keys: column(keys, func(k TriggerKey) string { return k.Key }),
			RunIds: column(keys, func(k TriggerKey) uuid.UUID { return k.Run.UUID }),
		})
	})
}

// seconds is a duration as the database stores it.
func seconds(d time.Duration) int32 { return int32(min(d/time.Second, math.MaxInt32)) } //nolint:gosec // bounded

func quotasFromRow(t db.ServoTenant) tenant.Quotas {
	return tenant.Quotas{
		MaxConcurrentTasks: t.MaxConcurrentTasks, MaxQueuedTasks: t.MaxQueuedTasks, MaxConcurrentRuns: t.MaxConcurrentRuns,
		MaxDailyRuns: t.MaxDailyRuns, MaxRunDuration: time.Duration(t.MaxRunDurationS) * time.Second, MaxTasksPerRun: t.MaxTasksPerRun,
		MaxBackfillRuns: t.MaxBackfillRuns, FairnessWeight: t.FairnessWeight, Zone: t.Zone,
	}
}

// LockQuotas locks a tenant and reads its quotas and its version.
func (tx *Tx) LockQuotas(ctx context.Context, owner id.Tenant) (tenant.Quotas, int32, error) {
	row, err := tx.q.LockTenant(ctx, owner.UUID)
	if err != nil {
		return tenant.Quotas{}, 0, notFound(err, "tenant", owner.String())
	}
	return quotasFromRow(row), row.Version, nil
}

// SetQuotas writes the quotas of a tenant that is locked.
func (tx *Tx) SetQuotas(ctx context.Context, owner id.Tenant, version int32, quotas tenant.Quotas) error {
	n, err := tx.q.SetQuotas(ctx, db.SetQuotasParams{
		TenantID: owner.UUID, Version: version,
		MaxConcurrentTasks: quotas.MaxConcurrentTasks, MaxQueuedTasks: quotas.MaxQueuedTasks, MaxConcurrentRuns: quotas.MaxConcurrentRuns,
		MaxDailyRuns: quotas.MaxDailyRuns, MaxRunDurationS: seconds(quotas.MaxRunDuration), MaxTasksPerRun: quotas.MaxTasksPerRun,
		MaxBackfillRuns: quotas.MaxBackfillRuns, FairnessWeight: quotas.FairnessWeight, Zone: quotas.Zone,
	})
	return exactlyOne("set quotas", n, err)
}

// GetQuotas reads the quotas of a tenant and their version.
func (s *Store) GetQuotas(ctx context.Context, owner id.Tenant) (quotas tenant.Quotas, version int32, err error) {
	err = s.Tenant(ctx, owner.String(), func(ctx context.Context, tx *Tx) error {
		row, err := tx.q.GetQuotas(ctx, owner.UUID)
		quotas, version = quotasFromRow(row), row.Version
		return notFound(err, "tenant", owner.String())
	})
	return quotas, version, err
}

// LockView is a lock for its tenant.
type LockView struct {
	Key       string
	Run       id.Run
	Workspace string
	Pipeline  string
	LockedAt  time.Time
	LockedBy  string
	DueAt     time.Time // when its run is timed out; zero while it waits or is being cancelled
	Pending   bool      // its run waits for its start
}

// ListLocks reads the locks of a tenant by their keys, after a key.
func (s *Store) ListLocks(ctx context.Context, owner id.Tenant, after string, most int) ([]LockView, error) {
	return read(ctx, s.tenant(owner), func(ctx context.Context, tx *Tx) ([]LockView, error) {
		return list(func(r db.ListLocksRow) LockView { return lockView(db.GetLockRow(r)) })(tx.q.ListLocks(ctx, db.ListLocksParams{TenantID: owner.UUID, After: after, Most: int32(most)})) //nolint:gosec // a page size
	})
}

// GetLock reads one lock.
func (s *Store) GetLock(ctx context.Context, owner id.Tenant, key string) (LockView, error) {
	return read(ctx, s.tenant(owner), func(ctx context.Context, tx *Tx) (LockView, error) {
		row, err := tx.q.GetLock(ctx, db.GetLockParams{TenantID: owner.UUID, LockKey: key})
		return lockView(row), notFound(err, "lock", key)
	})
}

func lockView(r db.GetLockRow) LockView {
	return LockView{
		Key: r.LockKey, Run: id.Of[id.Run](r.RunID), Workspace: r.Workspace, Pipeline: r.Pipeline, LockedAt: r.CreatedAt, LockedBy: r.LockedBy,
		DueAt: timeOf(r.DueAt), Pending: r.Pending,
	}
}
