package servotest

import (
	"strings"
	"testing"
)

// EditEvents changes the log of runs as if each event were a row: sql sees servo.run_events as a
// table of single events, with defaults for position, ordinal, transaction, schema, actor and trace.
// The result is packed again, one row for each position.
func (d *Database) EditEvents(t testing.TB, sql string) {
	t.Helper()
	d.Exec(t, `CREATE TABLE servo.loose_events AS SELECT * FROM servo.run_events;
		ALTER TABLE servo.loose_events ALTER position SET DEFAULT nextval('servo.event_position'), ALTER ordinal SET DEFAULT 1,
			ALTER txid SET DEFAULT pg_current_xact_id(), ALTER schema SET DEFAULT 1, ALTER actor SET DEFAULT '', ALTER trace SET DEFAULT ''`)
	d.Exec(t, strings.ReplaceAll(sql, "servo.run_events", "servo.loose_events"))
	d.Exec(t, `TRUNCATE servo.run_event_rows;
		INSERT INTO servo.run_event_rows (tenant_id, run_id, position, txid, recorded_at, events)
		SELECT tenant_id, run_id, position, txid, recorded_at,
		       jsonb_agg(jsonb_build_object('s', subject_id, 'v', version, 'c', schema, 't', type, 'a', actor, 'x', trace, 'd', data) ORDER BY ordinal)
		FROM   servo.loose_events GROUP BY tenant_id, run_id, position, txid, recorded_at;
		DROP TABLE servo.loose_events`)
}
