package store

import (
	"bytes"
	"context"
	"reflect"
	"strings"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"go.arco.dev/servo/internal/base/id"
	"go.arco.dev/servo/internal/store/internal/db"
)

type (
	// RunRow is a row of runs, column by column. These row types are for verify alone: all other
	// code reads runs and tasks.
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
	// BackfillRow is a row of backfills.
	BackfillRow = db.ServoBackfill
	// BackfillChunkRow is a row of backfill_chunks.
	BackfillChunkRow = db.ServoBackfillChunk
	// KeyRow is a row of api_keys.
	KeyRow = db.ServoApiKey
	// ExternalEventRow is a row of event_inbox.
	ExternalEventRow = db.ServoEventInbox
	// TemplateRow is a row of templates.
	TemplateRow = db.ServoTemplate
	// LedgerRow is an entry of the ledger that contradicts the runs or another entry.
	LedgerRow = db.VerifyLedgerRow
	// EventRow is a recorded event of a run or of an entity.
	EventRow = db.VerifyEventsRow
	// OrphanRow counts the rows of one table that carry a run which does not exist.
	OrphanRow = db.VerifyOrphansRow
	// EntityOrphanRow counts the rows of one table that carry a tenant which does not exist.
	EntityOrphanRow = db.VerifyEntityOrphansRow
	// RunIDRow is a run whose id a run of another tenant has too.
	RunIDRow = db.VerifyRunIDsRow
	// PositionRow is a position that more than one event has.
	PositionRow = db.VerifyPositionsRow
	// ClaimTokenRow is a token that more than one attempt has.
	ClaimTokenRow = db.VerifyClaimTokensRow
	// LeaseTokenRow is a lease whose token another lease has too.
	LeaseTokenRow = db.VerifyLeaseTokensRow
)

// PlanByKey makes the transaction read known rows by their keys. PlanByScan undoes it.
func (tx *Tx) PlanByKey(ctx context.Context) error { return tx.q.PlanByKey(ctx) }

// PlanByScan lets the planner choose plans again.
func (tx *Tx) PlanByScan(ctx context.Context) error { return tx.q.PlanByScan(ctx) }

// Sequences reads the last token and the last position that were allocated.
func (tx *Tx) Sequences(ctx context.Context) (token, position int64, err error) {
	row, err := tx.q.VerifySequences(ctx)
	return row.Token, row.Position, err
}

// bounds are the first and the last tenant to read: one tenant, or all.
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
	return wholeRows[RunRow](ctx, tx, "servo.runs q WHERE (q.tenant_id, q.id) > ($1, $2) AND q.tenant_id <= $3 ORDER BY q.tenant_id, q.id LIMIT $4",
		after.Tenant.UUID, after.Run.UUID, last, most)
}

// SampleRuns picks random runs, of one tenant or of all.
func (tx *Tx) SampleRuns(ctx context.Context, tenant *id.Tenant, most int) ([]RunKey, error) {
	first, _ := bounds(tenant)
	return list(func(r db.SampleRunsRow) RunKey { return runKey(r.TenantID, r.ID) })(tx.q.SampleRuns(ctx, db.SampleRunsParams{
		AllTenants: tenant == nil, TenantID: first, Most: int32(most), //nolint:gosec // a sample size
	}))
}

// keyed is a FROM clause for the rows of a table that belong to runs: $1 are the tenants of the
// runs, $2 the runs.
func keyed(table, run string) string {
	return "(SELECT unnest($1::uuid[]) AS tenant_id, unnest($2::uuid[]) AS id) AS n JOIN servo." + table +
		" q ON q.tenant_id = n.tenant_id AND q." + run + " = n.id ORDER BY q.tenant_id, q." + run
}

// RunsByKey reads the rows of these runs.
func (tx *Tx) RunsByKey(ctx context.Context, keys []RunKey) ([]RunRow, error) {
	return wholeRows[RunRow](ctx, tx, keyed("runs", "id"), column(keys, RunKey.tenantID), column(keys, RunKey.runID))
}

// EachEvent streams the events of runs: the run's own stream first, then those of its tasks, by
// version.
func (tx *Tx) EachEvent(ctx context.Context, keys []RunKey, each func(EventRow) error) error {
	return stream(ctx, tx, each, db.VerifyEvents, column(keys, RunKey.tenantID), column(keys, RunKey.runID))()
}

// EachTask streams the task rows of runs.
func (tx *Tx) EachTask(ctx context.Context, keys []RunKey, each func(TaskRow) error) error {
	return streamWhole(ctx, tx, each, keyed("tasks", "run_id")+", q.id", column(keys, RunKey.tenantID), column(keys, RunKey.runID))()
}

// EachEdge streams the edges of runs, by run, upstream and task.
func (tx *Tx) EachEdge(ctx context.Context, keys []RunKey, each func(EdgeRow) error) error {
	return streamWhole(ctx, tx, each, keyed("edges", "run_id")+", q.upstream_id, q.task_id", column(keys, RunKey.tenantID), column(keys, RunKey.runID))()
}

// QueueRows receives the rows of the queue tables, of cones and of live runs.
type QueueRows struct {
	Waiting func(WaitingRow) error
	Ready   func(ReadyRow) error
	Queued  func(QueuedRow) error
	Lease   func(LeaseRow) error
	Retry   func(RetryRow) error
	Cone    func(ConeRow) error
	Live    func(LiveRunRow) error // by tenant and run
}

// EachQueueRow streams the queue rows of runs, of any tenant: a row that carries the wrong tenant
// shows too.
func (tx *Tx) EachQueueRow(ctx context.Context, keys []RunKey, each QueueRows) error {
	const ofRuns = " q WHERE q.run_id = ANY($1::uuid[]) ORDER BY q.run_id"
	runs := column(keys, RunKey.runID)
	return inOrder(
		streamWhole(ctx, tx, each.Waiting, "servo.waiting"+ofRuns+", q.task_id", runs),
		streamWhole(ctx, tx, each.Ready, "servo.ready_q"+ofRuns+", q.task_id", runs),
		streamWhole(ctx, tx, each.Queued, "servo.pool_q"+ofRuns+", q.task_id", runs),
		streamWhole(ctx, tx, each.Lease, "servo.leases"+ofRuns+", q.task_id", runs),
		streamWhole(ctx, tx, each.Retry, "servo.retry_q"+ofRuns+", q.task_id", runs),
		streamWhole(ctx, tx, each.Cone, "servo.cones"+ofRuns, runs),
		streamWhole(ctx, tx, each.Live, keyed("live_runs", "run_id"), column(keys, RunKey.tenantID), runs),
	)
}

// Orphans counts the rows without their run, of one tenant or of all.
func (tx *Tx) Orphans(ctx context.Context, tenant *id.Tenant, each func(OrphanRow) error) error {
	first, _ := bounds(tenant)
	return stream(ctx, tx, each, db.VerifyOrphans, tenant == nil, first)()
}

// Duplicates receives values that must be unique in the whole database and are not.
type Duplicates struct {
	Run        func(RunIDRow) error
	Position   func(PositionRow) error
	ClaimToken func(ClaimTokenRow) error
	LeaseToken func(LeaseTokenRow) error
}

// EachDuplicate streams the duplicates.
func (tx *Tx) EachDuplicate(ctx context.Context, each Duplicates) error {
	return inOrder(
		stream(ctx, tx, each.Run, db.VerifyRunIDs),
		stream(ctx, tx, each.Position, db.VerifyPositions),
		stream(ctx, tx, each.ClaimToken, db.VerifyClaimTokens),
		stream(ctx, tx, each.LeaseToken, db.VerifyLeaseTokens),
	)
}

// TenantsAfter reads tenants in the order of their ids, one or all.
func (tx *Tx) TenantsAfter(ctx context.Context, after id.Tenant, tenant *id.Tenant, most int) ([]TenantRow, error) {
	first, last := bounds(tenant)
	if tenant != nil && after.UUID == uuid.Nil {
		after.UUID = before(first)
	}
	return wholeRows[TenantRow](ctx, tx, "servo.tenants q WHERE q.id > $1 AND q.id <= $2 ORDER BY q.id LIMIT $3", after.UUID, last, most)
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

// EntityRows receives the events of entities and their rows.
type EntityRows struct {
	Event      func(EventRow) error
	Workspace  func(WorkspaceRow) error
	Deployment func(DeploymentRow) error
	AssetPause func(AssetPauseRow) error
	Config     func(ConfigRow) error
	External   func(ExternalEventRow) error
	Template   func(TemplateRow) error
	Alert      func(AlertRow) error
	Channel    func(ChannelRow) error
	Key        func(KeyRow) error

	Subscription func(SubscriptionRow) error
	Backfill     func(BackfillRow) error
	Chunk        func(BackfillChunkRow) error
}

// EachEntityEvent streams the events of these tenants, by subject and version.
func (tx *Tx) EachEntityEvent(ctx context.Context, tenants []id.Tenant, each func(EventRow) error) error {
	return stream(ctx, tx, each, db.VerifyEntityEvents, tenantIDs(tenants))()
}

// EachEntityRow streams the entities of these tenants: first the events, by subject and version,
// then the rows.
func (tx *Tx) EachEntityRow(ctx context.Context, tenants []id.Tenant, each EntityRows) error {
	const ofTenants = " q WHERE q.tenant_id = ANY($1::uuid[]) ORDER BY q.tenant_id"
	ids := tenantIDs(tenants)
	return inOrder(
		func() error { return tx.EachEntityEvent(ctx, tenants, each.Event) },
		streamWhole(ctx, tx, each.Workspace, "servo.workspaces"+ofTenants+", q.id", ids),
		streamWhole(ctx, tx, each.Deployment, "servo.deployments"+ofTenants+", q.id", ids),
		streamWhole(ctx, tx, each.AssetPause, "servo.asset_pauses"+ofTenants+", q.workspace_id, q.asset", ids),
		streamWhole(ctx, tx, each.Config, "servo.configs"+ofTenants+", q.id", ids),
		streamWhole(ctx, tx, each.External, "servo.event_inbox"+ofTenants+", q.id", ids),
		streamWhole(ctx, tx, each.Template, "servo.templates"+ofTenants+", q.id", ids),
		streamWhole(ctx, tx, each.Alert, "servo.alerts"+ofTenants+", q.id", ids),
		streamWhole(ctx, tx, each.Channel, "servo.alert_channels"+ofTenants+", q.id", ids),
		streamWhole(ctx, tx, each.Subscription, "servo.subscriptions"+ofTenants+", q.id", ids),
		streamWhole(ctx, tx, each.Key, "servo.api_keys"+ofTenants+", q.id", ids),
		streamWhole(ctx, tx, each.Backfill, "servo.backfills"+ofTenants+", q.id", ids),
		streamWhole(ctx, tx, each.Chunk, "servo.backfill_chunks"+ofTenants+", q.backfill_id, q.round, q.chunk", ids),
	)
}

// EntityOrphans counts the rows without their tenant.
func (tx *Tx) EntityOrphans(ctx context.Context, tenant *id.Tenant, each func(EntityOrphanRow) error) error {
	first, _ := bounds(tenant)
	return stream(ctx, tx, each, db.VerifyEntityOrphans, tenant == nil, first)()
}

// Ledger streams entries of the ledger of slots that contradict the runs or each other, of one
// tenant or of all.
func (tx *Tx) Ledger(ctx context.Context, tenant *id.Tenant, each func(LedgerRow) error) error {
	first, _ := bounds(tenant)
	return stream(ctx, tx, each, db.VerifyLedger, tenant == nil, first)()
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

// stream is a step that sends a query and passes its rows on one by one: verify reads more than
// fits into memory.
func stream[R any](ctx context.Context, tx *Tx, each func(R) error, query string, args ...any) func() error {
	return func() error {
		rows, err := tx.tx.Query(ctx, query, args...)
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
}

// streamWhole is stream for whole rows of the table that a FROM clause calls q.
func streamWhole[R any](ctx context.Context, tx *Tx, each func(R) error, from string, args ...any) func() error {
	return stream(ctx, tx, each, selectWhole[R](from), args...)
}

// wholeRows collects whole rows of the table that a FROM clause calls q.
func wholeRows[R any](ctx context.Context, tx *Tx, from string, args ...any) ([]R, error) {
	rows, err := tx.tx.Query(ctx, selectWhole[R](from), args...)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, pgx.RowToStructByPos[R])
}

// selectWhole selects the columns of a row type one by one: during an upgrade the table may have
// columns that this server does not know.
func selectWhole[R any](from string) string {
	row := reflect.TypeFor[R]()
	columns := make([]string, row.NumField())
	for i := range columns {
		columns[i] = "q." + row.Field(i).Tag.Get("db")
	}
	return "SELECT " + strings.Join(columns, ", ") + " FROM " + from
}
