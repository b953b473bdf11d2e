package partition

import (
	"encoding/json"
	"iter"
	"maps"
	"slices"
	"sort"
)

// ID identifies a partition of an asset: its series and its ordinal there.
type ID struct {
	Series  string
	Ordinal int64
}

// Set is a set of partitions of one asset: for each series, ranges of ordinals. The zero Set is
// empty. Its size in memory is that of its ranges, not of its partitions.
type Set struct {
	series map[string]Ranges // never empty ranges
}

// NewSet returns the set of some ranges of one series.
func NewSet(series string, ranges ...Range) Set {
	var s Set
	s.put(series, NewRanges(ranges...))
	return s
}

// NewSets returns the set of ranges by series.
func NewSets(bySeries map[string][]Range) Set {
	var s Set
	for series, ranges := range bySeries {
		s.put(series, NewRanges(ranges...))
	}
	return s
}

func (s *Set) put(series string, ranges Ranges) {
	if len(ranges) == 0 {
		delete(s.series, series)
		return
	}
	if s.series == nil {
		s.series = map[string]Ranges{}
	}
	s.series[series] = ranges
}

// Series returns the names of the series in order.
func (s Set) Series() []string { return slices.Sorted(maps.Keys(s.series)) }

// Ranges returns the ordinals of one series. Callers must not change them.
func (s Set) Ranges(series string) Ranges { return s.series[series] }

// Empty reports whether the set has no partitions.
func (s Set) Empty() bool { return len(s.series) == 0 }

// Count returns the number of partitions.
func (s Set) Count() (n int64) {
	for _, ranges := range s.series {
		n += ranges.Count()
	}
	return n
}

// Contains reports whether the set has a partition.
func (s Set) Contains(p ID) bool { return s.series[p.Series].Contains(p.Ordinal) }

// combined applies an operation to each series of either set.
func (s Set) combined(other Set, apply func(a, b Ranges) Ranges) Set {
	var result Set
	for series, ranges := range s.series {
		result.put(series, apply(ranges, other.series[series]))
	}
	for series, ranges := range other.series {
		if _, done := s.series[series]; !done {
			result.put(series, apply(nil, ranges))
		}
	}
	return result
}

// Union returns the partitions of both sets.
func (s Set) Union(other Set) Set { return s.combined(other, Ranges.Union) }

// Difference returns the partitions that other does not have.
func (s Set) Difference(other Set) Set { return s.combined(other, Ranges.Difference) }

// Intersect returns the partitions that both sets have.
func (s Set) Intersect(other Set) Set { return s.combined(other, Ranges.Intersect) }

// Equal reports whether both sets have the same partitions.
func (s Set) Equal(other Set) bool {
	return maps.EqualFunc(s.series, other.series, slices.Equal[Ranges])
}

// Order is the order of the partitions of a set.
type Order string

// The orders. Partitions of one ordinal are in the order of their series in both.
const (
	OldestFirst Order = "oldest"
	NewestFirst Order = "newest"
)

// All yields the partitions in order.
func (s Set) All(order Order) iter.Seq[ID] {
	return func(yield func(ID) bool) {
		for chunk := range s.Chunks(1, order) {
			for series, ranges := range chunk.series {
				if !yield(ID{series, ranges[0].First}) {
					return
				}
			}
		}
	}
}

// Chunks yields disjoint subsets of at most size partitions, in order, and together the set. It
// holds one chunk at a time.
func (s Set) Chunks(size int64, order Order) iter.Seq[Set] {
	return func(yield func(Set) bool) {
		names := s.Series()
		w := walker{size: size, backwards: order == NewestFirst, names: names}
		for _, name := range names {
			ranges := slices.Clone(s.series[name])
			if w.backwards { // the walk is along the mirrored ordinals
				slices.Reverse(ranges)
				for i, r := range ranges {
					ranges[i] = Range{-r.Last, -r.First}
				}
			}
			w.ranges = append(w.ranges, ranges)
		}
		w.walk(yield)
	}
}

// walker visits the ordinals of several series together.
type walker struct {
	names     []string
	ranges    []Ranges // what is left of each series
	size      int64
	backwards bool
	chunk     Set
	count     int64
}

func (w *walker) walk(yield func(Set) bool) {
	for {
		// The stretch in which the same series have every ordinal.
		stretch := Range{First: 1<<63 - 1, Last: 1<<63 - 1}
		var active []int
		for _, ranges := range w.ranges {
			if len(ranges) > 0 {
				stretch.First = min(stretch.First, ranges[0].First)
			}
		}
		for i, ranges := range w.ranges {
			switch {
			case len(ranges) == 0:
			case ranges[0].First == stretch.First:
				active = append(active, i)
				stretch.Last = min(stretch.Last, ranges[0].Last)
			default:
				stretch.Last = min(stretch.Last, ranges[0].First-1)
			}
		}
		if len(active) == 0 {
			if w.count > 0 {
				yield(w.chunk)
			}
			return
		}
		if !w.take(stretch, active, yield) {
			return
		}
		for _, i := range active {
			if w.ranges[i][0].First = stretch.Last + 1; w.ranges[i][0].Len() == 0 {
				w.ranges[i] = w.ranges[i][1:]
			}
		}
	}
}

// take adds a stretch to the chunks: whole ordinals while they fit, then series by series.
func (w *walker) take(stretch Range, active []int, yield func(Set) bool) bool {
	width := int64(len(active))
	for stretch.Len() > 0 {
		if fits := min((w.size-w.count)/width, stretch.Len()); fits > 0 {
			for _, i := range active {
				w.add(i, Range{stretch.First, stretch.First + fits - 1})
			}
			stretch.First += fits
			if !w.flush(yield) {
				return false
			}
			continue
		}
		for _, i := range active {
			if w.add(i, Range{stretch.First, stretch.First}); !w.flush(yield) {
				return false
			}
		}
		stretch.First++
	}
	return true
}

func (w *walker) add(i int, r Range) {
	w.count += r.Len()
	if w.backwards {
		r = Range{-r.Last, -r.First}
	}
	ranges := w.chunk.series[w.names[i]]
	if n := len(ranges) - 1; n >= 0 && !w.backwards && ranges[n].Last+1 == r.First {
		ranges[n].Last = r.Last
		return
	} else if n >= 0 && w.backwards && ranges[0].First-1 == r.Last {
		ranges[0].First = r.First
		return
	}
	if w.backwards {
		w.chunk.put(w.names[i], append(Ranges{r}, ranges...))
		return
	}
	w.chunk.put(w.names[i], append(ranges, r))
}

// flush yields a full chunk.
func (w *walker) flush(yield func(Set) bool) bool {
	if w.count < w.size {
		return true
	}
	full := w.chunk
	w.chunk, w.count = Set{}, 0
	return yield(full)
}

// Chunk returns the nth chunk that Chunks yields, without the ones before it; empty after the last.
func (s Set) Chunk(n, size int64, order Order) Set {
	from := s.cut(n*size, order)
	until := s.cut((n+1)*size, order)
	var chunk Set
	for i, name := range s.Series() {
		// Of the ordinal of a cut, the series before it are on the earlier side.
		first, last := from.ordinal, until.ordinal-1
		if i < from.series {
			first++
		}
		if i < until.series {
			last++
		}
		bounds := Range{first, last}
		if order == NewestFirst {
			bounds = Range{-last, -first}
		}
		chunk.put(name, s.series[name].Within(bounds))
	}
	return chunk
}

// position is a place in the order of a set: the partitions of lesser ordinals are before it, and
// those of its ordinal in the first series. Ordinals are negated in a set that is newest first.
type position struct {
	ordinal int64
	series  int
}

// cut returns the position with n partitions before it.
func (s Set) cut(n int64, order Order) position {
	names := s.Series()
	total := s.Count()
	before := func(ordinal int64) (count int64) {
		for _, ranges := range s.series {
			if order == NewestFirst {
				count += ranges.Count() - ranges.before(-ordinal+1)
			} else {
				count += ranges.before(ordinal)
			}
		}
		return count
	}
	low, high := int64(1<<62), int64(-1<<62)
	for _, ranges := range s.series {
		first, last := ranges[0].First, ranges[len(ranges)-1].Last
		if order == NewestFirst {
			first, last = -last, -first
		}
		low, high = min(low, first), max(high, last)
	}
	if n >= total {
		return position{ordinal: high + 1}
	}
	// The last ordinal with at most n before it.
	ordinal := low + int64(sort.Search(int(high-low+1), func(i int) bool { return before(low+int64(i)+1) > n }))
	left := n - before(ordinal)
	for i, name := range names {
		at := ordinal
		if order == NewestFirst {
			at = -ordinal
		}
		if !s.series[name].Contains(at) {
			continue
		}
		if left == 0 {
			return position{ordinal, i}
		}
		left--
	}
	return position{ordinal: ordinal + 1}
}

// MarshalJSON writes the set as an object: for each series, a list of first and last ordinals.
func (s Set) MarshalJSON() ([]byte, error) {
	out := make(map[string][][2]int64, len(s.series))
	for series, ranges := range s.series {
		for _, r := range ranges {
			out[series] = append(out[series], [2]int64{r.First, r.Last})
		}
	}
	return json.Marshal(out)
}

// UnmarshalJSON reads what MarshalJSON wrote.
func (s *Set) UnmarshalJSON(data []byte) error {
	var in map[string][][2]int64
	if err := json.Unmarshal(data, &in); err != nil {
		return err
	}
	*s = Set{}
	for series, pairs := range in {
		ranges := make([]Range, len(pairs))
		for i, p := range pairs {
			ranges[i] = Range{p[0], p[1]}
		}
		s.put(series, NewRanges(ranges...))
	}
	return nil
}
