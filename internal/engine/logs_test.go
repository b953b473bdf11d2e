package engine_test

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"go.arco.dev/servo/internal/base/fault"
	"go.arco.dev/servo/internal/devkit/servotest"
	"go.arco.dev/servo/internal/engine"
)

func TestLogs(t *testing.T) {
	t.Parallel()
	chunk := func(l engine.Lease, seq int64, text string) engine.LogChunk {
		return engine.LogChunk{TaskKey: l.TaskKey, Token: l.Token, Seq: seq, Text: text}
	}
	setup := func(t *testing.T) (*bundle, engine.Lease) {
		t.Helper()
		b := setup(t)
		b.trigger(t, "single")
		return b, b.one(t)
	}

	t.Run("what a worker sends can be read, as the log of its attempt", func(t *testing.T) {
		t.Parallel()
		b, l := setup(t)
		require.Equal(t, []error{nil, nil}, b.Logs(t.Context(), []engine.LogChunk{chunk(l, 1, "one\n"), chunk(l, 2, "two\n")}))
		require.Equal(t, []error{nil}, b.Logs(t.Context(), []engine.LogChunk{chunk(l, 1, "one\n")}), "a repeat")
		kept, gap, err := b.db.Logs(t.Context(), l.TaskKey, l.Attempt, 0, 10)
		require.NoError(t, err)
		require.Zero(t, gap)
		require.Len(t, kept, 2)
		require.Equal(t, "one\ntwo\n", kept[0].Text+kept[1].Text)
		require.False(t, kept[0].At.IsZero())
	})

	t.Run("once the attempt is over its worker is stale, and each chunk answers on its own", func(t *testing.T) {
		t.Parallel()
		b, l := setup(t)
		b.trigger(t, "single")
		other := b.one(t)
		b.report(t, l, engine.Complete{})
		errs := b.Logs(t.Context(), []engine.LogChunk{chunk(l, 1, "late"), chunk(other, 1, "fine"), chunk(other, 0, "x")})
		require.True(t, fault.Is(errs[0], fault.Stale), errs[0])
		require.NoError(t, errs[1])
		require.True(t, fault.Is(errs[2], fault.InvalidArgument), errs[2])
	})

	t.Run("what cannot be kept is refused by its field", func(t *testing.T) {
		t.Parallel()
		b, l := setup(t)
		early := chunk(l, 1, "x")
		early.At = time.Date(1, 2, 3, 0, 0, 0, 0, time.UTC)
		for field, wrong := range map[string]engine.LogChunk{
			"seq": chunk(l, 0, "x"), "text: is empty": chunk(l, 1, ""), "text: has 65537 bytes": chunk(l, 1, strings.Repeat("x", engine.MaxChunkBytes+1)),
			"text: is not valid UTF-8": chunk(l, 1, "\xff"), "text: contains a zero byte": chunk(l, 1, "a\x00"), "at": early,
		} {
			field, message, _ := strings.Cut(field, ": ")
			err := b.Logs(t.Context(), []engine.LogChunk{wrong})[0]
			require.ErrorContains(t, err, message)
			f, ok := fault.As(err)
			require.True(t, ok, err)
			require.Equal(t, field, f.Field)
		}
		require.NoError(t, b.Logs(t.Context(), []engine.LogChunk{chunk(l, 1, strings.Repeat("x", engine.MaxChunkBytes))})[0])

		errs := b.Logs(t.Context(), make([]engine.LogChunk, engine.MaxLogChunks+1))
		require.Len(t, errs, engine.MaxLogChunks+1)
		require.True(t, fault.Is(errs[engine.MaxLogChunks], fault.LimitExceeded))
		require.Empty(t, b.Logs(t.Context(), nil))
	})

	t.Run("a call as large as may be is taken in several transactions", func(t *testing.T) {
		t.Parallel()
		b := setupOn(t, servotest.DB(t), engine.Config{LogRates: engine.LogRates{AttemptBurst: 1 << 30, TenantBurst: 1 << 30}})
		b.trigger(t, "single")
		l := b.one(t)
		chunks := make([]engine.LogChunk, 400)
		for i := range chunks {
			chunks[i] = chunk(l, int64(i+1), strings.Repeat("x", engine.MaxChunkBytes))
		}
		before := b.db.Stats().Transactions
		for _, err := range b.Logs(t.Context(), chunks) {
			require.NoError(t, err)
		}
		require.GreaterOrEqual(t, b.db.Stats().Transactions-before, int64(3))
		kept, gap, err := b.db.Logs(t.Context(), l.TaskKey, l.Attempt, 0, 1000)
		require.NoError(t, err)
		require.EqualValues(t, (400-len(kept))*engine.MaxChunkBytes, gap)
	})
}
