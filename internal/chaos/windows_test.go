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
	spans []span
}

func newWindows() *windows { return &windows{open: map[string]time.Time{}} }

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
		w.spans = append(w.spans, span{from, at})
	}
}

// outside is the longest part of a span that lies in no window. After each window the
// servers begin anew: what counts is how long they were left in peace and did nothing.
func (w *windows) outside(s span) time.Duration {
	w.mu.Lock()
	spans := slices.Clone(w.spans)
	for _, from := range w.open {
		spans = append(spans, span{from, s.to})
	}
	w.mu.Unlock()
	slices.SortFunc(spans, func(a, b span) int { return a.from.Compare(b.from) })
	var longest time.Duration
	peace := s.from // since when
	for _, window := range append(spans, span{s.to, s.to}) {
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
