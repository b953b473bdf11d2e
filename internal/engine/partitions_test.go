package engine_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"go.arco.dev/servo/internal/base/fault"
	"go.arco.dev/servo/internal/devkit/servotest/verifytest"
	"go.arco.dev/servo/internal/domain/run"
	"go.arco.dev/servo/internal/engine"
	"go.arco.dev/servo/internal/store"
)

const dividedText = `
version: 1
assets:
  - {key: a/raw, go: {}, partitions: [{dimension: date, kind: daily, start: "2020-01-01"}]}
  - {key: b/clean, go: {}, upstream: [a/raw], partitions: [{dimension: date, kind: daily, start: "2020-01-01"}]}
  - {key: c/sum, go: {}, upstream: [b/clean], partitions: [{dimension: date, kind: daily, start: "2020-01-01"}], partitions_per_task: 31}
  - {key: d/total, go: {}, upstream: [b/clean, e/rates]}
  - {key: e/rates, go: {}}
  - {key: f/each, go: {}, upstream: [a/raw], partition_mapping: {a/raw: all}, partitions: [{dimension: date, kind: daily, start: "2020-01-01"}]}
pipelines:
  - {name: chain, overlap: allow, select: [a/raw, b/clean, d/total]}
  - {name: sums, overlap: allow, select: [b/clean, c/sum]}
  - {name: all, overlap: allow, select: [a/raw, f/each]}
  - {name: rates, overlap: allow, select: [e/rates]}
`

func (b *bundle) triggerPartitions(t testing.TB, pipeline string, partitions ...string) store.RunKey {
	t.Helper()
	triggered, err := b.TriggerRun(t.Context(), engine.Trigger{Tenant: b.tenant, Pipeline: pipeline, Partitions: partitions, Meta: engineMeta})
	require.NoError(t, err)
	return store.RunKey{Tenant: b.tenant, Run: triggered.Run}
}

func titlesOf(tasks []store.TaskView) (titles []string) {
	for _, task := range tasks {
		titles = append(titles, task.Asset+" "+task.Partition)
	}
	slices.Sort(titles)
	return titles
}

func TestPartitions(t *testing.T) {
	t.Parallel()

	t.Run("a retry of a run with 100 partitions repeats the three that failed, and what depends on them", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		b.deploy(t, dividedText)
		b.drain(t, succeed)
		rates := b.triggerPartitions(t, "rates")
		b.drain(t, succeed)
		b.requireStates(t, rates, run.RunSucceeded)
		parent := b.triggerPartitions(t, "chain", "date=2020-01-01..2020-04-09")
		require.Len(t, b.tasks(t, parent), 201)
		days := []string{`{"date":"2020-01-03"}`, `{"date":"2020-02-29"}`, `{"date":"2020-04-09"}`}
		b.drain(t, func(l engine.Lease) engine.Action {
			require.Equal(t, []string{l.Partition}, l.Partitions)
			if l.Asset == "a/raw" && slices.Contains(days, l.Partition) {
				return fatal
			}
			if l.Asset == "b/clean" {
				require.Len(t, l.Upstream, 1)
				require.Equal(t, l.Partition, l.Upstream[0].Partition)
			}
			return engine.Complete{}
		})
		state, _ := b.states(t, parent)
		require.Equal(t, run.RunFailed, state)

		child := b.retry(t, parent, engine.RetryFailed)
		want := []string{"d/total "}
		for _, day := range days {
			want = append(want, "a/raw "+day, "b/clean "+day)
		}
		slices.Sort(want)
		require.Equal(t, want, titlesOf(b.tasks(t, child)))
		inputs := 0
		b.drain(t, func(l engine.Lease) engine.Action {
			if l.Asset == "d/total" {
				inputs = len(l.Upstream)
			}
			return engine.Complete{}
		})
		require.Equal(t, 101, inputs, "three of this run, 97 of its parent, and the rates")
		state, _ = b.states(t, child)
		require.Equal(t, run.RunSucceeded, state)
		verifytest.Clean(t, b.db)
	})

	t.Run("a range is one task", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		b.deploy(t, dividedText)
		key := b.triggerPartitions(t, "sums", "date=2020-01-01..2020-02-05")
		tasks := b.tasks(t, key)
		require.Len(t, tasks, 36+2)
		ranges := map[string]int{}
		b.drain(t, func(l engine.Lease) engine.Action {
			if l.Asset == "c/sum" {
				ranges[l.Partition] = len(l.Partitions)
				require.Equal(t, len(l.Partitions), len(l.Upstream))
				return fatal
			}
			return engine.Complete{}
		})
		require.Equal(t, map[string]int{`{"date":"2020-01-01..2020-01-31"}`: 31, `{"date":"2020-02-01..2020-02-05"}`: 5}, ranges)
		child := b.retry(t, key, engine.RetryFailed)
		require.Equal(t, []string{`c/sum {"date":"2020-01-01..2020-01-31"}`, `c/sum {"date":"2020-02-01..2020-02-05"}`}, titlesOf(b.tasks(t, child)))
		b.drain(t, func(l engine.Lease) engine.Action {
			require.Equal(t, len(l.Partitions), len(l.Upstream), "inherited")
			return engine.Complete{}
		})
		verifytest.Clean(t, b.db)
	})

	t.Run("all waits on one barrier", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		b.deploy(t, dividedText)
		key := b.triggerPartitions(t, "all", "date=2020-01-01..2020-02-09")
		tasks := b.tasks(t, key)
		require.Len(t, tasks, 81)
		done := 0
		b.drain(t, func(l engine.Lease) engine.Action {
			require.NotEqual(t, "*", l.Partition)
			if l.Asset == "a/raw" {
				done++
			} else {
				require.Equal(t, 40, done)
			}
			return engine.Complete{}
		})
		state, _ := b.states(t, key)
		require.Equal(t, run.RunSucceeded, state)
		verifytest.Clean(t, b.db)

		failed := b.triggerPartitions(t, "all", "date=2020-01-01..2020-02-09")
		b.drain(t, failing(`a/raw@{"date":"2020-01-07"}`))
		for _, task := range b.tasks(t, failed) {
			if task.Asset == "f/each" || task.Partition == "*" {
				require.Equal(t, run.Skipped, task.State)
			}
		}
		child := b.retry(t, failed, engine.RetryFailed)
		require.Len(t, b.tasks(t, child), 41)
		b.drain(t, succeed)
		state, _ = b.states(t, child)
		require.Equal(t, run.RunSucceeded, state)
		verifytest.Clean(t, b.db)
	})

	t.Run("refusals create nothing", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		b.deploy(t, dividedText)
		for partitions, want := range map[string]string{
			"":                            "asset a/raw has partitions: date (daily)",
			"region=eu":                   `unknown dimension "region"`,
			"day=2020-01-01":              `unknown dimension "day"`,
			"date=x":                      `"x" is not a value of date`,
			"date=2020-03-01..2020-01-01": "is reversed",
			"date=2019-12-31":             "begins before the first partition 2020-01-01",
			"date=2150-01-01":             "ends in the future",
			"date=2020-01-01..":           "the limit is 10000",
		} {
			_, err := b.TriggerRun(t.Context(), engine.Trigger{Tenant: b.tenant, Pipeline: "chain", Partitions: strings.Fields(partitions), Meta: engineMeta})
			if partitions == "date=2020-01-01.." { // depends on the day: some 5,000 tasks
				if err == nil {
					continue
				}
			}
			f, ok := fault.As(err)
			require.True(t, ok, "%s: %v", partitions, err)
			require.ErrorContains(t, err, want)
			require.NotEmpty(t, f.Violation.Remedy)
			require.True(t, strings.HasPrefix(f.Violation.Field, "partitions"), f.Violation.Field)
		}
		_, err := b.TriggerRun(t.Context(), engine.Trigger{Tenant: b.tenant, Pipeline: "rates", Partitions: []string{"date=2020-01-01"}, Meta: engineMeta})
		require.ErrorContains(t, err, "no selected asset has partitions")
		_, err = b.TriggerRun(t.Context(), engine.Trigger{Tenant: b.tenant, Pipeline: "chain", Partitions: slices.Repeat([]string{"date=2020-01-01"}, 101), Meta: engineMeta})
		require.ErrorContains(t, err, "has 101 entries, the limit is 100")
	})

	t.Run("a scheme that has changed is not retried", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		b.deploy(t, dividedText)
		key := b.triggerPartitions(t, "sums", "date=2020-01-01")
		b.drain(t, failing("b/clean"))
		b.deploy(t, strings.ReplaceAll(dividedText, "dimension: date", "dimension: day"))
		err := b.retryError(t, key, engine.RetryFailed)
		require.True(t, fault.Is(err, fault.Conflict))
		require.ErrorContains(t, err, fmt.Sprintf("has no partition %q any more", `{"date":"2020-01-01"}`))
	})
}

// TestRunsWithoutPartitionsCostNothing compares the statements and rows of a run without partitions in
// a deployment with partitioned assets to those in one without.
func TestRunsWithoutPartitionsCostNothing(t *testing.T) {
	t.Parallel()
	before, _, found := strings.Cut(dividedText, "  - {key: a/raw")
	require.True(t, found)
	plain := before + "  - {key: e/rates, go: {}}\npipelines:\n  - {name: rates, overlap: allow, select: [e/rates]}\n"
	count := func(manifest string) (statements int64, rows int) {
		b := setup(t)
		b.deploy(t, manifest)
		b.triggerPartitions(t, "rates") // caches the deployment
		before := b.db.Stats().Statements
		b.triggerPartitions(t, "rates")
		statements = b.db.Stats().Statements - before
		return statements, b.db.Count(t, `SELECT count(*) FROM servo.tasks WHERE first_ordinal IS NOT NULL`)
	}
	without, _ := count(plain)
	with, rows := count(dividedText)
	require.Equal(t, without, with)
	require.Zero(t, rows)
}
