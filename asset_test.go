package servo_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"go.arco.dev/servo"
	"go.arco.dev/servo/client"
	"go.arco.dev/servo/internal/base/fault"
)

func TestAsset(t *testing.T) {
	t.Parallel()
	fine := func(context.Context, *servo.Task, servo.None) (servo.None, error) { return servo.None{}, nil }

	t.Run("mistakes in a program are reported at its start", func(t *testing.T) {
		t.Parallel()
		w := servo.NewWorker(servo.WorkerOptions{})
		servo.Asset(w, "gold/a", fine)
		require.PanicsWithValue(t, "servo: asset gold/a is registered twice", func() { servo.Asset(w, "gold/a", fine) })
		require.PanicsWithValue(t, "servo: the asset key is empty; use a key such as gold/revenue", func() { servo.Asset(w, "", fine) })
		require.PanicsWithValue(t, "servo: asset gold/b has no function", func() {
			servo.Asset[servo.None, servo.None](w, "gold/b", nil)
		})
		require.Equal(t, []string{"gold/a"}, w.Assets())
	})

	t.Run("what comes after the start of the worker is a mistake", func(t *testing.T) {
		t.Parallel()
		w := servo.NewWorker(servo.WorkerOptions{Server: "127.0.0.1:1"})
		w.Abort()
		require.NoError(t, w.Run(t.Context()))
		require.PanicsWithValue(t, "servo: asset gold/a is registered after the worker was started", func() { servo.Asset(w, "gold/a", fine) })
	})

	t.Run("invalid options are reported by Run", func(t *testing.T) {
		t.Parallel()
		require.True(t, client.Is(servo.NewWorker(servo.WorkerOptions{Server: "nonsense"}).Run(t.Context()), client.InvalidArgument))
		require.True(t, fault.Is(servo.NewWorker(servo.WorkerOptions{Concurrency: -1}).Run(t.Context()), fault.InvalidArgument))
	})
}

func TestError(t *testing.T) {
	t.Parallel()

	t.Run("an error with a code is still the error that it was", func(t *testing.T) {
		t.Parallel()
		err := fmt.Errorf("page 3: %w", servo.Fail(servo.NetworkError, io.ErrUnexpectedEOF))
		require.ErrorIs(t, err, io.ErrUnexpectedEOF)
		require.EqualError(t, err, "page 3: unexpected EOF")
		coded, ok := errors.AsType[*servo.Error](err)
		require.True(t, ok)
		require.Equal(t, servo.NetworkError, coded.Code)
	})

	t.Run("an error has at least its code", func(t *testing.T) {
		t.Parallel()
		require.EqualError(t, servo.Fail("OUT_OF_PAPER", nil), "OUT_OF_PAPER")
	})

	t.Run("a yield is found under what wraps it, and nothing else is one", func(t *testing.T) {
		t.Parallel()
		cursor, yielded := servo.YieldedAt(fmt.Errorf("wrapped: %w", servo.Yield("7")))
		require.True(t, yielded)
		require.Equal(t, "7", cursor)
		_, yielded = servo.YieldedAt(io.EOF)
		require.False(t, yielded)
		_, yielded = servo.YieldedAt(nil)
		require.False(t, yielded)
	})
}

func TestTestTask(t *testing.T) {
	t.Parallel()

	t.Run("it returns its input and records its calls", func(t *testing.T) {
		t.Parallel()
		task := servo.NewTestTask(servo.TestInput{
			Tenant: "acme", Asset: "gold/a", Partition: "eu", Cursor: "1",
			Results: map[string]any{"bronze/a": map[string]int{"n": 3}},
			Mapped:  map[string]map[string]any{"silver/p": {"b": 2, "a": 1}},
		})
		require.Equal(t, 1, task.Attempt)
		require.Equal(t, "1", task.Cursor())
		require.NoError(t, task.Advance(t.Context(), "2"))
		require.Equal(t, "2", task.Cursor())
		require.Equal(t, []string{"2"}, task.Cursors())

		got, err := servo.Upstream[struct{ N int }](t.Context(), task.Task, "bronze/a")
		require.NoError(t, err)
		require.Equal(t, 3, got.N)

		var parts []string
		for part, err := range servo.MappedResults[int](t.Context(), task.Task, "silver/p") {
			require.NoError(t, err)
			parts = append(parts, fmt.Sprint(part.Partition, part.Value))
		}
		require.Equal(t, []string{"a1", "b2"}, parts)

		eta := time.Unix(1e9, 0).UTC()
		task.Progress(servo.Progress{Phase: "LOAD", Bytes: 5, ETA: eta})
		require.Equal(t, []servo.Progress{{Phase: "LOAD", Bytes: 5, ETA: eta}}, task.Reported())
		task.Log().Debug("seen", "n", 1)
		require.Contains(t, task.Logged(), "msg=seen n=1")
		require.False(t, task.IsPartial())
	})

	t.Run("a result of another type is refused", func(t *testing.T) {
		t.Parallel()
		task := servo.NewTestTask(servo.TestInput{Results: map[string]any{"bronze/a": "text"}, Mapped: map[string]map[string]any{"silver/p": {"a": "x", "b": 2}}})
		_, err := servo.Upstream[int](t.Context(), task.Task, "bronze/a")
		coded, ok := errors.AsType[*servo.Error](err)
		require.True(t, ok)
		require.Equal(t, servo.SchemaViolation, coded.Code)
		require.ErrorContains(t, err, "the result of bronze/a cannot be decoded into int")

		rounds := 0
		for _, err := range servo.MappedResults[int](t.Context(), task.Task, "silver/p") {
			rounds++
			require.Error(t, err)
		}
		require.Equal(t, 1, rounds, "after an error there are no more")
	})

	t.Run("an upstream that the test has not given is missed", func(t *testing.T) {
		t.Parallel()
		_, err := servo.Upstream[int](t.Context(), servo.NewTestTask(servo.TestInput{}).Task, "bronze/a")
		require.ErrorContains(t, err, "the test has no result of upstream bronze/a")
	})
}
