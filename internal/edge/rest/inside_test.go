package rest

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/fullstorydev/grpchan/inprocgrpc"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"

	servov1 "go.arco.dev/servo/gen/servo/v1"
	"go.arco.dev/servo/internal/base/fault"
	"go.arco.dev/servo/internal/edge/problem"
)

const watched = "/v1/tenants/acme/runs/0198c5a0-0000-7000-8000-000000000000/events"

// services replace the real ones, where a test must control what they do and when.
type services struct {
	servov1.UnimplementedTenantServiceServer
	servov1.UnimplementedRunServiceServer
	get   func(context.Context, *servov1.GetTenantRequest) (*servov1.Tenant, error)
	watch func(*servov1.WatchRunRequest, grpc.ServerStreamingServer[servov1.WatchRunResponse]) error
}

func (s *services) GetTenant(ctx context.Context, req *servov1.GetTenantRequest) (*servov1.Tenant, error) {
	return s.get(ctx, req)
}

func (s *services) WatchRun(req *servov1.WatchRunRequest, stream grpc.ServerStreamingServer[servov1.WatchRunResponse]) error {
	return problem.Status(s.watch(req, stream)).Err()
}

func edgeOver(t *testing.T, s *services, log *slog.Logger) *Edge {
	t.Helper()
	channel := &inprocgrpc.Channel{}
	servov1.RegisterTenantServiceServer(channel, s)
	servov1.RegisterRunServiceServer(channel, s)
	e, err := over(channel, log)
	require.NoError(t, err)
	e.keepAlive, e.peek = time.Hour, time.Hour // unless a test sets another value
	return e
}

func event(id string) *servov1.WatchRunResponse {
	return &servov1.WatchRunResponse{Message: &servov1.WatchRunResponse_Event{Event: &servov1.Event{Id: id, Type: "task.succeeded"}}}
}

func end() *servov1.WatchRunResponse {
	return &servov1.WatchRunResponse{Message: &servov1.WatchRunResponse_End{End: &servov1.Run{Id: "r", State: servov1.Run_SUCCEEDED}}}
}

func TestHeaders(t *testing.T) {
	t.Parallel()

	t.Run("only what is on the list reaches a service, and nothing comes back", func(t *testing.T) {
		t.Parallel()
		var got metadata.MD
		e := edgeOver(t, &services{get: func(ctx context.Context, _ *servov1.GetTenantRequest) (*servov1.Tenant, error) {
			got, _ = metadata.FromIncomingContext(ctx)
			_ = grpc.SetHeader(ctx, metadata.Pairs("x-internal", "secret"))
			_ = grpc.SetTrailer(ctx, metadata.Pairs("x-internal-too", "secret"))
			return &servov1.Tenant{Name: "acme"}, nil
		}}, nil)
		req := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/v1/tenants/acme", http.NoBody)
		for name, value := range map[string]string{
			"Authorization": "Bearer x", "X-Api-Key": "k", "Idempotency-Key": "i", "Traceparent": "00-1-2-3", "Tracestate": "a=b", "X-Request-Id": "r1",
			"Grpc-Metadata-Actor": "root", "Grpc-Metadata-X-Request-Id": "forged", "X-Forwarded-For": "10.0.0.1", "X-Forwarded-Host": "h", "Cookie": "c", "Accept": "*/*",
			"User-Agent": "u", "Te": "trailers", "Grpc-Timeout": "1n",
		} {
			req.Header.Set(name, value)
		}
		w := httptest.NewRecorder()
		e.ServeHTTP(w, req)
		require.Equal(t, http.StatusOK, w.Code, w.Body)
		require.Equal(t, metadata.MD{
			"authorization": {"Bearer x"}, "x-api-key": {"k"}, "idempotency-key": {"i"}, "traceparent": {"00-1-2-3"}, "tracestate": {"a=b"}, "x-request-id": {"r1"},
			"x-remote-address": {"192.0.2.1"}, // of the connection, not of a header
		}, got)
		for name, values := range w.Result().Header {
			require.NotContains(t, values, "secret", name)
		}
		require.Empty(t, w.Result().Trailer)
	})

	t.Run("a trace that cannot be read is left out", func(t *testing.T) {
		t.Parallel()
		md, err := allowedMetadata(http.Header{"Traceparent": {"a", "b"}, "Tracestate": {"x"}}, "r", "")
		require.NoError(t, err)
		require.Equal(t, metadata.MD{"x-request-id": {"r"}}, md)
	})
}

func TestPanic(t *testing.T) {
	t.Parallel()
	var logged bytes.Buffer
	e := edgeOver(t, &services{}, slog.New(slog.NewTextHandler(&logged, nil)))
	e.mux = nil // whatever may break
	w := httptest.NewRecorder()
	e.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/v1/tenants", http.NoBody))
	require.Equal(t, http.StatusInternalServerError, w.Code)
	require.Equal(t, "application/problem+json", w.Header().Get("Content-Type"))
	require.NotContains(t, w.Body.String(), "nil pointer", "what happened is not for the caller")
	require.NotContains(t, w.Body.String(), "goroutine")
	require.Contains(t, logged.String(), "nil pointer", "but for the log")
	require.Contains(t, logged.String(), "ServeHTTP")
}

// client reads a stream line by line.
type client struct {
	*bufio.Reader
	cancel context.CancelFunc
	header http.Header
}

func (c *client) line(t *testing.T) string {
	t.Helper()
	text, err := c.ReadString('\n')
	require.NoError(t, err)
	return strings.TrimSuffix(text, "\n")
}

// block is one event: the lines up to an empty one.
func (c *client) block(t *testing.T) (lines []string) {
	t.Helper()
	for {
		text := c.line(t)
		if text == "" {
			return lines
		}
		lines = append(lines, text)
	}
}

func watch(t *testing.T, e *Edge, headers ...string) *client {
	t.Helper()
	server := httptest.NewServer(e)
	ctx, cancel := context.WithCancel(t.Context())
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, server.URL+watched, http.NoBody)
	require.NoError(t, err)
	req.Header.Set("Accept", "text/event-stream")
	for i := 0; i+1 < len(headers); i += 2 {
		req.Header.Set(headers[i], headers[i+1])
	}
	res, err := http.DefaultClient.Do(req)
	require.NoError(t, err)
	t.Cleanup(func() {
		cancel()
		_ = res.Body.Close()
		server.Close()
	})
	require.Equal(t, http.StatusOK, res.StatusCode)
	require.Equal(t, "text/event-stream", res.Header.Get("Content-Type"))
	return &client{bufio.NewReader(res.Body), cancel, res.Header}
}

func TestStream(t *testing.T) {
	t.Parallel()

	t.Run("each event has id, type and data; the end has the run and no id", func(t *testing.T) {
		t.Parallel()
		c := watch(t, edgeOver(t, &services{watch: func(req *servov1.WatchRunRequest, s grpc.ServerStreamingServer[servov1.WatchRunResponse]) error {
			_ = s.Send(event(req.GetAfter() + "1"))
			_ = s.Send(event("two\nlines"))
			return s.Send(end())
		}}, nil), "Last-Event-ID", "7-")
		require.Equal(t, []string{"retry: 1000"}, c.block(t))
		first := c.block(t)
		require.Equal(t, []string{"id: 7-1", "event: task.succeeded"}, first[:2])
		require.Len(t, first, 3)
		var data map[string]any
		require.NoError(t, json.Unmarshal([]byte(strings.TrimPrefix(first[2], "data: ")), &data))
		require.Equal(t, "7-1", data["id"])
		require.Equal(t, "id: twolines", c.block(t)[0])
		last := c.block(t)
		require.Equal(t, "event: end", last[0])
		require.Contains(t, last[1], `"state":"SUCCEEDED"`)
		_, err := c.ReadByte()
		require.ErrorIs(t, err, io.EOF)
	})

	t.Run("a run in which nothing happens has an open stream with signs of life", func(t *testing.T) {
		t.Parallel()
		more := make(chan struct{})
		e := edgeOver(t, &services{watch: func(_ *servov1.WatchRunRequest, s grpc.ServerStreamingServer[servov1.WatchRunResponse]) error {
			select {
			case <-more:
			case <-s.Context().Done():
				return s.Context().Err()
			}
			return s.Send(end())
		}}, nil)
		e.peek, e.keepAlive = time.Millisecond, time.Millisecond
		c := watch(t, e)
		require.Equal(t, []string{"retry: 1000"}, c.block(t))
		require.Equal(t, []string{": still here"}, c.block(t))
		require.Equal(t, []string{": still here"}, c.block(t))
		close(more)
		for c.block(t)[0] != "event: end" { //nolint:revive // signs of life that came before
		}
	})

	t.Run("a refusal before the first event is an answer like any other", func(t *testing.T) {
		t.Parallel()
		e := edgeOver(t, &services{watch: func(*servov1.WatchRunRequest, grpc.ServerStreamingServer[servov1.WatchRunResponse]) error {
			return fault.New(fault.NotFound, "no such run", fault.Field("run"))
		}}, nil)
		req := httptest.NewRequestWithContext(t.Context(), http.MethodGet, watched, http.NoBody)
		req.Header.Set("Accept", "text/event-stream")
		w := httptest.NewRecorder()
		e.ServeHTTP(w, req)
		require.Equal(t, http.StatusNotFound, w.Code)
		require.Equal(t, "application/problem+json", w.Header().Get("Content-Type"))
		require.Contains(t, w.Body.String(), `"field":"run"`)
	})

	t.Run("a later failure is sent in the stream", func(t *testing.T) {
		t.Parallel()
		c := watch(t, edgeOver(t, &services{watch: func(_ *servov1.WatchRunRequest, s grpc.ServerStreamingServer[servov1.WatchRunResponse]) error {
			_ = s.Send(event("1"))
			return fault.New(fault.Unavailable, "the server stops", fault.RetryAfter(time.Second))
		}}, nil))
		c.block(t)
		c.block(t)
		last := c.block(t)
		require.Equal(t, "event: problem", last[0])
		require.Contains(t, last[1], `"type":"/errors/unavailable"`)
		_, err := c.ReadByte()
		require.ErrorIs(t, err, io.EOF)
	})

	t.Run("a reader who has gone ends the watch", func(t *testing.T) {
		t.Parallel()
		gone := make(chan struct{})
		c := watch(t, edgeOver(t, &services{watch: func(_ *servov1.WatchRunRequest, s grpc.ServerStreamingServer[servov1.WatchRunResponse]) error {
			_ = s.Send(event("1"))
			<-s.Context().Done()
			close(gone)
			return s.Context().Err()
		}}, nil))
		c.block(t)
		c.block(t)
		c.cancel()
		<-gone
	})

	t.Run("the server's time limits do not cut it: each write has its own", func(t *testing.T) {
		t.Parallel()
		e := edgeOver(t, &services{watch: func(_ *servov1.WatchRunRequest, s grpc.ServerStreamingServer[servov1.WatchRunResponse]) error {
			_ = s.Send(event("1"))
			return s.Send(end())
		}}, nil)
		w := &timedWriter{ResponseRecorder: httptest.NewRecorder()}
		req := httptest.NewRequestWithContext(t.Context(), http.MethodGet, watched, http.NoBody)
		req.Header.Set("Accept", "text/event-stream")
		e.ServeHTTP(w, req)
		require.Equal(t, 3, w.deadlines, "one for each write")
		require.True(t, w.patient)
	})

	t.Run("who asks for the head gets the head", func(t *testing.T) {
		t.Parallel()
		e := edgeOver(t, &services{watch: func(_ *servov1.WatchRunRequest, s grpc.ServerStreamingServer[servov1.WatchRunResponse]) error {
			_ = s.Send(event("1"))
			<-s.Context().Done()
			return s.Context().Err()
		}}, nil)
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		req := httptest.NewRequestWithContext(ctx, http.MethodHead, watched, http.NoBody)
		req.Header.Set("Accept", "text/event-stream")
		w := httptest.NewRecorder()
		e.ServeHTTP(w, req)
		require.Equal(t, http.StatusOK, w.Code)
		require.Zero(t, w.Body.Len())
	})

	t.Run("the page is for those who do not ask for a stream by name", func(t *testing.T) {
		t.Parallel()
		for accept, want := range map[string]bool{
			"": false, "*/*": false, "application/json": false, "text/*": false, "text/event-stream;q=0": false, "text/event-stream; q=0.0": false,
			"text/event-stream": true, "application/json, text/event-stream;q=0.5": true, "TEXT/Event-Stream": true, ";;;": false,
		} {
			require.Equal(t, want, wantsStream(http.Header{"Accept": {accept}}), accept)
		}
	})
}

// timedWriter sees the deadlines that are set.
type timedWriter struct {
	*httptest.ResponseRecorder

	mu        sync.Mutex
	deadlines int
	patient   bool
}

func (w *timedWriter) SetWriteDeadline(at time.Time) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !at.IsZero() {
		w.deadlines++
	}
	return nil
}

func (w *timedWriter) SetReadDeadline(at time.Time) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.patient = at.IsZero()
	return nil
}

// TestRoutes holds the table of routes to the gateway's: a path that one of them lacks would
// go unchecked, or unanswered.
func TestRoutes(t *testing.T) {
	t.Parallel()
	e := edgeOver(t, &services{}, nil)
	require.Greater(t, len(e.routes), 30)
	for _, r := range e.routes {
		path := strings.ReplaceAll(r.template, assetVariable, "a/b")
		path = variable.ReplaceAllString(path, "1")
		req := httptest.NewRequestWithContext(t.Context(), r.method, path, http.NoBody)
		within := req.WithContext(context.WithValue(req.Context(), stateKey{}, &state{original: req}))
		require.Contains(t, e.allowed(within), r.method, r.template)
	}
}

// protojson's own spaces depend on the build: here they are sure to be there.
func TestCodec(t *testing.T) {
	t.Parallel()
	c := newCodec()
	c.Multiline = true
	line, err := c.Marshal(&servov1.HeartbeatResponse{Leases: []*servov1.HeartbeatAnswer{{Held: true}, {ShouldCancel: true}}})
	require.NoError(t, err)
	require.Equal(t, `{"leases":[{"held":true,"should_cancel":false},{"held":false,"should_cancel":true}]}`+"\n", string(line))
}

// TestPatterns: metrics count requests by the path of the contract that they have
// matched, however many tenants and runs there are.
func TestPatterns(t *testing.T) {
	t.Parallel()
	e := edgeOver(t, &services{get: func(context.Context, *servov1.GetTenantRequest) (*servov1.Tenant, error) {
		return &servov1.Tenant{}, nil
	}}, nil)
	for request, want := range map[string]string{
		"GET /v1/status":                          "/v1/status",
		"GET /v1/tenants/acme":                    "/v1/tenants/{tenant}",
		"HEAD /v1/tenants/acme":                   "/v1/tenants/{tenant}",
		"OPTIONS /v1/tenants/acme":                "/v1/tenants/{tenant}",
		"PUT /v1/tenants/acme":                    "/v1/tenants/{tenant}", // refused, but there
		"GET /v1/tenants/acme/runs":               "/v1/tenants/{tenant}/runs",
		"POST /v1/tenants/acme/runs:plan":         "/v1/tenants/{tenant}/runs:plan",
		"GET /v1/tenants/acme/runs/1":             "/v1/tenants/{tenant}/runs/{run}",
		"POST /v1/tenants/acme/runs/1:cancel":     "/v1/tenants/{tenant}/runs/{run}:cancel",
		"GET /v1/tenants/acme/assets/gold/a":      "/v1/tenants/{tenant}/assets/{asset=*/*}",
		"POST /v1/workers:claim":                  "/v1/workers:claim",
		"POST /v1/tasks/1/attempts/2:complete":    "/v1/tasks/{task}/attempts/{attempt}:complete",
		"POST /v1/admin/tenants/a/runs/b:repair":  "/v1/admin/tenants/{tenant}/runs/{run}:repair",
		"GET /openapi.json":                       "/openapi.json",
		"GET /v1/tenants//runs":                   "/v1/tenants/{tenant}/runs", // with an empty tenant
		"GET /v1/tenants/acme/runs/1/2/3/4":       "",
		"GET /favicon.ico":                        "",
		"GET /v1":                                 "",
		"GET /v1/tenants/acme/deployments/0/../a": "",
	} {
		method, path, _ := strings.Cut(request, " ")
		r := httptest.NewRequest(method, path, http.NoBody)
		e.ServeHTTP(httptest.NewRecorder(), r)
		require.Equal(t, want, r.Pattern, request)
	}
}
