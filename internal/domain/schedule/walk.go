package schedule

import "time"

// The two ways from readings of the local clock to instants.
//
// An expression that follows real time fires at every instant whose reading matches. Within
// a segment, a stretch with one offset, readings and instants differ by a constant; so the
// calendar is searched segment by segment.
//
// A wall-clock expression fires once for each matching reading: at the first instant at
// which the local clock has come so far. That is the instant of the reading itself if it
// exists, the first of two if it exists twice, and the first one after the gap if it does
// not exist. So the slots after an instant are those of the readings that are higher than
// any the clock has shown until then.

// swing is more than two readings of one instant can differ, and more than the clock is
// ever put back.
const swing = 2 * secondsPerDay

// walker goes from slot to slot and keeps what it will probably need again.
type walker struct {
	schedule *Schedule
	page     page
	here     segment
}

// segment is the one around an instant.
func (w *walker) segment(instant int64) segment {
	if instant < w.here.from || instant >= w.here.until {
		w.here = w.schedule.zone.segment(instant)
	}
	return w.here
}

// nextTime is the first slot after an instant.
func (w *walker) nextTime(after time.Time) (time.Time, bool) {
	switch {
	case w.schedule.every != nil:
		return w.schedule.every.next(after)
	case w.schedule.fields == nil:
		return time.Time{}, false
	}
	// Slots are whole seconds, and Unix rounds down.
	slot, ok := w.next(max(after.Unix(), firstSlot-1))
	if !ok {
		return time.Time{}, false
	}
	return time.Unix(slot, 0).UTC(), true
}

// next is the first slot of an expression after an instant.
func (w *walker) next(after int64) (int64, bool) {
	if after >= lastSlot {
		return 0, false
	}
	if w.schedule.fields.real {
		return w.nextReal(after)
	}
	reading, ok := w.schedule.fields.next(&w.page, w.highest(after)+1, lastSlot+swing)
	if !ok {
		return 0, false
	}
	slot := w.reached(reading, after)
	return slot, slot <= lastSlot
}

// nextReal searches segment by segment. After one full cycle without a match there is none.
func (w *walker) nextReal(after int64) (int64, bool) {
	horizon := min(lastSlot, max(after, cycleStart)+cycle+swing)
	for from := after + 1; from <= horizon; {
		s := w.segment(from)
		until := min(s.until-1, horizon)
		if reading, ok := w.schedule.fields.next(&w.page, from+s.offset, until+s.offset); ok {
			return reading - s.offset, true
		}
		from = s.until
	}
	return 0, false
}

// highest is the highest reading that the local clock has shown until an instant, that one
// included.
func (w *walker) highest(instant int64) int64 {
	s := w.segment(instant)
	highest := instant + s.offset
	for s.from > instant-swing {
		end := s.from - 1
		s = w.schedule.zone.segment(end)
		highest = max(highest, end+s.offset)
	}
	return highest
}

// reached is the first instant at which the local clock has come to a reading, which it
// has not at after.
func (w *walker) reached(reading, after int64) int64 {
	s := w.segment(max(after, reading-swing))
	for reading-s.offset >= s.until {
		s = w.segment(s.until)
	}
	return max(reading-s.offset, s.from)
}

// countReal counts by segments what lies in (after, until].
func (s *Schedule) countReal(after, until int64) int {
	n := 0
	w := walker{schedule: s}
	for from := after + 1; from <= until; {
		seg := w.segment(from)
		to := min(seg.until-1, until)
		n += s.fields.count(&w.page, from+seg.offset, to+seg.offset)
		from = seg.until
	}
	return n
}

// countWall counts the readings that the clock reaches in (after, until], and those that
// gaps let coincide only once.
func (s *Schedule) countWall(after, until int64) int {
	w := walker{schedule: s}
	n := s.fields.count(&w.page, w.highest(after)+1, w.highest(until))
	for seg := w.segment(after); seg.until <= until; {
		change := seg.until
		next := w.segment(change)
		if next.offset > seg.offset {
			if together := s.fields.count(&w.page, w.highest(change-1)+1, w.highest(change)); together > 1 {
				n -= together - 1
			}
		}
		seg = w.segment(change)
	}
	return n
}
