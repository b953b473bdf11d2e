package store_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"go.arco.dev/servo/internal/base/fault"
	"go.arco.dev/servo/internal/devkit/servotest"
	"go.arco.dev/servo/internal/devkit/servotest/pgbouncer"
	"go.arco.dev/servo/internal/store"
)

// TestPoolerIsNoticed: through a pooler that is not configured, a server would fail with
// "prepared statement already exists" without end.
func TestPoolerIsNoticed(t *testing.T) {
	t.Parallel()
	through := pgbouncer.Start(t, servotest.DB(t).URL, 2)
	_, err := store.Open(t.Context(), store.Options{URL: through})
	require.True(t, fault.Is(err, fault.InvalidArgument), err)
	require.ErrorContains(t, err, "leads to a connection pooler")
	pooled, err := store.Open(t.Context(), store.Options{URL: through, Pooler: true})
	require.NoError(t, err)
	defer pooled.Close()
	require.NoError(t, pooled.Engine(t.Context(), func(ctx context.Context, tx *Tx) error {
		_, err := tx.Clock(ctx)
		return err
	}))
}
