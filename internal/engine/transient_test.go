package engine_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestTransientErrors: commands outside the lanes run again inside the call after an error that
// undid them, and have one effect.
func TestTransientErrors(t *testing.T) {
	t.Parallel()
	for name, fault := range map[string]string{
		"serialization failure": `RAISE serialization_failure`,
		"deadlock":              `RAISE deadlock_detected`,
		"lost connection":       `PERFORM pg_terminate_backend(pg_backend_pid())`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t)
			b.many(t, 3, true)
			b.db.Exec(t, `UPDATE servo.leases SET expires_at = '2000-01-01', due_at = '2000-01-01'`)
			failOnce(t, b, "ready_q", fault)
			looked, err := b.Expire(t.Context(), 100)
			require.NoError(t, err)
			require.Equal(t, 3, looked)
			require.Equal(t, 3, b.db.Count(t, `SELECT count(*) FROM servo.ready_q WHERE deaths = 1`))
			require.Positive(t, b.db.Count(t, `SELECT last_value FROM faults.ready_q`)-1, "the fault has happened")

			failOnce(t, b, "pool_q", fault)
			require.Equal(t, 3, b.admit(t))
			b.drain(t, succeed)
		})
	}
}

// failOnce makes the first insert into a table fail. A sequence counts: it is not rolled back.
func failOnce(t *testing.T, b *bundle, table, fault string) {
	t.Helper()
	b.db.Exec(t, strings.NewReplacer("TABLE_NAME", table, "FAULT", fault).Replace(`
		CREATE SCHEMA IF NOT EXISTS faults;
		CREATE SEQUENCE faults.TABLE_NAME;
		CREATE FUNCTION faults.TABLE_NAME() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER AS $$ BEGIN
			IF nextval('faults.TABLE_NAME') = 1 THEN
				FAULT;
			END IF;
			RETURN NULL;
		END $$;
		CREATE TRIGGER fails_once AFTER INSERT ON servo.TABLE_NAME FOR EACH STATEMENT EXECUTE FUNCTION faults.TABLE_NAME()`))
}
