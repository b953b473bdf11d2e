package client_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/structpb"

	"go.arco.dev/servo/client"
	servov1 "go.arco.dev/servo/gen/servo/v1"
)

// TestMain sees that closed clients leave nothing behind. The tests' PostgreSQL stays.
func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m,
		goleak.IgnoreAnyFunction("go.arco.dev/servo/internal/devkit/devpg.(*Server).spawn.func1"),
		goleak.IgnoreAnyFunction("go.arco.dev/servo/internal/devkit/devpg.(*Server).launchOn.func1"))
}

func TestNew(t *testing.T) {
	t.Parallel()

	t.Run("an address that is none is refused before anything is called", func(t *testing.T) {
		t.Parallel()
		for _, servers := range [][]string{nil, {"localhost"}, {"http://localhost:8080"}, {"127.0.0.1:8081", ":8081"}, {"127.0.0.1:"}} {
			_, err := client.New(client.Options{Servers: servers})
			require.True(t, client.Is(err, client.InvalidArgument), "%v: %v", servers, err)
		}
	})

	t.Run("calls are spread over all servers and continue when one does not answer", func(t *testing.T) {
		t.Parallel()
		var fakes [2]fake
		var servers [2]*grpc.Server
		var addresses []string
		for i := range fakes {
			listener, err := net.Listen("tcp", "127.0.0.1:0")
			require.NoError(t, err)
			servers[i] = fakes[i].serve(t, listener)
			addresses = append(addresses, listener.Addr().String())
		}
		c := open(t, client.Options{Servers: addresses})
		both := func() bool {
			_, err := c.Runs().GetRun(t.Context(), &servov1.GetRunRequest{})
			require.NoError(t, err)
			one, _ := fakes[0].seen()
			two, _ := fakes[1].seen()
			return len(one) > 0 && len(two) > 0
		}
		for !both() { // the second connection may come a little later
			require.NoError(t, t.Context().Err())
		}
		servers[0].Stop()
		for range 20 {
			_, err := c.Runs().GetRun(t.Context(), &servov1.GetRunRequest{})
			require.NoError(t, err)
		}
	})

	t.Run("without a server a call fails after its patience, and names the addresses", func(t *testing.T) {
		t.Parallel()
		listener, err := net.Listen("tcp", "127.0.0.1:0")
		require.NoError(t, err)
		require.NoError(t, listener.Close())
		c := open(t, client.Options{Servers: []string{listener.Addr().String()}, Patience: time.Millisecond})
		_, err = c.Runs().GetRun(t.Context(), &servov1.GetRunRequest{})
		require.True(t, client.Is(err, client.Unavailable), err)
		for _, err := range client.WatchRun(t.Context(), c, &servov1.WatchRunRequest{}) {
			require.True(t, client.Is(err, client.Unavailable), err)
		}
	})

	t.Run("without patience a call waits for a server as long as its context allows", func(t *testing.T) {
		t.Parallel()
		listener, err := net.Listen("tcp", "127.0.0.1:0")
		require.NoError(t, err)
		require.NoError(t, listener.Close())
		c := open(t, client.Options{Servers: []string{listener.Addr().String()}})
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		defer cancel()
		_, err = c.Runs().GetRun(ctx, &servov1.GetRunRequest{})
		require.ErrorIs(t, err, context.DeadlineExceeded)

		var f fake
		again, err := net.Listen("tcp", listener.Addr().String())
		require.NoError(t, err)
		f.serve(t, again)
		_, err = c.Runs().GetRun(t.Context(), &servov1.GetRunRequest{})
		require.NoError(t, err)
	})
}

func TestProblem(t *testing.T) {
	t.Parallel()

	t.Run("a problem of the server arrives complete", func(t *testing.T) {
		t.Parallel()
		values, err := structpb.NewStruct(map[string]any{"limit": 10.0})
		require.NoError(t, err)
		f := &fake{failures: []error{refusal(t, codes.InvalidArgument, &servov1.Problem{
			Code: "LIMIT_EXCEEDED", Message: "too many", Field: "select", Remedy: "send fewer", RetryAfter: durationpb.New(time.Second), Values: values,
			Violations: []*servov1.Violation{{Code: "LIMIT_EXCEEDED", Message: "too many", Field: "select", Remedy: "send fewer"}, {Code: "INVALID_ARGUMENT", Message: "is empty", Field: "tenant"}},
		})}}
		c := f.dial(t, client.Options{})
		_, err = c.Runs().GetRun(t.Context(), &servov1.GetRunRequest{})
		var p *client.Problem
		require.ErrorAs(t, err, &p)
		require.Equal(t, "select: too many (send fewer), and 1 more", p.Error())
		require.Equal(t, map[string]any{"limit": 10.0}, p.Values)
		require.Equal(t, time.Second, p.RetryAfter)
		require.Equal(t, client.Violation{Code: "INVALID_ARGUMENT", Message: "is empty", Field: "tenant"}, p.Violations[1])
		require.True(t, client.Is(err, client.LimitExceeded))
		require.False(t, client.Is(err, client.NotFound))
		require.Equal(t, codes.InvalidArgument, status.Code(err))
	})

	t.Run("a status without details has a code too", func(t *testing.T) {
		t.Parallel()
		for code, want := range map[codes.Code]string{
			codes.NotFound: client.NotFound, codes.Unimplemented: client.Unimplemented, codes.ResourceExhausted: client.LimitExceeded,
			codes.FailedPrecondition: client.Conflict, codes.Aborted: client.Stale, codes.AlreadyExists: client.AlreadyExists,
			codes.Unknown: client.Internal, codes.OutOfRange: client.InvalidArgument, codes.Canceled: client.Cancelled,
		} {
			f := &fake{failures: []error{status.Error(code, "no")}}
			_, err := f.dial(t, client.Options{}).Runs().GetRun(t.Context(), &servov1.GetRunRequest{})
			require.True(t, client.Is(err, want), "%v: %v", code, err)
		}
	})

	t.Run("a cancelled call is the context's error", func(t *testing.T) {
		t.Parallel()
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		_, err := (&fake{}).dial(t, client.Options{}).Runs().GetRun(ctx, &servov1.GetRunRequest{})
		require.ErrorIs(t, err, context.Canceled)
	})

	t.Run("nothing else is a problem", func(t *testing.T) {
		t.Parallel()
		require.False(t, client.Is(errors.New("x"), client.Internal))
		require.False(t, client.Is(nil, client.Internal))
		require.Equal(t, "STALE", client.FromMessage(&servov1.Problem{Code: "STALE"}).Code)
	})
}

func TestRepeats(t *testing.T) {
	t.Parallel()

	t.Run("a read and a claim are repeated until they work", func(t *testing.T) {
		t.Parallel()
		f := &fake{failures: []error{unavailable(t), unavailable(t), nil, unavailable(t)}}
		c := f.dial(t, client.Options{})
		_, err := c.Runs().GetRun(t.Context(), &servov1.GetRunRequest{})
		require.NoError(t, err)
		_, err = c.Workers().Claim(t.Context(), &servov1.ClaimRequest{})
		require.NoError(t, err)
		calls, _ := f.seen()
		require.Equal(t, []string{"GetRun", "GetRun", "GetRun", "Claim", "Claim"}, calls)
	})

	t.Run("after five times it is enough", func(t *testing.T) {
		t.Parallel()
		f := &fake{}
		for range 9 {
			f.failures = append(f.failures, unavailable(t))
		}
		_, err := f.dial(t, client.Options{}).Runs().GetRun(t.Context(), &servov1.GetRunRequest{})
		require.True(t, client.Is(err, client.Unavailable))
		calls, _ := f.seen()
		require.Len(t, calls, 5)
	})

	t.Run("a pause that the context does not have is not begun", func(t *testing.T) {
		t.Parallel()
		f := &fake{failures: []error{refusal(t, codes.Unavailable, &servov1.Problem{Code: "UNAVAILABLE", Message: "busy", RetryAfter: durationpb.New(time.Hour)})}}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		_, err := f.dial(t, client.Options{}).Runs().GetRun(ctx, &servov1.GetRunRequest{})
		require.True(t, client.Is(err, client.Unavailable))
		require.NoError(t, ctx.Err())
	})

	t.Run("what was refused for good is not repeated", func(t *testing.T) {
		t.Parallel()
		f := &fake{failures: []error{status.Error(codes.NotFound, "no such run")}}
		_, err := f.dial(t, client.Options{}).Runs().GetRun(t.Context(), &servov1.GetRunRequest{})
		require.True(t, client.Is(err, client.NotFound))
		calls, _ := f.seen()
		require.Len(t, calls, 1)
	})

	t.Run("a create call is repeated under one key", func(t *testing.T) {
		t.Parallel()
		atWork := refusal(t, codes.FailedPrecondition, &servov1.Problem{Code: "CONFLICT", Message: "at work", Field: "idempotency_key", RetryAfter: durationpb.New(1)})
		f := &fake{failures: []error{unavailable(t), atWork}}
		_, err := f.dial(t, client.Options{}).Tenants().CreateTenant(t.Context(), &servov1.CreateTenantRequest{})
		require.NoError(t, err)
		_, keys := f.seen()
		require.Len(t, keys, 3)
		require.Equal(t, []string{keys[0], keys[0], keys[0]}, keys)
	})

	t.Run("a key that was used for another request is no reason to try again", func(t *testing.T) {
		t.Parallel()
		f := &fake{failures: []error{refusal(t, codes.FailedPrecondition, &servov1.Problem{Code: "CONFLICT", Message: "used", Field: "idempotency_key"})}}
		_, err := f.dial(t, client.Options{}).Tenants().CreateTenant(client.WithIdempotencyKey(t.Context(), "mine"), &servov1.CreateTenantRequest{})
		require.True(t, client.Is(err, client.Conflict))
		calls, _ := f.seen()
		require.Len(t, calls, 1)
	})

	t.Run("a trigger is repeated under one key of its own", func(t *testing.T) {
		t.Parallel()
		f := &fake{failures: []error{unavailable(t)}}
		c := f.dial(t, client.Options{})
		answer, err := c.Runs().TriggerRun(t.Context(), &servov1.TriggerRunRequest{})
		require.NoError(t, err)
		require.False(t, answer.GetRepeatedRequest(), "the caller has asked once")
		_, err = c.Runs().TriggerRun(t.Context(), &servov1.TriggerRunRequest{})
		require.NoError(t, err)
		_, keys := f.seen()
		require.Len(t, keys, 3)
		require.Equal(t, keys[0], keys[1])
		require.NotEqual(t, keys[1], keys[2], "another trigger is another run")
	})

	t.Run("a trigger with the caller's key keeps it", func(t *testing.T) {
		t.Parallel()
		f := &fake{failures: []error{unavailable(t)}}
		ctx := client.WithIdempotencyKey(t.Context(), "mine")
		answer, err := f.dial(t, client.Options{}).Runs().TriggerRun(ctx, &servov1.TriggerRunRequest{})
		require.NoError(t, err)
		require.True(t, answer.GetRepeatedRequest())
		_, keys := f.seen()
		require.Equal(t, []string{"mine", "mine"}, keys)
	})
}

func TestPages(t *testing.T) {
	t.Parallel()

	t.Run("all pages are read, each when it is needed", func(t *testing.T) {
		t.Parallel()
		f := &fake{runs: 250}
		c := f.dial(t, client.Options{})
		req := &servov1.ListRunsRequest{Tenant: "acme"}
		var ids []string
		for run, err := range client.AllRuns(t.Context(), c, req) {
			require.NoError(t, err)
			ids = append(ids, run.GetId())
		}
		require.Len(t, ids, 250)
		for i, id := range ids {
			require.Equal(t, fmt.Sprint(i), id)
		}
		require.Empty(t, req.GetPageToken(), "the request is the caller's")
		for range client.AllRuns(t.Context(), c, req) {
			break
		}
		calls, _ := f.seen()
		require.Len(t, calls, 4)
	})

	t.Run("a failure ends the list", func(t *testing.T) {
		t.Parallel()
		f := &fake{runs: 250, failures: []error{nil, status.Error(codes.NotFound, "gone")}}
		seen, failed := 0, 0
		for _, err := range client.AllRuns(t.Context(), f.dial(t, client.Options{}), &servov1.ListRunsRequest{}) {
			if err != nil {
				failed++
				require.True(t, client.Is(err, client.NotFound))
				continue
			}
			seen++
		}
		require.Equal(t, []int{100, 1}, []int{seen, failed})
	})

	t.Run("logs are followed until the attempt is over, and never into the next one", func(t *testing.T) {
		t.Parallel()
		var asked []string
		f := &fake{logs: func(req *servov1.ListTaskLogsRequest) *servov1.ListTaskLogsResponse {
			asked = append(asked, fmt.Sprint(req.GetAttempt(), req.GetPageToken()))
			switch len(asked) {
			case 1:
				return &servov1.ListTaskLogsResponse{Attempt: 2, Chunks: []*servov1.LogChunk{{Seq: 1, Text: "one"}}, NextPageToken: "a"}
			case 2, 3:
				return &servov1.ListTaskLogsResponse{Attempt: 2, NextPageToken: "a"}
			default:
				return &servov1.ListTaskLogsResponse{Attempt: 2, Chunks: []*servov1.LogChunk{{Seq: 2, Text: "two"}}}
			}
		}}
		c := f.dial(t, client.Options{})
		var text []string
		for page, err := range client.TaskLogs(t.Context(), c, &servov1.ListTaskLogsRequest{}, time.Nanosecond) {
			require.NoError(t, err)
			text = append(text, page.GetChunks()[0].GetText())
		}
		require.Equal(t, []string{"one", "two"}, text)
		require.Equal(t, []string{"0", "2a", "2a", "2a"}, asked)

		asked = nil
		for range client.TaskLogs(t.Context(), c, &servov1.ListTaskLogsRequest{}, 0) {
			require.Len(t, asked, 1)
		}
		require.Len(t, asked, 2, "without a pace it ends with what is there")
	})
}

func TestWatchRun(t *testing.T) {
	t.Parallel()
	event := func(n int) *servov1.WatchRunResponse {
		return &servov1.WatchRunResponse{Message: &servov1.WatchRunResponse_Event{Event: &servov1.Event{Id: fmt.Sprint(n)}}}
	}
	end := &servov1.WatchRunResponse{Message: &servov1.WatchRunResponse_End{End: &servov1.Run{State: servov1.Run_SUCCEEDED}}}
	// flaky sends events 1 to 9 and the end, and breaks off after every third.
	flaky := func(req *servov1.WatchRunRequest, stream grpc.ServerStreamingServer[servov1.WatchRunResponse]) error {
		after := 0
		_, _ = fmt.Sscan(req.GetAfter(), &after)
		for i := after + 1; i <= 9; i++ {
			if err := stream.Send(event(i)); err != nil {
				return err
			}
			if i%3 == 0 {
				return status.Error(codes.Unavailable, "stopping")
			}
		}
		return stream.Send(end)
	}

	t.Run("it continues after the last event, over any number of broken connections", func(t *testing.T) {
		t.Parallel()
		f := &fake{watch: flaky, failures: []error{nil, unavailable(t), unavailable(t)}}
		var ids []string
		var ended *servov1.Run
		for message, err := range client.WatchRun(t.Context(), f.dial(t, client.Options{}), &servov1.WatchRunRequest{}) {
			require.NoError(t, err)
			if message.GetEvent() != nil {
				ids = append(ids, message.GetEvent().GetId())
				require.Len(t, ids, len(slices.Compact(slices.Sorted(slices.Values(ids)))), "none comes twice")
			}
			ended = message.GetEnd()
		}
		require.Equal(t, []string{"1", "2", "3", "4", "5", "6", "7", "8", "9"}, ids)
		require.Equal(t, servov1.Run_SUCCEEDED, ended.GetState())
	})

	t.Run("a stream that ends without the run's end is not taken for it", func(t *testing.T) {
		t.Parallel()
		first := true
		f := &fake{watch: func(_ *servov1.WatchRunRequest, stream grpc.ServerStreamingServer[servov1.WatchRunResponse]) error {
			if first {
				first = false
				return nil
			}
			return stream.Send(end)
		}}
		messages := 0
		for message, err := range client.WatchRun(t.Context(), f.dial(t, client.Options{}), &servov1.WatchRunRequest{}) {
			require.NoError(t, err)
			require.NotNil(t, message.GetEnd())
			messages++
		}
		require.Equal(t, 1, messages)
	})

	t.Run("a refusal ends it", func(t *testing.T) {
		t.Parallel()
		f := &fake{failures: []error{status.Error(codes.NotFound, "no such run")}}
		var errs []error
		for _, err := range client.WatchRun(t.Context(), f.dial(t, client.Options{}), &servov1.WatchRunRequest{}) {
			errs = append(errs, err)
		}
		require.Len(t, errs, 1)
		require.True(t, client.Is(errs[0], client.NotFound))
	})

	t.Run("a reader that leaves ends the stream", func(t *testing.T) {
		t.Parallel()
		gone := make(chan struct{})
		f := &fake{watch: func(_ *servov1.WatchRunRequest, stream grpc.ServerStreamingServer[servov1.WatchRunResponse]) error {
			defer close(gone)
			if err := stream.Send(event(1)); err != nil {
				return err
			}
			<-stream.Context().Done()
			return stream.Context().Err()
		}}
		for range client.WatchRun(t.Context(), f.dial(t, client.Options{}), &servov1.WatchRunRequest{}) {
			break
		}
		<-gone
	})
}
