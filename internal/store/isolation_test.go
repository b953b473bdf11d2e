package store_test

import (
	"context"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"go.arco.dev/servo/internal/base/fault"
	"go.arco.dev/servo/internal/base/id"
	"go.arco.dev/servo/internal/devkit/servotest"
	"go.arco.dev/servo/internal/domain/access"
	"go.arco.dev/servo/internal/domain/alert"
	"go.arco.dev/servo/internal/domain/run"
	"go.arco.dev/servo/internal/store"
)

// fill gives a tenant rows in every table.
func (w *world) fill(t testing.TB, name string) (account, graph) {
	t.Helper()
	a := w.account(t, name)
	states := []run.TaskState{run.Running, run.Ready, run.Queued, run.Dispatched, run.RetryWait, run.Pending, run.Succeeded}
	g := w.newRun(t, a, states, nil, nil, nil, nil, nil, []int32{0}, nil)
	w.apply(t, store.Changes{OpenCones: []store.RunKey{g.key()}})
	must(w.Heartbeat(t.Context(), []store.Pulse{pulse(g.tasks[0])}))(t)
	must(w.WriteProgress(t.Context(), []store.ProgressReport{progress(g.tasks[0])}))(t)
	must(w.WriteLogs(t.Context(), []store.LogChunk{chunk(g.tasks[0], 1, "hello")}))(t)
	share := store.ShareKey{Tenant: a.tenant, Pool: "default"}
	w.settle(t, a, store.Settlement{ShareKey: share, Asset: "asset", Left: 1, Ended: 1, Seconds: 1})
	w.Exec(t, `INSERT INTO servo.asset_pauses (tenant_id, workspace_id, asset, paused_at) SELECT tenant_id, workspace_id, 'asset', servo.clock() FROM servo.runs
		ON CONFLICT DO NOTHING`)
	c := w.config(t, a, "nightly", nil)
	w.engine(t, func(tx *Tx) {
		require.NoError(t, tx.WriteLedger(t.Context(), []store.FiredSlot{{ConfigKey: c.Key(), At: w.now, Run: g.run.ID}},
			[]store.SkippedSlots{skipped(c, w.now.Add(time.Hour), w.now.Add(time.Hour), 1)}, w.now, "a"))
	})
	w.sendEvent(t, a, "k", nil)
	w.template(t, a, "own")
	w.key(t, a.tenant, access.Settings{Name: "ci", Role: access.Viewer})
	w.audited(t, a.tenant, "key/ci", w.now)
	w.Exec(t, `INSERT INTO servo.run_totals (tenant_id, day, labels, ended, succeeded, failed, timed_out, cancelled, started, seconds, breached, breaches)
		SELECT tenant_id, '2026-01-01', '', 1, 1, 0, 0, 0, 1, 1, 0, 0 FROM servo.runs ON CONFLICT DO NOTHING`)
	w.Exec(t, `INSERT INTO servo.run_hours (tenant_id, hour, succeeded, failed, timed_out, cancelled, started, seconds, breaches, delay)
		SELECT tenant_id, '2026-01-01', 1, 0, 0, 0, 1, 1, 0, 0 FROM servo.runs ON CONFLICT DO NOTHING`)
	w.Exec(t, `INSERT INTO servo.run_deltas (tenant_id, day, labels, ended, succeeded, failed, timed_out, cancelled, started, seconds, breached, breaches)
		SELECT tenant_id, '2026-01-01', '', 1, 1, 0, 0, 0, 1, 1, 0, 0 FROM servo.runs`)
	w.Exec(t, `INSERT INTO servo.release_ends (tenant_id, workspace_id, run_id, release_id, config_id, created_at, state)
		SELECT tenant_id, workspace_id, id, deployment_id, id, created_at, 10 FROM servo.runs`)
	w.Exec(t, `INSERT INTO servo.release_totals (tenant_id, release_id, rollout_id, config_id, error, runs)
		SELECT tenant_id, deployment_id, id, id, '', 1 FROM servo.runs ON CONFLICT DO NOTHING`)
	w.alert(t, a.tenant, alert.PipelineFailing, w.channel(t, a.tenant, "mine"))
	w.subscribe(t, a.tenant, "mine")
	w.engine(t, func(tx *Tx) {
		require.NoError(t, tx.InsertChunk(t.Context(), store.Chunk{BackfillKey: keyOfBackfill(w.backfill(t, a)), Run: g.run.ID}, w.now))
	})
	w.Exec(t, `INSERT INTO servo.materializations (tenant_id, workspace_id, asset, token, id, state, gate, partition, attempt, format, path, rows, bytes, files, digest, schema_hash, detail, recorded_at)
		SELECT tenant_id, id, 'asset', 1, id, 'PROMOTED', 'ALLOW', '', 1, 'csv', '', 0, 0, 0, '', '', '{}', '2026-01-01' FROM servo.workspaces ON CONFLICT DO NOTHING`)
	w.Exec(t, `INSERT INTO servo.materialization_inputs (tenant_id, workspace_id, asset, token, input_asset, input_token) SELECT tenant_id, id, 'asset', 2, 'asset', 1 FROM servo.workspaces ON CONFLICT DO NOTHING`)
	w.Exec(t, `INSERT INTO servo.pointers (tenant_id, workspace_id, asset, partition, current, highest) SELECT tenant_id, id, 'asset', '', 1, 1 FROM servo.workspaces ON CONFLICT DO NOTHING`)
	for _, table := range []string{"partition_series (tenant_id, workspace_id, asset, series) SELECT tenant_id, id, 'asset', ''", "partition_status (tenant_id, workspace_id, asset, series, bucket) SELECT tenant_id, id, 'asset', '', 0", "partition_deltas (tenant_id, workspace_id, asset, series, first, last, succeeded) SELECT tenant_id, id, 'asset', '', 1, 1, true", "partition_holds (tenant_id, workspace_id, asset, series, first, last, run_id, task_id, held_at) SELECT tenant_id, id, 'asset', '', 1, 1, gen_random_uuid(), gen_random_uuid(), servo.clock()", "partition_waits (tenant_id, run_id, task_id, holder_run_id, holder_task_id) SELECT tenant_id, gen_random_uuid(), gen_random_uuid(), id, id"} {
		w.Exec(t, `INSERT INTO servo.`+table+` FROM servo.workspaces ON CONFLICT DO NOTHING`)
	}
	w.engine(t, func(tx *Tx) {
		must(tx.TakeTriggerKeys(t.Context(), []store.TriggerKey{{Tenant: a.tenant, Key: "k", Digest: "d", Run: g.run.ID}}, w.now))(t)
	})
	return a, g
}

// visible are the tables and views that a tenant may read, with the column that names it.
func (w *world) visible(t testing.TB) map[string]string {
	t.Helper()
	rows, err := w.Pool().Query(t.Context(), `
		SELECT c.relname::text, CASE c.relname WHEN 'tenants' THEN 'id' ELSE 'tenant_id' END
		FROM   pg_class c
		WHERE  c.relnamespace = 'servo'::regnamespace AND c.relkind IN ('r', 'p', 'v', 'm')
		AND    has_any_column_privilege('servo_tenant', c.oid, 'SELECT')`)
	require.NoError(t, err)
	relations := map[string]string{}
	var name, column string
	_, err = pgx.ForEachRow(rows, []any{&name, &column}, func() error {
		relations[name] = column
		return nil
	})
	require.NoError(t, err)
	return relations
}

func TestIsolation(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	a, mine := w.fill(t, "acme")
	b, theirs := w.fill(t, "brick")
	for _, of := range []account{a, b} { // last: a fold takes all that there are
		w.apply(t, store.Changes{Settlements: []store.Settlement{{ShareKey: store.ShareKey{Tenant: of.tenant, Pool: "default"}, Left: 1}}})
	}
	relations := w.visible(t)
	require.Contains(t, relations, "task_states")
	require.Contains(t, relations, "run_events")

	counts := func(t *testing.T, tenant string) (own, foreign map[string]int) {
		t.Helper()
		own, foreign = map[string]int{}, map[string]int{}
		require.NoError(t, w.Tenant(t.Context(), tenant, func(ctx context.Context, tx *Tx) error {
			for name, column := range relations {
				var o, f int
				err := tx.Raw().QueryRow(ctx, `SELECT count(*) FILTER (WHERE `+column+`::text = $1), count(*) FILTER (WHERE `+column+`::text <> $1)
					FROM servo.`+name, tenant).Scan(&o, &f)
				require.NoError(t, err, name)
				own[name], foreign[name] = o, f
			}
			return nil
		}))
		return own, foreign
	}

	t.Run("a tenant sees its own rows in every table and view, and no others", func(t *testing.T) {
		t.Parallel()
		for _, tenant := range []id.Tenant{a.tenant, b.tenant} {
			own, foreign := counts(t, tenant.String())
			for name := range relations {
				require.NotZero(t, own[name], "%s: a table without rows proves nothing", name)
				require.Zero(t, foreign[name], name)
			}
		}
	})

	t.Run("no tenant and a tenant that does not exist see nothing", func(t *testing.T) {
		t.Parallel()
		for _, tenant := range []string{"", id.New[id.Tenant](id.NewMinter(w.now)).String()} {
			own, foreign := counts(t, tenant)
			for name := range relations {
				require.Zero(t, own[name]+foreign[name], name)
			}
		}
	})

	t.Run("what is not a tenant's id is an error, not an empty answer", func(t *testing.T) {
		t.Parallel()
		err := w.Tenant(t.Context(), "acme' OR true", func(ctx context.Context, tx *Tx) error {
			_, err := tx.Raw().Exec(ctx, `SELECT FROM servo.runs`)
			return err
		})
		require.Equal(t, "22P02", servotest.SQLState(err))
	})

	t.Run("a run is found by its tenant alone", func(t *testing.T) {
		t.Parallel()
		found, err := w.GetRun(t.Context(), mine.key())
		require.NoError(t, err)
		require.Equal(t, mine.run.ID, found.ID)
		require.Len(t, w.tasks(t, mine.key()), len(mine.tasks))
		_, err = w.GetRun(t.Context(), store.RunKey{Tenant: a.tenant, Run: theirs.run.ID})
		require.True(t, fault.Is(err, fault.NotFound), err)
	})
}

func TestPrivileges(t *testing.T) {
	t.Parallel()
	const insufficientPrivilege = "42501"
	w := newWorld(t)
	a, _ := w.fill(t, "acme")
	b, _ := w.fill(t, "brick")
	asTenant := func(ctx context.Context, sql string) error {
		return w.Tenant(ctx, a.tenant.String(), func(ctx context.Context, tx *Tx) error {
			_, err := tx.Raw().Exec(ctx, sql)
			return err
		})
	}
	asEngine := func(ctx context.Context, sql string) error {
		return w.Engine(ctx, func(ctx context.Context, tx *Tx) error {
			_, err := tx.Raw().Exec(ctx, sql)
			return err
		})
	}
	roles := map[string]func(context.Context, string) error{"tenant": asTenant, "engine": asEngine}

	for table, column := range map[string]string{"run_event_rows": "events", "entity_events": "actor"} {
		for role, exec := range roles {
			t.Run(table+" are append-only for the "+role, func(t *testing.T) {
				t.Parallel()
				for _, sql := range []string{
					`UPDATE servo.` + table + ` SET ` + column + ` = NULL`, `DELETE FROM servo.` + table, `TRUNCATE servo.` + table,
					`SELECT 1 FROM servo.` + table + ` FOR UPDATE`,
				} {
					require.Equal(t, insufficientPrivilege, servotest.SQLState(exec(t.Context(), sql)), sql)
				}
			})
		}
	}

	t.Run("a partition cannot be reached past its parent", func(t *testing.T) {
		t.Parallel()
		for _, exec := range roles {
			for _, table := range []string{"runs", "tasks", "edges", "run_event_rows", "task_logs", "attempt_logs", "attempt_progress", "attempt_stages"} {
				require.Equal(t, insufficientPrivilege, servotest.SQLState(exec(t.Context(), `SELECT FROM servo.`+table+w.now.Format("_2006_01"))))
			}
		}
	})

	t.Run("a tenant writes nothing today", func(t *testing.T) {
		t.Parallel()
		for table := range w.visible(t) {
			for _, sql := range []string{`DELETE FROM servo.` + table, `INSERT INTO servo.` + table + ` DEFAULT VALUES`, `TRUNCATE servo.` + table} {
				require.Error(t, asTenant(t.Context(), sql), sql)
			}
		}
		require.Equal(t, insufficientPrivilege, servotest.SQLState(asTenant(t.Context(), `SELECT servo.raise_fencing_token()`)))
		require.Equal(t, insufficientPrivilege, servotest.SQLState(asTenant(t.Context(), `SELECT servo.make_partitions(1)`)))
		require.Equal(t, insufficientPrivilege, servotest.SQLState(asTenant(t.Context(), `SELECT FROM servo.duties`)))
	})

	t.Run("no role creates objects or disables security", func(t *testing.T) {
		t.Parallel()
		for _, exec := range roles {
			for _, sql := range []string{
				`CREATE TABLE servo.mine ()`, `ALTER TABLE servo.runs NO FORCE ROW LEVEL SECURITY`, `DROP TABLE servo.runs`,
				`CREATE OR REPLACE FUNCTION servo.current_tenant() RETURNS uuid LANGUAGE sql AS 'SELECT NULL::uuid'`,
			} {
				require.Equal(t, insufficientPrivilege, servotest.SQLState(exec(t.Context(), sql)), sql)
			}
		}
	})

	t.Run("with the right to write, a tenant still writes for itself alone", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t)
		w.Exec(t, `GRANT INSERT, UPDATE, DELETE ON servo.cones, servo.idempotency_keys TO servo_tenant`)
		mine, theirs := w.account(t, "acme"), w.account(t, "brick")
		key := func(owner id.Tenant) string {
			return `INSERT INTO servo.idempotency_keys VALUES ('` + owner.String() + `', 'k', 'd', '` + owner.String() + `', now())`
		}
		as := func(sql string) (int64, error) {
			var n int64
			err := w.Tenant(t.Context(), mine.tenant.String(), func(ctx context.Context, tx *Tx) error {
				tag, err := tx.Raw().Exec(ctx, sql)
				n = tag.RowsAffected()
				return err
			})
			return n, err
		}
		_, err := as(key(theirs.tenant))
		require.Equal(t, insufficientPrivilege, servotest.SQLState(err))
		require.ErrorContains(t, err, "row-level security")
		_, err = as(key(mine.tenant))
		require.NoError(t, err)
		_, err = as(`UPDATE servo.idempotency_keys SET tenant_id = '` + theirs.tenant.String() + `'`)
		require.ErrorContains(t, err, "row-level security", "a row cannot be given away")

		w.Exec(t, key(theirs.tenant))
		for _, sql := range []string{`UPDATE servo.idempotency_keys SET digest = 'x'`, `DELETE FROM servo.idempotency_keys`} {
			n, err := as(sql)
			require.NoError(t, err)
			require.EqualValues(t, 1, n, sql)
		}
		require.Equal(t, 1, w.Count(t, `SELECT count(*) FROM servo.idempotency_keys WHERE digest = 'd'`))
	})

	t.Run("the engine sees all tenants without being above the policies", func(t *testing.T) {
		t.Parallel()
		w.engine(t, func(tx *Tx) {
			var tenants int
			require.NoError(t, tx.Raw().QueryRow(t.Context(), `SELECT count(DISTINCT tenant_id) FROM servo.runs WHERE tenant_id IN ($1, $2)`,
				a.tenant.UUID, b.tenant.UUID).Scan(&tenants))
			require.Equal(t, 2, tenants)
			var super, bypass bool
			require.NoError(t, tx.Raw().QueryRow(t.Context(), `SELECT rolsuper, rolbypassrls FROM pg_roles WHERE rolname = current_user`).Scan(&super, &bypass))
			require.False(t, super || bypass)
		})
	})
}
