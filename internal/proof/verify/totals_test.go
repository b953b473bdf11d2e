package verify_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"go.arco.dev/servo/internal/proof/verify"
)

// TestTotals spoils each sum, and what sums are made of.
func TestTotals(t *testing.T) {
	t.Parallel()
	name := original(t)
	const one = ` WHERE ctid = (SELECT ctid FROM servo.run_totals WHERE ended > 0 LIMIT 1)`

	for _, column := range []string{"ended", "succeeded", "failed", "timed_out", "cancelled", "started", "seconds", "breached", "breaches"} {
		t.Run("another number in "+column+" is found", func(t *testing.T) {
			t.Parallel()
			for _, table := range []string{"run_totals", "run_deltas"} {
				db := copyOf(t, name)
				db.Exec(t, `UPDATE servo.`+table+` SET `+column+` = `+column+` + 1 WHERE ctid = (SELECT ctid FROM servo.`+table+` LIMIT 1)`)
				report := look(t, db, verify.Options{})
				d := requireFound(t, report, verify.Invariant, "run_totals", column)
				require.Equal(t, 1, report.Found, text(report))
				require.Equal(t, 1, look(t, db, verify.Options{Tenant: &d.Tenant}).Found)
			}
		})
	}

	for _, c := range []struct{ claim, sql, column string }{
		{"a row of totals that is gone", `DELETE FROM servo.run_totals` + one, "ended"},
		{"what was not merged, and is gone", `DELETE FROM servo.run_deltas WHERE ended > 0`, "ended"},
		{"totals of another day", `UPDATE servo.run_totals SET day = day - 1` + one, "ended"},
		{"totals of other labels", `UPDATE servo.run_totals SET labels = 'missing'` + one, "ended"},
		{"what was merged twice", `INSERT INTO servo.run_deltas (tenant_id, day, labels, ended, succeeded, failed, timed_out, cancelled, started, seconds, breached, breaches)
			SELECT tenant_id, day, labels, 1, 1, 0, 0, 0, 0, 0, 0, 0 FROM servo.run_totals LIMIT 1`, "succeeded"},
		{"a breach that was not counted", `UPDATE servo.run_totals SET breaches = 0; UPDATE servo.run_deltas SET breaches = 0`, "breaches"},
	} {
		t.Run(c.claim+" is found", func(t *testing.T) {
			t.Parallel()
			db := copyOf(t, name)
			db.Exec(t, c.sql)
			requireFound(t, look(t, db, verify.Options{}), verify.Invariant, "run_totals", c.column)
		})
	}
}

// TestBreaches corrupts the events about promises.
func TestBreaches(t *testing.T) {
	t.Parallel()
	name := original(t)
	const late = `(SELECT e.run_id FROM servo.run_events e JOIN servo.runs r ON r.id = e.run_id
		WHERE e.type = 'run.breached' AND e.data->>'sla' = 'start_delay' AND r.state = 10 LIMIT 1)`

	for _, c := range []struct{ claim, sql string }{
		{
			"a breach without an event",
			`CREATE TABLE servo.kept AS SELECT e.run_id, e.version FROM servo.run_events e WHERE e.type = 'run.breached' AND e.run_id = ` + late + `;
			DELETE FROM servo.run_events e USING servo.kept k WHERE e.run_id = k.run_id AND e.type = 'run.breached';
			UPDATE servo.run_events e SET version = e.version - 1 FROM servo.kept k WHERE e.subject_id = k.run_id AND e.version > k.version;
			UPDATE servo.runs r SET version = r.version - 1, late = false FROM servo.kept k WHERE r.id = k.run_id`,
		},
		{
			"a breach of a run that had begun in time",
			`UPDATE servo.run_events SET recorded_at = '2000-01-01', position = -position
			WHERE type = 'task.claimed' AND run_id = ` + late,
		},
		{
			"a breach of a run that has ended",
			`INSERT INTO servo.run_events (tenant_id, run_id, subject_id, recorded_at, version, schema, type, data)
			SELECT r.tenant_id, r.id, r.id, r.finished_at, r.version + 1, 1, 'run.breached', '{"sla": "execution"}' FROM servo.runs r WHERE r.state = 10 LIMIT 1`,
		},
	} {
		t.Run(c.claim+" is found", func(t *testing.T) {
			t.Parallel()
			db := copyOf(t, name)
			db.EditEvents(t, c.sql)
			requireFound(t, look(t, db, verify.Options{}), verify.History, "run_events", "type")
		})
	}

	t.Run("a breach that is recorded twice cannot be folded", func(t *testing.T) {
		t.Parallel()
		db := copyOf(t, name)
		db.EditEvents(t, `INSERT INTO servo.run_events (tenant_id, run_id, subject_id, recorded_at, version, schema, type, data)
			SELECT e.tenant_id, e.run_id, e.subject_id, e.recorded_at, r.version + 1, e.schema, e.type, e.data
			FROM   servo.run_events e JOIN servo.runs r ON r.id = e.run_id WHERE e.type = 'run.breached' AND r.state < 3 LIMIT 1`)
		requireFound(t, look(t, db, verify.Options{}), verify.Undecidable, "run_events", "type")
	})
}
