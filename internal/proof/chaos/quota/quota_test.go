package quota

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"go.arco.dev/servo/internal/base/event"
	"go.arco.dev/servo/internal/base/id"
	"go.arco.dev/servo/internal/devkit/servotest"
	"go.arco.dev/servo/internal/devkit/servotest/lives"
	"go.arco.dev/servo/internal/devkit/servotest/verifytest"
	"go.arco.dev/servo/internal/domain/asset"
	"go.arco.dev/servo/internal/domain/tenant"
	"go.arco.dev/servo/internal/engine"
	"go.arco.dev/servo/internal/loops/admission"
	"go.arco.dev/servo/internal/loops/reaper"
	"go.arco.dev/servo/internal/store"
)

const (
	replicas = 8
	limit    = 100
)

// The long form kills more than thirty servers, one whenever 300 tasks have ended.
var (
	tasks   = servotest.Size(3_000, 10_000)
	between = servotest.Size(150, 300)
)

// serverVariable turns the test binary into a server; its value is a serverConfig.
const serverVariable = "SERVO_QUOTA_SERVER"

func TestMain(m *testing.M) {
	if text := os.Getenv(serverVariable); text != "" {
		os.Exit(lives.Play(text, serve))
	}
	os.Exit(m.Run())
}

// serverConfig is the configuration of a server process.
type serverConfig struct {
	Name     string
	Database string
}

// serve is the life of a server: the engine with its loops, and two workers that claim as much
// as they get.
func serve(ctx context.Context, config serverConfig, ready func()) error {
	db, err := store.Open(ctx, store.Options{URL: config.Database, MaxConns: 6})
	if err != nil {
		return err
	}
	defer db.Close()
	e := engine.New(db, engine.Config{Lease: 2 * time.Second, HeartbeatTimeout: 2 * time.Second, PollEvery: 100 * time.Millisecond}, nil)
	defer e.Stop()
	admit := admission.Start(db, e, admission.Config{Holder: config.Name})
	reap := reaper.Start(db, e, reaper.Config{})
	ready()
	var busy sync.WaitGroup
	for i := range 2 {
		busy.Go(func() { work(ctx, e, fmt.Sprintf("%s-%d", config.Name, i)) })
	}
	busy.Wait()
	reap.Stop()
	return admit.Stop(context.WithoutCancel(ctx))
}

// work claims, holds what it got for a moment, and ends it: most of it well, some in failure.
func work(ctx context.Context, e *engine.Engine, name string) {
	for ctx.Err() == nil {
		leases, err := e.Claim(ctx, engine.ClaimRequest{
			Worker: name, Claim: id.Of[id.Claim](uuid.New()), Pools: []string{asset.DefaultPool}, Max: 10, Slots: 20, Wait: time.Second, Start: true,
		})
		if err != nil || len(leases) == 0 {
			continue
		}
		select {
		case <-time.After(time.Duration(rand.IntN(20)) * time.Millisecond):
		case <-ctx.Done():
		}
		reports := make([]engine.Report, len(leases))
		for i, l := range leases {
			reports[i] = engine.Report{TaskKey: l.TaskKey, Token: l.Token, Action: engine.Complete{}}
			if rand.IntN(20) == 0 {
				reports[i].Action = engine.Yield{}
			}
		}
		_, _ = e.Report(ctx, reports) // what is not accepted comes back when its lease expires
	}
}

// countSQL makes the database count each time that tasks are queued, in the transaction that
// queues them: no task can slip between two counts.
const countSQL = `
	CREATE TABLE public.seen (at timestamptz DEFAULT clock_timestamp(), n integer);
	CREATE FUNCTION public.count_in_flight() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
	BEGIN
		INSERT INTO public.seen (n)
		SELECT (SELECT count(*) FROM servo.pool_q q WHERE q.tenant_id = t.tenant_id) + (SELECT count(*) FROM servo.leases l WHERE l.tenant_id = t.tenant_id)
		FROM   (SELECT DISTINCT tenant_id FROM queued) AS t;
		RETURN NULL;
	END
	$$;
	CREATE TRIGGER count_in_flight AFTER INSERT ON servo.pool_q REFERENCING NEW TABLE AS queued
		FOR EACH STATEMENT EXECUTE FUNCTION public.count_in_flight();`

// TestQuotaRace: a limit of 100, never 101, whichever server is killed and when.
func TestQuotaRace(t *testing.T) {
	t.Parallel()
	db := servotest.DB(t)
	prepare(t, db)
	db.Exec(t, countSQL)
	cast := lives.New(replicas, serverVariable, func(name string) any { return serverConfig{Name: name, Database: db.URL} })
	t.Cleanup(cast.End)
	for i := range replicas {
		require.NoError(t, cast.Start(t.Context(), i))
	}
	takeovers, longest := torment(t, cast, db)

	require.Equal(t, tasks, db.Count(t, `SELECT count(*) FROM servo.runs WHERE state = 10`), "nothing is lost")
	require.Zero(t, db.Count(t, `SELECT count(*) FROM public.seen WHERE n > $1`, limit), "never 101")
	require.Positive(t, db.Count(t, `SELECT count(*) FROM public.seen WHERE n = $1`, limit), "the limit was reached, else nothing was shown")
	require.Positive(t, takeovers, "the duty changed hands")
	cast.End()
	verifytest.Clean(t, db)
	t.Logf("%d looks of the database, %d kills, %d takeovers of admission, the longest after %v",
		db.Count(t, `SELECT count(*) FROM public.seen`), cast.Kills, takeovers, longest.Round(time.Millisecond))
}

// prepare makes a tenant with its quota and all of its tasks.
func prepare(t *testing.T, db *servotest.Database) {
	t.Helper()
	quotas := tenant.NoLimits()
	quotas.MaxConcurrentTasks = limit
	e := engine.New(db.Store, engine.Config{Quotas: quotas}, nil)
	defer e.Stop()
	owner, err := e.CreateTenant(t.Context(), "acme", event.Meta{})
	require.NoError(t, err)
	manifest, err := asset.Parse([]byte(`{version: 1, assets: [{key: s/one, go: {}, retry: {max_attempts: 50, max_deaths: 100, initial_delay: 100ms, max_delay: 100ms}}]}`), "servo.yaml")
	require.NoError(t, err)
	_, err = e.Deploy(t.Context(), owner, "default", manifest, event.Meta{})
	require.NoError(t, err)
	for range tasks / 500 {
		triggers := make([]engine.Trigger, 500)
		for i := range triggers {
			triggers[i] = engine.Trigger{Tenant: owner}
		}
		_, errs := e.TriggerRuns(t.Context(), triggers)
		for _, err := range errs {
			require.NoError(t, err)
		}
	}
}

// torment kills servers, every second time the one that admits, until all tasks are done.
func torment(t *testing.T, cast *lives.Cast, db *servotest.Database) (takeovers int, longest time.Duration) {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), db.URL)
	require.NoError(t, err)
	defer func() { _ = conn.Close(context.WithoutCancel(t.Context())) }()
	for left := tasks; left > 0; {
		require.NoError(t, t.Context().Err())
		now := db.Count(t, `SELECT count(*) FROM servo.live_runs`)
		if now > 0 && now > left-between {
			pause(t.Context())
			continue
		}
		left = now
		var holder string
		var epoch int64
		require.NoError(t, conn.QueryRow(t.Context(), `SELECT holder, epoch FROM servo.duties WHERE name = 'admission'`).Scan(&holder, &epoch))
		victim := rand.IntN(replicas)
		if cast.Kills%2 == 0 {
			for place := range cast.Places() {
				if cast.Name(place) == holder {
					victim = place
				}
			}
		}
		wasHolder := cast.Name(victim) == holder
		cast.Kill(victim)
		killed := time.Now()
		require.NoError(t, cast.Start(t.Context(), victim))
		if wasHolder && db.Count(t, `SELECT count(*) FROM servo.live_runs`) > 0 {
			for db.Count(t, `SELECT count(*) FROM servo.duties WHERE name = 'admission' AND epoch > $1`, epoch) == 0 {
				require.NoError(t, t.Context().Err())
				pause(t.Context())
			}
			takeovers++
			longest = max(longest, time.Since(killed))
		}
	}
	return takeovers, longest
}

// pause lets the servers run for a moment.
func pause(ctx context.Context) {
	select {
	case <-time.After(50 * time.Millisecond):
	case <-ctx.Done():
	}
}
