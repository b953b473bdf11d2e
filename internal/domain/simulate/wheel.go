package simulate

import (
	"cmp"
	"math"
	"slices"
)

// moment is an event of a config at an instant. Those of one instant are in the order of the configs.
type moment struct {
	at     int64 // microseconds
	config int32
	life   uint32 // of the run that ends; a cancelled run has an earlier one
}

func (m moment) before(o moment) bool {
	if m.at != o.at {
		return m.at < o.at
	}
	return m.config < o.config
}

// moments is a heap, the earliest first. It does not use container/heap, whose interface calls would
// take half of the time of a simulation.
type moments []moment

func (h *moments) push(m moment) {
	*h = append(*h, m)
	q := *h
	i := len(q) - 1
	for i > 0 {
		parent := (i - 1) / 2
		if !m.before(q[parent]) {
			break
		}
		q[i] = q[parent]
		i = parent
	}
	q[i] = m
}

func (h *moments) pop() moment {
	q := *h
	first, last := q[0], q[len(q)-1]
	q = q[:len(q)-1]
	*h = q
	for i := 0; len(q) > 0; {
		child := 2*i + 1
		if child+1 < len(q) && q[child+1].before(q[child]) {
			child++
		}
		if child >= len(q) || !q[child].before(last) {
			q[i] = last
			break
		}
		q[i] = q[child]
		i = child
	}
	return first
}

const never = math.MaxInt64

// wheel keeps moments by the minute. Most minutes need no sorting, because all of their moments are at
// the same instant; with one heap for all of them a simulation takes twice as long.
type wheel struct {
	at    int64    // the current minute
	near  []moment // its moments when it began, in order
	soon  moments  // moments that were added since
	later [spokes][]moment
	held  int        // in later
	used  []moment   // the memory of near, for reuse
	spare [][]moment // memory for reuse
}

// spokes is how many minutes ahead the wheel has a list for: later moments pass by once each turn until
// their minute comes.
const spokes = 1536

func (w *wheel) push(m moment) {
	if m.at/minute <= w.at {
		w.soon.push(m)
		return
	}
	i := m.at / minute % spokes
	if n := len(w.spare); w.later[i] == nil && n > 0 {
		w.later[i], w.spare = w.spare[n-1], w.spare[:n-1]
	}
	w.later[i] = append(w.later[i], m)
	w.held++
}

// next returns the earliest instant, or never.
func (w *wheel) next() int64 {
	for len(w.near) == 0 && len(w.soon) == 0 {
		if w.held == 0 {
			return never
		}
		w.turn()
	}
	switch {
	case len(w.soon) == 0:
		return w.near[0].at
	case len(w.near) == 0:
		return w.soon[0].at
	default:
		return min(w.near[0].at, w.soon[0].at)
	}
}

// pop removes the moments of the instant that next returned.
func (w *wheel) pop() moment {
	if len(w.near) == 0 || len(w.soon) > 0 && w.soon[0].at < w.near[0].at {
		return w.soon.pop()
	}
	m := w.near[0]
	w.near = w.near[1:]
	return m
}

// turn advances to the next minute.
func (w *wheel) turn() {
	w.at++
	if w.used != nil {
		w.spare, w.used = append(w.spare, w.used), nil
	}
	spoke := w.later[w.at%spokes]
	if spoke == nil {
		return
	}
	w.later[w.at%spokes] = nil
	var far []moment
	w.near = spoke[:0]
	for _, m := range spoke {
		if m.at/minute == w.at {
			w.near = append(w.near, m)
		} else {
			far = append(far, m)
		}
	}
	w.held -= len(w.near)
	w.later[w.at%spokes] = far
	byTime := func(a, b moment) int { return cmp.Compare(a.at, b.at) }
	if !slices.IsSortedFunc(w.near, byTime) {
		slices.SortStableFunc(w.near, byTime)
	}
	w.used = spoke[:0]
}
