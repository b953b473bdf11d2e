package store_test

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"go.arco.dev/servo/internal/domain/run"
	"go.arco.dev/servo/internal/store"
)

func chunk(t run.Task, seq int64, text string) store.LogChunk {
	return store.LogChunk{TaskKey: keyOf(t), Token: t.Token, Seq: seq, At: t.Since, Text: text}
}

// attempt is what taskIn gives to every task.
const attempt = 5

// logs reads the whole log of an attempt.
func (w *world) logs(t testing.TB, task run.Task) (texts []string, seqs []int64, gap int64) {
	t.Helper()
	chunks, gap, err := w.Logs(t.Context(), keyOf(task), attempt, 0, 100_000)
	require.NoError(t, err)
	for _, c := range chunks {
		texts, seqs = append(texts, c.Text), append(seqs, c.Seq)
	}
	return texts, seqs, gap
}

func TestLogs(t *testing.T) {
	t.Parallel()
	setup := func(t *testing.T) (*world, run.Task) {
		t.Helper()
		w := newWorld(t)
		return w, w.newRun(t, w.account(t, "acme"), []run.TaskState{run.Running}, nil).tasks[0]
	}
	write := func(t *testing.T, w *world, chunks ...store.LogChunk) []bool {
		t.Helper()
		return must(w.WriteLogs(t.Context(), chunks))(t)
	}

	t.Run("chunks are read in the order of their numbers, however they came", func(t *testing.T) {
		t.Parallel()
		w, task := setup(t)
		require.Equal(t, []bool{true, true}, write(t, w, chunk(task, 3, "c"), chunk(task, 1, "a")))
		write(t, w, chunk(task, 2, "b"))
		texts, seqs, gap := w.logs(t, task)
		require.Equal(t, []string{"a", "b", "c"}, texts)
		require.Equal(t, []int64{1, 2, 3}, seqs)
		require.Zero(t, gap)

		chunks, _, err := w.Logs(t.Context(), keyOf(task), attempt, 1, 1)
		require.NoError(t, err)
		require.Equal(t, []store.KeptChunk{{Seq: 2, At: task.Since, Text: "b"}}, chunks, "a page after a chunk")
		chunks, _, err = w.Logs(t.Context(), keyOf(task), attempt+1, 0, 10)
		require.NoError(t, err)
		require.Empty(t, chunks, "another attempt has another log")
	})

	t.Run("a chunk without a time has the time when it came", func(t *testing.T) {
		t.Parallel()
		w, task := setup(t)
		noon := time.Date(2040, 1, 2, 12, 0, 0, 0, time.UTC)
		w.SetClock(t, noon)
		c := chunk(task, 1, "a")
		c.At = time.Time{}
		write(t, w, c)
		chunks, _, err := w.Logs(t.Context(), keyOf(task), attempt, 0, 1)
		require.NoError(t, err)
		require.Equal(t, noon, chunks[0].At)
	})

	t.Run("a repeat changes nothing, in one batch or in two", func(t *testing.T) {
		t.Parallel()
		w, task := setup(t)
		require.Equal(t, []bool{true, true}, write(t, w, chunk(task, 1, "first"), chunk(task, 1, "again")))
		require.Equal(t, []bool{true, true}, write(t, w, chunk(task, 1, "later"), chunk(task, 2, "new")))
		texts, _, _ := w.logs(t, task)
		require.Equal(t, []string{"first", "new"}, texts)
		require.Equal(t, len("first")+len("new")+2*100, w.Count(t, `SELECT kept FROM servo.attempt_logs`))
	})

	t.Run("only the holder of the token writes, and only under its own tenant", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t)
		mine := w.newRun(t, w.account(t, "acme"), []run.TaskState{run.Running, run.Ready}, nil, nil).tasks
		theirs := w.newRun(t, w.account(t, "brick"), []run.TaskState{run.Running}, nil).tasks[0]
		stale, unclaimed, foreign := chunk(mine[0], 1, "a"), chunk(mine[1], 1, "a"), chunk(theirs, 1, "a")
		stale.Token++
		foreign.Tenant = mine[0].Tenant
		require.Equal(t, []bool{false, false, false, true}, write(t, w, stale, unclaimed, foreign, chunk(mine[0], 1, "mine")))
		require.Equal(t, 1, w.Count(t, `SELECT count(*) FROM servo.task_logs`))
		require.Equal(t, 1, w.Count(t, `SELECT count(*) FROM servo.attempt_logs`))

		asked := keyOf(theirs)
		write(t, w, chunk(theirs, 1, "theirs"))
		asked.Tenant = mine[0].Tenant
		chunks, _, err := w.Logs(t.Context(), asked, attempt, 0, 10)
		require.NoError(t, err)
		require.Empty(t, chunks)
	})

	t.Run("of a long log the beginning and the end are kept, and the gap is marked", func(t *testing.T) {
		t.Parallel()
		w, task := setup(t)
		const size, all = 10_000 - 100, 300
		dropped := 0
		for first := int64(1); first <= all; first += 20 {
			var batch []store.LogChunk
			for seq := first; seq < first+20; seq++ {
				batch = append(batch, chunk(task, seq, strings.Repeat("x", size)))
			}
			write(t, w, batch...)
		}
		_, seqs, gap := w.logs(t, task)
		const half = store.MaxLogBytes / 2 / 10_000 // chunks
		require.Len(t, seqs, 2*half)
		require.EqualValues(t, half, seqs[half-1], "the head")
		require.EqualValues(t, all-half+1, seqs[half], "the tail")
		require.EqualValues(t, all, seqs[2*half-1])
		dropped = all - 2*half
		require.EqualValues(t, dropped*size, gap)
		require.LessOrEqual(t, w.Count(t, `SELECT sum(bytes) FROM servo.task_logs`), store.MaxLogBytes)
		require.Equal(t, 2*half*10_000, w.Count(t, `SELECT kept FROM servo.attempt_logs`))

		chunks, _, err := w.Logs(t.Context(), keyOf(task), attempt, half-1, 3)
		require.NoError(t, err)
		require.Equal(t, []int64{0, gap, 0}, []int64{chunks[0].Missing, chunks[1].Missing, chunks[2].Missing}, "where the gap is")
		chunks, _, err = w.Logs(t.Context(), keyOf(task), attempt, all-half+1, 1)
		require.NoError(t, err)
		require.Zero(t, chunks[0].Missing, "a reader that is past it")

		require.Equal(t, []bool{true}, write(t, w, chunk(task, half+5, "late")))
		_, again, after := w.logs(t, task)
		require.Equal(t, seqs, again, "what was dropped does not come back")
		require.Equal(t, gap, after, "nor is it counted twice")
	})

	t.Run("many small chunks are bounded too", func(t *testing.T) {
		t.Parallel()
		w, task := setup(t)
		batch := make([]store.LogChunk, 15_000)
		for i := range batch {
			batch[i] = chunk(task, int64(i+1), "x")
		}
		write(t, w, batch...)
		_, seqs, gap := w.logs(t, task)
		require.Equal(t, store.MaxLogBytes/2/101*2, len(seqs))
		require.EqualValues(t, 15_000-len(seqs), gap)
	})

	t.Run("servers that receive the same worker's chunks at once keep each chunk once", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t)
		tasks := w.newRun(t, w.account(t, "acme"), []run.TaskState{run.Running, run.Running, run.Running}, nil, nil, nil).tasks
		group, ctx := errgroup.WithContext(t.Context())
		for server := range 4 {
			group.Go(func() error {
				for round := range 10 {
					var batch []store.LogChunk
					for i := range 30 { // in another order each
						batch = append(batch, chunk(tasks[(i+server)%3], int64(round*10+(i*7+server)%10+1), "x"))
					}
					if _, err := w.WriteLogs(ctx, batch); err != nil {
						return err
					}
				}
				return nil
			})
		}
		require.NoError(t, group.Wait())
		for _, task := range tasks {
			_, seqs, _ := w.logs(t, task)
			require.Equal(t, len(seqs)*101, w.Count(t, `SELECT kept FROM servo.attempt_logs WHERE task_id = $1`, task.ID.UUID))
		}
	})

	t.Run("a run of every month that has partitions may log", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t)
		for _, table := range []string{"task_logs", "attempt_logs"} {
			require.Equal(t, w.Count(t, `SELECT count(*) FROM pg_inherits WHERE inhparent = 'servo.runs'::regclass`),
				w.Count(t, `SELECT count(*) FROM pg_inherits WHERE inhparent = $1::text::regclass`, "servo."+table))
		}
	})
}
