package daemon_test

import (
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"go.arco.dev/servo/internal/daemon"
	"go.arco.dev/servo/internal/devkit/servotest"
)

func TestOpenTransactions(t *testing.T) {
	t.Parallel()
	ctx, url := t.Context(), servotest.DB(t).URL
	conn, err := pgx.Connect(ctx, url)
	require.NoError(t, err)
	defer func() { require.NoError(t, conn.Close(ctx)) }()
	ours := int32(conn.PgConn().PID()) //nolint:gosec // as PostgreSQL itself shows it

	find := func(older time.Duration) (found []daemon.Transaction) {
		all, blind, err := daemon.OpenTransactions(ctx, url, older)
		require.NoError(t, err)
		require.False(t, blind, "a superuser sees all")
		for _, o := range all {
			if o.Process == ours {
				found = append(found, o)
			}
		}
		return found
	}
	require.Empty(t, find(0), "a session without a transaction blocks no other session")
	_, err = conn.Exec(ctx, `SET application_name = 'forgotten'`)
	require.NoError(t, err)
	_, err = conn.Exec(ctx, `BEGIN`)
	require.NoError(t, err)
	found := find(0)
	require.Len(t, found, 1)
	require.True(t, found[0].Idle)
	require.Positive(t, found[0].Age)
	require.Contains(t, found[0].Who, "forgotten")
	require.Empty(t, find(time.Hour), "a young one is left out")
	_, err = conn.Exec(ctx, `ROLLBACK`)
	require.NoError(t, err)
	require.Empty(t, find(0))
}
