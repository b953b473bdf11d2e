package store_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"go.arco.dev/servo/internal/servotest"
	"go.arco.dev/servo/internal/store"
)

// TestSettings: transactions run without jit whatever the database is set to; what they do not set
// themselves is read as it is.
func TestSettings(t *testing.T) {
	t.Parallel()
	db := servotest.DB(t)
	db.Exec(t, `DO $$ BEGIN
		EXECUTE format('ALTER DATABASE %I SET jit = on', current_database());
		EXECUTE format('ALTER DATABASE %I SET synchronous_commit = off', current_database());
		EXECUTE format('ALTER DATABASE %I SET default_transaction_isolation = serializable', current_database());
	END $$`)
	s, err := store.Open(t.Context(), store.Options{URL: db.URL}) // its sessions are new
	require.NoError(t, err)
	t.Cleanup(s.Close)
	require.NoError(t, s.Trace(t.Context(), record))
	settings, err := s.Settings(t.Context())
	require.NoError(t, err)
	want := store.Settings{JIT: "off", Isolation: "serializable", ReadOnly: "off", SynchronousCommit: "off"}
	require.Equal(t, map[string]store.Settings{"engine": want, "tenant": want}, settings)
}
