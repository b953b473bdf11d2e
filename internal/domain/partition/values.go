package partition

import (
	"slices"
	"strings"
)

// Value is a value of a dynamic dimension with its number. Numbers begin at 1 and are never reused:
// a removed value keeps its number.
type Value struct {
	Value   string
	Number  int64
	Removed bool
}

// Values are the lists of dynamic values by name.
type Values map[string]*List

// List is one list of dynamic values.
type List struct {
	byNumber []Value // ascending
	byValue  map[string]int
}

// NewList returns a list of values.
func NewList(values []Value) *List {
	l := &List{byNumber: slices.Clone(values), byValue: make(map[string]int, len(values))}
	slices.SortFunc(l.byNumber, func(a, b Value) int { return compare(a.Number, b.Number) })
	for i, v := range l.byNumber {
		l.byValue[v.Value] = i
	}
	return l
}

func (l *List) find(value string) (Value, bool) {
	if l == nil {
		return Value{}, false
	}
	i, ok := l.byValue[value]
	if !ok {
		return Value{}, false
	}
	return l.byNumber[i], true
}

func (l *List) at(number int64) (Value, bool) {
	if l == nil {
		return Value{}, false
	}
	i, ok := slices.BinarySearchFunc(l.byNumber, number, func(v Value, n int64) int { return compare(v.Number, n) })
	if !ok {
		return Value{}, false
	}
	return l.byNumber[i], true
}

// current returns the values of a list that are not removed, sorted.
func (v Values) current(name string) []string {
	var values []string
	if l := v[name]; l != nil {
		for _, one := range l.byNumber {
			if !one.Removed {
				values = append(values, one.Value)
			}
		}
	}
	slices.SortFunc(values, strings.Compare)
	return values
}

// numbers returns the numbers of the values of a list that are not removed.
func (v Values) numbers(name string) Ranges {
	var ranges []Range
	if l := v[name]; l != nil {
		for _, one := range l.byNumber {
			if !one.Removed {
				ranges = append(ranges, Range{one.Number, one.Number})
			}
		}
	}
	return merge(ranges)
}

func (v Values) bounds(name string) Range {
	l := v[name]
	if l == nil || len(l.byNumber) == 0 {
		return Range{1, 0}
	}
	return Range{l.byNumber[0].Number, l.byNumber[len(l.byNumber)-1].Number}
}
