package daemon_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"go.arco.dev/servo/internal/daemon"
	"go.arco.dev/servo/internal/devkit/servotest"
)

// TestLoginRoles: what doctor asks of the login role, with roles as administrators create them.
func TestLoginRoles(t *testing.T) {
	t.Parallel()
	db := servotest.DB(t)
	db.Exec(t, `INSERT INTO servo.tenants (id, name, version, created_at) VALUES (gen_random_uuid(), 'acme', 1, now())`)
	careful := db.Login(t, "NOINHERIT", "servo_engine, servo_tenant")
	guard, err := daemon.ReadGuard(t.Context(), careful)
	require.NoError(t, err)
	require.Empty(t, guard.Inherits)
	require.Zero(t, guard.Sees)
	require.Empty(t, guard.Roles, "the roles of transactions have no members")

	careless := db.Login(t, "INHERIT", "servo_engine, servo_tenant, pg_read_all_stats")
	guard, err = daemon.ReadGuard(t.Context(), careless)
	require.NoError(t, err)
	require.Equal(t, []string{"servo_engine", "servo_tenant"}, guard.Inherits)
	require.Equal(t, 1, guard.Sees, "it reads tenants without taking a role")

	forgotten := db.Connect(t)
	_, err = forgotten.Exec(t.Context(), `BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT FROM servo.tenants`)
	require.NoError(t, err)
	_, blind, err := daemon.OpenTransactions(t.Context(), careful, 0)
	require.NoError(t, err)
	require.True(t, blind)
	open, blind, err := daemon.OpenTransactions(t.Context(), careless, 0)
	require.NoError(t, err)
	require.False(t, blind)
	holds := false
	for _, o := range open {
		holds = holds || o.Process == int32(forgotten.PgConn().PID()) && o.Idle && o.Holds //nolint:gosec // as PostgreSQL itself shows it
	}
	require.True(t, holds, "a transaction of another role that holds the feed back")
}
