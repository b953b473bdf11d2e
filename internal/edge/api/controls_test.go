package api_test

import (
	"context"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/structpb"

	servov1 "go.arco.dev/servo/gen/servo/v1"
	"go.arco.dev/servo/internal/devkit/servotest/verifytest"
)

func TestForceCancelTask(t *testing.T) {
	t.Parallel()
	noon := time.Date(2026, 11, 15, 12, 0, 0, 0, time.UTC)
	begin := func(t *testing.T) (*bundle, *servov1.Lease, *servov1.ForceCancelTaskRequest) {
		t.Helper()
		b := setup(t)
		b.db.SetClock(t, noon)
		run := b.trigger(t, "diamond")
		b.admit(t)
		claim := claimRequest(1)
		claim.Lease = durationpb.New(time.Hour)
		answer, err := b.workers.Claim(t.Context(), claim)
		require.NoError(t, err)
		lease := answer.GetLeases()[0]
		return b, lease, &servov1.ForceCancelTaskRequest{Tenant: "acme", Run: run.GetId(), Task: lease.GetTask(), Reason: "its machine is gone"}
	}
	cancel := func(t *testing.T, b *bundle, run string) {
		t.Helper()
		_, err := b.runs.CancelRun(t.Context(), &servov1.CancelRunRequest{Tenant: "acme", Run: run})
		require.NoError(t, err)
	}

	t.Run("a silent worker's task ends, and its later reports change nothing", func(t *testing.T) {
		t.Parallel()
		b, lease, force := begin(t)
		cancel(t, b, force.GetRun())
		b.db.SetClock(t, noon.Add(6*time.Minute))
		task, err := b.tasks.ForceCancelTask(t.Context(), force)
		require.NoError(t, err)
		require.Equal(t, servov1.Task_CANCELLED, task.GetState())
		require.Equal(t, "FORCE_CANCELLED", task.GetAttempts()[0].GetEnded())
		again, err := b.tasks.ForceCancelTask(t.Context(), force)
		require.NoError(t, err)
		require.True(t, proto.Equal(task, again))
		answer := b.report(t, complete(lease, structpb.NewNumberValue(1)))[0]
		require.Equal(t, "STALE", answer.GetError().GetCode())
		after, err := b.tasks.GetTask(t.Context(), &servov1.GetTaskRequest{Tenant: "acme", Run: force.GetRun(), Task: force.GetTask()})
		require.NoError(t, err)
		require.True(t, proto.Equal(task, after))
		verifytest.Clean(t, b.db)
	})

	t.Run("a refusal names the missing field", func(t *testing.T) {
		t.Parallel()
		b, _, force := begin(t)
		_, err := b.tasks.ForceCancelTask(t.Context(), force)
		requireRefused(t, err, codes.FailedPrecondition, "run")
		cancel(t, b, force.GetRun())
		_, err = b.tasks.ForceCancelTask(t.Context(), force)
		p := requireRefused(t, err, codes.FailedPrecondition, "task")
		require.Contains(t, p.GetRemedy(), "2026-11-15T12:05:00Z")
		other := proto.CloneOf(force)
		other.Tenant = "brick"
		_, err = b.tasks.ForceCancelTask(t.Context(), other)
		require.Equal(t, codes.NotFound, codeOf(err), "it is not the tenant's")
	})

	t.Run("a late result is kept, and shown as late", func(t *testing.T) {
		t.Parallel()
		b, lease, force := begin(t)
		cancel(t, b, force.GetRun())
		b.report(t, complete(lease, structpb.NewStringValue("too late")))
		task, err := b.tasks.GetTask(t.Context(), &servov1.GetTaskRequest{Tenant: "acme", Run: force.GetRun(), Task: force.GetTask()})
		require.NoError(t, err)
		require.Equal(t, servov1.Task_CANCELLED, task.GetState())
		require.True(t, task.GetLateResult())
		require.Equal(t, "too late", task.GetResult().GetStringValue())
	})
}

func TestDispatch(t *testing.T) {
	t.Parallel()
	b := setup(t)
	run := b.trigger(t, "diamond")
	lease := b.one(t)
	b.trigger(t, "single")
	b.admit(t)

	paused, err := b.admin.PauseDispatch(t.Context(), &servov1.PauseDispatchRequest{Reason: "upgrade"})
	require.NoError(t, err)
	require.True(t, paused.GetDispatch().GetPaused())
	require.Equal(t, []string{"upgrade", "open"}, []string{paused.GetDispatch().GetReason(), paused.GetDispatch().GetChangedBy()})
	require.EqualValues(t, 1, paused.GetHeld())
	require.Equal(t, run.GetId(), paused.GetOldest()[0].GetRun())
	require.Equal(t, []string{"acme", "d/a", "default", "w1"}, []string{
		paused.GetOldest()[0].GetTenant(), paused.GetOldest()[0].GetAsset(), paused.GetOldest()[0].GetPool(), paused.GetOldest()[0].GetWorker(),
	})
	require.Empty(t, b.claim(t, 10), "no worker is given a task")
	status, err := b.status.GetStatus(t.Context(), &servov1.GetStatusRequest{})
	require.NoError(t, err)
	require.True(t, proto.Equal(paused.GetDispatch(), status.GetDispatch()))

	require.Nil(t, b.report(t, complete(lease, nil))[0].GetError(), "running tasks continue")
	drained, err := b.admin.GetDispatch(t.Context(), &servov1.GetDispatchRequest{})
	require.NoError(t, err)
	require.Zero(t, drained.GetHeld())

	on, err := b.admin.ResumeDispatch(t.Context(), &servov1.ResumeDispatchRequest{})
	require.NoError(t, err)
	require.False(t, on.GetDispatch().GetPaused())
	require.Equal(t, "open", on.GetDispatch().GetChangedBy(), "the caller, if no other is named")
	require.NotEmpty(t, b.claim(t, 10))
	verifytest.Clean(t, b.db)
}

func TestAssetPause(t *testing.T) {
	t.Parallel()
	b := setup(t)
	pause := &servov1.PauseAssetRequest{Tenant: "acme", Asset: "d/b", Reason: "wrong prices"}
	paused, err := b.assets.PauseAsset(t.Context(), pause)
	require.NoError(t, err)
	require.Equal(t, []string{"open", "wrong prices"}, []string{paused.GetPaused().GetPausedBy(), paused.GetPaused().GetReason()})
	list, err := b.assets.ListAssets(t.Context(), &servov1.ListAssetsRequest{Tenant: "acme", Select: []string{"d/*"}})
	require.NoError(t, err)
	for _, a := range list.GetAssets() {
		require.Equal(t, a.GetKey() == "d/b", a.GetPaused() != nil, a.GetKey())
	}
	got, err := b.assets.GetAsset(t.Context(), &servov1.GetAssetRequest{Tenant: "acme", Asset: "d/b"})
	require.NoError(t, err)
	require.True(t, proto.Equal(paused, got))

	resume := &servov1.ResumeAssetRequest{Tenant: "acme", Asset: "d/b"}
	for _, want := range []bool{true, false} {
		answer, err := b.assets.ResumeAsset(t.Context(), resume)
		require.NoError(t, err)
		require.Equal(t, want, answer.GetWasPaused())
	}
	got, err = b.assets.GetAsset(t.Context(), &servov1.GetAssetRequest{Tenant: "acme", Asset: "d/b"})
	require.NoError(t, err)
	require.Nil(t, got.GetPaused())

	pause.Asset = "d/x"
	_, err = b.assets.PauseAsset(t.Context(), pause)
	requireRefused(t, err, codes.NotFound, "asset")
	pause.Tenant, pause.Asset = "brick", "d/b"
	_, err = b.assets.PauseAsset(t.Context(), pause)
	requireRefused(t, err, codes.FailedPrecondition, "workspace")
}

func TestQuotas(t *testing.T) {
	t.Parallel()
	b := setup(t)
	get := func() *servov1.TenantQuotas {
		t.Helper()
		quotas, err := b.tenants.GetQuotas(t.Context(), &servov1.GetQuotasRequest{Tenant: "acme"})
		require.NoError(t, err)
		return quotas
	}
	before := get()
	require.EqualValues(t, -1, before.GetQuotas().GetMaxConcurrentRuns())

	change := &servov1.SetQuotasRequest{Tenant: "acme", Version: before.GetVersion(), Quotas: &servov1.Quotas{
		MaxConcurrentRuns: proto.Int32(1), MaxConcurrentTasks: proto.Int32(0), MaxRunDuration: durationpb.New(time.Hour),
		FairnessWeight: proto.Float64(2.5), Zone: proto.String("Europe/Berlin"),
	}}
	after, err := b.tenants.SetQuotas(t.Context(), change)
	require.NoError(t, err)
	want := proto.CloneOf(before.GetQuotas())
	proto.Merge(want, change.GetQuotas())
	want.MaxRunDuration = durationpb.New(time.Hour)
	require.True(t, proto.Equal(want, after.GetQuotas()), "what is not sent stays: %v", after)
	require.Equal(t, before.GetVersion()+1, after.GetVersion())

	again, err := b.tenants.SetQuotas(t.Context(), change)
	require.NoError(t, err, "a repeat finds what it wants")
	require.Equal(t, after.GetVersion(), again.GetVersion())
	change.Quotas.MaxDailyRuns = proto.Int32(7)
	_, err = b.tenants.SetQuotas(t.Context(), change)
	requireRefused(t, err, codes.FailedPrecondition, "version")
	change.Version = 0
	_, err = b.tenants.SetQuotas(t.Context(), change)
	require.NoError(t, err, "whatever is there")

	b.trigger(t, "diamond")
	_, err = b.runs.TriggerRun(t.Context(), &servov1.TriggerRunRequest{Tenant: "acme", Pipeline: "diamond"})
	p := requireRefused(t, err, codes.ResourceExhausted, "tenant")
	require.Contains(t, p.GetMessage(), "max_concurrent_runs")
	waits, err := b.runs.TriggerRun(t.Context(), &servov1.TriggerRunRequest{Tenant: "acme", Pipeline: "diamond", WaitForQuota: true})
	require.NoError(t, err)
	require.Equal(t, servov1.Run_PENDING, waits.GetRun().GetState())
	b.admit(t)
	used := get().GetUsage()
	require.Equal(t, []int64{0, 1, 1, 1, 2}, []int64{
		used.GetConcurrentTasks(), used.GetQueuedTasks(), used.GetConcurrentRuns(), used.GetPendingRuns(), used.GetDailyRuns(),
	}, "nothing is admitted of a tenant that may have no task")

	for _, wrong := range []*servov1.Quotas{{MaxQueuedTasks: proto.Int32(-2)}, {FairnessWeight: proto.Float64(0)}, {Zone: proto.String("Nowhere")}, nil} {
		_, err = b.tenants.SetQuotas(t.Context(), &servov1.SetQuotasRequest{Tenant: "acme", Quotas: wrong})
		require.Equal(t, codes.InvalidArgument, codeOf(err), "%v", wrong)
	}
	verifytest.Clean(t, b.db)
}

func TestLocks(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.deploy(t, manifestText+"  - {name: locked, select: [s/one]}\n")
	locks := servov1.NewLockServiceClient(b.conn)
	list := func() []*servov1.Lock {
		t.Helper()
		answer, err := locks.ListLocks(t.Context(), &servov1.ListLocksRequest{Tenant: "acme"})
		require.NoError(t, err)
		return answer.GetLocks()
	}
	require.Empty(t, list())
	trigger := &servov1.TriggerRunRequest{Tenant: "acme", Pipeline: "locked", Note: "ann"}
	first, err := b.runs.TriggerRun(t.Context(), trigger)
	require.NoError(t, err)
	require.False(t, first.GetAlreadyRunning())
	held := list()
	require.Len(t, held, 1)
	require.Equal(t, []string{first.GetRun().GetId(), "locked", "default", "open"}, []string{
		held[0].GetRun(), held[0].GetPipeline(), held[0].GetWorkspace(), held[0].GetLockedBy(),
	})
	require.Equal(t, first.GetRun().GetCreatedAt().AsTime(), held[0].GetLockedAt().AsTime())
	require.NotNil(t, held[0].GetDueAt())

	second, err := b.runs.TriggerRun(t.Context(), trigger)
	require.NoError(t, err)
	require.True(t, second.GetAlreadyRunning())
	require.Equal(t, first.GetRun().GetId(), second.GetRun().GetId())
	trigger.WaitForLock = durationpb.New(61 * time.Second)
	_, err = b.runs.TriggerRun(t.Context(), trigger)
	requireRefused(t, err, codes.InvalidArgument, "wait_for_lock")

	_, err = locks.ReleaseLock(t.Context(), &servov1.ReleaseLockRequest{Tenant: "brick", Key: held[0].GetKey()})
	requireRefused(t, err, codes.NotFound, "lock")

	// who waits for the lock gets it when its run has ended
	trigger.WaitForLock = durationpb.New(time.Minute)
	waited := make(chan *servov1.TriggerRunResponse, 1)
	go func() {
		answer, _ := b.runs.TriggerRun(context.WithoutCancel(t.Context()), trigger)
		waited <- answer
	}()
	released, err := locks.ReleaseLock(t.Context(), &servov1.ReleaseLockRequest{Tenant: "acme", Key: held[0].GetKey(), Reason: "hangs"})
	require.NoError(t, err)
	require.Equal(t, servov1.Run_CANCELLED, released.GetRun().GetState())
	require.Equal(t, "hangs", released.GetRun().GetCancelReason())
	require.True(t, proto.Equal(held[0], released.GetLock()))
	third := <-waited
	require.False(t, third.GetAlreadyRunning())
	require.NotEqual(t, first.GetRun().GetId(), third.GetRun().GetId())
	require.Equal(t, third.GetRun().GetId(), list()[0].GetRun())
	verifytest.Clean(t, b.db)
}

func TestTriggerWithOtherParameters(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.deploy(t, manifestText+"  - {name: numbered, select: [s/one], parameters: [{name: n, type: integer}]}\n")
	trigger := func(n int, queue bool) (*servov1.TriggerRunResponse, error) {
		return b.runs.TriggerRun(t.Context(), &servov1.TriggerRunRequest{Tenant: "acme", Pipeline: "numbered", Parameters: object(t, map[string]any{"n": n}), Queue: queue})
	}
	first, err := trigger(1, false)
	require.NoError(t, err)
	same, err := trigger(1, true)
	require.NoError(t, err)
	require.True(t, same.GetAlreadyRunning())
	require.Equal(t, first.GetRun().GetId(), same.GetRun().GetId())
	_, err = trigger(2, false)
	p := requireRefused(t, err, codes.FailedPrecondition, "pipeline")
	require.Equal(t, first.GetRun().GetId(), p.GetValues().GetFields()["run"].GetStringValue())
	queued, err := trigger(2, true)
	require.NoError(t, err)
	require.False(t, queued.GetAlreadyRunning())
	require.Equal(t, servov1.Run_PENDING, queued.GetRun().GetState())
}

func TestRetryFrom(t *testing.T) {
	t.Parallel()
	b := setup(t)
	run := b.trigger(t, "diamond")
	b.drain(t)
	retry := &servov1.RetryRunRequest{Tenant: "acme", Run: run.GetId(), Mode: servov1.RetryRunRequest_FROM, From: "d/b"}
	answer, err := b.runs.RetryRun(t.Context(), retry)
	require.NoError(t, err)
	require.EqualValues(t, 2, answer.GetRun().GetTasks().GetTotal())
	require.Equal(t, run.GetId(), answer.GetRun().GetParentRun())
	retry.From = uuid.NewString()
	_, err = b.runs.RetryRun(t.Context(), retry)
	requireRefused(t, err, codes.InvalidArgument, "from")
	retry.Mode = servov1.RetryRunRequest_ALL
	_, err = b.runs.RetryRun(t.Context(), retry)
	requireRefused(t, err, codes.InvalidArgument, "from")
}
