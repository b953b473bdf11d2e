package servertest

import (
	"testing"

	"go.arco.dev/servo/internal/daemon"
)

// StartAt starts a server on an existing database and at a gRPC address, or at any if
// that is "": the next one after a server that has stopped.
func StartAt(t testing.TB, databaseURL, grpc string) *Server {
	t.Helper()
	return StartWith(t, daemon.Config{DatabaseURL: databaseURL, GRPC: grpc})
}
