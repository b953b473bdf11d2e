package engine_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"go.arco.dev/servo/internal/base/fault"
	"go.arco.dev/servo/internal/devkit/servotest/verifytest"
	"go.arco.dev/servo/internal/domain/config"
	"go.arco.dev/servo/internal/domain/run"
	"go.arco.dev/servo/internal/domain/tenant"
	"go.arco.dev/servo/internal/engine"
)

func TestTriggerWithOtherParameters(t *testing.T) {
	t.Parallel()
	const manifest = `
version: 1
assets:
  - {key: s/one, exec: {command: [run]}}
pipelines:
  - {name: numbered, parameters: [{name: n, type: integer, default: 1}]}
`
	with := func(n int) engine.Trigger {
		return engine.Trigger{Pipeline: "numbered", Parameters: json.RawMessage(fmt.Sprintf(`{"n": %d}`, n))}
	}
	setup := func(t *testing.T) (*bundle, engine.Triggered) {
		t.Helper()
		b := setup(t)
		b.deploy(t, manifest)
		return b, b.ask(t, engine.Trigger{Pipeline: "numbered"})
	}

	t.Run("the same parameters, defaults filled in, return the run", func(t *testing.T) {
		t.Parallel()
		b, first := setup(t)
		require.Equal(t, engine.Triggered{Run: first.Run, AlreadyRunning: true}, b.ask(t, with(1)))
	})

	t.Run("other parameters are refused, with the run that holds the lock", func(t *testing.T) {
		t.Parallel()
		b, first := setup(t)
		trigger := with(2)
		trigger.Tenant, trigger.IdempotencyKey = b.tenant, "once"
		_, err := b.TriggerRun(t.Context(), trigger)
		requireFault(t, err, fault.Conflict)
		require.ErrorContains(t, err, first.Run.String())
		_, errs := b.TriggerRuns(t.Context(), []engine.Trigger{trigger})
		requireFault(t, errs[0], fault.Conflict)
		trigger.WaitForLock = time.Millisecond
		_, err = b.TriggerRun(t.Context(), trigger)
		requireFault(t, err, fault.Conflict)
		b.report(t, b.one(t), engine.Complete{})
		require.False(t, b.ask(t, trigger).Repeat, "its key was given back")
	})

	t.Run("of one batch the first makes the run, and others are refused", func(t *testing.T) {
		t.Parallel()
		b, _ := setup(t)
		b.report(t, b.one(t), engine.Complete{})
		triggers := []engine.Trigger{with(5), with(5), with(6)}
		for i := range triggers {
			triggers[i].Tenant = b.tenant
		}
		answers, errs := b.TriggerRuns(t.Context(), triggers)
		require.NoError(t, errors.Join(errs[:2]...))
		require.Equal(t, engine.Triggered{Run: answers[0].Run, AlreadyRunning: true}, answers[1])
		requireFault(t, errs[2], fault.Conflict)
	})

	t.Run("queued ones run afterwards, in the order in which they came", func(t *testing.T) {
		t.Parallel()
		b, _ := setup(t)
		var want []string
		for n := range 4 {
			trigger := with(n + 2)
			trigger.Queue = true
			queued := b.ask(t, trigger)
			require.False(t, queued.AlreadyRunning)
			want = append(want, queued.Run.String())
		}
		b.report(t, b.one(t), engine.Complete{})
		var got []string
		for range want {
			n, err := b.StartRuns(t.Context(), b.duty, 100)
			require.NoError(t, err)
			require.Equal(t, 1, n)
			lease := b.one(t)
			got = append(got, lease.Run.String())
			b.report(t, lease, engine.Complete{})
		}
		require.Equal(t, want, got)
		verifytest.Clean(t, b.db)
	})

	t.Run("a retry of a part is refused while another run holds the lock", func(t *testing.T) {
		t.Parallel()
		b, first := setup(t)
		b.report(t, b.one(t), engine.Fail{Failure: run.Failure{Code: "USER_CODE_EXCEPTION"}})
		second := b.ask(t, with(2))
		_, err := b.RetryRun(t.Context(), engine.RetryRun{Tenant: b.tenant, Run: first.Run, Mode: engine.RetryFailed})
		requireFault(t, err, fault.Conflict)
		require.ErrorContains(t, err, second.Run.String())
	})
}

func TestTriggerAndStartDoNotDeadlock(t *testing.T) {
	t.Parallel()
	w := newClockworkOn(t, engine.Config{Server: "server-1", Quotas: tenant.DefaultQuotas()})
	saved := w.save(t, "line", config.Spec{Overlap: config.OverlapBufferOne})
	for range 2 {
		w.forward(t, time.Minute)
		w.fire(t)
	}
	w.report(t, w.one(t), engine.Complete{}) // the lock is free, and a run waits for it

	owner := w.db.Connect(t)
	held, err := owner.Begin(t.Context())
	require.NoError(t, err)
	_, err = held.Exec(t.Context(), `SELECT FROM servo.tenants WHERE id = $1 FOR NO KEY UPDATE`, w.tenant.UUID)
	require.NoError(t, err)
	started := make(chan error, 1)
	go func() { _, err := w.StartRuns(t.Context(), w.duty, 100); started <- err }()
	w.untilBlocked(t, 1)
	triggered := make(chan error, 1)
	go func() {
		_, err := w.TriggerConfig(t.Context(), w.tenant, saved.ID, engine.Trigger{})
		triggered <- err
	}()
	select { // where the trigger takes the lock it waits for its tenant from here on
	case err := <-triggered:
		require.NoError(t, err)
		triggered <- nil
	case <-w.blockedBy(t, 2):
	}
	require.NoError(t, held.Commit(t.Context()))
	require.NoError(t, <-started)
	require.NoError(t, <-triggered)
	require.Zero(t, w.db.Count(t, `SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()`))
	require.Equal(t, []string{"00:02"}, w.running(t))
}

// blockedBy is closed when n statements wait for locks.
func (b *bundle) blockedBy(t testing.TB, n int) <-chan struct{} {
	t.Helper()
	conn, done := b.db.Connect(t), make(chan struct{})
	ctx, cancel := context.WithCancel(t.Context())
	t.Cleanup(func() { cancel(); <-done }) // before the connection is closed
	go func() {
		defer close(done)
		for waiting := 0; waiting < n; {
			if conn.QueryRow(ctx, `SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'`).Scan(&waiting) != nil {
				return
			}
		}
	}()
	return done
}
