package cli

import (
	"crypto/x509"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"go.arco.dev/servo/internal/daemon"
	"go.arco.dev/servo/internal/store"
)

func TestProductionFindings(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	ago := func(d time.Duration) *time.Time { at := now.Add(-d); return &at }
	good := daemon.Guard{Login: "servo", Fsync: true, FullPages: true, Archives: true, Archived: ago(time.Minute)}
	with := func(change func(*daemon.Guard)) daemon.Guard { g := good; change(&g); return g }

	for _, c := range []struct {
		claim string
		found finding
		want  verdict
	}{
		{"policies that bind every role", checkRowSecurity(good), passed},
		{"a table without forced policies", checkRowSecurity(with(func(g *daemon.Guard) { g.Open = []string{"runs"} })), failed},
		{"a role of transactions that may log in", checkRowSecurity(with(func(g *daemon.Guard) { g.Roles = []string{"servo_tenant"} })), failed},
		{"a login of its own", checkLoginRole(good), passed},
		{"a superuser", checkLoginRole(with(func(g *daemon.Guard) { g.Superuser = true })), failed},
		{"a login that inherits", checkLoginRole(with(func(g *daemon.Guard) { g.Inherits = []string{"servo_engine"} })), failed},
		{"a login that sees rows", checkLoginRole(with(func(g *daemon.Guard) { g.Sees = 1 })), failed},
		{"a login that passes by the policies", checkLoginRole(with(func(g *daemon.Guard) { g.BypassRLS = true })), failed},
		{"what is committed is on disk", checkFsync(good), passed},
		{"a database that may forget", checkFsync(with(func(g *daemon.Guard) { g.Fsync = false })), failed},
		{"a database that may lose half a page", checkFsync(with(func(g *daemon.Guard) { g.FullPages = false })), failed},
		{"an archive of a minute ago", checkArchive(good, now), passed},
		{"an archive of last week", checkArchive(with(func(g *daemon.Guard) { g.Archived = ago(7 * 24 * time.Hour) }), now), failed},
		{"an archive that fails", checkArchive(with(func(g *daemon.Guard) { g.Failing = true }), now), failed},
		{"an archive that is empty", checkArchive(with(func(g *daemon.Guard) { g.Archived = nil }), now), failed},
		{"a standby without an archive", checkArchive(daemon.Guard{Standbys: 1}, now), passed},
		{"nothing that looks like a backup", checkArchive(daemon.Guard{}, now), failed},
		{"one version", checkVersions([]store.Server{{Name: "a", Version: "1"}, {Name: "b", Version: "1"}}), passed},
		{"an upgrade that was left half done", checkVersions([]store.Server{{Name: "a", Version: "1"}, {Name: "b", Version: "2"}}), failed},
		{"no server", checkVersions(nil), failed},
		{"a certificate for months", checkCertificate("a:1", &x509.Certificate{NotAfter: now.Add(60 * 24 * time.Hour)}, now), passed},
		{"a certificate for days", checkCertificate("a:1", &x509.Certificate{NotAfter: now.Add(3 * 24 * time.Hour)}, now), doubted},
	} {
		require.Equal(t, c.want, c.found.Verdict, c.claim)
		require.NotEmpty(t, c.found.Message, c.claim)
		require.NotEmpty(t, c.found.Check, c.claim)
		if c.want != passed {
			require.NotEmpty(t, c.found.Remedy, c.claim)
		}
	}
}

// TestPlainText: a server without TLS passes only if it was asked for plain text on loopback; one that
// should speak TLS, and one that does not answer, fail.
func TestPlainText(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(http.NotFoundHandler())
	address := server.Listener.Addr().String()
	require.Equal(t, passed, checkTLS(t.Context(), address, settings{}).Verdict)
	f := checkTLS(t.Context(), "https://"+address, settings{})
	require.Equal(t, failed, f.Verdict)
	require.Contains(t, f.Message, "speaks plain text")
	require.Contains(t, f.Remedy, "--tls-cert")
	server.Close()
	require.Equal(t, failed, checkTLS(t.Context(), address, settings{}).Verdict)
}
