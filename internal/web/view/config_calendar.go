package view

import (
	"cmp"
	"maps"
	"slices"
	"strings"
	"time"

	servov1 "go.arco.dev/servo/gen/servo/v1"
)

// weeksShown is how many weeks the calendar of a config has.
const weeksShown = 5

// Calendar is what became of the slots of a config, day by day.
type Calendar struct {
	Weeks [][]Day
	Cut   time.Time // days before this one have more slots than were read; zero if all were
}

// Day is a cell of the calendar.
type Day struct {
	Date   string // as 2006-01-02
	Number string // of the month, with the month where it begins
	Future bool
	Cut    bool // there are more slots than were read
	Slots  int64
	Tone   string // the worst of the day; "" if there was nothing
	Shape  string
	counts map[string]int64
	parts  map[string]bool // ranges of which a part lies here
}

// CalendarFrom is the first day of the calendar at a time: a Monday.
func CalendarFrom(now time.Time, zone *time.Location) time.Time {
	local := now.In(zone)
	sinceMonday := (int(local.Weekday()) + 6) % 7
	return time.Date(local.Year(), local.Month(), local.Day()-sinceMonday-7*(weeksShown-1), 0, 0, 0, 0, zone)
}

// CalendarOf puts slots into the days of a zone. A range of slots over several days is seen on
// each of them; how many of its slots lie on which is not said, since nobody has counted.
func CalendarOf(slots []*servov1.Slots, states map[string]servov1.Run_State, now time.Time, zone *time.Location, cut bool) Calendar {
	first, today := CalendarFrom(now, zone), now.In(zone).Format(time.DateOnly)
	days := map[string]*Day{}
	var order []*Day
	for i := range 7 * weeksShown {
		at := time.Date(first.Year(), first.Month(), first.Day()+i, 0, 0, 0, 0, zone)
		d := &Day{Date: at.Format(time.DateOnly), Number: at.Format("2"), counts: map[string]int64{}, parts: map[string]bool{}}
		if i == 0 || at.Day() == 1 {
			d.Number = at.Format("2 Jan")
		}
		d.Future = d.Date > today
		days[d.Date], order = d, append(order, d)
	}
	for _, s := range slots {
		look := slotLook(s.GetOutcome(), states[s.GetRun()])
		from, to := s.GetFrom().AsTime().In(zone), s.GetTo().AsTime().In(zone)
		if s.GetTo() == nil || from.Format(time.DateOnly) == to.Format(time.DateOnly) {
			days[from.Format(time.DateOnly)].add(look, s.GetCount())
			continue
		}
		for _, d := range order {
			if d.Date >= from.Format(time.DateOnly) && d.Date <= to.Format(time.DateOnly) {
				d.part(look)
			}
		}
	}
	c := Calendar{}
	if cut && len(slots) > 0 {
		c.Cut = slots[len(slots)-1].GetFrom().AsTime().In(zone)
	}
	for i := range weeksShown {
		var week []Day
		for _, d := range order[i*7 : i*7+7] {
			d.Cut = !c.Cut.IsZero() && d.Date <= c.Cut.Format(time.DateOnly)
			week = append(week, *d)
		}
		c.Weeks = append(c.Weeks, week)
	}
	return c
}

func (d *Day) add(l Look, n int64) {
	if d == nil { // a range that began before the calendar
		return
	}
	d.counts[l.Label] += max(n, 1)
	d.Slots += max(n, 1)
	d.worse(l)
}

func (d *Day) part(l Look) {
	d.parts[l.Label] = true
	d.worse(l)
}

func (d *Day) worse(l Look) {
	order := []string{"", toneOK, toneIdle, toneRun, toneOff, toneWait, toneLate, toneBad}
	if slices.Index(order, l.Tone) > slices.Index(order, d.Tone) {
		d.Tone, d.Shape = l.Tone, l.Shape
	}
}

// Says is what became of the day's slots, in words, the most first.
func (d Day) Says() string {
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
	if d.Cut {
		parts = append(parts, "more than are counted here")
	}
	if len(parts) == 0 {
		return "no slots"
	}
	return strings.Join(parts, ", ")
}
