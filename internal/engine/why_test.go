package engine_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"go.arco.dev/servo/internal/base/fault"
	"go.arco.dev/servo/internal/base/id"
	"go.arco.dev/servo/internal/domain/run"
	"go.arco.dev/servo/internal/domain/tenant"
	"go.arco.dev/servo/internal/engine"
	"go.arco.dev/servo/internal/store"
)

func (b *bundle) whyTask(t testing.TB, key store.RunKey, asset string) engine.Why {
	t.Helper()
	for _, task := range b.tasks(t, key) {
		if task.Asset == asset {
			why, err := b.WhyTask(t.Context(), store.TaskKey{Tenant: key.Tenant, Run: key.Run, Task: task.ID})
			require.NoError(t, err)
			require.Equal(t, task.ID, why.Task)
			require.Equal(t, asset, why.Asset)
			require.Equal(t, task.State.String(), why.State)
			return why
		}
	}
	require.Fail(t, "no task of "+asset)
	return engine.Why{}
}

func (b *bundle) whyRun(t testing.TB, key store.RunKey) engine.Why {
	t.Helper()
	why, err := b.WhyRun(t.Context(), key)
	require.NoError(t, err)
	require.Equal(t, key.Run, why.Run)
	require.Zero(t, why.Task)
	return why
}

func codes(why engine.Why) (found []engine.BlockerCode) {
	for _, b := range why.Blockers {
		found = append(found, b.Code)
	}
	return found
}

func TestWhy(t *testing.T) {
	t.Parallel()
	noon := time.Date(2026, 11, 15, 12, 0, 0, 0, time.UTC)

	t.Run("a pool without workers needs servo worker, and for a Go asset the program that has its handler", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		b.deploy(t, "version: 1\nassets:\n"+
			"  - {key: g/own, go: {}, pool: lonely}\n  - {key: g/named, go: {handler: load}, pool: lonely}\n"+
			"  - {key: g/command, exec: {command: [run]}, pool: lonely}\npipelines:\n  - {name: lonely, select: [\"g/*\"]}\n")
		key := b.trigger(t, "lonely")
		b.admit(t)
		for name, want := range map[string]string{
			"g/own":     "start the Go program that registers handler g/own for pool lonely; servo worker cannot run Go assets",
			"g/named":   "start the Go program that registers handler load for pool lonely; servo worker cannot run Go assets",
			"g/command": "start one: servo worker --pool lonely",
		} {
			why := b.whyTask(t, key, name)
			require.Equal(t, []engine.BlockerCode{engine.BlockedByNoWorker}, codes(why))
			require.Equal(t, want, why.Blockers[0].Remedy)
		}
	})

	t.Run("a task that waits names the upstreams that have not succeeded, and a skipped one the failure", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		key := b.trigger(t, "diamond")
		why := b.whyTask(t, key, "d/d")
		require.Equal(t, []engine.BlockerCode{engine.BlockedByUpstream, engine.BlockedByUpstream}, codes(why))
		require.Equal(t, "upstream d/b is PENDING", why.Blockers[0].Message)
		require.Equal(t, "d/b", why.Blockers[0].Values["asset"])
		b.report(t, b.one(t), engine.Complete{})
		b.admit(t)
		for _, l := range b.claim(t, 2, true) {
			if l.Asset == "d/b" {
				b.report(t, l, engine.Fail{Failure: run.Failure{Code: "USER_CODE_EXCEPTION", Message: "division by zero", SuggestedAction: "divide by one"}})
				continue
			}
			b.report(t, l, engine.Complete{})
		}
		why = b.whyTask(t, key, "d/b")
		require.Equal(t, []engine.BlockerCode{engine.EndedByFailure}, codes(why))
		require.Equal(t, "attempt 1 failed: USER_CODE_EXCEPTION: division by zero", why.Blockers[0].Message)
		require.Equal(t, "divide by one", why.Blockers[0].Remedy)
		why = b.whyTask(t, key, "d/d")
		require.Equal(t, []engine.BlockerCode{engine.EndedByUpstream}, codes(why))
		require.Equal(t, "upstream d/b is FAILED", why.Blockers[0].Message)
		require.Empty(t, b.whyTask(t, key, "d/a").Blockers)
		why = b.whyRun(t, key)
		require.Equal(t, "FAILED", why.State)
		require.Contains(t, why.Blockers[0].Message, "d/b: USER_CODE_EXCEPTION: division by zero")
	})

	t.Run("of many upstreams the first are named and the others counted", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		key := b.trigger(t, "fan")
		lease := b.one(t)
		tasks := make([]engine.FanOutTask, 15)
		for i := range tasks {
			tasks[i] = engine.FanOutTask{Asset: "f/fetch", Partition: string(rune('a' + i))}
		}
		b.report(t, lease, engine.FanOut{Tasks: tasks, Barrier: true})
		b.report(t, lease, engine.Complete{})
		why := b.whyTask(t, key, "f/join")
		require.Len(t, why.Blockers, 11)
		require.Equal(t, "upstream f/fetch[a] is READY", why.Blockers[0].Message)
		require.Equal(t, 5, why.Blockers[10].Values["more"])
	})

	t.Run("a run that waits for its start shows the reason, and so do its tasks", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		b.limited(t, func(q *tenant.Quotas) { q.MaxConcurrentRuns = 1 })
		b.trigger(t, "single")
		var waits []store.RunKey
		for range 2 {
			triggered, err := b.TriggerRun(t.Context(), engine.Trigger{Tenant: b.tenant, Pipeline: "diamond", WaitForQuota: true})
			require.NoError(t, err)
			waits = append(waits, store.RunKey{Tenant: b.tenant, Run: triggered.Run})
		}
		why := b.whyRun(t, waits[1])
		require.Equal(t, []engine.BlockerCode{engine.BlockedByRuns, engine.BlockedByOlder}, codes(why))
		require.EqualValues(t, 1, why.Blockers[0].Values["limit"])
		require.Equal(t, 1, why.Blockers[1].Values["ahead"])
		require.Equal(t, []engine.BlockerCode{engine.BlockedByRuns, engine.BlockedByStart}, codes(b.whyTask(t, waits[0], "d/a")))
		require.Equal(t, []engine.BlockerCode{engine.BlockedByRuns, engine.BlockedByStart, engine.BlockedByUpstream}, codes(b.whyTask(t, waits[0], "d/b")))
	})

	t.Run("without a server that admits nothing is admitted and nothing starts", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		key := b.trigger(t, "single")
		require.Empty(t, b.whyTask(t, key, "s/one").Blockers)
		require.NoError(t, b.db.ReleaseDuty(t.Context(), b.duty))
		require.Equal(t, []engine.BlockerCode{engine.BlockedByNoAdmission}, codes(b.whyTask(t, key, "s/one")))
		why := b.whyRun(t, key)
		require.Equal(t, []engine.BlockerCode{engine.BlockedByNoAdmission}, codes(why), "what keeps its only task keeps the run")
		require.Equal(t, "s/one", why.Blockers[0].Values["asset"])
		require.Equal(t, "RUNNING", why.State)
	})

	t.Run("a task that runs names its worker, and a silent one that it is silent", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		b.db.SetClock(t, noon)
		key := b.trigger(t, "single")
		lease := b.one(t)
		why := b.whyTask(t, key, "s/one")
		require.Empty(t, why.Blockers)
		require.Equal(t, "worker w1 has executed it since 2026-11-15T12:00:00Z and has sent no heartbeat yet; it times out at 2026-11-15T12:01:00Z", why.Next)
		require.Empty(t, b.whyRun(t, key).Blockers)
		require.Equal(t, "its tasks continue: 0 of 1 have ended, 1 RUNNING", b.whyRun(t, key).Next)
		_, err := b.Heartbeats(t.Context(), []engine.Heartbeat{{Key: lease.TaskKey, Token: lease.Token}})
		require.NoError(t, err)
		b.db.SetClock(t, noon.Add(3*time.Minute))
		why = b.whyTask(t, key, "s/one")
		require.Equal(t, []engine.BlockerCode{engine.BlockedBySilence}, codes(why))
		require.Equal(t, "worker w1 is silent: its last heartbeat came 3m0s ago; its leases end at 2026-11-15T12:05:10Z", why.Blockers[0].Message)
		b.db.SetClock(t, noon.Add(6*time.Minute))
		why = b.whyTask(t, key, "s/one")
		require.Equal(t, []engine.BlockerCode{engine.BlockedBySilence}, codes(why))
		require.Equal(t, "worker w1 sent its last heartbeat 6m0s ago, and its lease is over", why.Blockers[0].Message)
	})

	t.Run("a cancel waits for workers, and shows it until it is done", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		key := b.trigger(t, "single")
		lease := b.one(t)
		_, err := b.CancelRun(t.Context(), engine.Cancel{Tenant: key.Tenant, Run: key.Run, Reason: "a mistake", Meta: engineMeta})
		require.NoError(t, err)
		require.Equal(t, []engine.BlockerCode{engine.BlockedByCancel}, codes(b.whyRun(t, key)))
		require.Equal(t, []engine.BlockerCode{engine.BlockedByCancel}, codes(b.whyTask(t, key, "s/one")))
		b.report(t, lease, engine.Fail{Failure: run.Failure{Code: run.CodeCancelled}})
		require.Equal(t, "it was cancelled: a mistake", b.whyRun(t, key).Blockers[0].Message)
		require.Equal(t, []engine.BlockerCode{engine.EndedByCancel}, codes(b.whyTask(t, key, "s/one")))
	})

	t.Run("a retry shows its time, reason and the remaining attempts, until it is due", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		b.db.SetClock(t, noon)
		key := b.trigger(t, "single")
		lease := b.one(t)
		b.report(t, lease, engine.Fail{Failure: run.Failure{Code: "NETWORK_ERROR", Message: "connection reset"}})
		due := noon.Add(run.Resolve("NETWORK_ERROR").Delay(1, lease.Task)).Format(time.RFC3339)
		why := b.whyTask(t, key, "s/one")
		require.Equal(t, []engine.BlockerCode{engine.BlockedByRetry}, codes(why))
		require.Equal(t, "attempt 1 failed: NETWORK_ERROR: connection reset; the next one is due at "+due+", 1 of 3 attempts are used",
			why.Blockers[0].Message)
		require.Equal(t, due, why.Blockers[0].Values["retry_at"])
		b.db.SetClock(t, noon.Add(5*time.Minute))
		require.Empty(t, b.whyTask(t, key, "s/one").Blockers)
	})

	t.Run("tasks of other tenants are not shown", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		key := b.trigger(t, "single")
		task := b.tasks(t, key)[0].ID
		other, err := b.CreateTenant(t.Context(), "brick", engineMeta)
		require.NoError(t, err)
		for _, owner := range []id.Tenant{other, {}} {
			_, err = b.WhyTask(t.Context(), store.TaskKey{Tenant: owner, Run: key.Run, Task: task})
			require.True(t, fault.Is(err, fault.NotFound), err)
			_, err = b.WhyRun(t.Context(), store.RunKey{Tenant: owner, Run: key.Run})
			require.True(t, fault.Is(err, fault.NotFound), err)
		}
		_, err = b.WhyTask(t.Context(), store.TaskKey{Tenant: b.tenant, Run: key.Run})
		require.True(t, fault.Is(err, fault.NotFound), err)
	})
}
