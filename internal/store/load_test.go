package store_test

import (
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"go.arco.dev/servo/internal/base/id"
	"go.arco.dev/servo/internal/domain/run"
	"go.arco.dev/servo/internal/store"
)

// load writes finished runs over four months and 1,000 live ones of this month, each with
// five tasks in every queue table: 50 tenants, and nothing is analyzed. One more run is
// wide: its first task has failed, and 3,000 wait for it.
func (w *world) load(t testing.TB, finished int) {
	t.Helper()
	w.engine(t, func(tx *Tx) {
		for _, sql := range loads {
			sql = strings.NewReplacer("$now", "timestamptz '"+w.now.Format(time.RFC3339Nano)+"'", "$finished", strconv.Itoa(finished)).Replace(sql)
			_, err := tx.Raw().Exec(t.Context(), sql, pgx.QueryExecModeSimpleProtocol)
			require.NoError(t, err, sql)
		}
	})
}

// loads make ids as UUIDv7 from a time and a number; n is the run, m the task in it.
var loads = []string{
	`SET LOCAL enable_seqscan = on; SET LOCAL enable_hashjoin = on`,
	`CREATE OR REPLACE FUNCTION pg_temp.v7(at timestamptz, seed text) RETURNS uuid LANGUAGE sql AS $$
		SELECT (substr(replace(servo.uuid_floor(at)::text, '-', ''), 1, 12) || '7' || substr(md5(seed), 1, 3) || '8' || substr(md5(seed), 4, 15))::uuid $$`,
	`CREATE TEMP TABLE past ON COMMIT DROP AS
		SELECT n, md5('tenant ' || n % 50)::uuid AS tenant_id, at, pg_temp.v7(at, 'run ' || n) AS run_id, pg_temp.v7(at, 'task ' || n) AS task_id
		FROM   generate_series(1, $finished) AS n, LATERAL (SELECT $now + make_interval(months => n % 4) AS at) AS x`,
	`CREATE TEMP TABLE live ON COMMIT DROP AS
		SELECT n, md5('tenant ' || n % 50)::uuid AS tenant_id, at, pg_temp.v7(at, 'live ' || n) AS run_id
		FROM   generate_series(1, 1000) AS n, LATERAL (SELECT $now AS at) AS x`,
	`CREATE TEMP TABLE live_tasks ON COMMIT DROP AS
		SELECT l.*, m, pg_temp.v7(l.at, 'live ' || n || ' ' || m) AS task_id FROM live l, generate_series(1, 25) AS m`,
	`INSERT INTO servo.runs (tenant_id, id, workspace_id, deployment_id, created_at, started_at, finished_at, version, total, remaining, succeeded,
			state, priority, pipeline, trigger_type, fingerprint)
		SELECT tenant_id, run_id, tenant_id, tenant_id, at, at, at, 2, 1, 0, 1, 10, 5, 'daily', 'MANUAL', 'f' FROM past
		UNION ALL
		SELECT tenant_id, run_id, tenant_id, tenant_id, at, at, NULL, 1, 25, 25, 0, 2, 5, 'daily', 'MANUAL', 'f' FROM live`,
	`INSERT INTO servo.tasks (tenant_id, run_id, id, created_at, finished_at, token, ix, timeout_s, version, attempt, failures, fan_outs, state,
			priority, asset, pool, outcome)
		SELECT tenant_id, run_id, task_id, at, at, n, 0, 60, 4, 1, 0, 0, 10, 5, 'asset', 'default', 'SUCCESS' FROM past
		UNION ALL
		SELECT tenant_id, run_id, task_id, at, NULL, NULL, m, 60, NULL, NULL, NULL, NULL, NULL, 5, 'asset', 'default', NULL FROM live_tasks`,
	`INSERT INTO servo.edges (tenant_id, run_id, upstream_id, task_id)
		SELECT tenant_id, run_id, task_id, task_id FROM past
		UNION ALL
		SELECT u.tenant_id, u.run_id, u.task_id, d.task_id FROM live_tasks u JOIN live_tasks d ON d.n = u.n AND d.m = u.m % 5 + 1 WHERE u.m > 20`,
	`INSERT INTO servo.run_event_rows (tenant_id, run_id, recorded_at, events)
		SELECT tenant_id, run_id, at, jsonb_build_array(jsonb_build_object('t', 'task.readied', 's', task_id, 'v', 1, 'd', '{}'::jsonb)) FROM past
		UNION ALL
		SELECT tenant_id, run_id, at, jsonb_build_array(jsonb_build_object('t', 'task.readied', 's', task_id, 'v', 1, 'd', '{}'::jsonb)) FROM live_tasks`,
	`INSERT INTO servo.waiting (tenant_id, run_id, task_id, since, version, timeout_s, priority, dependents, pool, unmet)
		SELECT tenant_id, run_id, task_id, at, 1, 60, 5, true, 'default', 2 FROM live_tasks WHERE m <= 5`,
	`INSERT INTO servo.ready_q (tenant_id, run_id, task_id, since, version, timeout_s, priority, dependents, pool)
		SELECT tenant_id, run_id, task_id, at, 1, 60, n % 10, true, 'default' FROM live_tasks WHERE m BETWEEN 6 AND 10`,
	`INSERT INTO servo.pool_q (tenant_id, run_id, task_id, since, version, timeout_s, priority, dependents, pool)
		SELECT tenant_id, run_id, task_id, at, 1, 60, n % 10, true, 'pool ' || n % 3 FROM live_tasks WHERE m BETWEEN 11 AND 15`,
	`INSERT INTO servo.pools (name, kind, version, created_at, updated_at, accepts) VALUES
		('pool 1', 'pull', 1, $now, $now, NULL), ('pool 2', 'pull', 1, $now, $now, ARRAY[md5('no tenant')::uuid])`,
	`INSERT INTO servo.retry_q (tenant_id, run_id, task_id, since, version, timeout_s, priority, dependents, pool, due_at, failure)
		SELECT tenant_id, run_id, task_id, at, 1, 60, 5, true, 'default', at + make_interval(secs => n), '{"code": "X"}' FROM live_tasks WHERE m BETWEEN 16 AND 20`,
	`INSERT INTO servo.leases (tenant_id, run_id, task_id, since, version, timeout_s, priority, dependents, pool, token, claim_id,
			started_at, deadline, expires_at, due_at, worker)
		SELECT tenant_id, run_id, task_id, at, 1, 60, 5, true, 'default', n, pg_temp.v7(at, 'claim ' || n),
			at, at + interval '1 hour', at + make_interval(secs => n), at + make_interval(secs => n), 'w' FROM live_tasks WHERE m > 20`,
	`INSERT INTO servo.heartbeats (tenant_id, run_id, task_id, token, seen_at, expires_at)
		SELECT tenant_id, run_id, task_id, n, at, at + interval '1 hour' FROM live_tasks WHERE m > 20`,
	`INSERT INTO servo.task_logs (tenant_id, run_id, task_id, attempt, seq, at, bytes, text)
		SELECT tenant_id, run_id, task_id, 0, seq, at, 5, 'hello' FROM live_tasks, generate_series(1, 3) AS seq WHERE m > 20
		UNION ALL
		SELECT tenant_id, run_id, task_id, 1, 1, at, 5, 'hello' FROM past`,
	`INSERT INTO servo.attempt_logs (tenant_id, run_id, task_id, attempt, kept)
		SELECT tenant_id, run_id, task_id, 0, 315 FROM live_tasks WHERE m > 20
		UNION ALL
		SELECT tenant_id, run_id, task_id, 1, 105 FROM past`,
	`INSERT INTO servo.attempt_progress (tenant_id, run_id, task_id, attempt, updated_at, stage_since, records_extracted, records_transformed,
			records_loaded, bytes, fraction, stages, phase, stage)
		SELECT tenant_id, run_id, task_id, 0, at, at, 1, 1, 1, 1, 0.25, 149, 'load', 'page 149' FROM live_tasks WHERE m > 20
		UNION ALL
		SELECT tenant_id, run_id, task_id, 1, at, at, 1, 1, 1, 1, 1, 1, 'load', 'page 1' FROM past`,
	`INSERT INTO servo.attempt_stages (tenant_id, run_id, task_id, attempt, seq, started_at, phase, stage)
		SELECT tenant_id, run_id, task_id, 0, seq, at, 'load', 'page ' || seq FROM live_tasks, generate_series(100, 103) AS seq WHERE m > 20
		UNION ALL
		SELECT tenant_id, run_id, task_id, 1, 1, at, 'load', 'page 1' FROM past`,
	`INSERT INTO servo.tenants (id, name, version, created_at) SELECT DISTINCT tenant_id, 'load ' || tenant_id, 1, $now FROM live`,
	`INSERT INTO servo.workspaces (tenant_id, id, name, version, created_at)
		SELECT DISTINCT tenant_id, CASE name WHEN 'default' THEN tenant_id ELSE md5(tenant_id || name)::uuid END, name, 1, $now
		FROM live, unnest(ARRAY['default', 'production', 'staging']) AS name`,
	// one in four waits for its start, and every other of these for the lock of another run
	`INSERT INTO servo.live_runs (tenant_id, run_id, workspace_id, created_at, due_at, limit_s, priority, pending, lock_key, pipeline, config_id, wait_key, late_at)
		SELECT tenant_id, run_id, tenant_id, at, CASE WHEN n % 4 > 0 THEN at + make_interval(secs => n) END, 60, 5, n % 4 = 0,
			CASE WHEN n % 8 > 0 THEN 'lock ' || n ELSE '' END, 'daily', pg_temp.v7(at, 'config ' || n), CASE WHEN n % 8 = 0 THEN 'lock ' || n + 50 ELSE '' END, at + make_interval(secs => n) FROM live`,
	`CREATE TEMP TABLE timed ON COMMIT DROP AS
		SELECT n, md5('tenant ' || n % 50)::uuid AS tenant_id, at, pg_temp.v7(at, 'config ' || n) AS config_id
		FROM   generate_series(1, 5000) AS n, LATERAL (SELECT $now AS at) AS x`,
	`INSERT INTO servo.configs (tenant_id, id, workspace_id, name, version, pipeline, spec, created_at, updated_at, decided_until, next_slot, due_at, zone_data, range_from)
		SELECT tenant_id, config_id, tenant_id, 'config ' || n, 1, 'daily',
			CASE WHEN n % 20 = 11 THEN jsonb_build_object('trigger', jsonb_build_object('event', jsonb_build_object('name', 'event')))
			WHEN n % 2 = 0 THEN jsonb_build_object('trigger', jsonb_build_object('event', jsonb_build_object('config', 'config ' || n - 50)))
			ELSE jsonb_build_object('trigger', '{"cron": "0 * * * *"}'::jsonb, 'depends_on', jsonb_build_object('config', 'config ' || n + 50)) END,
			at, at, at, at, at + make_interval(secs => n), '2026a', at - interval '1 hour' FROM timed`,
	`INSERT INTO servo.slots (tenant_id, config_id, slot_at, run_id, decided_at)
		SELECT tenant_id, config_id, at - make_interval(hours => m), tenant_id, at FROM timed, generate_series(2, 6) AS m`,
	`INSERT INTO servo.slot_ranges (tenant_id, config_id, from_at, to_at, slots, outcome, config_version, decided_at)
		SELECT tenant_id, config_id, at - m * interval '1 hour', at - m * interval '1 hour', 1, 7, 1, at FROM timed, generate_series(1, 5) AS m`,
	`INSERT INTO servo.config_results (tenant_id, config_id, run_id, state, ended_at) SELECT tenant_id, config_id, tenant_id, 10, at FROM timed`,
	// four of five events are done
	`INSERT INTO servo.event_inbox (tenant_id, id, workspace_id, name, dedupe_key, parameters, version, received_at, listeners, done_at)
		SELECT tenant_id, pg_temp.v7(at, 'event ' || n), tenant_id, 'event', 'key ' || n, '{}', 1, at + make_interval(secs => n), 10, CASE WHEN n % 5 <> 1 THEN at END FROM timed`,
	`INSERT INTO servo.cones (tenant_id, run_id) SELECT tenant_id, run_id FROM live`,
	`INSERT INTO servo.run_totals (tenant_id, day, labels, ended, succeeded, failed, timed_out, cancelled, started, seconds, breached, breaches)
		SELECT md5('tenant ' || n)::uuid, $now::date - m, 'provider ' || p, 1, 1, 0, 0, 0, 1, 60, 0, 0
		FROM   generate_series(0, 49) AS n, generate_series(0, 99) AS m, generate_series(1, 5) AS p`,
	`INSERT INTO servo.run_hours (tenant_id, hour, succeeded, failed, timed_out, cancelled, started, seconds, breaches, delay)
		SELECT CASE WHEN n < 0 THEN '00000000-0000-0000-0000-000000000000' ELSE md5('tenant ' || n)::uuid END, date_trunc('hour', $now, 'UTC') - make_interval(hours => m), 1, 0, 0, 0, 1, 60, 0, 1
		FROM   generate_series(-1, 49) AS n, generate_series(0, 190) AS m`,
	`INSERT INTO servo.run_deltas (tenant_id, day, labels, ended, succeeded, failed, timed_out, cancelled, started, seconds, breached, breaches)
		SELECT md5('tenant ' || n % 50)::uuid, $now::date, 'provider ' || n % 7, 1, 0, 1, 0, 0, 1, 30, 1, 1 FROM generate_series(1, 2000) AS n`,
	`CREATE TEMP TABLE wide ON COMMIT DROP AS
		SELECT tenant_id, run_id, at, m, pg_temp.v7(at, 'wide ' || m) AS task_id
		FROM   generate_series(0, 3000) AS m, LATERAL (SELECT tenant_id, at, pg_temp.v7(at, 'wide') AS run_id FROM live WHERE n = 1) AS x`,
	`INSERT INTO servo.runs (tenant_id, id, workspace_id, deployment_id, created_at, started_at, version, total, remaining, failed,
			state, priority, pipeline, trigger_type, fingerprint)
		SELECT tenant_id, run_id, tenant_id, tenant_id, at, at, 1, 3001, 3000, 1, 2, 5, 'wide', 'MANUAL', 'f' FROM wide WHERE m = 0`,
	`INSERT INTO servo.tasks (tenant_id, run_id, id, created_at, finished_at, token, ix, timeout_s, version, attempt, failures, fan_outs, state,
			priority, asset, pool, outcome)
		SELECT tenant_id, run_id, task_id, at, at, 1, m, 60, 4, 1, 1, 0, 11, 5, 'asset', 'default', 'ERROR' FROM wide WHERE m = 0
		UNION ALL
		SELECT tenant_id, run_id, task_id, at, NULL, NULL, m, 60, NULL, NULL, NULL, NULL, NULL, 5, 'asset', 'default', NULL FROM wide WHERE m > 0`,
	`INSERT INTO servo.edges (tenant_id, run_id, upstream_id, task_id)
		SELECT u.tenant_id, u.run_id, u.task_id, d.task_id FROM wide u JOIN wide d ON u.m = 0 AND d.m > 0`,
	`INSERT INTO servo.waiting (tenant_id, run_id, task_id, since, version, timeout_s, priority, dependents, pool, unmet)
		SELECT tenant_id, run_id, task_id, at, 1, 60, 5, false, 'default', 1 FROM wide WHERE m > 0`,
}

// crowd adds 2,000 tenants that wait for a pool, as many that have no room, and as many that do
// not wait.
func (w *world) crowd(t testing.TB) {
	t.Helper()
	for _, sql := range []string{
		`INSERT INTO servo.tenants (id, name, version, created_at) SELECT md5('waiter ' || n)::uuid, 'waiter ' || n, 1, servo.clock() FROM generate_series(1, 6000) AS n`,
		`INSERT INTO servo.shares (tenant_id, pool, in_flight, even_at, waits, over_quota, updated_at)
			SELECT md5('waiter ' || n)::uuid, 'default', 1, n % 100, n % 3 > 0, n % 3 > 1, servo.clock() FROM generate_series(1, 6000) AS n`,
		`INSERT INTO servo.settlements (tenant_id, pool, asset, left_by, ended, seconds, charged, arrived)
			SELECT md5('waiter ' || n)::uuid, 'default', 'asset', n % 2, 1, 1, 1, n % 2 = 0 FROM generate_series(1, 1000) AS n`,
	} {
		w.Exec(t, sql)
	}
}

// live reads a batch of the rows of each queue table, spread over runs and tenants.
func (w *world) live(t testing.TB) (byState map[run.TaskState][]run.Task) {
	t.Helper()
	byState = map[run.TaskState][]run.Task{}
	var runs []id.Run
	w.engine(t, func(tx *Tx) {
		rows, err := tx.Raw().Query(t.Context(), `SELECT run_id FROM servo.cones ORDER BY md5(run_id::text) LIMIT $1`, probe)
		require.NoError(t, err)
		for _, u := range must(pgx.CollectRows(rows, pgx.RowTo[uuid.UUID]))(t) {
			runs = append(runs, id.Of[id.Run](u))
		}
		seen := map[id.Run]map[run.TaskState]bool{}
		for _, task := range must(tx.Sweep(t.Context(), runs))(t) {
			if seen[task.Run] == nil {
				seen[task.Run] = map[run.TaskState]bool{}
			}
			if !seen[task.Run][task.State] { // one of each kind of each run
				seen[task.Run][task.State] = true
				byState[task.State] = append(byState[task.State], task)
			}
		}
	})
	for _, state := range []run.TaskState{run.Pending, run.Ready, run.Queued, run.Running, run.RetryWait} {
		require.Len(t, byState[state], probe)
	}
	return byState
}

// wide is the run whose first task has failed.
func (w *world) wide(t testing.TB, tx *Tx) store.RunKey {
	t.Helper()
	var tenant, run uuid.UUID
	require.NoError(t, tx.Raw().QueryRow(t.Context(), `SELECT tenant_id, id FROM servo.runs WHERE pipeline = 'wide'`).Scan(&tenant, &run))
	return store.RunKey{Tenant: id.Of[id.Tenant](tenant), Run: id.Of[id.Run](run)}
}

// sendReads has the store send every statement that locks or reads by key.
func (w *world) sendReads(t testing.TB) {
	t.Helper()
	ctx, live := t.Context(), w.live(t)
	_, _, _, err := w.AnsweredCall(ctx, callOf("k"))
	require.NoError(t, err)
	var leases, retries []store.TaskKey
	var runs []store.RunKey
	var claims []id.Claim
	var pulses []store.Pulse
	var upstreams []store.UpstreamsOf
	var chunks []store.LogChunk
	var reports []store.ProgressReport
	for i, task := range live[run.Running] {
		leases, retries = append(leases, keyOf(task)), append(retries, keyOf(live[run.RetryWait][i]))
		runs = append(runs, store.RunKey{Tenant: task.Tenant, Run: task.Run})
		claims = append(claims, task.Claim)
		pulses = append(pulses, pulse(task))
		reports = append(reports, progress(task))
		chunks = append(chunks, chunk(task, 4, "hello again"))
		upstreams = append(upstreams, store.UpstreamsOf{Tenant: task.Tenant, Results: []store.UpstreamResult{{Run: task.Run, Task: task.ID}}})
	}
	far := w.now.Add(24 * time.Hour)
	w.undone(t, func(tx *Tx) {
		for _, lock := range []store.RunLock{store.LockForMove, store.LockForCount, store.LockForCancel} {
			require.Len(t, must(tx.LockRuns(ctx, lock, runs))(t), probe)
		}
		require.Len(t, must(tx.ExistingRuns(ctx, runs))(t), probe)
		require.Len(t, must(tx.Dependents(ctx, leases))(t), probe)
		require.Len(t, must(tx.Cone(ctx, leases, probe))(t), probe)
		require.Len(t, must(tx.Doomed(ctx, w.wide(t, tx), probe))(t), probe)
		require.Len(t, must(tx.LockLeases(ctx, leases))(t), probe)
		require.Len(t, must(tx.LockLeasesWithHeartbeats(ctx, leases))(t), probe)
		held := must(tx.LeasesOfClaims(ctx, claims[:5]))(t)
		require.Len(t, held, 25, "five tasks a run were claimed together")
		require.Len(t, must(tx.Assign(ctx, held))(t), 25)
		must(tx.FoldSettlements(ctx, probe))(t)
		pools := must(tx.ReadyPools(ctx, store.PoolQuestion{Alive: time.Minute, MostQueued: probe}))(t)
		require.Equal(t, []string{"default"}, pools.Names)
		require.Len(t, must(tx.HeadShares(ctx, pools, []int32{probe}, id.Tenant{}))(t), probe)
		waits, holds, err := tx.TryAdmission(ctx, "admission", []string{"default"})
		require.NoError(t, err)
		require.True(t, waits && holds)
		ready := must(tx.TakeReady(ctx, w.readyShares(t, tx, 2), []int32{probe / 2, probe / 2}))(t)
		require.Len(t, ready, probe)
		require.Len(t, must(tx.TakeOldest(ctx, w.readyShares(t, tx, 2), []int32{probe / 2, probe / 2}))(t), probe)
		require.True(t, must(tx.BeginHandoff(ctx, store.HandoffQuestion{
			Duty: "admission", Tasks: tasksOf(ready), Claims: claims[:5], Alive: time.Minute, MostQueued: probe,
		}))(t).Held)
		require.Len(t, must(tx.TakeQueued(ctx, store.Demand{Pool: "pool 1", Everything: true, Most: probe}))(t), probe)
		require.Len(t, must(tx.PoolAccess(ctx, []string{"pool 1", "pool 2"}))(t), 1)
		lost := must(tx.QueuedWithoutAccess(ctx, probe))(t)
		require.Len(t, lost, probe)
		require.Len(t, must(tx.LockQueuedWithoutAccess(ctx, lost))(t), probe)
		require.Len(t, must(tx.LockQueued(ctx, lost))(t), probe)
		require.Empty(t, must(tx.QueuedWithoutWorker(ctx, time.Minute, probe))(t))
		require.Empty(t, must(tx.CapabilitySets(ctx, []string{"unknown"}))(t))
		require.NoError(t, tx.HoldLacking(ctx, []store.Lacking{{ShareKey: w.readyShares(t, tx, 1)[0], Needs: ""}}, nil))
		require.Positive(t, must(tx.ReleaseCapable(ctx, "admission", time.Minute, probe))(t), "the pool has no live worker")
		require.Len(t, must(tx.DueLeases(ctx, far, probe))(t), probe)
		require.Len(t, must(tx.DueRetries(ctx, far, probe))(t), probe)
		require.Len(t, must(tx.LockRetries(ctx, retries, far))(t), probe)
		require.Len(t, must(tx.PendingCones(ctx, probe))(t), probe)
		require.Empty(t, must(tx.EndedTasks(ctx, leases))(t))
		require.Len(t, must(tx.TaskEvents(ctx, leases))(t), probe)
		require.Len(t, must(tx.TaskAssets(ctx, leases))(t), probe)
		require.NoError(t, tx.UpstreamResults(ctx, upstreams, 1000))
		require.Equal(t, "asset", upstreams[probe-1].Results[0].Asset)
	})
	w.undone(t, func(tx *Tx) { w.sendLimits(t, tx, runs) })
	w.sendConfigs(t)
	w.sendTotals(t, runs)
	must(w.TakeDuty(ctx, "admission", "a", time.Minute))(t)
	must(w.TakeDuty(ctx, "admission", "a", time.Minute))(t)
	admits, starts, err := w.AdmissionWork(ctx)
	require.NoError(t, err)
	require.True(t, admits)
	require.True(t, starts)
	must(w.Overdue(ctx))(t)
	require.Len(t, must(w.Heartbeat(ctx, pulses))(t), probe)
	beating := make([]store.PulseKey, len(pulses))
	for i, p := range pulses {
		beating[i] = store.PulseKey{TaskKey: p.Key, Token: p.Token}
	}
	require.NotContains(t, must(w.LeasePools(ctx, beating))(t), "", "each is held")
	w.undone(t, func(tx *Tx) { require.Len(t, must(tx.WriteProgress(ctx, reports))(t), probe) })
	w.undone(t, func(tx *Tx) {
		_, full, err := tx.WriteLogs(ctx, chunks, 0)
		require.NoError(t, err)
		require.Len(t, full, probe)
		require.NoError(t, tx.TrimLogs(ctx, full, 0))
	})
}

// sendLimits has the store send what counts runs, starts them and gives them their locks.
func (w *world) sendLimits(t testing.TB, tx *Tx, runs []store.RunKey) {
	t.Helper()
	ctx := t.Context()
	waiting := must(tx.WaitingTenants(ctx))(t)
	require.NotEmpty(t, waiting)
	require.Len(t, must(tx.LockTenants(ctx, waiting))(t), len(waiting))
	require.Len(t, must(tx.RunQuotasOf(ctx, waiting))(t), len(waiting))
	day := w.now.Truncate(24 * time.Hour)
	var questions []store.UsageQuestion
	var mosts []int32
	for _, owner := range waiting {
		questions = append(questions, store.UsageQuestion{
			Tenant: owner, Live: 5, Running: 5, Queued: 5, Daily: 5, DayFrom: day, DayUntil: day.Add(24 * time.Hour),
		})
		mosts = append(mosts, 2)
	}
	require.Equal(t, store.Usage{Live: 5, Running: 5, Queued: 5, Daily: 5}, must(tx.CountUsage(ctx, questions))(t)[waiting[0]])
	require.Len(t, must(tx.NextRuns(ctx, waiting, mosts))(t), 2*len(waiting))
	require.Len(t, must(tx.DueRuns(ctx, w.now.Add(time.Hour), probe))(t), probe)
	require.Empty(t, must(tx.Roots(ctx, runs[:8]))(t)[5*8:], "five of each")
	live := must(tx.LockRuns(ctx, store.LockForMove, runs))(t)
	require.NotEmpty(t, must(tx.WithLive(ctx, live))(t))
	rows, err := tx.Raw().Query(ctx, `SELECT tenant_id, lock_key FROM servo.live_runs WHERE lock_key <> '' ORDER BY md5(lock_key) LIMIT $1`, probe)
	require.NoError(t, err)
	var requests []store.LockRequest
	var owner uuid.UUID
	var key string
	_, err = pgx.ForEachRow(rows, []any{&owner, &key}, func() error {
		requests = append(requests, store.LockRequest{LockKey: store.LockKey{Tenant: id.Of[id.Tenant](owner), Key: key}, Run: id.New[id.Run](w.mint)})
		return nil
	})
	require.NoError(t, err)
	_, holders, err := tx.TakeLocks(ctx, requests, w.now)
	require.NoError(t, err)
	require.Len(t, holders, probe)
}

// sendWrites has the store send every statement that changes a batch of rows.
func (w *world) sendWrites(t testing.TB) {
	t.Helper()
	live := w.live(t)
	next := map[run.TaskState]run.TaskState{
		run.Pending: run.Ready, run.Ready: run.Queued, run.Queued: run.Dispatched, run.Running: run.Succeeded, run.RetryWait: run.Ready,
	}
	moves, stays := store.Changes{Now: w.now}, store.Changes{Now: w.now, Reschedule: live[run.Running]}
	for from, to := range next {
		for _, task := range live[from] {
			moves.Moves = append(moves.Moves, store.Move{From: from, Task: w.taskIn(to, task)})
		}
	}
	for _, state := range []run.TaskState{run.Pending, run.Running} {
		for _, task := range live[state] {
			stays.Moves = append(stays.Moves, store.Move{From: state, Task: task})
		}
	}
	for _, task := range live[run.Ready] {
		moves.Charges = append(moves.Charges, store.Charge{ShareKey: store.ShareKey{Tenant: task.Tenant, Pool: task.Pool + " " + task.ID.String()}, Admitted: 1})
	}
	moves.Clocks = map[string]float64{"default": 1}
	w.undone(t, func(tx *Tx) {
		var keys []store.RunKey
		for _, task := range live[run.Running] {
			keys = append(keys, store.RunKey{Tenant: task.Tenant, Run: task.Run})
		}
		stays.ChangedRuns = must(tx.LockRuns(t.Context(), store.LockForCount, keys))(t)
		stays.LiveRuns, moves.EndedRuns = slices.Clone(stays.ChangedRuns), keys
		for i := range stays.LiveRuns {
			stays.LiveRuns[i].State = run.RunPending // some wait for locks that others hold
		}
		for _, changes := range []store.Changes{stays, moves} {
			require.NoError(t, tx.Apply(t.Context(), changes))
			require.NoError(t, tx.Flush(t.Context()))
		}
	})
}

// readyShares are the first tenants and pools that have ready tasks.
func (w *world) readyShares(t testing.TB, tx *Tx, most int) []store.ShareKey {
	t.Helper()
	rows, err := tx.Raw().Query(t.Context(), `SELECT DISTINCT tenant_id, pool FROM servo.ready_q ORDER BY 1, 2 LIMIT $1`, most)
	require.NoError(t, err)
	keys, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (key store.ShareKey, err error) {
		return key, row.Scan(&key.Tenant.UUID, &key.Pool)
	})
	require.NoError(t, err)
	return keys
}
