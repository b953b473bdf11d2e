package partition

import (
	"fmt"
	"regexp"
	"strconv"

	"go.arco.dev/servo/internal/base/fault"
)

// The mappings of a partition to partitions of an upstream, as the manifest declares them.
const (
	MapIdentity       = "identity"        // the same partition; of another kind of time, those that share time with it
	MapAll            = "all"             // every partition
	MapFirstDimension = "first dimension" // all partitions with the same value of the first dimension
	MapPrevious       = "previous"        // of the asset itself: the partition before
	mapLast           = "last N days"     // the own partition of time and those before it
)

// Mappings are the forms of a mapping, for messages.
const Mappings = MapIdentity + ", " + MapAll + ", " + mapLast + ", " + MapFirstDimension + ", or " + MapPrevious + " for the asset itself"

// MaxWindow is the maximum length of a window.
const MaxWindow = 1_000

var lastPattern = regexp.MustCompile(`^last ([1-9][0-9]{0,3}) (hours|days|weeks|months)$`)

// Mapping relates the partitions of an asset to those of an upstream. A partition d needs u if
// their series match and their ordinals do. Without ordinals, all match.
type Mapping struct {
	series   seriesRule
	ordinals ordinalRule
	name     string // of the first dimension, for its rule

	down, up calendar
	before   int64 // how many ordinals earlier the window begins
	after    int64 // and how many earlier it ends
}

type seriesRule int

const (
	anySeries seriesRule = iota
	sameSeries
	sameValue // of the dimension name
)

type ordinalRule int

const (
	anyOrdinal ordinalRule = iota
	sameOrdinal
	sharedTime
	window
)

// NewMapping returns the mapping from the partitions of an asset to those of an upstream. Either
// scheme may be nil: an asset without partitions needs all of the upstream's, and an upstream
// without partitions is needed by all. An empty text is the identity.
func NewMapping(text string, down, up *Scheme) (*Mapping, error) {
	if down == nil || up == nil {
		if text != "" && text != MapAll {
			return nil, refuseMapping(fmt.Sprintf("%q needs partitions on both sides", text), "remove it, or declare partitions")
		}
		return &Mapping{}, nil
	}
	switch text {
	case MapAll:
		return &Mapping{}, nil
	case MapPrevious:
		if down.axis < 0 || !down.Timed() {
			return nil, refuseMapping("previous needs a time dimension", "remove it, or add a time dimension")
		}
		return &Mapping{series: sameSeries, ordinals: window, down: down.calendar, up: up.calendar, before: 1, after: 1}, nil
	case MapFirstDimension:
		return firstDimension(down, up)
	}
	last := lastPattern.FindStringSubmatch(text)
	if last == nil && text != "" && text != MapIdentity {
		return nil, refuseMapping(fmt.Sprintf("unknown mapping %.100q", text), "use "+Mappings)
	}
	if err := related(down, up); err != nil {
		return nil, err
	}
	m := &Mapping{series: sameSeries, ordinals: sameOrdinal, down: down.calendar, up: up.calendar}
	if last == nil {
		if down.Timed() && down.calendar.kind != up.calendar.kind {
			m.ordinals = sharedTime
		}
		return m, nil
	}
	n, _ := strconv.ParseInt(last[1], 10, 64)
	switch {
	case !up.Timed():
		return nil, refuseMapping(fmt.Sprintf("%q needs a time dimension", text), "use identity or all")
	case last[2] != up.calendar.kind.unit():
		return nil, refuseMapping(fmt.Sprintf("%q counts %s, the upstream is %s", text, last[2], up.calendar.kind), fmt.Sprintf("write last %d %s", n, up.calendar.kind.unit()))
	case n > MaxWindow:
		return nil, refuseMapping(fmt.Sprintf("the window has %d partitions, the limit is %d", n, MaxWindow), "use a shorter window, or all")
	}
	m.ordinals, m.before = window, n-1
	return m, nil
}

func refuseMapping(message, remedy string) error {
	return fault.New(fault.InvalidManifest, message, fault.Remedy(remedy))
}

// related refuses schemes without a partition by partition relation.
func related(down, up *Scheme) error {
	unrelated := func(message string) error {
		return refuseMapping(fmt.Sprintf("%s: the partitions are %s, those of the upstream %s", message, down, up), `map it with "all" or "first dimension", or declare the same dimensions`)
	}
	if len(down.dimensions) != len(up.dimensions) {
		return unrelated("the numbers of dimensions differ")
	}
	for i, d := range up.dimensions {
		if i == up.axis && d.Kind.Time() {
			if !down.Timed() {
				return unrelated("only the upstream has time")
			}
			continue // time matches time, whatever its name
		}
		own, ok := down.dimension(d.Name)
		switch {
		case !ok:
			return unrelated("the upstream has another dimension, " + d.Name)
		case own.Kind != d.Kind, own.Kind == Dynamic && own.Source != d.Source:
			return unrelated("the dimension " + d.Name + " differs")
		}
	}
	return nil
}

func firstDimension(down, up *Scheme) (*Mapping, error) {
	own, theirs := down.dimensions[0], up.dimensions[0]
	refuse := func() (*Mapping, error) {
		return nil, refuseMapping(fmt.Sprintf("the first dimensions are not related: the partitions are %s, those of the upstream %s", down, up),
			"put the common dimension first in both, or map it with \"all\"")
	}
	switch {
	case own.Kind.Time() && theirs.Kind.Time():
		m := &Mapping{ordinals: sameOrdinal, down: down.calendar, up: up.calendar}
		if own.Kind != theirs.Kind {
			m.ordinals = sharedTime
		}
		return m, nil
	case own.Kind != theirs.Kind, own.Name != theirs.Name, own.Source != theirs.Source, (down.axis == 0) != (up.axis == 0):
		return refuse()
	case down.axis == 0:
		return &Mapping{ordinals: sameOrdinal}, nil
	}
	return &Mapping{series: sameValue, name: own.Name}, nil
}

// All reports whether every partition needs every one of the upstream.
func (m *Mapping) All() bool { return m.series == anySeries && m.ordinals == anyOrdinal }

// Group returns the part of a series that decides a match: two series match if their groups are
// equal. So the partitions of an upstream are looked up by group instead of one by one.
func (m *Mapping) Group(series string) string {
	switch m.series {
	case sameSeries:
		return series
	case sameValue:
		values, err := readKey(series)
		if err != nil {
			return series
		}
		return values[m.name]
	case anySeries:
	}
	return ""
}

// GroupName names a group among all groups of an upstream: "" is the whole upstream.
func (m *Mapping) GroupName(group string) string {
	switch m.series {
	case sameValue:
		return spellKey(map[string]string{m.name: group})
	case sameSeries:
		return group
	case anySeries:
	}
	return ""
}

// Whole reports whether all ordinals of a group match.
func (m *Mapping) Whole() bool { return m.ordinals == anyOrdinal }

// Upstream returns the ordinals of the upstream that a range of partitions needs.
func (m *Mapping) Upstream(r Range) Range {
	switch m.ordinals {
	case sharedTime:
		return m.down.overlap(r, m.up)
	case window:
		if m.down.kind != m.up.kind {
			r = m.down.overlap(r, m.up)
		}
		return Range{r.First - m.before, r.Last - m.after}
	case sameOrdinal, anyOrdinal:
	}
	return r
}

// Downstream returns the ordinals of the partitions that need a range of the upstream: the inverse
// of Upstream.
func (m *Mapping) Downstream(r Range) Range {
	switch m.ordinals {
	case sharedTime:
		return m.up.overlap(r, m.down)
	case window:
		r = Range{r.First + m.after, r.Last + m.before}
		if m.down.kind != m.up.kind {
			return m.up.overlap(r, m.down)
		}
	case sameOrdinal, anyOrdinal:
	}
	return r
}

// Matches reports whether a range of partitions needs one of a range of the upstream.
func (m *Mapping) Matches(series string, r Range, upSeries string, up Range) bool {
	return m.Group(series) == m.Group(upSeries) && (m.Whole() || m.Upstream(r).Intersect(up).Len() > 0)
}

// Affected returns, of the partitions of the asset, those that need one of the upstream's changed
// ones.
func (m *Mapping) Affected(changed, own Set) Set { return m.related(changed, own, m.Downstream) }

// Needed returns, of the partitions of the upstream, those that one of the asset's wanted ones
// needs.
func (m *Mapping) Needed(wanted, upstream Set) Set { return m.related(wanted, upstream, m.Upstream) }

func (m *Mapping) related(from, among Set, apply func(Range) Range) Set {
	groups := map[string]Ranges{}
	for series, ranges := range from.series {
		mapped := make([]Range, len(ranges))
		for i, r := range ranges {
			mapped[i] = apply(r)
		}
		group := m.Group(series)
		groups[group] = groups[group].Union(NewRanges(mapped...))
	}
	var result Set
	for series, ranges := range among.series {
		matching, ok := groups[m.Group(series)]
		switch {
		case !ok:
		case m.Whole():
			result.put(series, ranges)
		default:
			result.put(series, ranges.Intersect(matching))
		}
	}
	return result
}
