package shards_test

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"go.arco.dev/servo"
	"go.arco.dev/servo/examples/shards"
	"go.arco.dev/servo/internal/domain/asset"
	"go.arco.dev/servo/internal/domain/plan"
)

func params() shards.Params { return shards.Params{Table: "orders", Shards: 5} }

func codeOf(t *testing.T, err error) string {
	t.Helper()
	var failure *servo.Error
	require.True(t, errors.As(err, &failure), "%v", err)
	return failure.Code
}

func TestManifest(t *testing.T) {
	t.Parallel()
	declared, err := shards.Manifest()
	require.NoError(t, err)
	m, err := asset.Parse(declared, "manifest.json")
	require.NoError(t, err)

	t.Run("every asset has its function, and its tasks go to the pools of the worker", func(t *testing.T) {
		t.Parallel()
		w := servo.NewWorker(servo.WorkerOptions{})
		shards.Register(w)
		var handlers []string
		for _, a := range m.Assets {
			require.NotNil(t, a.Go, a.Key)
			require.Contains(t, shards.Pools(), a.Pool, a.Key)
			require.Equal(t, a.Key == "shards/scan", a.Pool == shards.Pool, "only scans are many")
			require.NotEmpty(t, a.Owners, a.Key)
			handlers = append(handlers, cmp.Or(a.Go.Handler, a.Key))
		}
		require.ElementsMatch(t, w.Assets(), handlers)
	})

	t.Run("the pipeline plans without parameters: split and join, and the shards come later", func(t *testing.T) {
		t.Parallel()
		made, err := plan.New(m, plan.Request{Pipeline: shards.Pipeline})
		require.NoError(t, err)
		require.Equal(t, []string{"shards/split", "shards/join"}, made.Keys())
		var p shards.Params
		require.NoError(t, json.Unmarshal(made.Parameters, &p))
		require.Equal(t, shards.Params{Table: "orders", Shards: 40, WorkMS: 1000}, p)
	})

	t.Run("runs do not wait for each other: a queue is to grow", func(t *testing.T) {
		t.Parallel()
		p, known := m.Pipeline(shards.Pipeline)
		require.True(t, known)
		require.Equal(t, asset.OverlapAllow, p.Overlap)
	})
}

// scans does what shards/split and the tasks that it adds do.
func scans(t *testing.T, p shards.Params) (whole shards.Splitting, found map[string]any) {
	t.Helper()
	splitting := servo.NewTestTask(servo.TestInput{})
	whole, err := shards.Split(t.Context(), splitting.Task, p)
	require.NoError(t, err)
	require.Len(t, splitting.FanOuts(), 1)
	require.True(t, splitting.FanOuts()[0].Barrier)
	found = map[string]any{}
	for _, piece := range splitting.FanOuts()[0].Tasks {
		require.Equal(t, "shards/scan", piece.Asset)
		scanning := servo.NewTestTask(servo.TestInput{Partition: piece.Partition})
		found[piece.Partition], err = shards.Scan(t.Context(), scanning.Task, p)
		require.NoError(t, err)
		last := scanning.Reported()[len(scanning.Reported())-1]
		require.InDelta(t, 1, last.Fraction, 0)
		require.Equal(t, found[piece.Partition].(shards.Found).Rows, last.RecordsExtracted) //nolint:forcetypeassert // just made
		require.Contains(t, scanning.Logged(), "shard="+piece.Partition)
	}
	return whole, found
}

func TestShards(t *testing.T) {
	t.Parallel()

	t.Run("a table is scanned in as many shards as asked for, and the report adds up", func(t *testing.T) {
		t.Parallel()
		whole, found := scans(t, params())
		require.Len(t, found, 5)
		joining := servo.NewTestTask(servo.TestInput{
			Results: map[string]any{"shards/split": whole}, Mapped: map[string]map[string]any{"shards/scan": found},
		})
		report, err := shards.Join(t.Context(), joining.Task, params())
		require.NoError(t, err)
		require.Equal(t, 5, report.Shards)
		var rows int64
		for _, f := range found {
			rows += f.(shards.Found).Rows //nolint:forcetypeassert // made above
		}
		require.Equal(t, rows, report.Rows)
		for _, f := range found {
			require.LessOrEqual(t, f.(shards.Found).Rows, found[report.Largest].(shards.Found).Rows) //nolint:forcetypeassert // made above
		}
	})

	t.Run("a shard holds the same every time, in another table something else", func(t *testing.T) {
		t.Parallel()
		_, first := scans(t, params())
		_, again := scans(t, params())
		require.Equal(t, first, again)
		other := params()
		other.Table = "customers"
		_, others := scans(t, other)
		require.NotEqual(t, first, others)
	})

	t.Run("a shard that is missing is no report", func(t *testing.T) {
		t.Parallel()
		whole, found := scans(t, params())
		delete(found, "0003")
		joining := servo.NewTestTask(servo.TestInput{
			Results: map[string]any{"shards/split": whole}, Mapped: map[string]map[string]any{"shards/scan": found},
		})
		_, err := shards.Join(t.Context(), joining.Task, params())
		require.Equal(t, servo.MissingInput, codeOf(t, err))
	})

	t.Run("numbers that make no sense are final", func(t *testing.T) {
		t.Parallel()
		for _, p := range []shards.Params{{Shards: 0}, {Shards: 1001}, {Shards: 1, WorkMS: -1}, {Shards: 1, WorkMS: 60_001}} {
			_, err := shards.Split(t.Context(), servo.NewTestTask(servo.TestInput{}).Task, p)
			require.Equal(t, servo.InvalidConfiguration, codeOf(t, err))
			_, err = shards.Scan(t.Context(), servo.NewTestTask(servo.TestInput{}).Task, p)
			require.Equal(t, servo.InvalidConfiguration, codeOf(t, err))
		}
	})

	t.Run("a cancelled scan ends with the reason", func(t *testing.T) {
		t.Parallel()
		ctx, cancel := context.WithCancelCause(t.Context())
		cancel(servo.ErrCancelled)
		slow := params()
		slow.WorkMS = 60_000
		_, err := shards.Scan(ctx, servo.NewTestTask(servo.TestInput{}).Task, slow)
		require.ErrorIs(t, err, servo.ErrCancelled)
	})
}
