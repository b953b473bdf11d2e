package engine_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"go.arco.dev/servo/internal/base/fault"
	"go.arco.dev/servo/internal/devkit/servotest/verifytest"
	"go.arco.dev/servo/internal/domain/run"
	"go.arco.dev/servo/internal/engine"
	"go.arco.dev/servo/internal/store"
)

func (b *bundle) cancel(t testing.TB, key store.RunKey) engine.Cancelled {
	t.Helper()
	cancelled, err := b.CancelRun(t.Context(), engine.Cancel{Tenant: key.Tenant, Run: key.Run, Reason: "enough"})
	require.NoError(t, err)
	return cancelled
}

var networkError = engine.Fail{Failure: run.Failure{Code: "NETWORK_ERROR"}}

func TestCancelEveryState(t *testing.T) {
	t.Parallel()

	// Each moves the one task of a run to a state.
	for state, into := range map[run.TaskState]func(t *testing.T, b *bundle){
		run.Ready:  func(*testing.T, *bundle) {},
		run.Queued: func(t *testing.T, b *bundle) { t.Helper(); b.admit(t) },
		run.RetryWait: func(t *testing.T, b *bundle) {
			t.Helper()
			require.Equal(t, run.RetryWait, b.report(t, b.one(t), networkError).State)
		},
	} {
		t.Run(state.String()+" ends at once, and so does its run", func(t *testing.T) {
			t.Parallel()
			b := setup(t)
			key := b.trigger(t, "single")
			into(t, b)
			b.requireStates(t, key, run.RunRunning, "s/one="+state.String())
			require.Equal(t, engine.Cancelled{State: run.RunCancelled}, b.cancel(t, key))
			b.requireStates(t, key, run.RunCancelled, "s/one=CANCELLED")
			require.Equal(t, engine.Cancelled{State: run.RunCancelled, Repeat: true}, b.cancel(t, key))
			require.Zero(t, b.admit(t))
			require.Empty(t, b.claim(t, 10, true), "nothing is left to claim")
			verifytest.Clean(t, b.db)
		})
	}

	for _, state := range []run.TaskState{run.Dispatched, run.Running} {
		for name, c := range map[string]struct {
			action  engine.Action
			running bool // only of a started task
			late    bool
			failure string
		}{
			"a result":       {action: engine.Complete{Result: []byte(`{"rows": 3}`)}, running: true, late: true},
			"a failure":      {action: engine.Fail{Failure: run.Failure{Code: "DATA_CORRUPTION"}}, failure: "DATA_CORRUPTION"},
			"a retriable":    {action: networkError, failure: "NETWORK_ERROR"},
			"obedience":      {action: engine.Fail{Failure: run.Failure{Code: run.CodeCancelled}}, failure: run.CodeCancelled},
			"a yield":        {action: engine.Yield{}},
			"an interrupted": {action: engine.Fail{Failure: run.Failure{Code: run.CodeInterrupted}}, failure: run.CodeInterrupted},
		} {
			if c.running && state == run.Dispatched {
				continue
			}
			t.Run(state.String()+" ends as CANCELLED with "+name, func(t *testing.T) {
				t.Parallel()
				b := setup(t)
				key := b.trigger(t, "single")
				b.admit(t)
				lease := b.claim(t, 1, state == run.Running)[0]
				require.Equal(t, engine.Cancelled{State: run.RunCancelling}, b.cancel(t, key))
				require.Equal(t, engine.Cancelled{State: run.RunCancelling, Repeat: true}, b.cancel(t, key))
				b.requireStates(t, key, run.RunCancelling, "s/one="+state.String())
				answer := b.report(t, lease, c.action)
				require.Equal(t, engine.Answer{State: run.Cancelled, Outcome: run.WasCancelled, Late: c.late}, answer)
				b.requireStates(t, key, run.RunCancelled, "s/one=CANCELLED")
				tasks := b.tasks(t, key)
				require.Equal(t, c.late, tasks[0].LateResult)
				if c.late {
					require.JSONEq(t, `{"rows": 3}`, string(tasks[0].Result), "a late result is kept")
				}
				if c.failure != "" {
					require.Equal(t, c.failure, tasks[0].Failure.Code)
				}
				again, err := b.ReportOne(t.Context(), report(lease, c.action))
				require.NoError(t, err)
				require.True(t, again.Repeat)
				require.Equal(t, run.Cancelled, again.State)
				verifytest.Clean(t, b.db)
			})
		}
	}
}

func TestCancelAndTheClock(t *testing.T) {
	t.Parallel()
	noon := time.Date(2026, 11, 15, 12, 0, 0, 0, time.UTC)

	for name, c := range map[string]struct {
		start bool
		later time.Duration
	}{
		"a lease that was never started expires": {false, 301 * time.Second},
		"a lease that was started expires":       {true, 301 * time.Second},
		"an attempt is over its deadline":        {true, 61 * time.Second},
	} {
		t.Run(name+": the worker never reports, the run ends nevertheless", func(t *testing.T) {
			t.Parallel()
			b := setup(t)
			b.db.SetClock(t, noon)
			key := b.trigger(t, "single")
			b.admit(t)
			lease := b.claim(t, 1, c.start)[0]
			require.Equal(t, run.RunCancelling, b.cancel(t, key).State)
			b.db.SetClock(t, noon.Add(c.later))
			_, err := b.Expire(t.Context(), 10)
			require.NoError(t, err)
			b.requireStates(t, key, run.RunCancelled, "s/one=CANCELLED")
			for _, late := range []engine.Action{engine.Complete{}, engine.Yield{}} {
				require.True(t, fault.Is(b.reportError(t, lease, late), fault.Stale), "%T is no repeat: the worker did not end the task", late)
			}
			verifytest.Clean(t, b.db)
		})
	}

	t.Run("a backoff that was cancelled is never over", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		b.db.SetClock(t, noon)
		key := b.trigger(t, "single")
		b.report(t, b.one(t), networkError)
		require.Equal(t, run.RunCancelled, b.cancel(t, key).State)
		b.db.SetClock(t, noon.Add(24*time.Hour))
		looked, err := b.RetryDue(t.Context(), 10)
		require.NoError(t, err)
		require.Zero(t, looked)
		b.requireStates(t, key, run.RunCancelled, "s/one=CANCELLED")
	})

	t.Run("a run that took too long ends as TIMED_OUT, and a cancel after that changes nothing", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		key := b.trigger(t, "diamond")
		lease := b.one(t)
		timeout := engine.Cancel{Tenant: key.Tenant, Run: key.Run, TimedOut: true, Reason: "longer than 2h"}
		cancelled, err := b.CancelRun(t.Context(), timeout)
		require.NoError(t, err)
		require.Equal(t, run.RunCancelling, cancelled.State)
		require.True(t, b.cancel(t, key).Repeat)
		b.report(t, lease, engine.Fail{Failure: run.Failure{Code: run.CodeCancelled}})
		b.requireStates(t, key, run.RunTimedOut, "d/a=CANCELLED", "d/d=CANCELLED")
		require.Equal(t, engine.Cancelled{State: run.RunTimedOut, Repeat: true}, b.cancel(t, key))
		r, err := b.db.GetRun(t.Context(), key)
		require.NoError(t, err)
		require.Equal(t, "longer than 2h", r.CancelReason)
		verifytest.Clean(t, b.db)
	})
}

func TestCancelLeasedTasks(t *testing.T) {
	t.Parallel()

	t.Run("a cancelled task is not started, and its worker gets the reason", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		key := b.trigger(t, "single")
		b.admit(t)
		lease := b.claim(t, 1, false)[0]
		b.cancel(t, key)
		err := b.reportError(t, lease, engine.Start{})
		requireFault(t, err, fault.Conflict)
		f, _ := fault.As(err)
		require.Equal(t, true, f.Values["should_cancel"])
		b.requireStates(t, key, run.RunCancelling, "s/one=DISPATCHED")
	})

	t.Run("a cancelled task adds no tasks, but may still save its cursor", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		key := b.trigger(t, "fan")
		scan := b.one(t)
		b.cancel(t, key)
		requireFault(t, b.reportError(t, scan, engine.FanOut{Tasks: []engine.FanOutTask{{"f/fetch", "0"}}}), fault.Conflict)
		b.report(t, scan, engine.Advance{Next: "7"})
		b.report(t, scan, engine.Complete{})
		b.requireStates(t, key, run.RunCancelled, "f/scan=CANCELLED", "f/join=CANCELLED")
		verifytest.Clean(t, b.db)
	})

	t.Run("a claim that is repeated after a cancel gets its lease, marked by the next heartbeat", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		key := b.trigger(t, "single")
		b.admit(t)
		request := engine.ClaimRequest{Worker: "w", Claim: newClaim(), Pools: []string{"default"}, Max: 1, Start: true}
		first, err := b.Claim(t.Context(), request)
		require.NoError(t, err)
		b.cancel(t, key)
		again, err := b.Claim(t.Context(), request)
		require.NoError(t, err)
		require.Equal(t, first, again)
		pulses, err := b.Heartbeats(t.Context(), []engine.Heartbeat{{Key: first[0].TaskKey, Token: first[0].Token}})
		require.NoError(t, err)
		require.Equal(t, []engine.Pulse{{Alive: true, ShouldCancel: true}}, pulses)
	})

	t.Run("a run with a task in every state ends as CANCELLED when its workers have stopped", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		key := b.trigger(t, "fan")
		scan := b.one(t)
		pages := []engine.FanOutTask{{"f/fetch", "0"}, {"f/fetch", "1"}, {"f/fetch", "2"}, {"f/fetch", "3"}, {"f/fetch", "4"}, {"f/fetch", "5"}}
		b.report(t, scan, engine.FanOut{Barrier: true, Tasks: pages})
		b.admit(t)
		held := map[string]engine.Lease{}
		for _, l := range b.claim(t, 5, true) {
			held[l.Partition] = l
		}
		b.report(t, held["0"], engine.Complete{})
		b.report(t, held["1"], networkError)
		b.report(t, held["2"], engine.Yield{})
		require.Equal(t, 1, b.admit(t))
		b.report(t, held["3"], engine.Yield{})
		b.requireStates(t, key, run.RunRunning, "f/scan=RUNNING", "f/join=PENDING", "f/fetch@0=SUCCEEDED", "f/fetch@1=RETRY_WAIT",
			"f/fetch@2=QUEUED", "f/fetch@3=READY", "f/fetch@4=RUNNING", "f/fetch@5=QUEUED")
		require.Equal(t, run.RunCancelling, b.cancel(t, key).State)
		b.requireStates(t, key, run.RunCancelling, "f/scan=RUNNING", "f/join=CANCELLED", "f/fetch@0=SUCCEEDED", "f/fetch@1=CANCELLED",
			"f/fetch@2=CANCELLED", "f/fetch@3=CANCELLED", "f/fetch@4=RUNNING", "f/fetch@5=CANCELLED")
		b.report(t, held["4"], engine.Complete{})
		b.requireStates(t, key, run.RunCancelling)
		b.report(t, scan, engine.Yield{})
		b.requireStates(t, key, run.RunCancelled, "f/scan=CANCELLED", "f/fetch@4=CANCELLED")
		verifytest.Clean(t, b.db)
	})

	t.Run("several cancels in one batch are one", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		first, second := b.trigger(t, "diamond"), b.trigger(t, "single")
		cancel := func(key store.RunKey, reason string) engine.Cancel {
			return engine.Cancel{Tenant: key.Tenant, Run: key.Run, Reason: reason}
		}
		answers, errs := b.CancelRuns(t.Context(), []engine.Cancel{
			cancel(first, long(run.MaxReasonLength+1)), cancel(first, "one"), cancel(second, "two"), cancel(first, "three"),
		})
		requireFault(t, errs[0], fault.LimitExceeded)
		requireNone(t, errs[1:])
		require.Equal(t, []engine.Cancelled{{}, {State: run.RunCancelled}, {State: run.RunCancelled}, {State: run.RunCancelled, Repeat: true}}, answers)
		r, err := b.db.GetRun(t.Context(), first)
		require.NoError(t, err)
		require.Equal(t, "one", r.CancelReason)
		verifytest.Clean(t, b.db)
	})
}
