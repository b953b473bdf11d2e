package schedule

import "time"

// The two ways from readings of the local clock to instants.
//
// An expression that follows real time fires at every instant whose reading matches. Within
// a segment, a stretch with one offset, readings and instants differ by a constant; so the
// calendar is searched segment by segment.
//
// A wall-clock expression fires once for each matching reading: at the first instant at
// which the local clock has reached it. That is the instant of the reading itself if it exists,
// the first of two if it exists twice, and the first one after the gap if it does not exist. So
// the slots after an instant are those of the readings that are higher than any reading of the
// clock until then.

// swing exceeds the difference of two readings of one instant, and every change that puts the clock
// back.
const swing = 2 * secondsPerDay

// walker iterates over slots and caches the current month and segment.
type walker struct {
	schedule *Schedule
	month    monthDays
	here     segment
}

// segment returns the segment of an instant.
func (w *walker) segment(instant int64) segment {
	if instant < w.here.from || instant >= w.here.until {
		w.here = w.schedule.zone.segment(instant)
	}
	return w.here
}

// nextTime returns the first slot after an instant.
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

// next returns the first slot of an expression after an instant.
func (w *walker) next(after int64) (int64, bool) {
	if after >= lastSlot {
		return 0, false
	}
	if w.schedule.fields.real {
		return w.nextReal(after)
	}
	reading, ok := w.schedule.fields.next(&w.month, w.highest(after)+1, lastSlot+swing)
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
		if reading, ok := w.schedule.fields.next(&w.month, from+s.offset, until+s.offset); ok {
			return reading - s.offset, true
		}
		from = s.until
	}
	return 0, false
}

// highest returns the highest reading of the local clock up to an instant, that one included.
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

// reached returns the first instant at which the local clock reaches a reading, which it has not
// reached at after.
func (w *walker) reached(reading, after int64) int64 {
	s := w.segment(max(after, reading-swing))
	for reading-s.offset >= s.until {
		s = w.segment(s.until)
	}
	return max(reading-s.offset, s.from)
}

// countReal counts the slots in (after, until] segment by segment.
func (s *Schedule) countReal(after, until int64) int {
	n := 0
	w := walker{schedule: s}
	for from := after + 1; from <= until; {
		seg := w.segment(from)
		to := min(seg.until-1, until)
		n += s.fields.count(&w.month, from+seg.offset, to+seg.offset)
		from = seg.until
	}
	return n
}

// countWall counts the readings that the clock reaches in (after, until]; several readings in one gap
// count once.
func (s *Schedule) countWall(after, until int64) int {
	w := walker{schedule: s}
	n := s.fields.count(&w.month, w.highest(after)+1, w.highest(until))
	for seg := w.segment(after); seg.until <= until; {
		change := seg.until
		next := w.segment(change)
		if next.offset > seg.offset {
			if together := s.fields.count(&w.month, w.highest(change-1)+1, w.highest(change)); together > 1 {
				n -= together - 1
			}
		}
		seg = w.segment(change)
	}
	return n
}
