package store_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"go.arco.dev/servo/internal/devkit/servotest"
)

// rules define what must not be in the catalogue. Each query returns the names of the objects
// that break its claim, so that a table that is added later is held to it too.
var rules = []struct {
	claim string
	query string
}{
	{
		// Each of these is about the installation and belongs to no tenant.
		"a table without tenant_id is in the list of those that need none", `
		SELECT name FROM tables
		WHERE  NOT has_tenant AND name NOT IN ('tenants', 'duties', 'duty_renewals', 'migrations', 'migration_checksums',
			'feed_epochs', 'platform_events', 'pool_clocks', 'pools', 'workers', 'capability_sets', 'servers', 'signing_keys', 'switches', 'installation_secrets', 'manifests', 'releases', 'release_channels')`,
	},
	{
		"a tenant table has row-level security, enabled and forced", `
		SELECT t.name FROM tables t JOIN pg_class c USING (oid)
		WHERE  t.tenant_column IS NOT NULL AND NOT (c.relrowsecurity AND c.relforcerowsecurity)`,
	},
	{
		"a tenant table has one policy for tenants, by the tenant of the transaction", `
		SELECT t.name FROM tables t
		WHERE  t.tenant_column IS NOT NULL AND NOT t.is_partition AND (
			SELECT count(*) FROM policies p
			WHERE  p.polrelid = t.oid AND p.roles = '{servo_tenant}' AND p.polpermissive AND p.polcmd = '*'
			AND    p.using_text = format('(%s = servo.current_tenant())', t.tenant_column) AND p.check_text IS NULL) <> 1`,
	},
	{
		"a tenant table has one policy for the engine", `
		SELECT t.name FROM tables t
		WHERE  t.tenant_column IS NOT NULL AND NOT t.is_partition AND (
			SELECT count(*) FROM policies p WHERE p.polrelid = t.oid AND p.roles = '{servo_engine}' AND p.using_text = 'true') <> 1`,
	},
	{
		"no other policy widens what a tenant sees", `
		SELECT p.polname || ' on ' || t.name FROM policies p JOIN tables t ON t.oid = p.polrelid
		WHERE  p.roles NOT IN ('{servo_tenant}', '{servo_engine}')
		OR     (p.roles = '{servo_tenant}' AND strpos(coalesce(p.using_text, ''), 'servo.current_tenant()') = 0)`,
	},
	{
		"a partition grants nothing: access is through its parent", `
		SELECT t.name || ' to ' || r.rolname FROM tables t CROSS JOIN app_roles r
		WHERE  t.is_partition AND (
			has_table_privilege(r.rolname, t.oid, 'SELECT, INSERT, UPDATE, DELETE, TRUNCATE, REFERENCES, TRIGGER')
			OR has_any_column_privilege(r.rolname, t.oid, 'SELECT, INSERT, UPDATE, REFERENCES'))`,
	},
	{
		"nothing is granted to PUBLIC", `
		SELECT c.relname::text FROM pg_class c, aclexplode(c.relacl) a WHERE c.relnamespace = 'servo'::regnamespace AND a.grantee = 0`,
	},
	{
		"a view reads with the rights of the caller", `
		SELECT c.relname::text FROM pg_class c
		WHERE  c.relnamespace = 'servo'::regnamespace AND c.relkind = 'v'
		AND    NOT coalesce(c.reloptions && ARRAY['security_invoker=true', 'security_invoker=on', 'security_invoker=1'], false)`,
	},
	{
		"there is no materialized view: it would keep all tenants' rows without policies", `
		SELECT c.relname::text FROM pg_class c WHERE c.relnamespace = 'servo'::regnamespace AND c.relkind NOT IN ('r', 'p', 'v', 'i', 'I', 'S', 't', 'c')`,
	},
	{
		"a SECURITY DEFINER function has a fixed search_path that ends with pg_temp", `
		SELECT f.proname::text FROM pg_proc f
		WHERE  f.pronamespace = 'servo'::regnamespace AND f.prosecdef
		AND    NOT EXISTS (SELECT FROM unnest(f.proconfig) AS setting WHERE setting LIKE 'search\_path=%pg\_temp')`,
	},
	{
		"a SECURITY DEFINER function is executed by roles with a grant, not by PUBLIC", `
		SELECT f.proname::text FROM pg_proc f
		WHERE  f.pronamespace = 'servo'::regnamespace AND f.prosecdef AND has_function_privilege('public', f.oid, 'EXECUTE')`,
	},
	{
		"the roles of transactions cannot log in, and have no members", `
		SELECT r.rolname::text FROM pg_roles r JOIN app_roles USING (rolname)
		WHERE  r.rolsuper OR r.rolbypassrls OR r.rolcanlogin OR r.rolcreaterole OR r.rolcreatedb OR r.rolreplication
		OR     EXISTS (SELECT FROM pg_auth_members m WHERE m.member = r.oid)`,
	},
	{
		"the roles of transactions own nothing and make nothing", `
		SELECT c.relname || ' of ' || r.rolname FROM pg_class c JOIN pg_roles r ON r.oid = c.relowner JOIN app_roles USING (rolname)
		UNION ALL
		SELECT 'objects by ' || rolname FROM app_roles WHERE has_schema_privilege(rolname, 'servo', 'CREATE')`,
	},
	{
		"everything is owned by the role that owns the schema", `
		SELECT c.relname::text FROM pg_class c JOIN pg_roles r ON r.oid = c.relowner
		WHERE  c.relnamespace = 'servo'::regnamespace AND c.relkind IN ('r', 'p', 'v', 'S') AND r.rolname <> 'servo_owner'
		UNION ALL
		SELECT f.proname::text FROM pg_proc f JOIN pg_roles r ON r.oid = f.proowner
		WHERE  f.pronamespace = 'servo'::regnamespace AND r.rolname <> 'servo_owner'
		UNION ALL
		SELECT 'the schema' FROM pg_namespace n JOIN pg_roles r ON r.oid = n.nspowner WHERE n.nspname = 'servo' AND r.rolname <> 'servo_owner'`,
	},
	{
		"events are append-only", `
		SELECT t.name || ' by ' || r.rolname FROM tables t CROSS JOIN app_roles r
		WHERE  t.name ~ '_event(s|_rows)(_\d{4}_\d\d)?$' AND (
			has_table_privilege(r.rolname, t.oid, 'UPDATE, DELETE, TRUNCATE') OR has_any_column_privilege(r.rolname, t.oid, 'UPDATE'))`,
	},
	{
		"a tenant writes nothing", `
		SELECT t.name FROM tables t
		WHERE  has_table_privilege('servo_tenant', t.oid, 'INSERT, UPDATE, DELETE, TRUNCATE')
		OR     has_any_column_privilege('servo_tenant', t.oid, 'INSERT, UPDATE')`,
	},
	{
		"the key of a queue table begins with the run", `
		SELECT q.name FROM queues q
		WHERE  NOT EXISTS (
			SELECT FROM pg_index i JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = i.indkey[0]
			WHERE  i.indrelid = q.oid AND i.indisprimary AND a.attname = 'run_id')`,
	},
	{
		"a queue table is vacuumed and analyzed by the number of its changes, at once and without pauses", `
		SELECT q.name FROM queues q JOIN pg_class c USING (oid)
		WHERE  NOT coalesce(c.reloptions @> ARRAY['autovacuum_vacuum_scale_factor=0', 'autovacuum_analyze_scale_factor=0',
			'autovacuum_vacuum_insert_scale_factor=0', 'autovacuum_vacuum_cost_delay=0'], false)
		OR     NOT EXISTS (SELECT FROM unnest(c.reloptions) AS o
			WHERE o LIKE 'autovacuum\_vacuum\_threshold=%' AND split_part(o, '=', 2)::int <= 10000)`,
	},
	{
		"rows that are updated in place find room on their page", `
		SELECT c.relname::text FROM pg_class c
		WHERE  c.relnamespace = 'servo'::regnamespace AND c.relkind = 'r'
		AND    regexp_replace(c.relname, '_\d{4}_\d\d$', '') IN ('runs', 'tasks', 'attempt_logs', 'attempt_progress', 'waiting', 'leases', 'heartbeats', 'duty_renewals', 'tenants', 'workspaces')
		AND    NOT coalesce(c.reloptions @> ARRAY['fillfactor=50'], false)`,
	},
	{
		"no foreign key points at a partitioned table: it would block the drop of a month", `
		SELECT k.conname::text FROM pg_constraint k JOIN pg_class c ON c.oid = k.confrelid
		WHERE  k.contype = 'f' AND k.connamespace = 'servo'::regnamespace AND (c.relkind = 'p' OR c.relispartition)`,
	},
	{
		"state is in no index of a wide row", `
		SELECT i.indexrelid::regclass::text FROM pg_index i JOIN tables t ON t.oid = i.indrelid JOIN pg_attribute a ON a.attrelid = i.indrelid
		WHERE  t.name ~ '^(runs|tasks)' AND a.attname = 'state' 
		AND    (a.attnum = ANY (i.indkey::int2[]) OR pg_get_expr(i.indpred, i.indrelid) ~ '\mstate\M')`,
	},
}

// catalogue has the words in which the rules speak.
const catalogue = `
WITH tables AS (
	SELECT c.oid, c.relname::text AS name, c.relispartition AS is_partition, a.attname IS NOT NULL AS has_tenant,
	       CASE WHEN c.relname = 'tenants' THEN 'id' ELSE a.attname::text END AS tenant_column
	FROM   pg_class c
	LEFT   JOIN pg_attribute a ON a.attrelid = c.oid AND a.attname = 'tenant_id' AND NOT a.attisdropped
	WHERE  c.relnamespace = 'servo'::regnamespace AND c.relkind IN ('r', 'p')
), policies AS (
	SELECT p.*, pg_get_expr(p.polqual, p.polrelid) AS using_text, pg_get_expr(p.polwithcheck, p.polrelid) AS check_text,
	       ARRAY(SELECT CASE r WHEN 0 THEN 'public' ELSE pg_get_userbyid(r)::text END FROM unnest(p.polroles) AS r)::text AS roles
	FROM   pg_policy p
), app_roles AS (
	SELECT unnest(ARRAY['servo_tenant', 'servo_engine'])::name AS rolname
), queues AS (
	-- a row for a task in a table that is not partitioned: it comes and goes
	SELECT t.oid, t.name FROM tables t JOIN pg_class c USING (oid)
	WHERE  c.relkind = 'r' AND NOT t.is_partition
	AND    2 = (SELECT count(*) FROM pg_attribute a WHERE a.attrelid = t.oid AND a.attname IN ('run_id', 'task_id') AND NOT a.attisdropped)
)
`

// findings are the objects that break a rule, with the rule.
func findings(ctx context.Context, tx pgx.Tx) ([]string, error) {
	// so that the catalogue names every object with its schema
	if _, err := tx.Exec(ctx, `SET LOCAL search_path = pg_catalog`); err != nil {
		return nil, err
	}
	var found []string
	for _, rule := range rules {
		rows, err := tx.Query(ctx, catalogue+rule.query)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", rule.claim, err)
		}
		names, err := pgx.CollectRows(rows, pgx.RowTo[string])
		if err != nil {
			return nil, fmt.Errorf("%s: %w", rule.claim, err)
		}
		for _, name := range names {
			found = append(found, rule.claim+": "+name)
		}
	}
	return found, nil
}

func TestCatalogue(t *testing.T) {
	t.Parallel()
	db := servotest.DB(t)
	require.NoError(t, pgx.BeginFunc(t.Context(), db.Pool(), func(tx pgx.Tx) error {
		require.Empty(t, must(findings(t.Context(), tx))(t))
		return nil
	}))
	require.GreaterOrEqual(t, db.Count(t, catalogue+`SELECT count(*) FROM queues`), 6, "the queue tables and heartbeats")
	require.GreaterOrEqual(t, db.Count(t, catalogue+`SELECT count(*) FROM tables WHERE is_partition`), 32, "eight tables, four months")
}
