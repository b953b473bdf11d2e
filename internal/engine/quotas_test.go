package engine_test

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"go.arco.dev/servo/internal/base/event"
	"go.arco.dev/servo/internal/base/fault"
	"go.arco.dev/servo/internal/base/id"
	"go.arco.dev/servo/internal/devkit/servotest"
	"go.arco.dev/servo/internal/devkit/servotest/verifytest"
	"go.arco.dev/servo/internal/domain/run"
	"go.arco.dev/servo/internal/domain/tenant"
	"go.arco.dev/servo/internal/engine"
	"go.arco.dev/servo/internal/store"
)

// limited sets some quotas of the bundle's tenant, which has no others.
func (b *bundle) limited(t testing.TB, change func(q *tenant.Quotas)) {
	t.Helper()
	q, version, err := b.db.GetQuotas(t.Context(), b.tenant)
	require.NoError(t, err)
	change(&q)
	_, err = b.SetQuotas(t.Context(), b.tenant, q, version, engineMeta)
	require.NoError(t, err)
}

// requireQuota wants a refusal by a quota that states all that people need.
func requireQuota(t testing.TB, err error, quota string, limit int32) {
	t.Helper()
	requireUsage(t, err, quota, limit, limit)
}

// requireUsage is requireQuota for a tenant that uses more than the limit.
func requireUsage(t testing.TB, err error, quota string, limit, current int32) {
	t.Helper()
	f, ok := fault.As(err)
	require.True(t, ok, err)
	require.Equal(t, fault.LimitExceeded, f.Code)
	require.Equal(t, quota, f.Values["quota"])
	require.EqualValues(t, limit, f.Values["limit"])
	require.EqualValues(t, current, f.Values["current"])
	require.Positive(t, f.RetryAfter, "it may work later: 429")
	require.NotEmpty(t, f.Violation.Remedy)
}

func (b *bundle) start(t testing.TB) int {
	t.Helper()
	n, err := b.StartRuns(t.Context(), b.duty, 100)
	require.NoError(t, err)
	return n
}

func TestSetQuotas(t *testing.T) {
	t.Parallel()

	t.Run("a new tenant has the engine's quotas, by default the documented ones", func(t *testing.T) {
		t.Parallel()
		db := servotest.DB(t)
		e := engine.New(db.Store, engine.Config{}, nil)
		t.Cleanup(e.Stop)
		created, err := e.CreateTenant(t.Context(), "acme", engineMeta)
		require.NoError(t, err)
		q, version, err := db.GetQuotas(t.Context(), created)
		require.NoError(t, err)
		require.Equal(t, tenant.DefaultQuotas(), q)
		require.EqualValues(t, 1, version)
		require.Equal(t, 1, db.Count(t, `SELECT count(*) FROM servo.tenants WHERE max_concurrent_tasks = 100 AND max_queued_tasks = 1000 AND max_run_duration_s = 86400`))
		verifytest.Clean(t, db)
	})

	t.Run("the defaults of the columns are the defaults", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		b.db.Exec(t, `INSERT INTO servo.tenants (id, name, version, created_at) VALUES ('00000000-0000-7000-8000-000000000001', 'old', 1, now())`)
		var old id.Tenant
		require.NoError(t, old.UnmarshalText([]byte("00000000-0000-7000-8000-000000000001")))
		q, _, err := b.db.GetQuotas(t.Context(), old)
		require.NoError(t, err)
		require.Equal(t, tenant.DefaultQuotas(), q)
	})

	t.Run("each change is an event with a version, and of two at the same version one wins", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		q := tenant.DefaultQuotas()
		q.Zone, q.FairnessWeight = "Europe/Berlin", 2.5
		version, err := b.SetQuotas(t.Context(), b.tenant, q, 1, engineMeta)
		require.NoError(t, err)
		require.EqualValues(t, 2, version)
		_, err = b.SetQuotas(t.Context(), b.tenant, tenant.NoLimits(), 1, engineMeta)
		requireFault(t, err, fault.Conflict)
		got, version, err := b.db.GetQuotas(t.Context(), b.tenant)
		require.NoError(t, err)
		require.Equal(t, q, got)
		require.EqualValues(t, 2, version)
		version, err = b.SetQuotas(t.Context(), b.tenant, q, 2, engineMeta)
		require.NoError(t, err)
		require.EqualValues(t, 2, version, "nothing changes, nothing is recorded")
		verifytest.Clean(t, b.db)
	})

	t.Run("wrong quotas and unknown tenants are refused", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		_, err := b.SetQuotas(t.Context(), b.tenant, tenant.Quotas{}, 1, engineMeta)
		requireFault(t, err, fault.InvalidArgument)
		_, err = b.SetQuotas(t.Context(), id.New[id.Tenant](id.NewMinter(time.Now())), tenant.DefaultQuotas(), 1, engineMeta)
		requireFault(t, err, fault.NotFound)
		_, _, err = b.db.GetQuotas(t.Context(), id.New[id.Tenant](id.NewMinter(time.Now())))
		requireFault(t, err, fault.NotFound)
	})
}

func TestRunQuotas(t *testing.T) {
	t.Parallel()
	single := func(b *bundle) engine.Trigger { return engine.Trigger{Tenant: b.tenant, Pipeline: "single"} }

	t.Run("a trigger over max_concurrent_runs is refused, and the end of a run makes room", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		b.limited(t, func(q *tenant.Quotas) { q.MaxConcurrentRuns = 2 })
		b.trigger(t, "single")
		b.trigger(t, "single")
		_, err := b.TriggerRun(t.Context(), single(b))
		requireQuota(t, err, "max_concurrent_runs", 2)
		b.report(t, b.one(t), engine.Complete{})
		b.trigger(t, "single")
		_, err = b.TriggerRun(t.Context(), single(b))
		requireQuota(t, err, "max_concurrent_runs", 2)
		verifytest.Clean(t, b.db)
	})

	t.Run("a refusal reports what is used, also by a tenant whose quota was lowered", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		for range 3 {
			b.trigger(t, "single")
		}
		b.limited(t, func(q *tenant.Quotas) { q.MaxConcurrentRuns = 1 })
		_, err := b.TriggerRun(t.Context(), single(b))
		requireUsage(t, err, "max_concurrent_runs", 1, 3)
		require.ErrorContains(t, err, "3 runs have not ended")
		b.limited(t, func(q *tenant.Quotas) { q.MaxConcurrentRuns, q.MaxQueuedTasks = 10, 2 })
		_, err = b.TriggerRun(t.Context(), single(b))
		requireUsage(t, err, "max_queued_tasks", 2, 3)
		b.limited(t, func(q *tenant.Quotas) { q.MaxQueuedTasks, q.MaxDailyRuns = 10, 0 })
		_, err = b.TriggerRun(t.Context(), single(b))
		requireUsage(t, err, "max_daily_runs", 0, 3)
	})

	t.Run("triggers of one batch count each other", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		b.limited(t, func(q *tenant.Quotas) { q.MaxConcurrentRuns = 3 })
		triggers := make([]engine.Trigger, 10)
		for i := range triggers {
			triggers[i] = single(b)
		}
		_, errs := b.TriggerRuns(t.Context(), triggers)
		for i, err := range errs {
			if i < 3 {
				require.NoError(t, err)
			} else {
				requireQuota(t, err, "max_concurrent_runs", 3)
			}
		}
		require.Equal(t, 3, b.db.Count(t, `SELECT count(*) FROM servo.runs`))
	})

	t.Run("a backlog of ready tasks refuses new runs, also those of a paused asset", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		b.limited(t, func(q *tenant.Quotas) { q.MaxQueuedTasks = 2 })
		b.trigger(t, "single")
		b.trigger(t, "single")
		_, err := b.TriggerRun(t.Context(), single(b))
		requireQuota(t, err, "max_queued_tasks", 2)
		b.db.Exec(t, `UPDATE servo.ready_q SET held = true`)
		_, err = b.TriggerRun(t.Context(), single(b))
		requireQuota(t, err, "max_queued_tasks", 2)
		b.db.Exec(t, `UPDATE servo.ready_q SET held = false`)
		b.admit(t)
		b.trigger(t, "single")
	})

	t.Run("max_daily_runs counts since midnight of the tenant's zone", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		b.limited(t, func(q *tenant.Quotas) { q.MaxDailyRuns, q.Zone = 2, "Asia/Tokyo" })
		evening := time.Now().UTC().Truncate(24 * time.Hour).Add(14*time.Hour + 59*time.Minute) // 23:59 in Tokyo
		b.db.SetClock(t, evening)
		b.trigger(t, "single")
		b.trigger(t, "single")
		_, err := b.TriggerRun(t.Context(), single(b))
		requireQuota(t, err, "max_daily_runs", 2)
		f, _ := fault.As(err)
		require.Equal(t, time.Minute, f.RetryAfter)
		waiting := single(b)
		waiting.WaitForQuota = true
		_, err = b.TriggerRun(t.Context(), waiting)
		requireQuota(t, err, "max_daily_runs", 2) // waiting would not help today
		b.db.SetClock(t, evening.Add(time.Minute))
		b.trigger(t, "single")
	})

	t.Run("max_tasks_per_run rejects a plan", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		b.limited(t, func(q *tenant.Quotas) { q.MaxTasksPerRun = 3 })
		_, err := b.TriggerRun(t.Context(), engine.Trigger{Tenant: b.tenant, Pipeline: "diamond"})
		requireFault(t, err, fault.LimitExceeded)
		f, _ := fault.As(err)
		require.Equal(t, "max_tasks_per_run", f.Values["quota"])
		require.Zero(t, f.RetryAfter, "it never works")
	})

	t.Run("a refused trigger does not use up its idempotency key, nor do its repeats in the batch", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		b.limited(t, func(q *tenant.Quotas) { q.MaxConcurrentRuns = 0 })
		trigger := single(b)
		trigger.IdempotencyKey = "k"
		_, errs := b.TriggerRuns(t.Context(), []engine.Trigger{trigger, trigger})
		for _, err := range errs {
			requireQuota(t, err, "max_concurrent_runs", 0)
		}
		require.Zero(t, b.db.Count(t, `SELECT count(*) FROM servo.idempotency_keys`))
		b.limited(t, func(q *tenant.Quotas) { q.MaxConcurrentRuns = 1 })
		first, err := b.TriggerRun(t.Context(), trigger)
		require.NoError(t, err)
		require.False(t, first.Repeat)
		again, err := b.TriggerRun(t.Context(), trigger)
		require.NoError(t, err)
		require.Equal(t, engine.Triggered{Run: first.Run, Repeat: true}, again, "a repeat makes no run and needs no room")
	})

	t.Run("one tenant's quotas are no other's", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		mine := b.tenant
		b.limited(t, func(q *tenant.Quotas) { q.MaxConcurrentRuns = 1 })
		other, err := b.CreateTenant(t.Context(), "brick", engineMeta)
		require.NoError(t, err)
		b.tenant = other
		b.deploy(t, manifestText)
		_, errs := b.TriggerRuns(t.Context(), []engine.Trigger{
			{Tenant: mine, Pipeline: "single"}, {Tenant: other, Pipeline: "single"}, {Tenant: mine, Pipeline: "single"}, {Tenant: other, Pipeline: "single"},
		})
		require.NoError(t, errs[0])
		require.NoError(t, errs[1])
		requireQuota(t, errs[2], "max_concurrent_runs", 1)
		require.NoError(t, errs[3])
	})
}

// watchRuns makes the database itself refuse the run that is one too many: what a test sees by
// looking now and then proves nothing. It counts at each commit, one after the other.
const watchRuns = `
CREATE FUNCTION servo.watch_runs() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    PERFORM pg_advisory_xact_lock(1);
    IF (SELECT count(*) FROM servo.live_runs WHERE tenant_id = NEW.tenant_id AND NOT pending) > %d THEN
        RAISE EXCEPTION 'one run too many';
    END IF;
    RETURN NULL;
END
$$;
CREATE CONSTRAINT TRIGGER watch_runs AFTER INSERT OR UPDATE ON servo.live_runs DEFERRABLE INITIALLY DEFERRED
FOR EACH ROW EXECUTE FUNCTION servo.watch_runs()`

func TestQuotaRace(t *testing.T) {
	t.Parallel()
	const limit, servers, rounds = 5, 4, 40
	b := setup(t)
	b.limited(t, func(q *tenant.Quotas) { q.MaxConcurrentRuns = limit })
	b.db.Exec(t, fmt.Sprintf(watchRuns, limit))
	var (
		busy sync.WaitGroup
		mu   sync.Mutex
		made []id.Run
	)
	for server := range servers {
		e := engine.New(b.db.Store, engine.Config{}, nil)
		t.Cleanup(e.Stop)
		busy.Go(func() {
			for round := range rounds {
				triggered, err := e.TriggerRun(t.Context(), engine.Trigger{Tenant: b.tenant, Pipeline: "single", WaitForQuota: (server+round)%2 == 0})
				if err != nil {
					if !fault.Is(err, fault.LimitExceeded) {
						t.Errorf("server %d: %v", server, err)
					}
				} else {
					mu.Lock()
					made = append(made, triggered.Run)
					mu.Unlock()
				}
				if _, err := e.StartRuns(t.Context(), b.duty, 3); err != nil {
					t.Errorf("start: %v", err)
				}
				mu.Lock()
				var oldest id.Run
				if len(made) > limit {
					oldest, made = made[0], made[1:]
				}
				mu.Unlock()
				if oldest != (id.Run{}) {
					if _, err := e.CancelRun(t.Context(), engine.Cancel{Tenant: b.tenant, Run: oldest}); err != nil {
						t.Errorf("cancel: %v", err)
					}
				}
			}
		})
	}
	busy.Wait()
	require.Positive(t, b.db.Count(t, `SELECT count(*) FROM servo.run_events WHERE type = 'run.started'`), "some have waited")
	verifytest.Clean(t, b.db)
}

func TestStartRuns(t *testing.T) {
	t.Parallel()
	waiting := func(b *bundle, priority int16) engine.Trigger {
		return engine.Trigger{Tenant: b.tenant, Pipeline: "diamond", Priority: priority, WaitForQuota: true, Meta: event.Meta{Actor: "jo", Trace: "t"}}
	}
	trigger := func(t *testing.T, b *bundle, priority int16) store.RunKey {
		t.Helper()
		triggered, err := b.TriggerRun(t.Context(), waiting(b, priority))
		require.NoError(t, err)
		return store.RunKey{Tenant: b.tenant, Run: triggered.Run}
	}

	t.Run("runs over the quota wait, and start by priority, then by age, as others end", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		b.limited(t, func(q *tenant.Quotas) { q.MaxConcurrentRuns = 1 })
		running := trigger(t, b, 5)
		second, third, urgent := trigger(t, b, 5), trigger(t, b, 5), trigger(t, b, 9)
		b.requireStates(t, second, run.RunPending, "d/a=PENDING", "d/b=PENDING", "d/d=PENDING")
		require.Zero(t, b.start(t), "there is no room")
		verifytest.Clean(t, b.db)
		for _, next := range []store.RunKey{urgent, second, third} {
			_, err := b.CancelRun(t.Context(), engine.Cancel{Tenant: b.tenant, Run: running.Run})
			require.NoError(t, err)
			require.Equal(t, 1, b.start(t))
			b.requireStates(t, next, run.RunRunning, "d/a=READY", "d/b=PENDING")
			running = next
		}
		require.Zero(t, b.start(t))
		verifytest.Clean(t, b.db)
		b.drain(t, succeed)
		b.requireStates(t, third, run.RunSucceeded, "d/d=SUCCEEDED")
		require.Zero(t, b.db.Count(t, `SELECT count(*) FROM servo.live_runs`))
		verifytest.Clean(t, b.db)
	})

	t.Run("a run that waits for the backlog starts when it is worked off", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		b.limited(t, func(q *tenant.Quotas) { q.MaxQueuedTasks = 1 })
		trigger(t, b, 5)
		late := trigger(t, b, 5)
		b.requireStates(t, late, run.RunPending)
		require.Zero(t, b.start(t))
		b.admit(t)
		require.Equal(t, 1, b.start(t))
		b.requireStates(t, late, run.RunRunning, "d/a=READY")
	})

	t.Run("a waiting run is not overtaken", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		b.limited(t, func(q *tenant.Quotas) { q.MaxConcurrentRuns = 1 })
		first := trigger(t, b, 5)
		trigger(t, b, 5)
		_, err := b.CancelRun(t.Context(), engine.Cancel{Tenant: b.tenant, Run: first.Run})
		require.NoError(t, err)
		_, err = b.TriggerRun(t.Context(), engine.Trigger{Tenant: b.tenant, Pipeline: "single"})
		requireQuota(t, err, "max_concurrent_runs", 1)
	})

	t.Run("a run that waits can be cancelled, and retried", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		b.limited(t, func(q *tenant.Quotas) { q.MaxConcurrentRuns = 0 })
		key := trigger(t, b, 5)
		cancelled, err := b.CancelRun(t.Context(), engine.Cancel{Tenant: b.tenant, Run: key.Run, Reason: "not needed"})
		require.NoError(t, err)
		require.Equal(t, run.RunCancelled, cancelled.State)
		b.requireStates(t, key, run.RunCancelled, "d/a=CANCELLED", "d/d=CANCELLED")
		b.limited(t, func(q *tenant.Quotas) { q.MaxConcurrentRuns = 1 })
		require.Zero(t, b.start(t))
		again, err := b.RetryRun(t.Context(), engine.RetryRun{Tenant: b.tenant, Run: key.Run, Mode: engine.RetryFailed})
		require.NoError(t, err)
		b.requireStates(t, store.RunKey{Tenant: b.tenant, Run: again.Run}, run.RunRunning, "d/a=READY")
		verifytest.Clean(t, b.db)
	})

	t.Run("the time of a run begins with its start, and ends it with its limit named", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		noon := time.Now().UTC().Truncate(time.Microsecond)
		b.db.SetClock(t, noon)
		b.deploy(t, manifestText+"  - {name: slow, overlap: allow, select: [s/one], max_execution: 1m}\n")
		b.limited(t, func(q *tenant.Quotas) { q.MaxConcurrentRuns, q.MaxRunDuration = 2, time.Hour })
		slow, err := b.TriggerRun(t.Context(), engine.Trigger{Tenant: b.tenant, Pipeline: "slow"})
		require.NoError(t, err)
		long, late := trigger(t, b, 5), trigger(t, b, 5)
		expire := func(at time.Duration) int {
			b.db.SetClock(t, noon.Add(at))
			n, err := b.ExpireRuns(t.Context(), 100)
			require.NoError(t, err)
			return n
		}
		require.Zero(t, expire(time.Minute-time.Microsecond))
		require.Equal(t, 1, expire(time.Minute))
		found, err := b.db.GetRun(t.Context(), store.RunKey{Tenant: b.tenant, Run: slow.Run})
		require.NoError(t, err)
		require.Equal(t, run.RunTimedOut, found.State)
		require.Contains(t, found.CancelReason, "max_execution of 1m0s")
		require.Equal(t, 1, b.start(t))
		require.Equal(t, 1, expire(time.Hour), "the one that waited has more time")
		b.requireStates(t, long, run.RunTimedOut, "d/a=CANCELLED")
		found, err = b.db.GetRun(t.Context(), long)
		require.NoError(t, err)
		require.Contains(t, found.CancelReason, "max_run_duration of 1h0m0s")
		b.requireStates(t, late, run.RunRunning)
		require.Equal(t, 1, expire(time.Hour+time.Minute))
		verifytest.Clean(t, b.db)
	})

	t.Run("a run whose worker continues is timed out once, and not checked again", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		noon := time.Now().UTC().Truncate(time.Microsecond)
		b.db.SetClock(t, noon)
		b.limited(t, func(q *tenant.Quotas) { q.MaxRunDuration = time.Minute })
		key := b.trigger(t, "diamond")
		lease := b.one(t)
		b.db.SetClock(t, noon.Add(time.Minute))
		n, err := b.ExpireRuns(t.Context(), 100)
		require.NoError(t, err)
		require.Equal(t, 1, n)
		b.requireStates(t, key, run.RunCancelling, "d/a=RUNNING", "d/b=CANCELLED")
		n, err = b.ExpireRuns(t.Context(), 100)
		require.NoError(t, err)
		require.Zero(t, n)
		verifytest.Clean(t, b.db)
		b.report(t, lease, engine.Complete{})
		b.requireStates(t, key, run.RunTimedOut, "d/a=CANCELLED")
		verifytest.Clean(t, b.db)
	})

	t.Run("only the holder of the duty starts runs", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		_, err := b.StartRuns(t.Context(), store.Duty{Name: "admission", Holder: "other", Epoch: 7}, 10)
		require.ErrorIs(t, err, store.ErrDutyLost)
	})

	t.Run("the end of a run and a higher quota want a look, if runs wait", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		b.limited(t, func(q *tenant.Quotas) { q.MaxConcurrentRuns = 1 })
		first := trigger(t, b, 5)
		require.False(t, b.StartsWanted())
		trigger(t, b, 5)
		ready := b.Ready()
		_, err := b.CancelRun(t.Context(), engine.Cancel{Tenant: b.tenant, Run: first.Run})
		require.NoError(t, err)
		<-ready
		require.True(t, b.StartsWanted())
		require.False(t, b.StartsWanted(), "it is reported once")
		trigger(t, b, 5)
		require.Equal(t, 1, b.start(t))
		b.limited(t, func(q *tenant.Quotas) { q.MaxConcurrentRuns = 2 })
		require.True(t, b.StartsWanted())
		require.Equal(t, 1, b.start(t))
		require.Zero(t, b.start(t))
		b.limited(t, func(q *tenant.Quotas) { q.MaxConcurrentRuns = 3 })
		require.False(t, b.StartsWanted(), "no run waits")
	})
}
