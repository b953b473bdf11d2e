package view

import (
	"cmp"
	"maps"
	"slices"
	"strings"
	"time"

	servov1 "go.arco.dev/servo/gen/servo/v1"
)

// weeksShown is the number of weeks of a calendar.
const weeksShown = 5

// Calendar is the outcomes of the slots of a config by day.
type Calendar struct {
	Weeks [][]Day
	Cut   time.Time // days up to this one are not counted completely; zero if all are
	// CutAfter is the day from which future slots are not counted completely; zero if all are.
	CutAfter time.Time
}

// Slots is the number of counted slots.
func (c Calendar) Slots() (n int64) {
	for _, week := range c.Weeks {
		for _, d := range week {
			n += d.Slots
		}
	}
	return n
}

// Day is a cell of the calendar.
type Day struct {
	Date    string // as 2006-01-02
	Number  string // day of the month, with the month on its first day
	Cut     bool   // not all slots were counted
	Slots   int64  // decided slots
	Next    int64  // future slots
	NextCut bool   // not all future slots were counted
	Missed  int64  // runs that missed their SLA
	Tone    string // of the worst outcome; "" without slots
	Shape   string
	counts  map[string]int64
	parts   map[string]bool // outcomes of ranges that this day is a part of
}

// CalendarFrom is noon of the first day of the calendar at a time: a Monday. Noon exists on every
// day; a clock change can skip midnight.
func CalendarFrom(now time.Time, zone *time.Location) time.Time {
	local := now.In(zone)
	sinceMonday := (int(local.Weekday()) + 6) % 7
	return time.Date(local.Year(), local.Month(), local.Day()-sinceMonday-7*(weeksShown-1), 12, 0, 0, 0, zone)
}

// CalendarTo is noon of the last day of the calendar at a time: a Sunday.
func CalendarTo(now time.Time, zone *time.Location) time.Time {
	return CalendarFrom(now, zone).AddDate(0, 0, 7*weeksShown-1)
}

// CalendarOf arranges outcomes in weeks. A range of slots over several days appears on each of
// them, without the number of its slots on that day, which is not recorded.
func CalendarOf(o *servov1.ConfigOutcomes, now time.Time, zone *time.Location) Calendar {
	first := CalendarFrom(now, zone)
	byDay := map[string]*servov1.DayOutcomes{}
	for _, d := range o.GetDays() {
		byDay[d.GetDay()] = d
	}
	c := Calendar{}
	if o.GetCountedFrom() != nil {
		c.Cut = o.GetCountedFrom().AsTime().In(zone)
	}
	if o.GetCountedTo() != nil {
		c.CutAfter = o.GetCountedTo().AsTime().In(zone)
	}
	for week := range weeksShown {
		var days []Day
		for i := range 7 {
			date := first.AddDate(0, 0, 7*week+i)
			d := dayOf(date.Format(time.DateOnly), byDay[date.Format(time.DateOnly)])
			d.Number = date.Format("2")
			if week+i == 0 || date.Day() == 1 {
				d.Number = date.Format("2 Jan")
			}
			d.Cut = !c.Cut.IsZero() && d.Date <= c.Cut.Format(time.DateOnly)
			d.NextCut = !c.CutAfter.IsZero() && d.Date >= c.CutAfter.Format(time.DateOnly)
			days = append(days, d)
		}
		c.Weeks = append(c.Weeks, days)
	}
	return c
}

func dayOf(date string, o *servov1.DayOutcomes) Day {
	d := Day{Date: date, Next: o.GetNext(), Missed: o.GetSlaMissed(), counts: map[string]int64{}, parts: map[string]bool{}}
	for state, n := range map[string]int64{
		"SUCCEEDED": o.GetSucceeded(), "FAILED": o.GetFailed(), "TIMED_OUT": o.GetTimedOut(), "CANCELLED": o.GetCancelled(),
		"RUNNING": o.GetRunning(), "PENDING": o.GetWaiting(), "FIRED": o.GetUnknown(),
	} {
		d.add(LookOf(state), n, false)
	}
	for _, s := range o.GetSkipped() {
		d.add(LookOf(s.GetOutcome().String()), s.GetSlots(), s.GetMore())
	}
	if d.Missed > 0 {
		d.worse(LookOf("LATE"))
	}
	return d
}

// add counts slots with one outcome; more reports that the day has others, which are not counted.
func (d *Day) add(l Look, n int64, more bool) {
	if n > 0 {
		d.counts[l.Label] += n
		d.Slots += n
	}
	if more {
		d.parts[l.Label] = true
	}
	if n > 0 || more {
		d.worse(l)
	}
}

// worse sets the look of a day to l if it is worse. Of two equally bad looks the one whose shape
// sorts first wins, so that the same day always has the same look.
func (d *Day) worse(l Look) {
	order := []string{"", toneOK, toneIdle, toneRun, toneOff, toneWait, toneLate, toneBad}
	old, this := slices.Index(order, d.Tone), slices.Index(order, l.Tone)
	if this > old || this == old && l.Shape < d.Shape {
		d.Tone, d.Shape = l.Tone, l.Shape
	}
}

// Summary is the number of slots by outcome, the largest first.
func (d Day) Summary() string {
	labels := slices.SortedFunc(maps.Keys(d.counts), func(a, b string) int {
		return cmp.Or(cmp.Compare(d.counts[b], d.counts[a]), cmp.Compare(a, b))
	})
	var parts []string
	for _, l := range labels {
		parts = append(parts, Count(d.counts[l], false)+" "+l)
	}
	for _, l := range slices.Sorted(maps.Keys(d.parts)) {
		parts = append(parts, "some "+l)
	}
	if d.Missed > 0 {
		parts = append(parts, Count(d.Missed, false)+" missed the SLA")
	}
	if d.Next > 0 {
		parts = append(parts, Count(d.Next, false)+" to come")
	}
	if d.Cut {
		parts = append(parts, "not all counted")
	}
	if len(parts) == 0 {
		return "no slots"
	}
	return strings.Join(parts, ", ")
}
