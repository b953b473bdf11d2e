package engine_test

import (
	"context"
	"encoding/json"
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

// The pipelines of these tests: locked by default, by a parameter, shared, and not at all.
const lockManifest = `
version: 1
assets:
  - {key: s/one, exec: {command: [run]}}
pipelines:
  - {name: locked}
  - {name: shared, lock: {shared: true}}
  - {name: region, lock: {key: "'region ' + parameters.region"}, parameters: [{name: region, type: string}]}
  - {name: free, overlap: allow}
`

func setupLocks(t *testing.T) *bundle {
	t.Helper()
	b := setup(t)
	b.deploy(t, lockManifest)
	return b
}

func (b *bundle) ask(t testing.TB, trigger engine.Trigger) engine.Triggered {
	t.Helper()
	trigger.Tenant = b.tenant
	triggered, err := b.TriggerRun(t.Context(), trigger)
	require.NoError(t, err)
	return triggered
}

func TestLocks(t *testing.T) {
	t.Parallel()
	region := func(name string) engine.Trigger {
		return engine.Trigger{Pipeline: "region", Parameters: json.RawMessage(`{"region": "` + name + `"}`)}
	}

	for _, pipeline := range []string{"locked", "shared"} {
		t.Run("while a run of "+pipeline+" lives, a trigger returns it, and when it has ended makes a new one", func(t *testing.T) {
			t.Parallel()
			b := setupLocks(t)
			first := b.ask(t, engine.Trigger{Pipeline: pipeline})
			require.False(t, first.AlreadyRunning)
			for range 3 {
				require.Equal(t, engine.Triggered{Run: first.Run, AlreadyRunning: true}, b.ask(t, engine.Trigger{Pipeline: pipeline}))
			}
			require.Equal(t, 1, b.db.Count(t, `SELECT count(*) FROM servo.runs`))
			b.report(t, b.one(t), engine.Complete{})
			second := b.ask(t, engine.Trigger{Pipeline: pipeline})
			require.False(t, second.AlreadyRunning)
			require.NotEqual(t, first.Run, second.Run)
			verifytest.Clean(t, b.db)
		})
	}

	t.Run("runs with other keys, of other workspaces and tenants, of overlapping pipelines and of selections continue", func(t *testing.T) {
		t.Parallel()
		b := setupLocks(t)
		_, err := b.CreateWorkspace(t.Context(), b.tenant, "staging", engineMeta)
		require.NoError(t, err)
		active := b.db.Count(t, `WITH moved AS (UPDATE servo.workspaces s SET active_deployment_id = d.active_deployment_id
			FROM servo.workspaces d WHERE s.name = 'staging' AND d.name = 'default' RETURNING 1) SELECT count(*) FROM moved`)
		require.Equal(t, 1, active)
		for _, trigger := range []engine.Trigger{
			{Pipeline: "locked"},
			{Pipeline: "locked", Workspace: "staging"},
			{Pipeline: "shared"},
			region("eu"), region("us"),
			{Pipeline: "free"},
			{Pipeline: "free"},
			{Select: []string{"s/one"}},
			{Select: []string{"s/one"}},
		} {
			require.False(t, b.ask(t, trigger).AlreadyRunning, trigger)
		}
		require.True(t, b.ask(t, region("eu")).AlreadyRunning)
		other, err := b.CreateTenant(t.Context(), "brick", engineMeta)
		require.NoError(t, err)
		b.tenant = other
		b.deploy(t, lockManifest)
		require.False(t, b.ask(t, region("eu")).AlreadyRunning)
	})

	t.Run("a key that cannot be made refuses the trigger", func(t *testing.T) {
		t.Parallel()
		b := setupLocks(t)
		_, err := b.TriggerRun(t.Context(), engine.Trigger{Tenant: b.tenant, Pipeline: "region"})
		requireFault(t, err, fault.InvalidArgument)
		require.ErrorContains(t, err, "no such key: region")
		require.Zero(t, b.db.Count(t, `SELECT count(*) FROM servo.live_runs`))
	})

	t.Run("of triggers in one batch one makes the run", func(t *testing.T) {
		t.Parallel()
		b := setupLocks(t)
		triggers := make([]engine.Trigger, 20)
		for i := range triggers {
			triggers[i] = region([]string{"eu", "us"}[i%2])
			triggers[i].Tenant = b.tenant
		}
		answers, errs := b.TriggerRuns(t.Context(), triggers)
		for i, answer := range answers {
			require.NoError(t, errs[i])
			require.Equal(t, answers[i%2].Run, answer.Run)
			require.Equal(t, i > 1, answer.AlreadyRunning)
		}
		require.Equal(t, 2, b.db.Count(t, `SELECT count(*) FROM servo.runs`))
		verifytest.Clean(t, b.db)
	})

	t.Run("what a quota refuses holds no lock, and those behind it are refused too", func(t *testing.T) {
		t.Parallel()
		b := setupLocks(t)
		b.limited(t, func(q *tenant.Quotas) { q.MaxConcurrentRuns = 0 })
		locked := engine.Trigger{Tenant: b.tenant, Pipeline: "locked"}
		_, errs := b.TriggerRuns(t.Context(), []engine.Trigger{locked, locked})
		for _, err := range errs {
			requireQuota(t, err, "max_concurrent_runs", 0)
		}
		require.Zero(t, b.db.Count(t, `SELECT count(*) FROM servo.live_runs`))
		waits := locked
		waits.WaitForQuota = true
		answers, errs := b.TriggerRuns(t.Context(), []engine.Trigger{locked, waits})
		require.NoError(t, errs[0])
		require.NoError(t, errs[1])
		require.Equal(t, engine.Triggered{Run: answers[1].Run, AlreadyRunning: true}, answers[0], "one of them may wait: both get its run")
		b.requireStates(t, store.RunKey{Tenant: b.tenant, Run: answers[1].Run}, run.RunPending)
		require.True(t, b.ask(t, locked).AlreadyRunning, "a run that waits holds its lock")
		verifytest.Clean(t, b.db)
	})

	t.Run("a retry takes the lock of its run", func(t *testing.T) {
		t.Parallel()
		b := setupLocks(t)
		first := b.ask(t, region("eu"))
		b.report(t, b.one(t), engine.Fail{Failure: run.Failure{Code: "USER_CODE_EXCEPTION", Message: "x"}})
		second := b.ask(t, region("eu"))
		retry := engine.RetryRun{Tenant: b.tenant, Run: first.Run, Mode: engine.RetryFailed}
		answer, err := b.RetryRun(t.Context(), retry)
		require.NoError(t, err)
		require.Equal(t, engine.Triggered{Run: second.Run, AlreadyRunning: true}, answer)
		b.report(t, b.one(t), engine.Complete{})
		answer, err = b.RetryRun(t.Context(), retry)
		require.NoError(t, err)
		require.False(t, answer.AlreadyRunning)
		require.Equal(t, answer.Run, b.ask(t, region("eu")).Run)
	})

	t.Run("a repeat by its idempotency key gets the answer that the first got", func(t *testing.T) {
		t.Parallel()
		b := setupLocks(t)
		holder := b.ask(t, engine.Trigger{Pipeline: "locked"})
		require.True(t, b.ask(t, engine.Trigger{Pipeline: "locked", IdempotencyKey: "k"}).AlreadyRunning)
		b.report(t, b.one(t), engine.Complete{})
		require.Equal(t, engine.Triggered{Run: holder.Run, Repeat: true}, b.ask(t, engine.Trigger{Pipeline: "locked", IdempotencyKey: "k"}))
		require.Equal(t, 1, b.db.Count(t, `SELECT count(*) FROM servo.runs`))
	})

	t.Run("every end frees the lock, and nothing else does", func(t *testing.T) {
		t.Parallel()
		b := setupLocks(t)
		first := b.ask(t, engine.Trigger{Pipeline: "locked"})
		lease := b.one(t)
		_, err := b.CancelRun(t.Context(), engine.Cancel{Tenant: b.tenant, Run: first.Run})
		require.NoError(t, err)
		require.Equal(t, first.Run, b.ask(t, engine.Trigger{Pipeline: "locked"}).Run, "a worker still works for it")
		b.report(t, lease, engine.Complete{})
		require.False(t, b.ask(t, engine.Trigger{Pipeline: "locked"}).AlreadyRunning)
	})

	t.Run("locks are listed with who holds them since when, and released by cancelling the run", func(t *testing.T) {
		t.Parallel()
		b := setupLocks(t)
		noon := time.Now().UTC().Truncate(time.Microsecond)
		b.db.SetClock(t, noon)
		locked := b.ask(t, engine.Trigger{Pipeline: "locked", TriggeredBy: "jo"})
		by := region("eu")
		by.Meta = event.Meta{Actor: "schedule"}
		eu := b.ask(t, by)
		b.ask(t, engine.Trigger{Pipeline: "free"})
		locks, err := b.ListLocks(t.Context(), b.tenant, "", 10)
		require.NoError(t, err)
		due := noon.Add(365 * 24 * time.Hour)
		require.Equal(t, []engine.Lock{
			{Key: "default/locked", Run: locked.Run, Workspace: "default", Pipeline: "locked", LockedAt: noon, LockedBy: "jo", DueAt: due},
			{Key: "region eu", Run: eu.Run, Workspace: "default", Pipeline: "region", LockedAt: noon, LockedBy: "schedule", DueAt: due},
		}, locks)
		locks, err = b.ListLocks(t.Context(), b.tenant, "default/locked", 10)
		require.NoError(t, err)
		require.Len(t, locks, 1, "after the key given")
		lock, cancelled, err := b.ReleaseLock(t.Context(), "region eu", engine.Cancel{Tenant: b.tenant, Reason: "stuck", Meta: event.Meta{Actor: "op"}})
		require.NoError(t, err)
		require.Equal(t, eu.Run, lock.Run)
		require.Equal(t, run.RunCancelled, cancelled.State)
		require.Equal(t, 1, b.db.Count(t, `SELECT count(*) FROM servo.run_events WHERE run_id = $1 AND type = 'run.cancel_requested' AND actor = 'op'`, eu.Run.UUID))
		_, _, err = b.ReleaseLock(t.Context(), "region eu", engine.Cancel{Tenant: b.tenant, Reason: "stuck", Meta: event.Meta{Actor: "op"}})
		requireFault(t, err, fault.NotFound)
		verifytest.Clean(t, b.db)
	})
}

func TestWaitForLock(t *testing.T) {
	t.Parallel()
	wait := func(t *testing.T, e *engine.Engine, trigger engine.Trigger) <-chan engine.Triggered {
		t.Helper()
		got := make(chan engine.Triggered, 1)
		go func() {
			triggered, err := e.TriggerRun(context.WithoutCancel(t.Context()), trigger)
			if err != nil {
				t.Errorf("trigger: %v", err)
			}
			got <- triggered
		}()
		return got
	}

	t.Run("a trigger that waits gets a run of its own when the lock is free", func(t *testing.T) {
		t.Parallel()
		b := setupLocks(t)
		holder := b.ask(t, engine.Trigger{Pipeline: "locked"})
		got := wait(t, b.Engine, engine.Trigger{Tenant: b.tenant, Pipeline: "locked", WaitForLock: time.Minute, IdempotencyKey: "k"})
		b.report(t, b.one(t), engine.Complete{})
		triggered := <-got
		require.False(t, triggered.AlreadyRunning)
		require.NotEqual(t, holder.Run, triggered.Run)
		verifytest.Clean(t, b.db)
	})

	t.Run("also when the run ends on another server", func(t *testing.T) {
		t.Parallel()
		b := setupLocks(t)
		holder := b.ask(t, engine.Trigger{Pipeline: "locked"})
		other := engine.New(b.db.Store, engine.Config{}, nil)
		t.Cleanup(other.Stop)
		got := wait(t, other, engine.Trigger{Tenant: b.tenant, Pipeline: "locked", WaitForLock: time.Minute})
		b.report(t, b.one(t), engine.Complete{})
		require.NotEqual(t, holder.Run, (<-got).Run)
	})

	t.Run("when the time is over it gets the run that exists", func(t *testing.T) {
		t.Parallel()
		b := setupLocks(t)
		holder := b.ask(t, engine.Trigger{Pipeline: "locked"})
		require.Equal(t, engine.Triggered{Run: holder.Run, AlreadyRunning: true}, b.ask(t, engine.Trigger{Pipeline: "locked", WaitForLock: time.Millisecond}))
	})

	t.Run("no call waits for hours", func(t *testing.T) {
		t.Parallel()
		b := setupLocks(t)
		for _, long := range []time.Duration{-time.Second, engine.MaxWaitForLock + 1} {
			_, err := b.TriggerRun(t.Context(), engine.Trigger{Tenant: b.tenant, Pipeline: "locked", WaitForLock: long})
			requireFault(t, err, fault.InvalidArgument)
		}
	})
}

// TestLockRace: servers trigger, end and cancel runs of one lock at once. The unique index of
// the database is the judge, and each answer names a run that lived.
func TestLockRace(t *testing.T) {
	t.Parallel()
	const servers, rounds = 4, 60
	b := setupLocks(t)
	var busy sync.WaitGroup
	made := make(chan id.Run, servers*rounds)
	for range servers {
		e := engine.New(b.db.Store, engine.Config{}, nil)
		t.Cleanup(e.Stop)
		busy.Go(func() {
			for range rounds {
				triggered, err := e.TriggerRun(t.Context(), engine.Trigger{Tenant: b.tenant, Pipeline: "locked"})
				if err != nil {
					t.Errorf("trigger: %v", err)
					return
				}
				made <- triggered.Run
				if triggered.AlreadyRunning {
					continue
				}
				if _, err := e.CancelRun(t.Context(), engine.Cancel{Tenant: b.tenant, Run: triggered.Run}); err != nil {
					t.Errorf("cancel: %v", err)
				}
			}
		})
	}
	busy.Wait()
	close(made)
	for run := range made {
		require.Equal(t, 1, b.db.Count(t, `SELECT count(*) FROM servo.runs WHERE id = $1`, run.UUID))
	}
	require.Zero(t, b.db.Count(t, `SELECT count(*) FROM servo.live_runs`))
	require.Zero(t, b.db.Count(t, `SELECT count(*) FROM servo.runs a JOIN servo.runs b ON a.id < b.id
		WHERE a.finished_at > b.created_at + interval '1 second'`), "no two lived side by side")
	verifytest.Clean(t, b.db)
}

func TestTriggerWithoutDatabase(t *testing.T) {
	t.Parallel()
	db := servotest.DB(t)
	proxy := servotest.Proxy(t, db.URL)
	b := setupThrough(t, db, proxy)
	b.deploy(t, lockManifest)
	proxy.Refuse(true)
	proxy.CutAll()
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	_, err := b.TriggerRun(ctx, engine.Trigger{Tenant: b.tenant, Pipeline: "locked"})
	f, ok := fault.As(err)
	require.True(t, ok, err)
	require.Equal(t, fault.Unavailable, f.Code)
	require.Positive(t, f.RetryAfter)
	require.Zero(t, db.Count(t, `SELECT count(*) FROM servo.runs`), "never a run without its lock")
}
