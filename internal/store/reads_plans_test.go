package store_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"go.arco.dev/servo/internal/base/id"
	"go.arco.dev/servo/internal/domain/run"
	"go.arco.dev/servo/internal/store"
	"go.arco.dev/servo/internal/store/internal/db"
)

// page is how many rows the reads are asked for.
const page = 20

// readPlan is what a read may do: the indexes that it walks, and how many blocks it touches.
type readPlan struct {
	indexes string // separated by spaces
	blocks  int
	send    func(t testing.TB, w *world, key store.TaskKey) // a task of a live run
}

// everywhere are the indexes that lead to a task, whatever its state, and what is read besides
// of one that is leased.
const (
	whileLeased = "attempt_progress_pkey durations_pkey "
	everywhere  = "heartbeats_pkey leases_pkey pool_q_pkey ready_q_pkey retry_q_pkey tasks_pkey waiting_pkey"
)

var queueIndexes = []string{"leases_pkey", "pool_q_pkey", "ready_q_pkey", "retry_q_pkey", "waiting_pkey"}

// readPlans hold the reads of a tenant to the keys. What is listed for a run of 3,000 tasks
// may read these, but asks the queues for a page of them.
var readPlans = map[string]readPlan{
	"runs, the newest": {"runs_pkey", 8 * page, func(t testing.TB, w *world, key store.TaskKey) {
		t.Helper()
		require.Len(t, listed(t, w, key, store.RunFilter{}), page)
	}},
	"runs of a pipeline in a time": {"runs_pkey", 8 * page, func(t testing.TB, w *world, key store.TaskKey) {
		t.Helper()
		f := store.RunFilter{Pipeline: "daily", States: []run.State{run.RunRunning, run.RunSucceeded}, From: w.now, To: w.now.Add(2 * time.Millisecond)}
		require.Len(t, listed(t, w, key, f), page)
	}},
	"runs that have not ended": {"live_runs_pkey runs_pkey", 30 * page, func(t testing.TB, w *world, key store.TaskKey) {
		t.Helper()
		require.Len(t, listed(t, w, key, store.RunFilter{States: []run.State{run.RunPending, run.RunRunning}}), page)
	}},
	"runs in states that none is in": {"runs_tenant_id_unsuccessful_id_idx", 20, func(t testing.TB, w *world, key store.TaskKey) {
		t.Helper()
		require.Empty(t, listed(t, w, key, store.RunFilter{States: []run.State{run.RunFailed, run.RunTimedOut}}))
	}},
	"runs in states of a pipeline that has none": {"runs_tenant_id_unsuccessful_id_idx", 20, func(t testing.TB, w *world, key store.TaskKey) {
		t.Helper()
		require.Empty(t, listed(t, w, key, store.RunFilter{Pipeline: "none", States: []run.State{run.RunFailed}}))
	}},
	"how far runs in states are tried": {"live_runs_pkey runs_tenant_id_unsuccessful_id_idx", 2 * page, func(t testing.TB, w *world, key store.TaskKey) {
		t.Helper()
		require.Empty(t, listed(t, w, key, store.RunFilter{Pipeline: "none", States: []run.State{run.RunFailed, run.RunCancelling}}))
	}},
	"retries of a run": {"runs_tenant_id_parent_run_id_id_idx", 20, func(t testing.TB, w *world, key store.TaskKey) {
		t.Helper()
		require.Empty(t, listed(t, w, key, store.RunFilter{Parent: &key.Run}))
	}},
	"how far a filter of runs is tried": {"runs_pkey", 2 * page, func(t testing.TB, w *world, key store.TaskKey) {
		t.Helper()
		require.Empty(t, listed(t, w, key, store.RunFilter{Pipeline: "none", From: w.now, To: w.now.Add(2 * time.Millisecond)}))
	}},
	"how far a filter of a config's runs is tried": {"runs_tenant_id_config_id_id_idx", 20, func(t testing.TB, w *world, key store.TaskKey) {
		t.Helper()
		none := id.New[id.Config](w.mint)
		require.Empty(t, listed(t, w, key, store.RunFilter{Config: &none, Pipeline: "none", From: w.now, To: w.now.Add(2 * time.Millisecond)}))
	}},
	"a run": {"runs_pkey", 10, func(t testing.TB, w *world, key store.TaskKey) {
		t.Helper()
		must(w.GetRun(t.Context(), store.RunKey{Tenant: key.Tenant, Run: key.Run}))(t)
	}},
	"a task": {whileLeased + everywhere, 50, func(t testing.TB, w *world, key store.TaskKey) {
		t.Helper()
		require.Equal(t, run.Running, must(w.GetTask(t.Context(), key))(t).State)
	}},
	"the stages of a task": {"attempt_stages_pkey", 20, func(t testing.TB, w *world, key store.TaskKey) {
		t.Helper()
		require.Len(t, must(w.AttemptProgress(t.Context(), key))(t), 1)
	}},
	"tasks in the order of the plan": {
		everywhere, 50 * page,
		func(t testing.TB, w *world, key store.TaskKey) {
			t.Helper()
			require.Len(t, must(w.ListTasks(t.Context(), store.RunKey{Tenant: key.Tenant, Run: key.Run}, store.TaskFilter{}, store.BeforeFirst, page))(t), page)
		},
	},
	"tasks of a large run": {
		everywhere, 5_000,
		func(t testing.TB, w *world, _ store.TaskKey) {
			t.Helper()
			var wide store.RunKey
			w.engine(t, func(tx *Tx) { wide = w.wide(t, tx) })
			require.Len(t, must(w.ListTasks(t.Context(), wide, store.TaskFilter{}, store.BeforeFirst, page))(t), page)
		},
	},
	"tasks in a state": {
		whileLeased + everywhere, 50 * page,
		func(t testing.TB, w *world, key store.TaskKey) {
			t.Helper()
			f := store.TaskFilter{States: []run.TaskState{run.Running}}
			require.Len(t, must(w.ListTasks(t.Context(), store.RunKey{Tenant: key.Tenant, Run: key.Run}, f, store.BeforeFirst, page))(t), 5)
		},
	},
	"whom a task waits for": {
		"edges_pkey leases_pkey pool_q_pkey ready_q_pkey retry_q_pkey tasks_pkey waiting_pkey", 10 * page,
		func(t testing.TB, w *world, key store.TaskKey) {
			t.Helper()
			var waiting uuid.UUID
			w.engine(t, func(tx *Tx) {
				require.NoError(t, tx.Raw().QueryRow(t.Context(), `SELECT task_id FROM servo.edges WHERE tenant_id = $1 AND run_id = $2 LIMIT 1`,
					key.Tenant.UUID, key.Run.UUID).Scan(&waiting))
			})
			key.Task = id.Of[id.Task](waiting)
			require.Len(t, must(w.UpstreamTasks(t.Context(), key, store.BeforeFirst, page))(t), 1)
		},
	},
	"edges of a graph": {"edges_pkey", 20, graphOf},
	"tasks of a graph": {"tasks_pkey", 50, graphOf},
	"what is live of a graph": {
		"attempt_progress_pkey leases_pkey pool_q_pkey ready_q_pkey retry_q_pkey waiting_pkey", 100, graphOf,
	},
	"times of a graph":        {"run_event_rows_stream", 50, graphOf},
	"edges of a large graph":  {"edges_pkey tasks_pkey", 30_000, largeGraph},
	"assets of a large graph": {"leases_pkey pool_q_pkey ready_q_pkey retry_q_pkey tasks_pkey waiting_pkey", 30_000, largeGraph},
	"events": {"run_event_rows_stream", 2 * page, func(t testing.TB, w *world, key store.TaskKey) {
		t.Helper()
		must(w.RunEvents(t.Context(), store.RunKey{Tenant: key.Tenant, Run: key.Run}, store.EventCursor{}, page))(t)
	}},
}

// everyMonth are reads along an index that has few entries, or none, in any month.
var everyMonth = map[string]bool{
	"runs in states that none is in": true, "runs in states of a pipeline that has none": true, "how far runs in states are tried": true, "retries of a run": true,
}

// readQueries name which statement of a read is meant, if it is not its last.
var readQueries = map[string]string{
	"runs that have not ended": "RunsInStates", "runs in states that none is in": "RunsInStates", "runs in states of a pipeline that has none": "RunsInStates",
	"how far runs in states are tried": "RunsInStatesBound", "how far a filter of runs is tried": "RunsBound",
	"how far a filter of a config's runs is tried": "ConfigRunsBound",
	"tasks of a graph": "GraphTasks", "what is live of a graph": "GraphLive", "times of a graph": "GraphTimes", "assets of a large graph": "GraphGroups",
}

func listed(t testing.TB, w *world, key store.TaskKey, f store.RunFilter) []store.RunView {
	t.Helper()
	runs, _, err := w.ListRuns(t.Context(), key.Tenant, f, nil, page)
	require.NoError(t, err)
	return runs
}

func graphOf(t testing.TB, w *world, key store.TaskKey) {
	t.Helper()
	require.NotEmpty(t, must(w.RunGraph(t.Context(), store.RunKey{Tenant: key.Tenant, Run: key.Run}))(t).Nodes)
}

func largeGraph(t testing.TB, w *world, _ store.TaskKey) {
	t.Helper()
	var wide store.RunKey
	w.engine(t, func(tx *Tx) { wide = w.wide(t, tx) })
	require.Empty(t, must(w.RunGraph(t.Context(), wide))(t).Nodes)
}

// TestReadPlans loads a database as TestPlans does and asks PostgreSQL how it executes the
// reads of a tenant: with no statistics, with some from when the queues were empty, and with
// those of today.
func TestReadPlans(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.load(t, 20_000)
	// A tenant with finished runs in the last month, and none in the month of the live ones.
	var tenant, in, leased uuid.UUID
	require.NoError(t, w.Pool().QueryRow(t.Context(), `SELECT tenant_id, run_id, task_id FROM servo.leases WHERE tenant_id = md5('tenant 1')::uuid LIMIT 1`).
		Scan(&tenant, &in, &leased))
	key := store.TaskKey{Tenant: id.Of[id.Tenant](tenant), Run: id.Of[id.Run](in), Task: id.Of[id.Task](leased)}
	sent := map[string]statement{}
	for name, plan := range readPlans {
		sent[name] = w.last(t, readQueries[name], func() { plan.send(t, w, key) })
	}
	check := func(when string) {
		t.Run(when, func(t *testing.T) {
			conn := w.connection(t)
			for _, name := range slices.Sorted(maps.Keys(readPlans)) {
				t.Run(name, func(t *testing.T) { requireReadPlan(t, conn, name, sent[name]) })
			}
		})
	}
	check("with no statistics")
	w.empty(t)
	w.refill(t)
	check("with statistics from when the queues were empty")
	w.Exec(t, `ANALYZE`)
	check("with statistics of today")
}

// last is the last statement that the store has sent for fn, but for the commit, or the last
// that has a name.
func (w *world) last(t testing.TB, name string, fn func()) statement {
	t.Helper()
	var mu sync.Mutex
	var last statement
	require.NoError(t, w.Trace(t.Context(), func(sql string, args []any) {
		record(sql, args)
		mu.Lock()
		defer mu.Unlock()
		if sent := queryName(sql); sent != "" && (name == "" || sent == name) {
			last = statement{sql, args}
		}
	}))
	fn()
	mu.Lock()
	defer mu.Unlock()
	return last
}

// requireReadPlan explains a statement as a tenant executes it and holds it to its plan.
func requireReadPlan(t *testing.T, conn *pgx.Conn, name string, s statement) {
	t.Helper()
	tx, err := conn.Begin(t.Context())
	require.NoError(t, err)
	defer func() { _ = tx.Rollback(t.Context()) }()
	first := slices.IndexFunc(s.args, func(arg any) bool { _, ok := arg.(uuid.UUID); return ok })
	require.GreaterOrEqual(t, first, 0, "the first id of a read is its tenant")
	require.NoError(t, db.New(tx).EnterTenant(t.Context(), fmt.Sprint(s.args[first])))

	want, root := readPlans[name], explain(t, tx, name, s)
	used, months := map[string]bool{}, map[string]bool{}
	root.walk(func(n *node) {
		require.NotEqual(t, "Seq Scan", n.NodeType, "on %s", n.Relation)
		require.NotContains(t, []string{"Hash Join", "Merge Join", "Bitmap Heap Scan"}, n.NodeType)
		if n.Loops == 0 {
			return // a partition that was not needed
		}
		if n.Index != "" && n.Relation != "workspaces" && n.Relation != "configs" { // of which a tenant has a few
			used[indexName(n.Index)] = true
		}
		if slices.Contains(queueIndexes, n.Index) {
			require.LessOrEqual(t, n.Loops, float64(page), "%s is asked for a page", n.Index)
		}
		if month := monthSuffix.FindString(n.Relation); month != "" {
			months[month] = true
		}
	})
	require.Equal(t, want.indexes, strings.Join(slices.Sorted(maps.Keys(used)), " "))
	if !everyMonth[name] {
		require.Len(t, months, 1)
	}
	require.LessOrEqual(t, root.Hit+root.Read, want.blocks)
	t.Logf("%5d blocks, %.1f ms", root.Hit+root.Read, root.Time)
}
