package reaper_test

import (
	"bytes"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"go.arco.dev/servo/internal/base/event"
	"go.arco.dev/servo/internal/base/id"
	"go.arco.dev/servo/internal/devkit/servotest"
	"go.arco.dev/servo/internal/devkit/servotest/verifytest"
	"go.arco.dev/servo/internal/domain/asset"
	"go.arco.dev/servo/internal/domain/run"
	"go.arco.dev/servo/internal/domain/tenant"
	"go.arco.dev/servo/internal/engine"
	"go.arco.dev/servo/internal/loops/reaper"
	"go.arco.dev/servo/internal/store"
)

// server is an engine with one tenant.
type server struct {
	*engine.Engine

	db     *servotest.Database
	tenant id.Tenant
	duty   store.Duty
}

func setup(t *testing.T, manifest string) *server {
	t.Helper()
	s := &server{db: servotest.DB(t)}
	s.Engine = engine.New(s.db.Store, engine.Config{Quotas: tenant.NoLimits(), QueueWithoutWorkers: 5000}, nil)
	t.Cleanup(s.Stop)
	var err error
	s.tenant, err = s.CreateTenant(t.Context(), "acme", event.Meta{})
	require.NoError(t, err)
	parsed, err := asset.Parse([]byte(manifest), "servo.yaml")
	require.NoError(t, err)
	_, err = s.Deploy(t.Context(), s.tenant, "default", parsed, event.Meta{})
	require.NoError(t, err)
	s.duty, err = s.db.TakeDuty(t.Context(), "admission", "test", time.Hour)
	require.NoError(t, err)
	return s
}

const one = `{version: 1, assets: [{key: s/one, go: {}}]}`

// claim triggers, admits and claims n runs of everything.
func (s *server) claim(t *testing.T, n int, start bool) []engine.Lease {
	t.Helper()
	for range n {
		_, err := s.TriggerRun(t.Context(), engine.Trigger{Tenant: s.tenant})
		require.NoError(t, err)
	}
	_, _, err := s.Admit(t.Context(), s.duty, 1000)
	require.NoError(t, err)
	leases, err := s.Claim(t.Context(), engine.ClaimRequest{
		Worker: "w", Claim: id.Of[id.Claim](uuid.New()), Pools: []string{"default"}, Max: n, Start: start,
	})
	require.NoError(t, err)
	require.Len(t, leases, n)
	return leases
}

// until waits until a query counts n.
func (s *server) until(t *testing.T, n int, query string) {
	t.Helper()
	for s.db.Count(t, query) != n {
		require.NoError(t, t.Context().Err())
	}
}

// journal is a log that can be read while it is written.
type journal struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (j *journal) Write(p []byte) (int, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.text.Write(p)
}

func (j *journal) has(text string) bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	return strings.Contains(j.text.String(), text)
}

func TestReaper(t *testing.T) {
	t.Parallel()

	t.Run("leases expire, more than fit into a batch, and a death is retried at once", func(t *testing.T) {
		t.Parallel()
		s := setup(t, one)
		s.claim(t, 5, true)
		s.claim(t, 5, false)
		s.db.Exec(t, `UPDATE servo.leases SET expires_at = '2000-01-01', due_at = '2000-01-01'`)
		r := reaper.Start(s.db.Store, s.Engine, reaper.Config{Batch: 2})
		t.Cleanup(r.Stop)
		s.until(t, 5, `SELECT count(*) FROM servo.ready_q WHERE deaths = 1 AND failures = 0`)
		s.until(t, 5, `SELECT count(*) FROM servo.pool_q WHERE deaths = 0`)
		verifytest.Clean(t, s.db)
		verifytest.Clean(t, s.db)
	})

	t.Run("runs past their limit are timed out, more than fit into a batch", func(t *testing.T) {
		t.Parallel()
		s := setup(t, `{version: 1, assets: [{key: s/one, go: {}}], pipelines: [{name: slow, overlap: allow, max_execution: 1h}, {name: endless, overlap: allow}]}`)
		now := time.Now()
		s.db.SetClock(t, now)
		for range 5 {
			_, err := s.TriggerRun(t.Context(), engine.Trigger{Tenant: s.tenant, Pipeline: "slow"})
			require.NoError(t, err)
		}
		_, err := s.TriggerRun(t.Context(), engine.Trigger{Tenant: s.tenant, Pipeline: "endless"})
		require.NoError(t, err)
		s.db.SetClock(t, now.Add(time.Hour))
		r := reaper.Start(s.db.Store, s.Engine, reaper.Config{Batch: 2})
		t.Cleanup(r.Stop)
		s.until(t, 5, `SELECT count(*) FROM servo.runs WHERE state = 12 AND timed_out AND cancel_reason LIKE '%max_execution of 1h0m0s'`)
		require.Equal(t, 1, s.db.Count(t, `SELECT count(*) FROM servo.live_runs`))
	})

	t.Run("rows that are not due stay unchanged", func(t *testing.T) {
		t.Parallel()
		s := setup(t, one)
		s.claim(t, 3, true)
		s.db.Exec(t, `UPDATE servo.leases SET expires_at = '2000-01-01', due_at = '2000-01-01' WHERE token = (SELECT min(token) FROM servo.leases)`)
		r := reaper.Start(s.db.Store, s.Engine, reaper.Config{})
		s.until(t, 1, `SELECT count(*) FROM servo.ready_q`)
		r.Stop()
		require.Equal(t, 2, s.db.Count(t, `SELECT count(*) FROM servo.leases`))
	})

	t.Run("a cone that a crash cut off is finished", func(t *testing.T) {
		t.Parallel()
		var manifest strings.Builder
		manifest.WriteString("version: 1\nassets:\n  - {key: n/root, go: {}}\n")
		for i := range 1200 {
			fmt.Fprintf(&manifest, "  - {key: n/%d, go: {}, upstream: [n/root]}\n", i)
		}
		s := setup(t, manifest.String())
		lease := s.claim(t, 1, true)[0]
		_, err := s.ReportOne(t.Context(), engine.Report{
			TaskKey: lease.TaskKey, Token: lease.Token, Action: engine.Fail{Failure: run.Failure{Code: "DATA_CORRUPTION"}},
		})
		require.NoError(t, err)
		require.Equal(t, 200, s.db.Count(t, `SELECT count(*) FROM servo.waiting`))
		other := engine.New(s.db.Store, engine.Config{}, nil) // has received no signal
		t.Cleanup(other.Stop)
		r := reaper.Start(s.db.Store, other, reaper.Config{})
		t.Cleanup(r.Stop)
		s.until(t, 1, `SELECT count(*) FROM servo.runs WHERE state = 11 AND skipped = 1200`)
		s.until(t, 0, `SELECT count(*) FROM servo.cones`)
		verifytest.Clean(t, s.db)
	})

	t.Run("several reapers do everything once", func(t *testing.T) {
		t.Parallel()
		s := setup(t, one)
		s.claim(t, 60, true)
		s.db.Exec(t, `UPDATE servo.leases SET deadline = '2000-01-01', due_at = '2000-01-01'`)
		for range 3 {
			e := engine.New(s.db.Store, engine.Config{}, nil)
			t.Cleanup(e.Stop)
			r := reaper.Start(s.db.Store, e, reaper.Config{Batch: 5})
			t.Cleanup(r.Stop)
		}
		s.until(t, 60, `SELECT count(*) FROM servo.retry_q WHERE failures = 1`)
		s.db.Exec(t, `UPDATE servo.retry_q SET due_at = '2000-01-01'`)
		s.until(t, 60, `SELECT count(*) FROM servo.ready_q WHERE failures = 1`)
		require.Equal(t, 60, s.db.Count(t, `SELECT count(*) FROM servo.run_events WHERE type = 'task.retrying'`))
		require.Equal(t, 60, s.db.Count(t, `SELECT count(*) FROM servo.run_events WHERE type = 'task.readied'`))
		verifytest.Clean(t, s.db)
	})

	t.Run("what only repeats needed is forgotten, and partitions are made ahead", func(t *testing.T) {
		t.Parallel()
		s := setup(t, one)
		_, err := s.TriggerRun(t.Context(), engine.Trigger{Tenant: s.tenant, IdempotencyKey: "old"})
		require.NoError(t, err)
		s.db.Exec(t, `UPDATE servo.idempotency_keys SET created_at = '2000-01-01'`)
		_, err = s.TriggerRun(t.Context(), engine.Trigger{Tenant: s.tenant, IdempotencyKey: "new"})
		require.NoError(t, err)
		s.db.Exec(t, `INSERT INTO servo.answered_calls SELECT gen_random_uuid(), 'old', '', sha256(''), '', '2000-01-01' FROM generate_series(1, 2500)`)
		s.db.Exec(t, `INSERT INTO servo.run_hours SELECT gen_random_uuid(), '2000-01-01', 1, 0, 0, 0, 0, 0, 0, 0 FROM generate_series(1, 2500)`)
		r := reaper.Start(s.db.Store, s.Engine, reaper.Config{})
		t.Cleanup(r.Stop)
		s.until(t, 0, `SELECT count(*) FROM servo.idempotency_keys WHERE key = 'old'`)
		require.Equal(t, 1, s.db.Count(t, `SELECT count(*) FROM servo.idempotency_keys`))
		s.until(t, 0, `SELECT count(*) FROM servo.answered_calls`)
		s.until(t, 0, `SELECT count(*) FROM servo.run_hours WHERE hour < '2001-01-01'`)
	})
}

func TestReaperSurvives(t *testing.T) {
	t.Parallel()

	t.Run("a database that goes away and comes back does not end it", func(t *testing.T) {
		t.Parallel()
		s := setup(t, one)
		s.claim(t, 3, true)
		proxy := servotest.Proxy(t, s.db.URL)
		shaky, err := store.Open(t.Context(), store.Options{URL: proxy.URL, MaxConns: 4})
		require.NoError(t, err)
		t.Cleanup(shaky.Close)
		e := engine.New(shaky, engine.Config{}, nil)
		t.Cleanup(e.Stop)
		proxy.Refuse(true)
		proxy.CutAll()
		log := &journal{}
		r := reaper.Start(shaky, e, reaper.Config{Logger: slog.New(slog.NewTextHandler(log, nil))})
		t.Cleanup(r.Stop)
		for !log.has("loop=reaper") || !log.has("loop=tidy") {
			require.NoError(t, t.Context().Err())
		}
		s.db.Exec(t, `UPDATE servo.leases SET expires_at = '2000-01-01', due_at = '2000-01-01'`)
		proxy.Refuse(false)
		s.until(t, 3, `SELECT count(*) FROM servo.ready_q`)
		verifytest.Clean(t, s.db)
	})

	t.Run("what fails in one of its duties does not hold up the others", func(t *testing.T) {
		t.Parallel()
		s := setup(t, one)
		leases := s.claim(t, 2, true)
		_, err := s.ReportOne(t.Context(), engine.Report{
			TaskKey: leases[0].TaskKey, Token: leases[0].Token, Action: engine.Fail{Failure: run.Failure{Code: "NETWORK_ERROR"}},
		})
		require.NoError(t, err)
		// a lease that cannot be ended: the wide row of its task states that it has
		s.db.Exec(t, `UPDATE servo.tasks SET state = 10, outcome = 'SUCCESS', finished_at = servo.clock(), version = 1, attempt = 1,
			failures = 0, fan_outs = 0, token = 1 WHERE id IN (SELECT task_id FROM servo.leases)`)
		s.db.Exec(t, `UPDATE servo.leases SET expires_at = '2000-01-01', due_at = '2000-01-01', failures = 9, deaths = 9`)
		s.db.Exec(t, `UPDATE servo.retry_q SET due_at = '2000-01-01'`)
		e := engine.New(s.db.Store, engine.Config{}, nil)
		t.Cleanup(e.Stop)
		log := &journal{}
		r := reaper.Start(s.db.Store, e, reaper.Config{Logger: slog.New(slog.NewTextHandler(log, nil))})
		t.Cleanup(r.Stop)
		for !log.has("loop=reaper") {
			require.NoError(t, t.Context().Err())
		}
		s.until(t, 1, `SELECT count(*) FROM servo.ready_q`)
	})
}
