package config

import (
	"slices"
	"time"

	"go.arco.dev/servo/internal/domain/schedule"
)

// onTime is how late a slot may fire if the config does not catch up.
const onTime = time.Minute

// Decision lists the slots that fire and the slots that are skipped at one moment.
type Decision struct {
	Skipped []Range     // in their order, before the slots that fire
	Fire    []time.Time // the oldest first; locks, quotas and dependencies may still prevent them
	Until   time.Time   // every slot up to here is decided
}

// Due decides about the slots after decided that are due by now. The catch-up policy decides about
// missed slots.
func (c Config) Due(s *schedule.Schedule, decided, now time.Time) Decision {
	d := Decision{Until: decided}
	if !c.MovedTo.IsZero() {
		if c.MovedTo.After(now) {
			return d
		}
		// The moved slot replaces the slots that the schedule had before it. Slots and times in the
		// ledger are whole microseconds.
		d.skip(c.Gap(s, decided, c.MovedTo.Add(-time.Microsecond), SkippedEdited, "the next slot was moved"))
		d.Until = c.MovedTo
	}
	if !c.MovedTo.IsZero() {
		d.Fire = []time.Time{c.MovedTo}
	}
	horizon := now.Add(-c.Delay())
	if !horizon.After(d.Until) {
		return d
	}
	total := s.Count(d.Until, horizon)
	if total == 0 {
		return d
	}
	return c.catchUp(s, d, horizon, total, now)
}

// catchUp selects the slots that fire out of all that are due.
func (c Config) catchUp(s *schedule.Schedule, d Decision, horizon time.Time, total int, now time.Time) Decision {
	most := 1
	if c.Spec.Catchup.Policy == CatchupAll {
		most = c.Spec.Catchup.MaxSlots
	}
	newest := last(s, d.Until, horizon, min(most, total))
	until := newest[len(newest)-1]
	fire := slices.DeleteFunc(newest, func(slot time.Time) bool { return !c.wanted(slot, now) })
	if moved := d.Fire; len(moved) > 0 {
		// The moved slot is the oldest of the missed slots.
		d.Fire = nil
		if c.Spec.Catchup.Policy == CatchupAll && len(fire) < most && c.wanted(moved[0], now) || len(fire) == 0 && c.wanted(moved[0], now) {
			d.Fire = moved
		} else {
			d.skip(Range{From: moved[0], To: moved[0], Slots: 1, Outcome: SkippedCatchup, Reason: "missed", Version: c.Version}, true)
		}
	}
	before := until
	if len(fire) > 0 {
		before = fire[0].Add(-time.Microsecond)
	}
	d.skip(c.Gap(s, d.Until, before, SkippedCatchup, "missed"))
	d.Fire = append(d.Fire, fire...)
	d.Until = until
	return d
}

// wanted reports whether a slot that is due still fires.
func (c Config) wanted(slot, now time.Time) bool {
	late := now.Sub(slot)
	if c.Spec.Catchup.Policy == CatchupNone {
		return late <= c.Delay()+onTime
	}
	return c.Spec.Catchup.Window == 0 || late <= c.Spec.Catchup.Window.Std()
}

// Gap returns the range of the schedule's slots in (after, until], if it has any there: the slots
// that an edit, a pause or the catch-up policy skips.
func (c Config) Gap(s *schedule.Schedule, after, until time.Time, outcome Outcome, reason string) (Range, bool) {
	if !until.After(after) {
		return Range{}, false
	}
	first, ok := s.Next(after)
	if !ok || first.After(until) {
		return Range{}, false
	}
	return Range{
		From: first, To: last(s, after, until, 1)[0], Slots: int64(s.Count(after, until)), Outcome: outcome, Reason: reason, Version: c.Version,
	}, true
}

// Next returns the next slot after the decided ones, and when the config is due for it. Both are
// zero if there is none.
func (c Config) Next(s *schedule.Schedule, decided time.Time) (slot, due time.Time) {
	if !c.MovedTo.IsZero() && c.MovedTo.After(decided) {
		slot, due = c.MovedTo, c.MovedTo
	} else if next, ok := s.Next(decided); ok {
		slot, due = next, next.Add(c.Delay())
	}
	if !c.Fires() {
		due = time.Time{}
	}
	return slot, due
}

func (d *Decision) skip(r Range, some bool) {
	if some {
		d.Skipped = append(d.Skipped, r)
	}
}

// last returns the newest n slots in (after, until], which has at least as many.
func last(s *schedule.Schedule, after, until time.Time, n int) []time.Time {
	var from time.Time
	for window := time.Minute; ; window *= 4 {
		if from = until.Add(-window); !from.After(after) {
			from = after
		}
		if from.Equal(after) || s.Count(from, until) >= n {
			break
		}
	}
	slots := slices.Collect(s.All(from, until))
	return slots[max(0, len(slots)-n):]
}
