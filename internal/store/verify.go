package store

import (
	"bytes"
	"context"
	"errors"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"go.arco.dev/servo/internal/base/id"
	"go.arco.dev/servo/internal/store/internal/db"
)

type (
	// RunRow is a row of runs as it is, column by column. These rows are for verify alone:
	// everybody else reads runs and tasks.
	RunRow = db.ServoRun
	// TaskRow is a row of tasks.
	TaskRow = db.ServoTask
	// EdgeRow is a row of edges.
	EdgeRow = db.ServoEdge
	// WaitingRow is a row of waiting.
	WaitingRow = db.ServoWaiting
	// ReadyRow is a row of ready_q.
	ReadyRow = db.ServoReadyQ
	// QueuedRow is a row of pool_q.
	QueuedRow = db.ServoPoolQ
	// LeaseRow is a row of leases.
	LeaseRow = db.ServoLease
	// RetryRow is a row of retry_q.
	RetryRow = db.ServoRetryQ
	// LiveRunRow is a row of live_runs.
	LiveRunRow = db.ServoLiveRun
	// ConeRow is a row of cones.
	ConeRow = db.ServoCone
	// TenantRow is a row of tenants.
	TenantRow = db.ServoTenant
	// WorkspaceRow is a row of workspaces.
	WorkspaceRow = db.ServoWorkspace
	// DeploymentRow is a row of deployments.
	DeploymentRow = db.ServoDeployment
	// AssetPauseRow is a row of asset_pauses.
	AssetPauseRow = db.ServoAssetPause
	// ConfigRow is a row of configs.
	ConfigRow = db.ServoConfig
	// AlertRow is a row of alerts.
	AlertRow = db.ServoAlert
	// ChannelRow is a row of alert_channels.
	ChannelRow = db.ServoAlertChannel
	// SubscriptionRow is a row of subscriptions.
	SubscriptionRow = db.ServoSubscription
	// KeyRow is a row of api_keys.
	KeyRow = db.ServoApiKey
	// OutsideEventRow is a row of event_inbox.
	OutsideEventRow = db.ServoEventInbox
	// TemplateRow is a row of templates.
	TemplateRow = db.ServoTemplate
	// LedgerRow is something in the ledger that contradicts the runs or itself.
	LedgerRow = db.VerifyLedgerRow
	// EventRow is a recorded event of a run or of an entity.
	EventRow = db.VerifyEventsRow
	// OrphanRow counts the rows of one table that carry a run which does not exist.
	OrphanRow = db.VerifyOrphansRow
	// EntityOrphanRow counts the rows of one table that carry a tenant which does not exist.
	EntityOrphanRow = db.VerifyEntityOrphansRow
	// RunIDRow is a run whose id a run of another tenant has too.
	RunIDRow = db.VerifyRunIDsRow
	// PositionRow is a position that several events have.
	PositionRow = db.VerifyPositionsRow
	// ClaimTokenRow is a token that was given to several attempts.
	ClaimTokenRow = db.VerifyClaimTokensRow
	// LeaseTokenRow is a lease whose token another lease has too.
	LeaseTokenRow = db.VerifyLeaseTokensRow
)

// PlanByKey makes the transaction read known rows by their keys, PlanByScan undoes it.
func (tx *Tx) PlanByKey(ctx context.Context) error { return tx.q.PlanByKey(ctx) }

// PlanByScan leaves plans to the planner.
func (tx *Tx) PlanByScan(ctx context.Context) error { return tx.q.PlanByScan(ctx) }

// Sequences are the last token and the last position that were given out.
func (tx *Tx) Sequences(ctx context.Context) (token, position int64, err error) {
	row, err := tx.q.VerifySequences(ctx)
	return row.Token, row.Position, err
}

// bounds are the keys of tenants between which to read: one tenant, or all.
func bounds(tenant *id.Tenant) (first, last uuid.UUID) {
	if tenant == nil {
		return uuid.Nil, uuid.Max
	}
	return tenant.UUID, tenant.UUID
}

// RunsAfter reads runs in the order of their keys, of one tenant or of all.
func (tx *Tx) RunsAfter(ctx context.Context, after RunKey, tenant *id.Tenant, most int) ([]RunRow, error) {
	first, last := bounds(tenant)
	if bytes.Compare(after.Tenant.UUID[:], first[:]) < 0 {
		after = RunKey{Tenant: id.Of[id.Tenant](first)}
	}
	rows, err := tx.q.VerifyRuns(ctx, db.VerifyRunsParams{
		TenantID: after.Tenant.UUID, ID: after.Run.UUID, Until: last, Most: int32(most), //nolint:gosec // a chunk size
	})
	return column(rows, func(r db.VerifyRunsRow) RunRow { return r.ServoRun }), err
}

// SampleRuns picks runs by chance, of one tenant or of all.
func (tx *Tx) SampleRuns(ctx context.Context, tenant *id.Tenant, most int) ([]RunKey, error) {
	first, _ := bounds(tenant)
	rows, err := tx.q.SampleRuns(ctx, db.SampleRunsParams{
		Everybody: tenant == nil, TenantID: first, Most: int32(most), //nolint:gosec // a sample size
	})
	return column(rows, func(r db.SampleRunsRow) RunKey {
		return RunKey{Tenant: id.Of[id.Tenant](r.TenantID), Run: id.Of[id.Run](r.ID)}
	}), err
}

// RunsByKey reads the rows of these runs.
func (tx *Tx) RunsByKey(ctx context.Context, keys []RunKey) ([]RunRow, error) {
	rows, err := tx.q.VerifyRunsByKey(ctx, db.VerifyRunsByKeyParams{TenantIds: column(keys, RunKey.tenantID), Ids: column(keys, RunKey.runID)})
	return column(rows, func(r db.VerifyRunsByKeyRow) RunRow { return r.ServoRun }), err
}

// EachEvent streams the events of runs: of each the run's own stream first, then those of
// its tasks, by version.
func (tx *Tx) EachEvent(ctx context.Context, keys []RunKey, each func(EventRow) error) error {
	return stream(ctx, tx, each, with((*db.Queries).VerifyEvents, db.VerifyEventsParams{TenantIds: column(keys, RunKey.tenantID), Ids: column(keys, RunKey.runID)}))
}

// EachTask streams the task rows of runs.
func (tx *Tx) EachTask(ctx context.Context, keys []RunKey, each func(TaskRow) error) error {
	return stream(ctx, tx, each, with((*db.Queries).VerifyTasks, db.VerifyTasksParams{TenantIds: column(keys, RunKey.tenantID), Ids: column(keys, RunKey.runID)}))
}

// EachEdge streams the edges of runs, by run, upstream and task.
func (tx *Tx) EachEdge(ctx context.Context, keys []RunKey, each func(EdgeRow) error) error {
	return stream(ctx, tx, each, with((*db.Queries).VerifyEdges, db.VerifyEdgesParams{TenantIds: column(keys, RunKey.tenantID), Ids: column(keys, RunKey.runID)}))
}

// QueueRows take the rows of the queue tables, of cones and of live runs, as they come.
type QueueRows struct {
	Waiting func(WaitingRow) error
	Ready   func(ReadyRow) error
	Queued  func(QueuedRow) error
	Lease   func(LeaseRow) error
	Retry   func(RetryRow) error
	Cone    func(ConeRow) error
	Live    func(LiveRunRow) error // by tenant and run
}

// EachQueueRow streams the queue rows of runs, whosever they are.
func (tx *Tx) EachQueueRow(ctx context.Context, keys []RunKey, each QueueRows) error {
	runs := column(keys, RunKey.runID)
	return inOrder(
		streaming(ctx, tx, each.Waiting, with((*db.Queries).VerifyWaiting, runs)),
		streaming(ctx, tx, each.Ready, with((*db.Queries).VerifyReady, runs)),
		streaming(ctx, tx, each.Queued, with((*db.Queries).VerifyQueued, runs)),
		streaming(ctx, tx, each.Lease, with((*db.Queries).VerifyLeases, runs)),
		streaming(ctx, tx, each.Retry, with((*db.Queries).VerifyRetrying, runs)),
		streaming(ctx, tx, each.Cone, with((*db.Queries).VerifyCones, runs)),
		streaming(ctx, tx, each.Live, with((*db.Queries).VerifyLiveRuns, db.VerifyLiveRunsParams{TenantIds: column(keys, RunKey.tenantID), Ids: runs})),
	)
}

// Orphans counts the rows without their run, of one tenant or of all.
func (tx *Tx) Orphans(ctx context.Context, tenant *id.Tenant, each func(OrphanRow) error) error {
	first, _ := bounds(tenant)
	return stream(ctx, tx, each, with((*db.Queries).VerifyOrphans, db.VerifyOrphansParams{Everybody: tenant == nil, TenantID: first}))
}

// Doubles finds what must be there once in the whole database and is there more often.
type Doubles struct {
	Run        func(RunIDRow) error
	Position   func(PositionRow) error
	ClaimToken func(ClaimTokenRow) error
	LeaseToken func(LeaseTokenRow) error
}

// EachDouble streams them.
func (tx *Tx) EachDouble(ctx context.Context, each Doubles) error {
	return inOrder(
		streaming(ctx, tx, each.Run, plain((*db.Queries).VerifyRunIDs)),
		streaming(ctx, tx, each.Position, plain((*db.Queries).VerifyPositions)),
		streaming(ctx, tx, each.ClaimToken, plain((*db.Queries).VerifyClaimTokens)),
		streaming(ctx, tx, each.LeaseToken, plain((*db.Queries).VerifyLeaseTokens)),
	)
}

// TenantsAfter reads tenants in the order of their ids, one or all.
func (tx *Tx) TenantsAfter(ctx context.Context, after id.Tenant, tenant *id.Tenant, most int) ([]TenantRow, error) {
	first, last := bounds(tenant)
	if tenant != nil && after.UUID == uuid.Nil {
		after.UUID = before(first)
	}
	rows, err := tx.q.VerifyTenants(ctx, db.VerifyTenantsParams{After: after.UUID, Until: last, Most: int32(most)}) //nolint:gosec // a chunk size
	return column(rows, func(r db.VerifyTenantsRow) TenantRow { return r.ServoTenant }), err
}

// before is the largest UUID below u.
func before(u uuid.UUID) uuid.UUID {
	for i := len(u) - 1; i >= 0; i-- {
		u[i]--
		if u[i] != 0xff {
			break
		}
	}
	return u
}

// EntityRows take the events of entities and their rows as they come.
type EntityRows struct {
	Event      func(EventRow) error
	Workspace  func(WorkspaceRow) error
	Deployment func(DeploymentRow) error
	AssetPause func(AssetPauseRow) error
	Config     func(ConfigRow) error
	Outside    func(OutsideEventRow) error
	Template   func(TemplateRow) error
	Alert      func(AlertRow) error
	Channel    func(ChannelRow) error
	Key        func(KeyRow) error

	Subscription func(SubscriptionRow) error
}

// EachEntityEvent streams the events of these tenants, by subject and version.
func (tx *Tx) EachEntityEvent(ctx context.Context, tenants []id.Tenant, each func(EventRow) error) error {
	return stream(ctx, tx, each, with((*db.Queries).VerifyEntityEvents, column(tenants, func(t id.Tenant) uuid.UUID { return t.UUID })))
}

// EachEntityRow streams what belongs to these tenants: first the events, by subject and
// version, then the rows.
func (tx *Tx) EachEntityRow(ctx context.Context, tenants []id.Tenant, each EntityRows) error {
	ids := column(tenants, func(t id.Tenant) uuid.UUID { return t.UUID })
	return inOrder(
		func() error { return tx.EachEntityEvent(ctx, tenants, each.Event) },
		streaming(ctx, tx, each.Workspace, with((*db.Queries).VerifyWorkspaces, ids)),
		streaming(ctx, tx, each.Deployment, with((*db.Queries).VerifyDeployments, ids)),
		streaming(ctx, tx, each.AssetPause, with((*db.Queries).VerifyAssetPauses, ids)),
		streaming(ctx, tx, each.Config, with((*db.Queries).VerifyConfigs, ids)),
		streaming(ctx, tx, each.Outside, with((*db.Queries).VerifyInbox, ids)),
		streaming(ctx, tx, each.Template, with((*db.Queries).VerifyTemplates, ids)),
		streaming(ctx, tx, each.Alert, with((*db.Queries).VerifyAlerts, ids)),
		streaming(ctx, tx, each.Channel, with((*db.Queries).VerifyChannels, ids)),
		streaming(ctx, tx, each.Subscription, with((*db.Queries).VerifySubscriptions, ids)),
		streaming(ctx, tx, each.Key, with((*db.Queries).VerifyKeys, ids)),
	)
}

// EntityOrphans counts the rows without their tenant.
func (tx *Tx) EntityOrphans(ctx context.Context, tenant *id.Tenant, each func(EntityOrphanRow) error) error {
	first, _ := bounds(tenant)
	return stream(ctx, tx, each, with((*db.Queries).VerifyEntityOrphans, db.VerifyEntityOrphansParams{Everybody: tenant == nil, TenantID: first}))
}

// Ledger finds what in the ledger of slots contradicts the runs or itself, of one tenant or of
// all.
func (tx *Tx) Ledger(ctx context.Context, tenant *id.Tenant, each func(LedgerRow) error) error {
	first, _ := bounds(tenant)
	return stream(ctx, tx, each, with((*db.Queries).VerifyLedger, db.VerifyLedgerParams{Everybody: tenant == nil, TenantID: first}))
}

// inOrder does one after the other until one fails.
func inOrder(steps ...func() error) error {
	for _, step := range steps {
		if err := step(); err != nil {
			return err
		}
	}
	return nil
}

// query is a method of sqlc's with its arguments.
type query func(ctx context.Context, q *db.Queries) error

func with[A, R any](method func(*db.Queries, context.Context, A) ([]R, error), arg A) query {
	return func(ctx context.Context, q *db.Queries) error {
		_, err := method(q, ctx, arg)
		return err
	}
}

func plain[R any](method func(*db.Queries, context.Context) ([]R, error)) query {
	return func(ctx context.Context, q *db.Queries) error {
		_, err := method(q, ctx)
		return err
	}
}

func streaming[R any](ctx context.Context, tx *Tx, each func(R) error, send query) func() error {
	return func() error { return stream(ctx, tx, each, send) }
}

// stream sends a query of sqlc's and hands out its rows one by one: sqlc's own methods
// collect them, and verify reads more than fits into memory.
func stream[R any](ctx context.Context, tx *Tx, each func(R) error, send query) error {
	var caught catcher
	if err := send(ctx, db.New(&caught)); !errors.Is(err, errCaught) {
		return err
	}
	rows, err := tx.tx.Query(ctx, caught.sql, caught.args...)
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		row, err := pgx.RowToStructByPos[R](rows)
		if err != nil {
			return err
		}
		if err := each(row); err != nil {
			return err
		}
	}
	return rows.Err()
}

// catcher stands where a connection would and keeps the query that sqlc's method sends.
type catcher struct {
	sql  string
	args []any
}

var errCaught = errors.New("store: the query was caught")

// Exec implements db.DBTX.
func (*catcher) Exec(context.Context, string, ...any) (pgconn.CommandTag, error) {
	return pgconn.CommandTag{}, errors.New("store: a write was streamed")
}

// Query implements db.DBTX.
func (c *catcher) Query(_ context.Context, sql string, args ...any) (pgx.Rows, error) {
	c.sql, c.args = sql, args
	return nil, errCaught
}

// QueryRow implements db.DBTX.
func (*catcher) QueryRow(context.Context, string, ...any) pgx.Row { return readInPipeline{} }
