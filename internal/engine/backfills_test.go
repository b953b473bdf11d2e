package engine_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"go.arco.dev/servo/internal/base/event"
	"go.arco.dev/servo/internal/base/fault"
	"go.arco.dev/servo/internal/devkit/servotest/verifytest"
	"go.arco.dev/servo/internal/domain/backfill"
	"go.arco.dev/servo/internal/domain/partition"
	"go.arco.dev/servo/internal/domain/run"
	"go.arco.dev/servo/internal/domain/tenant"
	"go.arco.dev/servo/internal/engine"
	"go.arco.dev/servo/internal/store"
)

const partitionedManifest = `
version: 1
assets:
  - key: raw/orders
    exec: {command: [run]}
    retry: {max_attempts: 1}
    partitions: &days
      - {dimension: date, kind: daily, start: "2025-01-01"}
      - {dimension: region, kind: static, values: [r0, r1, r2, r3, r4, r5, r6, r7, r8, r9]}
  - {key: silver/orders, exec: {command: [run]}, upstream: [raw/orders], partitions: *days}
  - {key: gold/report, exec: {command: [run]}}
  - {key: gold/monthly, exec: {command: [run]}, partitions: [{dimension: month, kind: monthly, start: "2025-01"}]}
  - {key: one/day, exec: {command: [run]}, retry: {max_attempts: 1}, partitions: [{dimension: date, kind: daily, start: "2025-01-01"}]}
pipelines:
  - {name: orders, select: ["+silver/orders"]}
`

// backfills is a bundle with partitioned assets and the duty of backfills.
type backfills struct {
	*bundle

	duty store.Duty
}

func setupBackfills(t testing.TB) *backfills {
	t.Helper()
	b := &backfills{bundle: setup(t)}
	b.db.SetClock(t, time.Date(2026, 11, 15, 12, 0, 0, 0, time.UTC))
	b.deploy(t, partitionedManifest)
	var err error
	b.duty, err = b.db.TakeDuty(t.Context(), engine.BackfillDuty, "test", time.Hour)
	require.NoError(t, err)
	return b
}

func (b *backfills) create(t testing.TB, s backfill.Settings) store.BackfillKey {
	t.Helper()
	made, err := b.CreateBackfill(t.Context(), engine.Backfill{Tenant: b.tenant, Settings: s, Meta: engineMeta})
	require.NoError(t, err)
	return store.BackfillKey{Tenant: b.tenant, Backfill: made.ID}
}

func (b *backfills) refused(t testing.TB, s backfill.Settings, want string) {
	t.Helper()
	_, err := b.CreateBackfill(t.Context(), engine.Backfill{Tenant: b.tenant, Settings: s, Meta: engineMeta})
	require.ErrorContains(t, err, want)
	f, ok := fault.As(err)
	require.True(t, ok, "%v", err)
	require.NotEmpty(t, f.Violation.Field)
	require.NotEmpty(t, f.Violation.Remedy)
	require.Zero(t, b.db.Count(t, `SELECT count(*) FROM servo.backfills`), "nothing half done")
}

// step records ended runs and starts as many as the limits allow.
func (b *backfills) step(t testing.TB) (started int) {
	t.Helper()
	_, err := b.EndBackfillRuns(t.Context(), b.duty, 100)
	require.NoError(t, err)
	for {
		n, err := b.StartBackfillRuns(t.Context(), b.duty, 100)
		require.NoError(t, err)
		if n == 0 {
			return started
		}
		started += n
	}
}

func (b *backfills) get(t testing.TB, key store.BackfillKey) store.BackfillView {
	t.Helper()
	found, err := b.db.GetBackfill(t.Context(), key)
	require.NoError(t, err)
	return found
}

// finish works until the backfill has ended.
func (b *backfills) finish(t testing.TB, key store.BackfillKey, act func(engine.Lease) engine.Action) store.BackfillView {
	t.Helper()
	for {
		b.step(t)
		found := b.get(t, key)
		require.LessOrEqual(t, found.Open, found.Settings.MaxConcurrentRuns)
		if found.State.Terminal() && found.Open == 0 {
			return found
		}
		b.drain(t, act)
	}
}

func failingAt(substring string) func(engine.Lease) engine.Action {
	return func(l engine.Lease) engine.Action {
		if strings.Contains(l.Partition, substring) {
			return engine.Fail{Failure: run.Failure{Code: "USER_CODE_EXCEPTION", Message: "no"}}
		}
		return engine.Complete{}
	}
}

func (b *backfills) status(t testing.TB, asset string) store.Status {
	t.Helper()
	status, _, err := b.db.NamedPartitionStatus(t.Context(), b.tenant, "default", asset)
	require.NoError(t, err)
	return status
}

func TestBackfills(t *testing.T) {
	t.Parallel()

	t.Run("a year of ten regions is 37 runs, three at a time", func(t *testing.T) {
		t.Parallel()
		b := setupBackfills(t)
		key := b.create(t, backfill.Settings{Asset: "raw/orders", Partitions: []string{"date=2025-01-01..2025-12-31"}})
		require.Equal(t, 3, b.step(t))
		found := b.finish(t, key, succeed)
		require.Equal(t, backfill.Succeeded, found.State)
		require.EqualValues(t, 3650, found.Completed)
		require.Equal(t, 37, b.db.Count(t, `SELECT count(*) FROM servo.runs WHERE trigger_type = 'backfill' AND state = 10 AND priority = 0`))
		require.Equal(t, 3650, b.db.Count(t, `SELECT count(DISTINCT (series, first_ordinal)) FROM servo.tasks WHERE state = 10`), "each partition once")
		require.Equal(t, 3650, b.db.Count(t, `SELECT count(*) FROM servo.tasks`))
		require.EqualValues(t, 3650, b.status(t, "raw/orders").Succeeded.Count())
		for {
			n, err := b.db.FoldPartitionDeltas(t.Context(), 1000)
			require.NoError(t, err)
			if n == 0 {
				break
			}
		}
		require.EqualValues(t, 3650, b.status(t, "raw/orders").Succeeded.Count())
		require.Equal(t, 10, b.db.Count(t, `SELECT count(*) FROM servo.partition_status`))
		verifytest.Clean(t, b.db)
	})

	t.Run("a retry covers what failed and was skipped, and succeeded partitions are not repeated", func(t *testing.T) {
		t.Parallel()
		b := setupBackfills(t)
		key := b.create(t, backfill.Settings{Pipeline: "orders", Partitions: []string{"date=2025-01"}, ChunkSize: 31, FailureThreshold: "100%"})
		found := b.finish(t, key, func(l engine.Lease) engine.Action {
			if l.Asset == "silver/orders" {
				return engine.Complete{}
			}
			return failingAt(`"2025-01-07","region":"r3"`)(l)
		})
		require.Equal(t, backfill.Failed, found.State)
		require.EqualValues(t, []int64{309, 1, 0, 0}, []int64{found.Completed, found.Failed, found.Skipped, found.Pending()})
		require.EqualValues(t, 1, b.status(t, "raw/orders").Failed.Count())
		require.EqualValues(t, 309, b.status(t, "silver/orders").Succeeded.Count())
		ran := b.db.Count(t, `SELECT count(*) FROM servo.tasks`)

		require.NoError(t, b.RetryBackfill(t.Context(), key, true, engineMeta))
		found = b.finish(t, key, succeed)
		require.Equal(t, backfill.Succeeded, found.State)
		require.EqualValues(t, 310, found.Completed)
		require.Equal(t, ran+2, b.db.Count(t, `SELECT count(*) FROM servo.tasks`), "the failed partition of both assets")
		require.True(t, b.status(t, "raw/orders").Failed.Empty())
		err := b.RetryBackfill(t.Context(), key, false, engineMeta)
		require.ErrorContains(t, err, "the backfill is SUCCEEDED")
		verifytest.Clean(t, b.db)
	})

	t.Run("too many failures stop it", func(t *testing.T) {
		t.Parallel()
		b := setupBackfills(t)
		key := b.create(t, backfill.Settings{Asset: "one/day", Partitions: []string{"date=2025-01..2025-12"}, ChunkSize: 10, MaxConcurrentRuns: 1, FailureThreshold: "5"})
		found := b.finish(t, key, failingAt("2025-01-1"))
		require.Equal(t, backfill.Failed, found.State)
		require.Contains(t, found.Reason, "failure_threshold 5 allows 5")
		require.EqualValues(t, 2, found.Next, "no third run")
		require.EqualValues(t, 345, found.Pending())
		verifytest.Clean(t, b.db)
	})

	t.Run("pause, resume and cancel", func(t *testing.T) {
		t.Parallel()
		b := setupBackfills(t)
		key := b.create(t, backfill.Settings{Asset: "one/day", Partitions: []string{"date=2025-01..2025-12"}, MaxConcurrentRuns: 1, ChunkSize: 50})
		require.Equal(t, 1, b.step(t))
		require.NoError(t, b.PauseBackfill(t.Context(), key, "maintenance", engineMeta))
		require.NoError(t, b.PauseBackfill(t.Context(), key, "again", engineMeta), "a repeat changes nothing")
		b.drain(t, succeed)
		require.Zero(t, b.step(t), "no run starts while it is paused")
		found := b.get(t, key)
		require.Equal(t, backfill.Paused, found.State)
		require.Equal(t, "maintenance", found.Reason)
		require.EqualValues(t, 50, found.Completed, "a started run continues")
		require.NoError(t, b.ResumeBackfill(t.Context(), key, engineMeta))
		require.Equal(t, 1, b.step(t))

		require.NoError(t, b.CancelBackfill(t.Context(), key, "wrong code", engineMeta))
		n, err := b.CancelBackfillRuns(t.Context(), 100)
		require.NoError(t, err)
		require.Equal(t, 1, n)
		require.Zero(t, b.step(t))
		found = b.get(t, key)
		require.Equal(t, backfill.Cancelled, found.State)
		require.EqualValues(t, []int64{50, 0, 50, 265}, []int64{found.Completed, found.Failed, found.Skipped, found.Pending()})
		require.Equal(t, 1, b.db.Count(t, `SELECT count(*) FROM servo.runs WHERE state = 13 AND cancel_reason = 'its backfill was cancelled: wrong code'`))
		require.NoError(t, b.RetryBackfill(t.Context(), key, false, engineMeta))
		require.Equal(t, backfill.Succeeded, b.finish(t, key, succeed).State)
		verifytest.Clean(t, b.db)
	})

	t.Run("max_backfill_runs holds over all backfills of a tenant", func(t *testing.T) {
		t.Parallel()
		b := setupBackfills(t)
		b.limited(t, func(q *tenant.Quotas) { *q = tenant.NoLimits(); q.MaxBackfillRuns = 4 })
		first := b.create(t, backfill.Settings{Asset: "one/day", Partitions: []string{"date=2025-01..2025-12"}, ChunkSize: 50})
		second := b.create(t, backfill.Settings{Asset: "raw/orders", Partitions: []string{"date=2025-01"}, ChunkSize: 50})
		require.Equal(t, 4, b.step(t))
		require.EqualValues(t, 4, b.get(t, first).Open+b.get(t, second).Open)
		require.Contains(t, b.get(t, second).WaitsFor+b.get(t, first).WaitsFor, "the quota max_backfill_runs is 4")
		b.finish(t, first, succeed)
		b.finish(t, second, succeed)
		require.LessOrEqual(t, b.db.Count(t, `
			SELECT coalesce(max(n), 0) FROM (SELECT (SELECT count(*) FROM servo.backfill_chunks o
				WHERE o.started_at <= c.started_at AND o.ended_at > c.started_at) AS n FROM servo.backfill_chunks c) AS x`), 4)
		verifytest.Clean(t, b.db)
	})

	t.Run("it keeps its deployment unless it follows", func(t *testing.T) {
		t.Parallel()
		b := setupBackfills(t)
		pinned := b.create(t, backfill.Settings{Asset: "one/day", Partitions: []string{"date=2025-01"}, ChunkSize: 20, MaxConcurrentRuns: 1})
		made, err := b.CreateBackfill(t.Context(), engine.Backfill{
			Tenant: b.tenant, Follow: true, Meta: engineMeta, Settings: backfill.Settings{Asset: "raw/orders", Partitions: []string{"date=2025-01,region=r1"}, ChunkSize: 20, MaxConcurrentRuns: 1},
		})
		require.NoError(t, err)
		b.step(t)
		b.deploy(t, strings.Replace(partitionedManifest, "one/day", "other/day", 1))
		require.Equal(t, backfill.Succeeded, b.finish(t, pinned, succeed).State, "the active deployment no longer contains one/day")
		follows := b.finish(t, store.BackfillKey{Tenant: b.tenant, Backfill: made.ID}, succeed)
		require.Equal(t, backfill.Succeeded, follows.State)
		require.Equal(t, 2, b.db.Count(t, `SELECT count(DISTINCT deployment_id) FROM servo.runs r JOIN servo.backfill_chunks c ON c.run_id = r.id WHERE c.backfill_id = $1`, made.ID.UUID))
		verifytest.Clean(t, b.db)
	})

	t.Run("a following backfill whose asset is gone fails with the reason", func(t *testing.T) {
		t.Parallel()
		b := setupBackfills(t)
		made, err := b.CreateBackfill(t.Context(), engine.Backfill{
			Tenant: b.tenant, Follow: true, Meta: engineMeta, Settings: backfill.Settings{Asset: "one/day", Partitions: []string{"date=2025-01"}},
		})
		require.NoError(t, err)
		b.deploy(t, manifestText)
		b.step(t)
		found := b.get(t, store.BackfillKey{Tenant: b.tenant, Backfill: made.ID})
		require.Equal(t, backfill.Failed, found.State)
		require.Contains(t, found.Reason, "the next run cannot be planned")
		verifytest.Clean(t, b.db)
	})

	t.Run("missing and failed select by status", func(t *testing.T) {
		t.Parallel()
		b := setupBackfills(t)
		b.finish(t, b.create(t, backfill.Settings{Asset: "one/day", Partitions: []string{"date=2025-01"}, FailureThreshold: "100%"}), failingAt("2025-01-1"))
		missing := b.get(t, b.create(t, backfill.Settings{Asset: "one/day", Only: backfill.OnlyMissing, Partitions: []string{"date=2025-01-01..2025-02-28"}}))
		require.EqualValues(t, 10+28, missing.Total)
		failed := b.get(t, b.create(t, backfill.Settings{Asset: "one/day", Only: backfill.OnlyFailed}))
		require.EqualValues(t, 10, failed.Total)
	})
}

func TestBackfillRefuses(t *testing.T) {
	t.Parallel()
	b := setupBackfills(t)
	b.refused(t, backfill.Settings{}, "asset: is missing")
	b.refused(t, backfill.Settings{Asset: "raw/order"}, `unknown asset "raw/order"; did you mean raw/orders?`)
	b.refused(t, backfill.Settings{Asset: "gold/report"}, "asset gold/report has no partitions")
	b.refused(t, backfill.Settings{Asset: "raw/orders", Select: []string{"raw/orders", "gold/monthly"}}, "gold/monthly has the partitions month (monthly)")
	b.refused(t, backfill.Settings{Asset: "raw/orders", Partitions: []string{"day=2025-01-01"}}, `unknown dimension "day"`)
	b.refused(t, backfill.Settings{Asset: "raw/orders", Partitions: []string{"date=2025-02-01..2025-01-01"}}, "is reversed")
	b.refused(t, backfill.Settings{Asset: "raw/orders", Partitions: []string{"date=2025-01-01,region=mars"}}, `unknown value "mars" of region`)
	b.refused(t, backfill.Settings{Asset: "raw/orders", Partitions: []string{"date=2024-12-31"}}, "begins before the first partition")
	b.refused(t, backfill.Settings{Asset: "raw/orders", Only: backfill.OnlyStale}, "stale partitions are not known")
	b.refused(t, backfill.Settings{Asset: "one/day", Only: backfill.OnlyFailed}, "no partition in the range has failed")
	b.refused(t, backfill.Settings{Pipeline: "nightly"}, "unknown pipeline")
	_, err := b.CreateBackfill(t.Context(), engine.Backfill{Tenant: b.tenant, Workspace: "nowhere", Settings: backfill.Settings{Asset: "one/day"}})
	require.ErrorContains(t, err, "no workspace nowhere")
	require.True(t, fault.Is(b.PauseBackfill(t.Context(), store.BackfillKey{Tenant: b.tenant}, "", event.Meta{}), fault.NotFound))
}

func TestBackfillPreview(t *testing.T) {
	t.Parallel()
	b := setupBackfills(t)
	p, err := b.PreviewBackfill(t.Context(), engine.Backfill{Tenant: b.tenant, Settings: backfill.Settings{
		Pipeline: "orders", Partitions: []string{"date=2025-01-01..2025-12-31"}, Order: partition.NewestFirst,
	}})
	require.NoError(t, err)
	require.EqualValues(t, 3650, p.Partitions)
	require.EqualValues(t, 37, p.Runs)
	require.EqualValues(t, 7300, p.Tasks)
	require.Equal(t, `{"date":"2025-12-31","region":"r0"}`, p.First)
	require.Equal(t, `{"date":"2025-01-01","region":"r9"}`, p.Last)
	require.Equal(t, 2, p.Unknown)
	require.Equal(t, 7300*time.Second, p.Work, "a second for each task of an asset that never ran")
	require.Equal(t, p.Work/time.Duration(p.Parallel), p.ETA)
	require.Zero(t, b.db.Count(t, `SELECT count(*) FROM servo.backfills`))
}

// TestRunsWithoutPartitionsHaveNoStatus counts what a run without partitions sends and writes.
func TestRunsWithoutPartitionsHaveNoStatus(t *testing.T) {
	t.Parallel()
	b := setupBackfills(t)
	key := b.selected(t, "gold/report")
	b.drain(t, succeed)
	b.requireStates(t, key, run.RunSucceeded)
	for _, table := range []string{"partition_deltas", "partition_series", "partition_status", "backfills", "backfill_chunks"} {
		require.Zero(t, b.db.Count(t, fmt.Sprintf(`SELECT count(*) FROM servo.%s`, table)), table)
	}
	require.Zero(t, b.db.Count(t, `SELECT count(*) FROM servo.runs WHERE divided`))
}
