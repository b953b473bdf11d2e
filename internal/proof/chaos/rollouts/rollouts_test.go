package rollouts

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"go.arco.dev/servo/internal/base/event"
	"go.arco.dev/servo/internal/base/id"
	"go.arco.dev/servo/internal/devkit/servotest"
	"go.arco.dev/servo/internal/devkit/servotest/lives"
	"go.arco.dev/servo/internal/devkit/servotest/verifytest"
	"go.arco.dev/servo/internal/domain/asset"
	"go.arco.dev/servo/internal/domain/release"
	"go.arco.dev/servo/internal/domain/tenant"
	"go.arco.dev/servo/internal/engine"
	"go.arco.dev/servo/internal/store"
)

const (
	channel = "stable"
	tenants = 20
)

// step is a write of a rollout at which the server is killed. The number is the key of an advisory lock.
type step int

const (
	starts step = iota + 1
	advances
	pauses
	resumes
	completes
	rollsBack
	merges // ends of runs into totals
	steps  = int(merges)
)

func (s step) String() string {
	return [...]string{"", "start", "advance", "pause", "resume", "complete", "roll back", "merge"}[s]
}

// stopSQL makes each step wait while the test holds the lock of that step: the server is then in the middle of
// its transaction.
const stopSQL = `
	CREATE FUNCTION public.stop_at() RETURNS trigger LANGUAGE plpgsql AS $$
	DECLARE was jsonb; next jsonb; step int;
	BEGIN
		IF TG_TABLE_NAME = 'release_totals' THEN
			PERFORM pg_advisory_xact_lock_shared(18, 7);
			RETURN NULL;
		END IF;
		was = coalesce(nullif(OLD.rollout, ''), '{}')::jsonb;
		next = coalesce(nullif(NEW.rollout, ''), '{}')::jsonb;
		step = CASE
			WHEN was ->> 'id' IS DISTINCT FROM next ->> 'id' THEN 1
			WHEN next ->> 'state' = 'COMPLETED' THEN 5
			WHEN next ->> 'state' = 'ROLLED_BACK' THEN 6
			WHEN next ->> 'state' = 'PAUSED' THEN 3
			WHEN was ->> 'wave' IS DISTINCT FROM next ->> 'wave' THEN 2
			ELSE 4 END;
		PERFORM pg_advisory_xact_lock_shared(18, step);
		RETURN NEW;
	END $$;
	CREATE TRIGGER stop_at BEFORE UPDATE ON servo.release_channels FOR EACH ROW WHEN (NEW.name = 'stable') EXECUTE FUNCTION public.stop_at();
	CREATE TRIGGER stop_at BEFORE INSERT ON servo.release_totals FOR EACH STATEMENT EXECUTE FUNCTION public.stop_at();
	GRANT USAGE ON SCHEMA public TO PUBLIC;`

// serverVariable turns the test binary into a server; its value is a serverConfig.
const serverVariable = "SERVO_ROLLOUTS_SERVER"

func TestMain(m *testing.M) {
	if text := os.Getenv(serverVariable); text != "" {
		os.Exit(lives.Play(text, serve))
	}
	os.Exit(m.Run())
}

// kill is one death of the server.
type kill struct {
	at        step
	committed bool // the step is committed by then
}

// schedule is an order of kills: each step before and after its commit, again and again.
func schedule(seed uint64, kills int) []kill {
	r := rand.New(rand.NewPCG(seed, 18)) //nolint:gosec // an order
	var all []kill
	for len(all) < kills {
		for _, i := range r.Perm(2 * steps) {
			all = append(all, kill{at: step(i/2 + 1), committed: i%2 == 1})
		}
	}
	return all[:kills]
}

func TestRollouts(t *testing.T) {
	t.Parallel()
	seed := uint64(time.Now().UnixNano()) //nolint:gosec // any number
	if text := os.Getenv("SERVO_CHAOS_SEED"); text != "" {
		var err error
		seed, err = strconv.ParseUint(text, 10, 64)
		require.NoError(t, err)
	}
	t.Logf("SERVO_CHAOS_SEED=%d", seed)
	w := prepare(t)
	target := step(0)
	cast := lives.New(1, serverVariable, func(string) any { return serverConfig{Database: w.db.URL, Target: target} })
	t.Cleanup(cast.End)
	for i, k := range schedule(seed, servotest.Size(2*steps, 42)) {
		target = k.at
		w.die(t, cast, k)
		w.requireLegal(t)
		t.Logf("kill %d: %s, committed: %t", i+1, k.at, k.committed)
	}
	target = 0
	require.NoError(t, cast.Start(t.Context(), 0))
	w.finish(t, cast)
}

// world is the database, seen by the test.
type world struct {
	db   *servotest.Database
	lock *pgx.Conn // holds the lock of a step
}

func prepare(t *testing.T) *world {
	t.Helper()
	w := &world{db: servotest.DB(t)}
	w.lock = w.db.Connect(t)
	e := engine.New(w.db.Store, engine.Config{Quotas: tenant.NoLimits()}, nil)
	defer e.Stop()
	meta := event.Meta{Actor: "test"}
	for _, name := range []string{"good-1", "good-2", "bad"} {
		parsed, err := asset.Parse(fmt.Appendf(nil, `{version: 1, assets: [
			{key: s/one, exec: {command: [%[1]s]}, retry: {max_attempts: 1}}, {key: s/two, exec: {command: [%[1]s]}, upstream: [s/one], retry: {max_attempts: 1}}],
			pipelines: [{name: pair, overlap: allow, select: ["s/*"]}]}`, name), "servo.yaml")
		require.NoError(t, err)
		_, _, err = e.CreateRelease(t.Context(), engine.CreateRelease{Name: name, Manifest: parsed, Meta: meta})
		require.NoError(t, err)
		// A channel keeps the totals of its release.
		_, err = e.CreateReleaseChannel(t.Context(), "keeps-"+name, name, false, meta)
		require.NoError(t, err)
	}
	_, err := e.CreateReleaseChannel(t.Context(), channel, "good-1", true, meta)
	require.NoError(t, err)
	for i := range tenants {
		_, err := e.CreateTenant(t.Context(), fmt.Sprintf("tenant-%d", i), meta)
		require.NoError(t, err)
	}
	w.db.Exec(t, stopSQL)
	return w
}

// channel reads the channel as any server does.
func (w *world) channel(t *testing.T) store.ReleaseChannel {
	t.Helper()
	channels, err := w.db.ReleaseChannels(t.Context())
	require.NoError(t, err)
	for _, c := range channels {
		if c.Name == channel {
			return c
		}
	}
	require.Fail(t, "no channel")
	return store.ReleaseChannel{}
}

// die starts a server that works towards a step, and kills it there.
func (w *world) die(t *testing.T, cast *lives.Cast, k kill) {
	t.Helper()
	if !k.committed {
		_, err := w.lock.Exec(t.Context(), `SELECT pg_advisory_lock(18, $1)`, int(k.at))
		require.NoError(t, err)
	}
	before, merged := w.channel(t), w.merged(t)
	require.NoError(t, cast.Start(t.Context(), 0))
	seen := before.Version
	for {
		require.NoError(t, t.Context().Err())
		if !k.committed {
			if w.waits(t, k.at) {
				break
			}
			continue
		}
		if k.at == merges {
			if w.merged(t) > merged {
				break
			}
			continue
		}
		now, reached := w.since(t, seen, k.at)
		if seen = now; reached {
			break
		}
	}
	last := w.channel(t)
	cast.Kill(0)
	if !k.committed {
		_, err := w.lock.Exec(t.Context(), `SELECT pg_advisory_unlock(18, $1)`, int(k.at))
		require.NoError(t, err)
		for w.waits(t, k.at) {
			require.NoError(t, t.Context().Err())
		}
		if k.at != merges {
			require.Equal(t, last, w.channel(t), "a step that is not committed changes nothing")
		}
	}
}

// waits reports whether a transaction of the server waits for the lock of a step.
func (w *world) waits(t *testing.T, at step) bool {
	t.Helper()
	return w.db.Count(t, `SELECT count(*) FROM pg_locks l WHERE l.locktype = 'advisory' AND l.classid = 18 AND l.objid = $1 AND l.mode = 'ShareLock'
		AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database())`, int(at)) > 0
}

// merged counts the runs in the totals.
func (w *world) merged(t *testing.T) int {
	t.Helper()
	return w.db.Count(t, `SELECT coalesce(sum(runs), 0)::bigint FROM servo.release_totals`)
}

// since reads the events of the channel after a version, and reports whether one of them is the step.
func (w *world) since(t *testing.T, version int32, at step) (now int32, reached bool) {
	t.Helper()
	events, err := w.db.ChannelEvents(t.Context(), channel, 50)
	require.NoError(t, err)
	of := map[event.Type]step{
		release.RolloutStarted{}.EventType(): starts, release.WaveAdvanced{}.EventType(): advances, release.RolloutPaused{}.EventType(): pauses,
		release.RolloutResumed{}.EventType(): resumes, release.RolloutCompleted{}.EventType(): completes, release.RolloutRolledBack{}.EventType(): rollsBack,
	}
	for _, e := range events {
		reached = reached || e.Version > version && of[e.Body.EventType()] == at
	}
	return events[0].Version, reached
}

// requireLegal checks the channel after a death: the state, and which releases its tenants use.
func (w *world) requireLegal(t *testing.T) {
	t.Helper()
	c := w.channel(t)
	r := c.Rollout
	if r == nil {
		return
	}
	require.Less(t, r.Wave, len(r.Waves))
	switch c.State() {
	case release.Rolling, release.Paused, release.RolledBack:
		require.Equal(t, r.From, c.Current)
	case release.Completed:
		require.Equal(t, r.To, c.Current)
	case release.None:
		require.Fail(t, "a rollout has a state")
	}
	require.Equal(t, !c.State().Active(), !r.EndedAt.IsZero())
	ids := w.db.Texts(t, `SELECT id::text FROM servo.tenants`)
	require.Len(t, ids, tenants)
	for _, text := range ids {
		owner, err := id.Parse[id.Tenant]("tenant", text)
		require.NoError(t, err)
		used, err := w.db.ActiveCode(t.Context(), owner, tenant.DefaultWorkspace)
		require.NoError(t, err)
		require.Contains(t, c.Releases(), id.Of[id.Release](used.UUID))
	}
}

// finish lets the last server end the rollout and all runs, and compares everything.
func (w *world) finish(t *testing.T, cast *lives.Cast) {
	t.Helper()
	for w.channel(t).State().Active() || w.db.Count(t, `SELECT count(*) FROM servo.runs WHERE state < 10`)+w.db.Count(t, `SELECT count(*) FROM servo.release_ends`) > 0 {
		require.NoError(t, t.Context().Err())
	}
	cast.End()
	w.requireLegal(t)
	runs := w.db.Count(t, `SELECT count(*) FROM servo.runs`)
	require.Equal(t, runs, w.db.Count(t, `SELECT count(*) FROM servo.runs WHERE released`))
	require.Equal(t, runs, w.merged(t), "each end of a run is counted once")
	require.Zero(t, w.db.Count(t, `SELECT count(*) FROM servo.runs r JOIN servo.tasks k ON k.tenant_id = r.tenant_id AND k.run_id = r.id JOIN servo.releases v ON v.id = r.deployment_id
		WHERE k.result IS NOT NULL AND k.result #>> '{}' <> v.name`), "each task of a run used the release of its run")
	require.Equal(t, 3, w.db.Count(t, `SELECT count(DISTINCT r.deployment_id) FROM servo.runs r`))
	require.Positive(t, w.db.Count(t, `SELECT count(*) FROM servo.tasks WHERE result IS NOT NULL`))
	verifytest.Clean(t, w.db)
	t.Logf("%d runs, %d events of the channel, %d kills", runs, w.channel(t).Version, cast.Kills)
}

// errStopped ends the work of a server whose context is over.
var errStopped = errors.New("stopped")

func pause(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return errStopped
	}
}
