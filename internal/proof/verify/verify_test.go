package verify_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"go.arco.dev/servo/internal/domain/run"
	"go.arco.dev/servo/internal/engine"
	"go.arco.dev/servo/internal/proof/verify"
)

func TestClean(t *testing.T) {
	t.Parallel()

	t.Run("an empty database is clean", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t)
		report := requireClean(t, w.db)
		require.Equal(t, 1, report.Tenants)
		require.Zero(t, report.Runs)
	})

	t.Run("a history with every state and every event is clean", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t)
		w.rich(t)
		report := requireClean(t, w.db)
		require.Equal(t, w.db.Count(t, `SELECT count(*) FROM servo.runs`), report.Runs)
		require.Equal(t, w.db.Count(t, `SELECT count(*) FROM servo.tasks`), report.Tasks)
		require.Equal(t, w.db.Count(t, `SELECT (SELECT count(*) FROM servo.run_events) + (SELECT count(*) FROM servo.entity_events)
			+ (SELECT count(*) FROM servo.platform_events)`), report.Events)

		require.Equal(t, len(run.Events()), w.db.Count(t, `SELECT count(DISTINCT type) FROM servo.run_events`))
		require.Equal(t, len(run.TaskStates()), w.db.Count(t, `SELECT count(DISTINCT state) FROM servo.task_states`))
		require.Equal(t, len(run.States()), w.db.Count(t, `SELECT count(DISTINCT state) FROM servo.runs`))
		for _, table := range []string{"edges", "waiting", "ready_q", "pool_q", "leases", "retry_q", "heartbeats", "live_runs"} {
			require.NotZero(t, w.db.Count(t, `SELECT count(*) FROM servo.`+table), table)
		}
	})

	t.Run("one run at a time finds the same", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t)
		for range 3 {
			w.trigger(t, "diamond")
		}
		all := requireClean(t, w.db)
		require.Equal(t, 1, all.Chunks)

		byRuns := look(t, w.db, verify.Options{ChunkRuns: 1})
		require.Equal(t, 3, byRuns.Chunks)
		byTasks := look(t, w.db, verify.Options{ChunkTasks: 4})
		require.Equal(t, 3, byTasks.Chunks, "a run with as many tasks as a chunk may have is a chunk")
		byRuns.Chunks, byTasks.Chunks = 1, 1
		require.Equal(t, all, byRuns)
		require.Equal(t, all, byTasks)
	})

	t.Run("a tenant and a sample are looked at alone", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t)
		other := w.account(t, "other")
		for range 3 {
			w.trigger(t, "single")
		}
		w.triggerWith(t, engine.Trigger{Tenant: other, Pipeline: "diamond"})

		report := look(t, w.db, verify.Options{Tenant: &other})
		require.Equal(t, []int{1, 1, 4}, []int{report.Tenants, report.Runs, report.Tasks})
		report = look(t, w.db, verify.Options{Sample: 2})
		require.Equal(t, []int{2, 2}, []int{report.Tenants, report.Runs})
		report = look(t, w.db, verify.Options{Sample: 100, Tenant: &w.tenant})
		require.Equal(t, []int{1, 3}, []int{report.Tenants, report.Runs})

		w.db.Exec(t, `UPDATE servo.runs SET fingerprint = 'x' WHERE tenant_id = '`+other.String()+`'`)
		require.Equal(t, 1, look(t, w.db, verify.Options{Tenant: &other}).Found)
		require.Equal(t, 1, look(t, w.db, verify.Options{Sample: 4}).Found)
		require.Zero(t, look(t, w.db, verify.Options{Tenant: &w.tenant}).Found)
	})

	t.Run("a cone that is cut off is clean, and not without its row in cones", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t)
		manifest := "version: 1\nassets:\n  - {key: w/root, exec: {command: [run]}, pool: wide}\n"
		for i := range 1100 {
			manifest += fmt.Sprintf("  - {key: w/leaf%d, exec: {command: [run]}, upstream: [w/root]}\n", i)
		}
		w.deploy(t, w.tenant, manifest+"pipelines:\n  - {name: wide, overlap: allow, select: [\"w/*\"]}\n")
		key := w.trigger(t, "wide")
		w.report(t, w.one(t, "wide"), failure("USER_CODE_EXCEPTION"))
		require.Equal(t, 1, w.db.Count(t, `SELECT count(*) FROM servo.cones`))
		require.Equal(t, 100, w.db.Count(t, `SELECT count(*) FROM servo.waiting`))
		requireClean(t, w.db)

		w.db.Exec(t, `DELETE FROM servo.cones`)
		requireFound(t, look(t, w.db, verify.Options{}), verify.Missing, "cones", "")
		value(verify.Repair(t.Context(), w.db.Store, key.Tenant, key.Run))(t)
		requireClean(t, w.db)

		w.db.Exec(t, `UPDATE servo.cones SET tenant_id = gen_random_uuid()`)
		requireFound(t, look(t, w.db, verify.Options{}), verify.ForeignTenant, "cones", "tenant_id")
		value(verify.Repair(t.Context(), w.db.Store, key.Tenant, key.Run))(t)
		requireClean(t, w.db)

		for more := true; more; {
			more = value(w.SkipDoomed(t.Context(), 10))(t)
		}
		requireClean(t, w.db)
		require.Zero(t, w.db.Count(t, `SELECT count(*) FROM servo.cones`))
	})

	t.Run("what heartbeats and the reaper move is not compared", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t)
		w.trigger(t, "single")
		w.one(t, "single")
		w.db.Exec(t, `UPDATE servo.leases SET expires_at = expires_at + interval '1 hour', due_at = due_at + interval '1 minute'`)
		requireClean(t, w.db)
	})

	t.Run("a snapshot is one moment, whatever is written meanwhile", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t)
		stop, done := make(chan struct{}), make(chan error, 1)
		go func() {
			for {
				select {
				case <-stop:
					done <- nil
					return
				default:
				}
				if _, err := w.TriggerRun(t.Context(), engine.Trigger{Tenant: w.tenant, Pipeline: "diamond"}); err != nil {
					done <- err
					return
				}
				_, _, _ = w.Admit(t.Context(), w.duty, 100)
			}
		}()
		for seen := 0; seen < 20; {
			seen = requireClean(t, w.db).Runs
		}
		close(stop)
		require.NoError(t, <-done)
	})
}

func TestEveryColumnIsAccountedFor(t *testing.T) {
	t.Parallel()
	db := newWorld(t).db
	const columns = `
		SELECT count(*) FROM information_schema.columns c JOIN information_schema.tables t USING (table_schema, table_name)
		WHERE  c.table_schema = 'servo' AND t.table_type = 'BASE TABLE' AND t.table_name <> 'test_clock' AND t.table_name !~ '_\d{4}_\d\d$'`
	listed := slices.Concat(verify.Compared(), verify.ComparedElsewhere(), verify.ComparedPlatform(), verify.Volatile())
	require.NotZero(t, db.Count(t, columns))
	require.Zero(t, db.Count(t, columns+` AND c.table_name || '.' || c.column_name <> ALL($1) AND c.table_name || '.*' <> ALL($1)`, listed),
		"columns that are neither compared nor listed as volatile")
	require.Equal(t, len(verify.Compared()), db.Count(t, columns+` AND c.table_name || '.' || c.column_name = ANY($1)`, verify.Compared()),
		"what is compared exists")
}

func TestSameJSON(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		want, got string
		same      bool
	}{
		{`{"a": 1, "b": [true, null]}`, `{"b":[true,null],"a":1}`, true},
		{`1e2`, `100`, true},
		{`"\u003c"`, `"<"`, true},
		{`12345678901234567890`, `12345678901234567890`, true},
		{`{"a": 1}`, `{"a": 2}`, false},
		{`{"a": 1}`, `{"a": 1, "b": 1}`, false},
		{`[1, 2]`, `[2, 1]`, false},
		{`null`, ``, false},
		{`1`, `"1"`, false},
		{`{`, `{}`, false},
	} {
		got := []byte(c.got)
		if c.got == "" {
			got = nil
		}
		require.Equal(t, c.same, verify.SameJSON([]byte(c.want), got), "%s and %s", c.want, c.got)
	}
}

func requireFound(t testing.TB, report verify.Report, kind verify.Kind, table, column string) verify.Divergence {
	t.Helper()
	for _, d := range report.Divergences {
		if d.Kind == kind && d.Table == table && d.Column == column {
			return d
		}
	}
	require.Failf(t, "not found", "%s %s.%s in\n%s", kind, table, column, text(report))
	return verify.Divergence{}
}
