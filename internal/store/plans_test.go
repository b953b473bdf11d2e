package store_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"
	"github.com/stretchr/testify/require"
)

// probe is how many rows of each kind the statements are tried with: a batch.
const probe = 200

// maxBlocks is how many blocks a statement may touch for each row of the batch. A descent
// of an index takes three or four; what is past this reads far more than it was asked for.
const maxBlocks = 12

// wasteful statements read the whole run of each row and throw most of it away. They are
// for repeats alone, and an index for them would be one more for each event.
var wasteful = []string{"TaskEvents"}

// plans are the indexes that each hot statement uses, whatever the statistics say. A name
// stands for the index of each partition.
var plans = map[string][]string{
	"LockRunsForCount":  {"runs_pkey"},
	"LockRunsForMove":   {"runs_pkey"},
	"LockRunsForUpdate": {"runs_pkey"},
	"UpdateRuns":        {"runs_pkey"},
	"ExistingRuns":      {"runs_pkey"},

	"LockLeasesOnly":   {"leases_pkey"},
	"LockLeases":       {"heartbeats_pkey", "leases_pkey"},
	"LeasesOfClaims":   {"leases_claim", "runs_pkey", "tasks_pkey"},
	"Heartbeat":        {"leases_pkey"},
	"DueLeases":        {"leases_due"},
	"UpdateLeases":     {"leases_pkey"},
	"RescheduleLeases": {"leases_pkey"},
	"DeleteLeases":     {"leases_pkey"},

	"TakeReady":      {"ready_q_order"},
	"DeleteReady":    {"ready_q_pkey"},
	"TakeQueued":     {"pool_q_order", "runs_pkey", "tasks_pkey"},
	"DeleteQueued":   {"pool_q_pkey"},
	"DueRetries":     {"retry_q_due"},
	"LockRetries":    {"retry_q_pkey"},
	"DeleteRetrying": {"retry_q_pkey"},

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

	"EndTasks":   {"tasks_pkey"},
	"EndedTasks": {"tasks_pkey"},
	"TaskAssets": {"tasks_pkey"},
	"TaskEvents": {"run_events_stream"},
}

// TestPlans loads a database as a busy month leaves it, lets the store send each hot
// statement, and asks PostgreSQL how it has executed that very text with those very
// arguments: with statistics from when the tables were empty, and with fresh ones.
func TestPlans(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.Exec(t, `VACUUM ANALYZE`)
	w.load(t)
	statements := w.capture(t)
	for name := range plans {
		require.Contains(t, statements, name, "the statement was not sent")
	}
	for name := range statements {
		if !strings.HasPrefix(name, "Insert") {
			require.Contains(t, plans, name, "a statement without a plan to hold it to")
		}
	}

	for _, statistics := range []string{"from when the tables were empty", "of today"} { //nolint:paralleltest // one after the other
		if statistics == "of today" {
			w.Exec(t, `ANALYZE`)
		}
		t.Run("with statistics "+statistics, func(t *testing.T) {
			for _, name := range slices.Sorted(maps.Keys(plans)) {
				t.Run(name, func(t *testing.T) { w.requirePlan(t, name, statements[name]) })
			}
		})
	}
}

// statement is what the driver sent.
type statement struct {
	sql  string
	args []any
}

// requirePlan explains a statement as the engine executes it and holds it to its plan.
func (w *world) requirePlan(t *testing.T, name string, s statement) {
	t.Helper()
	w.undone(t, func(tx *Tx) {
		root := explain(t, tx.Raw(), s)
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
			require.LessOrEqual(t, (root.Hit+root.Read)/probe, maxBlocks, "blocks for each row")
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
	streamColumn = regexp.MustCompile(`^run_events_tenant_id_run_id_idx\d*$`)
)

// indexName is the name of an index without its month.
func indexName(index string) string {
	name := monthSuffix.ReplaceAllString(index, "")
	return streamColumn.ReplaceAllString(name, "run_events_stream")
}

// explain executes a statement with a generic plan and gives the plan as it was executed.
func explain(t testing.TB, tx pgx.Tx, s statement) *node {
	t.Helper()
	ctx, conn := t.Context(), tx.Conn()
	prepared, err := conn.Prepare(ctx, "explained", s.sql)
	require.NoError(t, err)
	literals := make([]string, len(s.args))
	for i, arg := range s.args {
		text, err := conn.TypeMap().Encode(prepared.ParamOIDs[i], pgtype.TextFormatCode, arg, nil)
		require.NoError(t, err)
		literals[i] = "'" + strings.ReplaceAll(string(text), "'", "''") + "'"
	}
	var text []byte
	explained := fmt.Sprintf(`EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) EXECUTE explained(%s)`, strings.Join(literals, ", "))
	require.NoError(t, tx.QueryRow(ctx, explained, pgx.QueryExecModeSimpleProtocol).Scan(&text))
	require.NoError(t, conn.Deallocate(ctx, "explained"))
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
	for _, session := range []string{"", "Clock", "EnterEngine", "EnterTenant"} {
		delete(seen, session)
	}
	return seen
}
