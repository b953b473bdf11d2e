package admission

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"go.arco.dev/servo/internal/base/event"
	"go.arco.dev/servo/internal/base/id"
	"go.arco.dev/servo/internal/devkit/servotest"
	"go.arco.dev/servo/internal/devkit/servotest/verifytest"
	"go.arco.dev/servo/internal/domain/asset"
	"go.arco.dev/servo/internal/domain/tenant"
	"go.arco.dev/servo/internal/engine"
	"go.arco.dev/servo/internal/store"
)

// cluster is a database with a tenant and any number of servers.
type cluster struct {
	db     *servotest.Database
	engine *engine.Engine
	tenant id.Tenant
}

func setup(t *testing.T) *cluster {
	t.Helper()
	c := &cluster{db: servotest.DB(t)}
	c.engine = engine.New(c.db.Store, engine.Config{Quotas: tenant.NoLimits(), QueueWithoutWorkers: 5000}, nil)
	t.Cleanup(c.engine.Stop)
	var err error
	c.tenant, err = c.engine.CreateTenant(t.Context(), "acme", event.Meta{})
	require.NoError(t, err)
	manifest, err := asset.Parse([]byte(`{version: 1, assets: [{key: s/one, go: {}}]}`), "servo.yaml")
	require.NoError(t, err)
	_, err = c.engine.Deploy(t.Context(), c.tenant, "default", manifest, event.Meta{})
	require.NoError(t, err)
	return c
}

// ready makes n tasks that wait for admission.
func (c *cluster) ready(t *testing.T, n int) {
	t.Helper()
	triggers := make([]engine.Trigger, n)
	for i := range triggers {
		triggers[i] = engine.Trigger{Tenant: c.tenant}
	}
	_, errs := c.engine.TriggerRuns(t.Context(), triggers)
	for _, err := range errs {
		require.NoError(t, err)
	}
}

func (c *cluster) queued(t *testing.T) int {
	t.Helper()
	return c.db.Count(t, `SELECT count(*) FROM servo.pool_q`)
}

// until waits until a query counts n.
func (c *cluster) until(t *testing.T, n int, query string) {
	t.Helper()
	for c.db.Count(t, query) != n {
		require.NoError(t, t.Context().Err())
	}
}

// server is one server's admission, of which a test makes each look.
func (c *cluster) server(t *testing.T, name string) *admitter {
	t.Helper()
	e := engine.New(c.db.Store, engine.Config{QueueWithoutWorkers: 5000}, nil)
	t.Cleanup(e.Stop)
	return newAdmitter(c.db.Store, e, Config{Holder: name, Batch: 2})
}

// look renews the duty, or tries to take it, and works under it.
func (a *admitter) look(t *testing.T) (more bool) {
	t.Helper()
	_, err := a.keeper.runOnce(t.Context())
	require.NoError(t, err)
	return a.work(t)
}

func (a *admitter) work(t *testing.T) (more bool) {
	t.Helper()
	more, err := a.runOnce(t.Context())
	require.NoError(t, err, "that another server admits is no error")
	return more
}

func TestAdmission(t *testing.T) {
	t.Parallel()
	noon := time.Date(2026, 11, 15, 12, 0, 0, 0, time.UTC)

	t.Run("of two servers one admits, in batches, and asks for more while there is more", func(t *testing.T) {
		t.Parallel()
		c := setup(t)
		c.ready(t, 5)
		a, b := c.server(t, "a"), c.server(t, "b")
		require.True(t, a.look(t))
		require.False(t, b.look(t))
		require.Equal(t, 2, c.queued(t))
		require.True(t, a.look(t))
		require.False(t, a.look(t))
		require.Equal(t, 5, c.queued(t))
		require.EqualValues(t, 1, a.duty.Epoch)
		require.Zero(t, b.duty, "the other holds nothing that it could act upon")
		verifytest.Clean(t, c.db)
	})

	t.Run("a holder that crashes is replaced when its duty expires, in a higher epoch", func(t *testing.T) {
		t.Parallel()
		c := setup(t)
		c.db.SetClock(t, noon)
		c.ready(t, 4)
		a, b := c.server(t, "a"), c.server(t, "b")
		a.look(t) // and it does not report any more
		c.db.SetClock(t, noon.Add(takeover-time.Millisecond))
		b.look(t)
		require.Equal(t, 2, c.queued(t), "it may still live")
		c.db.SetClock(t, noon.Add(takeover))
		b.look(t)
		require.Equal(t, 4, c.queued(t))
		require.Greater(t, b.duty.Epoch, a.duty.Epoch)
	})

	t.Run("a holder that was replaced without noticing admits nothing, and learns of it", func(t *testing.T) {
		t.Parallel()
		c := setup(t)
		c.db.SetClock(t, noon)
		a, b := c.server(t, "a"), c.server(t, "b")
		a.look(t)
		c.db.SetClock(t, noon.Add(time.Minute)) // while a was stopped
		b.look(t)
		c.ready(t, 3)
		_, _, err := a.engine.Admit(t.Context(), a.duty, 10)
		require.ErrorIs(t, err, store.ErrDutyLost)
		require.False(t, a.work(t), "as far as it knows, the duty is its own")
		require.Zero(t, c.queued(t))
		a.look(t)
		require.Zero(t, a.duty)
		require.Zero(t, c.queued(t))
		b.look(t)
		require.Equal(t, 2, c.queued(t))
		verifytest.Clean(t, c.db)
	})

	t.Run("a holder renews its duty for as long as it lives", func(t *testing.T) {
		t.Parallel()
		c := setup(t)
		c.db.SetClock(t, noon)
		a, b := c.server(t, "a"), c.server(t, "b")
		for i := range 5 {
			c.db.SetClock(t, noon.Add(time.Duration(i)*takeover/2))
			a.look(t)
			b.look(t)
		}
		require.EqualValues(t, 1, a.duty.Epoch)
	})

	t.Run("work that takes longer than the duty lasts does not lose it", func(t *testing.T) {
		t.Parallel()
		c := setup(t)
		c.db.SetClock(t, noon)
		a, b := c.server(t, "a"), c.server(t, "b")
		a.look(t)
		require.NoError(t, c.db.Engine(t.Context(), func(ctx context.Context, tx *store.Tx) error {
			require.NoError(t, tx.HoldDuty(ctx, a.duty)) // a round of admission that does not end
			for i := range 5 {
				c.db.SetClock(t, noon.Add(time.Duration(i)*takeover/2))
				_, err := a.keeper.runOnce(ctx)
				require.NoError(t, err, "a renewal does not wait for the work")
				_, err = b.keeper.runOnce(ctx)
				require.NoError(t, err)
			}
			return nil
		}))
		require.EqualValues(t, 1, a.keeper.held().Epoch)
		require.Zero(t, b.keeper.held())
		c.ready(t, 1)
		a.work(t)
		require.Equal(t, 1, c.queued(t))
	})

	t.Run("a server that stops gives the duty back, and the next takes it at once", func(t *testing.T) {
		t.Parallel()
		c := setup(t)
		first := Start(c.db.Store, c.engine, Config{Holder: "first"})
		c.ready(t, 3)
		c.until(t, 3, `SELECT count(*) FROM servo.pool_q`)
		require.NoError(t, first.Stop(t.Context()))
		next := c.server(t, "next")
		next.look(t)
		require.EqualValues(t, 2, next.duty.Epoch)
		c.ready(t, 1)
		next.look(t)
		require.Equal(t, 4, c.queued(t))
	})

	t.Run("a server that never held the duty has nothing to give back", func(t *testing.T) {
		t.Parallel()
		c := setup(t)
		a := c.server(t, "a")
		a.look(t)
		second := Start(c.db.Store, c.engine, Config{Holder: "second"})
		require.NoError(t, second.Stop(t.Context()))
		a.look(t)
		require.EqualValues(t, 1, a.duty.Epoch, "the duty is still a's")
	})

	t.Run("two running servers queue every task once, also when one takes over from the other", func(t *testing.T) {
		t.Parallel()
		c := setup(t)
		var servers []*Admission
		for _, name := range []string{"a", "b"} {
			e := engine.New(c.db.Store, engine.Config{QueueWithoutWorkers: 5000}, nil)
			t.Cleanup(e.Stop)
			servers = append(servers, Start(c.db.Store, e, Config{Holder: name, Batch: 7}))
		}
		c.ready(t, 200)
		c.until(t, 200, `SELECT count(*) FROM servo.pool_q`)
		require.NoError(t, servers[0].Stop(t.Context()))
		c.ready(t, 100)
		c.until(t, 300, `SELECT count(*) FROM servo.pool_q`)
		require.NoError(t, servers[1].Stop(context.WithoutCancel(t.Context())))
		require.Equal(t, 300, c.db.Count(t, `SELECT count(*) FROM servo.run_events WHERE type = 'task.queued'`))
		verifytest.Clean(t, c.db)
	})

	t.Run("admission stops when enough is queued, by priority and then by age", func(t *testing.T) {
		t.Parallel()
		c := setup(t)
		e := engine.New(c.db.Store, engine.Config{QueueTarget: 3}, nil)
		t.Cleanup(e.Stop)
		a := newAdmitter(c.db.Store, e, Config{Holder: "a", Batch: 10})
		c.ready(t, 3)
		urgent, err := c.engine.TriggerRun(t.Context(), engine.Trigger{Tenant: c.tenant, Priority: 10})
		require.NoError(t, err)
		c.ready(t, 3)
		require.False(t, a.look(t))
		require.Equal(t, 3, c.queued(t))
		require.Equal(t, 1, c.db.Count(t, `SELECT count(*) FROM servo.pool_q WHERE run_id = $1`, urgent.Run.UUID))
		require.Equal(t, 1, c.db.Count(t, `SELECT count(*) FROM servo.pool_q q WHERE priority < 10
			AND since > (SELECT max(created_at) FROM servo.runs) - interval '1 hour' AND run_id = (SELECT min(id::text)::uuid FROM servo.runs)`))
		a.look(t)
		require.Equal(t, 3, c.queued(t), "until a worker claims")
	})
}
