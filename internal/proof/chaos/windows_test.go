package chaos

import (
	"slices"
	"sync"
	"time"
)

// span is a time between two moments.
type span struct{ from, to time.Time }

// windows are the times for which nothing can be asked of the servers, by their causes.
type windows struct {
	mu    sync.Mutex
	open  map[string]time.Time
	spans map[string][]span
}

func newWindows() *windows {
	return &windows{open: map[string]time.Time{}, spans: map[string][]span{}}
}

// begin opens a window; it may be open already.
func (w *windows) begin(cause string, at time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if _, isOpen := w.open[cause]; !isOpen {
		w.open[cause] = at
	}
}

// end closes a window if it is open.
func (w *windows) end(cause string, at time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if from, isOpen := w.open[cause]; isOpen {
		delete(w.open, cause)
		w.spans[cause] = append(w.spans[cause], span{from, at})
	}
}

// add takes a window as a whole.
func (w *windows) add(cause string, s span) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.spans[cause] = append(w.spans[cause], s)
}

// outside is the longest part of a span that lies in no window, those of some causes left
// aside. After each window the servers restart their work: what counts is how long they were undisturbed
// and did nothing.
func (w *windows) outside(s span, aside ...string) time.Duration {
	var longest time.Duration
	peace := s.from // since when
	for _, window := range append(w.sorted(s.to, aside), span{s.to, s.to}) {
		if window.from.After(s.to) {
			window.from = s.to
		}
		longest = max(longest, window.from.Sub(peace))
		if window.to.After(peace) {
			peace = window.to
		}
	}
	return longest
}

// sorted are the windows by their beginnings, open ones as if they ended now.
func (w *windows) sorted(now time.Time, aside []string) []span {
	w.mu.Lock()
	defer w.mu.Unlock()
	var all []span
	for cause, spans := range w.spans {
		if !slices.Contains(aside, cause) {
			all = append(all, spans...)
		}
	}
	for cause, from := range w.open {
		if !slices.Contains(aside, cause) {
			all = append(all, span{from, now})
		}
	}
	slices.SortFunc(all, func(a, b span) int { return a.from.Compare(b.from) })
	return all
}

// touching is how many windows of one cause have a part in a span.
func (w *windows) touching(s span, cause string) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	n := 0
	for _, window := range w.spans[cause] {
		if window.from.Before(s.to) && window.to.After(s.from) {
			n++
		}
	}
	return n
}

// total is how long the windows of one cause were open.
func (w *windows) total(cause string) time.Duration {
	w.mu.Lock()
	defer w.mu.Unlock()
	var sum time.Duration
	for _, s := range w.spans[cause] {
		sum += s.to.Sub(s.from)
	}
	return sum
}
