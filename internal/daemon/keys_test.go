package daemon_test

import (
	"log/slog"
	"net"
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"go.arco.dev/servo/internal/daemon"
	"go.arco.dev/servo/internal/engine"
	"go.arco.dev/servo/internal/event"
	"go.arco.dev/servo/internal/fault"
	"go.arco.dev/servo/internal/servotest"
	"go.arco.dev/servo/internal/servotest/servertest"
)

func TestKeys(t *testing.T) {
	t.Parallel()

	t.Run("where other machines reach it, figures are for platform keys, and health for everybody", func(t *testing.T) {
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

	t.Run("where only this machine reaches it, figures are for everybody", func(t *testing.T) {
		t.Parallel()
		s := servertest.StartKeyed(t, daemon.Config{DatabaseURL: servotest.DB(t).URL})
		for path, want := range map[string]int{"/metrics": http.StatusOK, "/v1/status": http.StatusUnauthorized} {
			req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, s.URL+path, http.NoBody)
			require.NoError(t, err)
			answer, err := http.DefaultClient.Do(req)
			require.NoError(t, err)
			require.NoError(t, answer.Body.Close())
			require.Equal(t, want, answer.StatusCode, path)
		}
	})

	t.Run("a server without keys does not listen where other machines reach it", func(t *testing.T) {
		t.Parallel()
		for field, config := range map[string]daemon.Config{
			"--http": {Open: true, HTTP: ":0", GRPC: "127.0.0.1:0"}, "--grpc": {Open: true, HTTP: "127.0.0.1:0", GRPC: "0.0.0.0:0"},
		} {
			_, err := daemon.Start(t.Context(), config)
			f, ok := fault.As(err)
			require.True(t, ok, "%v", err)
			require.Equal(t, field, f.Violation.Field)
		}
	})
}
