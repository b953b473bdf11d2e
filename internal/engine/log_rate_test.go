package engine_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"go.arco.dev/servo/internal/devkit/servotest"
	"go.arco.dev/servo/internal/engine"
	"go.arco.dev/servo/internal/store"
)

// TestLogRates holds that a worker which floods its log fills neither the table nor the disk.
func TestLogRates(t *testing.T) {
	t.Parallel()
	const chunkBytes = 60 << 10
	text := strings.Repeat(strings.Repeat("x", 99)+"\n", chunkBytes/100)
	flood := func(t *testing.T, b *bundle, l engine.Lease, chunks int) {
		t.Helper()
		for seq := 1; seq <= chunks; seq += 10 {
			batch := make([]engine.LogChunk, 10)
			for i := range batch {
				batch[i] = engine.LogChunk{TaskKey: l.TaskKey, Token: l.Token, Seq: int64(seq + i), Text: text}
			}
			for _, err := range b.Logs(t.Context(), batch) {
				require.NoError(t, err)
			}
		}
	}

	t.Run("an attempt beyond its rate is dropped before it is stored, and the log reports it", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		b.trigger(t, "single")
		l := b.one(t)
		flood(t, b, l, 500) // 30 MB
		kept, _, err := b.db.Logs(t.Context(), l.TaskKey, l.Attempt, 0, 1000)
		require.NoError(t, err)
		var whole strings.Builder
		for _, c := range kept {
			whole.WriteString(c.Text)
		}
		require.Contains(t, whole.String(), "WARN servo drops log lines of this attempt: more than 16384 bytes a second\n")
		require.Less(t, b.db.Count(t, `SELECT sum(pg_total_relation_size(inhrelid))::bigint FROM pg_inherits WHERE inhparent = 'servo.task_logs'::regclass`), 8*store.MaxLogBytes)
	})

	t.Run("what was dropped is counted when the attempt has slowed down", func(t *testing.T) {
		t.Parallel()
		b := setupOn(t, servotest.DB(t), engine.Config{LogRates: engine.LogRates{AttemptBurst: chunkBytes, AttemptRate: 1 << 30}})
		b.trigger(t, "single")
		l := b.one(t)
		send := func(seq int64, text string) {
			require.Equal(t, []error{nil}, b.Logs(t.Context(), []engine.LogChunk{{TaskKey: l.TaskKey, Token: l.Token, Seq: seq, Text: text}}))
		}
		send(1, strings.Repeat("y", chunkBytes+1)) // more than there ever is at once
		send(2, strings.Repeat("y", chunkBytes+1))
		send(3, "after\n")
		kept, _, err := b.db.Logs(t.Context(), l.TaskKey, l.Attempt, 0, 10)
		require.NoError(t, err)
		require.Len(t, kept, 2)
		require.Contains(t, kept[0].Text, "WARN servo drops log lines of this attempt")
		require.Regexp(t, `WARN servo dropped 122882 bytes of this attempt's log: .*\nafter\n$`, kept[1].Text)
	})

	t.Run("the attempts of a tenant share a rate, and other tenants have their own", func(t *testing.T) {
		t.Parallel()
		b := setupOn(t, servotest.DB(t), engine.Config{LogRates: engine.LogRates{TenantBurst: 2 * chunkBytes, TenantRate: 1}})
		b.trigger(t, "single")
		first := b.one(t)
		b.trigger(t, "single")
		second := b.one(t)
		flood(t, b, first, 10)
		flood(t, b, second, 10)
		require.LessOrEqual(t, b.db.Count(t, `SELECT sum(bytes) FROM servo.task_logs`), 2*chunkBytes+2*200)
		require.Equal(t, 2, b.db.Count(t, `SELECT count(*) FROM servo.task_logs WHERE text LIKE '%servo drops log lines%'`))
	})
}
