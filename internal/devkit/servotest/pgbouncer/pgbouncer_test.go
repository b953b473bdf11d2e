package pgbouncer_test

import (
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"go.arco.dev/servo/internal/devkit/servotest"
	"go.arco.dev/servo/internal/devkit/servotest/pgbouncer"
)

// TestTransactionMode: what a session would remember is gone with the transaction, or found by
// another client. A test through a pooler that kept sessions would prove nothing.
func TestTransactionMode(t *testing.T) {
	t.Parallel()
	url := pgbouncer.Start(t, servotest.DB(t).URL, 2)
	connect := func() *pgx.Conn {
		conn, err := pgx.Connect(t.Context(), url)
		require.NoError(t, err)
		t.Cleanup(func() { _ = conn.Close(t.Context()) })
		return conn
	}
	backend := func(tx pgx.Tx) (pid int) {
		require.NoError(t, tx.QueryRow(t.Context(), `SELECT pg_backend_pid()`, pgx.QueryExecModeSimpleProtocol).Scan(&pid))
		return pid
	}
	a, b := connect(), connect()
	begin := func(c *pgx.Conn) pgx.Tx {
		tx, err := c.Begin(t.Context())
		require.NoError(t, err)
		return tx
	}

	first := begin(a)
	pid := backend(first)
	require.NoError(t, first.Commit(t.Context()))
	taken := begin(b)
	require.Equal(t, pid, backend(taken), "the connection went to the next who asked")
	again := begin(a)
	require.NotEqual(t, pid, backend(again), "and this one got another")
	require.NoError(t, taken.Commit(t.Context()))
	require.NoError(t, again.Commit(t.Context()))
}
