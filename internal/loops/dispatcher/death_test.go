package dispatcher_test

import (
	"context"
	"net/http"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	servov1 "go.arco.dev/servo/gen/servo/v1"
	"go.arco.dev/servo/internal/base/id"
	"go.arco.dev/servo/internal/daemon"
	"go.arco.dev/servo/internal/devkit/servotest"
	"go.arco.dev/servo/internal/domain/platform"
	"go.arco.dev/servo/internal/domain/push"
	"go.arco.dev/servo/internal/domain/tenant"
	"go.arco.dev/servo/internal/engine"
)

func TestDeath(t *testing.T) {
	t.Parallel()

	t.Run("what a server had claimed and not sent when it died is sent by another, as the next attempt", func(t *testing.T) {
		t.Parallel()
		got := make(chan push.Envelope, 10)
		w := begin(t, servotest.DB(t), func(c call) {
			got <- c.Envelope
			c.answer(http.StatusOK, `{"status": "SUCCESS"}`)
		})
		dead := engine.New(w.db.Store, engine.Config{Quotas: tenant.NoLimits()}, nil)
		w.start(t, daemon.Config{})
		w.prepare(t)
		// No dispatcher sends yet: the pool is a pull pool, and the server that dies claims from it.
		run := w.trigger(t, "one")
		var leases []engine.Lease
		require.Eventually(t, func() bool {
			var err error
			leases, err = dead.Claim(t.Context(), engine.ClaimRequest{
				Worker: "push/dead/remote", Claim: id.Of[id.Claim](uuid.New()), Pools: []string{"remote"}, Max: 1, Lease: 2 * time.Second,
			})
			return err == nil && len(leases) == 1
		}, waitLong, waitShort)
		dead.Stop()
		w.makePool(t, nil)
		e := <-got
		require.Equal(t, int32(2), e.Attempt)
		w.reach(t, run, servov1.Run_SUCCEEDED)

		// Had the first envelope been sent after all, its worker could change nothing.
		late := w.sign(t, push.Callback{
			Tenant: leases[0].Tenant, Run: leases[0].Run, Task: leases[0].Task, Attempt: 1, Token: leases[0].Token, Action: push.ActionStatus,
		}, w.signing(t), time.Now().Add(time.Hour))
		status, body := post(t, late, object{"complete": object{"result": 9}})
		require.Equal(t, http.StatusConflict, status, body)
		require.Contains(t, body, `"code":"STALE"`)
		w.clean(t)
	})

	t.Run("a server that stops gives back what has not been answered, and another sends it", func(t *testing.T) {
		t.Parallel()
		got := make(chan push.Envelope, 10)
		w := setup(t, daemon.Config{Name: "a"}, nil, func(c call) {
			got <- c.Envelope
			if c.Attempt == 1 {
				<-c.r.Context().Done()
				return
			}
			c.answer(http.StatusOK, `{"status": "SUCCESS"}`)
		})
		run := w.trigger(t, "one")
		require.Equal(t, int32(1), (<-got).Attempt)
		require.NoError(t, w.server.Stop(context.WithoutCancel(t.Context())))
		w.start(t, daemon.Config{Name: "b"})
		require.Equal(t, int32(2), (<-got).Attempt)
		w.reach(t, run, servov1.Run_SUCCEEDED)
		require.Zero(t, w.task(t, run).GetFailures(), "it was not the task's fault")
		w.clean(t)
	})

	t.Run("a server that stops returns a claim in progress", func(t *testing.T) {
		t.Parallel()
		w := setup(t, daemon.Config{Name: "a"}, nil, func(c call) { <-c.r.Context().Done() })
		conn, err := pgx.Connect(t.Context(), w.db.URL)
		require.NoError(t, err)
		defer func() { require.NoError(t, conn.Close(context.WithoutCancel(t.Context()))) }()
		tx, err := conn.Begin(t.Context())
		require.NoError(t, err)
		_, err = tx.Exec(t.Context(), `LOCK TABLE servo.leases IN SHARE MODE`) // holds back inserts
		require.NoError(t, err)
		run := w.trigger(t, "one")
		require.Eventually(t, func() bool {
			return w.db.Count(t, `SELECT count(*) FROM pg_locks WHERE NOT granted AND relation = 'servo.leases'::regclass`) > 0
		}, waitLong, waitShort, "the claim waits for the lock")
		stopped := make(chan error, 1)
		go func() { stopped <- w.server.Stop(context.WithoutCancel(t.Context())) }()
		require.Eventually(t, func() bool {
			response, err := http.Get("http://" + w.server.HTTPAddr() + "/readyz") //nolint:noctx // a test
			if err != nil {
				return false
			}
			defer func() { _ = response.Body.Close() }()
			return response.StatusCode != http.StatusOK
		}, waitLong, waitShort, "the server is stopping")
		require.NoError(t, tx.Rollback(t.Context()))
		require.NoError(t, <-stopped)
		require.Zero(t, w.db.Count(t, `SELECT count(*) FROM servo.leases`), "leases that are left")
		w.start(t, daemon.Config{Name: "b"})
		require.Zero(t, w.task(t, run).GetFailures(), "it was not the task's fault")
		w.clean(t)
	})

	t.Run("a server that was killed and starts again returns what it had not delivered", func(t *testing.T) {
		t.Parallel()
		got := make(chan push.Envelope, 10)
		w := begin(t, servotest.DB(t), func(c call) {
			got <- c.Envelope
			c.answer(http.StatusOK, `{"status": "SUCCESS"}`)
		})
		killed := engine.New(w.db.Store, engine.Config{Quotas: tenant.NoLimits()}, nil)
		w.start(t, daemon.Config{Name: "a"})
		w.prepare(t)
		run := w.trigger(t, "one")
		require.Eventually(t, func() bool {
			leases, err := killed.Claim(t.Context(), engine.ClaimRequest{
				Worker: "push/b/remote", Claim: id.Of[id.Claim](uuid.New()), Pools: []string{"remote"}, Max: 1, Lease: time.Hour,
			})
			return err == nil && len(leases) == 1
		}, waitLong, waitShort)
		killed.Stop()
		w.makePool(t, nil)
		startOn(t, w, daemon.Config{Name: "b"})
		require.Equal(t, int32(2), (<-got).Attempt)
		w.reach(t, run, servov1.Run_SUCCEEDED)
		require.Zero(t, w.task(t, run).GetFailures(), "it was not the task's fault")
		w.clean(t)
	})

	t.Run("a worker that falls silent is taken for dead, and its task done again", func(t *testing.T) {
		t.Parallel()
		got := make(chan push.Envelope, 10)
		w := setup(t, daemon.Config{Engine: engine.Config{PollEvery: 50 * time.Millisecond, Lease: 2 * time.Second, HeartbeatTimeout: 2 * time.Second}}, nil, func(c call) {
			got <- c.Envelope
			if c.Attempt == 1 {
				c.answer(http.StatusAccepted, "")
				return
			}
			c.answer(http.StatusOK, `{"status": "SUCCESS"}`)
		})
		run := w.trigger(t, "one")
		first := <-got
		require.Equal(t, int32(2), (<-got).Attempt)
		w.reach(t, run, servov1.Run_SUCCEEDED)
		require.Equal(t, "HEARTBEAT_LOST", w.task(t, run).GetAttempts()[0].GetFailure().GetCode())
		_, body := post(t, first.Callbacks.Heartbeat, object{})
		require.Contains(t, body, `"held":false`)
		w.clean(t)
	})

	t.Run("without a key nothing is sent, and a new one resumes it", func(t *testing.T) {
		t.Parallel()
		w := setup(t, daemon.Config{}, nil, func(c call) { c.answer(http.StatusOK, `{"status": "SUCCESS"}`) })
		_, err := w.keysOf.RevokeSigningKey(t.Context(), &servov1.RevokeSigningKeyRequest{Key: w.signing(t).ID})
		require.NoError(t, err)
		run := w.trigger(t, "one")
		require.Eventually(t, func() bool {
			pool, err := w.pools.GetPool(t.Context(), &servov1.GetPoolRequest{Pool: "remote"})
			return err == nil && pool.GetBreaker().GetLastError() != ""
		}, waitLong, waitShort)
		require.Zero(t, w.calls.Load())
		made, err := w.keysOf.CreateSigningKey(t.Context(), &servov1.CreateSigningKeyRequest{Lead: seconds(0)})
		require.NoError(t, err)
		w.give(t, made.GetWorkerKeys()[0].GetKey())
		w.reach(t, run, servov1.Run_SUCCEEDED)
	})

	t.Run("a pool that is deleted is a pull pool again", func(t *testing.T) {
		t.Parallel()
		w := setup(t, daemon.Config{}, &servov1.CreatePoolRequest{MaxConcurrency: new(int32(0))}, func(call) {})
		run := w.trigger(t, "one")
		_, err := w.pools.DeletePool(t.Context(), &servov1.DeletePoolRequest{Pool: "remote"})
		require.NoError(t, err)
		puller := engine.New(w.db.Store, engine.Config{}, nil)
		t.Cleanup(puller.Stop)
		var leases []engine.Lease
		require.Eventually(t, func() bool {
			leases, err = puller.Claim(t.Context(), engine.ClaimRequest{
				Worker: "w1", Claim: id.Of[id.Claim](uuid.New()), Pools: []string{"remote"}, Max: 1, Start: true,
			})
			return err == nil && len(leases) == 1
		}, waitLong, waitShort)
		_, err = puller.ReportOne(t.Context(), engine.Report{TaskKey: leases[0].TaskKey, Token: leases[0].Token, Action: engine.Complete{}})
		require.NoError(t, err)
		w.reach(t, run, servov1.Run_SUCCEEDED)
		require.Zero(t, w.calls.Load())
		require.Equal(t, 2, w.db.Count(t, `SELECT count(*) FROM servo.platform_events WHERE subject = $1`, platform.SubjectOf(platform.KindPool, "remote")))
	})
}
