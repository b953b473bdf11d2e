package store

import (
	"bytes"
	"context"
	"errors"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"go.arco.dev/servo/internal/id"
	"go.arco.dev/servo/internal/store/internal/db"
)

// The rows of the tables as they are, column by column, for verify alone: everybody else
// reads runs and tasks.
type (
	RunRow        = db.ServoRun
	TaskRow       = db.ServoTask
	EdgeRow       = db.ServoEdge
	WaitingRow    = db.ServoWaiting
	ReadyRow      = db.ServoReadyQ
	QueuedRow     = db.ServoPoolQ
	LeaseRow      = db.ServoLease
	RetryRow      = db.ServoRetryQ
	ConeRow       = db.ServoCone
	TenantRow     = db.ServoTenant
	WorkspaceRow  = db.ServoWorkspace
	DeploymentRow = db.ServoDeployment
	// EventRow is a recorded event of a run or of an entity.
	EventRow = db.VerifyEventsRow
	// OrphanRow counts the rows of one table that carry a run which does not exist.
	OrphanRow = db.VerifyOrphansRow
	// EntityOrphanRow counts the rows of one table that carry a tenant which does not exist.
	EntityOrphanRow = db.VerifyEntityOrphansRow
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

// EachEvent streams the events of runs, by run and position.
func (tx *Tx) EachEvent(ctx context.Context, keys []RunKey, each func(EventRow) error) error {
	return stream(ctx, tx, each, func(q *db.Queries) error {
		_, err := q.VerifyEvents(ctx, db.VerifyEventsParams{TenantIds: column(keys, RunKey.tenantID), Ids: column(keys, RunKey.runID)})
		return err
	})
}

// EachTask streams the task rows of runs.
func (tx *Tx) EachTask(ctx context.Context, keys []RunKey, each func(TaskRow) error) error {
	return stream(ctx, tx, each, func(q *db.Queries) error {
		_, err := q.VerifyTasks(ctx, db.VerifyTasksParams{TenantIds: column(keys, RunKey.tenantID), Ids: column(keys, RunKey.runID)})
		return err
	})
}

// EachEdge streams the edges of runs, by run, upstream and task.
func (tx *Tx) EachEdge(ctx context.Context, keys []RunKey, each func(EdgeRow) error) error {
	return stream(ctx, tx, each, func(q *db.Queries) error {
		_, err := q.VerifyEdges(ctx, db.VerifyEdgesParams{TenantIds: column(keys, RunKey.tenantID), Ids: column(keys, RunKey.runID)})
		return err
	})
}

// QueueRows take the rows of the queue tables, and of cones, as they come.
type QueueRows struct {
	Waiting func(WaitingRow) error
	Ready   func(ReadyRow) error
	Queued  func(QueuedRow) error
	Lease   func(LeaseRow) error
	Retry   func(RetryRow) error
	Cone    func(ConeRow) error
}

// EachQueueRow streams the queue rows of runs, whosever they are.
func (tx *Tx) EachQueueRow(ctx context.Context, keys []RunKey, each QueueRows) error {
	runs := column(keys, RunKey.runID)
	return errors.Join(
		stream(ctx, tx, each.Waiting, func(q *db.Queries) error { _, err := q.VerifyWaiting(ctx, runs); return err }),
		stream(ctx, tx, each.Ready, func(q *db.Queries) error { _, err := q.VerifyReady(ctx, runs); return err }),
		stream(ctx, tx, each.Queued, func(q *db.Queries) error { _, err := q.VerifyQueued(ctx, runs); return err }),
		stream(ctx, tx, each.Lease, func(q *db.Queries) error { _, err := q.VerifyLeases(ctx, runs); return err }),
		stream(ctx, tx, each.Retry, func(q *db.Queries) error { _, err := q.VerifyRetrying(ctx, runs); return err }),
		stream(ctx, tx, each.Cone, func(q *db.Queries) error { _, err := q.VerifyCones(ctx, runs); return err }),
	)
}

// Orphans counts the rows without their run, of one tenant or of all.
func (tx *Tx) Orphans(ctx context.Context, tenant *id.Tenant, each func(OrphanRow) error) error {
	first, _ := bounds(tenant)
	return stream(ctx, tx, each, func(q *db.Queries) error {
		_, err := q.VerifyOrphans(ctx, db.VerifyOrphansParams{Everybody: tenant == nil, TenantID: first})
		return err
	})
}

// Doubles finds what must be there once in the whole database and is there more often.
type Doubles struct {
	Run        func(db.VerifyRunIDsRow) error
	Position   func(db.VerifyPositionsRow) error
	ClaimToken func(db.VerifyClaimTokensRow) error
	LeaseToken func(LeaseTokenRow) error
}

// EachDouble streams them.
func (tx *Tx) EachDouble(ctx context.Context, each Doubles) error {
	return errors.Join(
		stream(ctx, tx, each.Run, func(q *db.Queries) error { _, err := q.VerifyRunIDs(ctx); return err }),
		stream(ctx, tx, each.Position, func(q *db.Queries) error { _, err := q.VerifyPositions(ctx); return err }),
		stream(ctx, tx, each.ClaimToken, func(q *db.Queries) error { _, err := q.VerifyClaimTokens(ctx); return err }),
		stream(ctx, tx, each.LeaseToken, func(q *db.Queries) error { _, err := q.VerifyLeaseTokens(ctx); return err }),
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
}

// EachEntityRow streams what belongs to these tenants: first the events, by subject and
// version, then the rows.
func (tx *Tx) EachEntityRow(ctx context.Context, tenants []id.Tenant, each EntityRows) error {
	ids := column(tenants, func(t id.Tenant) uuid.UUID { return t.UUID })
	return errors.Join(
		stream(ctx, tx, each.Event, func(q *db.Queries) error { _, err := q.VerifyEntityEvents(ctx, ids); return err }),
		stream(ctx, tx, each.Workspace, func(q *db.Queries) error { _, err := q.VerifyWorkspaces(ctx, ids); return err }),
		stream(ctx, tx, each.Deployment, func(q *db.Queries) error { _, err := q.VerifyDeployments(ctx, ids); return err }),
	)
}

// EntityOrphans counts the rows without their tenant.
func (tx *Tx) EntityOrphans(ctx context.Context, tenant *id.Tenant, each func(EntityOrphanRow) error) error {
	first, _ := bounds(tenant)
	return stream(ctx, tx, each, func(q *db.Queries) error {
		_, err := q.VerifyEntityOrphans(ctx, db.VerifyEntityOrphansParams{Everybody: tenant == nil, TenantID: first})
		return err
	})
}

// stream sends a query of sqlc's and hands out its rows one by one: sqlc's own methods
// collect them, and verify reads more than fits into memory.
func stream[R any](ctx context.Context, tx *Tx, each func(R) error, query func(q *db.Queries) error) error {
	var caught catcher
	if err := query(db.New(&caught)); !errors.Is(err, errCaught) {
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
