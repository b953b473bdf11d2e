package engine_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"go.arco.dev/servo/internal/devkit/servotest"
	"go.arco.dev/servo/internal/devkit/servotest/verifytest"
	"go.arco.dev/servo/internal/domain/run"
	"go.arco.dev/servo/internal/engine"
	"go.arco.dev/servo/internal/store"
)

// TestLostCommit cuts the connection at the COMMIT of one call, before or after PostgreSQL
// has received it. The engine cannot know which: it does the same again. Either way there is
// one effect, and the answer is the one that a call without trouble gets.
func TestLostCommit(t *testing.T) {
	t.Parallel()
	for name, claim := range map[string]func(t *testing.T, b *bundle, lose func()){
		"a trigger without a key makes one run":        lostTrigger,
		"a trigger with a key makes one run":           lostTriggerWithKey,
		"several triggers make a run each":             lostTriggers,
		"a claim gets its leases once":                 lostClaim,
		"a start starts once":                          lostStart,
		"a cursor moves once":                          lostAdvance,
		"a task completes once and readies what waits": lostComplete,
		"a failure is counted once":                    lostFail,
		"a failure for good skips what waits":          lostFailForGood,
		"an interruption returns the task once":        lostInterruption,
		"a yield returns the task once":                lostYield,
		"a yield that is one too many ends as poison":  lostPoison,
		"a fan-out adds its tasks once":                lostFanOut,
		"a cancel ends a task without a worker":        lostCancel,
		"a late result is kept":                        lostLateResult,
		"a yield after a cancel ends the task":         lostCancelledYield,
		"a heartbeat renews":                           lostHeartbeat,
		"progress is stored":                           lostProgress,
		"an expiry happens once":                       lostExpiry,
		"an admission queues once":                     lostAdmission,
	} {
		for fate, when := range map[servotest.Fate]string{servotest.CutBefore: "before", servotest.CutAfter: "after"} {
			t.Run(name+", cut "+when+" the commit", func(t *testing.T) {
				t.Parallel()
				db := servotest.DB(t)
				proxy := servotest.Proxy(t, db.URL)
				b := setupThrough(t, db, proxy)
				lost := 0
				claim(t, b, func() {
					lost++
					proxy.Next(1, fate)
				})
				require.Positive(t, lost)
				require.Equal(t, lost, proxy.Cuts(), "every loss has happened")
				verifytest.Clean(t, db)
			})
		}
	}
}

func lostTrigger(t *testing.T, b *bundle, lose func()) {
	t.Helper()
	lose()
	triggered, err := b.TriggerRun(t.Context(), engine.Trigger{Tenant: b.tenant, Pipeline: "diamond"})
	require.NoError(t, err)
	require.False(t, triggered.Repeat)
	require.Equal(t, 1, b.db.Count(t, `SELECT count(*) FROM servo.runs`))
	b.requireStates(t, store.RunKey{Tenant: b.tenant, Run: triggered.Run}, run.RunRunning, "d/a=READY")
}

func lostTriggerWithKey(t *testing.T, b *bundle, lose func()) {
	t.Helper()
	trigger := engine.Trigger{Tenant: b.tenant, Pipeline: "single", IdempotencyKey: "k"}
	lose()
	first, err := b.TriggerRun(t.Context(), trigger)
	require.NoError(t, err)
	require.False(t, first.Repeat, "the caller asked once")
	lose()
	again, err := b.TriggerRun(t.Context(), trigger)
	require.NoError(t, err)
	require.Equal(t, first.Run, again.Run)
	require.True(t, again.Repeat)
	require.Equal(t, 1, b.db.Count(t, `SELECT count(*) FROM servo.runs`))
}

func lostTriggers(t *testing.T, b *bundle, lose func()) {
	t.Helper()
	lose()
	triggered, errs := b.TriggerRuns(t.Context(), []engine.Trigger{
		{Tenant: b.tenant, Pipeline: "single"},
		{Tenant: b.tenant, Pipeline: "no such pipeline"},
		{Tenant: b.tenant, Pipeline: "single", IdempotencyKey: "k"},
		{Tenant: b.tenant, Pipeline: "single", IdempotencyKey: "k"},
	})
	require.NoError(t, errs[0])
	require.Error(t, errs[1])
	require.NoError(t, errs[2])
	require.NoError(t, errs[3])
	require.Equal(t, triggered[2].Run, triggered[3].Run)
	require.True(t, triggered[3].Repeat)
	require.Equal(t, 2, b.db.Count(t, `SELECT count(*) FROM servo.runs`))
}

func lostClaim(t *testing.T, b *bundle, lose func()) {
	t.Helper()
	for range 5 {
		b.trigger(t, "single")
	}
	b.admit(t)
	lose()
	leases := b.claim(t, 3, true)
	require.Len(t, leases, 3)
	require.Equal(t, 3, b.db.Count(t, `SELECT count(*) FROM servo.leases`))
	require.Equal(t, 2, b.db.Count(t, `SELECT count(*) FROM servo.pool_q`))
	for _, l := range leases {
		require.EqualValues(t, 1, l.Attempt)
		require.Equal(t, "s/one", l.Code.Key)
		require.Equal(t, run.Succeeded, b.report(t, l, engine.Complete{}).State)
	}
}

func lostStart(t *testing.T, b *bundle, lose func()) {
	t.Helper()
	lease := b.many(t, 1, false)[0]
	lose()
	answer := b.report(t, lease, engine.Start{})
	require.Equal(t, run.Running, answer.State)
	require.False(t, answer.Deadline.IsZero())
}

func lostAdvance(t *testing.T, b *bundle, lose func()) {
	t.Helper()
	lease := b.many(t, 1, true)[0]
	lose()
	b.report(t, lease, engine.Advance{Expected: "", Next: "1"})
	lose()
	b.report(t, lease, engine.Advance{Expected: "1", Next: "2"})
	require.Equal(t, []string{"2 after "}, b.db.Texts(t, `SELECT cursor || ' after ' || claim_cursor FROM servo.leases`))
	b.report(t, lease, engine.Complete{})
	require.Equal(t, []string{"2"}, b.db.Texts(t, `SELECT data->>'cursor' FROM servo.run_events WHERE type = 'task.succeeded'`), "the end of the lease records the cursor")
}

func lostComplete(t *testing.T, b *bundle, lose func()) {
	t.Helper()
	key := b.trigger(t, "diamond")
	lease := b.one(t)
	lose()
	answer := b.report(t, lease, engine.Complete{Status: run.PartialSuccess})
	require.Equal(t, run.Succeeded, answer.State)
	require.Equal(t, run.PartialSuccess, answer.Outcome)
	b.requireStates(t, key, run.RunRunning, "d/b=READY", "d/c=READY", "d/d=PENDING")
}

func lostFail(t *testing.T, b *bundle, lose func()) {
	t.Helper()
	lease := b.many(t, 1, true)[0]
	lose()
	answer := b.report(t, lease, engine.Fail{Failure: run.Failure{Code: "NETWORK_ERROR"}})
	require.Equal(t, run.RetryWait, answer.State)
	require.False(t, answer.DueAt.IsZero())
	require.Equal(t, 1, b.db.Count(t, `SELECT failures FROM servo.retry_q`))
}

func lostFailForGood(t *testing.T, b *bundle, lose func()) {
	t.Helper()
	key := b.trigger(t, "diamond")
	lease := b.one(t)
	lose()
	answer := b.report(t, lease, engine.Fail{Failure: run.Failure{Code: "USER_CODE_EXCEPTION"}})
	require.Equal(t, run.Failed, answer.State)
	require.Equal(t, run.UserError, answer.Outcome)
	b.requireStates(t, key, run.RunFailed, "d/d=SKIPPED")
}

func lostInterruption(t *testing.T, b *bundle, lose func()) {
	t.Helper()
	lease := b.many(t, 1, true)[0]
	lose()
	require.Equal(t, run.Ready, b.report(t, lease, engine.Fail{Failure: run.Failure{Code: run.CodeInterrupted}}).State)
	require.Equal(t, 1, b.db.Count(t, `SELECT fruitless FROM servo.ready_q`))
}

func lostYield(t *testing.T, b *bundle, lose func()) {
	t.Helper()
	lease := b.many(t, 1, false)[0]
	lose()
	require.Equal(t, run.Queued, b.report(t, lease, engine.Yield{}).State)
	lease = b.claim(t, 1, true)[0]
	cursor := "7"
	lose()
	require.Equal(t, run.Ready, b.report(t, lease, engine.Yield{Cursor: &cursor}).State)
	require.Equal(t, 1, b.db.Count(t, `SELECT count(*) FROM servo.ready_q WHERE cursor = '7' AND fruitless = 0`))
}

func lostPoison(t *testing.T, b *bundle, lose func()) {
	t.Helper()
	b.trigger(t, "single")
	for range 9 {
		b.report(t, b.one(t), engine.Yield{})
	}
	lease := b.one(t)
	lose()
	answer := b.report(t, lease, engine.Yield{})
	require.Equal(t, run.Failed, answer.State)
	require.Equal(t, run.Poison, answer.Outcome)
}

func lostFanOut(t *testing.T, b *bundle, lose func()) {
	t.Helper()
	key := b.trigger(t, "fan")
	scan := b.one(t)
	lose()
	answer := b.report(t, scan, engine.FanOut{Barrier: true, Tasks: []engine.FanOutTask{{"f/fetch", "0"}, {"f/fetch", "1"}}})
	require.Len(t, answer.Added, 2)
	require.Equal(t, run.Running, answer.State)
	require.Equal(t, 4, b.db.Count(t, `SELECT count(*) FROM servo.tasks`))
	b.report(t, scan, engine.Complete{})
	b.drain(t, succeed)
	b.requireStates(t, key, run.RunSucceeded)
}

func lostCancel(t *testing.T, b *bundle, lose func()) {
	t.Helper()
	key := b.trigger(t, "diamond")
	lose()
	cancelled, err := b.CancelRun(t.Context(), engine.Cancel{Tenant: key.Tenant, Run: key.Run, Reason: "enough"})
	require.NoError(t, err)
	require.Equal(t, run.RunCancelled, cancelled.State)
	require.Equal(t, 1, b.db.Count(t, `SELECT count(*) FROM servo.run_events WHERE type = 'run.cancel_requested'`))
	b.requireStates(t, key, run.RunCancelled, "d/a=CANCELLED", "d/d=CANCELLED")
}

func lostLateResult(t *testing.T, b *bundle, lose func()) {
	t.Helper()
	key := b.trigger(t, "single")
	lease := b.one(t)
	lose()
	cancelled, err := b.CancelRun(t.Context(), engine.Cancel{Tenant: key.Tenant, Run: key.Run})
	require.NoError(t, err)
	require.Equal(t, run.RunCancelling, cancelled.State)
	lose()
	answer := b.report(t, lease, engine.Complete{Result: []byte(`{"rows": 1}`)})
	require.Equal(t, run.Cancelled, answer.State)
	require.True(t, answer.Late)
	require.Equal(t, 1, b.db.Count(t, `SELECT count(*) FROM servo.tasks WHERE late_result AND result = '{"rows": 1}'`))
}

func lostCancelledYield(t *testing.T, b *bundle, lose func()) {
	t.Helper()
	key := b.trigger(t, "single")
	lease := b.one(t)
	_, err := b.CancelRun(t.Context(), engine.Cancel{Tenant: key.Tenant, Run: key.Run})
	require.NoError(t, err)
	lose()
	require.Equal(t, run.Cancelled, b.report(t, lease, engine.Yield{}).State)
	b.requireStates(t, key, run.RunCancelled)
}

func lostHeartbeat(t *testing.T, b *bundle, lose func()) {
	t.Helper()
	lease := b.many(t, 1, true)[0]
	lose()
	answers, err := b.Heartbeats(t.Context(), []engine.Heartbeat{{Key: lease.TaskKey, Token: lease.Token}})
	require.NoError(t, err)
	require.Equal(t, []engine.Pulse{{Alive: true}}, answers)
	require.Equal(t, 1, b.db.Count(t, `SELECT count(*) FROM servo.heartbeats`))
}

func lostProgress(t *testing.T, b *bundle, lose func()) {
	t.Helper()
	lease := b.many(t, 1, true)[0]
	lose()
	progress := engine.Progress{Key: lease.TaskKey, Token: lease.Token}
	progress.Phase = "load"
	answers, err := b.Progress(t.Context(), []engine.Progress{progress})
	require.NoError(t, err)
	require.Equal(t, []engine.Pulse{{Alive: true}}, answers)
	require.Equal(t, 1, b.db.Count(t, `SELECT count(*) FROM servo.attempt_stages WHERE phase = 'load' AND seq = 1`), "one stage, however often it was sent")
}

// The loops try again themselves: their next round must do the rest and nothing twice.
func lostExpiry(t *testing.T, b *bundle, lose func()) {
	t.Helper()
	b.many(t, 3, true)
	b.db.Exec(t, `UPDATE servo.leases SET expires_at = '2000-01-01', due_at = '2000-01-01'`)
	lose()
	_, err := b.Expire(t.Context(), 100)
	require.Equal(t, store.Away, store.Diagnose(err))
	_, err = b.Expire(t.Context(), 100)
	require.NoError(t, err)
	require.Equal(t, 3, b.db.Count(t, `SELECT count(*) FROM servo.ready_q WHERE deaths = 1 AND failures = 0`))
	b.admit(t)
	for _, l := range b.claim(t, 3, true) {
		b.report(t, l, engine.Fail{Failure: run.Failure{Code: "NETWORK_ERROR"}})
	}
	require.Equal(t, 3, b.db.Count(t, `SELECT count(*) FROM servo.retry_q WHERE failures = 1`))
	b.db.Exec(t, `UPDATE servo.retry_q SET due_at = '2000-01-01'`)
	lose()
	_, err = b.RetryDue(t.Context(), 100)
	require.Equal(t, store.Away, store.Diagnose(err))
	_, err = b.RetryDue(t.Context(), 100)
	require.NoError(t, err)
	require.Equal(t, 3, b.db.Count(t, `SELECT count(*) FROM servo.ready_q`))
	b.drain(t, succeed)
}

func lostAdmission(t *testing.T, b *bundle, lose func()) {
	t.Helper()
	for range 3 {
		b.trigger(t, "single")
	}
	lose()
	_, _, err := b.Admit(t.Context(), b.duty, 100)
	require.Equal(t, store.Away, store.Diagnose(err))
	b.admit(t)
	require.Equal(t, 3, b.db.Count(t, `SELECT count(*) FROM servo.pool_q`))
}
