package partition

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"go.arco.dev/servo/internal/base/fault"
	"go.arco.dev/servo/internal/domain/schedule"
)

// The limits of schemes and selections.
const (
	MaxDimensions = 3
	MaxValues     = 1_000 // of a static dimension
	MaxDynamic    = 100_000
	MaxOffset     = 1_000
	MaxSeries     = 100_000
	// MaxSelected is how many partitions one selection may have.
	MaxSelected = 10_000_000
	// MaxText is the maximum length of one selection.
	MaxText = 1_000
)

// Dimension is one dimension of an asset's partitions as the manifest declares it.
type Dimension struct {
	Name string `json:"dimension"`
	Kind Kind   `json:"kind"`
	// Start is the first partition of time.
	Start string `json:"start,omitempty"`
	// Timezone is the zone of local days, weeks and months; default UTC.
	Timezone string `json:"timezone,omitempty"`
	// EndOffset moves the last partition that slots cover: -1 stops one before the last completed
	// one, 1 includes the current one.
	EndOffset int `json:"end_offset,omitempty"`
	// Values are those of a static dimension.
	Values []string `json:"values,omitempty"`
	// Source is the name of the list from which a dynamic dimension has its values.
	Source string `json:"source,omitempty"`
}

// DefaultTimezone is the zone of a time dimension without one.
const DefaultTimezone = "UTC"

var (
	namePattern = regexp.MustCompile(`^[a-z][a-z0-9_]{0,62}$`)
	// A value is part of keys, paths and selections: it has no comma, space, quote or "..".
	valuePattern = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9_:@+-]*([./][A-Za-z0-9_:@+-]+)*$`)
	listPattern  = regexp.MustCompile(`^[a-z0-9][a-z0-9_.-]{0,99}$`)
)

const maxValueLength = 100

// CheckList refuses a text that is not the name of a list of dynamic values.
func CheckList(field, name string) error {
	if listPattern.MatchString(name) {
		return nil
	}
	return fault.Invalid(field, fmt.Sprintf("%.100q is not a valid name", name), "use lower case letters, digits, '_', '-' and '.', such as customers")
}

// CheckValue refuses a text that is not a value of a static or dynamic dimension.
func CheckValue(field, value string) error {
	if len(value) <= maxValueLength && valuePattern.MatchString(value) {
		return nil
	}
	return fault.Invalid(field, fmt.Sprintf("%.100q is not a valid value", value),
		fmt.Sprintf("use letters, digits and any of _ : @ + - . / between them, at most %d characters", maxValueLength))
}

// Scheme divides an asset into partitions: the product of its dimensions. The axis is the dimension
// whose values are numbered: the time dimension, or else the first dynamic one. The values of the
// other dimensions name a series. A scheme without an axis has one partition in each series, with
// ordinal 0.
type Scheme struct {
	dimensions []Dimension
	axis       int // -1 without one
	calendar   calendar
	start      int64
	values     Values // of dynamic dimensions
	missing    func() []int64
}

// Validate reports the errors of declared dimensions; report gets a path below the declaration.
func Validate(dimensions []Dimension, report func(field, message, remedy string)) {
	if n := len(dimensions); n > MaxDimensions {
		report("", fmt.Sprintf("has %d dimensions, the limit is %d", n, MaxDimensions), "combine dimensions, or use a fan-out")
		return
	}
	times := 0
	for i, d := range dimensions {
		at := func(field string) string { return fmt.Sprintf("[%d].%s", i, field) }
		if !namePattern.MatchString(d.Name) {
			report(at("dimension"), fmt.Sprintf("%.80q is not a valid name", d.Name), "use lower case letters, digits and '_', such as date")
		}
		if slices.ContainsFunc(dimensions[:i], func(other Dimension) bool { return other.Name == d.Name }) {
			report(at("dimension"), fmt.Sprintf("%.80q is declared twice", d.Name), "give each dimension its own name")
		}
		if d.Kind.Time() {
			if times++; times > 1 {
				report(at("kind"), "is a second time dimension", "keep one time dimension, and make the others static or dynamic")
			}
		}
		d.validate(at, report)
	}
}

func (d Dimension) validate(at func(string) string, report func(field, message, remedy string)) {
	if !d.Kind.valid() {
		report(at("kind"), fmt.Sprintf("%.80q is not a kind", d.Kind), "choose one of "+Kinds)
		return
	}
	for _, f := range []struct {
		field string
		set   bool
		fits  bool
	}{
		{"start", d.Start != "", d.Kind.Time()},
		{"timezone", d.Timezone != "", d.Kind.Time()},
		{"end_offset", d.EndOffset != 0, d.Kind.Time()},
		{"values", d.Values != nil, d.Kind == Static},
		{"source", d.Source != "", d.Kind == Dynamic},
	} {
		if f.set && !f.fits {
			report(at(f.field), fmt.Sprintf("does not apply to a %s dimension", d.Kind), "remove it, or change the kind")
		}
	}
	switch {
	case d.Kind.Time():
		d.validateTime(at, report)
	case d.Kind == Static:
		if len(d.Values) == 0 {
			report(at("values"), "is missing", "list at least one value, such as [eu, us]")
		}
		if n := len(d.Values); n > MaxValues {
			report(at("values"), fmt.Sprintf("has %d entries, the limit is %d", n, MaxValues), "use a dynamic dimension")
		}
		seen := make(map[string]bool, len(d.Values))
		for i, v := range d.Values {
			field := fmt.Sprintf("%s[%d]", at("values"), i)
			if f, bad := fault.As(CheckValue(field, v)); bad {
				report(field, f.Message, f.Violation.Remedy)
			} else if seen[v] {
				report(field, fmt.Sprintf("%q is listed twice", v), "remove it")
			}
			seen[v] = true
		}
	case d.Kind == Dynamic:
		if !listPattern.MatchString(d.Source) {
			report(at("source"), fmt.Sprintf("%.80q is not a valid name", d.Source), "name the list of values, such as customers")
		}
	}
}

func (d Dimension) validateTime(at func(string) string, report func(field, message, remedy string)) {
	remedy := fmt.Sprintf("write the first partition of a %s dimension, such as %s", d.Kind, d.Kind.example())
	if d.Start == "" {
		report(at("start"), "is missing", remedy)
	} else if kind, _, ok := readTime(d.Start); !ok || kind != d.Kind {
		report(at("start"), fmt.Sprintf("%.80q is not a %s partition between %d and %d", d.Start, d.Kind, firstYear, lastYear), remedy)
	}
	if d.Timezone != "" {
		if _, err := schedule.FindZone(d.Timezone); err != nil {
			f, _ := fault.As(err)
			report(at("timezone"), f.Message, f.Violation.Remedy)
		}
	}
	if d.EndOffset < -MaxOffset || d.EndOffset > MaxOffset {
		report(at("end_offset"), fmt.Sprintf("is %d, the range is -%d to %d", d.EndOffset, MaxOffset, MaxOffset), "choose a value in the range")
	}
}

// New returns the scheme of valid dimensions.
func New(dimensions []Dimension) (*Scheme, error) {
	var first error
	Validate(dimensions, func(field, message, remedy string) {
		if first == nil {
			first = fault.New(fault.InvalidManifest, message, fault.Field("partitions"+field), fault.Remedy(remedy))
		}
	})
	if first != nil {
		return nil, first
	}
	s := &Scheme{dimensions: slices.Clone(dimensions), axis: -1, missing: func() []int64 { return nil }}
	for i := range s.dimensions {
		d := &s.dimensions[i]
		if !d.Kind.Time() {
			if d.Kind == Dynamic && s.axis < 0 {
				s.axis = i
			}
			continue
		}
		if d.Timezone == "" {
			d.Timezone = DefaultTimezone
		}
		zone, err := schedule.FindZone(d.Timezone)
		if err != nil {
			return nil, err
		}
		s.calendar = calendar{d.Kind, zone}
		_, s.start, _ = readTime(d.Start)
	}
	for i, d := range s.dimensions { // time before dynamic values
		if d.Kind.Time() {
			s.axis = i
			s.missing = sync.OnceValue(s.calendar.missingDays)
		}
	}
	return s, nil
}

// Dimensions returns the dimensions in the order of their declaration.
func (s *Scheme) Dimensions() []Dimension { return s.dimensions }

// Timed reports whether the axis is time.
func (s *Scheme) Timed() bool { return s.axis >= 0 && s.dimensions[s.axis].Kind.Time() }

// Axis returns the dimension whose values are numbered; false without one.
func (s *Scheme) Axis() (Dimension, bool) {
	if s.axis < 0 {
		return Dimension{}, false
	}
	return s.dimensions[s.axis], true
}

// Sources are the lists of dynamic values that the scheme needs, each once.
func (s *Scheme) Sources() []string {
	var names []string
	for _, d := range s.dimensions {
		if d.Kind == Dynamic && !slices.Contains(names, d.Source) {
			names = append(names, d.Source)
		}
	}
	return names
}

// Bind returns the scheme with the values of its dynamic dimensions.
func (s *Scheme) Bind(values Values) *Scheme {
	bound := *s
	bound.values = values
	return &bound
}

// String names the dimensions: date (daily) × region (static).
func (s *Scheme) String() string {
	parts := make([]string, len(s.dimensions))
	for i, d := range s.dimensions {
		parts[i] = fmt.Sprintf("%s (%s)", d.Name, d.Kind)
	}
	return strings.Join(parts, " × ")
}

// Interval returns the time of a partition of a timed scheme: the beginning is in it, the end is not.
func (s *Scheme) Interval(ordinal int64) (from, until time.Time) {
	return s.calendar.beginning(ordinal), s.calendar.end(ordinal)
}

// Bounds returns the ordinals of the axis that exist at an instant: of time, from the start to the
// last partition that slots cover.
func (s *Scheme) Bounds(now time.Time) Range {
	switch {
	case s.Timed():
		return Range{s.start, s.calendar.completed(now) + int64(s.dimensions[s.axis].EndOffset)}
	case s.axis >= 0:
		return s.values.bounds(s.dimensions[s.axis].Source)
	}
	return Range{0, 0}
}

// At returns the ordinal of the partition of time that contains an instant.
func (s *Scheme) At(instant time.Time) int64 { return s.calendar.at(instant) }

// Start is the first ordinal of time.
func (s *Scheme) Start() int64 { return s.start }

// Covered returns the partitions of time that become complete after one instant and until another,
// by the end offset: what a slot at until covers if the last one was at after.
func (s *Scheme) Covered(after, until time.Time) Ranges {
	r := Range{max(s.start, s.Bounds(after).Last+1), s.Bounds(until).Last}
	return s.existing(r)
}

// LastCovered returns the last partition that is complete at an instant; false if there is none.
func (s *Scheme) LastCovered(until time.Time) (int64, bool) {
	existing := s.existing(Range{max(s.start, s.Bounds(until).Last-2), s.Bounds(until).Last})
	if len(existing) == 0 {
		return 0, false
	}
	return existing[len(existing)-1].Last, true
}

// CompletedAt returns the instant from which a partition is covered by slots.
func (s *Scheme) CompletedAt(ordinal int64) time.Time {
	return s.calendar.end(ordinal - int64(s.dimensions[s.axis].EndOffset))
}

// existing leaves out days that do not exist.
func (s *Scheme) existing(r Range) Ranges {
	if r.Len() == 0 {
		return nil
	}
	return without(r, s.missing())
}

// AllSeries returns the names of all series, in order of their values.
func (s *Scheme) AllSeries() ([]string, error) {
	return s.seriesOf(func(d Dimension) ([]string, error) { return s.valuesOf(d), nil })
}

// seriesOf returns the names of the series whose values are chosen.
func (s *Scheme) seriesOf(chosen func(Dimension) ([]string, error)) ([]string, error) {
	all := []map[string]string{{}}
	for i, d := range s.dimensions {
		if i == s.axis {
			continue
		}
		values, err := chosen(d)
		if err != nil {
			return nil, err
		}
		if n := len(all) * len(values); n > MaxSeries {
			return nil, tooManySeries(n)
		}
		var next []map[string]string
		for _, one := range all {
			for _, v := range values {
				more := map[string]string{d.Name: v}
				for name, value := range one {
					more[name] = value
				}
				next = append(next, more)
			}
		}
		all = next
	}
	names := make([]string, len(all))
	for i, one := range all {
		names[i] = spellKey(one)
	}
	return names, nil
}

func tooManySeries(n int) error {
	return fault.New(fault.LimitExceeded, fmt.Sprintf("the selection has %d series, the limit is %d", n, MaxSeries),
		fault.Field("partitions"), fault.Remedy("name the values of the other dimensions"), fault.Value("limit", MaxSeries), fault.Value("current", n))
}

// valuesOf returns all values of a static or dynamic dimension.
func (s *Scheme) valuesOf(d Dimension) []string {
	if d.Kind == Static {
		return d.Values
	}
	return s.values.current(d.Source)
}

// Existing returns all partitions that exist at an instant.
func (s *Scheme) Existing(now time.Time) (Set, error) {
	series, err := s.AllSeries()
	if err != nil {
		return Set{}, err
	}
	var set Set
	ranges := s.ordinals(s.Bounds(now))
	for _, name := range series {
		set.put(name, ranges)
	}
	return set, nil
}

// ordinals returns the ordinals of the axis in a range that are partitions.
func (s *Scheme) ordinals(r Range) Ranges {
	if s.axis < 0 || s.Timed() {
		return s.existing(r)
	}
	return s.values.numbers(s.dimensions[s.axis].Source).Within(r)
}
