package daemon_test

import (
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"go.arco.dev/servo/internal/daemon"
	"go.arco.dev/servo/internal/devkit/servotest"
)

func TestReadGuard(t *testing.T) {
	t.Parallel()
	database := servotest.DB(t)
	guard, err := daemon.ReadGuard(t.Context(), database.URL)
	require.NoError(t, err)
	require.NotEmpty(t, guard.Login)
	require.True(t, guard.Superuser, "that of the tests is")
	require.Empty(t, guard.Open)
	require.Empty(t, guard.Roles)

	conn, err := pgx.Connect(t.Context(), database.URL)
	require.NoError(t, err)
	_, err = conn.Exec(t.Context(), `ALTER TABLE servo.tenants NO FORCE ROW LEVEL SECURITY; ALTER TABLE servo.configs DISABLE ROW LEVEL SECURITY`)
	require.NoError(t, err)
	require.NoError(t, conn.Close(t.Context()))
	guard, err = daemon.ReadGuard(t.Context(), database.URL)
	require.NoError(t, err)
	require.Equal(t, []string{"configs", "tenants"}, guard.Open)
}
