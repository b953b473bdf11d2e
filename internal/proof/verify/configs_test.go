package verify_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"go.arco.dev/servo/internal/domain/config"
	"go.arco.dev/servo/internal/domain/run"
	"go.arco.dev/servo/internal/engine"
	"go.arco.dev/servo/internal/proof/verify"
	"go.arco.dev/servo/internal/store"
)

// TestConfigs breaks configs, their events and the ledger of their slots: verify reports
// each contradiction.
func TestConfigs(t *testing.T) {
	t.Parallel()
	name := breakable(t, (*world).scheduled)
	const (
		one    = ` WHERE ctid = (SELECT ctid FROM servo.`
		paused = ` WHERE subject_id = (SELECT id FROM servo.configs WHERE name = 'paused') AND type = 'config.paused'`
	)
	for _, c := range []struct {
		claim, sql    string
		kind          verify.Kind
		table, column string
	}{
		{"a config that is gone", `DELETE FROM servo.configs WHERE name = 'moved'`, verify.Missing, "configs", ""},
		{
			"a config that no event has made",
			`INSERT INTO servo.configs SELECT (jsonb_populate_record(c, jsonb_build_object('id', gen_random_uuid(), 'name', 'x'))).* FROM servo.configs c LIMIT 1`,
			verify.Surplus, "configs", "",
		},
		{
			"a config without its tenant",
			`INSERT INTO servo.configs SELECT (jsonb_populate_record(c, jsonb_build_object('tenant_id', gen_random_uuid()))).* FROM servo.configs c LIMIT 1`,
			verify.Surplus, "configs", "tenant_id",
		},
		{"a config that would fire and is never looked at", `UPDATE servo.configs SET due_at = NULL WHERE name = 'buffered'`, verify.Invariant, "configs", "due_at"},
		{"a config that is paused and looked at", `UPDATE servo.configs SET due_at = servo.clock() WHERE name = 'paused'`, verify.Invariant, "configs", "due_at"},
		{"a config that is disabled and looked at", `UPDATE servo.configs SET due_at = servo.clock() WHERE name = 'failing'`, verify.Invariant, "configs", "due_at"},
		{"a config that is deleted and looked at", `UPDATE servo.configs SET due_at = servo.clock() WHERE name = 'deleted'`, verify.Invariant, "configs", "due_at"},
		{"a config without slots that is looked at", `UPDATE servo.configs SET due_at = servo.clock() WHERE name = 'listening'`, verify.Invariant, "configs", "due_at"},
		{"a moved slot that is forgotten before its time", `UPDATE servo.configs SET moved_to = NULL WHERE name = 'to-move'`, verify.Differs, "configs", "moved_to"},
		{"a moved slot that is kept after its time", `UPDATE servo.configs SET moved_to = last_slot WHERE name = 'moved'`, verify.Differs, "configs", "moved_to"},

		{"an event of a config that is gone", `DELETE FROM servo.entity_events WHERE type = 'config.created'`, verify.Stream, "entity_events", "version"},
		{"a config that is paused twice", `UPDATE servo.entity_events SET type = 'config.paused' WHERE type = 'config.resumed'`, verify.History, "entity_events", "type"},
		{"a config that is resumed without a pause", `UPDATE servo.entity_events SET type = 'config.resumed'` + paused, verify.History, "entity_events", "type"},
		{"a config that is enabled and was", `UPDATE servo.entity_events SET type = 'config.enabled' WHERE type = 'config.disabled'`, verify.History, "entity_events", "type"},
		{"a config that is disabled and was", `UPDATE servo.entity_events SET type = 'config.disabled' WHERE type = 'config.enabled'`, verify.History, "entity_events", "type"},
		{"a config that begins twice", `UPDATE servo.entity_events SET type = 'config.created'` + paused, verify.Undecidable, "entity_events", "type"},
		{
			"an event of a workspace in a config's stream", `UPDATE servo.entity_events SET type = 'workspace.created', data = '{"name": "x"}'` + paused,
			verify.Undecidable, "entity_events", "type",
		},
		{
			"an event of a config in a tenant's stream",
			`INSERT INTO servo.entity_events (tenant_id, subject_id, recorded_at, version, schema, type, data)
				SELECT id, id, created_at, version + 1, 1, 'config.paused', '{}' FROM servo.tenants`,
			verify.Undecidable, "entity_events", "type",
		},
		{
			"a config of no workspace", `UPDATE servo.entity_events SET data = jsonb_set(data, '{workspace}', to_jsonb(gen_random_uuid())) WHERE type = 'config.created'`,
			verify.History, "entity_events", "data",
		},

		{"a run whose slot is not in the ledger", `DELETE FROM servo.slots` + one + `slots LIMIT 1)`, verify.Invariant, "runs", "slot_at"},
		{"a slot whose run is another", `UPDATE servo.slots SET run_id = gen_random_uuid()` + one + `slots LIMIT 1)`, verify.Invariant, "slots", "run_id"},
		{"a run that two slots have made", `INSERT INTO servo.slots SELECT tenant_id, config_id, slot_at + interval '1 second', run_id, decided_at, '' FROM servo.slots LIMIT 1`, verify.Invariant, "slots", "run_id"},
		{
			"a slot that fired and did not",
			`INSERT INTO servo.slot_ranges SELECT tenant_id, config_id, slot_at - interval '1 second', slot_at, 2, 7, '', 1, NULL, decided_at, '' FROM servo.slots LIMIT 1`,
			verify.Invariant, "slots", "slot_at",
		},
		{
			"ranges that overlap",
			`INSERT INTO servo.slot_ranges SELECT tenant_id, config_id, to_at + interval '1 second', to_at + interval '2 seconds', 2, 7, '', 1, NULL, decided_at, '' FROM servo.slot_ranges LIMIT 1;
			UPDATE servo.slot_ranges SET to_at = to_at + interval '1 second'`,
			verify.Invariant, "slot_ranges", "from_at",
		},
		{"slots without their config", `UPDATE servo.slots SET config_id = gen_random_uuid()` + one + `slots LIMIT 1)`, verify.Surplus, "slots", "config_id"},
		{"ranges without their config", `UPDATE servo.slot_ranges SET config_id = gen_random_uuid()` + one + `slot_ranges LIMIT 1)`, verify.Surplus, "slot_ranges", "config_id"},
	} {
		t.Run(c.claim+" is found", func(t *testing.T) {
			t.Parallel()
			db := copyOf(t, name)
			db.Exec(t, c.sql)
			requireFound(t, look(t, db, verify.Options{}), c.kind, c.table, c.column)
		})
	}

	t.Run("slots outlive the months of their runs", func(t *testing.T) {
		t.Parallel()
		db := copyOf(t, name)
		db.Exec(t, `UPDATE servo.slots SET decided_at = decided_at - interval '2 years', run_id = gen_random_uuid()`+one+`slots LIMIT 1)`)
		report := look(t, db, verify.Options{})
		for _, d := range report.Divergences {
			require.NotEqual(t, "slots", d.Table, d.String())
		}
	})

	t.Run("another tenant's ledger is not looked at", func(t *testing.T) {
		t.Parallel()
		db := copyOf(t, name)
		db.Exec(t, `DELETE FROM servo.slots`)
		acme := value(db.TenantByName(t.Context(), "acme"))(t)
		require.Zero(t, look(t, db, verify.Options{Tenant: &acme}).Found)
		owner := value(db.TenantByName(t.Context(), scheduledTenant))(t)
		require.NotZero(t, look(t, db, verify.Options{Tenant: &owner}).Found)
	})
}

func TestRepairOfConfigsRuns(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	c := w.calendar(t, scheduledTenant)
	c.save(t, "buffered", hourly("hourly", config.OverlapBufferAll), nil)
	w.later(t, time.Hour)
	require.Equal(t, 1, c.fire(t))
	first := w.one(t, "hourly")
	w.later(t, time.Hour)
	require.Equal(t, 1, c.fire(t))
	const rows = `SELECT count(*) FROM servo.runs r JOIN servo.slots s ON s.run_id = r.id AND s.slot_at = r.slot_at AND s.config_id = r.config_id`
	require.Equal(t, 2, w.db.Count(t, rows))
	require.Equal(t, 1, w.db.Count(t, `SELECT count(*) FROM servo.live_runs WHERE wait_key <> '' AND lock_key = ''`))

	w.db.Exec(t, `DELETE FROM servo.runs; DELETE FROM servo.live_runs`)
	report := look(t, w.db, verify.Options{})
	requireFound(t, report, verify.Missing, "runs", "")
	repairNamed(t, w.db, report)
	requireClean(t, w.db)
	require.Equal(t, 2, w.db.Count(t, rows), "each has its slot")
	require.Equal(t, 1, w.db.Count(t, `SELECT count(*) FROM servo.live_runs WHERE wait_key <> '' AND lock_key = ''`), "one waits for its lock")
	require.Equal(t, 2, w.db.Count(t, `SELECT count(*) FROM servo.live_runs WHERE config_id IS NOT NULL`))

	require.Zero(t, value(w.StartRuns(t.Context(), w.duty, 10))(t), "while another holds it")
	w.report(t, first, engine.Complete{})
	require.Equal(t, 1, value(w.StartRuns(t.Context(), w.duty, 10))(t))
	last := w.one(t, "hourly")
	w.report(t, last, engine.Complete{})
	require.Equal(t, run.RunSucceeded, w.state(t, store.RunKey{Tenant: last.Tenant, Run: last.Run}))
	requireClean(t, w.db)
}
