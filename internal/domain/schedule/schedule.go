// Package schedule computes the slots of a config from its trigger and its time zone. Firing, preview,
// simulation and the check of the ledger all use the same function, Slots. It is pure: it never reads
// a clock, a database, the network or the machine's own zone data, so every replica computes the same
// slots.
package schedule

import (
	"fmt"
	"iter"
	"slices"
	"time"

	"go.arco.dev/servo/internal/base/fault"
)

// Kind is the kind of a trigger.
type Kind string

// The kinds of triggers. Event and manual triggers have no slots.
const (
	Cron     Kind = "cron"
	Interval Kind = "interval"
	Event    Kind = "event"
	Manual   Kind = "manual"
)

// Trigger defines when a config fires. Fields of other kinds are empty, except for the anchor, which
// expressions other than @every ignore.
type Trigger struct {
	Kind     Kind
	Cron     string        // an expression or an @-name; template names are resolved before
	Interval time.Duration // whole seconds
	Anchor   time.Time     // the first slot of an interval or of @every; zero is 1970-01-01
	Event    *EventTrigger
}

// EventTrigger fires on an event. Exactly one field is set.
type EventTrigger struct {
	Config string // fires when a run of this config succeeds
	Name   string // fires when an external event of this name arrives
}

// The limits of triggers.
const (
	MinInterval = time.Second
	MaxInterval = 366 * 24 * time.Hour
	maxName     = 256
)

// Slots lie in the years 1970 to 9999.
const (
	firstSlot = 0
	lastSlot  = 253_402_300_799
)

// Schedule computes the slots of one trigger in one zone. It is immutable and safe for concurrent use.
type Schedule struct {
	kind   Kind
	zone   *zone
	fields *fields    // of an expression
	every  *intervals // of an interval, @every included
}

// Parse validates a trigger and its zone. An error is an InvalidArgument fault with the field, the
// reason and a valid example.
func Parse(t Trigger, zone string) (*Schedule, error) {
	z, err := findZone(zone)
	if err != nil {
		return nil, err
	}
	if err := checkKind(t); err != nil {
		return nil, err
	}
	s := &Schedule{kind: t.Kind, zone: z}
	switch t.Kind {
	case Cron:
		interval, ok, err := parseEvery(t.Cron)
		switch {
		case err != nil:
			return nil, err
		case ok:
			s.every, err = newIntervals(t.Anchor, interval)
			return s, err
		}
		if s.fields, err = parseExpression(t.Cron); err != nil {
			return nil, err
		}
		return s, s.checkPossible(t.Cron)
	case Interval:
		if err := checkInterval("trigger.interval", "15m", t.Interval); err != nil {
			return nil, err
		}
		s.every, err = newIntervals(t.Anchor, t.Interval)
		return s, err
	case Event:
		return s, checkEvent(t.Event)
	default:
		return s, nil
	}
}

// checkKind refuses a trigger with an unknown kind, or with fields of another kind.
func checkKind(t Trigger) error {
	switch t.Kind {
	case Cron, Interval, Event, Manual:
	default:
		return fault.Invalid("trigger", fmt.Sprintf("unknown trigger kind %.64q", string(t.Kind)), "use cron, interval, event or manual")
	}
	for _, part := range []struct {
		kind Kind
		set  bool
	}{{Cron, t.Cron != ""}, {Interval, t.Interval != 0}, {Event, t.Event != nil}} {
		if part.set && part.kind != t.Kind {
			return fault.Invalid("trigger."+string(part.kind), fmt.Sprintf("a trigger of kind %s cannot have %s", t.Kind, part.kind), "remove one of them")
		}
	}
	return nil
}

func checkEvent(e *EventTrigger) error {
	refuse := func(reason string) error {
		return fault.Invalid("trigger.event", reason, "write config: daily-cost, or name: billing.exported")
	}
	switch {
	case e == nil || (e.Config == "") == (e.Name == ""):
		return refuse("must have either config or name")
	case len(e.Config) > maxName || len(e.Name) > maxName:
		return refuse(fmt.Sprintf("is longer than %d bytes", maxName))
	default:
		return nil
	}
}

// checkPossible refuses an expression that never fires: because no date matches, or because the zone
// skips all matching times.
func (s *Schedule) checkPossible(text string) error {
	const anyYear = 951_782_400 // 2000-02-29; the calendar repeats
	var p monthDays
	if _, ok := s.fields.next(&p, anyYear, anyYear+cycle); !ok {
		return cronFault(fmt.Sprintf("%q never fires: there is no such date", text))
	}
	w := walker{schedule: s}
	if _, ok := w.next(cycleStart - 1); !ok {
		return cronFault(fmt.Sprintf("%q never fires in %s: the clock always skips that time", text, s.zone.name))
	}
	return nil
}

// Kind returns the kind of the trigger.
func (s *Schedule) Kind() Kind { return s.kind }

// Zone returns the name of the time zone.
func (s *Schedule) Zone() string { return s.zone.name }

// Timed reports whether the schedule has slots.
func (s *Schedule) Timed() bool { return s.fields != nil || s.every != nil }

// Slots returns the slots in (after, until], in UTC, oldest first, at most limit; more reports whether
// there are more. Firing, preview, simulation and the check of the ledger use it.
func (s *Schedule) Slots(after, until time.Time, limit int) (slots []time.Time, more bool) {
	if limit > fewSlots {
		slots = slices.Grow(slots, min(limit, manySlots, s.Count(after, until)))
	}
	for slot := range s.All(after, until) {
		if len(slots) >= limit {
			return slots, true
		}
		slots = append(slots, slot)
	}
	return slots, false
}

// A list that may become long is counted first, so that it is not copied while it grows; beyond
// manySlots no memory is allocated in advance.
const (
	fewSlots  = 64
	manySlots = 1 << 16
)

// All iterates over the slots in (after, until].
func (s *Schedule) All(after, until time.Time) iter.Seq[time.Time] {
	return func(yield func(time.Time) bool) {
		w := walker{schedule: s}
		for {
			slot, ok := w.nextTime(after)
			if !ok || slot.After(until) || !yield(slot) {
				return
			}
			after = slot
		}
	}
}

// Next returns the first slot after an instant; false if there is none until the year 9999.
func (s *Schedule) Next(after time.Time) (time.Time, bool) {
	w := walker{schedule: s}
	return w.nextTime(after)
}

// Count returns how many slots lie in (after, until]. It does not enumerate them: an interval takes a
// division, an expression a step for each month and each change of offset.
func (s *Schedule) Count(after, until time.Time) int {
	switch {
	case s.every != nil:
		return s.every.upTo(until) - s.every.upTo(after)
	case s.fields == nil:
		return 0
	}
	from, to := max(after.Unix(), firstSlot-1), min(until.Unix(), lastSlot)
	if from >= to {
		return 0
	}
	if s.fields.real {
		return s.countReal(from, to)
	}
	return s.countWall(from, to)
}

// Shift is the effect of a change of the zone's offset on a slot.
type Shift string

// The kinds of shifts.
const (
	NoShift   Shift = ""
	GapShift  Shift = "gap"  // its local time does not exist; it fires at the first instant after the gap
	FoldShift Shift = "fold" // its local time exists twice
)

// Shift returns whether a slot was moved out of a gap, or lies in a fold. A wall-clock expression has a
// slot only in the first pass of a fold; one that follows real time has slots in both.
func (s *Schedule) Shift(slot time.Time) Shift {
	if s.fields == nil || slot.Unix() < firstSlot || slot.Unix() > lastSlot {
		return NoShift
	}
	at := slot.Unix()
	here := s.zone.segment(at)
	reading := at + here.offset
	if before := s.zone.segment(here.from - 1); here.from > -forever {
		if here.from == at && !s.fields.real && before.offset < here.offset {
			var p monthDays
			if _, ok := s.fields.next(&p, at+before.offset, reading-1); ok {
				return GapShift
			}
		}
		if reading < here.from+before.offset {
			return FoldShift
		}
	}
	if after := s.zone.segment(here.until); here.until < forever && reading >= here.until+after.offset {
		return FoldShift
	}
	return NoShift
}
