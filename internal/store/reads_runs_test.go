package store_test

import (
	"fmt"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"go.arco.dev/servo/internal/base/id"
	"go.arco.dev/servo/internal/domain/run"
	"go.arco.dev/servo/internal/store"
)

// TestListRunsOfALongHistory has a tenant with more runs than one page tries a filter on.
func TestListRunsOfALongHistory(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	a := w.account(t, "acme")
	oldest := w.newRun(t, a, nil, nil)
	const history = 12_000
	w.Exec(t, fmt.Sprintf(`INSERT INTO servo.runs (tenant_id, id, workspace_id, deployment_id, created_at, started_at, finished_at, version, total, remaining,
			succeeded, state, priority, pipeline, trigger_type, fingerprint, config_id)
		SELECT tenant_id, (substr(id::text, 1, 24) || 'f' || lpad(to_hex(n), 11, '0'))::uuid, workspace_id, deployment_id, created_at, created_at, created_at,
			2, 1, 0, 1, 10, 5, 'daily', 'api', 'f', '%[1]s'
		FROM servo.runs, generate_series(1, %[2]d) AS n WHERE id = '%[1]s'`, oldest.run.ID, history))
	w.Exec(t, `ANALYZE`)
	config := id.Of[id.Config](oldest.run.ID.UUID)
	for name, f := range map[string]store.RunFilter{
		"a pipeline":           {Pipeline: "none"},
		"a workspace":          {Workspace: "none"},
		"a pipeline and state": {Pipeline: "none", States: []run.State{run.RunSucceeded}},
		"a config's state":     {Config: &config, States: []run.State{run.RunFailed}},
	} {
		t.Run("a page stops before the end of the history where nothing passes "+name, func(t *testing.T) {
			t.Parallel()
			pages, last := 0, (*id.Run)(nil)
			for {
				runs, next, err := w.ListRuns(t.Context(), a.tenant, f, last, page)
				require.NoError(t, err)
				require.Empty(t, runs)
				if pages++; next == nil {
					break
				}
				if last != nil {
					require.Less(t, next.String(), last.String())
				}
				last = next
			}
			require.Equal(t, 2, pages)
		})
	}
	t.Run("one page is enough for a state that an index knows", func(t *testing.T) {
		t.Parallel()
		for _, states := range [][]run.State{{run.RunFailed}, {run.RunFailed, run.RunTimedOut, run.RunCancelled}, {run.RunCancelling}} {
			runs, next, err := w.ListRuns(t.Context(), a.tenant, store.RunFilter{States: states}, nil, page)
			require.NoError(t, err)
			require.Empty(t, runs)
			require.Nil(t, next)
		}
		runs, next, err := w.ListRuns(t.Context(), a.tenant, store.RunFilter{States: []run.State{run.RunRunning}}, nil, page)
		require.NoError(t, err)
		require.Len(t, runs, 1)
		require.Nil(t, next)
	})
}

// TestRunsEndInPlace holds the index of runs without success to those: what starts or succeeds is
// updated in place, and writes to no index.
func TestRunsEndInPlace(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	g := w.newRun(t, w.account(t, "acme"), nil, nil)
	hot := func(tx *Tx) (n int64) { // what the connection has counted and not passed on
		require.NoError(t, tx.Raw().QueryRow(t.Context(), `SELECT coalesce(sum(n_tup_hot_upd), 0) FROM pg_stat_xact_user_tables WHERE relname LIKE 'runs\_%'`).Scan(&n))
		return n
	}
	inPlace := func(sql string) (yes bool) {
		w.undone(t, func(tx *Tx) {
			before := hot(tx)
			_, err := tx.Raw().Exec(t.Context(), sql+` WHERE id = '`+g.run.ID.String()+`'`)
			require.NoError(t, err)
			yes = hot(tx) > before
		})
		return yes
	}
	require.True(t, inPlace(`UPDATE servo.runs SET state = 3, version = 2`))
	require.True(t, inPlace(`UPDATE servo.runs SET state = 10, version = 2, remaining = 0, succeeded = 1, finished_at = servo.clock()`))
	require.False(t, inPlace(`UPDATE servo.runs SET state = 11, version = 2, remaining = 0, failed = 1, finished_at = servo.clock()`))
}

// TestSharesPlan has many tenants that wait: what waits is counted for those that are shown.
func TestSharesPlan(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	const tenants, shown = 2_000, 50
	w.Exec(t, fmt.Sprintf(`INSERT INTO servo.tenants (id, name, version, created_at) SELECT md5('tenant ' || n)::uuid, 'tenant-' || n, 1, servo.clock() FROM generate_series(1, %d) AS n`, tenants))
	w.Exec(t, fmt.Sprintf(`INSERT INTO servo.ready_q (tenant_id, run_id, task_id, since, version, timeout_s, priority, dependents, pool)
		SELECT md5('tenant ' || n)::uuid, gen_random_uuid(), gen_random_uuid(), servo.clock(), 1, 60, 5, false, 'default' FROM generate_series(1, %d) AS n, generate_series(1, 3)`, tenants))
	w.Exec(t, fmt.Sprintf(`INSERT INTO servo.shares (tenant_id, pool, in_flight, updated_at) SELECT md5('tenant ' || n)::uuid, 'default', n %% 2, servo.clock() FROM generate_series(1, %d) AS n`, tenants))
	sent := w.last(t, "ListShares", func() {
		shares, more, err := w.ListShares(t.Context(), "", id.Tenant{}, shown)
		require.NoError(t, err)
		require.True(t, more)
		require.Len(t, shares, shown)
		require.InDelta(t, tenants, shares[0].PoolWeight, 0)
		require.Equal(t, int64(tenants/2), shares[0].PoolFlight)
		require.Equal(t, 3, shares[0].Waiting)
	})
	for _, when := range []string{"with no statistics", "with statistics of today"} { //nolint:paralleltest // the statistics come in between
		t.Run(when, func(t *testing.T) {
			asEngine(t, w.connection(t), func(tx pgx.Tx) {
				root := explain(t, tx, when, sent)
				root.walk(func(n *node) {
					require.True(t, n.NodeType != "Seq Scan" || n.Relation == "shares" && n.Loops <= 1, "%s on %s", n.NodeType, n.Relation)
					if n.Index == "pool_clocks_pkey" {
						require.LessOrEqual(t, n.Loops, float64(shown), "asked for those that are shown")
					}
				})
				require.LessOrEqual(t, root.Hit+root.Read, 16*tenants)
				t.Logf("%5d blocks, %.1f ms", root.Hit+root.Read, root.Time)
			})
		})
		w.Exec(t, `ANALYZE`)
	}
}
