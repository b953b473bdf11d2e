package api_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/structpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	servov1 "go.arco.dev/servo/gen/servo/v1"
)

// taskOf finds the task of an asset.
func (b *bundle) taskOf(t testing.TB, run, asset string) *servov1.Task {
	t.Helper()
	list, err := b.tasks.ListTasks(t.Context(), &servov1.ListTasksRequest{Tenant: "acme", Run: run, Asset: asset})
	require.NoError(t, err)
	require.NotEmpty(t, list.GetTasks())
	task, err := b.tasks.GetTask(t.Context(), &servov1.GetTaskRequest{Tenant: "acme", Run: run, Task: list.GetTasks()[0].GetId()})
	require.NoError(t, err)
	return task
}

func failing(l *servov1.Lease, code string) *servov1.ReportItem {
	return &servov1.ReportItem{Lease: l.GetLease(), Action: &servov1.ReportItem_Fail{Fail: &servov1.Fail{Error: &servov1.Failure{
		Code: code, Message: "it broke", Details: &structpb.Struct{Fields: map[string]*structpb.Value{"line": structpb.NewNumberValue(7)}}, SuggestedAction: "repair it",
	}}}}
}

func TestListTasks(t *testing.T) {
	t.Parallel()
	b := setup(t)
	run := b.trigger(t, "diamond").GetId()
	require.Nil(t, b.report(t, complete(b.one(t), structpb.NewStringValue("a's")))[0].GetError())
	list := func(t *testing.T, req *servov1.ListTasksRequest) []string {
		t.Helper()
		return pages(t, func(token string) ([]string, string, error) {
			req.Tenant, req.Run, req.PageToken = "acme", run, token
			answer, err := b.tasks.ListTasks(t.Context(), req)
			var lines []string
			for _, task := range answer.GetTasks() {
				lines = append(lines, fmt.Sprint(task.GetIndex(), task.GetAsset(), task.GetState()))
			}
			return lines, answer.GetNextPageToken(), err
		})
	}
	all := []string{"0d/aSUCCEEDED", "1d/bREADY", "2d/cREADY", "3d/dPENDING"}

	t.Run("tasks are listed in the order of the plan, page by page", func(t *testing.T) {
		t.Parallel()
		for size := range int32(6) {
			require.Equal(t, all, list(t, &servov1.ListTasksRequest{PageSize: size}))
		}
	})

	t.Run("by state and by asset", func(t *testing.T) {
		t.Parallel()
		require.Equal(t, all[1:3], list(t, &servov1.ListTasksRequest{State: []servov1.Task_State{servov1.Task_READY, servov1.Task_FAILED}, PageSize: 1}))
		require.Equal(t, all[3:], list(t, &servov1.ListTasksRequest{Asset: "d/d"}))
		require.Empty(t, list(t, &servov1.ListTasksRequest{Asset: "x/y"}))
	})

	t.Run("whom a task waits for, with what they have left", func(t *testing.T) {
		t.Parallel()
		read := func(asset string) []string {
			task := b.taskOf(t, run, asset).GetId()
			return pages(t, func(token string) ([]string, string, error) {
				answer, err := b.tasks.ListUpstreamTasks(t.Context(), &servov1.ListUpstreamTasksRequest{Tenant: "acme", Run: run, Task: task, PageSize: 1, PageToken: token})
				var lines []string
				for _, u := range answer.GetTasks() {
					lines = append(lines, fmt.Sprint(u.GetIndex(), u.GetAsset(), u.GetState(), u.GetOutcome(), u.GetResult().GetStringValue()))
				}
				return lines, answer.GetNextPageToken(), err
			})
		}
		require.Empty(t, read("d/a"))
		require.Equal(t, []string{"0d/aSUCCEEDEDSUCCESSa's"}, read("d/b"))
		require.Equal(t, []string{"1d/bREADY", "2d/cREADY"}, read("d/d"))
	})

	t.Run("invalid times are refused with their field", func(t *testing.T) {
		t.Parallel()
		_, err := b.tasks.ListTasks(t.Context(), &servov1.ListTasksRequest{Tenant: "acme", Run: "x"})
		requireRefused(t, err, codes.InvalidArgument, "run")
		_, err = b.tasks.ListTasks(t.Context(), &servov1.ListTasksRequest{Tenant: "acme", Run: uuid.NewString()})
		requireRefused(t, err, codes.NotFound, "run")
		_, err = b.tasks.ListTasks(t.Context(), &servov1.ListTasksRequest{Tenant: "acme", Run: run, PageToken: "x"})
		requireRefused(t, err, codes.InvalidArgument, "page_token")
		_, err = b.tasks.GetTask(t.Context(), &servov1.GetTaskRequest{Tenant: "acme", Run: run, Task: uuid.NewString()})
		requireRefused(t, err, codes.NotFound, "task")
		_, err = b.tasks.GetTask(t.Context(), &servov1.GetTaskRequest{Tenant: "acme", Run: run, Task: uuid.Nil.String()})
		requireRefused(t, err, codes.NotFound, "task")
		_, err = b.tasks.ListUpstreamTasks(t.Context(), &servov1.ListUpstreamTasksRequest{Tenant: "acme", Run: run, Task: uuid.NewString()})
		requireRefused(t, err, codes.NotFound, "task")
	})
}

func TestGetTask(t *testing.T) {
	t.Parallel()

	t.Run("a task shows who works on it and how far they are", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		run := b.trigger(t, "single").GetId()
		lease := b.one(t)
		sent := &servov1.Progress{
			Phase: "EXTRACT", Stage: "page 3", Fraction: 0.5, RecordsExtracted: 4, RecordsTransformed: 3, RecordsLoaded: 2, Bytes: 1,
			Eta: timestamppb.New(time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC)),
		}
		_, err := b.workers.Heartbeat(t.Context(), &servov1.HeartbeatRequest{WorkerId: "w1", Leases: []*servov1.HeartbeatItem{
			{Lease: lease.GetLease(), Progress: sent},
		}})
		require.NoError(t, err)
		task := b.taskOf(t, run, "s/one")
		require.Equal(t, servov1.Task_RUNNING, task.GetState())
		require.Equal(t, "w1", task.GetWorker())
		require.NotNil(t, task.GetProgress().GetStageSince())
		sent.StageSince = task.GetProgress().GetStageSince()
		require.True(t, proto.Equal(sent, task.GetProgress()), "%v", task.GetProgress())
		require.NotNil(t, task.GetHeartbeatAt())
		require.NotNil(t, task.GetDeadline())
		require.NotNil(t, task.GetStartedAt())
		require.Equal(t, float64(60), task.GetTimeout().AsDuration().Seconds())
		require.Equal(t, int32(7), task.GetPriority())
		require.Len(t, task.GetAttempts(), 1)
		require.Equal(t, "w1", task.GetAttempts()[0].GetWorker())
		require.Empty(t, task.GetAttempts()[0].GetEnded())
	})

	t.Run("a failed task has the reason, in each attempt", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		run := b.trigger(t, "single").GetId()
		answer := b.report(t, failing(b.one(t), "NETWORK_ERROR"))[0]
		require.Equal(t, servov1.Task_RETRY_WAIT, answer.GetState())
		require.NotNil(t, answer.GetDueAt())
		task := b.taskOf(t, run, "s/one")
		require.Equal(t, servov1.Task_RETRY_WAIT, task.GetState())
		require.Equal(t, answer.GetDueAt().AsTime(), task.GetDueAt().AsTime())
		for _, failure := range []*servov1.Failure{task.GetFailure(), task.GetAttempts()[0].GetFailure()} {
			require.Equal(t, "NETWORK_ERROR it broke repair it transient", fmt.Sprint(failure.GetCode(), " ", failure.GetMessage(), " ", failure.GetSuggestedAction(), " ", failure.GetClass()))
			require.Equal(t, map[string]any{"line": 7.}, failure.GetDetails().AsMap())
		}
		require.Equal(t, "RETRIED", task.GetAttempts()[0].GetEnded())
		require.Equal(t, int32(1), task.GetFailures())
	})

	t.Run("a task that succeeded has its result", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		run := b.trigger(t, "single").GetId()
		result, err := structpb.NewValue(map[string]any{"rows": 3, "list": []any{"a", nil, true}})
		require.NoError(t, err)
		b.report(t, complete(b.one(t), result))
		task := b.taskOf(t, run, "s/one")
		require.Equal(t, "SUCCEEDED SUCCESS", task.GetState().String()+" "+task.GetOutcome())
		require.Equal(t, result.AsInterface(), task.GetResult().AsInterface())
		require.NotNil(t, task.GetFinishedAt())
		require.Equal(t, "SUCCEEDED", task.GetAttempts()[0].GetEnded())
	})
}
