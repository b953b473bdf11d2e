package worker_test

import (
	"context"
	"fmt"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/types/known/durationpb"

	servov1 "go.arco.dev/servo/gen/servo/v1"
	"go.arco.dev/servo/internal/worker"
)

// endless is a server with a number of tasks that accepts every report.
type endless struct {
	servov1.UnimplementedWorkerServiceServer

	left, reported atomic.Int64
	calls          atomic.Int64
	total          int64
	done           chan struct{}
}

func (s *endless) Claim(ctx context.Context, r *servov1.ClaimRequest) (*servov1.ClaimResponse, error) {
	n := min(s.left.Add(-int64(r.GetMax()))+int64(r.GetMax()), int64(r.GetMax()))
	if n <= 0 {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	code := &servov1.Code{Kind: &servov1.Code_Go{Go: &servov1.GoCode{Handler: "gold/a"}}}
	answer := &servov1.ClaimResponse{Leases: make([]*servov1.Lease, n)}
	for i := range answer.GetLeases() {
		answer.Leases[i] = &servov1.Lease{
			Lease: uuid.NewString(), Tenant: "acme", Run: "r", Task: "t", Asset: "gold/a", Attempt: 1, Started: r.GetStart(), Code: code,
			Timeout: durationpb.New(time.Hour),
		}
	}
	return answer, nil
}

func (s *endless) Report(_ context.Context, r *servov1.ReportRequest) (*servov1.ReportResponse, error) {
	s.calls.Add(1)
	answer := &servov1.ReportResponse{Answers: make([]*servov1.ReportAnswer, len(r.GetItems()))}
	ended := int64(0)
	for i, it := range r.GetItems() {
		answer.Answers[i] = &servov1.ReportAnswer{}
		if it.GetComplete() != nil {
			ended++
		}
	}
	if ended > 0 && s.reported.Add(ended) == s.total {
		close(s.done)
	}
	return answer, nil
}

// BenchmarkWorker is what the worker alone costs per task, over gRPC on loopback; the server
// is part of it.
func BenchmarkWorker(b *testing.B) {
	for _, slots := range []int{200, 1000} {
		for _, size := range []int{0, 500} {
			b.Run(fmt.Sprintf("slots=%d/result=%d", slots, size), func(b *testing.B) { benchmarkWorker(b, slots, size) })
		}
	}
}

func benchmarkWorker(b *testing.B, slots, size int) {
	b.Helper()
	b.ReportAllocs()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(b, err)
	service := &endless{total: int64(b.N), done: make(chan struct{})}
	service.left.Store(int64(b.N))
	server := grpc.NewServer()
	servov1.RegisterWorkerServiceServer(server, service)
	go func() { _ = server.Serve(listener) }()
	defer server.Stop()
	conn, err := grpc.NewClient(listener.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	require.NoError(b, err)
	defer func() { _ = conn.Close() }()

	functions := worker.NewHandlers()
	if size == 0 {
		functions.Add("gold/a", nothing)
	} else {
		text := make([]byte, size)
		for i := range text {
			text[i] = 'x'
		}
		functions.Add("gold/a", returns(fmt.Sprintf(`{"n":1,"text":"%s"}`, text)))
	}
	w, err := worker.New(worker.Options{Conn: conn, Concurrency: slots, Executors: []worker.Executor{functions}})
	require.NoError(b, err)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	b.ResetTimer()
	go func() { ended <- w.Run(ctx) }()
	<-service.done
	b.StopTimer()
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "tasks/s")
	b.ReportMetric(float64(service.calls.Load())/float64(b.N), "reports/task")
	cancel()
	require.NoError(b, <-ended)
}
