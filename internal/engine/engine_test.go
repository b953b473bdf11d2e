package engine_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"go.arco.dev/servo/internal/base/fault"
	"go.arco.dev/servo/internal/devkit/servotest"
	"go.arco.dev/servo/internal/domain/run"
	"go.arco.dev/servo/internal/engine"
)

func TestLife(t *testing.T) {
	t.Parallel()

	t.Run("a single task goes through every state to its end", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		key := b.trigger(t, "single")
		b.requireStates(t, key, run.RunRunning, "s/one=READY")
		require.Equal(t, 1, b.admit(t))
		b.requireStates(t, key, run.RunRunning, "s/one=QUEUED")
		leases := b.claim(t, 10, false)
		require.Len(t, leases, 1)
		b.requireStates(t, key, run.RunRunning, "s/one=DISPATCHED")
		require.Equal(t, run.Running, b.report(t, leases[0], engine.Start{}).State)
		b.requireStates(t, key, run.RunRunning, "s/one=RUNNING")
		answer := b.report(t, leases[0], engine.Complete{Result: []byte(`{"rows": 3}`)})
		require.Equal(t, run.Succeeded, answer.State)
		b.requireStates(t, key, run.RunSucceeded, "s/one=SUCCEEDED")
	})

	t.Run("a diamond runs in its order", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		key := b.trigger(t, "diamond")
		b.requireStates(t, key, run.RunRunning, "d/a=READY", "d/b=PENDING", "d/c=PENDING", "d/d=PENDING")
		b.report(t, b.one(t), engine.Complete{})
		b.requireStates(t, key, run.RunRunning, "d/a=SUCCEEDED", "d/b=READY", "d/c=READY", "d/d=PENDING")
		b.report(t, b.one(t), engine.Complete{})
		b.requireStates(t, key, run.RunRunning, "d/d=PENDING")
		b.report(t, b.one(t), engine.Complete{})
		b.requireStates(t, key, run.RunRunning, "d/d=READY")
		b.report(t, b.one(t), engine.Complete{})
		b.requireStates(t, key, run.RunSucceeded)
	})

	t.Run("a failed branch skips its cone, and the other one continues to its end", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		key := b.trigger(t, "diamond")
		b.drain(t, func(l engine.Lease) engine.Action {
			if l.Asset == "d/b" {
				return engine.Fail{Failure: run.Failure{Code: "USER_CODE_EXCEPTION", Message: "no"}}
			}
			return engine.Complete{}
		})
		b.requireStates(t, key, run.RunFailed, "d/a=SUCCEEDED", "d/b=FAILED", "d/c=SUCCEEDED", "d/d=SKIPPED")
	})
}

func TestRepeats(t *testing.T) {
	t.Parallel()

	t.Run("the same claim id gets the same leases", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		b.trigger(t, "single")
		b.trigger(t, "single")
		b.admit(t)
		request := engine.ClaimRequest{Worker: "w", Claim: newClaim(), Pools: []string{"default"}, Max: 1, Start: true}
		first, err := b.Claim(t.Context(), request)
		require.NoError(t, err)
		again, err := b.Claim(t.Context(), request)
		require.NoError(t, err)
		require.Equal(t, first, again)
		require.Len(t, b.claim(t, 10, true), 1, "the other task is still there")
	})

	t.Run("a repeated report gets the first answer, another report is stale", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		b.trigger(t, "single")
		lease := b.one(t)
		first := b.report(t, lease, engine.Complete{})
		again := b.report(t, lease, engine.Complete{})
		require.Equal(t, first.State, again.State)
		require.True(t, again.Repeat)
		require.True(t, fault.Is(b.reportError(t, lease, engine.Fail{Failure: run.Failure{Code: "X"}}), fault.Stale))
	})

	t.Run("a failure that is retried answers its repeat from the events", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		b.trigger(t, "single")
		lease := b.one(t)
		failure := engine.Fail{Failure: run.Failure{Code: "NETWORK_ERROR"}}
		first := b.report(t, lease, failure)
		require.Equal(t, run.RetryWait, first.State)
		again := b.report(t, lease, failure)
		require.True(t, again.Repeat)
		require.Equal(t, first.DueAt, again.DueAt)
		require.True(t, fault.Is(b.reportError(t, lease, engine.Complete{}), fault.Stale))
	})

	t.Run("an attempt that gave the task back is answered even when another has ended it", func(t *testing.T) {
		t.Parallel()
		for name, action := range map[string]engine.Action{
			"yield":       engine.Yield{},
			"interrupted": engine.Fail{Failure: run.Failure{Code: run.CodeInterrupted}},
		} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				b := setup(t)
				b.trigger(t, "single")
				lease := b.one(t)
				first := b.report(t, lease, action)
				require.Equal(t, run.Ready, first.State)
				b.report(t, b.one(t), engine.Complete{})
				again := b.report(t, lease, action)
				require.True(t, again.Repeat)
				require.Equal(t, first.State, again.State)
				require.True(t, fault.Is(b.reportError(t, lease, engine.Complete{}), fault.Stale))
			})
		}
	})

	t.Run("an idempotency key gives one run", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		trigger := engine.Trigger{Tenant: b.tenant, Pipeline: "single", IdempotencyKey: "k1"}
		first, err := b.TriggerRun(t.Context(), trigger)
		require.NoError(t, err)
		again, err := b.TriggerRun(t.Context(), trigger)
		require.NoError(t, err)
		require.Equal(t, first.Run, again.Run)
		require.True(t, again.Repeat)
		answers, errs := b.TriggerRuns(t.Context(), []engine.Trigger{
			{Tenant: b.tenant, Pipeline: "single", IdempotencyKey: "k2"},
			{Tenant: b.tenant, Pipeline: "single", IdempotencyKey: "k2"},
			{Tenant: b.tenant, Pipeline: "diamond", IdempotencyKey: "k1"},
		})
		require.NoError(t, errs[0])
		require.NoError(t, errs[1])
		require.Equal(t, answers[0].Run, answers[1].Run)
		require.True(t, fault.Is(errs[2], fault.Conflict))
		require.Equal(t, 2, b.db.Count(t, `SELECT count(*) FROM servo.runs`))
	})
}

func TestExpiry(t *testing.T) {
	t.Parallel()
	start := time.Date(2026, 11, 15, 12, 0, 0, 0, time.UTC)

	t.Run("a lease that expires before its start goes back to the queue, and its token is stale", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		b.db.SetClock(t, start)
		_, err := b.db.MakePartitions(t.Context())
		require.NoError(t, err)
		key := b.trigger(t, "single")
		b.admit(t)
		lease := b.claim(t, 1, false)[0]
		b.db.SetClock(t, start.Add(299*time.Second))
		_, err = b.Expire(t.Context(), 100)
		require.NoError(t, err)
		b.requireStates(t, key, run.RunRunning, "s/one=DISPATCHED")
		b.db.SetClock(t, start.Add(300*time.Second))
		_, err = b.Expire(t.Context(), 100)
		require.NoError(t, err)
		b.requireStates(t, key, run.RunRunning, "s/one=QUEUED")
		require.True(t, fault.Is(b.reportError(t, lease, engine.Start{}), fault.Stale))
		second := b.claim(t, 1, true)[0]
		require.Greater(t, second.Token, lease.Token)
		require.EqualValues(t, 2, second.Attempt)
		require.True(t, fault.Is(b.reportError(t, lease, engine.Complete{}), fault.Stale))
		b.report(t, second, engine.Complete{})
		b.requireStates(t, key, run.RunSucceeded)
	})

	t.Run("heartbeats keep a lease alive; without them the task is ready again", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		b.db.SetClock(t, start)
		key := b.trigger(t, "diamond")
		lease := b.one(t)
		b.db.SetClock(t, start.Add(4*time.Minute))
		answers, err := b.Heartbeats(t.Context(), []engine.Heartbeat{{Key: lease.TaskKey, Token: lease.Token}})
		require.NoError(t, err)
		require.Equal(t, []engine.Pulse{{Alive: true}}, answers)
		b.db.SetClock(t, start.Add(6*time.Minute))
		_, err = b.Expire(t.Context(), 100)
		require.NoError(t, err)
		b.requireStates(t, key, run.RunRunning, "d/a=RUNNING")
		b.db.SetClock(t, start.Add(10*time.Minute))
		_, err = b.Expire(t.Context(), 100)
		require.NoError(t, err)
		b.requireStates(t, key, run.RunRunning, "d/a=READY")
	})

	t.Run("an attempt past its deadline is timed out even if it beats", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		b.db.SetClock(t, start)
		key := b.trigger(t, "single")
		b.admit(t)
		lease := b.claim(t, 1, false)[0]
		b.report(t, lease, engine.Start{})
		b.db.SetClock(t, start.Add(61*time.Second))
		_, err := b.Heartbeats(t.Context(), []engine.Heartbeat{{Key: lease.TaskKey, Token: lease.Token}})
		require.NoError(t, err)
		_, err = b.Expire(t.Context(), 100)
		require.NoError(t, err)
		b.requireStates(t, key, run.RunRunning, "s/one=RETRY_WAIT")
	})

	t.Run("a worker learns how long its attempt may take, also when that has grown", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		b.db.SetClock(t, start)
		_, err := b.TriggerRun(t.Context(), engine.Trigger{
			Tenant: b.tenant, Pipeline: "single", Retry: &run.RetryPolicy{TimeoutGrowth: 2, InitialDelay: time.Second},
		})
		require.NoError(t, err)
		require.Equal(t, time.Minute, b.one(t).Timeout)
		b.db.SetClock(t, start.Add(61*time.Second))
		_, err = b.Expire(t.Context(), 100)
		require.NoError(t, err)
		b.db.SetClock(t, start.Add(5*time.Minute))
		_, err = b.RetryDue(t.Context(), 100)
		require.NoError(t, err)
		require.Equal(t, 2*time.Minute, b.one(t).Timeout)
	})
}

func TestFanOut(t *testing.T) {
	t.Parallel()

	t.Run("what waits for the scan waits for its fan-out too", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		key := b.trigger(t, "fan")
		scan := b.one(t)
		fan := engine.FanOut{Barrier: true, Tasks: []engine.FanOutTask{{"f/fetch", "0"}, {"f/fetch", "1"}, {"f/fetch", "2"}}}
		answer := b.report(t, scan, fan)
		require.Len(t, answer.Added, 3)
		again := b.report(t, scan, fan)
		require.True(t, again.Repeat)
		require.Equal(t, answer.Added, again.Added)
		b.report(t, scan, engine.Complete{})
		b.requireStates(t, key, run.RunRunning, "f/scan=SUCCEEDED", "f/join=PENDING", "f/fetch@0=READY")
		b.drain(t, succeed)
		b.requireStates(t, key, run.RunSucceeded, "f/join=SUCCEEDED", "f/fetch@2=SUCCEEDED")
	})

	t.Run("a failed page skips the join", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		key := b.trigger(t, "fan")
		scan := b.one(t)
		b.report(t, scan, engine.FanOut{Barrier: true, Tasks: []engine.FanOutTask{{"f/fetch", "0"}, {"f/fetch", "1"}}})
		b.report(t, scan, engine.Complete{})
		b.drain(t, func(l engine.Lease) engine.Action {
			if l.Partition == "1" {
				return engine.Fail{Failure: run.Failure{Code: "DATA_CORRUPTION"}}
			}
			return engine.Complete{}
		})
		b.requireStates(t, key, run.RunFailed, "f/join=SKIPPED", "f/fetch@0=SUCCEEDED", "f/fetch@1=FAILED")
	})

	t.Run("an unknown asset is refused with its name, and the task continues", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		b.trigger(t, "fan")
		scan := b.one(t)
		err := b.reportError(t, scan, engine.FanOut{Tasks: []engine.FanOutTask{{"f/fetsh", "0"}}})
		require.ErrorContains(t, err, "did you mean f/fetch?")
		require.Equal(t, run.Succeeded, b.report(t, scan, engine.Complete{}).State)
	})
}

func TestCancel(t *testing.T) {
	t.Parallel()

	t.Run("tasks without a lease end at once, leased ones end with their worker", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		key := b.trigger(t, "diamond")
		lease := b.one(t)
		cancelled, err := b.CancelRun(t.Context(), engine.Cancel{Tenant: key.Tenant, Run: key.Run, Reason: "enough"})
		require.NoError(t, err)
		require.Equal(t, run.RunCancelling, cancelled.State)
		b.requireStates(t, key, run.RunCancelling, "d/a=RUNNING", "d/b=CANCELLED", "d/d=CANCELLED")
		pulses, err := b.Heartbeats(t.Context(), []engine.Heartbeat{{Key: lease.TaskKey, Token: lease.Token}})
		require.NoError(t, err)
		require.Equal(t, []engine.Pulse{{Alive: true, ShouldCancel: true}}, pulses)
		answer := b.report(t, lease, engine.Complete{Result: []byte(`1`)})
		require.Equal(t, run.Cancelled, answer.State)
		require.True(t, answer.Late)
		b.requireStates(t, key, run.RunCancelled, "d/a=CANCELLED")
		again, err := b.CancelRun(t.Context(), engine.Cancel{Tenant: key.Tenant, Run: key.Run})
		require.NoError(t, err)
		require.Equal(t, engine.Cancelled{State: run.RunCancelled, Repeat: true}, again)
	})

	t.Run("an ended or missing run cannot be cancelled", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		key := b.trigger(t, "single")
		b.drain(t, succeed)
		_, err := b.CancelRun(t.Context(), engine.Cancel{Tenant: key.Tenant, Run: key.Run})
		require.True(t, fault.Is(err, fault.Conflict))
		other, err := b.CreateTenant(t.Context(), "other", engineMeta)
		require.NoError(t, err)
		_, err = b.CancelRun(t.Context(), engine.Cancel{Tenant: other, Run: key.Run})
		require.True(t, fault.Is(err, fault.NotFound), "another tenant's run is like none")
	})
}

func TestFreeCapacityWakesAdmission(t *testing.T) {
	t.Parallel()
	closed := func(ch <-chan struct{}) bool {
		select {
		case <-ch:
			return true
		default:
			return false
		}
	}
	b := setupOn(t, servotest.DB(t), engine.Config{QueueTarget: 1})
	b.trigger(t, "single")
	b.trigger(t, "single")
	require.Equal(t, 1, b.admit(t), "enough is queued")
	ready := b.Ready()
	require.Len(t, b.claim(t, 1, true), 1)
	require.True(t, closed(ready), "a claim makes room, and admission that stopped for want of it looks again")

	roomy := setup(t)
	roomy.trigger(t, "single")
	roomy.admit(t)
	ready = roomy.Ready()
	require.Len(t, roomy.claim(t, 1, true), 1)
	require.False(t, closed(ready), "no task waits for room")
}
