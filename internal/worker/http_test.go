package worker_test

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	servov1 "go.arco.dev/servo/gen/servo/v1"
	"go.arco.dev/servo/internal/worker"
)

func TestHTTP(t *testing.T) {
	t.Parallel()

	call := func(t *testing.T, url string) *fakeLease {
		t.Helper()
		calls := worker.NewHTTP(4)
		t.Cleanup(calls.Close)
		b := start(t, nil, func(c *worker.Config) { c.Executors = []worker.Executor{calls} })
		id := b.add(1, "gold/report", func(l *servov1.Lease) {
			l.Code = &servov1.Code{Kind: &servov1.Code_Http{Http: &servov1.HttpCode{Url: url, Method: "PUT", Headers: map[string]string{"X-Team": "data"}}}}
		})[0]
		b.ended(t, id)
		require.NoError(t, b.stopped())
		return b.lease(id)
	}
	serve := func(t *testing.T, handler http.HandlerFunc) string {
		t.Helper()
		server := httptest.NewServer(handler)
		t.Cleanup(server.Close)
		return server.URL
	}

	t.Run("the endpoint gets the task and its answer is the result", func(t *testing.T) {
		t.Parallel()
		var seen *http.Request
		var body map[string]any
		got := call(t, serve(t, func(w http.ResponseWriter, r *http.Request) {
			seen = r
			data, _ := io.ReadAll(r.Body)
			_ = json.Unmarshal(data, &body)
			_, _ = w.Write([]byte(`{"rows": 3}`))
		}))
		require.Equal(t, "Complete", got.state, got.failure)
		require.Equal(t, map[string]any{"rows": 3.0}, got.result.AsInterface())
		require.Equal(t, "PUT", seen.Method)
		require.Equal(t, "application/json", seen.Header.Get("Content-Type"))
		require.Equal(t, "data", seen.Header.Get("X-Team"))
		require.Equal(t, got.lease.GetTask()+"/1", seen.Header.Get("Idempotency-Key"))
		require.Equal(t, "gold/report", body["asset"])
		require.Equal(t, map[string]any{}, body["parameters"])
	})

	t.Run("an empty answer is null", func(t *testing.T) {
		t.Parallel()
		got := call(t, serve(t, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) }))
		require.Equal(t, "Complete", got.state)
		require.Nil(t, got.result)
	})

	for status, code := range map[int]string{
		408: "TIMEOUT", 504: "TIMEOUT", 429: "RATE_LIMITED", 500: "SERVICE_UNAVAILABLE", 503: "SERVICE_UNAVAILABLE", 401: "AUTHENTICATION_FAILED",
		403: "AUTHORIZATION_FAILED", 404: "RESOURCE_NOT_FOUND", 400: "USER_CODE_EXCEPTION", 302: "USER_CODE_EXCEPTION", 501: "USER_CODE_EXCEPTION",
	} {
		t.Run(http.StatusText(status)+" is "+code, func(t *testing.T) {
			t.Parallel()
			calls := 0
			got := call(t, serve(t, func(w http.ResponseWriter, _ *http.Request) {
				calls++
				w.Header().Set("Location", "/elsewhere")
				w.WriteHeader(status)
				_, _ = w.Write([]byte("why\x00not" + strings.Repeat("x", 10_000)))
			}))
			require.Equal(t, code, got.failure.GetCode())
			details := got.failure.GetDetails().AsMap()
			require.EqualValues(t, status, details["status"])
			require.Contains(t, details["answer"], "why\uFFFDnot")
			require.LessOrEqual(t, len(details["answer"].(string)), 4<<10)
			require.Equal(t, 1, calls, "redirects are not followed")
		})
	}

	t.Run("nobody there is a network error", func(t *testing.T) {
		t.Parallel()
		server := httptest.NewServer(http.NotFoundHandler())
		server.Close()
		require.Equal(t, "NETWORK_ERROR", call(t, server.URL).failure.GetCode())
	})

	t.Run("an answer without an end is not read to its end", func(t *testing.T) {
		t.Parallel()
		got := call(t, serve(t, func(w http.ResponseWriter, r *http.Request) {
			for r.Context().Err() == nil {
				if _, err := w.Write(make([]byte, 64<<10)); err != nil {
					return
				}
			}
		}))
		require.Equal(t, "the endpoint answered with more than 1048576 bytes", got.failure.GetMessage())
	})
}
