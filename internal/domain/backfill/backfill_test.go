package backfill_test

import (
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
)

var noon = time.Date(2026, 11, 15, 12, 0, 0, 0, time.UTC)

// life is a backfill with the events that led to it.
type life struct {
	backfill.Backfill

	open map[int32]partition.Set // chunks whose run has not ended
	// succeeded counts how often each partition has succeeded.
	succeeded map[partition.ID]int
}

func begin(t require.TestingT, set partition.Set, s backfill.Settings) *life {
	s = s.WithDefaults()
	require.NoError(t, s.Validate())
	require.NoError(t, s.CheckSize(set))
	l := &life{open: map[int32]partition.Set{}, succeeded: map[partition.ID]int{}}
	l.apply(t, backfill.Created{Settings: s, Set: set})
	return l
}

func (l *life) apply(t require.TestingT, bodies ...event.Body) {
	for _, body := range bodies {
		next, err := l.Evolve(event.Event{Tenant: id.Tenant{UUID: uuid.UUID{1}}, Subject: uuid.UUID{2}, Version: l.Version + 1, At: noon, Body: body})
		require.NoError(t, err)
		l.Backfill = next
	}
}

func (l *life) do(t require.TestingT, a backfill.Action) error {
	bodies, err := l.Decide(a)
	if err == nil {
		l.apply(t, bodies...)
	}
	return err
}

func (l *life) start(t require.TestingT) {
	chunk := l.Next
	set := l.ChunkSet(chunk)
	require.NoError(t, l.do(t, backfill.StartChunk{Run: id.Run{UUID: uuid.New()}}))
	l.open[chunk] = set
}

func (l *life) end(t require.TestingT, chunk int32, failed, skipped partition.Set) {
	for p := range members(l.open[chunk].Difference(failed).Difference(skipped)) {
		l.succeeded[p]++
	}
	delete(l.open, chunk)
	require.NoError(t, l.do(t, backfill.EndChunk{Round: l.Round, Chunk: chunk, Failed: failed, Skipped: skipped}))
}

func days(n int64) partition.Set { return partition.NewSet("", partition.Range{First: 0, Last: n - 1}) }

func TestBackfill(t *testing.T) {
	t.Parallel()

	t.Run("any sequence of commands keeps the counters, the limit, and each partition at one success", func(t *testing.T) {
		t.Parallel()
		rapid.Check(t, func(t *rapid.T) {
			set := drawSet(t, "set")
			if set.Empty() {
				return
			}
			l := begin(t, set, backfill.Settings{
				ChunkSize: rapid.Int32Range(1, 12).Draw(t, "chunk"), MaxConcurrentRuns: rapid.Int32Range(1, 4).Draw(t, "runs"),
				FailureThreshold: rapid.SampledFrom([]string{"10%", "50%", "100%", "3"}).Draw(t, "threshold"),
				Order:            rapid.SampledFrom([]partition.Order{partition.OldestFirst, partition.NewestFirst}).Draw(t, "order"),
			})
			for range rapid.IntRange(0, 60).Draw(t, "steps") {
				before := l.State
				switch step := rapid.SampledFrom([]string{"start", "start", "end", "end", "pause", "resume", "cancel", "retry"}).Draw(t, "step"); {
				case step == "start" && l.CanStart():
					l.start(t)
				case step == "end" && len(l.open) > 0:
					chunk := rapid.SampledFrom(keys(l.open)).Draw(t, "which")
					failed, skipped := partition.Set{}, partition.Set{}
					if rapid.IntRange(0, 3).Draw(t, "fails") == 0 {
						failed = l.open[chunk].Chunk(0, 1, partition.OldestFirst)
						skipped = l.open[chunk].Difference(failed).Chunk(0, 2, partition.OldestFirst)
					}
					l.end(t, chunk, failed, skipped)
				case step == "pause":
					_ = l.do(t, backfill.Pause{})
				case step == "resume":
					_ = l.do(t, backfill.Resume{})
				case step == "cancel":
					_ = l.do(t, backfill.Cancel{})
				case step == "retry":
					_ = l.do(t, backfill.Retry{FailedOnly: rapid.Bool().Draw(t, "failed only")})
				}
				l.check(t, set, before)
			}
			// Whatever happened, retries and ends lead to success.
			for l.Completed < l.Total {
				switch {
				case len(l.open) > 0:
					l.end(t, keys(l.open)[0], partition.Set{}, partition.Set{})
				case l.State == backfill.Paused:
					require.NoError(t, l.do(t, backfill.Resume{}))
				case l.State.Terminal():
					require.NoError(t, l.do(t, backfill.Retry{}))
				default:
					l.start(t)
				}
			}
			require.Len(t, l.succeeded, int(set.Count()))
			require.Equal(t, l.Total, l.Completed)
			require.True(t, l.Undone.Empty())
		})
	})

	t.Run("it fails when more partitions have failed than the threshold allows", func(t *testing.T) {
		t.Parallel()
		for threshold, allowed := range map[string]int64{"10%": 30, "5": 5, "0": 0} {
			l := begin(t, days(300), backfill.Settings{FailureThreshold: threshold})
			l.start(t)
			l.end(t, 0, days(allowed), partition.Set{})
			require.Equal(t, backfill.Running, l.State, threshold)
			l.start(t)
			l.end(t, 1, l.ChunkSet(1).Chunk(0, 1, partition.OldestFirst), partition.Set{})
			require.Equal(t, backfill.Failed, l.State, threshold)
			require.Contains(t, l.Reason, "failure_threshold "+threshold)
			require.False(t, l.CanStart())
		}
		l := begin(t, days(300), backfill.Settings{StopOnFailure: true})
		l.start(t)
		l.end(t, 0, days(1), partition.Set{})
		require.Equal(t, backfill.Failed, l.State)
		require.Contains(t, l.Reason, "stop_on_failure")
	})

	t.Run("a retry covers what has not succeeded", func(t *testing.T) {
		t.Parallel()
		l := begin(t, days(1000), backfill.Settings{})
		l.start(t)
		l.start(t)
		require.True(t, fault.Is(l.do(t, backfill.Retry{}), fault.Conflict), "it is running")
		require.NoError(t, l.do(t, backfill.Cancel{Reason: "wrong code"}))
		require.True(t, fault.Is(l.do(t, backfill.Retry{}), fault.Conflict), "its runs have not ended")
		l.end(t, 0, days(3), partition.Set{})
		l.end(t, 1, partition.Set{}, l.open[1])
		require.Equal(t, backfill.Cancelled, l.State)
		require.EqualValues(t, []int64{97, 3, 100, 800}, []int64{l.Completed, l.Failed, l.Skipped, l.Pending()})

		failedOnly := *l
		failedOnly.open = map[int32]partition.Set{}
		require.NoError(t, failedOnly.do(t, backfill.Retry{FailedOnly: true}))
		require.EqualValues(t, 103, failedOnly.Set.Count())
		require.EqualValues(t, []int64{97, 0, 800, 103}, []int64{failedOnly.Completed, failedOnly.Failed, failedOnly.Skipped, failedOnly.Pending()})

		require.NoError(t, l.do(t, backfill.Retry{}))
		require.EqualValues(t, 903, l.Set.Count())
		require.EqualValues(t, 1, l.Round)
	})

	t.Run("a command in the wrong state names both", func(t *testing.T) {
		t.Parallel()
		for _, state := range backfill.States() {
			for _, a := range []backfill.Action{backfill.StartChunk{}, backfill.EndChunk{}, backfill.Pause{}, backfill.Resume{}, backfill.Cancel{}, backfill.Retry{}} {
				may := slices.ContainsFunc(backfill.Transitions, func(r backfill.Transition) bool { return r.On == a.On() && slices.Contains(r.From, state) })
				_, err := backfill.Backfill{State: state, Settings: backfill.Settings{}.WithDefaults()}.Decide(a)
				if may {
					continue
				}
				require.True(t, fault.Is(err, fault.Conflict), "%s in %s", a.On(), state)
				require.ErrorContains(t, err, state.String())
			}
		}
	})
}

// check holds at every moment.
func (l *life) check(t require.TestingT, whole partition.Set, before backfill.State) {
	require.Equal(t, whole.Count(), l.Completed+l.Failed+l.Skipped+l.Pending())
	require.LessOrEqual(t, l.Open, l.Settings.MaxConcurrentRuns)
	require.EqualValues(t, len(l.open), l.Open)
	require.Equal(t, l.Failed+l.Skipped, l.Undone.Count())
	require.EqualValues(t, l.Completed, len(l.succeeded))
	for p, times := range l.succeeded {
		require.Equal(t, 1, times, "%v", p)
	}
	if before != l.State {
		require.True(t, slices.ContainsFunc(backfill.Transitions, func(r backfill.Transition) bool {
			return slices.Contains(r.From, before) && slices.Contains(r.To, l.State)
		}), "%s → %s", before, l.State)
	}
}

func keys(open map[int32]partition.Set) []int32 {
	var all []int32
	for chunk := range open {
		all = append(all, chunk)
	}
	slices.Sort(all)
	return all
}

func TestSettings(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		change func(*backfill.Settings)
		want   string
	}{
		"order":      {func(s *backfill.Settings) { s.Order = "RANDOM" }, "order: is \"RANDOM\""},
		"chunk":      {func(s *backfill.Settings) { s.ChunkSize = -1 }, "chunk_size: is -1"},
		"runs":       {func(s *backfill.Settings) { s.MaxConcurrentRuns = 1000 }, "max_concurrent_runs: is 1000"},
		"threshold":  {func(s *backfill.Settings) { s.FailureThreshold = "a lot" }, "failure_threshold: is \"a lot\""},
		"percentage": {func(s *backfill.Settings) { s.FailureThreshold = "101%" }, "failure_threshold"},
		"stale":      {func(s *backfill.Settings) { s.Only = backfill.OnlyStale }, "only: stale partitions are not known"},
		"only":       {func(s *backfill.Settings) { s.Only = "SOME" }, "only: is \"SOME\""},
		"note":       {func(s *backfill.Settings) { s.Note = "\xff" }, "note: is too long or not text"},
	} {
		s := backfill.Settings{}.WithDefaults()
		c.change(&s)
		err := s.Validate()
		require.ErrorContains(t, err, c.want, name)
		f, ok := fault.As(err)
		require.True(t, ok)
		require.NotEmpty(t, f.Violation.Remedy)
	}
	s := backfill.Settings{Only: backfill.OnlyMissing}.WithDefaults()
	require.ErrorContains(t, s.CheckSize(partition.Set{}), "every partition in the range has succeeded")
	require.ErrorContains(t, s.CheckSize(days(backfill.MaxPartitions+1)), "the limit is 10000000")
	s.ChunkSize = 1
	require.ErrorContains(t, s.CheckSize(days(2_000_000)), "runs, the limit is 1000000")
}

func drawSet(t *rapid.T, label string) partition.Set {
	var set partition.Set
	for range rapid.IntRange(0, 8).Draw(t, label) {
		first := rapid.Int64Range(-20, 20).Draw(t, "first")
		set = set.Union(partition.NewSet(rapid.SampledFrom([]string{"", "a", "b", "c"}).Draw(t, "series"),
			partition.Range{First: first, Last: first + rapid.Int64Range(-1, 8).Draw(t, "more")}))
	}
	return set
}

func members(set partition.Set) map[partition.ID]bool {
	all := map[partition.ID]bool{}
	for _, series := range set.Series() {
		for _, r := range set.Ranges(series) {
			for o := r.First; o <= r.Last; o++ {
				all[partition.ID{Series: series, Ordinal: o}] = true
			}
		}
	}
	return all
}
