package servertest

import (
	"testing"

	"go.arco.dev/servo/internal/daemon"
	"go.arco.dev/servo/internal/devkit/servotest"
	"go.arco.dev/servo/internal/devkit/servotest/certs"
)

// StartEncrypted starts a server that shows a certificate, and asks workers for one of an
// authority if that is named.
func StartEncrypted(t testing.TB, pair certs.Pair, clientCA string) *Server {
	t.Helper()
	return StartWith(t, daemon.Config{DatabaseURL: servotest.DB(t).URL, TLS: daemon.TLS{Cert: pair.Cert, Key: pair.Key, ClientCA: clientCA}})
}
