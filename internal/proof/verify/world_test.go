package verify_test

import (
	"encoding/json"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"go.arco.dev/servo/internal/base/event"
	"go.arco.dev/servo/internal/base/id"
	"go.arco.dev/servo/internal/devkit/servotest"
	"go.arco.dev/servo/internal/domain/asset"
	"go.arco.dev/servo/internal/domain/run"
	"go.arco.dev/servo/internal/domain/tenant"
	"go.arco.dev/servo/internal/engine"
	"go.arco.dev/servo/internal/proof/verify"
	"go.arco.dev/servo/internal/store"
)

// Each kind of asset has a pool of its own, so that a test claims just what it means.
const manifestText = `
version: 1
assets:
  - {key: s/one, exec: {command: [run]}, pool: single, timeout: 60s}
  - {key: d/a, exec: {command: [run]}, pool: diamond, retry: {max_attempts: 3, initial_delay: 1s, multiplier: 1.7, jitter: 0.3}}
  - {key: d/b, exec: {command: [run]}, pool: diamond, upstream: [d/a]}
  - {key: d/c, exec: {command: [run]}, pool: diamond, upstream: [d/a]}
  - {key: d/d, exec: {command: [run]}, pool: diamond, upstream: [d/b, d/c]}
  - {key: f/scan, exec: {command: [run]}, pool: scan}
  - {key: f/fetch, exec: {command: [run]}, pool: fetch}
  - {key: f/join, exec: {command: [run]}, pool: join, upstream: [f/scan]}
pipelines:
  - {name: single, overlap: allow, select: [s/one]}
  - {name: diamond, overlap: allow, select: ["d/*"]}
  - {name: fan, overlap: allow, select: [f/scan, f/join]}
`

// world is a database with an engine and a tenant, with a stopped clock.
type world struct {
	*engine.Engine

	db     *servotest.Database
	tenant id.Tenant
	duty   store.Duty
	now    time.Time
}

func newWorld(t testing.TB) *world {
	t.Helper()
	w := &world{db: servotest.DB(t), now: time.Now().UTC().Truncate(time.Microsecond)}
	w.db.SetClock(t, w.now)
	w.Engine = engine.New(w.db.Store, engine.Config{Quotas: tenant.NoLimits(), QueueWithoutWorkers: 5000}, nil)
	t.Cleanup(w.Stop)
	w.tenant = w.account(t, "acme")
	w.duty = value(w.db.TakeDuty(t.Context(), "admission", "test", 1000*time.Hour))(t)
	return w
}

// value gives the result of a call that may not fail.
func value[T any](v T, err error) func(testing.TB) T {
	return func(t testing.TB) T {
		t.Helper()
		require.NoError(t, err)
		return v
	}
}

func (w *world) account(t testing.TB, name string) id.Tenant {
	t.Helper()
	tenant := value(w.CreateTenant(t.Context(), name, event.Meta{Actor: "test"}))(t)
	w.deploy(t, tenant, manifestText)
	return tenant
}

func (w *world) deploy(t testing.TB, tenant id.Tenant, text string) {
	t.Helper()
	manifest := value(asset.Parse([]byte(text), "servo.yaml"))(t)
	_, err := w.Deploy(t.Context(), tenant, "default", manifest, event.Meta{Actor: "test"})
	require.NoError(t, err)
}

func (w *world) later(t testing.TB, d time.Duration) {
	t.Helper()
	w.now = w.now.Add(d)
	w.db.SetClock(t, w.now)
}

func (w *world) trigger(t testing.TB, pipeline string) store.RunKey {
	t.Helper()
	return w.triggerWith(t, engine.Trigger{Tenant: w.tenant, Pipeline: pipeline})
}

func (w *world) triggerWith(t testing.TB, trigger engine.Trigger) store.RunKey {
	t.Helper()
	triggered := value(w.TriggerRun(t.Context(), trigger))(t)
	return store.RunKey{Tenant: trigger.Tenant, Run: triggered.Run}
}

func (w *world) admit(t testing.TB) {
	t.Helper()
	_, _, err := w.Admit(t.Context(), w.duty, 10_000)
	require.NoError(t, err)
}

// claim admits what is ready and takes up to most tasks of a pool.
func (w *world) claim(t testing.TB, pool string, most int, start bool) []engine.Lease {
	t.Helper()
	w.admit(t)
	return value(w.Claim(t.Context(), engine.ClaimRequest{
		Worker: "worker-1", Claim: id.Of[id.Claim](uuid.New()), Pools: []string{pool}, Max: most, Start: start,
	}))(t)
}

func (w *world) one(t testing.TB, pool string) engine.Lease {
	t.Helper()
	leases := w.claim(t, pool, 1, true)
	require.Len(t, leases, 1, "in pool %s", pool)
	return leases[0]
}

func (w *world) report(t testing.TB, l engine.Lease, a engine.Action) engine.Answer {
	t.Helper()
	return value(w.ReportOne(t.Context(), engine.Report{TaskKey: l.TaskKey, Token: l.Token, Action: a}))(t)
}

func (w *world) cancel(t testing.TB, key store.RunKey, timedOut bool) {
	t.Helper()
	_, err := w.CancelRun(t.Context(), engine.Cancel{Tenant: key.Tenant, Run: key.Run, Reason: "not needed", TimedOut: timedOut})
	require.NoError(t, err)
}

func failure(code string) engine.Fail {
	return engine.Fail{Failure: run.Failure{Code: code, Message: "it <broke>", Details: json.RawMessage(`{"row": 17, "ratio": 1e2}`)}}
}

// rich makes a history with every event and every state in it.
func (w *world) rich(t testing.TB) {
	t.Helper()
	w.ended(t)
	w.cancelled(t)
	w.returned(t)
	w.live(t)
	w.fannedOut(t)
	w.controlled(t)
	w.ready(t)
	w.bounded(t)
	w.scheduled(t)
	w.withdrawn(t)
}

// bounded: a tenant with quotas, of whose runs one has ended, one waited for its start, one
// still waits, and one was cancelled while it did. They hold locks.
func (w *world) bounded(t testing.TB) {
	t.Helper()
	owner := w.account(t, boundedTenant)
	w.deploy(t, owner, manifestText+`  - {name: locked, select: [s/one]}
  - {name: keyed, select: ["d/*"], lock: {key: "'key ' + parameters.key"}, parameters: [{name: key, type: string}], max_execution: 3h}
`)
	quotas := tenant.Quotas{
		MaxConcurrentTasks: 9, MaxQueuedTasks: 99, MaxConcurrentRuns: 1, MaxDailyRuns: 999, MaxRunDuration: 12 * time.Hour,
		MaxTasksPerRun: 100, MaxBackfillRuns: 3, FairnessWeight: 2.5, Zone: "Asia/Tokyo",
	}
	_, err := w.SetQuotas(t.Context(), owner, quotas, 1, event.Meta{Actor: "op"})
	require.NoError(t, err)
	first := w.triggerWith(t, engine.Trigger{Tenant: owner, Pipeline: "locked", TriggeredBy: "jo"})
	keyed := func(key string) store.RunKey {
		return w.triggerWith(t, engine.Trigger{
			Tenant: owner, Pipeline: "keyed", Parameters: json.RawMessage(`{"key": "` + key + `"}`), WaitForQuota: true,
			Meta: event.Meta{Actor: "schedule", Trace: "trace"},
		})
	}
	keyed("starts")
	keyed("waits")
	gone := keyed("is cancelled")
	w.later(t, time.Minute)
	w.cancel(t, gone, false)
	w.cancel(t, first, false)
	require.Equal(t, 1, value(w.StartRuns(t.Context(), w.duty, 10))(t))
}

const boundedTenant = "bounded"

// ended: a success with all that a run can carry, a failure that skips, and its retry.
func (w *world) ended(t testing.TB) {
	t.Helper()
	first := w.triggerWith(t, engine.Trigger{
		Tenant: w.tenant, Pipeline: "single", Priority: 7, TriggerType: "manual", TriggeredBy: "jo",
		IdempotencyKey: "once", Retry: &run.RetryPolicy{MaxAttempts: 2, Multiplier: 99.5}, Meta: event.Meta{Actor: "jo", Trace: "trace"},
	})
	l := w.claim(t, "single", 1, false)[0]
	w.report(t, l, engine.Start{})
	w.report(t, l, engine.Advance{Next: "page 2"})
	w.later(t, time.Second)
	w.report(t, l, engine.Complete{Status: run.PartialSuccess, Result: json.RawMessage(`{"rows": 3, "share": 0.50, "html": "<b>", "none": null}`)})

	key := w.triggerWith(t, engine.Trigger{Tenant: w.tenant, Pipeline: "diamond", Parent: &first.Run})
	w.report(t, w.one(t, "diamond"), engine.Complete{})
	w.report(t, w.one(t, "diamond"), failure("USER_CODE_EXCEPTION"))
	w.report(t, w.one(t, "diamond"), engine.Complete{})

	again := value(w.RetryRun(t.Context(), engine.RetryRun{Tenant: key.Tenant, Run: key.Run, Mode: engine.RetryFailed}))(t)
	require.Equal(t, 2, w.db.Count(t, `SELECT count(*) FROM servo.tasks WHERE run_id = $1 AND inherited IS NOT NULL`, again.Run.UUID))
	w.cancel(t, store.RunKey{Tenant: key.Tenant, Run: again.Run}, false)
}

// cancelled: at once, with a late result, with a failure, and by the reaper.
func (w *world) cancelled(t testing.TB) {
	t.Helper()
	w.cancel(t, w.trigger(t, "diamond"), true)
	for _, end := range []engine.Action{engine.Complete{Result: json.RawMessage(`[1]`)}, failure("CANCELLED"), nil} {
		key := w.trigger(t, "diamond")
		w.report(t, w.one(t, "diamond"), engine.Complete{})
		l := w.one(t, "diamond")
		w.cancel(t, key, false)
		if end != nil {
			w.report(t, l, end)
		}
	}
}

// returned: yielded, interrupted, expired, timed out, poisoned.
func (w *world) returned(t testing.TB) {
	t.Helper()
	w.trigger(t, "single")
	cursor := "page 9"
	w.report(t, w.one(t, "single"), engine.Yield{Cursor: &cursor})
	w.report(t, w.one(t, "single"), failure("INTERRUPTED"))
	require.Len(t, w.claim(t, "single", 1, false), 1)
	w.later(t, 10*time.Minute)
	w.reap(t)
	for range 8 {
		w.report(t, w.one(t, "single"), engine.Yield{})
	}

	w.trigger(t, "single")
	w.one(t, "single")
	w.later(t, time.Hour)
	w.reap(t) // past its deadline
}

func (w *world) reap(t testing.TB) {
	t.Helper()
	_, err := w.Expire(t.Context(), 1000)
	require.NoError(t, err)
}

// live: a task in each state that is not an end, with a second tenant beside.
func (w *world) live(t testing.TB) {
	t.Helper()
	other := w.account(t, "other")
	_, err := w.CreateWorkspace(t.Context(), w.tenant, "staging", event.Meta{Actor: "test"})
	require.NoError(t, err)
	w.deploy(t, w.tenant, strings.Replace(manifestText, "60s", "90s", 1))

	w.triggerWith(t, engine.Trigger{Tenant: other, Pipeline: "diamond"})
	w.report(t, w.one(t, "diamond"), failure("NETWORK_ERROR")) // RETRY_WAIT
	w.trigger(t, "diamond")
	w.report(t, w.one(t, "diamond"), failure("NETWORK_ERROR"))
	w.later(t, 30*time.Minute)
	_, err = w.RetryDue(t.Context(), 1)
	require.NoError(t, err)

	w.triggerWith(t, engine.Trigger{Tenant: other, Pipeline: "single"})
	require.Len(t, w.claim(t, "single", 1, false), 1) // DISPATCHED
	w.trigger(t, "single")
	l := w.one(t, "single") // RUNNING
	w.report(t, l, engine.Advance{Next: "page 3"})
	_, err = w.Heartbeats(t.Context(), []engine.Heartbeat{{Key: l.TaskKey, Token: l.Token}})
	require.NoError(t, err)
	progress := engine.Progress{Key: l.TaskKey, Token: l.Token}
	progress.Phase = "load"
	_, err = w.Progress(t.Context(), []engine.Progress{progress})
	require.NoError(t, err)
	for range 3 {
		w.trigger(t, "single")
	}
	w.admit(t)              // QUEUED
	w.trigger(t, "diamond") // PENDING
}

// fannedOut: a join that waits for the scan and what it has added, in all states.
func (w *world) fannedOut(t testing.TB) {
	t.Helper()
	w.trigger(t, "fan")
	scan := w.one(t, "scan")
	w.report(t, scan, engine.FanOut{Barrier: true, Tasks: []engine.FanOutTask{
		{Asset: "f/fetch", Partition: "1"}, {Asset: "f/fetch", Partition: "2"}, {Asset: "f/fetch", Partition: "3"}, {Asset: "f/fetch", Partition: "4"},
	}})
	w.report(t, scan, engine.FanOut{Ordinal: 1, Tasks: []engine.FanOutTask{{Asset: "f/fetch", Partition: "5"}}})
	w.report(t, w.one(t, "fetch"), engine.Complete{})
	w.report(t, w.one(t, "fetch"), failure("RATE_LIMITED"))
	w.one(t, "fetch")
}

// ready: as made, and after a retry; before that, a run that is still CANCELLING.
func (w *world) ready(t testing.TB) {
	t.Helper()
	w.trigger(t, "diamond")
	held := w.one(t, "diamond")
	w.cancel(t, store.RunKey{Tenant: held.Tenant, Run: held.Run}, false)

	w.trigger(t, "single")
	w.trigger(t, "diamond")
	w.later(t, 30*time.Minute)
	due := value(w.RetryDue(t.Context(), 1))(t)
	require.Equal(t, 1, due)
}

// look verifies the whole database.
func look(t testing.TB, db *servotest.Database, o verify.Options) verify.Report {
	t.Helper()
	return value(verify.Verify(t.Context(), db.Store, o))(t)
}

func text(r verify.Report) string {
	var text strings.Builder
	r.Text(&text)
	return text.String()
}

func requireClean(t testing.TB, db *servotest.Database) verify.Report {
	t.Helper()
	report := look(t, db, verify.Options{})
	require.True(t, report.Clean(), text(report))
	return report
}

// original is a rich database that can be broken.
func original(t testing.TB) (name string) {
	t.Helper()
	return breakable(t, (*world).rich)
}

// breakable is a database without its constraints, and with a function that spoils one column
// of one row.
func breakable(t testing.TB, fill func(*world, testing.TB)) (name string) {
	t.Helper()
	w := newWorld(t)
	fill(w, t)
	requireClean(t, w.db)
	w.Stop()
	w.db.Exec(t, dropConstraints)
	w.db.Exec(t, spoil)
	w.db.Close()
	return strings.TrimPrefix(value(url.Parse(w.db.URL))(t).Path, "/")
}

// copyOf gives the test a copy of the original.
func copyOf(t testing.TB, name string) *servotest.Database {
	t.Helper()
	address := servotest.Empty(t, name)
	s := value(store.Open(t.Context(), store.Options{URL: address, MaxConns: 4}))(t)
	t.Cleanup(s.Close)
	return &servotest.Database{Store: s, URL: address}
}

const dropConstraints = `
DO $$
DECLARE
    c record;
BEGIN
    -- those of the parents first: the partitions' are inherited as well as their own
    FOR c IN SELECT conrelid::regclass AS relation, conname FROM pg_constraint
             WHERE connamespace = 'servo'::regnamespace AND contype IN ('c', 'f') ORDER BY coninhcount LOOP
        EXECUTE format('ALTER TABLE %s DROP CONSTRAINT IF EXISTS %I', c.relation, c.conname);
    END LOOP;
    -- a column of a parent takes those of its partitions with it
    FOR c IN SELECT attrelid::regclass AS relation, attname FROM pg_attribute a JOIN pg_class k ON k.oid = a.attrelid
             WHERE k.relnamespace = 'servo'::regnamespace AND a.attgenerated <> '' AND a.attinhcount = 0 LOOP
        EXECUTE format('ALTER TABLE %s ALTER COLUMN %I DROP EXPRESSION', c.relation, c.attname);
    END LOOP;
END
$$`

// spoil changes a column of one row, if it can of one where the column is set. An id keeps
// its first bytes, which define in which partition its row is.
const spoil = `
CREATE FUNCTION servo.spoil(relation text, col text) RETURNS integer LANGUAGE plpgsql AS $$
DECLARE
    kind text;
    changed text;
    spoilt integer;
BEGIN
    SELECT format_type(a.atttypid, NULL) INTO kind FROM pg_attribute a
    WHERE a.attrelid = ('servo.' || relation)::regclass AND a.attname = col;
    changed := CASE kind
        WHEN 'uuid' THEN format('(left(coalesce(%1$I, gen_random_uuid())::text, 24) || right(gen_random_uuid()::text, 12))::uuid', col)
        WHEN 'uuid[]' THEN format('%I || gen_random_uuid()', col)
        WHEN 'text[]' THEN format('%I || ''{x}''::text[]', col)
        WHEN 'boolean' THEN format('NOT %I', col)
        WHEN 'text' THEN format('coalesce(%I, '''') || ''x''', col)
        WHEN 'timestamp with time zone' THEN format('coalesce(%I, servo.clock()) + interval ''1 second''', col)
        WHEN 'jsonb' THEN '''{"spoilt": true}'''
        ELSE format('coalesce(%I, 0) + 1', col)
    END;
    EXECUTE format('UPDATE servo.%1$I SET %2$I = %3$s WHERE (tableoid, ctid) = '
        '(SELECT tableoid, ctid FROM servo.%1$I ORDER BY (%2$I IS NULL), tableoid, ctid LIMIT 1)', relation, col, changed);
    GET DIAGNOSTICS spoilt = ROW_COUNT;
    RETURN spoilt;
END
$$`
