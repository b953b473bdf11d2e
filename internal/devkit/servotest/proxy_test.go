package servotest_test

import (
	"context"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"go.arco.dev/servo/internal/devkit/servotest"
)

func TestProxy(t *testing.T) {
	t.Parallel()
	setup := func(t *testing.T) (*servotest.Database, *servotest.FaultProxy) {
		t.Helper()
		db := servotest.DB(t)
		db.Exec(t, `CREATE TABLE notes (text text)`)
		return db, servotest.Proxy(t, db.URL)
	}
	// note writes through the proxy, in a transaction of its own.
	note := func(t *testing.T, url, text string) error {
		t.Helper()
		conn, err := pgx.Connect(t.Context(), url)
		if err != nil {
			return err
		}
		defer func() { _ = conn.Close(context.Background()) }()
		return pgx.BeginFunc(t.Context(), conn, func(tx pgx.Tx) error {
			_, err := tx.Exec(t.Context(), `INSERT INTO notes VALUES ($1)`, text)
			return err
		})
	}

	t.Run("what it has no fate for passes", func(t *testing.T) {
		t.Parallel()
		db, p := setup(t)
		require.NoError(t, note(t, p.URL, "a"))
		require.Equal(t, 1, db.Count(t, `SELECT count(*) FROM notes`))
		require.Zero(t, p.Cuts())
	})

	t.Run("a connection cut before its COMMIT has written nothing", func(t *testing.T) {
		t.Parallel()
		db, p := setup(t)
		p.Next(1, servotest.CutBefore)
		require.Error(t, note(t, p.URL, "a"))
		require.Equal(t, 1, p.Cuts())
		require.Zero(t, db.Count(t, `SELECT count(*) FROM notes`))
		require.NoError(t, note(t, p.URL, "b"), "the next one passes")
	})

	t.Run("a connection cut after its COMMIT has written all", func(t *testing.T) {
		t.Parallel()
		db, p := setup(t)
		p.Next(2, servotest.CutAfter)
		require.Error(t, note(t, p.URL, "a"))
		require.Equal(t, 1, db.Count(t, `SELECT count(*) FROM notes`))
		require.Error(t, note(t, p.URL, "b"))
		require.NoError(t, note(t, p.URL, "c"))
		require.Equal(t, 3, db.Count(t, `SELECT count(*) FROM notes`))
		require.Equal(t, 2, p.Cuts())
	})

	t.Run("a transaction that was broken before its COMMIT is not taken for a committed one", func(t *testing.T) {
		t.Parallel()
		_, p := setup(t)
		p.Next(1, servotest.CutAfter)
		conn, err := pgx.Connect(t.Context(), p.URL)
		require.NoError(t, err)
		defer func() { _ = conn.Close(context.Background()) }()
		tx, err := conn.Begin(t.Context())
		require.NoError(t, err)
		_, err = tx.Exec(t.Context(), `SELECT no_such_column`)
		require.Error(t, err)
		require.ErrorIs(t, tx.Commit(t.Context()), pgx.ErrTxCommitRollback)
		require.NoError(t, conn.Ping(t.Context()), "the connection lives")
		require.Zero(t, p.Cuts())
	})

	t.Run("all connections can be cut, and new ones refused", func(t *testing.T) {
		t.Parallel()
		_, p := setup(t)
		conn, err := pgx.Connect(t.Context(), p.URL)
		require.NoError(t, err)
		p.CutAll()
		require.Error(t, conn.Ping(t.Context()))
		p.Refuse(true)
		require.Error(t, note(t, p.URL, "a"))
		p.Refuse(false)
		require.NoError(t, note(t, p.URL, "b"))
		require.Equal(t, 1, p.Cuts())
	})
}
