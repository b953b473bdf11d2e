package store_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"go.arco.dev/servo/internal/devkit/servotest"
	"go.arco.dev/servo/internal/store"
)

// TestSilence: a server that is stopped in the middle of a transaction holds locks that
// all others wait for. It must lose them, and find out when it continues.
func TestSilence(t *testing.T) {
	t.Parallel()
	db := servotest.DB(t)
	duty, err := db.TakeDuty(t.Context(), "admission", "silent", 0)
	require.NoError(t, err)

	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	err = db.Engine(store.Once(ctx), func(ctx context.Context, tx *store.Tx) error {
		require.NoError(t, tx.HoldDuty(ctx, duty))
		// another server can only get the duty when this transaction is over
		if _, err := db.TakeDuty(ctx, "admission", "next", time.Hour); err != nil {
			return err
		}
		_, err := tx.Clock(ctx)
		return err
	})
	require.Error(t, err, "the transaction has lost its locks and must not commit")
	require.NoError(t, ctx.Err(), "the next server waits without end")
	require.Equal(t, store.Away, store.Diagnose(err), "the engine tries again: %v", err)
}
