package config

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"time"

	"go.arco.dev/servo/internal/base/fault"
	"go.arco.dev/servo/internal/domain/partition"
	"go.arco.dev/servo/internal/domain/schedule"
)

// Partitions defines which partitions a slot of a config covers. By default these are all that were
// completed since the last slot that fired, up to DefaultMaxPartitions.
type Partitions struct {
	Max int `json:"max_partitions,omitempty"` // of each scheme and slot
	// Values restrict dimensions: a time dimension to the partition of a slot ("slot-2d"), another one
	// to a value.
	Values map[string]string `json:"values,omitempty"`
}

// The limits of partitions of slots.
const (
	DefaultMaxPartitions = 100
	maxMaxPartitions     = 10_000
	maxPartitionValues   = partition.MaxDimensions
)

var offsetPattern = regexp.MustCompile(`^slot(?:-([1-9][0-9]{0,3})([hdwm]))?$`)

func (s Spec) checkPartitions() error {
	p := s.Partitions
	if p == nil {
		return nil
	}
	if p.Max < 0 || p.Max > maxMaxPartitions {
		return fault.Invalid("partitions.max_partitions", fmt.Sprintf("is %d, must be 1 to %d", p.Max, maxMaxPartitions), "choose a number in the range")
	}
	if len(p.Values) > maxPartitionValues {
		return fault.Invalid("partitions.values", fmt.Sprintf("has %d entries, the limit is %d", len(p.Values), maxPartitionValues), "name at most one value for each dimension")
	}
	for _, name := range slices.Sorted(maps.Keys(p.Values)) {
		value := p.Values[name]
		if len(value) >= 4 && value[:4] == "slot" && !offsetPattern.MatchString(value) {
			return fault.Invalid("partitions.values."+name, fmt.Sprintf("%.100q is not an offset of the slot", value), "write slot, slot-2d, slot-3h, slot-1w or slot-1m")
		}
	}
	return nil
}

// CheckPartitions checks the partitions of a spec against the schemes of its pipeline.
func (s Spec) CheckPartitions(schemes []*partition.Scheme) error {
	if s.Partitions == nil {
		return nil
	}
	if len(schemes) == 0 {
		return fault.Invalid("partitions", "no asset of pipeline "+s.Pipeline+" has partitions", "remove it, or declare partitions in the manifest")
	}
	for _, name := range slices.Sorted(maps.Keys(s.Partitions.Values)) {
		var known, offset bool
		value := s.Partitions.Values[name]
		offset = offsetPattern.MatchString(value)
		var names []string
		for _, scheme := range schemes {
			for _, d := range scheme.Dimensions() {
				names = append(names, d.Name)
				if d.Name != name {
					continue
				}
				known = true
				switch {
				case d.Kind.Time() && !offset:
					return fault.Invalid("partitions.values."+name, fmt.Sprintf("%.100q is not an offset of the slot", value), "write slot-2d, for example; name fixed partitions when you trigger a run")
				case d.Kind == partition.Static && !slices.Contains(d.Values, value):
					return fault.Invalid("partitions.values."+name, fmt.Sprintf("unknown value %.100q of %s", value, name), "use a value of the dimension")
				}
			}
		}
		if !known {
			slices.Sort(names)
			return fault.Invalid("partitions.values."+name, fmt.Sprintf("unknown dimension %.100q", name), fmt.Sprintf("use one of %v", slices.Compact(names)))
		}
	}
	return nil
}

// Coverage is the partitions of one slot.
type Coverage struct {
	spec Partitions
	slot time.Time
	// after and Until bound the completion of the partitions: Until is in it. A slot that fires moves
	// the config's coverage to Until.
	after, Until time.Time
	first        bool // no slot has fired before
	// None reports that no partition of time is newly completed: the slot is skipped.
	None bool
}

// Cover returns what a slot covers: the partitions that were completed after covered, the end of the
// coverage of the slots that fired before. It is zero for the first slot, which covers the last
// completed partition, and those completed since the config was created.
func (c Config) Cover(schemes []*partition.Scheme, covered, slot time.Time) Coverage {
	out := Coverage{slot: slot, after: covered, Until: slot}
	if c.Spec.Partitions != nil {
		out.spec = *c.Spec.Partitions
	}
	if out.first = covered.IsZero(); out.first {
		out.after = c.CreatedAt
	}
	most := int64(out.spec.Max)
	if most == 0 {
		most = DefaultMaxPartitions
	}
	for _, scheme := range schemes {
		if !scheme.Timed() || out.fixed(scheme) {
			continue
		}
		// The last partition that the slot has room for ends the coverage of all schemes.
		covered := scheme.Covered(out.after, out.Until)
		if covered.Count() <= most {
			continue
		}
		left := most
		for _, r := range covered {
			if left <= r.Len() {
				out.Until = scheme.CompletedAt(r.First + left - 1)
				break
			}
			left -= r.Len()
		}
	}
	timed := false
	out.None = true
	for _, scheme := range schemes {
		if scheme.Timed() {
			timed = true
			out.None = out.None && len(out.ranges(scheme)) == 0
		}
	}
	out.None = out.None && timed
	return out
}

// fixed reports whether an offset of the slot determines the partition of a scheme.
func (c Coverage) fixed(scheme *partition.Scheme) bool {
	axis, ok := scheme.Axis()
	return ok && c.spec.Values[axis.Name] != ""
}

// ranges returns the ordinals of time that the slot covers.
func (c Coverage) ranges(scheme *partition.Scheme) partition.Ranges {
	if axis, _ := scheme.Axis(); c.fixed(scheme) {
		at, ok := slotOffset(c.slot, c.spec.Values[axis.Name], axis.Timezone)
		if !ok {
			return nil
		}
		ordinal := scheme.At(at)
		if ordinal < scheme.Start() {
			return nil
		}
		return partition.Ranges{{First: ordinal, Last: ordinal}}
	}
	covered := scheme.Covered(c.after, c.Until)
	if len(covered) > 0 || !c.first {
		return covered
	}
	if last, ok := scheme.LastCovered(c.Until); ok {
		return partition.Ranges{{First: last, Last: last}}
	}
	return nil
}

// slotOffset returns the instant that a value such as slot-2d names, by the calendar of a zone.
func slotOffset(slot time.Time, value, zone string) (time.Time, bool) {
	parts := offsetPattern.FindStringSubmatch(value)
	if parts == nil {
		return slot, false
	}
	n, _ := strconv.Atoi(parts[1])
	location, err := schedule.Location(zone)
	if err != nil {
		return slot, false
	}
	local := slot.In(location)
	switch parts[2] {
	case "h":
		return slot.Add(-time.Duration(n) * time.Hour), true
	case "d":
		return local.AddDate(0, 0, -n), true
	case "w":
		return local.AddDate(0, 0, -7*n), true
	case "m":
		return time.Date(local.Year(), local.Month()-time.Month(n), 1, 12, 0, 0, 0, location), true
	}
	return slot, true
}

// Select returns the partitions of a scheme.
func (c Coverage) Select(scheme *partition.Scheme) (partition.Set, error) {
	var ranges partition.Ranges
	if scheme.Timed() {
		if ranges = c.ranges(scheme); len(ranges) == 0 {
			return partition.Set{}, nil
		}
	}
	return scheme.Select(ranges, c.spec.Values)
}

// Names lists the partitions of time by scheme, such as date=2026-01-01..2026-01-03.
func (c Coverage) Names(schemes []*partition.Scheme) (names []string) {
	for _, scheme := range schemes {
		if !scheme.Timed() {
			continue
		}
		for _, r := range c.ranges(scheme) {
			if name := scheme.Title(r); !slices.Contains(names, name) {
				names = append(names, name)
			}
		}
	}
	slices.Sort(names)
	return names
}
