package daemon_test

import (
	"crypto/tls"
	"net/http"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"

	servov1 "go.arco.dev/servo/gen/servo/v1"
	"go.arco.dev/servo/internal/base/fault"
	"go.arco.dev/servo/internal/daemon"
	"go.arco.dev/servo/internal/devkit/servotest"
	"go.arco.dev/servo/internal/devkit/servotest/certs"
	"go.arco.dev/servo/internal/devkit/servotest/servertest"
)

// restClient speaks to REST over TLS, with HTTP/2 if the server can.
func restClient(t *testing.T, config *tls.Config) *http.Client {
	t.Helper()
	transport := &http.Transport{TLSClientConfig: config, ForceAttemptHTTP2: true}
	t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport}
}

func getStatus(t *testing.T, address string, config *tls.Config) error {
	t.Helper()
	conn, err := grpc.NewClient(address, grpc.WithTransportCredentials(credentials.NewTLS(config)))
	require.NoError(t, err)
	defer func() { _ = conn.Close() }() // its call is over
	_, err = servov1.NewStatusServiceClient(conn).GetStatus(t.Context(), &servov1.GetStatusRequest{})
	return err
}

func TestTLS(t *testing.T) {
	t.Parallel()
	ca := certs.New(t)
	pair := ca.Issue(t, "first", time.Hour)
	reloaded := make(chan struct{}, 1)
	server := servertest.StartWith(t, daemon.Config{
		DatabaseURL: servotest.DB(t).URL, Logger: signalOn("serving new TLS files", reloaded),
		TLS: daemon.TLS{Cert: pair.Cert, Key: pair.Key, Every: 20 * time.Millisecond},
	})
	trust := &tls.Config{RootCAs: ca.Pool, MinVersion: tls.VersionTLS12}

	// REST, with HTTP/2.
	get := func(config *tls.Config) (*http.Response, error) {
		request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, server.Scheme()+server.HTTPAddr()+"/v1/status", http.NoBody)
		require.NoError(t, err)
		return restClient(t, config).Do(request)
	}
	response, err := get(trust)
	require.NoError(t, err)
	require.NoError(t, response.Body.Close())
	require.Equal(t, http.StatusOK, response.StatusCode)
	require.Equal(t, 2, response.ProtoMajor)

	// gRPC.
	require.NoError(t, getStatus(t, server.GRPCAddr(), trust))

	// A client that does not trust the authority, or supports TLS 1.1 at most, is refused.
	for _, address := range []string{server.HTTPAddr(), server.GRPCAddr()} {
		_, err = tls.Dial("tcp", address, &tls.Config{MinVersion: tls.VersionTLS12})
		require.ErrorContains(t, err, "unknown authority")
		_, err = tls.Dial("tcp", address, &tls.Config{RootCAs: ca.Pool, MinVersion: tls.VersionTLS10, MaxVersion: tls.VersionTLS11}) //nolint:gosec // to be refused
		require.ErrorContains(t, err, "protocol version")
		require.Equal(t, "first", ca.Shown(address))
	}

	// What is renewed is served, by itself and without a restart.
	ca.IssueTo(t, pair, "second", time.Hour)
	<-reloaded
	require.Equal(t, "second", ca.Shown(server.HTTPAddr()))
	require.Equal(t, "second", ca.Shown(server.GRPCAddr()))

	// What cannot be used leaves what was there.
	require.NoError(t, os.WriteFile(pair.Key, []byte("half of a fi"), 0o600))
	err = server.ReloadTLS()
	f, ok := fault.As(err)
	require.True(t, ok, "%v", err)
	require.Equal(t, "--tls-key", f.Violation.Field)
	require.Equal(t, "second", ca.Shown(server.GRPCAddr()))
	require.NoError(t, getStatus(t, server.GRPCAddr(), trust))
}

func TestTLSIsRefused(t *testing.T) {
	t.Parallel()
	ca := certs.New(t)
	one, other := ca.Issue(t, "one", time.Hour), ca.Issue(t, "other", time.Hour)
	nothing := filepath.Join(t.TempDir(), "nothing.pem")
	require.NoError(t, os.WriteFile(nothing, []byte("nothing"), 0o600))
	for claim, c := range map[string]struct {
		files daemon.TLS
		field string
	}{
		"a certificate without its key":            {daemon.TLS{Cert: one.Cert}, "--tls-key"},
		"a key without its certificate":            {daemon.TLS{Key: one.Key}, "--tls-cert"},
		"an authority of clients without TLS":      {daemon.TLS{ClientCA: ca.File}, "--tls-cert"},
		"a missing certificate file":               {daemon.TLS{Cert: one.Cert + "x", Key: one.Key}, "--tls-cert"},
		"a missing key file":                       {daemon.TLS{Cert: one.Cert, Key: one.Key + "x"}, "--tls-key"},
		"a certificate that is none":               {daemon.TLS{Cert: nothing, Key: one.Key}, "--tls-cert"},
		"a key that is none":                       {daemon.TLS{Cert: one.Cert, Key: nothing}, "--tls-key"},
		"the key of another certificate":           {daemon.TLS{Cert: one.Cert, Key: other.Key}, "--tls-key"},
		"a missing file of the clients' authority": {daemon.TLS{Cert: one.Cert, Key: one.Key, ClientCA: nothing + "x"}, "--tls-client-ca"},
		"an authority of clients that is none":     {daemon.TLS{Cert: one.Cert, Key: one.Key, ClientCA: nothing}, "--tls-client-ca"},
	} {
		t.Run(claim+" is refused by its flag", func(t *testing.T) {
			t.Parallel()
			_, err := daemon.Start(t.Context(), daemon.Config{TLS: c.files, HTTP: "127.0.0.1:0", GRPC: "127.0.0.1:0"})
			f, ok := fault.As(err)
			require.True(t, ok, "%v", err)
			require.Equal(t, c.field, f.Violation.Field, err)
			require.NotEmpty(t, f.Violation.Remedy)
		})
	}
}
