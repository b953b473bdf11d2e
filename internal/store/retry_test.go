package store_test

import (
	"context"
	"errors"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"go.arco.dev/servo/internal/devkit/servotest"
	"go.arco.dev/servo/internal/store"
)

// TestTransientErrors: what PostgreSQL or the network undid is done again inside the call, as
// long as it is certain that nothing was committed.
func TestTransientErrors(t *testing.T) {
	t.Parallel()
	type body func(ctx context.Context, tx *Tx) error
	setup := func(t *testing.T) *world {
		t.Helper()
		w := newWorld(t)
		w.Exec(t, `CREATE TABLE servo.done (n int); GRANT ALL ON servo.done TO servo_engine`)
		return w
	}
	// cut ends the connection of a transaction, as a failover does.
	cut := func(t *testing.T, w *world, tx *Tx) {
		t.Helper()
		pid := tx.Raw().Conn().PgConn().PID()
		require.Equal(t, 1, w.Count(t, `SELECT count(*) FROM (SELECT pg_terminate_backend($1)) AS ended`, pid))
	}
	enter := map[string]func(w *world, ctx context.Context, fn body) error{
		"Engine":   func(w *world, ctx context.Context, fn body) error { return w.Engine(ctx, fn) },
		"Snapshot": func(w *world, ctx context.Context, fn body) error { return w.Snapshot(ctx, fn) },
		"Tenant": func(w *world, ctx context.Context, fn body) error {
			return w.Tenant(ctx, w.account(t, "acme").tenant.String(), fn)
		},
	}
	for name, in := range enter {
		t.Run(name+" survives a connection that is cut", func(t *testing.T) {
			t.Parallel()
			w, tries := setup(t), 0
			require.NoError(t, in(w, t.Context(), func(ctx context.Context, tx *Tx) error {
				if tries++; tries == 1 {
					cut(t, w, tx)
				}
				_, err := tx.Clock(ctx)
				return err
			}))
			require.Equal(t, 2, tries)
			require.EqualValues(t, 1, w.Stats().Retries)
		})
	}

	t.Run("a write whose connection is cut before the commit is done once", func(t *testing.T) {
		t.Parallel()
		w, tries := setup(t), 0
		require.NoError(t, w.Engine(t.Context(), func(ctx context.Context, tx *Tx) error {
			if _, err := tx.Raw().Exec(ctx, `INSERT INTO servo.done VALUES (1)`); err != nil {
				return err
			}
			if tries++; tries == 1 {
				cut(t, w, tx)
				_, err := tx.Clock(ctx)
				return err
			}
			return nil
		}))
		require.Equal(t, 1, w.Count(t, `SELECT count(*) FROM servo.done`))
	})

	t.Run("a write whose commit was not answered is left to the caller", func(t *testing.T) {
		t.Parallel()
		w, tries := setup(t), 0
		err := w.Engine(t.Context(), func(ctx context.Context, tx *Tx) error {
			tries++
			_, err := tx.Raw().Exec(ctx, `INSERT INTO servo.done VALUES (1)`)
			cut(t, w, tx) // the next that is sent is the commit
			return err
		})
		require.Equal(t, store.Away, store.Diagnose(err))
		require.Equal(t, 1, tries)
	})

	t.Run("transactions that wait for each other both go through, and are counted", func(t *testing.T) {
		t.Parallel()
		w := setup(t)
		var both, done sync.WaitGroup
		both.Add(2)
		lock := func(ctx context.Context, tx *Tx, key int) error {
			_, err := tx.Raw().Exec(ctx, `SELECT pg_advisory_xact_lock($1)`, key)
			return err
		}
		for i := range 2 {
			done.Go(func() {
				tries := 0
				err := w.Engine(t.Context(), func(ctx context.Context, tx *Tx) error {
					if err := lock(ctx, tx, i); err != nil {
						return err
					}
					if tries++; tries == 1 {
						both.Done()
						both.Wait()
					}
					return lock(ctx, tx, 1-i)
				})
				if err != nil {
					t.Error(err)
				}
			})
		}
		done.Wait()
		require.EqualValues(t, 1, w.Stats().Deadlocks)
	})

	t.Run("an effect under the claim of a call is tried again as a whole", func(t *testing.T) {
		t.Parallel()
		w, tries := setup(t), 0
		a := w.account(t, "acme")
		claim := w.CallTx(store.Call{Tenant: a.tenant, Key: "k"})
		defer claim.Abandon(t.Context())
		require.NoError(t, w.Engine(claim.With(t.Context()), func(ctx context.Context, tx *Tx) error {
			if tries++; tries == 1 {
				cut(t, w, tx)
			}
			_, err := tx.Clock(ctx)
			return err
		}))
		require.Equal(t, 2, tries)
	})

	t.Run("other errors, and what is to be tried once, are not repeated", func(t *testing.T) {
		t.Parallel()
		w, tries := setup(t), 0
		failed := errors.New("failed")
		require.ErrorIs(t, w.Engine(t.Context(), func(context.Context, *Tx) error { tries++; return failed }), failed)
		require.Equal(t, 1, tries)
		err := w.Engine(store.Once(t.Context()), func(ctx context.Context, tx *Tx) error {
			tries++
			cut(t, w, tx)
			_, err := tx.Clock(ctx)
			return err
		})
		require.Equal(t, store.Away, store.Diagnose(err))
		require.Equal(t, 2, tries)
		require.Equal(t, "22012", servotest.SQLState(w.Engine(t.Context(), func(ctx context.Context, tx *Tx) error {
			_, err := tx.Raw().Exec(ctx, `SELECT 1/0`)
			return err
		})))
	})
}
