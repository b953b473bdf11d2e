package schedule

import "time"

// lookBack bounds the search of Previous: 29 February on a given weekday recurs within 40 years.
const lookBack = 50 * 366 * 24 * time.Hour

// Previous returns the last slot before an instant; false if there is none.
func (s *Schedule) Previous(before time.Time) (time.Time, bool) {
	if !s.Timed() {
		return time.Time{}, false
	}
	found := func(after time.Time) (time.Time, bool) {
		slot, ok := s.Next(after)
		return slot, ok && slot.Before(before)
	}
	// Most schedules have the same distance on both sides.
	if next, ok := s.Next(before); ok {
		if slot, ok := found(before.Add(-next.Sub(before) - time.Second)); ok {
			if _, more := found(slot); !more {
				return slot, true
			}
		}
	}
	var low time.Time
	high := before.Add(-time.Second)
	for back := 2 * time.Second; ; back *= 2 {
		if back > lookBack {
			return time.Time{}, false
		}
		if _, ok := found(before.Add(-back)); ok {
			low = before.Add(-back)
			break
		}
		high = before.Add(-back)
	}
	for high.Sub(low) > time.Second { // slots are at least a second apart
		if middle := low.Add(high.Sub(low) / 2); slotIn(found(middle)) {
			low = middle
		} else {
			high = middle
		}
	}
	return found(low)
}

func slotIn(_ time.Time, ok bool) bool { return ok }
