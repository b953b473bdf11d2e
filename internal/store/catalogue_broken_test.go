package store_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"go.arco.dev/servo/internal/devkit/servotest"
)

// Each of these breaks one rule of the catalogue.
var broken = []struct {
	name  string
	sql   string
	claim string // the beginning of the rule that must notice
	what  string // the object that it must name
}{
	{
		"a table that forgets its tenant", `CREATE TABLE servo.labels (run_id uuid)`,
		"a table without tenant_id", "labels",
	},
	{
		"security that was not forced", `ALTER TABLE servo.workspaces NO FORCE ROW LEVEL SECURITY`,
		"a tenant table has row-level security", "workspaces",
	},
	{
		"security that was disabled", `ALTER TABLE servo.tenants DISABLE ROW LEVEL SECURITY`,
		"a tenant table has row-level security", "tenants",
	},
	{
		"a partition without security", `ALTER TABLE servo.runs_this_month DISABLE ROW LEVEL SECURITY`,
		"a tenant table has row-level security", "runs_this_month",
	},
	{
		"a new table without anything", `CREATE TABLE servo.labels (tenant_id uuid)`,
		"a tenant table has row-level security", "labels",
	},
	{
		"a new table without policies", `
		CREATE TABLE servo.labels (tenant_id uuid); ALTER TABLE servo.labels ENABLE ROW LEVEL SECURITY, FORCE ROW LEVEL SECURITY`,
		"a tenant table has one policy for tenants", "labels",
	},
	{
		"a new table without a policy for the engine", `
		CREATE TABLE servo.labels (tenant_id uuid); ALTER TABLE servo.labels ENABLE ROW LEVEL SECURITY, FORCE ROW LEVEL SECURITY;
		CREATE POLICY tenant ON servo.labels TO servo_tenant USING (tenant_id = servo.current_tenant())`,
		"a tenant table has one policy for the engine", "labels",
	},
	{
		"a policy that compares something else", `ALTER POLICY tenant ON servo.runs USING (workspace_id = servo.current_tenant())`,
		"a tenant table has one policy for tenants", "runs",
	},
	{
		"a policy that lets everything be written", `ALTER POLICY tenant ON servo.runs WITH CHECK (true)`,
		"a tenant table has one policy for tenants", "runs",
	},
	{
		"a second policy, which widens the first", `CREATE POLICY help ON servo.runs TO servo_tenant USING (priority > 3)`,
		"no other policy widens", "help on runs",
	},
	{
		"a policy for all roles", `CREATE POLICY help ON servo.leases USING (true)`,
		"no other policy widens", "help on leases",
	},
	{
		"a grant on a partition", `GRANT SELECT ON servo.runs_this_month TO servo_engine`,
		"a partition grants nothing", "runs_this_month to servo_engine",
	},
	{
		"a grant on a column of a partition", `GRANT UPDATE (events) ON servo.run_event_rows_this_month TO servo_engine`,
		"a partition grants nothing", "run_event_rows_this_month to servo_engine",
	},
	{
		"a grant to PUBLIC", `GRANT SELECT ON servo.duties TO PUBLIC`,
		"nothing is granted to PUBLIC", "duties",
	},
	{
		"a view with the rights of its owner", `CREATE VIEW servo.all_runs AS SELECT * FROM servo.runs`,
		"a view reads with the rights", "all_runs",
	},
	{
		"a view that lost its option", `ALTER VIEW servo.task_states SET (security_invoker = false)`,
		"a view reads with the rights", "task_states",
	},
	{
		"a materialized view", `CREATE MATERIALIZED VIEW servo.all_runs AS SELECT id FROM servo.runs`,
		"there is no materialized view", "all_runs",
	},
	{
		"a function without a search_path", `
		CREATE FUNCTION servo.peek() RETURNS bigint LANGUAGE sql SECURITY DEFINER AS 'SELECT count(*) FROM servo.runs';
		REVOKE ALL ON FUNCTION servo.peek() FROM PUBLIC`,
		"a SECURITY DEFINER function has a fixed search_path", "peek",
	},
	{
		"a search_path that temporary objects come before", `ALTER FUNCTION servo.make_partitions SET search_path = pg_catalog`,
		"a SECURITY DEFINER function has a fixed search_path", "make_partitions",
	},
	{
		"a function for PUBLIC", `GRANT EXECUTE ON FUNCTION servo.raise_fencing_token TO PUBLIC`,
		"a SECURITY DEFINER function is executed by roles with a grant", "raise_fencing_token",
	},
	{
		"a function whose grants were forgotten", `
		CREATE FUNCTION servo.peek() RETURNS bigint LANGUAGE sql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS 'SELECT 1'`,
		"a SECURITY DEFINER function is executed by roles with a grant", "peek",
	},
	{
		"a role above the policies", `ALTER ROLE servo_engine BYPASSRLS`,
		"the roles of transactions cannot log in", "servo_engine",
	},
	{
		"a role that can log in", `ALTER ROLE servo_tenant LOGIN`,
		"the roles of transactions cannot log in", "servo_tenant",
	},
	{
		"a role with the rights of another", `GRANT servo_engine TO servo_tenant`,
		"the roles of transactions cannot log in", "servo_tenant",
	},
	{
		"a role that makes tables", `GRANT CREATE ON SCHEMA servo TO servo_tenant`,
		"the roles of transactions own nothing", "objects by servo_tenant",
	},
	{
		"a role that owns a table", `ALTER TABLE servo.duties OWNER TO servo_engine`,
		"the roles of transactions own nothing", "duties of servo_engine",
	},
	{
		"a table of another owner", `CREATE TABLE servo.stray (n int)`,
		"everything is owned by the role that owns the schema", "stray",
	},
	{
		"events that can be changed", `GRANT UPDATE (events) ON servo.run_event_rows TO servo_engine`,
		"events are append-only", "run_event_rows by servo_engine",
	},
	{
		"events that can be deleted", `GRANT DELETE ON servo.entity_events TO servo_engine`,
		"events are append-only", "entity_events by servo_engine",
	},
	{
		"a tenant that writes", `GRANT INSERT ON servo.runs TO servo_tenant`,
		"a tenant writes nothing", "runs",
	},
	{
		"a queue table with another key", `
		ALTER TABLE servo.pool_q DROP CONSTRAINT pool_q_pkey; ALTER TABLE servo.pool_q ADD PRIMARY KEY (task_id, run_id)`,
		"the key of a queue table", "pool_q",
	},
	{
		"a queue table without a key", `ALTER TABLE servo.leases DROP CONSTRAINT leases_pkey`,
		"the key of a queue table", "leases",
	},
	{
		"a queue table that is vacuumed by its size", `ALTER TABLE servo.ready_q RESET (autovacuum_vacuum_scale_factor)`,
		"a queue table is vacuumed", "ready_q",
	},
	{
		"a queue table that is vacuumed late", `ALTER TABLE servo.heartbeats SET (autovacuum_vacuum_threshold = 1000000)`,
		"a queue table is vacuumed", "heartbeats",
	},
	{
		"a new queue table as it comes", `CREATE TABLE servo.parked (tenant_id uuid, run_id uuid, task_id uuid, PRIMARY KEY (run_id, task_id))`,
		"a queue table is vacuumed", "parked",
	},
	{
		"a partition filled to the brim", `ALTER TABLE servo.tasks_this_month RESET (fillfactor)`,
		"rows that are updated in place", "tasks_this_month",
	},
	{
		"a foreign key at a partitioned table", `
		ALTER TABLE servo.cones ADD CONSTRAINT of_run FOREIGN KEY (tenant_id, run_id) REFERENCES servo.runs (tenant_id, id)`,
		"no foreign key points at a partitioned table", "of_run",
	},
	{
		"an index on the state of tasks", `CREATE INDEX live ON servo.tasks (run_id) WHERE state IS NULL`,
		"state is in no index", "live",
	},
}

// TestCatalogueCanFail breaks each rule in a transaction that is rolled back, and asks the
// same questions as TestCatalogue.
func TestCatalogueCanFail(t *testing.T) {
	t.Parallel()
	db := servotest.DB(t)
	var month string
	require.NoError(t, db.Pool().QueryRow(t.Context(), `SELECT to_char(servo.clock() AT TIME ZONE 'UTC', '_YYYY_MM')`).Scan(&month))
	untried := map[string]bool{}
	for _, rule := range rules {
		untried[rule.claim] = true
	}
	for _, b := range broken { //nolint:paralleltest // each changes the same catalogue and rolls back
		for claim := range untried {
			if strings.HasPrefix(claim, b.claim) {
				delete(untried, claim)
			}
		}
		t.Run(b.name, func(t *testing.T) {
			tx, err := db.Pool().Begin(t.Context())
			require.NoError(t, err)
			defer func() { _ = tx.Rollback(t.Context()) }()
			_, err = tx.Exec(t.Context(), strings.ReplaceAll(b.sql, "_this_month", month))
			require.NoError(t, err)

			noticed := false
			for _, finding := range must(findings(t.Context(), tx))(t) {
				what := strings.ReplaceAll(b.what, "_this_month", month)
				noticed = noticed || strings.HasPrefix(finding, b.claim) && strings.HasSuffix(finding, what)
			}
			require.True(t, noticed, "no rule was broken")
		})
	}
	require.Empty(t, untried, "rules that no example breaks")
}
