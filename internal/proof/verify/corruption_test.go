package verify_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"go.arco.dev/servo/internal/base/fault"
	"go.arco.dev/servo/internal/devkit/servotest"
	"go.arco.dev/servo/internal/proof/verify"
	"go.arco.dev/servo/internal/store"
)

// TestColumns spoils each column of each table behind the store's back: verify names it,
// and if the row is part of a run, a repair corrects it.
func TestColumns(t *testing.T) {
	t.Parallel()
	name := original(t)
	tables := map[string][]string{}
	for _, column := range verify.Compared() {
		table, column, _ := strings.Cut(column, ".")
		tables[table] = append(tables[table], column)
	}
	for table, columns := range tables {
		t.Run(table, func(t *testing.T) {
			t.Parallel()
			entity := slices.Contains([]string{
				"tenants", "workspaces", "deployments", "asset_pauses", "configs", "event_inbox", "templates", "alerts", "alert_channels", "subscriptions", "api_keys",
			}, table)
			db := copyOf(t, name)
			for _, column := range columns {
				if slices.Contains(verify.Volatile(), table+"."+column) {
					continue
				}
				db.Exec(t, `CREATE TABLE servo.kept AS TABLE servo.`+table)
				require.Equal(t, 1, db.Count(t, `SELECT servo.spoil($1, $2)`, table, column), column)
				report := look(t, db, verify.Options{})
				requireNamed(t, report, table, column)
				switch {
				case entity: // nothing repairs it
					db.Exec(t, `DELETE FROM servo.`+table+`; INSERT INTO servo.`+table+` TABLE servo.kept`)
				case table == "runs" && column == "id":
					requireLost(t, db, report)
					db = copyOf(t, name)
				default:
					repairNamed(t, db, report)
					requireClean(t, db)
				}
				db.Exec(t, `DROP TABLE IF EXISTS servo.kept`)
			}
		})
	}
}

// requireNamed wants the report to name a spoilt column: by itself, or as a row that is
// not where it should be if the column is part of the key.
func requireNamed(t testing.TB, report verify.Report, table, column string) {
	t.Helper()
	keys := map[string][]string{
		"runs": {"tenant_id", "id"}, "tasks": {"tenant_id", "run_id", "id"}, "edges": {"tenant_id", "run_id", "upstream_id", "task_id"},
		"live_runs": {"tenant_id", "run_id"}, "tenants": {"id"}, "workspaces": {"tenant_id", "id"}, "deployments": {"tenant_id", "id"},
		"asset_pauses": {"tenant_id", "workspace_id", "asset"}, "configs": {"tenant_id", "id"},
		"event_inbox": {"tenant_id", "id"}, "templates": {"tenant_id", "id"}, "alerts": {"tenant_id", "id"}, "alert_channels": {"tenant_id", "id"}, "subscriptions": {"tenant_id", "id"}, "api_keys": {"tenant_id", "id"},
	}
	for _, queue := range []string{"waiting", "ready_q", "pool_q", "leases", "retry_q"} {
		keys[queue] = []string{"run_id", "task_id"}
	}
	named := slices.ContainsFunc(report.Divergences, func(d verify.Divergence) bool {
		if slices.Contains(keys[table], column) {
			return d.Table == table && slices.Contains([]verify.Kind{verify.Missing, verify.Surplus, verify.ForeignTenant}, d.Kind)
		}
		return d.Table == table && d.Column == column && (d.Kind == verify.Differs || d.Kind == verify.ForeignTenant)
	})
	require.True(t, named, "%s.%s is not named in\n%s", table, column, text(report))
}

// repairNamed repairs every run that a report names.
func repairNamed(t testing.TB, db *servotest.Database, report verify.Report) {
	t.Helper()
	done := map[store.RunKey]bool{}
	for _, d := range report.Divergences {
		key := store.RunKey{Tenant: d.Tenant, Run: d.Run}
		if done[key] {
			continue
		}
		done[key] = true
		// a row under another tenant goes with the repair of the run's owner
		if _, err := verify.Repair(t.Context(), db.Store, key.Tenant, key.Run); !fault.Is(err, fault.NotFound) && !fault.Is(err, fault.Conflict) {
			require.NoError(t, err)
		}
	}
}

// requireLost: a run whose row has another id is rebuilt, and the row without events is
// left for a person to look at.
func requireLost(t testing.TB, db *servotest.Database, report verify.Report) {
	t.Helper()
	lost := requireFound(t, report, verify.Surplus, "runs", "")
	_, err := verify.Repair(t.Context(), db.Store, lost.Tenant, lost.Run)
	require.True(t, fault.Is(err, fault.Conflict), err)
	missing := requireFound(t, report, verify.Missing, "runs", "")
	_, err = verify.Repair(t.Context(), db.Store, missing.Tenant, missing.Run)
	require.NoError(t, err)
	left := slices.DeleteFunc(look(t, db, verify.Options{}).Divergences, func(d verify.Divergence) bool { return d.Table == "run_totals" })
	require.Len(t, left, 1)
}

// TestRows deletes, duplicates and invents rows: verify finds them and a repair corrects them.
func TestRows(t *testing.T) {
	t.Parallel()
	name := original(t)
	const one = ` WHERE (tableoid, ctid) = (SELECT tableoid, ctid FROM servo.`

	for _, table := range []string{"runs", "live_runs", "tasks", "edges", "waiting", "ready_q", "pool_q", "leases", "retry_q"} {
		t.Run("rows that are deleted from "+table+" are missed and come back, one or all", func(t *testing.T) {
			t.Parallel()
			db := copyOf(t, name)
			for _, which := range []string{one + table + ` LIMIT 1)`, ``} {
				db.Exec(t, `DELETE FROM servo.`+table+which)
				report := look(t, db, verify.Options{})
				requireFound(t, report, verify.Missing, table, "")
				repairNamed(t, db, report)
				requireClean(t, db)
			}
		})
	}

	for _, c := range []struct {
		claim, sql    string
		kind          verify.Kind
		table, column string
		stays         bool // no repair corrects it: it is about the log, or about several runs
	}{
		{
			claim: "a task that no event has made",
			sql: `INSERT INTO servo.tasks (tenant_id, run_id, id, created_at, ix, timeout_s, priority, asset, pool)
				SELECT tenant_id, id, gen_random_uuid(), created_at, 99, 1, 1, 'x', 'x' FROM servo.runs LIMIT 1`,
			kind: verify.Surplus, table: "tasks",
		},
		{
			claim: "an edge that no event has made",
			sql:   `INSERT INTO servo.edges SELECT tenant_id, run_id, id, id FROM servo.tasks LIMIT 1`,
			kind:  verify.Surplus, table: "edges",
		},
		{
			claim: "a task in two queue tables",
			sql: `INSERT INTO servo.pool_q (tenant_id, run_id, task_id, since, version, timeout_s, priority, dependents, pool)
				SELECT tenant_id, run_id, task_id, since, version, timeout_s, priority, dependents, pool FROM servo.ready_q LIMIT 1`,
			kind: verify.Invariant, table: "tasks", column: "state",
		},
		{
			claim: "a task in the wrong queue table",
			sql: `WITH moved AS (DELETE FROM servo.ready_q WHERE ctid = (SELECT ctid FROM servo.ready_q LIMIT 1) RETURNING *)
				INSERT INTO servo.pool_q (tenant_id, run_id, task_id, since, version, timeout_s, priority, dependents, pool)
				SELECT tenant_id, run_id, task_id, since, version, timeout_s, priority, dependents, pool FROM moved`,
			kind: verify.Surplus, table: "pool_q",
		},
		{
			claim: "a queue row of a task that has ended",
			sql: `INSERT INTO servo.ready_q (tenant_id, run_id, task_id, since, version, timeout_s, priority, dependents, pool)
				SELECT tenant_id, run_id, id, created_at, 1, 1, 1, false, 'x' FROM servo.tasks WHERE state = 10 LIMIT 1`,
			kind: verify.Invariant, table: "ready_q",
		},
		{
			claim: "a queue row without its task",
			sql: `INSERT INTO servo.waiting (tenant_id, run_id, task_id, since, version, timeout_s, priority, dependents, pool, unmet)
				SELECT tenant_id, id, gen_random_uuid(), created_at, 1, 1, 1, false, 'x', 1 FROM servo.runs LIMIT 1`,
			kind: verify.Invariant, table: "waiting", column: "task_id",
		},
		{
			claim: "a queue row without its run",
			sql: `INSERT INTO servo.pool_q (tenant_id, run_id, task_id, since, version, timeout_s, priority, dependents, pool)
				SELECT id, gen_random_uuid(), gen_random_uuid(), created_at, 1, 1, 1, false, 'x' FROM servo.tenants LIMIT 1`,
			kind: verify.Surplus, table: "pool_q", column: "run_id",
		},
		{
			claim: "a lock whose run has ended",
			sql: `INSERT INTO servo.live_runs (tenant_id, run_id, workspace_id, created_at, limit_s, priority, pending, lock_key, pipeline)
				SELECT tenant_id, id, workspace_id, created_at, 60, 5, false, 'left behind', pipeline FROM servo.runs WHERE state >= 10 LIMIT 1`,
			kind: verify.Surplus, table: "live_runs",
		},
		{
			claim: "a lock without its run",
			sql: `INSERT INTO servo.live_runs (tenant_id, run_id, workspace_id, created_at, limit_s, priority, pending, lock_key, pipeline)
				SELECT id, gen_random_uuid(), id, created_at, 60, 5, false, 'missing', '' FROM servo.tenants LIMIT 1`,
			kind: verify.Surplus, table: "live_runs", column: "run_id",
		},
		{
			claim: "a cone without its run",
			sql:   `INSERT INTO servo.cones SELECT id, gen_random_uuid() FROM servo.tenants LIMIT 1`,
			kind:  verify.Surplus, table: "cones", column: "run_id",
		},
		{
			claim: "a task of one tenant in another's run",
			sql: `UPDATE servo.tasks SET tenant_id = (SELECT id FROM servo.tenants WHERE name = 'other')
				WHERE id = (SELECT id FROM servo.tasks WHERE tenant_id = (SELECT id FROM servo.tenants WHERE name = 'acme') LIMIT 1)`,
			kind: verify.ForeignTenant, table: "tasks", column: "tenant_id",
		},
		{
			claim: "a lease of one tenant in another's run",
			sql:   `UPDATE servo.leases SET tenant_id = (SELECT id FROM servo.tenants WHERE name = 'other')`,
			kind:  verify.ForeignTenant, table: "leases", column: "tenant_id",
		},
		{
			claim: "a run of two tenants",
			sql: `INSERT INTO servo.runs SELECT (jsonb_populate_record(r, jsonb_build_object('tenant_id', t.id))).*
				FROM servo.runs r, servo.tenants t WHERE t.id <> r.tenant_id LIMIT 1`,
			kind: verify.Invariant, table: "runs", column: "id",
		},
		{
			claim: "a queue row in a run that is being cancelled",
			sql:   `UPDATE servo.runs SET state = 3 WHERE id = (SELECT run_id FROM servo.ready_q LIMIT 1)`,
			kind:  verify.Invariant, table: "ready_q",
		},
		{
			claim: "counters that do not add up",
			sql:   `UPDATE servo.runs SET succeeded = succeeded + 1 WHERE id = (SELECT id FROM servo.runs LIMIT 1)`,
			kind:  verify.Invariant, table: "runs", column: "total",
		},
		{
			claim: "a run that has ended before its last task",
			sql:   `UPDATE servo.runs SET state = 10, finished_at = created_at WHERE state = 2`,
			kind:  verify.Invariant, table: "runs", column: "remaining",
		},
		{
			claim: "a run that has ended without a time",
			sql:   `UPDATE servo.runs SET finished_at = NULL WHERE state >= 10`,
			kind:  verify.Invariant, table: "runs", column: "finished_at",
		},
		{
			claim: "a token that two leases have",
			sql:   `UPDATE servo.leases SET token = (SELECT max(token) FROM servo.leases)`,
			kind:  verify.Invariant, table: "leases", column: "token",
		},
		{
			claim: "a token that was never given out",
			sql:   `UPDATE servo.leases SET token = 1 << 60 WHERE ctid = (SELECT ctid FROM servo.leases LIMIT 1)`,
			kind:  verify.Invariant, table: "leases", column: "token",
		},
		{
			claim: "a sequence of tokens behind the tokens",
			sql:   `SELECT setval('servo.fencing_token', 1)`,
			kind:  verify.Invariant, table: "leases", column: "token", stays: true,
		},
		{
			claim: "a sequence of positions behind the events",
			sql:   `SELECT setval('servo.event_position', 1)`,
			kind:  verify.Invariant, table: "run_events", column: "position", stays: true,
		},
		{
			claim: "a workspace that is gone",
			sql:   `DELETE FROM servo.workspaces WHERE name = 'staging'`,
			kind:  verify.Missing, table: "workspaces", stays: true,
		},
		{
			claim: "a deployment that is gone",
			sql:   `DELETE FROM servo.deployments WHERE id = (SELECT min(id::text)::uuid FROM servo.deployments)`,
			kind:  verify.Missing, table: "deployments", stays: true,
		},
		{
			claim: "a tenant that is gone",
			sql:   `DELETE FROM servo.tenants WHERE name = 'other'`,
			kind:  verify.Missing, table: "tenants", stays: true,
		},
		{
			claim: "a tenant without events",
			sql:   `INSERT INTO servo.tenants SELECT gen_random_uuid(), 'missing', 1, servo.clock()`,
			kind:  verify.Surplus, table: "tenants", stays: true,
		},
	} {
		t.Run(c.claim+" is found", func(t *testing.T) {
			t.Parallel()
			db := copyOf(t, name)
			db.Exec(t, c.sql)
			report := look(t, db, verify.Options{})
			requireFound(t, report, c.kind, c.table, c.column)
			if c.stays {
				return
			}
			repairNamed(t, db, report)
			requireClean(t, db)
		})
	}
}

// TestEvents corrupts the log: nothing repairs it, and verify reports it.
func TestEvents(t *testing.T) {
	t.Parallel()
	name := original(t)
	// of the run that has ended well, the stream of its task: readied events are other runs'
	const claimed = ` WHERE type = 'task.claimed' AND position = (SELECT min(position) FROM servo.run_events WHERE type = 'task.claimed')`
	const created = ` WHERE type = 'run.created' AND position = (SELECT min(position) FROM servo.run_events WHERE type = 'run.created')`
	const columns = `tenant_id, run_id, subject_id, txid, recorded_at`

	for _, c := range []struct {
		claim, sql    string
		kind          verify.Kind
		table, column string
		folds         bool // the events still define the rows, if wrongly
	}{
		{"an event that is gone", `DELETE FROM servo.run_events` + claimed, verify.Stream, "run_events", "version", false},
		{"a duplicate version", `INSERT INTO servo.run_events SELECT * FROM servo.run_events` + claimed, verify.Stream, "run_events", "version", false},
		{"a duplicate position", `UPDATE servo.run_events SET position = (SELECT min(position) FROM servo.run_events)` + claimed, verify.Stream, "run_events", "position", true},
		{"the first event of a run that is gone", `DELETE FROM servo.run_events` + created, verify.Stream, "run_events", "version", false},
		{"the last event of a run that is gone", `DELETE FROM servo.run_events WHERE type = 'run.ended'`, verify.Differs, "runs", "state", false},
		{"a type that is not known", `UPDATE servo.run_events SET type = 'task.dreamt'` + claimed, verify.Undecidable, "run_events", "type", false},
		{"a schema of a newer version", `UPDATE servo.run_events SET schema = 2` + claimed, verify.Undecidable, "run_events", "type", false},
		{"a run's event of a newer version", `UPDATE servo.run_events SET schema = 2` + created, verify.Undecidable, "run_events", "type", false},
		{"a body of another shape", `UPDATE servo.run_events SET data = '{"attempt": "x"}'` + claimed, verify.Undecidable, "run_events", "type", false},
		{"an event of a run in a task's stream", `UPDATE servo.run_events SET type = 'run.started'` + claimed, verify.Undecidable, "run_events", "type", false},
		{"an event of a task in a run's stream", `UPDATE servo.run_events SET type = 'task.queued'` + created, verify.Undecidable, "run_events", "type", false},
		{"a subject that no event has made", `UPDATE servo.run_events SET subject_id = gen_random_uuid()` + claimed, verify.Surplus, "run_events", "subject_id", false},
		{"a time that was changed", `UPDATE servo.run_events SET recorded_at = recorded_at - interval '1 day'` + created, verify.Differs, "runs", "created_at", true},
		{"a run's body that was changed", `UPDATE servo.run_events SET data = jsonb_set(data, '{prio}', '1')` + created, verify.Differs, "runs", "priority", true},
		{
			"an event of another tenant", `UPDATE servo.run_events SET tenant_id = (SELECT id FROM servo.tenants WHERE name = 'other')` + claimed,
			verify.ForeignTenant, "run_events", "tenant_id", false,
		},
		{
			"an event without its run", `UPDATE servo.run_events SET run_id = (left(run_id::text, 24) || '000000000000')::uuid` + claimed,
			verify.Surplus, "run_events", "run_id", false,
		},
		{"an attempt that was counted twice", `UPDATE servo.run_events SET data = jsonb_set(data, '{attempt}', '2')` + claimed, verify.History, "run_events", "data", true},
		{
			"a token that was given twice", `UPDATE servo.run_events SET data = jsonb_set(data, '{token}', '7') WHERE type = 'task.claimed'`,
			verify.Invariant, "run_events", "data", true,
		},
		{
			"what follows the end of a task",
			`INSERT INTO servo.run_events (` + columns + `, version, type, data) SELECT ` + columns + `, version + 1, 'task.queued', '{}'
				FROM servo.run_events WHERE type = 'task.skipped' LIMIT 1`, verify.History, "run_events", "type", false,
		},
		{
			"a run that has ended otherwise", `UPDATE servo.run_events SET data = '{"state": 10}' WHERE type = 'run.ended' AND data = '{"state": 11}'`,
			verify.History, "run_events", "type", true,
		},
		{
			"a task that began before its upstream",
			`INSERT INTO servo.run_events (tenant_id, run_id, subject_id, recorded_at, version, schema, type, data)
				SELECT tenant_id, run_id, task_id, since, version + 1, 1, 'task.readied', '{}' FROM servo.waiting LIMIT 1`,
			verify.History, "run_events", "type", true,
		},
		{"a version of an entity that is gone", `DELETE FROM servo.entity_events WHERE type = 'workspace.created'`, verify.Stream, "entity_events", "version", true},
		{"an entity's type that is not known", `UPDATE servo.entity_events SET type = 'x' WHERE type = 'tenant.created'`, verify.Undecidable, "entity_events", "type", true},
		{
			"an entity that begins twice", `UPDATE servo.entity_events SET type = 'workspace.created', data = '{"name": "x"}' WHERE version = 2`,
			verify.History, "entity_events", "type", true,
		},
		{
			"an entity without its tenant", `UPDATE servo.entity_events SET tenant_id = gen_random_uuid() WHERE type = 'deployment.registered'`,
			verify.Surplus, "entity_events", "tenant_id", true,
		},
	} {
		t.Run(c.claim+" is found", func(t *testing.T) {
			t.Parallel()
			db := copyOf(t, name)
			db.EditEvents(t, c.sql)
			report := look(t, db, verify.Options{})
			found := requireFound(t, report, c.kind, c.table, c.column)
			if c.folds {
				return
			}
			// a repair refuses what it cannot fold
			before := text(report)
			_, err := verify.Repair(t.Context(), db.Store, found.Tenant, found.Run)
			require.True(t, fault.Is(err, fault.Conflict), "%v\n%s", err, before)
			require.Equal(t, before, text(look(t, db, verify.Options{})), "nothing was written")
		})
	}
}
