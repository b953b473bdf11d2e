package client_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"
	"google.golang.org/protobuf/types/known/durationpb"

	"go.arco.dev/servo/client"
	servov1 "go.arco.dev/servo/gen/servo/v1"
)

// fake is a server whose answers a test writes down.
type fake struct {
	servov1.UnimplementedTenantServiceServer
	servov1.UnimplementedRunServiceServer
	servov1.UnimplementedTaskServiceServer
	servov1.UnimplementedWorkerServiceServer

	mu       sync.Mutex
	calls    []string // the methods, in order
	keys     []string // the idempotency keys of triggers, in order
	failures []error  // one for each of the next calls; then none

	runs  int
	watch func(*servov1.WatchRunRequest, grpc.ServerStreamingServer[servov1.WatchRunResponse]) error
	park  func(context.Context, *servov1.ClaimRequest) *servov1.ClaimResponse // what a claim does; nil is nothing
	logs  func(*servov1.ListTaskLogsRequest) *servov1.ListTaskLogsResponse
}

// next notes a call and gives the failure that it is to have.
func (f *fake) next(ctx context.Context, method string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.calls = append(f.calls, method)
	if md, _ := metadata.FromIncomingContext(ctx); len(md.Get("idempotency-key")) > 0 {
		f.keys = append(f.keys, md.Get("idempotency-key")...)
	}
	if len(f.failures) == 0 {
		return nil
	}
	err := f.failures[0]
	f.failures = f.failures[1:]
	return err
}

func (f *fake) seen() (calls, keys []string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return append([]string(nil), f.calls...), append([]string(nil), f.keys...)
}

func (f *fake) CreateTenant(ctx context.Context, req *servov1.CreateTenantRequest) (*servov1.Tenant, error) {
	return &servov1.Tenant{Name: req.GetName()}, f.next(ctx, "CreateTenant")
}

func (f *fake) TriggerRun(ctx context.Context, _ *servov1.TriggerRunRequest) (*servov1.TriggerRunResponse, error) {
	if err := f.next(ctx, "TriggerRun"); err != nil {
		return nil, err
	}
	return &servov1.TriggerRunResponse{Run: &servov1.Run{Id: "r"}, RepeatedRequest: true}, nil
}

func (f *fake) GetRun(ctx context.Context, req *servov1.GetRunRequest) (*servov1.Run, error) {
	return &servov1.Run{Id: req.GetRun()}, f.next(ctx, "GetRun")
}

// ListRuns has as many runs as the fake has, and a token that is the number of the next one.
func (f *fake) ListRuns(ctx context.Context, req *servov1.ListRunsRequest) (*servov1.ListRunsResponse, error) {
	if err := f.next(ctx, "ListRuns"); err != nil {
		return nil, err
	}
	from := 0
	_, _ = fmt.Sscan(req.GetPageToken(), &from)
	answer := &servov1.ListRunsResponse{}
	for i := from; i < f.runs && i < from+int(req.GetPageSize()); i++ {
		answer.Runs = append(answer.Runs, &servov1.Run{Id: fmt.Sprint(i)})
	}
	if end := from + int(req.GetPageSize()); end < f.runs {
		answer.NextPageToken = fmt.Sprint(end)
	}
	return answer, nil
}

func (f *fake) WatchRun(req *servov1.WatchRunRequest, stream grpc.ServerStreamingServer[servov1.WatchRunResponse]) error {
	if err := f.next(stream.Context(), "WatchRun"); err != nil {
		return err
	}
	return f.watch(req, stream)
}

func (f *fake) ListTaskLogs(_ context.Context, req *servov1.ListTaskLogsRequest) (*servov1.ListTaskLogsResponse, error) {
	return f.logs(req), nil
}

func (f *fake) Claim(ctx context.Context, request *servov1.ClaimRequest) (*servov1.ClaimResponse, error) {
	if f.park != nil {
		return f.park(ctx, request), nil
	}
	return &servov1.ClaimResponse{}, f.next(ctx, "Claim")
}

func (f *fake) register(to *grpc.Server) {
	servov1.RegisterTenantServiceServer(to, f)
	servov1.RegisterRunServiceServer(to, f)
	servov1.RegisterTaskServiceServer(to, f)
	servov1.RegisterWorkerServiceServer(to, f)
}

// serve answers on a listener until the test ends.
func (f *fake) serve(t *testing.T, listener net.Listener) *grpc.Server {
	t.Helper()
	server := grpc.NewServer()
	f.register(server)
	done := make(chan error, 1)
	go func() { done <- server.Serve(listener) }()
	t.Cleanup(func() {
		server.Stop()
		if err := <-done; err != nil && !errors.Is(err, grpc.ErrServerStopped) {
			t.Error(err)
		}
	})
	return server
}

// dial connects to the fake without a network.
func (f *fake) dial(t *testing.T, options client.Options) *client.Client {
	t.Helper()
	listener := bufconn.Listen(1 << 20)
	f.serve(t, listener)
	options.Servers = []string{"fake:1"}
	options.DialOptions = append(options.DialOptions, grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) {
		return listener.DialContext(ctx)
	}))
	return open(t, options)
}

func open(t *testing.T, options client.Options) *client.Client {
	t.Helper()
	c, err := client.New(options)
	require.NoError(t, err)
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// unavailable is a server that asks for another try.
func unavailable(t *testing.T) error {
	t.Helper()
	return refusal(t, codes.Unavailable, &servov1.Problem{Code: "UNAVAILABLE", Message: "busy", RetryAfter: durationpb.New(1)})
}

func refusal(t *testing.T, code codes.Code, problem *servov1.Problem) error {
	t.Helper()
	st, err := status.New(code, problem.GetMessage()).WithDetails(problem)
	require.NoError(t, err)
	return st.Err()
}
