package partition

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"go.arco.dev/servo/internal/base/fault"
	"go.arco.dev/servo/internal/base/suggest"
)

// spellKey writes values as JSON with sorted keys; "" for none. Names and values need no escapes.
func spellKey(values map[string]string) string {
	if len(values) == 0 {
		return ""
	}
	var b strings.Builder
	for i, name := range slices.Sorted(maps.Keys(values)) {
		b.WriteString([]string{"{", ","}[min(i, 1)])
		b.WriteString(strconv.Quote(name))
		b.WriteByte(':')
		b.WriteString(strconv.Quote(values[name]))
	}
	b.WriteByte('}')
	return b.String()
}

// readKey reads the values of a key or a series.
func readKey(text string) (map[string]string, error) {
	values := map[string]string{}
	if text == "" {
		return values, nil
	}
	err := json.Unmarshal([]byte(text), &values)
	return values, err
}

// axisValue spells an ordinal of the axis.
func (s *Scheme) axisValue(ordinal int64) string {
	if s.Timed() {
		return s.dimensions[s.axis].Kind.spell(ordinal)
	}
	if v, ok := s.values[s.dimensions[s.axis].Source].at(ordinal); ok {
		return v.Value
	}
	return "#" + strconv.FormatInt(ordinal, 10) // of a list that is not bound
}

// Key returns the key of a partition: canonical JSON such as {"date":"2026-01-01","region":"eu"}.
func (s *Scheme) Key(p ID) string { return s.RangeKey(p.Series, Range{p.Ordinal, p.Ordinal}) }

// RangeKey returns the key of consecutive partitions of a series: the axis has "first..last". The
// key of one partition is its own.
func (s *Scheme) RangeKey(series string, r Range) string {
	values, err := readKey(series)
	if err != nil {
		return series
	}
	if s.axis >= 0 {
		value := s.axisValue(r.First)
		if r.Last != r.First {
			value += ".." + s.axisValue(r.Last)
		}
		values[s.dimensions[s.axis].Name] = value
	}
	return spellKey(values)
}

// Bare returns a key as people see it: the value alone with one dimension.
func Bare(key string) string {
	values, err := readKey(key)
	if err != nil || len(values) != 1 {
		return key
	}
	for _, value := range values {
		return value
	}
	return key
}

// Keys returns the keys of a range of a series, in order.
func (s *Scheme) Keys(series string, r Range) []string {
	var keys []string
	if s.axis < 0 {
		return []string{s.RangeKey(series, r)}
	}
	ordinals := s.existing(r)
	if !s.Timed() { // also values that were removed since
		ordinals = Ranges{r}
	}
	for _, part := range ordinals {
		for o := part.First; o <= part.Last; o++ {
			if !s.Timed() {
				if _, known := s.values[s.dimensions[s.axis].Source].at(o); !known {
					continue
				}
			}
			keys = append(keys, s.Key(ID{series, o}))
		}
	}
	return keys
}

// Parse reads the key of one partition, as JSON or as the bare value of a scheme with one dimension.
func (s *Scheme) Parse(text string) (ID, error) {
	selection, err := ParseSelection(text)
	if err != nil {
		return ID{}, err
	}
	values := selection.terms[0].values
	if selection.terms[0].bare != "" {
		if len(s.dimensions) != 1 {
			return ID{}, s.needsNames("partition", text)
		}
		values = map[string]string{s.dimensions[0].Name: selection.terms[0].bare}
	}
	if err := s.known("partition", values); err != nil {
		return ID{}, err
	}
	id := ID{}
	series := map[string]string{}
	for i, d := range s.dimensions {
		value, set := values[d.Name]
		if !set {
			return ID{}, fault.Invalid("partition", fmt.Sprintf("%.100q has no dimension %s", text, d.Name), "name a value of every dimension: "+s.String())
		}
		ordinal, err := s.ordinalOf("partition", d, value)
		if err != nil {
			return ID{}, err
		}
		if i == s.axis {
			id.Ordinal = ordinal
		} else {
			series[d.Name] = value
		}
	}
	id.Series = spellKey(series)
	return id, nil
}

func (s *Scheme) needsNames(field, text string) error {
	names := make([]string, len(s.dimensions))
	for i, d := range s.dimensions {
		names[i] = d.Name + "=…"
	}
	return fault.Invalid(field, fmt.Sprintf("%.100q names no dimension, the partitions are %s", text, s), "write "+strings.Join(names, ","))
}

// known refuses dimensions that the scheme does not have.
func (s *Scheme) known(field string, values map[string]string) error {
	for _, name := range slices.Sorted(maps.Keys(values)) {
		if _, ok := s.dimension(name); !ok {
			return s.unknownDimension(field, name)
		}
	}
	return nil
}

func (s *Scheme) unknownDimension(field, name string) error {
	names := make([]string, len(s.dimensions))
	for i, d := range s.dimensions {
		names[i] = d.Name
	}
	return fault.Invalid(field, fmt.Sprintf("unknown dimension %.100q%s", name, suggest.DidYouMean(name, names)), "use one of "+strings.Join(names, ", "))
}

func (s *Scheme) dimension(name string) (Dimension, bool) {
	i := slices.IndexFunc(s.dimensions, func(d Dimension) bool { return d.Name == name })
	if i < 0 {
		return Dimension{}, false
	}
	return s.dimensions[i], true
}

// ordinalOf checks one value of a dimension and returns its number: 0 for a static value.
func (s *Scheme) ordinalOf(field string, d Dimension, value string) (int64, error) {
	switch {
	case d.Kind.Time():
		kind, ordinal, ok := readTime(value)
		if !ok || kind != d.Kind {
			return 0, fault.Invalid(field, fmt.Sprintf("%.100q is not a %s partition of %s", value, d.Kind, d.Name), "write it as "+d.Kind.example())
		}
		if !s.calendar.exists(ordinal) {
			return 0, fault.Invalid(field, fmt.Sprintf("the day %s does not exist in %s", value, d.Timezone), "use the day before or after it")
		}
		if ordinal < s.start {
			return 0, fault.Invalid(field, fmt.Sprintf("%s=%s is before the first partition %s", d.Name, value, d.Start), "use a later one, or set an earlier start in the manifest")
		}
		return ordinal, nil
	case d.Kind == Static:
		if !slices.Contains(d.Values, value) {
			return 0, fault.Invalid(field, fmt.Sprintf("unknown value %.100q of %s%s", value, d.Name, suggest.DidYouMean(value, d.Values)), "use one of "+listed(d.Values))
		}
		return 0, nil
	}
	v, ok := s.values[d.Source].find(value)
	if !ok || v.Removed {
		return 0, fault.Invalid(field, fmt.Sprintf("unknown value %.100q of %s%s", value, d.Name, suggest.DidYouMean(value, s.values.current(d.Source))),
			fmt.Sprintf("add it: servo partitions add %s %s", d.Source, valueOrPlaceholder(value)))
	}
	return v.Number, nil
}

func valueOrPlaceholder(value string) string {
	if CheckValue("", value) != nil {
		return "VALUE"
	}
	return value
}

// listed names the first values of a list.
func listed(values []string) string {
	const some = 10
	text := strings.Join(values[:min(len(values), some)], ", ")
	if len(values) > some {
		text += fmt.Sprintf(" and %d more", len(values)-some)
	}
	return text
}

// ParseRange reads what RangeKey wrote: the key of one partition or of consecutive ones. Days that do
// not exist may lie between them.
func (s *Scheme) ParseRange(text string) (series string, r Range, err error) {
	values, err := readKey(text)
	if err != nil || len(values) == 0 {
		p, err := s.Parse(text)
		return p.Series, Range{p.Ordinal, p.Ordinal}, err
	}
	var axis Dimension
	if s.axis >= 0 {
		axis = s.dimensions[s.axis]
	}
	first, last, ranged := strings.Cut(values[axis.Name], "..")
	if !ranged {
		p, err := s.Parse(text)
		return p.Series, Range{p.Ordinal, p.Ordinal}, err
	}
	values[axis.Name] = first
	begin, err := s.Parse(spellKey(values))
	if err != nil {
		return "", Range{}, err
	}
	values[axis.Name] = last
	end, err := s.Parse(spellKey(values))
	if err != nil {
		return "", Range{}, err
	}
	if begin.Ordinal > end.Ordinal {
		return "", Range{}, fault.Invalid("partition", fmt.Sprintf("the range %.100q is reversed", text), "write the earlier value first")
	}
	return begin.Series, Range{begin.Ordinal, end.Ordinal}, nil
}

// Values returns the values of a key by dimension.
func (s *Scheme) Values(key string) map[string]string {
	values, err := readKey(key)
	if err != nil {
		return nil
	}
	return values
}
