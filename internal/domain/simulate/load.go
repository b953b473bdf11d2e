package simulate

import (
	"math/bits"
	"slices"
	"time"
)

const (
	minute = int64(time.Minute / time.Microsecond)
	hour   = int64(time.Hour / time.Microsecond)
)

// load is the load over time: slots by the minute in which they are due, and more by the hour.
// Minutes and hours are those of UTC.
type load struct {
	firstMinute int64
	minutes     []int32
	firstHour   int64
	hours       []Hour
}

// newLoad covers the instants from one to another, both included.
func newLoad(from, to time.Time) load {
	l := load{firstMinute: from.UnixMicro() / minute, firstHour: from.UnixMicro() / hour}
	last := to.UnixMicro()
	l.minutes = make([]int32, last/minute-l.firstMinute+1)
	l.hours = make([]Hour, last/hour-l.firstHour+1)
	for i := range l.hours {
		l.hours[i].At = time.UnixMicro((l.firstHour + int64(i)) * hour).UTC()
	}
	return l
}

func (l *load) minute(at int64) int { return int(at/minute - l.firstMinute) }

func (l *load) hour(at int64) *Hour { return &l.hours[at/hour-l.firstHour] }

// lasts records a number of running and waiting runs from one instant until another. Times after the
// last hour are ignored: no slot is due then.
func (l *load) lasts(from, until int64, running, queued int) {
	if running == 0 && queued == 0 {
		return
	}
	last := min((until-1)/hour-l.firstHour, int64(len(l.hours)-1))
	for i := from/hour - l.firstHour; i <= last; i++ {
		h := &l.hours[i]
		h.MaxRunning = max(h.MaxRunning, running)
		h.MaxQueued = max(h.MaxQueued, queued)
	}
}

// busiest returns the indexes of the highest counts, the highest first, the earlier of two equal ones;
// zeros are left out.
func busiest[T any](items []T, count func(T) int, most int) []int {
	var top []int
	for i, item := range items {
		n := count(item)
		if n == 0 || len(top) == most && n <= count(items[top[most-1]]) {
			continue
		}
		at, _ := slices.BinarySearchFunc(top, n, func(other, n int) int {
			if count(items[other]) >= n {
				return -1
			}
			return 1
		})
		top = slices.Insert(top, at, i)
		top = top[:min(len(top), most)]
	}
	return top
}

// waits is a histogram of waiting times: exact for zero and for the longest, within one part in 32 or
// a millisecond otherwise.
type waits struct {
	count int
	none  int
	max   int64
	by    []uint32 // counts by step
}

// Steps are milliseconds up to 64, then 32 for each doubling.
const (
	stepBits    = 5
	millisecond = 1000
)

func step(wait int64) int {
	wait = (wait + millisecond - 1) / millisecond
	shift := max(0, bits.Len64(uint64(wait))-stepBits-1) //nolint:gosec // not negative
	return shift<<stepBits + int(wait>>shift)
}

// stepEnd returns the longest wait of a step.
func stepEnd(step int) int64 {
	shift := max(0, step>>stepBits-1)
	return ((int64(step-shift<<stepBits)+1)<<shift - 1) * millisecond
}

func (w *waits) add(wait int64) {
	w.count++
	if wait == 0 {
		w.none++
		return
	}
	w.max = max(w.max, wait)
	s := step(wait)
	if s >= len(w.by) {
		w.by = slices.Grow(w.by, s+1-len(w.by))[:s+1]
	}
	w.by[s]++
}

// summary computes the percentiles by nearest rank.
func (w *waits) summary() Waits {
	rank := func(percent int) Duration {
		left := (w.count*percent+99)/100 - w.none
		for s, n := range w.by {
			if left <= 0 {
				break
			}
			if left -= int(n); left <= 0 {
				return micros(min(w.max, stepEnd(s)))
			}
		}
		return 0
	}
	return Waits{Runs: w.count - w.none, P50: rank(50), P95: rank(95), Max: micros(w.max)}
}

func micros(n int64) Duration { return Duration(n) * Duration(time.Microsecond) }
