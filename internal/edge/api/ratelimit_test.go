package api_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"

	servov1 "go.arco.dev/servo/gen/servo/v1"
	"go.arco.dev/servo/internal/base/netguard"
	"go.arco.dev/servo/internal/edge/api"
	"go.arco.dev/servo/internal/edge/ratelimit"
	"go.arco.dev/servo/internal/edge/rest"
)

// replica is another server on the database of a bundle.
type replica struct {
	*grpc.ClientConn
	server *api.Server
	runs   servov1.RunServiceClient
}

func newReplica(t testing.TB, b *bundle, config api.Options) *replica {
	t.Helper()
	config.Store, config.Engine, config.Open = b.db.Store, b.engine, true
	config.Guard = netguard.NewGuard(netguard.Policy{Local: true})
	r := &replica{server: api.New(config)}
	listener := bufconn.Listen(1 << 20)
	server := grpc.NewServer(grpc.ChainUnaryInterceptor(r.server.Unary()), grpc.ChainStreamInterceptor(r.server.Stream()))
	r.server.Register(server)
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()
	var err error
	r.ClientConn, err = grpc.NewClient("passthrough:bufconn", grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return listener.DialContext(ctx) }))
	require.NoError(t, err)
	r.runs = servov1.NewRunServiceClient(r.ClientConn)
	t.Cleanup(func() {
		r.server.Close()
		require.NoError(t, r.ClientConn.Close())
		server.Stop()
		require.NoError(t, <-served)
	})
	return r
}

// handClock is a clock for the servers that only the test advances, like that of the database.
type handClock struct{ now atomic.Pointer[time.Time] }

func (c *handClock) set(t testing.TB, b *bundle, now time.Time) {
	t.Helper()
	b.db.SetClock(t, now)
	c.now.Store(&now)
}

// threeReplicas are three servers of one database, at the beginning of a window.
func threeReplicas(t *testing.T, limits ratelimit.Limits) (*bundle, []*replica, *handClock) {
	t.Helper()
	b, clock := setup(t), &handClock{}
	clock.set(t, b, time.Now().UTC().Truncate(time.Minute))
	replicas := make([]*replica, 3)
	for i := range replicas {
		replicas[i] = newReplica(t, b, api.Options{Rates: limits})
		replicas[i].server.SetRateClock(func() time.Time { return *clock.now.Load() })
	}
	return b, replicas, clock
}

// hammer calls each server so many times at once, and counts what passes; the rest must be
// refused as over the limit.
func hammer(t *testing.T, replicas []*replica, each int, call func(ctx context.Context, r *replica) error) int {
	t.Helper()
	var passed atomic.Int64
	var all sync.WaitGroup
	errs := make(chan error, len(replicas)*each)
	for _, r := range replicas {
		for range 5 {
			all.Go(func() {
				for range each / 5 {
					switch err := call(t.Context(), r); status.Code(err) {
					case codes.OK:
						passed.Add(1)
					case codes.ResourceExhausted:
					default:
						errs <- err
					}
				}
			})
		}
	}
	all.Wait()
	close(errs)
	require.NoError(t, <-errs)
	return int(passed.Load())
}

func list(tenant string) func(ctx context.Context, r *replica) error {
	return func(ctx context.Context, r *replica) error {
		_, err := r.runs.ListRuns(ctx, &servov1.ListRunsRequest{Tenant: tenant})
		return err
	}
}

func TestRates(t *testing.T) {
	t.Parallel()

	t.Run("three servers together keep the limit within a chunk for each, and for one tenant only", func(t *testing.T) {
		t.Parallel()
		const limit = 60
		b, replicas, clock := threeReplicas(t, ratelimit.Limits{List: limit})
		for window := range 2 {
			passed := hammer(t, replicas, 100, list("acme"))
			require.LessOrEqual(t, passed, limit+len(replicas)*ratelimit.Chunk(limit), "window %d", window)
			require.GreaterOrEqual(t, passed, limit, "window %d", window)
			require.Equal(t, 30, hammer(t, replicas, 10, list("brick")), "another tenant has a limit of its own")

			_, err := replicas[0].runs.ListRuns(t.Context(), &servov1.ListRunsRequest{Tenant: "acme"})
			p := requireRefused(t, err, codes.ResourceExhausted, "")
			require.Equal(t, time.Minute, p.GetRetryAfter().AsDuration())
			require.EqualValues(t, limit, p.GetValues().AsMap()["limit"])
			require.Equal(t, "list", p.GetValues().AsMap()["class"])
			clock.set(t, b, clock.now.Load().Add(time.Minute))
		}
	})

	t.Run("a workspace deploys without regard to the others", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		r := newReplica(t, b, api.Options{Rates: ratelimit.Limits{Deploy: 1}})
		_, err := b.tenants.CreateWorkspace(t.Context(), &servov1.CreateWorkspaceRequest{Tenant: "acme", Name: "lab"})
		require.NoError(t, err)
		deploy := func(workspace string) func(ctx context.Context, r *replica) error {
			return func(ctx context.Context, r *replica) error {
				_, err := servov1.NewDeploymentServiceClient(r).Deploy(ctx, &servov1.DeployRequest{Tenant: "acme", Workspace: workspace, Manifest: manifestOf(t, manifestText)})
				return err
			}
		}
		require.LessOrEqual(t, hammer(t, []*replica{r}, 5, deploy("")), 4) // two windows at most
		require.Equal(t, codes.OK, codeOf(deploy("lab")(t.Context(), r)))
	})

	t.Run("without the database's help each server keeps the limit by itself", func(t *testing.T) {
		t.Parallel()
		b, replicas, clock := threeReplicas(t, ratelimit.Limits{List: 20})
		b.db.Exec(t, `DROP TABLE servo.rate_leases`)
		require.Equal(t, 60, hammer(t, replicas, 40, list("acme")))
		clock.set(t, b, clock.now.Load().Add(time.Minute))
		require.Equal(t, 20, hammer(t, replicas[:1], 40, list("acme")))
	})

	t.Run("an unknown tenant has no limit but the answer that it is unknown", func(t *testing.T) {
		t.Parallel()
		_, replicas, _ := threeReplicas(t, ratelimit.Limits{List: 1})
		for range 5 {
			require.Equal(t, codes.NotFound, codeOf(list("missing")(t.Context(), replicas[0])))
		}
	})

	t.Run("each answer has the caller's limit, over gRPC and REST", func(t *testing.T) {
		t.Parallel()
		b, replicas, clock := threeReplicas(t, ratelimit.Limits{List: 2, Trigger: 5})
		clock.set(t, b, clock.now.Load().Add(15*time.Second))
		handler, err := rest.New(replicas[0].server, nil)
		require.NoError(t, err)
		edge := httptest.NewServer(handler)
		t.Cleanup(edge.Close)

		var head metadata.MD
		_, err = replicas[0].runs.ListRuns(t.Context(), &servov1.ListRunsRequest{Tenant: "acme"}, grpc.Header(&head))
		require.NoError(t, err)
		require.Equal(t, []string{"2"}, head.Get("ratelimit-limit"))
		require.Equal(t, []string{"1"}, head.Get("ratelimit-remaining"))
		require.NotEmpty(t, head.Get("ratelimit-reset"))

		var last *http.Response
		for range 4 { // the rest, and what a chunk is over
			last = get(t, edge.URL+"/v1/tenants/acme/runs")
			require.Equal(t, "2", last.Header.Get("RateLimit-Limit"))
		}
		require.Equal(t, http.StatusTooManyRequests, last.StatusCode)
		require.Equal(t, "0", last.Header.Get("RateLimit-Remaining"))
		require.Equal(t, "45", last.Header.Get("RateLimit-Reset"))
		require.Equal(t, "45", last.Header.Get("Retry-After"))
		require.Equal(t, "application/problem+json", last.Header.Get("Content-Type"))

		_, err = replicas[0].runs.ListRuns(t.Context(), &servov1.ListRunsRequest{Tenant: "acme"}, grpc.Header(&head))
		requireRefused(t, err, codes.ResourceExhausted, "")
		require.Equal(t, []string{"0"}, head.Get("ratelimit-remaining"))
		require.Equal(t, []string{"45"}, head.Get("retry-after"))

		free := get(t, edge.URL+"/v1/tenants/acme")
		require.Equal(t, http.StatusOK, free.StatusCode)
		require.Empty(t, free.Header.Get("RateLimit-Limit"), "a call without a limit does not report one")
	})

	t.Run("a server without limits has none", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		var head metadata.MD
		_, err := b.runs.ListRuns(t.Context(), &servov1.ListRunsRequest{Tenant: "acme"}, grpc.Header(&head))
		require.NoError(t, err)
		require.Empty(t, head.Get("ratelimit-limit"))
	})
}

func get(t testing.TB, url string) *http.Response {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	require.NoError(t, err)
	res, err := http.DefaultClient.Do(req)
	require.NoError(t, err)
	_, err = io.Copy(io.Discard, res.Body)
	require.NoError(t, err)
	require.NoError(t, res.Body.Close())
	return res
}

// open opens a stream on a server, and reports whether it was let in.
func open(ctx context.Context, r *replica, run string) error {
	stream, err := r.runs.WatchRun(ctx, &servov1.WatchRunRequest{Tenant: "acme", Run: run})
	if err != nil {
		return err
	}
	_, err = stream.Recv()
	return err
}

func TestStreams(t *testing.T) {
	t.Parallel()

	t.Run("three servers together keep the limit within a chunk for each, and give back what ends", func(t *testing.T) {
		t.Parallel()
		const limit = 4
		b, replicas, clock := threeReplicas(t, ratelimit.Limits{Streams: limit})
		run := b.trigger(t, "single").GetId()
		ctx, leave := context.WithCancel(t.Context())
		defer leave()
		passed := hammer(t, replicas, 10, func(_ context.Context, r *replica) error { return open(ctx, r, run) })
		require.GreaterOrEqual(t, passed, limit)
		require.LessOrEqual(t, passed, limit+len(replicas)*ratelimit.StreamChunk(limit))
		err := open(ctx, replicas[0], run)
		require.Positive(t, requireRefused(t, err, codes.ResourceExhausted, "").GetRetryAfter().AsDuration())

		leave()
		require.Eventually(t, func() bool {
			clock.set(t, b, clock.now.Load().Add(2*time.Second)) // the last report is old by then
			return open(t.Context(), replicas[0], run) == nil
		}, waitLong, waitShort)
	})

	t.Run("a reader that is killed leaves its place", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		r := newReplica(t, b, api.Options{Rates: ratelimit.Limits{Streams: 1}})
		run := b.trigger(t, "single").GetId()
		handler, err := rest.New(r.server, nil)
		require.NoError(t, err)
		edge := httptest.NewServer(handler)
		t.Cleanup(edge.Close)

		conn, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", edge.Listener.Addr().String())
		require.NoError(t, err)
		path := "/v1/tenants/acme/runs/" + run + "/events"
		_, err = fmt.Fprintf(conn, "GET %s HTTP/1.1\r\nHost: servo\r\nAccept: text/event-stream\r\n\r\n", path)
		require.NoError(t, err)
		res, err := http.ReadResponse(bufio.NewReader(conn), nil)
		require.NoError(t, err)
		require.Equal(t, http.StatusOK, res.StatusCode)
		require.Equal(t, "1", res.Header.Get("RateLimit-Limit"))
		require.Equal(t, "0", res.Header.Get("RateLimit-Remaining"))

		require.Equal(t, codes.ResourceExhausted, codeOf(open(t.Context(), r, run)))
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, edge.URL+path, nil)
		require.NoError(t, err)
		req.Header.Set("Accept", "text/event-stream")
		refused, err := http.DefaultClient.Do(req)
		require.NoError(t, err)
		require.NoError(t, refused.Body.Close())
		require.Equal(t, http.StatusTooManyRequests, refused.StatusCode)
		after, err := strconv.Atoi(refused.Header.Get("Retry-After"))
		require.NoError(t, err)
		require.Positive(t, after)

		require.NoError(t, conn.(*net.TCPConn).SetLinger(0)) // as the end of a process that is killed
		require.NoError(t, conn.Close())
		_ = res.Body.Close() // of a connection that is gone
		require.Eventually(t, func() bool { return open(t.Context(), r, run) == nil }, waitLong, waitShort)
	})

	t.Run("the streams of a server that stops do not count any more", func(t *testing.T) {
		t.Parallel()
		b, replicas, _ := threeReplicas(t, ratelimit.Limits{Streams: 1})
		run := b.trigger(t, "single").GetId()
		require.NoError(t, open(t.Context(), replicas[0], run))
		replicas[0].server.Close()
		require.Eventually(t, func() bool { return open(t.Context(), replicas[1], run) == nil }, waitLong, waitShort)
	})
}

// BenchmarkFrame is what a call costs before and after its handler.
func BenchmarkFrame(b *testing.B) {
	w := setup(b)
	info := &grpc.UnaryServerInfo{FullMethod: servov1.RunService_ListRuns_FullMethodName}
	for name, limits := range map[string]ratelimit.Limits{"without limits": {}, "with limits": {List: 1_000_000}} {
		for paged, answer := range map[string]*servov1.ListRunsResponse{"": {}, ", with a page token to seal": {NextPageToken: "01a1e0a6-0245-7000-9545-70920d94c79c"}} {
			b.Run(name+paged, func(b *testing.B) {
				r := newReplica(b, w, api.Options{Rates: limits})
				call := r.server.Unary()
				req := &servov1.ListRunsRequest{Tenant: "acme"}
				b.ReportAllocs()
				for b.Loop() {
					_, err := call(b.Context(), req, info, func(context.Context, any) (any, error) {
						return &servov1.ListRunsResponse{NextPageToken: answer.GetNextPageToken()}, nil
					})
					if err != nil {
						b.Fatal(err)
					}
				}
			})
		}
	}
}
