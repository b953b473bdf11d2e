package worker_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/types/known/timestamppb"

	servov1 "go.arco.dev/servo/gen/servo/v1"
	"go.arco.dev/servo/internal/base/netguard"
	"go.arco.dev/servo/internal/worker"
)

func TestHTTP(t *testing.T) {
	t.Parallel()

	call := func(t *testing.T, url string, changes ...func(l *servov1.Lease)) *fakeLease {
		t.Helper()
		calls := worker.NewHTTP(4, netguard.NewGuard(netguard.Policy{Local: true}))
		t.Cleanup(calls.Close)
		b := start(t, nil, func(c *worker.Options) { c.Executors = []worker.Executor{calls} })
		id := b.add(1, "gold/report", func(l *servov1.Lease) {
			l.Code = &servov1.Code{Kind: &servov1.Code_Http{Http: &servov1.HttpCode{Url: url, Method: "PUT", Headers: map[string]string{"X-Team": "data"}}}}
			for _, change := range changes {
				change(l)
			}
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
		require.Equal(t, fmt.Sprintf("%s:1:%d", got.lease.GetTask(), got.lease.GetFencingToken()), seen.Header.Get("Idempotency-Key"))
		require.Equal(t, "gold/report", body["asset"])
		require.Equal(t, map[string]any{}, body["parameters"])
	})

	t.Run("the endpoint receives the slot, the data interval, the config and the trigger type", func(t *testing.T) {
		t.Parallel()
		slot := time.Date(2026, 3, 29, 2, 0, 0, 0, time.UTC)
		var body map[string]any
		call(t, serve(t, func(_ http.ResponseWriter, r *http.Request) {
			data, _ := io.ReadAll(r.Body)
			_ = json.Unmarshal(data, &body)
		}), func(l *servov1.Lease) {
			l.Config, l.TriggerType = "nightly", "schedule"
			l.Slot, l.IntervalStart, l.IntervalEnd = timestamppb.New(slot), timestamppb.New(slot.AddDate(0, 0, -1)), timestamppb.New(slot)
		})
		require.Equal(t, "2026-03-29T02:00:00Z", body["slot"])
		require.Equal(t, map[string]any{"start": "2026-03-28T02:00:00Z", "end": "2026-03-29T02:00:00Z"}, body["interval"])
		require.Equal(t, "nightly", body["config"])
		require.Equal(t, "schedule", body["trigger_type"])
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

	t.Run("an address without a listener is a network error", func(t *testing.T) {
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
		require.Equal(t, "the endpoint's response has more than 1048576 bytes", got.failure.GetMessage())
	})
}

// TestRetryAfter holds that a worker passes on how long an endpoint asks to wait.
func TestRetryAfter(t *testing.T) {
	t.Parallel()
	now := time.Now().UTC().Truncate(time.Second)
	for _, c := range []struct {
		status      int
		after, date string
		want        time.Duration
	}{
		{429, "7", "", 7 * time.Second},
		{503, " 90 ", "", 90 * time.Second},
		{503, now.Add(time.Hour).Format(http.TimeFormat), now.Format(http.TimeFormat), time.Hour}, // by the endpoint's clock
		{429, now.Add(-time.Hour).Format(http.TimeFormat), now.Format(http.TimeFormat), 0},
		{429, "99999999", "", 24 * time.Hour},
		{429, "99999999999999999999", "", 0},
		{429, "-1", "", 0},
		{429, "soon", "", 0},
		{429, "", "", 0},
		{500, "7", "", 0},
		{404, "7", "", 0},
	} {
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Retry-After", c.after)
			if c.date != "" {
				w.Header().Set("Date", c.date)
			}
			w.WriteHeader(c.status)
		}))
		calls := worker.NewHTTP(4, netguard.NewGuard(netguard.Policy{Local: true}))
		b := start(t, nil, func(c *worker.Options) { c.Executors = []worker.Executor{calls} })
		id := b.add(1, "gold/report", func(l *servov1.Lease) {
			l.Code = &servov1.Code{Kind: &servov1.Code_Http{Http: &servov1.HttpCode{Url: server.URL, Method: "POST"}}}
		})[0]
		b.ended(t, id)
		require.NoError(t, b.stopped())
		require.Equal(t, c.want, b.lease(id).retryAfter, "%d with Retry-After: %s", c.status, c.after)
		calls.Close()
		server.Close()
	}
}

// TestHTTPTargets holds that a worker calls public addresses and the networks that it was given,
// and nothing else, whatever the manifest names.
func TestHTTPTargets(t *testing.T) {
	t.Parallel()
	var accepts atomic.Int64
	trap := httptest.NewUnstartedServer(http.NotFoundHandler())
	trap.Config.ConnState = func(_ net.Conn, state http.ConnState) {
		if state == http.StateNew {
			accepts.Add(1)
		}
	}
	trap.Start()
	t.Cleanup(trap.Close)
	_, port, err := net.SplitHostPort(trap.Listener.Addr().String())
	require.NoError(t, err)
	calls := worker.NewHTTP(4, netguard.NewGuard(netguard.Policy{Networks: []netip.Prefix{netip.MustParsePrefix("172.16.0.0/12")}}))
	t.Cleanup(calls.Close)
	b := start(t, nil, func(c *worker.Options) { c.Executors = []worker.Executor{calls} })
	failed := func(host string) *servov1.Failure {
		id := b.add(1, "gold/report", func(l *servov1.Lease) {
			l.Code = &servov1.Code{Kind: &servov1.Code_Http{Http: &servov1.HttpCode{Url: "http://" + host + ":" + port, Method: "POST"}}}
		})[0]
		b.ended(t, id)
		return b.lease(id).failure
	}
	for _, host := range []string{
		"127.0.0.1", "[::1]", "[::ffff:127.0.0.1]", "[64:ff9b::127.0.0.1]", "[2002:7f00:1::1]", "0.0.0.0", "[::]", "10.0.0.1", "192.168.1.1", "100.64.0.1", "198.18.0.1",
		"169.254.1.1", "169.254.169.254", "224.0.0.1", "240.0.0.1", "[fd12::1]", "[fe80::1]", "[ff02::1]",
	} {
		failure := failed(host)
		require.Equal(t, "INVALID_CONFIGURATION", failure.GetCode(), "%s: %v", host, failure)
		require.NotEmpty(t, failure.GetSuggestedAction())
	}
	require.Equal(t, "NETWORK_ERROR", failed("localhost").GetCode(), "what a name resolves to is not reported")
	require.Zero(t, accepts.Load())
	require.NoError(t, b.stopped())
}
