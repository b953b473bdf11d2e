package schedule

import (
	"fmt"
	"time"

	"go.arco.dev/servo/internal/base/fault"
)

// intervals are the times anchor + k × every, for k from 0 on: elapsed time, independent of zones.
type intervals struct {
	anchor time.Time
	every  int64 // seconds
}

func checkInterval(field, example string, interval time.Duration) error {
	refuse := func(reason string) error {
		return fault.Invalid(field, reason, "write "+example)
	}
	switch {
	case interval < MinInterval:
		return refuse(fmt.Sprintf("interval %s is shorter than %s", interval, MinInterval))
	case interval > MaxInterval:
		return refuse(fmt.Sprintf("interval %s is longer than 366 days", interval))
	case interval%time.Second != 0:
		return refuse(fmt.Sprintf("interval %s is not a whole number of seconds", interval))
	default:
		return nil
	}
}

// newIntervals rounds the anchor down to the precision of the database, so that slots are the same
// before and after it is stored.
func newIntervals(anchor time.Time, interval time.Duration) (*intervals, error) {
	if anchor.IsZero() {
		anchor = time.Unix(firstSlot, 0)
	}
	if anchor.Unix() < firstSlot || anchor.Unix() > lastSlot {
		return nil, fault.Invalid("trigger.anchor", "must be in the years 1970 to 9999", "write 2026-01-31T06:00:00Z")
	}
	return &intervals{anchor: anchor.UTC().Truncate(time.Microsecond), every: int64(interval / time.Second)}, nil
}

// upTo returns how many slots there are up to an instant, that one included.
func (i *intervals) upTo(instant time.Time) int {
	if instant.Unix() > lastSlot {
		instant = time.Unix(lastSlot, 999_999_999)
	}
	if instant.Before(i.anchor) {
		return 0
	}
	elapsed := instant.Unix() - i.anchor.Unix()
	if instant.Nanosecond() < i.anchor.Nanosecond() {
		elapsed--
	}
	return int(elapsed/i.every) + 1
}

func (i *intervals) next(after time.Time) (time.Time, bool) {
	at := i.anchor.Unix() + int64(i.upTo(after))*i.every
	if at > lastSlot {
		return time.Time{}, false
	}
	return time.Unix(at, int64(i.anchor.Nanosecond())).UTC(), true
}
