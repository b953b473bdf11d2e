// Package verifytest lets a test end with one line that proves that its tables equal the event log. It is a package of its own so that servotest does not import what is
// tested with it.
package verifytest

import (
	"bytes"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"go.arco.dev/servo/internal/devkit/devpg"
	"go.arco.dev/servo/internal/devkit/servotest"
	"go.arco.dev/servo/internal/proof/verify"
	"go.arco.dev/servo/internal/store"
)

// Clean verifies the whole database and fails the test if anything diverges from the log.
func Clean(t testing.TB, db *servotest.Database) verify.Report {
	t.Helper()
	report, err := verify.Verify(t.Context(), db.Store, verify.Options{})
	require.NoError(t, err)
	var text strings.Builder
	report.Text(&text)
	require.True(t, report.Clean(), text.String())
	require.Zero(t, db.Count(t, miscounted), "what tenants have in flight is counted right")
	require.Zero(t, db.Count(t, `SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()`), "deadlocks: transactions did not follow the lock order")
	return report
}

// NoDeadlocks fails the test if PostgreSQL has reported a deadlock. It reads the log, because a crash
// resets the counter.
func NoDeadlocks(t testing.TB, postgres *devpg.Server) {
	t.Helper()
	printed, err := postgres.Log()
	require.NoError(t, err)
	if at := bytes.Index(printed, []byte("deadlock detected")); at >= 0 {
		require.Fail(t, "transactions did not follow the lock order", "%s", printed[max(0, at-200):min(len(printed), at+3000)])
	}
}

// miscounted counts the tenants and pools for which admission counts another number of
// tasks is in flight than is queued or leased, or has left and is noted.
const miscounted = `
	SELECT count(*) FROM (
		SELECT tenant_id, pool
		FROM   (SELECT tenant_id, pool, in_flight AS n FROM servo.shares
		        UNION ALL SELECT tenant_id, pool, -left_by FROM servo.settlements
		        UNION ALL SELECT tenant_id, pool, -1 FROM servo.pool_q
		        UNION ALL SELECT tenant_id, pool, -1 FROM servo.leases) AS counted
		GROUP  BY tenant_id, pool
		HAVING sum(n) <> 0) AS wrong`

// Repair requires that verify finds a divergence, and repairs the runs.
func Repair(t testing.TB, db *servotest.Database, runs ...store.RunKey) {
	t.Helper()
	report, err := verify.Verify(t.Context(), db.Store, verify.Options{})
	require.NoError(t, err)
	require.NotEmpty(t, report.Divergences)
	for _, key := range runs {
		_, err := verify.Repair(t.Context(), db.Store, key.Tenant, key.Run)
		require.NoError(t, err)
	}
}
