package api_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/structpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	servov1 "go.arco.dev/servo/gen/servo/v1"
)

func object(t testing.TB, fields map[string]any) *structpb.Struct {
	t.Helper()
	s, err := structpb.NewStruct(fields)
	require.NoError(t, err)
	return s
}

func TestTrigger(t *testing.T) {
	t.Parallel()
	b := setup(t)

	t.Run("the answer is the run as it is stored", func(t *testing.T) {
		t.Parallel()
		answer, err := b.runs.TriggerRun(t.Context(), &servov1.TriggerRunRequest{
			Tenant: "acme", Pipeline: "single", Parameters: object(t, map[string]any{"n": 3}), Priority: 9, Note: "jo wants it",
			Retry: &servov1.RetryPolicy{MaxAttempts: 5, InitialDelay: durationpb.New(time.Minute)},
		})
		require.NoError(t, err)
		made := answer.GetRun()
		read, err := b.runs.GetRun(t.Context(), &servov1.GetRunRequest{Tenant: "acme", Run: made.GetId()})
		require.NoError(t, err)
		require.True(t, proto.Equal(made, read))
		require.Equal(t, map[string]any{"n": 3., "day": "today"}, made.GetParameters().AsMap(), "with the defaults filled in")
		require.Equal(t, servov1.Run_RUNNING, made.GetState())
		require.Equal(t, "acme default single api open 9", fmt.Sprint(made.GetTenant(), " ", made.GetWorkspace(), " ", made.GetPipeline(), " ",
			made.GetTriggerType(), " ", made.GetTriggeredBy(), " ", made.GetPriority()))
		require.Equal(t, int32(1), made.GetTasks().GetTotal())
		require.Equal(t, int32(1), made.GetTasks().GetRemaining())
		require.NotEmpty(t, made.GetDeployment())
		require.NotEmpty(t, made.GetPlanFingerprint())
		require.NotNil(t, made.GetCreatedAt())
		require.Nil(t, made.GetFinishedAt())
		require.False(t, answer.GetRepeatedRequest())
	})

	t.Run("the same key again returns the first run, another request with it is a conflict", func(t *testing.T) {
		t.Parallel()
		ctx := metadata.AppendToOutgoingContext(t.Context(), "idempotency-key", "once")
		req := &servov1.TriggerRunRequest{Tenant: "acme", Select: []string{"d/a"}}
		first, err := b.runs.TriggerRun(ctx, req)
		require.NoError(t, err)
		again, err := b.runs.TriggerRun(ctx, req)
		require.NoError(t, err)
		require.True(t, again.GetRepeatedRequest())
		require.Equal(t, first.GetRun().GetId(), again.GetRun().GetId())
		req.Select = []string{"s/one"}
		_, err = b.runs.TriggerRun(ctx, req)
		p := requireRefused(t, err, codes.FailedPrecondition, "idempotency_key")
		require.Equal(t, first.GetRun().GetId(), p.GetValues().GetFields()["run"].GetStringValue())
	})

	for name, bad := range map[string]struct {
		req   *servov1.TriggerRunRequest
		code  codes.Code
		field string
	}{
		"an unknown pipeline":  {&servov1.TriggerRunRequest{Pipeline: "singel"}, codes.InvalidArgument, "pipeline"},
		"an empty request":     {&servov1.TriggerRunRequest{}, codes.InvalidArgument, "pipeline"},
		"an unknown asset":     {&servov1.TriggerRunRequest{Select: []string{"x/y"}}, codes.InvalidArgument, "select[0]"},
		"an unknown workspace": {&servov1.TriggerRunRequest{Workspace: "moon", Pipeline: "single"}, codes.NotFound, "workspace"},
		"an unknown parameter": {&servov1.TriggerRunRequest{Pipeline: "single", Parameters: object(t, map[string]any{"x": 1})}, codes.InvalidArgument, "parameters.x"},
		"a parameter's type":   {&servov1.TriggerRunRequest{Pipeline: "single", Parameters: object(t, map[string]any{"n": "x"})}, codes.InvalidArgument, "parameters.n"},
		"a zero character":     {&servov1.TriggerRunRequest{Pipeline: "single", Parameters: object(t, map[string]any{"day": "\x00"})}, codes.InvalidArgument, "parameters.day"},
		"a priority":           {&servov1.TriggerRunRequest{Pipeline: "single", Priority: 11}, codes.InvalidArgument, "priority"},
		"a retry policy":       {&servov1.TriggerRunRequest{Pipeline: "single", Retry: &servov1.RetryPolicy{Jitter: 2}}, codes.InvalidArgument, "retry.jitter"},
		"a negative delay":     {&servov1.TriggerRunRequest{Pipeline: "single", Retry: &servov1.RetryPolicy{MaxDelay: durationpb.New(-1)}}, codes.InvalidArgument, "retry.max_delay"},
		"a zero in the note":   {&servov1.TriggerRunRequest{Pipeline: "single", Note: "\x00"}, codes.InvalidArgument, "note"},
	} {
		t.Run(name+" is refused at its place", func(t *testing.T) {
			t.Parallel()
			bad.req.Tenant = "acme"
			_, err := b.runs.TriggerRun(t.Context(), bad.req)
			requireRefused(t, err, bad.code, bad.field)
		})
	}

	t.Run("a tenant without a deployment is asked to deploy, before anything else", func(t *testing.T) {
		t.Parallel()
		_, err := b.runs.TriggerRun(t.Context(), &servov1.TriggerRunRequest{Tenant: "brick", Pipeline: "single"})
		require.Contains(t, requireRefused(t, err, codes.FailedPrecondition, "workspace").GetRemedy(), "deploy")
	})

	t.Run("a plan lists what would run, and runs nothing", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		planned, err := b.runs.PlanRun(t.Context(), &servov1.PlanRunRequest{Tenant: "acme", Pipeline: "diamond"})
		require.NoError(t, err)
		var lines []string
		for i, task := range planned.GetTasks() {
			require.Equal(t, int32(i), task.GetIndex())
			lines = append(lines, fmt.Sprint(task.GetAsset(), task.GetUpstream(), task.GetPool()))
		}
		require.Equal(t, []string{"d/a[]default", "d/b[0]default", "d/c[0]default", "d/d[1 2]default"}, lines)
		require.Equal(t, b.trigger(t, "diamond").GetPlanFingerprint(), planned.GetFingerprint())
		list, err := b.runs.ListRuns(t.Context(), &servov1.ListRunsRequest{Tenant: "acme"})
		require.NoError(t, err)
		require.Len(t, list.GetRuns(), 1)
		require.Equal(t, list.GetRuns()[0].GetDeployment(), planned.GetDeployment())

		_, err = b.runs.PlanRun(t.Context(), &servov1.PlanRunRequest{Tenant: "acme", Pipeline: "x"})
		requireRefused(t, err, codes.InvalidArgument, "pipeline")
		_, err = b.runs.PlanRun(t.Context(), &servov1.PlanRunRequest{Tenant: "acme", Pipeline: "single", Parameters: object(t, map[string]any{"day": "never"})})
		requireRefused(t, err, codes.InvalidArgument, "parameters.day")
	})
}

func TestListRuns(t *testing.T) {
	t.Parallel()
	b := setup(t)
	var made []string
	for i := range 9 {
		made = append(made, b.trigger(t, []string{"single", "diamond", "fan"}[i%3]).GetId())
	}
	slices.Reverse(made) // the newest first
	_, err := b.runs.CancelRun(t.Context(), &servov1.CancelRunRequest{Tenant: "acme", Run: made[4]})
	require.NoError(t, err)
	fifth, err := b.runs.GetRun(t.Context(), &servov1.GetRunRequest{Tenant: "acme", Run: made[4]})
	require.NoError(t, err)
	list := func(t *testing.T, req *servov1.ListRunsRequest) []string {
		t.Helper()
		return pages(t, func(token string) ([]string, string, error) {
			req.Tenant, req.PageToken = "acme", token
			answer, err := b.runs.ListRuns(t.Context(), req)
			var ids []string
			for _, r := range answer.GetRuns() {
				ids = append(ids, r.GetId())
			}
			return ids, answer.GetNextPageToken(), err
		})
	}

	t.Run("pages of any size lead to the end and miss nothing", func(t *testing.T) {
		t.Parallel()
		for size := range int32(11) {
			require.Equal(t, made, list(t, &servov1.ListRunsRequest{PageSize: size}))
		}
	})

	t.Run("filters filter, page by page", func(t *testing.T) {
		t.Parallel()
		require.Equal(t, []string{made[0], made[3], made[6]}, list(t, &servov1.ListRunsRequest{Pipeline: "fan", PageSize: 1}))
		require.Equal(t, made[4:5], list(t, &servov1.ListRunsRequest{State: []servov1.Run_State{servov1.Run_CANCELLED, servov1.Run_FAILED}, PageSize: 1}))
		require.Equal(t, made, list(t, &servov1.ListRunsRequest{Workspace: "default"}))
		require.Empty(t, list(t, &servov1.ListRunsRequest{Workspace: "moon"}))
		require.Empty(t, list(t, &servov1.ListRunsRequest{ParentRun: made[0]}))
		require.Empty(t, list(t, &servov1.ListRunsRequest{To: timestamppb.New(time.Unix(0, 0))}))
		from := list(t, &servov1.ListRunsRequest{From: fifth.GetCreatedAt(), PageSize: 2})
		to := list(t, &servov1.ListRunsRequest{To: fifth.GetCreatedAt(), PageSize: 2})
		require.Contains(t, from, made[4])
		require.Equal(t, made, append(from, to...))
	})

	t.Run("a token of another filter, and nonsense, are refused", func(t *testing.T) {
		t.Parallel()
		first, err := b.runs.ListRuns(t.Context(), &servov1.ListRunsRequest{Tenant: "acme", PageSize: 1})
		require.NoError(t, err)
		for _, req := range []*servov1.ListRunsRequest{
			{Tenant: "acme", Pipeline: "fan", PageToken: first.GetNextPageToken()},
			{Tenant: "brick", PageToken: first.GetNextPageToken()},
			{Tenant: "acme", PageToken: "nonsense"},
		} {
			_, err = b.runs.ListRuns(t.Context(), req)
			requireRefused(t, err, codes.InvalidArgument, "page_token")
		}
	})

	t.Run("invalid triggers are refused with their field", func(t *testing.T) {
		t.Parallel()
		for field, req := range map[string]*servov1.ListRunsRequest{
			"page_size":  {PageSize: 101},
			"state[0]":   {State: []servov1.Run_State{77}},
			"parent_run": {ParentRun: "x"},
			"from":       {From: &timestamppb.Timestamp{Nanos: -1}},
			"to":         {To: &timestamppb.Timestamp{Seconds: 1 << 60}},
			"request":    {Pipeline: "\x00"},
		} {
			req.Tenant = "acme"
			_, err := b.runs.ListRuns(t.Context(), req)
			requireRefused(t, err, codes.InvalidArgument, field)
		}
	})

	t.Run("another tenant's runs are invisible", func(t *testing.T) {
		t.Parallel()
		answer, err := b.runs.ListRuns(t.Context(), &servov1.ListRunsRequest{Tenant: "brick"})
		require.NoError(t, err)
		require.Empty(t, answer.GetRuns())
	})
}

func TestOtherTenantsRuns(t *testing.T) {
	t.Parallel()
	b := setup(t)
	mine := b.trigger(t, "diamond").GetId()
	tasks, err := b.tasks.ListTasks(t.Context(), &servov1.ListTasksRequest{Tenant: "acme", Run: mine})
	require.NoError(t, err)
	myTask := tasks.GetTasks()[0].GetId()
	for name, call := range map[string]func(t *testing.T, run, task string) error{
		"GetRun": func(t *testing.T, run, _ string) error {
			t.Helper()
			_, err := b.runs.GetRun(t.Context(), &servov1.GetRunRequest{Tenant: "brick", Run: run})
			return err
		},
		"CancelRun": func(t *testing.T, run, _ string) error {
			t.Helper()
			_, err := b.runs.CancelRun(t.Context(), &servov1.CancelRunRequest{Tenant: "brick", Run: run})
			return err
		},
		"RetryRun": func(t *testing.T, run, _ string) error {
			t.Helper()
			_, err := b.runs.RetryRun(t.Context(), &servov1.RetryRunRequest{Tenant: "brick", Run: run})
			return err
		},
		"ListRunEvents": func(t *testing.T, run, _ string) error {
			t.Helper()
			_, err := b.runs.ListRunEvents(t.Context(), &servov1.ListRunEventsRequest{Tenant: "brick", Run: run})
			return err
		},
		"WatchRun": func(t *testing.T, run, _ string) error {
			t.Helper()
			stream, err := b.runs.WatchRun(t.Context(), &servov1.WatchRunRequest{Tenant: "brick", Run: run})
			require.NoError(t, err)
			_, err = stream.Recv()
			return err
		},
		"ListTasks": func(t *testing.T, run, _ string) error {
			t.Helper()
			_, err := b.tasks.ListTasks(t.Context(), &servov1.ListTasksRequest{Tenant: "brick", Run: run})
			return err
		},
		"GetTask": func(t *testing.T, run, task string) error {
			t.Helper()
			_, err := b.tasks.GetTask(t.Context(), &servov1.GetTaskRequest{Tenant: "brick", Run: run, Task: task})
			return err
		},
		"ListUpstreamTasks": func(t *testing.T, run, task string) error {
			t.Helper()
			_, err := b.tasks.ListUpstreamTasks(t.Context(), &servov1.ListUpstreamTasksRequest{Tenant: "brick", Run: run, Task: task})
			return err
		},
		"ListTaskLogs": func(t *testing.T, run, task string) error {
			t.Helper()
			_, err := b.tasks.ListTaskLogs(t.Context(), &servov1.ListTaskLogsRequest{Tenant: "brick", Run: run, Task: task})
			return err
		},
		"RepairRun": func(t *testing.T, run, _ string) error {
			t.Helper()
			_, err := b.admin.RepairRun(t.Context(), &servov1.RepairRunRequest{Tenant: "brick", Run: run})
			return err
		},
	} {
		t.Run(name+" answers as if it were not there", func(t *testing.T) {
			t.Parallel()
			field, theirs, unowned := "run", mine, uuid.NewString()
			if slices.Contains([]string{"GetTask", "ListUpstreamTasks", "ListTaskLogs"}, name) {
				field, theirs = "task", myTask
			}
			notMine := requireRefused(t, call(t, mine, myTask), codes.NotFound, field)
			requireSame(t, notMine, theirs, requireRefused(t, call(t, unowned, unowned), codes.NotFound, field), unowned)
		})
	}
}

func TestCancelAndRetry(t *testing.T) {
	t.Parallel()

	t.Run("a cancelled run is cancelled, and again is the same", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		made := b.trigger(t, "diamond")
		for range 2 {
			ended, err := b.runs.CancelRun(t.Context(), &servov1.CancelRunRequest{Tenant: "acme", Run: made.GetId(), Reason: "wrong day"})
			require.NoError(t, err)
			require.Equal(t, servov1.Run_CANCELLED, ended.GetState())
			require.Equal(t, "wrong day", ended.GetCancelReason())
			require.Equal(t, int32(4), ended.GetTasks().GetCancelled())
		}
	})

	t.Run("while a worker holds a task it is asked to stop", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		made := b.trigger(t, "diamond")
		lease := b.one(t)
		going, err := b.runs.CancelRun(t.Context(), &servov1.CancelRunRequest{Tenant: "acme", Run: made.GetId()})
		require.NoError(t, err)
		require.Equal(t, servov1.Run_CANCELLING, going.GetState())
		beat, err := b.workers.Heartbeat(t.Context(), &servov1.HeartbeatRequest{WorkerId: "w1", Leases: []*servov1.HeartbeatItem{{Lease: lease.GetLease()}}})
		require.NoError(t, err)
		require.True(t, beat.GetLeases()[0].GetHeld())
		require.True(t, beat.GetLeases()[0].GetShouldCancel())
	})

	t.Run("a run that has ended otherwise is a conflict", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		made := b.trigger(t, "single")
		b.drain(t)
		_, err := b.runs.CancelRun(t.Context(), &servov1.CancelRunRequest{Tenant: "acme", Run: made.GetId()})
		require.Equal(t, "CONFLICT", problemOf(t, err).GetCode())
	})

	t.Run("what did not succeed is done again, and everything if asked", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		made := b.trigger(t, "diamond")
		_, err := b.runs.RetryRun(t.Context(), &servov1.RetryRunRequest{Tenant: "acme", Run: made.GetId()})
		requireRefused(t, err, codes.FailedPrecondition, "run")
		require.Nil(t, b.report(t, complete(b.one(t), nil))[0].GetError())
		_, err = b.runs.CancelRun(t.Context(), &servov1.CancelRunRequest{Tenant: "acme", Run: made.GetId()})
		require.NoError(t, err)

		ctx := metadata.AppendToOutgoingContext(t.Context(), "idempotency-key", "again")
		failed, err := b.runs.RetryRun(ctx, &servov1.RetryRunRequest{Tenant: "acme", Run: made.GetId(), Note: "jo"})
		require.NoError(t, err)
		require.Equal(t, int32(3), failed.GetRun().GetTasks().GetTotal())
		require.Equal(t, made.GetId(), failed.GetRun().GetParentRun())
		require.Equal(t, "retry open", failed.GetRun().GetTriggerType()+" "+failed.GetRun().GetTriggeredBy())
		repeat, err := b.runs.RetryRun(ctx, &servov1.RetryRunRequest{Tenant: "acme", Run: made.GetId(), Note: "jo"})
		require.NoError(t, err)
		require.True(t, repeat.GetRepeatedRequest())
		require.Equal(t, failed.GetRun().GetId(), repeat.GetRun().GetId())

		all, err := b.runs.RetryRun(t.Context(), &servov1.RetryRunRequest{Tenant: "acme", Run: made.GetId(), Mode: servov1.RetryRunRequest_ALL})
		require.NoError(t, err)
		require.Equal(t, int32(4), all.GetRun().GetTasks().GetTotal())
		children, err := b.runs.ListRuns(t.Context(), &servov1.ListRunsRequest{Tenant: "acme", ParentRun: made.GetId()})
		require.NoError(t, err)
		require.Len(t, children.GetRuns(), 2)
	})
}
