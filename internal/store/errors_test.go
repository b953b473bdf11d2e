package store_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/require"

	"go.arco.dev/servo/internal/store"
)

func TestDiagnose(t *testing.T) {
	t.Parallel()
	code := func(code string) error { return fmt.Errorf("insert tasks: %w", &pgconn.PgError{Code: code}) }
	for name, c := range map[string]struct {
		err  error
		want store.Trouble
	}{
		"deadlock":                       {code("40P01"), store.Collided},
		"serialization":                  {code("40001"), store.Collided},
		"lock timeout":                   {code("55P03"), store.Collided},
		"server shuts down":              {code("57P01"), store.Away},
		"too many connections":           {code("53300"), store.Away},
		"silent for too long":            {code("25P03"), store.Away},
		"connection failure":             {code("08006"), store.Away},
		"broken pipe":                    {&net.OpError{Op: "write", Err: errors.New("broken pipe")}, store.Away},
		"end of file":                    {fmt.Errorf("receive: %w", io.ErrUnexpectedEOF), store.Away},
		"deadline":                       {context.DeadlineExceeded, store.Away},
		"commit became rollback":         {pgx.ErrTxCommitRollback, store.Away},
		"a number out of range":          {code("22003"), store.Poisoned},
		"a violated check":               {code("23514"), store.Poisoned},
		"a statement too complex":        {code("54001"), store.Poisoned},
		"another number of rows":         {fmt.Errorf("x: %w", &store.MismatchError{}), store.Poisoned},
		"a caller that went away":        {context.Canceled, store.Broken},
		"a mistake in SQL":               {code("42601"), store.Broken},
		"a right that the role has not":  {code("42501"), store.Broken},
		"anything else, which is ours":   {errors.New("nil map"), store.Broken},
		"a statement that was cancelled": {code("57014"), store.Broken},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			require.Equal(t, c.want, store.Diagnose(c.err))
		})
	}

	t.Run("a database that cannot be reached is unavailable", func(t *testing.T) {
		t.Parallel()
		_, err := store.Open(t.Context(), store.Options{URL: "postgres://127.0.0.1:1/servo?connect_timeout=5"})
		require.ErrorContains(t, err, "reach the database")
		require.Equal(t, store.Away, store.Diagnose(err))
		_, err = store.Open(t.Context(), store.Options{URL: "postgres://%"})
		require.ErrorContains(t, err, "is not the URL of a database")
	})
}

func TestIsLockTaken(t *testing.T) {
	t.Parallel()
	broken := func(code, constraint string) error {
		return fmt.Errorf("update live_runs: %w", &pgconn.PgError{Code: code, ConstraintName: constraint})
	}
	require.True(t, store.IsLockTaken(broken("23505", "live_runs_lock")))
	require.False(t, store.IsLockTaken(broken("23505", "live_runs_pkey")), "another key")
	require.False(t, store.IsLockTaken(broken("23514", "live_runs_lock")), "another rule")
	require.False(t, store.IsLockTaken(errors.New("live_runs_lock")))
	require.False(t, store.IsLockTaken(nil))
}

func TestStats(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	a := w.account(t, "acme")
	before := w.Stats()
	w.newRun(t, a, nil, nil, []int32{0})
	after := w.Stats()
	require.EqualValues(t, 1, after.Transactions-before.Transactions)
	// begin with the role, runs, live_runs, tasks, edges, waiting, ready_q, a note for admission, events, commit
	require.EqualValues(t, 10, after.Statements-before.Statements)

	upstreams := make([][]int32, 100)
	for i := range upstreams[:99] {
		upstreams[i+1] = []int32{int32(i)}
	}
	w.newRun(t, a, nil, upstreams...)
	require.EqualValues(t, 10, w.Stats().Statements-after.Statements, "as many for a hundred tasks as for two")
}
