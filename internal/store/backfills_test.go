package store_test

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"go.arco.dev/servo/internal/base/event"
	"go.arco.dev/servo/internal/base/fault"
	"go.arco.dev/servo/internal/base/id"
	"go.arco.dev/servo/internal/domain/backfill"
	"go.arco.dev/servo/internal/domain/partition"
	"go.arco.dev/servo/internal/domain/run"
	"go.arco.dev/servo/internal/store"
)

// backfill makes a backfill of 250 days: three chunks.
func (w *world) backfill(t testing.TB, a account) backfill.Backfill {
	t.Helper()
	s := backfill.Settings{Asset: "asset", Select: []string{"asset"}, MaxConcurrentRuns: 2}.WithDefaults()
	begun := event.Event{
		Tenant: a.tenant, Subject: id.New[id.Backfill](w.mint).UUID, Version: 1, At: w.now, Meta: event.Meta{Actor: "jo"},
		Body: backfill.Created{Workspace: a.workspace.ID, Settings: s, Set: partition.NewSet("", partition.Range{First: 1, Last: 250})},
	}
	b, err := backfill.Backfill{}.Evolve(begun)
	require.NoError(t, err)
	w.engine(t, func(tx *Tx) {
		require.NoError(t, tx.InsertBackfill(t.Context(), b))
		require.NoError(t, tx.AppendEntityEvents(t.Context(), begun))
	})
	return b
}

func keyOfBackfill(b backfill.Backfill) store.BackfillKey {
	return store.BackfillKey{Tenant: b.Tenant, Backfill: b.ID}
}

func TestBackfillRows(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	w := newWorld(t)
	a, other := w.account(t, "acme"), w.account(t, "other")
	b := w.backfill(t, a)
	g := w.newRun(t, a, []run.TaskState{run.Queued}, nil)
	key := keyOfBackfill(b)
	chunk := store.Chunk{BackfillKey: key, Round: 0, Number: 0, Run: g.run.ID}

	startable, open, err := w.BackfillWork(ctx)
	require.NoError(t, err)
	require.True(t, startable)
	require.False(t, open)

	w.engine(t, func(tx *Tx) {
		require.Equal(t, []store.BackfillKey{key}, must(tx.StartableBackfills(ctx, 10))(t))
		locked := must(tx.LockBackfills(ctx, []store.BackfillKey{key}))(t)
		require.Equal(t, []backfill.Backfill{b}, locked)
		require.Equal(t, map[id.Workspace]string{a.workspace.ID: "default"}, must(tx.WorkspaceNames(ctx, locked))(t))
		require.NoError(t, tx.BackfillWaits(ctx, key, "a quota"))
	})
	require.Equal(t, "a quota", must(w.GetBackfill(ctx, key))(t).WaitsFor)
	_, err = w.GetBackfill(ctx, store.BackfillKey{Tenant: other.tenant, Backfill: b.ID})
	require.True(t, fault.Is(err, fault.NotFound), "of another tenant")

	after := b
	after.State, after.Version, after.Next, after.Open = backfill.Running, 2, 1, 1
	w.engine(t, func(tx *Tx) {
		require.NoError(t, tx.InsertChunk(ctx, chunk, w.now))
		require.NoError(t, tx.UpdateBackfill(ctx, b, after))
		require.ErrorContains(t, tx.UpdateBackfill(ctx, b, after), "was not locked", "the version guards the row")
		require.Empty(t, must(tx.EndedChunks(ctx, 10))(t), "its run is live")
		usage := must(tx.CountUsage(ctx, []store.UsageQuestion{{Tenant: a.tenant, Backfills: 10}}))(t)
		require.EqualValues(t, 1, usage[a.tenant].Backfills)
	})
	require.Error(t, w.Engine(ctx, func(ctx context.Context, tx *Tx) error {
		again := chunk
		again.Run = id.New[id.Run](w.mint)
		return tx.InsertChunk(ctx, again, w.now)
	}), "a chunk has one run")
	found := must(w.GetBackfill(ctx, key))(t)
	require.Equal(t, after, found.Backfill)
	require.Empty(t, found.WaitsFor)
	require.EqualValues(t, 3, found.Chunks)

	runs := must(w.ListBackfillRuns(ctx, key, 1<<30, 0, 10))(t)
	require.Len(t, runs, 1)
	require.Equal(t, g.run.ID, runs[0].Run)
	require.Empty(t, must(w.ListBackfillRuns(ctx, key, 0, 0, 10))(t))
	of, known, err := w.BackfillOfRun(ctx, g.key())
	require.NoError(t, err)
	require.True(t, known)
	require.Equal(t, chunk, of)
	_, known, err = w.BackfillOfRun(ctx, store.RunKey{Tenant: a.tenant, Run: id.Of[id.Run](uuid.New())})
	require.NoError(t, err)
	require.False(t, known)

	listed := must(w.ListBackfills(ctx, store.BackfillFilter{Tenant: a.tenant, Workspace: "default", Asset: "asset", States: []backfill.State{backfill.Running}}, 10))(t)
	require.Len(t, listed, 1)
	require.True(t, listed[0].Set.Empty(), "a list has no sets")
	require.Empty(t, must(w.ListBackfills(ctx, store.BackfillFilter{Tenant: a.tenant, Before: b.ID}, 10))(t))
	require.Empty(t, must(w.ListBackfills(ctx, store.BackfillFilter{Tenant: other.tenant}, 10))(t))

	w.Exec(t, `UPDATE servo.backfills SET state = 12, reason = 'wrong'`)
	require.Equal(t, []store.CancelledChunk{{RunKey: g.key(), Reason: "wrong"}}, must(w.ChunksToCancel(ctx, 10))(t))
	w.Exec(t, `DELETE FROM servo.live_runs`)
	w.engine(t, func(tx *Tx) {
		require.Equal(t, []store.Chunk{chunk}, must(tx.EndedChunks(ctx, 10))(t))
		require.True(t, must(tx.EndChunk(ctx, chunk, 2, 1, w.now))(t))
		require.False(t, must(tx.EndChunk(ctx, chunk, 2, 1, w.now))(t), "once")
		facts := must(tx.BackfillFacts(ctx, a.tenant, []string{"asset"}, time.Minute))(t)
		require.Equal(t, 100, facts.MaxTasks)
		require.InDelta(t, 1, facts.Share, 0)
	})
}

// end makes a run with one task of a range that has ended, and records its end.
func (w *world) end(t testing.TB, a account, series string, r partition.Range, succeeded bool) store.RunKey {
	t.Helper()
	g := w.newRun(t, a, []run.TaskState{run.Running}, nil)
	w.Exec(t, `UPDATE servo.tasks SET series = '`+series+`', first_ordinal = `+fmt.Sprint(r.First)+`, last_ordinal = `+fmt.Sprint(r.Last)+` WHERE run_id = '`+g.run.ID.String()+`'`)
	w.apply(t, store.Changes{PartitionEnds: []store.PartitionEnd{{TaskKey: keyOf(g.tasks[0]), Workspace: a.workspace.ID, Succeeded: succeeded}}})
	return g.key()
}

func TestPartitionStatus(t *testing.T) {
	t.Parallel()

	t.Run("deltas are folded in their order, into rows of 16,384 ordinals", func(t *testing.T) {
		t.Parallel()
		ctx := t.Context()
		w := newWorld(t)
		a, other := w.account(t, "acme"), w.account(t, "other")
		of := store.PartitionedAsset{Tenant: a.tenant, Workspace: a.workspace.ID, Asset: "asset"}
		w.end(t, a, "eu", partition.Range{First: -3, Last: 40_000}, true)
		w.end(t, a, "eu", partition.Range{First: 10, Last: 20}, false)
		last := w.end(t, a, "eu", partition.Range{First: 12, Last: 13}, true)
		w.end(t, a, "us", partition.Range{First: 5, Last: 5}, false)
		check := func(when string) {
			status, running, err := w.PartitionStatus(ctx, of)
			require.NoError(t, err)
			require.Equal(t, partition.Ranges{{First: -3, Last: 40_000}}, status.Succeeded.Ranges("eu"), when)
			require.Equal(t, partition.Ranges{{First: 10, Last: 11}, {First: 14, Last: 20}}, status.Failed.Ranges("eu"), when)
			require.Equal(t, partition.Ranges{{First: 5, Last: 5}}, status.Failed.Ranges("us"), when)
			require.False(t, running.Empty(), "the test leaves leases")
		}
		check("before they are folded")
		require.Equal(t, 4, must(w.FoldPartitionDeltas(ctx, 100))(t))
		require.Zero(t, must(w.FoldPartitionDeltas(ctx, 100))(t))
		check("afterwards")
		require.Equal(t, 5, w.Count(t, `SELECT count(*) FROM servo.partition_status`), "four of eu, one of us")
		status, _, err := w.PartitionStatus(ctx, store.PartitionedAsset{Tenant: other.tenant, Workspace: other.workspace.ID, Asset: "asset"})
		require.NoError(t, err)
		require.True(t, status.Succeeded.Empty())

		w.Exec(t, `UPDATE servo.tasks SET state = 11, outcome = 1, finished_at = now(), version = 1, attempt = 1, failures = 1, fan_outs = 0, token = 1 WHERE run_id = '`+last.Run.String()+`'`)
		w.engine(t, func(tx *Tx) {
			ends := must(tx.PartitionEnds(ctx, last))(t)
			require.EqualValues(t, 2, ends.Failed.Count())
			require.EqualValues(t, 2, ends.Covered.Count())
			var wrong []store.StatusDifference
			require.NoError(t, tx.WrongPartitionStatus(ctx, &a.tenant, func(d store.StatusDifference) error { wrong = append(wrong, d); return nil }))
			require.Len(t, wrong, 1, "the task failed, the status has its success")
			require.Equal(t, "failed", wrong[0].Column)
			require.EqualValues(t, 2, wrong[0].Count)
		})
	})

	t.Run("a series that another transaction folds is left to it", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t)
		a := w.account(t, "acme")
		w.end(t, a, "eu", partition.Range{First: 1, Last: 1}, true)
		require.Equal(t, 1, must(w.FoldPartitionDeltas(t.Context(), 10))(t))
		w.end(t, a, "eu", partition.Range{First: 1, Last: 1}, true)
		held := w.hold(t, func(ctx context.Context, tx *Tx) error {
			_, err := tx.FoldPartitionDeltas(ctx, 10)
			return err
		})
		w.end(t, a, "eu", partition.Range{First: 1, Last: 1}, false)
		require.Zero(t, must(w.FoldPartitionDeltas(t.Context(), 10))(t))
		held.commit(t)
		require.Equal(t, 1, must(w.FoldPartitionDeltas(t.Context(), 10))(t))
		status, _, err := w.PartitionStatus(t.Context(), store.PartitionedAsset{Tenant: a.tenant, Workspace: a.workspace.ID, Asset: "asset"})
		require.NoError(t, err)
		require.EqualValues(t, 1, status.Failed.Count())
	})

	t.Run("multiranges are read as PostgreSQL writes them", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t)
		rapid.Check(t, func(rt *rapid.T) {
			var ranges []partition.Range
			for range rapid.IntRange(0, 5).Draw(rt, "ranges") {
				first := rapid.Int64Range(-100, 100).Draw(rt, "first")
				ranges = append(ranges, partition.Range{First: first, Last: first + rapid.Int64Range(0, 9).Draw(rt, "more")})
			}
			want := partition.NewRanges(ranges...)
			got, err := store.ReadMultirange(w.Texts(t, `SELECT ($1::text::int8multirange)::text`, store.Multirange(want))[0])
			require.NoError(t, err)
			require.True(t, slices.Equal(want, partition.NewRanges(got...)))
		})
	})
}
