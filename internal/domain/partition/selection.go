package partition

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"go.arco.dev/servo/internal/base/fault"
)

// Selection names partitions independently of a scheme. It is the union of its terms.
type Selection struct {
	terms []term
}

// term is one text of a selection: for each dimension a value, a range first..last with either end
// open, or "*". Dimensions that it does not name are not restricted, except time.
type term struct {
	text   string
	bare   string // one value without the name of its dimension
	values map[string]string
}

const selectionRemedy = "write date=2026-01-01, date=2026-01-01..2026-03-31, or several dimensions as date=2026-01-01,region=eu"

// ParseSelection reads the texts of a selection: date=2026-01-01..2026-03-31,region=eu, the bare value
// of a scheme with one dimension, or a key as JSON.
func ParseSelection(texts ...string) (Selection, error) {
	var s Selection
	for i, text := range texts {
		t, err := parseTerm(text)
		if err != nil {
			return Selection{}, fault.Invalid(fmt.Sprintf("partitions[%d]", i), err.Error(), selectionRemedy)
		}
		s.terms = append(s.terms, t)
	}
	return s, nil
}

func parseTerm(text string) (term, error) {
	t := term{text: text, values: map[string]string{}}
	switch {
	case len(text) > MaxText:
		return t, fmt.Errorf("has %d characters, the limit is %d", len(text), MaxText)
	case strings.TrimSpace(text) == "":
		return t, errors.New("is empty")
	case strings.HasPrefix(text, "{"):
		if json.Unmarshal([]byte(text), &t.values) != nil || len(t.values) == 0 {
			return t, fmt.Errorf("%.100q is not a JSON object of dimensions and values", text)
		}
		for name, value := range t.values {
			if value == "" {
				return t, fmt.Errorf("%.100q has no value for %.100q", text, name)
			}
		}
		return t, nil
	case !strings.ContainsAny(text, "=,"):
		t.bare = text
		return t, nil
	}
	for _, part := range strings.Split(text, ",") {
		name, value, ok := strings.Cut(part, "=")
		switch {
		case !ok || name == "" || value == "":
			return t, fmt.Errorf("%.100q is not dimension=value", part)
		case t.values[name] != "":
			return t, fmt.Errorf("%.100q names the dimension %.100q twice", text, name)
		}
		t.values[name] = value
	}
	return t, nil
}

// Empty reports whether the selection has no terms.
func (s Selection) Empty() bool { return len(s.terms) == 0 }

// Check refuses a dimension that none of the schemes has.
func (s Selection) Check(schemes []*Scheme) error {
	if len(schemes) == 0 {
		return nil
	}
	all := &Scheme{}
	for _, scheme := range schemes {
		for _, d := range scheme.dimensions {
			if _, known := all.dimension(d.Name); !known {
				all.dimensions = append(all.dimensions, d)
			}
		}
	}
	for i, t := range s.terms {
		if err := all.known(fmt.Sprintf("partitions[%d]", i), t.values); err != nil {
			return err
		}
	}
	return nil
}

// Resolve returns the partitions of a scheme that the selection names at an instant. A value of time
// may be that of a coarser kind, which is all partitions in it. A dimension that the scheme does not
// have is a fault; use For with assets of several schemes.
func (s Selection) Resolve(scheme *Scheme, now time.Time) (Set, error) {
	var set Set
	for i, t := range s.terms {
		field := fmt.Sprintf("partitions[%d]", i)
		values := t.values
		if t.bare != "" {
			if len(scheme.dimensions) != 1 {
				return Set{}, scheme.needsNames(field, t.bare)
			}
			values = map[string]string{scheme.dimensions[0].Name: t.bare}
		}
		if err := scheme.known(field, values); err != nil {
			return Set{}, err
		}
		one, err := scheme.resolve(field, values, now)
		if err != nil {
			return Set{}, err
		}
		set = set.Union(one)
		if n := set.Count(); n > MaxSelected {
			return Set{}, fault.New(fault.LimitExceeded, fmt.Sprintf("the selection has %d partitions, the limit is %d", n, MaxSelected),
				fault.Field("partitions"), fault.Remedy("select a shorter range"), fault.Value("limit", MaxSelected), fault.Value("current", n))
		}
	}
	return set, nil
}

// For is Resolve for one of several schemes: of the dimensions, those that the scheme does not have
// do not restrict it. A time dimension that is not named follows the one that is.
func (s Selection) For(scheme *Scheme, now time.Time) (Set, error) {
	adapted := Selection{}
	for _, t := range s.terms {
		a := term{text: t.text, bare: t.bare, values: map[string]string{}}
		for name, value := range t.values {
			if _, ok := scheme.dimension(name); ok {
				a.values[name] = value
				continue
			}
			if d, timed := scheme.Axis(); timed && d.Kind.Time() && t.values[d.Name] == "" && spelledTime(value) {
				a.values[d.Name] = value
			}
		}
		if a.bare != "" && len(scheme.dimensions) > 1 {
			if d, timed := scheme.Axis(); timed && d.Kind.Time() && spelledTime(a.bare) {
				a.values[d.Name], a.bare = a.bare, ""
			}
		}
		adapted.terms = append(adapted.terms, a)
	}
	return adapted.Resolve(scheme, now)
}

// spelledTime reports whether a value or range is one of time.
func spelledTime(value string) bool {
	first, last, ranged := strings.Cut(value, "..")
	if ranged && first == "" {
		first = last
	}
	_, _, ok := readTime(first)
	return ok
}

func (s *Scheme) resolve(field string, values map[string]string, now time.Time) (Set, error) {
	series, err := s.seriesOf(func(d Dimension) ([]string, error) {
		value, named := values[d.Name]
		if !named || value == "*" {
			return s.valuesOf(d), nil
		}
		if err := s.single(field, d, value); err != nil {
			return nil, err
		}
		_, err := s.ordinalOf(field, d, value)
		return []string{value}, err
	})
	if err != nil {
		return Set{}, err
	}
	ranges := Ranges{{0, 0}}
	if s.axis >= 0 {
		d := s.dimensions[s.axis]
		value, named := values[d.Name]
		if ranges, err = s.axisRanges(field, d, value, named, now); err != nil {
			return Set{}, err
		}
	}
	var set Set
	for _, name := range series {
		set.put(name, ranges)
	}
	return set, nil
}

// single refuses a range of values that have no order.
func (s *Scheme) single(field string, d Dimension, value string) error {
	if !strings.Contains(value, "..") {
		return nil
	}
	return fault.Invalid(field, fmt.Sprintf("%s is %s: it has no ranges, is %.100q", d.Name, d.Kind, value), "repeat the option for each value, or write * for all")
}

func (s *Scheme) axisRanges(field string, d Dimension, value string, named bool, now time.Time) (Ranges, error) {
	if !d.Kind.Time() {
		if !named || value == "*" {
			return s.values.numbers(d.Source), nil
		}
		if err := s.single(field, d, value); err != nil {
			return nil, err
		}
		ordinal, err := s.ordinalOf(field, d, value)
		return Ranges{{ordinal, ordinal}}, err
	}
	if !named {
		return nil, fault.Invalid(field, "names no value of "+d.Name, fmt.Sprintf("add %s=%s, a range, or %s=* for all", d.Name, d.Kind.example(), d.Name))
	}
	return s.timeRange(field, d, value, now)
}

// timeRange reads a value or a range of time. An open end is the first or the last completed
// partition.
func (s *Scheme) timeRange(field string, d Dimension, value string, now time.Time) (Ranges, error) {
	bounds := s.Bounds(now)
	r := bounds
	first, last, ranged := strings.Cut(value, "..")
	if !ranged {
		last = first
	}
	if value == "*" {
		first, last = "", ""
	}
	if first != "" {
		one, err := s.timeValue(field, d, first)
		if err != nil {
			return nil, err
		}
		r.First = one.First
	}
	if last != "" {
		one, err := s.timeValue(field, d, last)
		if err != nil {
			return nil, err
		}
		r.Last = one.Last
	}
	// The current partition may be named although slots do not cover it yet.
	current := max(bounds.Last, s.calendar.at(now))
	switch {
	case first != "" && last != "" && r.First > r.Last:
		return nil, fault.Invalid(field, fmt.Sprintf("the range %.100q is reversed", value), fmt.Sprintf("write %s..%s", last, first))
	case r.First < s.start:
		return nil, fault.Invalid(field, fmt.Sprintf("%s=%.100s begins before the first partition %s", d.Name, value, d.Start), "begin later, or set an earlier start in the manifest")
	case r.Last > current:
		return nil, fault.Invalid(field, fmt.Sprintf("%s=%.100s ends in the future: the current partition is %s", d.Name, value, d.Kind.spell(current)), "end earlier")
	}
	existing := s.existing(r)
	if len(existing) == 0 && first != "" {
		if first == last && r.First == r.Last {
			return nil, fault.Invalid(field, fmt.Sprintf("the day %s does not exist in %s", value, d.Timezone), "use the day before or after it")
		}
		return nil, fault.Invalid(field, fmt.Sprintf("%s=%.100s has no completed partition", d.Name, value), "begin earlier")
	}
	return existing, nil
}

// timeValue returns the partitions that a value of the same or another kind names.
func (s *Scheme) timeValue(field string, d Dimension, value string) (Range, error) {
	kind, ordinal, ok := readTime(value)
	if !ok {
		return Range{}, fault.Invalid(field, fmt.Sprintf("%.100q is not a value of %s", value, d.Name), fmt.Sprintf("write it as %s, from %d to %d", d.Kind.example(), firstYear, lastYear))
	}
	spelled := calendar{kind, s.calendar.zone}
	if kind == Daily && d.Kind != Daily && !spelled.exists(ordinal) {
		return Range{}, fault.Invalid(field, fmt.Sprintf("the day %s does not exist in %s", value, d.Timezone), "use the day before or after it")
	}
	return spelled.overlap(Range{ordinal, ordinal}, s.calendar), nil
}

// Select returns the partitions with these ordinals of time, or with all values of an axis without
// time. Values restrict the other dimensions.
func (s *Scheme) Select(time Ranges, values map[string]string) (Set, error) {
	series, err := s.seriesOf(func(d Dimension) ([]string, error) {
		value, named := values[d.Name]
		if !named {
			return s.valuesOf(d), nil
		}
		_, err := s.ordinalOf("partitions", d, value)
		return []string{value}, err
	})
	if err != nil {
		return Set{}, err
	}
	ranges := time
	switch {
	case s.axis < 0:
		ranges = Ranges{{0, 0}}
	case !s.Timed():
		d := s.dimensions[s.axis]
		if ranges = s.values.numbers(d.Source); values[d.Name] != "" {
			ordinal, err := s.ordinalOf("partitions", d, values[d.Name])
			if err != nil {
				return Set{}, err
			}
			ranges = Ranges{{ordinal, ordinal}}
		}
	}
	var set Set
	for _, name := range series {
		set.put(name, ranges)
	}
	return set, nil
}

// Title names a range of the axis as a selection does: date=2026-01-01..2026-01-03.
func (s *Scheme) Title(r Range) string {
	value := s.axisValue(r.First)
	if r.Last != r.First {
		value += ".." + s.axisValue(r.Last)
	}
	return s.dimensions[s.axis].Name + "=" + value
}
