package servertest

import (
	"testing"

	"go.arco.dev/servo/internal/base/telemetry"
	"go.arco.dev/servo/internal/daemon"
)

// StartTraced starts a server that sends its traces there, nil for nowhere.
func StartTraced(t testing.TB, database string, traces *telemetry.Traces) *Server {
	t.Helper()
	return StartWith(t, daemon.Config{DatabaseURL: database, Traces: traces})
}
