package partition

import (
	"encoding/json"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

func drawSet(t *rapid.T, name string) Set {
	var s Set
	for _, series := range rapid.SliceOfNDistinct(rapid.SampledFrom([]string{"", "a", "b", "c"}), 0, 4, rapid.ID).Draw(t, name+" series") {
		var ranges []Range
		for range rapid.IntRange(1, 3).Draw(t, name+" ranges") {
			first := rapid.Int64Range(-20, 30).Draw(t, "first")
			ranges = append(ranges, Range{first, first + rapid.Int64Range(0, 12).Draw(t, "length")})
		}
		s = s.Union(NewSet(series, ranges...))
	}
	return s
}

func members(s Set) map[ID]bool {
	all := map[ID]bool{}
	for _, series := range s.Series() {
		for _, r := range s.Ranges(series) {
			for o := r.First; o <= r.Last; o++ {
				all[ID{series, o}] = true
			}
		}
	}
	return all
}

func TestSetsAreSets(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		a, b := drawSet(t, "a"), drawSet(t, "b")
		inA, inB := members(a), members(b)
		require.EqualValues(t, len(inA), a.Count())
		union, difference, both := members(a.Union(b)), members(a.Difference(b)), members(a.Intersect(b))
		for o := int64(-25); o < 50; o++ {
			for _, series := range []string{"", "a", "b", "c", "d"} {
				p := ID{series, o}
				require.Equal(t, inA[p], a.Contains(p))
				require.Equal(t, inA[p] || inB[p], union[p])
				require.Equal(t, inA[p] && !inB[p], difference[p])
				require.Equal(t, inA[p] && inB[p], both[p])
			}
		}
		require.True(t, a.Difference(b).Union(a.Intersect(b)).Equal(a))
		for _, series := range a.Series() { // one form
			ranges := a.Ranges(series)
			for i := 1; i < len(ranges); i++ {
				require.Greater(t, ranges[i].First, ranges[i-1].Last+1)
			}
		}
		data, err := json.Marshal(a)
		require.NoError(t, err)
		var back Set
		require.NoError(t, json.Unmarshal(data, &back))
		require.True(t, back.Equal(a))
	})
}

func TestChunks(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		s := drawSet(t, "s")
		size := rapid.Int64Range(1, 15).Draw(t, "size")
		order := rapid.SampledFrom([]Order{OldestFirst, NewestFirst}).Draw(t, "order")
		want := slices.SortedFunc(func(yield func(ID) bool) {
			for p := range members(s) {
				if !yield(p) {
					return
				}
			}
		}, func(a, b ID) int {
			n := compare(a.Ordinal, b.Ordinal)
			if order == NewestFirst {
				n = -n
			}
			if n == 0 && a.Series < b.Series || n < 0 {
				return -1
			}
			return 1
		})
		require.Equal(t, want, slices.Collect(s.All(order)))
		n := int64(0)
		for chunk := range s.Chunks(size, order) {
			from := want[n*size : min(int64(len(want)), (n+1)*size)]
			require.EqualValues(t, len(from), chunk.Count())
			for _, p := range from {
				require.True(t, chunk.Contains(p))
			}
			require.True(t, chunk.Equal(s.Chunk(n, size, order)), "%v and %v", chunk, s.Chunk(n, size, order))
			n++
		}
		require.EqualValues(t, (int64(len(want))+size-1)/size, n)
		require.True(t, s.Chunk(n, size, order).Empty())
	})
}

func TestChunksOfAYearInTenRegions(t *testing.T) {
	t.Parallel()
	var s Set
	for _, region := range []string{"a", "b", "c", "d", "e", "f", "g", "h", "i", "j"} {
		s = s.Union(NewSet(region, Range{20454, 20454 + 364}))
	}
	require.EqualValues(t, 3650, s.Count())
	require.Len(t, slices.Collect(s.Chunks(100, OldestFirst)), 37)
	first := s.Chunk(0, 100, OldestFirst)
	require.Equal(t, Ranges{{20454, 20463}}, first.Ranges("a"))
	require.Len(t, first.Series(), 10)
}

// BenchmarkMillion splits a million partitions into runs of 100.
func BenchmarkMillion(b *testing.B) {
	var regions Set
	for _, name := range []string{"a", "b", "c", "d", "e", "f", "g", "h", "i", "j"} {
		regions = regions.Union(NewSet(name, Range{0, 99_999}))
	}
	for name, set := range map[string]Set{"one series": NewSet("", Range{0, 999_999}), "ten series": regions} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				runs, partitions := 0, int64(0)
				for chunk := range set.Chunks(100, OldestFirst) {
					runs++
					partitions += chunk.Count()
				}
				if runs != 10_000 || partitions != 1_000_000 {
					b.Fatal(runs, partitions)
				}
			}
		})
	}
}
