package verify

import (
	"fmt"
	"slices"

	"github.com/google/uuid"

	"go.arco.dev/servo/internal/base/id"
	"go.arco.dev/servo/internal/domain/run"
	"go.arco.dev/servo/internal/store"
)

// tables holds the columns of each table.
type tables struct {
	runs        columns[store.RunRow]
	live        columns[store.LiveRunRow]
	tasks       columns[store.TaskRow]
	waiting     columns[store.WaitingRow]
	ready       columns[store.ReadyRow]
	pool        columns[store.QueuedRow]
	leases      columns[store.LeaseRow]
	retry       columns[store.RetryRow]
	outputs     columns[store.MaterializationRow]
	tenants     columns[store.TenantRow]
	workspaces  columns[store.WorkspaceRow]
	deployments columns[store.DeploymentRow]
	pauses      columns[store.AssetPauseRow]
	configs     columns[store.ConfigRow]
	events      columns[store.ExternalEventRow]
	templates   columns[store.TemplateRow]
	alerts      columns[store.AlertRow]
	channels    columns[store.ChannelRow]
	keys        columns[store.KeyRow]

	subscriptions columns[store.SubscriptionRow]
	backfills     columns[store.BackfillRow]
	chunks        columns[store.BackfillChunkRow]
}

func newTables() *tables {
	return &tables{
		runs: columnsOf[store.RunRow]("runs"), live: columnsOf[store.LiveRunRow]("live_runs"),
		tasks:   columnsOf[store.TaskRow]("tasks"),
		waiting: columnsOf[store.WaitingRow]("waiting"), ready: columnsOf[store.ReadyRow]("ready_q"),
		pool: columnsOf[store.QueuedRow]("pool_q"), leases: columnsOf[store.LeaseRow]("leases"),
		outputs: columnsOf[store.MaterializationRow]("materializations"),
		retry:   columnsOf[store.RetryRow]("retry_q"), tenants: columnsOf[store.TenantRow]("tenants"),
		workspaces: columnsOf[store.WorkspaceRow]("workspaces"), deployments: columnsOf[store.DeploymentRow]("deployments"),
		pauses: columnsOf[store.AssetPauseRow]("asset_pauses"), configs: columnsOf[store.ConfigRow]("configs"),
		events: columnsOf[store.ExternalEventRow]("event_inbox"), templates: columnsOf[store.TemplateRow]("templates"),
		alerts: columnsOf[store.AlertRow]("alerts"), channels: columnsOf[store.ChannelRow]("alert_channels"),
		subscriptions: columnsOf[store.SubscriptionRow]("subscriptions"),
		keys:          columnsOf[store.KeyRow]("api_keys"),
		backfills:     columnsOf[store.BackfillRow]("backfills"), chunks: columnsOf[store.BackfillChunkRow]("backfill_chunks"),
	}
}

// check compares the rows of one run with its history. It reports wrong rows and collects in fix
// the changes that repair them.
type check struct {
	*history

	tables      *tables
	row         *store.RunRow     // nil if there is none
	unexplained []*task           // tasks that have rows but no events
	live        *store.LiveRunRow // nil if there is none
	cone        bool
	edge        int // how many of the history's edges were compared
	fix         store.RunRepair
}

func newCheck(key store.RunKey, row *store.RunRow, t *tables, l limits, report func(Divergence)) *check {
	return &check{history: newHistory(key, l, report), tables: t, row: row}
}

func (c *check) diverges(kind Kind, table, column string, subject uuid.UUID, want, got string) {
	c.report(Divergence{Kind: kind, Table: table, Column: column, Tenant: c.key.Tenant, Run: c.key.Run, Subject: subject, Want: want, Got: got})
}

// compare adds the columns that differ to the report, and returns whether any does.
func compare[R any](c *check, columns columns[R], subject uuid.UUID, want, got *R) bool {
	differences := columns.diff(want, got)
	for _, d := range differences {
		kind := Differs
		if d.column == "tenant_id" {
			kind = ForeignTenant
		}
		c.diverges(kind, columns.table, d.column, subject, d.want, d.got)
	}
	return len(differences) > 0
}

// meet returns the task of a row, and adds one if no event explains it.
func (c *check) meet(u uuid.UUID) *task {
	key := id.Of[id.Task](u)
	t := c.tasks[key]
	if t == nil {
		t = &task{Task: run.Task{Tenant: c.key.Tenant, Run: c.key.Run, ID: key}, unexplained: true}
		c.tasks[key] = t
		c.unexplained = append(c.unexplained, t)
	}
	return t
}

// unknown reports whether a task's rows cannot be compared: its stream, or the run's, cannot be
// folded.
func (c *check) unknown(t *task) bool { return c.broken || t.broken }

func (c *check) taskRow(got store.TaskRow) {
	t := c.meet(got.ID)
	t.hasRow, t.ended = true, got.State != nil
	if c.unknown(t) {
		return
	}
	key := store.TaskKey{Tenant: id.Of[id.Tenant](got.TenantID), Run: id.Of[id.Run](got.RunID), Task: id.Of[id.Task](got.ID)}
	if t.unexplained {
		c.diverges(Surplus, "tasks", "", got.ID, "", "a row that no event explains")
		c.fix.DropTasks = append(c.fix.DropTasks, key)
		return
	}
	if want := wantTask(t); compare(c, c.tables.tasks, got.ID, &want, &got) {
		c.fix.DropTasks = append(c.fix.DropTasks, key)
		c.fix.NewTasks = append(c.fix.NewTasks, want)
	}
}

// edgeRow compares an edge with the next edges of the history: both are in the same order.
func (c *check) edgeRow(row store.EdgeRow) {
	if c.broken {
		return
	}
	got := edge{row.UpstreamID, row.TaskID}
	for c.edge < len(c.edges) && compareEdges(c.edges[c.edge], got) < 0 {
		c.missingEdge()
	}
	if c.edge < len(c.edges) && c.edges[c.edge] == got {
		c.edge++
		return
	}
	c.diverges(Surplus, "edges", "", got.task, "", "waits for "+got.upstream.String())
	c.fix.DropEdges = append(c.fix.DropEdges, c.edgeOf(got))
}

func (c *check) missingEdge() {
	e := c.edges[c.edge]
	c.edge++
	c.diverges(Missing, "edges", "", e.task, "waits for "+e.upstream.String(), "")
	c.fix.NewEdges = append(c.fix.NewEdges, c.edgeOf(e))
}

func (c *check) edgeOf(e edge) store.Edge {
	return store.Edge{Key: c.key, Upstream: id.Of[id.Task](e.upstream), Task: id.Of[id.Task](e.task)}
}

// queueRow records a row in a queue table and compares it if the task belongs there.
func queueRow[R any](c *check, at place, columns columns[R], subject uuid.UUID, got R, want func(*task) R) {
	t := c.meet(subject)
	t.places |= at
	if c.unknown(t) {
		return
	}
	drop := t.Task
	drop.State = at.stateIn()
	if t.unexplained || placeOf(t.State) != at {
		state := "a task that no event has created"
		if !t.unexplained {
			state = t.State.String() + " by its events"
		}
		c.diverges(Surplus, at.String(), "", subject, "", "a row of "+state)
		c.fix.DropQueue = append(c.fix.DropQueue, drop)
		return
	}
	if wanted := want(t); compare(c, columns, subject, &wanted, &got) {
		c.fix.DropQueue = append(c.fix.DropQueue, drop)
		c.fix.NewQueue = append(c.fix.NewQueue, t.Task)
	}
}

func (c *check) waitingRow(got store.WaitingRow) {
	queueRow(c, inWaiting, c.tables.waiting, got.TaskID, got, func(t *task) store.WaitingRow {
		want := wantWaiting(t)
		if c.brokenTasks { // an upstream may be the one that cannot be folded
			want.Unmet = got.Unmet
		}
		return want
	})
}

func (c *check) readyRow(got store.ReadyRow) {
	queueRow(c, inReady, c.tables.ready, got.TaskID, got, func(t *task) store.ReadyRow {
		want := wantReady(t)
		want.Divided = c.run.Divided
		return want
	})
}

func (c *check) poolRow(got store.QueuedRow) {
	queueRow(c, inPool, c.tables.pool, got.TaskID, got, wantQueued)
}

func (c *check) leaseRow(got store.LeaseRow) {
	queueRow(c, inLeases, c.tables.leases, got.TaskID, got, wantLease)
	if got.Token > c.limits.token {
		c.diverges(Invariant, "leases", "token", got.TaskID, fmt.Sprintf("at most %d, the last that was allocated", c.limits.token), fmt.Sprint(got.Token))
	}
}

func (c *check) retryRow(got store.RetryRow) {
	queueRow(c, inRetry, c.tables.retry, got.TaskID, got, wantRetry)
}

func (c *check) coneRow(got store.ConeRow) {
	if got.TenantID == c.key.Tenant.UUID {
		c.cone = true
		return
	}
	c.diverges(ForeignTenant, "cones", "tenant_id", got.RunID, c.key.Tenant.String(), got.TenantID.String())
	c.fix.DropCone = &c.key
}

func (c *check) liveRow(got store.LiveRunRow) { c.live = &got }

// concludeLive checks that a run has a row in live_runs exactly until it ends.
func (c *check) concludeLive() {
	wanted := c.run.Version > 0 && !c.run.State.Terminal()
	switch {
	case c.broken || !wanted && c.live == nil:
		return
	case !wanted:
		c.diverges(Surplus, "live_runs", "", c.key.Run.UUID, "", "a row of a run that has ended, or that no event has created")
		c.fix.DropLive = &c.key
		return
	case c.live == nil:
		c.diverges(Missing, "live_runs", "", c.key.Run.UUID, "a row of a run that is "+c.run.State.String(), "")
	default:
		want := wantLive(c.run)
		if !compare(c, c.tables.live, c.key.Run.UUID, &want, c.live) {
			return
		}
	}
	c.fix.DropLive, c.fix.NewLive = &c.key, &c.run
}

// conclude reports rows that are missing, and checks the run as a whole.
func (c *check) conclude() {
	c.invariants()
	c.concludeLive()
	switch {
	case c.broken:
		return
	case c.run.Version == 0:
		if c.row != nil {
			c.diverges(Surplus, "runs", "", c.key.Run.UUID, "", "a run without events")
		} else if c.cone {
			c.fix.DropCone = &c.key
		}
		return
	}
	for c.edge < len(c.edges) {
		c.missingEdge()
	}
	doomed := false
	for _, t := range c.order {
		if t.broken {
			continue
		}
		if !t.hasRow {
			c.diverges(Missing, "tasks", "", t.ID.UUID, "a row of a task that is "+t.State.String(), "")
			c.fix.NewTasks = append(c.fix.NewTasks, wantTask(t))
		}
		if at := placeOf(t.State); t.places&at != at {
			c.diverges(Missing, at.String(), "", t.ID.UUID, "a row of a task that is "+t.State.String(), "")
			c.fix.NewQueue = append(c.fix.NewQueue, t.Task)
		}
		doomed = doomed || t.doomed()
	}
	if doomed && !c.cone {
		c.diverges(Missing, "cones", "", c.key.Run.UUID, "a row: tasks wait for an upstream that cannot succeed", "")
		c.fix.NewCone = &c.key
	}
	c.missingOutputs()
	c.runRow()
}

func (c *check) runRow() {
	want := wantRun(c.run)
	if c.row == nil {
		c.diverges(Missing, "runs", "", c.key.Run.UUID, "a row of a run that is "+c.run.State.String(), "")
		c.fix.Run = &c.run
		return
	}
	if c.brokenTasks { // the counters are unknown
		want.Remaining, want.Succeeded, want.Failed = c.row.Remaining, c.row.Succeeded, c.row.Failed
		want.Skipped, want.Cancelled = c.row.Skipped, c.row.Cancelled
	}
	if compare(c, c.tables.runs, c.key.Run.UUID, &want, c.row) {
		c.fix.Run = &c.run
	}
}

// invariants checks the rows alone: invariants hold even when the events cannot be read.
func (c *check) invariants() {
	cancelling := false
	if r := c.row; r != nil {
		cancelling = run.State(r.State) == run.RunCancelling
		over := run.State(r.State).Terminal()
		if sum := r.Remaining + r.Succeeded + r.Failed + r.Skipped + r.Cancelled; sum != r.Total {
			c.diverges(Invariant, "runs", "total", r.ID, fmt.Sprintf("%d, the sum of the counters", sum), fmt.Sprint(r.Total))
		}
		if over != (r.Remaining == 0) {
			c.diverges(Invariant, "runs", "remaining", r.ID, "0 exactly when the run has ended", fmt.Sprintf("%d when it is %s", r.Remaining, run.State(r.State)))
		}
		if over != (r.FinishedAt != nil) {
			c.diverges(Invariant, "runs", "finished_at", r.ID, "a time exactly when the run has ended", fmt.Sprintf("the opposite when it is %s", run.State(r.State)))
		}
	}
	for _, t := range slices.Concat(c.order, c.unexplained) {
		c.placement(t)
		if held := t.places &^ inLeases; cancelling && held != 0 {
			c.diverges(Invariant, held.String(), "", t.ID.UUID, "no row while the run is CANCELLING", "a row")
		}
	}
}

// placement checks that a live task is in exactly one queue table, and an ended task in none.
func (c *check) placement(t *task) {
	places := t.places.each()
	switch {
	case !t.hasRow && len(places) > 0:
		c.diverges(Invariant, t.places.String(), "task_id", t.ID.UUID, "a task", "a row without one in tasks")
	case t.hasRow && t.ended && len(places) > 0:
		c.diverges(Invariant, t.places.String(), "", t.ID.UUID, "no row: the task has ended", "a row")
	case t.hasRow && !t.ended && len(places) != 1:
		c.diverges(Invariant, "tasks", "state", t.ID.UUID, "a live task in exactly one queue table", "in "+orNothing(t.places.String()))
	}
}
