package partition

import (
	"slices"
)

// Range is consecutive ordinals, both ends included. It is empty if Last is less than First.
type Range struct{ First, Last int64 }

// Len returns the number of ordinals.
func (r Range) Len() int64 { return max(0, r.Last-r.First+1) }

// Contains reports whether an ordinal is in the range.
func (r Range) Contains(ordinal int64) bool { return r.First <= ordinal && ordinal <= r.Last }

// Intersect returns the common part of two ranges.
func (r Range) Intersect(other Range) Range {
	return Range{max(r.First, other.First), min(r.Last, other.Last)}
}

// Ranges are ranges in ascending order with gaps between them: one form for each set of ordinals.
type Ranges []Range

// NewRanges sorts and merges ranges.
func NewRanges(ranges ...Range) Ranges {
	sorted := slices.DeleteFunc(slices.Clone(ranges), func(r Range) bool { return r.Len() == 0 })
	slices.SortFunc(sorted, func(a, b Range) int { return compare(a.First, b.First) })
	return merge(sorted)
}

func compare(a, b int64) int {
	switch {
	case a < b:
		return -1
	case a > b:
		return 1
	}
	return 0
}

// merge joins overlapping and adjacent ranges of a sorted list.
func merge(sorted []Range) Ranges {
	var merged Ranges
	for _, r := range sorted {
		if last := len(merged) - 1; last >= 0 && r.First <= merged[last].Last+1 {
			merged[last].Last = max(merged[last].Last, r.Last)
			continue
		}
		merged = append(merged, r)
	}
	return merged
}

// Count returns the number of ordinals.
func (rs Ranges) Count() (n int64) {
	for _, r := range rs {
		n += r.Len()
	}
	return n
}

// Contains reports whether an ordinal is in one of the ranges.
func (rs Ranges) Contains(ordinal int64) bool {
	i, found := slices.BinarySearchFunc(rs, ordinal, func(r Range, o int64) int { return compare(r.First, o) })
	return found || i > 0 && rs[i-1].Last >= ordinal
}

// Union returns the ordinals of both.
func (rs Ranges) Union(other Ranges) Ranges {
	return NewRanges(append(slices.Clone(rs), other...)...)
}

// Intersect returns the ordinals that both have.
func (rs Ranges) Intersect(other Ranges) Ranges {
	var both Ranges
	for i, j := 0, 0; i < len(rs) && j < len(other); {
		if r := rs[i].Intersect(other[j]); r.Len() > 0 {
			both = append(both, r)
		}
		if rs[i].Last < other[j].Last {
			i++
		} else {
			j++
		}
	}
	return both
}

// Difference returns the ordinals that other does not have.
func (rs Ranges) Difference(other Ranges) Ranges {
	var left Ranges
	j := 0
	for _, r := range rs {
		for j < len(other) && other[j].Last < r.First {
			j++
		}
		for k := j; k < len(other) && other[k].First <= r.Last; k++ {
			if r.First < other[k].First {
				left = append(left, Range{r.First, other[k].First - 1})
			}
			r.First = other[k].Last + 1
		}
		if r.Len() > 0 {
			left = append(left, r)
		}
	}
	return left
}

// Within returns the ordinals inside a range.
func (rs Ranges) Within(bounds Range) Ranges { return rs.Intersect(Ranges{bounds}) }

// before returns how many ordinals are less than one.
func (rs Ranges) before(ordinal int64) (n int64) {
	for _, r := range rs {
		if r.First >= ordinal {
			break
		}
		n += Range{r.First, min(r.Last, ordinal-1)}.Len()
	}
	return n
}
