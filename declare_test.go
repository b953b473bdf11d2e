package servo_test

import (
	"context"
	"encoding/json"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"go.arco.dev/servo"
	"go.arco.dev/servo/internal/domain/asset"
)

func nothing(context.Context, *servo.Task, servo.None) (servo.None, error) { return servo.None{}, nil }

// TestManifestOfDeclarations compares what options declare with the same manifest in YAML.
func TestManifestOfDeclarations(t *testing.T) {
	t.Parallel()
	w := servo.NewWorker(servo.WorkerOptions{})
	servo.Asset(w, "bronze/orders", nothing, servo.Writes(servo.CSV), servo.DailyPartitions("date", "2026-01-01"))
	servo.Asset(w, "gold/revenue", nothing,
		servo.Reads("bronze/orders"), servo.Description("Revenue."), servo.Pool("large"), servo.TimeLimit(2*time.Minute), servo.Tags("a"), servo.Owners("data"),
		servo.DailyPartitions("date", "2026-01-01", servo.Timezone("Europe/Berlin"), servo.EndOffset(-1)), servo.StaticPartitions("region", "eu", "us"),
		servo.MapPartitions("bronze/orders", "all"), servo.PartitionsPerTask(31),
		servo.Writes(servo.Parquet, servo.Column("id", "integer"), servo.Column("mail", "string"), servo.Sensitive("mail"), servo.Retain(3)),
		servo.Checks(
			servo.MinRows(1).OfInput("bronze/orders"), servo.RowsBetween(1, 9), servo.NotNull("id"), servo.Unique("id", "mail").Severity(servo.Warning),
			servo.Fresh("at", time.Hour), servo.Between("id", 0, nil), servo.OneOf("mail", "a", "b"), servo.Matches("mail", "@").Named("mails").Within(time.Minute),
			servo.ExistsIn("id", "bronze/orders", "id"), servo.NoRows("q", "SELECT 1 WHERE false"),
			servo.CheckedBy("balanced", func(context.Context, *servo.Task) error { return errors.New("off") }),
		),
		servo.Retry(servo.RetryPolicy{MaxAttempts: 5, InitialDelay: time.Second, RetryOn: []string{"X"}}))
	servo.Command(w, "gold/line", []string{"echo", "hi"}, servo.Reads("gold/revenue"), servo.DailyPartitions("date", "2026-01-01", servo.Timezone("Europe/Berlin"), servo.EndOffset(-1)), servo.StaticPartitions("region", "eu", "us"))
	w.AddPipeline(servo.Pipeline{
		Name: "p", Description: "All.", Select: []string{"+gold/line"}, MaxExecution: time.Hour, Priority: 7, AllowOverlap: true, Retry: &servo.RetryPolicy{MaxAttempts: 2},
		Parameters: []servo.Parameter{{Name: "n", Type: "integer", Default: 4}, {Name: "s", Type: "string", Required: true, Enum: []any{"x", "y"}}},
	})
	got, err := w.Manifest()
	require.NoError(t, err)

	written, err := asset.Parse([]byte(`
version: 1
assets:
  - {key: bronze/orders, go: {}, output: {format: csv}, partitions: [{dimension: date, kind: daily, start: 2026-01-01}]}
  - key: gold/revenue
    description: Revenue.
    upstream: [bronze/orders]
    pool: large
    timeout: 2m
    tags: [a]
    owners: [data]
    go: {}
    partitions:
      - {dimension: date, kind: daily, start: 2026-01-01, timezone: Europe/Berlin, end_offset: -1}
      - {dimension: region, kind: static, values: [eu, us]}
    partition_mapping: {bronze/orders: all}
    partitions_per_task: 31
    output: {format: parquet, schema: [{name: id, type: integer}, {name: mail, type: string}], sensitive: [mail], retain: 3}
    checks:
      - {type: row_count, min: 1, phase: PRE, input: bronze/orders}
      - {type: row_count, min: 1, max: 9}
      - {type: not_null, columns: [id]}
      - {type: unique, columns: [id, mail], severity: WARNING}
      - {type: freshness, column: at, max_age: 1h}
      - {type: range, column: id, min: 0}
      - {type: accepted_values, column: mail, values: [a, b]}
      - {type: regex, column: mail, pattern: "@", name: mails, timeout: 1m}
      - {type: referential, column: id, references: {asset: bronze/orders, column: id}}
      - {type: custom_sql, name: q, sql: SELECT 1 WHERE false}
      - {type: custom, name: balanced, function: gold/revenue/balanced}
    retry: {max_attempts: 5, initial_delay: 1s, retry_on: [X]}
  - key: gold/line
    upstream: [gold/revenue]
    exec: {command: [echo, hi]}
    partitions:
      - {dimension: date, kind: daily, start: 2026-01-01, timezone: Europe/Berlin, end_offset: -1}
      - {dimension: region, kind: static, values: [eu, us]}
pipelines:
  - name: p
    description: All.
    select: [+gold/line]
    max_execution: 1h
    priority: 7
    overlap: allow
    retry: {max_attempts: 2}
    parameters: [{name: n, type: integer, default: 4}, {name: s, type: string, required: true, enum: [x, y]}]
`), "servo.yaml")
	require.NoError(t, err)
	want, err := written.Canonical()
	require.NoError(t, err)
	require.JSONEq(t, string(want), string(got))

	again, err := w.Manifest()
	require.NoError(t, err)
	require.Equal(t, got, again, "the same declarations give the same bytes")
}

func TestDeclarationsAreValidated(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		declare func(w *servo.Worker)
		message string
	}{
		"an unknown upstream":    {func(w *servo.Worker) { servo.Asset(w, "a/b", nothing, servo.Reads("a/c")) }, "a/c"},
		"an asset twice":         {func(w *servo.Worker) { servo.Asset(w, "a/b", nothing); servo.Command(w, "a/b", []string{"x"}) }, "a/b"},
		"a check without output": {func(w *servo.Worker) { servo.Asset(w, "a/b", nothing, servo.Checks(servo.MinRows(1))) }, "checks the output, and the asset has none"},
		"a value that is not JSON": {func(w *servo.Worker) {
			servo.Asset(w, "a/b", nothing, servo.Writes(servo.CSV), servo.Checks(servo.OneOf("x", make(chan int))))
		}, "is not a scalar"},
		"a default of a wrong type": {func(w *servo.Worker) {
			servo.Asset(w, "a/b", nothing)
			w.AddPipeline(servo.Pipeline{Name: "p", Parameters: []servo.Parameter{{Name: "n", Type: "integer", Default: "x"}}})
		}, "default"},
		"a default that is not JSON": {func(w *servo.Worker) {
			servo.Asset(w, "a/b", nothing)
			w.AddPipeline(servo.Pipeline{Name: "p", Parameters: []servo.Parameter{{Name: "n", Type: "integer", Default: make(chan int)}}})
		}, "default of parameter n of pipeline p"},
		"a bad start": {func(w *servo.Worker) { servo.Asset(w, "a/b", nothing, servo.DailyPartitions("date", "yesterday")) }, "yesterday"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := servo.NewWorker(servo.WorkerOptions{})
			c.declare(w)
			manifest, err := w.Manifest()
			require.ErrorContains(t, err, c.message)
			require.Nil(t, manifest)
		})
	}

	t.Run("a registered function needs no options", func(t *testing.T) {
		t.Parallel()
		w := servo.NewWorker(servo.WorkerOptions{})
		servo.Asset(w, "a/b", nothing)
		manifest, err := w.Manifest()
		require.NoError(t, err)
		var m asset.Manifest
		require.NoError(t, json.Unmarshal(manifest, &m))
		require.Equal(t, "go:a/b", m.Assets[0].Capability())
	})
}
