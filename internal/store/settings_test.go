package store_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"go.arco.dev/servo/internal/devkit/servotest"
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

// TestAllowPause: a transaction of the engine that is idle for two seconds is ended, unless it may
// pause for longer.
func TestAllowPause(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for allowed, want := range map[bool]string{false: "2s", true: "30s"} {
		w.engine(t, func(tx *Tx) {
			if allowed {
				require.NoError(t, tx.AllowPause(t.Context(), 30*time.Second))
			}
			var is string
			require.NoError(t, tx.Raw().QueryRow(t.Context(), `SELECT current_setting('idle_in_transaction_session_timeout')`).Scan(&is))
			require.Equal(t, want, is)
		})
	}
}
