package verify_test

import (
	"testing"

	"go.arco.dev/servo/internal/proof/verify"
)

// TestAlerts breaks alerts, channels and their events: verify reports each contradiction.
func TestAlerts(t *testing.T) {
	t.Parallel()
	name := breakable(t, (*world).scheduled)
	for _, c := range []struct {
		claim, sql    string
		kind          verify.Kind
		table, column string
	}{
		{"an alert that is gone", `DELETE FROM servo.alerts WHERE kind = 'PIPELINE_DISABLED'`, verify.Missing, "alerts", ""},
		{"an alert of the installation that is gone", `DELETE FROM servo.alerts WHERE kind = 'SCHEDULE_LAG'`, verify.Missing, "alerts", ""},
		{"an alert that is over too early", `UPDATE servo.alerts SET resolved_at = raised_at WHERE resolved_at IS NULL`, verify.Differs, "alerts", "resolved_at"},
		{"an alert that is about another", `UPDATE servo.alerts SET about_id = gen_random_uuid()`, verify.Differs, "alerts", "about_id"},
		{
			"an alert that no event has raised",
			`INSERT INTO servo.alerts SELECT (jsonb_populate_record(a, jsonb_build_object('id', gen_random_uuid(), 'kind', 'X'))).* FROM servo.alerts a LIMIT 1`,
			verify.Surplus, "alerts", "",
		},
		{
			"an alert without its tenant",
			`INSERT INTO servo.alerts SELECT (jsonb_populate_record(a, jsonb_build_object('tenant_id', gen_random_uuid()))).* FROM servo.alerts a LIMIT 1`,
			verify.Surplus, "alerts", "tenant_id",
		},
		{
			"an alert that is raised twice", `UPDATE servo.entity_events SET type = 'alert.raised' WHERE type = 'alert.resolved'`,
			verify.Undecidable, "entity_events", "type",
		},
		{"a channel that is gone", `DELETE FROM servo.alert_channels WHERE name = 'operators'`, verify.Missing, "alert_channels", ""},
		{"a channel that calls another URL", `UPDATE servo.alert_channels SET url = 'https://example.com/evil'`, verify.Differs, "alert_channels", "url"},
		{"a channel that lives on", `UPDATE servo.alert_channels SET deleted_at = NULL`, verify.Differs, "alert_channels", "deleted_at"},
	} {
		t.Run(c.claim+" is found", func(t *testing.T) {
			t.Parallel()
			db := copyOf(t, name)
			db.Exec(t, c.sql)
			requireFound(t, look(t, db, verify.Options{}), c.kind, c.table, c.column)
		})
	}
}
