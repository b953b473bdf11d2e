package partition

import (
	"sort"
	"time"

	"go.arco.dev/servo/internal/domain/schedule"
)

// calendar divides time into the partitions of one kind in one zone.
type calendar struct {
	kind Kind
	zone schedule.Zone
}

// beginning is the instant with which a partition begins: the one before it has ended there. A local
// day begins after the last instant of the day before, also if clocks went back across midnight.
// Hours are those of UTC in every zone.
func (c calendar) beginning(ordinal int64) time.Time {
	if c.kind == Hourly {
		return time.Unix(ordinal*secondsPerHour, 0).UTC()
	}
	return time.Unix(startOfDay(c.kind.firstDay(ordinal), c.zone), 0).UTC()
}

// margin is more than any offset of a zone, and any change of one.
const margin = 2 * secondsPerDay

// startOfDay is the least upper bound of the instants whose local date is before the day.
func startOfDay(day int64, zone schedule.Zone) int64 {
	midnight := day * secondsPerDay // as a local reading
	latest := int64(0)
	for at := midnight - margin; at <= midnight+margin; {
		offset, until := zone.Offset(at)
		if reached := min(midnight-offset, until); reached > at {
			latest = reached
		}
		at = until
	}
	return latest
}

// end is the instant with which a partition ends.
func (c calendar) end(ordinal int64) time.Time { return c.beginning(ordinal + 1) }

// exists reports whether a partition has any time. A day that a zone left out has none.
func (c calendar) exists(ordinal int64) bool {
	return c.kind != Daily || c.beginning(ordinal).Before(c.end(ordinal))
}

// at returns the partition that contains an instant.
func (c calendar) at(instant time.Time) int64 {
	if c.kind == Hourly {
		return floor(instant.Unix(), secondsPerHour)
	}
	offset, _ := c.zone.Offset(instant.Unix())
	ordinal := c.kind.ofDay(floor(instant.Unix()+offset, secondsPerDay))
	for c.beginning(ordinal).After(instant) {
		ordinal--
	}
	for !c.end(ordinal).After(instant) {
		ordinal++
	}
	return ordinal
}

// completed returns the last partition that has ended at an instant. A day that does not exist ends
// with the day before it.
func (c calendar) completed(instant time.Time) int64 { return c.at(instant) - 1 }

// overlap returns the partitions of another calendar that share time with a range.
func (c calendar) overlap(r Range, other calendar) Range {
	if c.kind == other.kind {
		return r // by name, whatever the zones
	}
	from, until := c.beginning(r.First), c.end(r.Last)
	if !from.Before(until) {
		return Range{0, -1}
	}
	return Range{other.at(from), other.at(until.Add(-time.Nanosecond))}
}

// missingDays are the days of a zone that do not exist, ascending.
func (c calendar) missingDays() []int64 {
	if c.kind != Daily {
		return nil
	}
	var missing []int64
	at := Daily.limits().First * secondsPerDay
	before, until := c.zone.Offset(at)
	for until < dayOf(lastMissing, time.January, 1)*secondsPerDay {
		at = until
		var after int64
		after, until = c.zone.Offset(at)
		if after-before >= secondsPerDay/2 {
			day := floor(at+before, secondsPerDay)
			for d := day - 1; d <= day+1; d++ {
				if !c.exists(d) {
					missing = append(missing, d)
				}
			}
		}
		before = after
	}
	return missing
}

// lastMissing bounds the search for days that do not exist: rules for the future have none.
const lastMissing = 2040

// without removes the days that do not exist from a range.
func without(r Range, missing []int64) Ranges {
	var left Ranges
	for _, day := range missing[sort.Search(len(missing), func(i int) bool { return missing[i] >= r.First }):] {
		if day > r.Last {
			break
		}
		if r.First < day {
			left = append(left, Range{r.First, day - 1})
		}
		r.First = day + 1
	}
	if r.First <= r.Last {
		left = append(left, r)
	}
	return left
}
