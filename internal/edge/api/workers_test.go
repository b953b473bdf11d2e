package api_test

import (
	"context"
	"math"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/structpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	servov1 "go.arco.dev/servo/gen/servo/v1"
	"go.arco.dev/servo/internal/base/id"
	"go.arco.dev/servo/internal/edge/api"
	"go.arco.dev/servo/internal/engine"
	"go.arco.dev/servo/internal/store"
)

func TestClaim(t *testing.T) {
	t.Parallel()

	t.Run("a lease has all that its worker needs", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		answer, err := b.runs.TriggerRun(t.Context(), &servov1.TriggerRunRequest{Tenant: "acme", Pipeline: "single", Parameters: object(t, map[string]any{"n": 4})})
		require.NoError(t, err)
		l := b.one(t)
		require.Equal(t, "acme s/one single", l.GetTenant()+" "+l.GetAsset()+" "+l.GetPipeline())
		require.Equal(t, answer.GetRun().GetId(), l.GetRun())
		require.Equal(t, int32(1), l.GetAttempt())
		require.True(t, l.GetStarted())
		require.Equal(t, map[string]any{"n": 4., "day": "today"}, l.GetParameters().AsMap())
		require.Equal(t, []string{"run"}, l.GetCode().GetExec().GetCommand())
		require.Equal(t, time.Minute, l.GetTimeout().AsDuration())
		require.NotNil(t, l.GetExpiresAt())
		require.NotNil(t, l.GetDeadline())
		require.Empty(t, l.GetUpstream())
	})

	t.Run("what the upstreams have left comes along", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		b.trigger(t, "diamond")
		b.report(t, complete(b.one(t), structpb.NewStringValue("a's")))
		leases := b.claim(t, 2)
		require.Len(t, leases, 2)
		for _, l := range leases {
			require.Len(t, l.GetUpstream(), 1)
			require.Equal(t, "d/a a's", l.GetUpstream()[0].GetAsset()+" "+l.GetUpstream()[0].GetResult().GetStringValue())
			require.False(t, l.GetUpstream()[0].GetOmitted())
			require.Equal(t, l.GetRun(), l.GetUpstream()[0].GetRun())
		}
	})

	t.Run("the same claim again returns the same leases", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		for range 3 {
			b.trigger(t, "single")
		}
		b.admit(t)
		req := claimRequest(2)
		first, err := b.workers.Claim(t.Context(), req)
		require.NoError(t, err)
		require.Len(t, first.GetLeases(), 2)
		again, err := b.workers.Claim(t.Context(), req)
		require.NoError(t, err)
		require.ElementsMatch(t, handles(first), handles(again))
		other, err := b.workers.Claim(t.Context(), claimRequest(2))
		require.NoError(t, err)
		require.Len(t, other.GetLeases(), 1)
	})

	t.Run("a waiting claim gets the first task that comes", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		req := claimRequest(1)
		req.Wait = durationpb.New(time.Minute)
		got := make(chan *servov1.ClaimResponse, 1)
		go func() {
			answer, _ := b.workers.Claim(t.Context(), req)
			got <- answer
		}()
		b.trigger(t, "single")
		b.admit(t)
		require.Len(t, (<-got).GetLeases(), 1)
	})

	t.Run("a claim waits no longer than its caller", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		req := claimRequest(1)
		req.Wait = durationpb.New(time.Minute)
		ctx, cancel := context.WithTimeout(t.Context(), 4*time.Second)
		defer cancel()
		answer, err := b.workers.Claim(ctx, req)
		require.NoError(t, err, "it is answered in time")
		require.Empty(t, answer.GetLeases())
	})

	t.Run("a server that stops sends waiting claims away with nothing", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		req := claimRequest(1)
		req.Wait = durationpb.New(time.Minute)
		got := make(chan error, 1)
		go func() {
			answer, err := b.workers.Claim(t.Context(), req)
			if err == nil && len(answer.GetLeases()) > 0 {
				err = context.Canceled
			}
			got <- err
		}()
		b.server.Close()
		select {
		case err := <-got:
			if err != nil { // it was being applied at that moment: to be repeated
				requireRefused(t, err, codes.Unavailable, "")
			}
		case <-time.After(30 * time.Second):
			require.Fail(t, "it still waits")
		}
	})

	t.Run("claims at the same time share what there is", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		const tasks, claimers = 60, 8
		for range tasks {
			b.trigger(t, "single")
		}
		b.admit(t)
		var (
			mu     sync.Mutex
			seen   = map[string]int{}
			group  sync.WaitGroup
			failed error
		)
		for range claimers {
			group.Go(func() {
				for {
					answer, err := b.workers.Claim(t.Context(), claimRequest(5))
					mu.Lock()
					if err != nil {
						failed = err
					}
					for _, h := range handles(answer) {
						seen[h]++
					}
					mu.Unlock()
					if err != nil || len(answer.GetLeases()) == 0 {
						return
					}
					items := make([]*servov1.ReportItem, len(answer.GetLeases()))
					for i, l := range answer.GetLeases() {
						items[i] = complete(l, nil)
					}
					if _, err := b.workers.Report(t.Context(), &servov1.ReportRequest{WorkerId: "w", Items: items}); err != nil {
						mu.Lock()
						failed = err
						mu.Unlock()
						return
					}
				}
			})
		}
		group.Wait()
		require.NoError(t, failed)
		require.Len(t, seen, tasks)
		for _, n := range seen {
			require.Equal(t, 1, n)
		}
	})

	t.Run("invalid cursors are refused with their field", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		for field, spoil := range map[string]func(*servov1.ClaimRequest){
			"worker_id": func(r *servov1.ClaimRequest) { r.WorkerId = strings.Repeat("w", 201) },
			"claim_id":  func(r *servov1.ClaimRequest) { r.ClaimId = "" },
			"pools":     func(r *servov1.ClaimRequest) { r.Pools = nil },
			"pools[1]":  func(r *servov1.ClaimRequest) { r.Pools = []string{"a", ""} },
			"max":       func(r *servov1.ClaimRequest) { r.Max = 1001 },
			"lease":     func(r *servov1.ClaimRequest) { r.Lease = durationpb.New(time.Millisecond) },
			"wait":      func(r *servov1.ClaimRequest) { r.Wait = durationpb.New(2 * time.Minute) },
		} {
			req := claimRequest(1)
			spoil(req)
			_, err := b.workers.Claim(t.Context(), req)
			requireRefused(t, err, codes.InvalidArgument, field)
		}
		req := claimRequest(1)
		req.Pools = []string{"a\x00"}
		_, err := b.workers.Claim(t.Context(), req)
		requireRefused(t, err, codes.InvalidArgument, "pools")
		req = claimRequest(1)
		req.ClaimId = uuid.Nil.String()
		_, err = b.workers.Claim(t.Context(), req)
		requireRefused(t, err, codes.InvalidArgument, "claim_id")
	})
}

func handles(answer *servov1.ClaimResponse) []string {
	var all []string
	for _, l := range answer.GetLeases() {
		all = append(all, l.GetLease())
	}
	return all
}

// stale is the handle of a lease that no worker holds.
func stale() string {
	return api.Handle(store.TaskKey{Tenant: id.Of[id.Tenant](uuid.New()), Run: id.Of[id.Run](uuid.New()), Task: id.Of[id.Task](uuid.New())}, 1, 99)
}

func start(lease string) *servov1.ReportItem {
	return &servov1.ReportItem{Lease: lease, Action: &servov1.ReportItem_Start{Start: &servov1.Start{}}}
}

func TestReport(t *testing.T) {
	t.Parallel()

	t.Run("each item has its own answer, in its place, whatever becomes of the others", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		for range 4 {
			b.trigger(t, "single")
		}
		b.admit(t)
		claim := claimRequest(4)
		claim.Start = false
		claimed, err := b.workers.Claim(t.Context(), claim)
		require.NoError(t, err)
		l := claimed.GetLeases()
		require.Len(t, l, 4)
		answers := b.report(t,
			start(l[0].GetLease()),
			start(stale()),
			start("nonsense"),
			complete(l[0], structpb.NewNumberValue(1)),
			start(l[1].GetLease()),
			failing(l[1], "USER_CODE_EXCEPTION"),
			complete(l[2], structpb.NewNumberValue(math.NaN())),
			&servov1.ReportItem{Lease: l[3].GetLease(), Action: &servov1.ReportItem_Progress{Progress: &servov1.Progress{Phase: "LOAD"}}},
			&servov1.ReportItem{Lease: stale(), Action: &servov1.ReportItem_Progress{Progress: &servov1.Progress{}}},
			&servov1.ReportItem{Lease: l[3].GetLease(), Action: &servov1.ReportItem_Progress{Progress: &servov1.Progress{Phase: "\x00"}}},
			complete(l[0], structpb.NewNumberValue(1)),
		)
		require.Equal(t, servov1.Task_RUNNING, answers[0].GetState())
		require.NotNil(t, answers[0].GetDeadline())
		require.Equal(t, "STALE", answers[1].GetError().GetCode())
		require.Equal(t, "INVALID_ARGUMENT lease", answers[2].GetError().GetCode()+" "+answers[2].GetError().GetField())
		require.Equal(t, "SUCCEEDED SUCCESS", answers[3].GetState().String()+" "+answers[3].GetOutcome(), "started and completed in one call")
		require.Equal(t, servov1.Task_RUNNING, answers[4].GetState())
		require.Equal(t, "FAILED ERROR", answers[5].GetState().String()+" "+answers[5].GetOutcome())
		require.Equal(t, "INVALID_ARGUMENT result", answers[6].GetError().GetCode()+" "+answers[6].GetError().GetField())
		require.Nil(t, answers[7].GetError())
		require.Equal(t, "STALE", answers[8].GetError().GetCode())
		require.Equal(t, "INVALID_ARGUMENT phase", answers[9].GetError().GetCode()+" "+answers[9].GetError().GetField())
		require.True(t, answers[10].GetRepeat())
		require.Equal(t, servov1.Task_SUCCEEDED, answers[10].GetState())
		require.Equal(t, "LOAD", b.taskOf(t, l[3].GetRun(), "s/one").GetProgress().GetPhase())
	})

	t.Run("a repeat gets the first answer", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		b.trigger(t, "single")
		l := b.one(t)
		first := b.report(t, complete(l, nil))[0]
		again := b.report(t, complete(l, nil))[0]
		require.False(t, first.GetRepeat())
		require.True(t, again.GetRepeat())
		require.Equal(t, first.GetState(), again.GetState())
		other := b.report(t, failing(l, "NETWORK_ERROR"))[0]
		require.Equal(t, "STALE", other.GetError().GetCode())
	})

	t.Run("a server that is stopping is worth another try as a whole", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		b.trigger(t, "single")
		l := b.one(t)
		b.engine.Stop()
		_, err := b.workers.Report(t.Context(), &servov1.ReportRequest{WorkerId: "w1", Items: []*servov1.ReportItem{complete(l, nil)}})
		require.Positive(t, requireRefused(t, err, codes.Unavailable, "").GetRetryAfter().AsDuration())
		_, err = b.workers.Report(t.Context(), &servov1.ReportRequest{WorkerId: "w1", Items: []*servov1.ReportItem{complete(l, nil), start("x")}})
		require.NoError(t, err)
	})

	t.Run("a result over its limit is refused by its field", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		b.trigger(t, "single")
		answer := b.report(t, complete(b.one(t), structpb.NewStringValue(strings.Repeat("x", 1<<20))))[0]
		require.Equal(t, "LIMIT_EXCEEDED result", answer.GetError().GetCode()+" "+answer.GetError().GetField())
	})

	t.Run("a report without items, or about nothing, is refused", func(t *testing.T) {
		t.Parallel()
		b := setupBare(t, engine.Config{})
		_, err := b.workers.Report(t.Context(), &servov1.ReportRequest{WorkerId: "w"})
		requireRefused(t, err, codes.InvalidArgument, "items")
		_, err = b.workers.Report(t.Context(), &servov1.ReportRequest{WorkerId: "w", Items: []*servov1.ReportItem{{Lease: "x"}}})
		requireRefused(t, err, codes.InvalidArgument, "items[0].action")
	})
}

func TestHeartbeat(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.trigger(t, "single")
	l := b.one(t)
	beat := func(items ...*servov1.HeartbeatItem) ([]*servov1.HeartbeatAnswer, error) {
		answer, err := b.workers.Heartbeat(t.Context(), &servov1.HeartbeatRequest{WorkerId: "w1", Leases: items})
		return answer.GetLeases(), err
	}

	t.Run("the answers list which leases are held, in their places", func(t *testing.T) {
		t.Parallel()
		answers, err := beat(&servov1.HeartbeatItem{Lease: stale()}, &servov1.HeartbeatItem{Lease: l.GetLease()}, &servov1.HeartbeatItem{Lease: stale()})
		require.NoError(t, err)
		require.Len(t, answers, 3)
		require.Equal(t, []bool{false, true, false}, []bool{answers[0].GetHeld(), answers[1].GetHeld(), answers[2].GetHeld()})
		require.False(t, answers[1].GetShouldCancel())
	})

	t.Run("a name that cannot be stored is refused, and does not keep others from being seen", func(t *testing.T) {
		t.Parallel()
		_, err := b.workers.Heartbeat(t.Context(), &servov1.HeartbeatRequest{WorkerId: "w\x001"})
		require.Equal(t, codes.InvalidArgument, status.Code(err))
		require.ErrorContains(t, err, "zero byte")
	})

	t.Run("nothing is answered with nothing", func(t *testing.T) {
		t.Parallel()
		answers, err := beat()
		require.NoError(t, err)
		require.Empty(t, answers)
	})

	t.Run("invalid reports are refused with their field", func(t *testing.T) {
		t.Parallel()
		good := &servov1.HeartbeatItem{Lease: l.GetLease()}
		_, err := beat(good, &servov1.HeartbeatItem{Lease: "nonsense"})
		requireRefused(t, err, codes.InvalidArgument, "leases[1].lease")
		_, err = beat(good, &servov1.HeartbeatItem{Lease: l.GetLease(), Progress: &servov1.Progress{Fraction: 1.5}})
		requireRefused(t, err, codes.InvalidArgument, "leases[1].progress.fraction")
		_, err = beat(good, &servov1.HeartbeatItem{Lease: l.GetLease(), Progress: &servov1.Progress{Eta: &timestamppb.Timestamp{Nanos: -1}}})
		requireRefused(t, err, codes.InvalidArgument, "leases[1].progress.eta")
		_, err = beat(good, &servov1.HeartbeatItem{Lease: l.GetLease(), Progress: &servov1.Progress{Bytes: -1}})
		requireRefused(t, err, codes.InvalidArgument, "leases[1].progress.bytes")
	})
}

func TestSingleCalls(t *testing.T) {
	t.Parallel()

	t.Run("an attempt is started, advanced, yielded, fanned out and completed, one call at a time", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		run := b.trigger(t, "fan").GetId()
		b.admit(t)
		claim := claimRequest(1)
		claim.Start = false
		claimed, err := b.workers.Claim(t.Context(), claim)
		require.NoError(t, err)
		l := claimed.GetLeases()[0]
		require.False(t, l.GetStarted())

		started, err := b.workers.StartTask(t.Context(), &servov1.StartTaskRequest{Task: l.GetTask(), Attempt: 1, Lease: l.GetLease()})
		require.NoError(t, err)
		require.Equal(t, servov1.Task_RUNNING, started.GetState())

		_, err = b.workers.AdvanceCursor(t.Context(), &servov1.AdvanceCursorRequest{Task: l.GetTask(), Attempt: 1, Lease: l.GetLease(), Expected: "", Next: "p1"})
		require.NoError(t, err)
		_, err = b.workers.AdvanceCursor(t.Context(), &servov1.AdvanceCursorRequest{Task: l.GetTask(), Attempt: 1, Lease: l.GetLease(), Expected: "elsewhere", Next: "p2"})
		require.Equal(t, "CONFLICT", problemOf(t, err).GetCode())

		yielded, err := b.workers.YieldTask(t.Context(), &servov1.YieldTaskRequest{Task: l.GetTask(), Attempt: 1, Lease: l.GetLease(), Cursor: proto.String("p2")})
		require.NoError(t, err)
		require.Equal(t, servov1.Task_READY, yielded.GetState())
		l = b.one(t)
		require.Equal(t, int32(2), l.GetAttempt())
		require.Equal(t, "p2", l.GetCursor())

		added, err := b.workers.FanOutTask(t.Context(), &servov1.FanOutTaskRequest{
			Task: l.GetTask(), Attempt: 2, Lease: l.GetLease(), Barrier: true,
			Tasks: []*servov1.FanOutTask{{Asset: "f/fetch", Partition: "eu"}, {Asset: "f/fetch", Partition: "us"}},
		})
		require.NoError(t, err)
		require.Len(t, added.GetAdded(), 2)
		_, err = b.workers.FanOutTask(t.Context(), &servov1.FanOutTaskRequest{
			Task: l.GetTask(), Attempt: 2, Lease: l.GetLease(), Ordinal: 1, Tasks: []*servov1.FanOutTask{{Asset: "no/where"}},
		})
		require.Equal(t, codes.InvalidArgument.String(), codeOf(err).String())

		done, err := b.workers.CompleteTask(t.Context(), &servov1.CompleteTaskRequest{
			Task: l.GetTask(), Attempt: 2, Lease: l.GetLease(), Status: servov1.Complete_PARTIAL_SUCCESS, Result: structpb.NewBoolValue(true),
		})
		require.NoError(t, err)
		require.Equal(t, "SUCCEEDED PARTIAL_SUCCESS", done.GetState().String()+" "+done.GetOutcome())
		b.drain(t)
		read, err := b.runs.GetRun(t.Context(), &servov1.GetRunRequest{Tenant: "acme", Run: run})
		require.NoError(t, err)
		require.Equal(t, servov1.Run_SUCCEEDED, read.GetState())
		require.Equal(t, int32(4), read.GetTasks().GetSucceeded())

		join := b.taskOf(t, run, "f/join")
		upstream, err := b.tasks.ListUpstreamTasks(t.Context(), &servov1.ListUpstreamTasksRequest{Tenant: "acme", Run: run, Task: join.GetId()})
		require.NoError(t, err)
		require.Len(t, upstream.GetTasks(), 3, "those of the barrier too")
	})

	t.Run("a failure decides on its own whether there is another attempt", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		b.trigger(t, "single")
		l := b.one(t)
		req := &servov1.FailTaskRequest{Task: l.GetTask(), Attempt: 1, Lease: l.GetLease(), Error: &servov1.Failure{Code: "NETWORK_ERROR"}, ShouldRetry: proto.Bool(false)}
		failed, err := b.workers.FailTask(t.Context(), req)
		require.NoError(t, err)
		require.Equal(t, servov1.Task_FAILED, failed.GetState(), "the worker's hint makes it final")
		again, err := b.workers.FailTask(t.Context(), req)
		require.NoError(t, err)
		require.True(t, again.GetRepeat())
	})

	t.Run("a lease of another task or attempt, or none at all, is refused", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		b.trigger(t, "single")
		l := b.one(t)
		for _, req := range []*servov1.CompleteTaskRequest{
			{Task: uuid.NewString(), Attempt: 1, Lease: l.GetLease()},
			{Task: l.GetTask(), Attempt: 2, Lease: l.GetLease()},
			{Task: l.GetTask(), Attempt: 1, Lease: "nonsense"},
		} {
			_, err := b.workers.CompleteTask(t.Context(), req)
			requireRefused(t, err, codes.InvalidArgument, "lease")
		}
		_, err := b.workers.CompleteTask(t.Context(), &servov1.CompleteTaskRequest{Task: "x", Attempt: 1, Lease: l.GetLease()})
		requireRefused(t, err, codes.InvalidArgument, "task")
		_, err = b.workers.CompleteTask(t.Context(), &servov1.CompleteTaskRequest{Task: l.GetTask(), Attempt: 1, Lease: l.GetLease(), Result: structpb.NewNumberValue(math.Inf(1))})
		requireRefused(t, err, codes.InvalidArgument, "result")
	})

	t.Run("a lease without a holder is stale", func(t *testing.T) {
		t.Parallel()
		b := setupBare(t, engine.Config{})
		task := uuid.New()
		text := api.Handle(store.TaskKey{Tenant: id.Of[id.Tenant](uuid.New()), Run: id.Of[id.Run](uuid.New()), Task: id.Of[id.Task](task)}, 1, 99)
		_, err := b.workers.StartTask(t.Context(), &servov1.StartTaskRequest{Task: task.String(), Attempt: 1, Lease: text})
		require.Equal(t, codes.Aborted, codeOf(err))
		require.Equal(t, "STALE", problemOf(t, err).GetCode())
	})
}
