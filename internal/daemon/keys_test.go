package daemon_test

import (
	"log/slog"
	"net"
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"go.arco.dev/servo/internal/base/event"
	"go.arco.dev/servo/internal/base/fault"
	"go.arco.dev/servo/internal/daemon"
	"go.arco.dev/servo/internal/devkit/servotest"
	"go.arco.dev/servo/internal/devkit/servotest/servertest"
	"go.arco.dev/servo/internal/engine"
)

func TestKeys(t *testing.T) {
	t.Parallel()

	t.Run("where other machines reach it, metrics need platform keys, and health needs none", func(t *testing.T) {
		t.Parallel()
		db := servotest.DB(t)
		e := engine.New(db.Store, engine.Config{}, slog.New(slog.DiscardHandler))
		_, secret, err := e.Bootstrap(t.Context(), "ops", false, event.Meta{})
		require.NoError(t, err)
		e.Stop()
		s := servertest.StartKeyed(t, daemon.Config{DatabaseURL: db.URL, HTTP: "0.0.0.0:0"})
		_, port, err := net.SplitHostPort(s.HTTPAddr())
		require.NoError(t, err)
		get := func(path, key string) int {
			req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+net.JoinHostPort("127.0.0.1", port)+path, http.NoBody)
			require.NoError(t, err)
			if key != "" {
				req.Header.Set("Authorization", "Bearer "+key)
			}
			answer, err := http.DefaultClient.Do(req)
			require.NoError(t, err)
			require.NoError(t, answer.Body.Close())
			if answer.StatusCode == http.StatusUnauthorized {
				require.Equal(t, "Bearer", answer.Header.Get("WWW-Authenticate"))
			}
			return answer.StatusCode
		}
		for _, path := range []string{"/metrics", "/v1/status"} {
			require.Equal(t, http.StatusUnauthorized, get(path, ""), path)
			require.Equal(t, http.StatusOK, get(path, secret.Text()), path)
		}
		for _, path := range []string{"/healthz", "/readyz", "/openapi.json"} {
			require.Equal(t, http.StatusOK, get(path, ""), path)
		}
	})

	t.Run("figures need a key on loopback too: a proxy there makes it public", func(t *testing.T) {
		t.Parallel()
		s := servertest.StartKeyed(t, daemon.Config{DatabaseURL: servotest.DB(t).URL})
		for _, path := range []string{"/metrics", "/v1/status"} {
			require.Equal(t, http.StatusUnauthorized, statusAt(t, s.URL+path, ""), path)
		}
	})

	t.Run("figures have an address of their own that asks for no key", func(t *testing.T) {
		t.Parallel()
		s := servertest.StartKeyed(t, daemon.Config{DatabaseURL: servotest.DB(t).URL, Metrics: "127.0.0.1:0"})
		own := "http://" + s.MetricsAddr()
		require.Equal(t, http.StatusOK, statusAt(t, own+"/metrics", ""))
		require.Equal(t, http.StatusForbidden, statusAt(t, own+"/metrics", "metrics.example.com"), "no name but this machine's")
		require.Equal(t, http.StatusNotFound, statusAt(t, own+"/v1/status", ""))
		require.Equal(t, http.StatusNotFound, statusAt(t, s.URL+"/metrics", ""), "and only there")
	})

	t.Run("a server without keys does not listen where other machines reach it", func(t *testing.T) {
		t.Parallel()
		for field, config := range map[string]daemon.Config{
			"--http": {Open: true, HTTP: ":0", GRPC: "127.0.0.1:0"}, "--grpc": {Open: true, HTTP: "127.0.0.1:0", GRPC: "0.0.0.0:0"},
			"--metrics": {Open: true, HTTP: "127.0.0.1:0", GRPC: "127.0.0.1:0", Metrics: ":0"},
		} {
			_, err := daemon.Start(t.Context(), config)
			f, ok := fault.As(err)
			require.True(t, ok, "%v", err)
			require.Equal(t, field, f.Violation.Field)
		}
	})
}

// statusAt is how a GET without a key is answered, under a host of its own if one is named.
func statusAt(t *testing.T, url, host string) int {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, http.NoBody)
	require.NoError(t, err)
	req.Host = host
	answer, err := http.DefaultClient.Do(req)
	require.NoError(t, err)
	require.NoError(t, answer.Body.Close())
	return answer.StatusCode
}
