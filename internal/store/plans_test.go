package store_test

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgtype"
	"github.com/stretchr/testify/require"
	pgxuuid "github.com/vgarvardt/pgx-google-uuid/v5"

	"go.arco.dev/servo/internal/store/internal/db"
)

// probe is how many rows of each kind the statements are tried with: a batch.
const probe = 200

// maxBlocks is how many blocks a statement may touch for each row of the batch. A descent
// of an index takes three or four; what is past this reads far more than it was asked for.
const maxBlocks = 12

// writers write several rows for each row of the batch, with an index entry each.
var writers = map[string]int{"ChargeShares": 40, "FoldSettlements": 40, "UpdateLiveRuns": 24, "LookedLate": 24, "MergeRunDeltas": 24, "MoveConfigs": 24, "UpsertConfigs": 24, "WriteLogs": 24, "TrimLogs": 60, "WriteProgress": 40}

// wasteful statements read the whole run of each row and throw most of it away. They are
// for repeats and for runs that are late, and an index for them would be one more for each event.
var wasteful = []string{"TaskEvents", "BegunInTime"}

// plans are the indexes that each hot statement uses, for any statistics. A name
// stands for the index of each partition.
var plans = map[string][]string{
	"LockRunsForCount":  {"runs_pkey"},
	"LockRunsForMove":   {"runs_pkey"},
	"LockRunsForUpdate": {"runs_pkey"},
	"UpdateRuns":        {"runs_pkey"},
	"ExistingRuns":      {"runs_pkey"},

	"LockTenants":    {"tenants_pkey"},
	"TenantQuotas":   {"tenants_pkey"},
	"CountUsage":     {"live_runs_pkey", "live_runs_running", "ready_q_held", "ready_q_order", "runs_pkey"},
	"LockHolders":    {"live_runs_lock"},
	"LiveRuns":       {"live_runs_pkey"},
	"UpdateLiveRuns": {"live_runs_pkey"},
	"DeleteLiveRuns": {"live_runs_pkey"},
	"DueRuns":        {"live_runs_due", "runs_pkey"},
	"WaitingTenants": {"live_runs_pending"},
	"NextRuns":       {"live_runs_lock", "live_runs_pending", "live_runs_waits"},
	"Roots":          {"tasks_pkey", "waiting_pkey"},

	"LateRuns":       {"live_runs_late"},
	"BegunInTime":    {"run_event_rows_stream"},
	"LookedLate":     {"live_runs_pkey"},
	"MergeRunDeltas": {"run_deltas_pkey"},

	"LockDueConfigs":      {"configs_due", "configs_name", "slot_ranges_pkey", "workspaces_pkey"},
	"LockConfigs":         {"configs_name", "configs_pkey", "slot_ranges_pkey", "workspaces_pkey"},
	"LockFreeConfigs":     {"configs_name", "configs_pkey", "slot_ranges_pkey", "workspaces_pkey"},
	"ConfigIDs":           {"configs_name"},
	"Listeners":           {"configs_after", "configs_pkey"},
	"LiveOfConfigs":       {"live_runs_config"},
	"NextDue":             {"config_results_pkey", "configs_due", "event_inbox_pending"},
	"TakeEvents":          {"event_inbox_pending"},
	"EventListeners":      {"configs_event"},
	"UpdateEvents":        {"event_inbox_pkey"},
	"EventByKey":          {"event_inbox_key"},
	"CountEventListeners": {"configs_event"},
	"MoveConfigs":         {"configs_pkey"},
	"UpsertConfigs":       nil,
	"InsertSlots":         nil,
	"UpsertSlotRanges":    nil,
	"InsertConfigResults": nil,
	"TakeConfigResults":   {"config_results_pkey"},

	"LockLeasesOnly":   {"leases_pkey"},
	"LockLeases":       {"heartbeats_pkey", "leases_pkey"},
	"LeasesOfClaims":   {"leases_claim"},
	"Assignments":      {"runs_pkey", "tasks_pkey"},
	"ClaimsWithLeases": {"leases_claim"},
	"Heartbeat":        {"leases_pkey"},
	"PoolsOfLeases":    {"leases_pkey"},
	"DueLeases":        {"leases_due"},
	"UpdateLeases":     {"leases_pkey"},
	"RescheduleLeases": {"leases_pkey"},
	"DeleteLeases":     {"leases_pkey"},

	"TakeDuty":        {"duties_pkey", "duty_renewals_pkey"},
	"RenewDuty":       {"duty_renewals_pkey"},
	"AdmissionWork":   {"live_runs_pending", "ready_q_order", "settlements_pkey"},
	"Overdue":         {"cones_pkey", "leases_due", "live_runs_due", "live_runs_late", "partition_deltas_pkey", "retry_q_due", "run_deltas_pkey"},
	"FoldSettlements": {"pool_clocks_pkey", "settlements_pkey", "shares_order", "shares_pkey", "tenants_pkey"},
	"ReadyPools":      {"pool_clocks_pkey", "pool_q_order", "pools_pkey", "shares_in_flight", "shares_order", "workers_pkey"},
	"HeadShares":      {"asset_pauses_pkey", "pools_pkey", "shares_order", "shares_pkey", "tenants_pkey"},
	"ChargeShares":    {"ready_q_order"},
	"SetPoolClocks":   nil,
	"HoldHandoff":     {"duties_pkey"},
	"HandoffShares":   {"asset_pauses_pkey", "pool_clocks_pkey", "pool_q_order", "pools_pkey", "ready_q_order", "shares_in_flight", "shares_pkey", "switches_pkey", "tenants_pkey", "workers_pkey"},
	"HandoffTasks":    {"durations_pkey"},
	"TryAdmission":    {"duties_pkey", "shares_order", "switches_pkey"},
	"TakeReady":       {"durations_pkey", "ready_q_order"},
	"TakeOldest":      {"durations_pkey", "ready_q_order"},
	"DeleteReady":     {"ready_q_pkey"},
	"TakeQueued":      {"pool_q_order", "pools_pkey", "switches_pkey"},
	"DeleteQueued":    {"pool_q_pkey"},
	"PoolAccess":      {"pools_pkey"},
	"DueRetries":      {"retry_q_due"},
	"LockRetries":     {"retry_q_pkey"},
	"DeleteRetrying":  {"retry_q_pkey"},

	"QueuedWithoutAccess":     {"pool_q_order", "pools_pkey"},
	"LockQueuedWithoutAccess": {"pool_q_pkey", "pools_pkey"},

	"CapabilitySets":      {"capability_sets_pkey"},
	"HoldLacking":         {"ready_q_order", "ready_q_pkey"},
	"CapableTasks":        {"ready_q_lacks_worker"},
	"ReleaseReady":        {"ready_q_pkey"},
	"QueuedWithoutWorker": {"workers_pkey"},
	"LockQueued":          {"pool_q_pkey"},
	"WaitForDuty":         {"duties_pkey"},

	"UpstreamResults": {"tasks_pkey"},
	"WriteLogs":       {"attempt_logs_pkey", "leases_pkey"},
	"WriteProgress":   {"attempt_progress_pkey", "attempt_stages_pkey", "heartbeats_pkey", "leases_pkey"},
	"TrimLogs":        {"attempt_logs_pkey", "task_logs_pkey"},

	"Dependents":    {"edges_pkey", "waiting_pkey"},
	"Cone":          {"edges_pkey", "waiting_pkey"},
	"Doomed":        {"edges_pkey", "tasks_pkey", "waiting_pkey"},
	"UpdateWaiting": {"waiting_pkey"},
	"DeleteWaiting": {"waiting_pkey"},
	"PendingCones":  {"cones_pkey"},

	"SweepWaiting":  {"waiting_pkey"},
	"SweepReady":    {"ready_q_pkey"},
	"SweepQueued":   {"pool_q_pkey"},
	"SweepLeases":   {"leases_pkey"},
	"SweepRetrying": {"retry_q_pkey"},

	"AnsweredCall": {"answered_calls_pkey"},

	"EndTasks":   {"tasks_pkey"},
	"EndedTasks": {"tasks_pkey"},
	"TaskAssets": {"tasks_pkey"},
	"TaskEvents": {"run_event_rows_stream"},
}

// TestPlans loads a database as a busy month leaves it, lets the store send each hot
// statement, and asks PostgreSQL how it executes that very text with those very arguments.
// A connection plans a statement once and keeps the plan for hours, so the moment matters:
// the plan must be the same from a new database, from queues that were vacuumed when they
// were empty, and with statistics of any age.
func TestPlans(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	first := w.connection(t)
	planAll(t, first)
	w.load(t, 20_000)
	w.crowd(t)
	hot := w.capture(t)
	for name := range plans {
		require.Contains(t, hot, name, "the statement was not sent")
	}
	for name := range hot {
		if !strings.HasPrefix(name, "Insert") {
			require.Contains(t, plans, name, "a statement without a plan to hold it to")
		}
	}
	phase := func(name string, conn *pgx.Conn) {
		t.Run(name, func(t *testing.T) {
			for _, name := range slices.Sorted(maps.Keys(plans)) {
				t.Run(name, func(t *testing.T) { requirePlan(t, conn, name, hot[name]) })
			}
		})
	}
	phase("planned when the database was new", first)

	w.empty(t)
	idle := w.connection(t)
	planAll(t, idle)
	w.refill(t)
	phase("planned when the queues were empty", idle)
	phase("with statistics from when the queues were empty", w.connection(t))
	w.Exec(t, `ANALYZE`)
	phase("with statistics of today", w.connection(t))
}

var queues = []string{
	"waiting", "ready_q", "pool_q", "leases", "retry_q", "heartbeats", "cones", "live_runs", "configs", "slots", "slot_ranges", "config_results", "event_inbox",
	"run_deltas", "shares", "settlements",
}

// empty vacuums and analyzes the database while its queues are empty.
func (w *world) empty(t testing.TB) {
	t.Helper()
	w.Exec(t, `CREATE SCHEMA kept`)
	for _, queue := range queues {
		w.Exec(t, `CREATE TABLE kept.`+queue+` AS TABLE servo.`+queue+`; TRUNCATE servo.`+queue)
	}
	w.Exec(t, `VACUUM ANALYZE`)
}

// refill puts back what empty has taken away, but for the columns that follow from others.
func (w *world) refill(t testing.TB) {
	t.Helper()
	for _, queue := range queues {
		var columns string
		require.NoError(t, w.Pool().QueryRow(t.Context(), `SELECT string_agg(column_name, ', ' ORDER BY ordinal_position) FROM information_schema.columns
			WHERE table_schema = 'servo' AND table_name = $1 AND is_generated = 'NEVER'`, queue).Scan(&columns))
		w.Exec(t, `INSERT INTO servo.`+queue+` (`+columns+`) OVERRIDING SYSTEM VALUE SELECT `+columns+` FROM kept.`+queue)
	}
}

// planAll makes a connection plan every hot statement.
func planAll(t testing.TB, conn *pgx.Conn) {
	t.Helper()
	asEngine(t, conn, func(tx pgx.Tx) {
		for name := range plans {
			prepared, err := conn.Prepare(t.Context(), name, sqlOf(name))
			require.NoError(t, err)
			nulls := strings.TrimSuffix(strings.Repeat("NULL, ", len(prepared.ParamOIDs)), ", ")
			_, err = tx.Exec(t.Context(), fmt.Sprintf(`EXPLAIN EXECUTE %q%s`, name, arguments(nulls)), pgx.QueryExecModeSimpleProtocol)
			require.NoError(t, err)
		}
	})
}

// arguments is a list in parentheses; a statement without any has none of these either.
func arguments(list string) string {
	if list == "" {
		return ""
	}
	return "(" + list + ")"
}

// sqlOf is the text that sqlc's method sends.
func sqlOf(query string) string {
	var caught catcher
	method := reflect.ValueOf(db.New(&caught)).MethodByName(query)
	args := []reflect.Value{reflect.ValueOf(context.Background())}
	for i := 1; i < method.Type().NumIn(); i++ {
		args = append(args, reflect.Zero(method.Type().In(i)))
	}
	method.Call(args)
	return caught.sql
}

// catcher replaces a connection and keeps what it is sent.
type catcher struct{ sql string }

var errCaught = errors.New("caught")

func (c *catcher) Exec(_ context.Context, sql string, _ ...any) (pgconn.CommandTag, error) {
	c.sql = sql
	return pgconn.CommandTag{}, errCaught
}

func (c *catcher) Query(_ context.Context, sql string, _ ...any) (pgx.Rows, error) {
	c.sql = sql
	return nil, errCaught
}

func (c *catcher) QueryRow(_ context.Context, sql string, _ ...any) pgx.Row {
	c.sql = sql
	return c
}

func (c *catcher) Scan(...any) error { return errCaught }

// connection is one that remembers its plans until the test ends.
func (w *world) connection(t testing.TB) *pgx.Conn {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), w.URL)
	require.NoError(t, err)
	pgxuuid.Register(conn.TypeMap())
	t.Cleanup(func() { _ = conn.Close(context.Background()) }) // the test's context is over by then
	return conn
}

// asEngine runs fn as the engine would, and rolls back.
func asEngine(t testing.TB, conn *pgx.Conn, fn func(tx pgx.Tx)) {
	t.Helper()
	tx, err := conn.Begin(t.Context())
	require.NoError(t, err)
	defer func() { _ = tx.Rollback(t.Context()) }()
	require.NoError(t, db.New(tx).EnterEngine(t.Context()))
	fn(tx)
}

// statement is what the driver sent.
type statement struct {
	sql  string
	args []any
}

// requirePlan explains a statement as the engine executes it and holds it to its plan.
func requirePlan(t *testing.T, conn *pgx.Conn, name string, s statement) {
	t.Helper()
	asEngine(t, conn, func(tx pgx.Tx) {
		root := explain(t, tx, name, s)
		used, months, removed := map[string]bool{}, map[string]bool{}, 0.0
		root.walk(func(n *node) {
			require.NotEqual(t, "Seq Scan", n.NodeType, "on %s", n.Relation)
			require.NotContains(t, []string{"Hash Join", "Merge Join"}, n.NodeType)
			if n.Loops == 0 {
				return // a partition that was pruned when the keys were known
			}
			removed += n.Loops * (n.RemovedByFilter + n.RemovedByJoin)
			if n.Index != "" {
				used[indexName(n.Index)] = true
			}
			if month := monthSuffix.FindString(n.Relation); month != "" {
				months[month] = true
			}
		})
		require.Equal(t, plans[name], slices.Sorted(maps.Keys(used)))
		require.LessOrEqual(t, len(months), 1, "all rows are of one month: %v", months)
		if !slices.Contains(wasteful, name) {
			require.LessOrEqual(t, (root.Hit+root.Read)/probe, cmp.Or(writers[name], maxBlocks), "blocks for each row")
			require.LessOrEqual(t, int(removed), probe, "rows that were read for nothing: an index condition is missing")
		}
		t.Logf("%5d blocks for a batch of %d, %.1f ms", root.Hit+root.Read, probe, root.Time)
	})
}

// node is one step of a plan, as far as it is judged here.
type node struct {
	NodeType string  `json:"Node Type"`
	Relation string  `json:"Relation Name"`
	Index    string  `json:"Index Name"`
	Loops    float64 `json:"Actual Loops"`
	Time     float64 `json:"Actual Total Time"`
	Hit      int     `json:"Shared Hit Blocks"`
	Read     int     `json:"Shared Read Blocks"`
	Plans    []*node `json:"Plans"`

	RemovedByFilter float64 `json:"Rows Removed by Filter"`
	RemovedByJoin   float64 `json:"Rows Removed by Join Filter"`
}

func (n *node) walk(visit func(*node)) {
	visit(n)
	for _, child := range n.Plans {
		child.walk(visit)
	}
}

var (
	monthSuffix  = regexp.MustCompile(`_\d{4}_\d\d`)
	streamColumn = regexp.MustCompile(`^run_event_rows_tenant_id_run_id_idx\d*$`)
)

// indexName is the name of an index without its month.
func indexName(index string) string {
	name := monthSuffix.ReplaceAllString(index, "")
	return streamColumn.ReplaceAllString(name, "run_event_rows_stream")
}

// explain executes a statement, prepared under its name, and gives its plan as it was
// executed.
func explain(t testing.TB, tx pgx.Tx, name string, s statement) *node {
	t.Helper()
	ctx, conn := t.Context(), tx.Conn()
	prepared, err := conn.Prepare(ctx, name, s.sql)
	require.NoError(t, err)
	literals := make([]string, len(s.args))
	for i, arg := range s.args {
		text, err := conn.TypeMap().Encode(prepared.ParamOIDs[i], pgtype.TextFormatCode, arg, nil)
		require.NoError(t, err)
		literals[i] = "'" + strings.ReplaceAll(string(text), "'", "''") + "'"
	}
	var text []byte
	explained := fmt.Sprintf(`EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) EXECUTE %q%s`, name, arguments(strings.Join(literals, ", ")))
	require.NoError(t, tx.QueryRow(ctx, explained, pgx.QueryExecModeSimpleProtocol).Scan(&text))
	var plan []struct{ Plan *node }
	require.NoError(t, json.Unmarshal(text, &plan))
	return plan[0].Plan
}

// capture lets the store send its statements and keeps those that plans name.
func (w *world) capture(t *testing.T) map[string]statement {
	t.Helper()
	var mu sync.Mutex
	seen := map[string]statement{}
	require.NoError(t, w.Trace(t.Context(), func(sql string, args []any) {
		record(sql, args)
		mu.Lock()
		defer mu.Unlock()
		seen[queryName(sql)] = statement{sql, args}
	}))
	w.sendReads(t)
	w.sendWrites(t)
	mu.Lock()
	defer mu.Unlock()
	hot := maps.Clone(seen)
	for _, session := range []string{"", "Clock", "EnterEngine", "TakeFiringSeat"} {
		delete(hot, session)
	}
	return hot
}
