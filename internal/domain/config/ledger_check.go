package config

import (
	"fmt"
	"slices"
	"time"

	"go.arco.dev/servo/internal/base/event"
	"go.arco.dev/servo/internal/domain/schedule"
)

// Hole is a difference between a ledger and the slots that its config should have had.
type Hole struct {
	From, To time.Time
	Slots    int64 // how many are missing or surplus
	Problem  string
}

// The problems of a ledger.
const (
	Undecided    = "UNDECIDED"     // slots without an outcome
	DecidedTwice = "DECIDED_TWICE" // slots with two outcomes
	NoSlot       = "NO_SLOT"       // an outcome for a time that is not a slot
	Miscounted   = "MISCOUNTED"    // a range with another number of slots
)

// chapter is a period in which a config had one schedule: after its start, up to its end.
type chapter struct {
	start, end time.Time
	schedule   *schedule.Schedule
}

// Holes compares the ledger of a config with its history: each slot up to until must have exactly
// one outcome. A complete ledger has no holes.
func Holes(history []event.Event, fired []Slot, ranges []Range, until time.Time) ([]Hole, error) {
	chapters, moved, err := read(history, until)
	if err != nil {
		return nil, err
	}
	entries := slices.Clone(ranges)
	for _, s := range fired {
		run := s.Run
		entries = append(entries, Range{From: s.At, To: s.At, Slots: 1, Outcome: Fired, Run: &run})
	}
	slices.SortFunc(entries, func(a, b Range) int { return a.From.Compare(b.From) })
	var holes []Hole
	for _, c := range chapters {
		n := 0
		for n < len(entries) && !entries[n].From.After(c.end) {
			n++
		}
		holes = append(holes, c.check(entries[:n], moved)...)
		entries = entries[n:]
	}
	for _, e := range entries {
		holes = append(holes, Hole{From: e.From, To: e.To, Slots: e.Slots, Problem: NoSlot})
	}
	return holes, nil
}

// read returns the chapters of a history, and the moved slots.
func read(history []event.Event, until time.Time) (chapters []chapter, moved map[time.Time]bool, err error) {
	var c Config
	moved = map[time.Time]bool{}
	for _, e := range history {
		if c.MovedTo.After(e.At) {
			switch e.Body.(type) {
			case Moved, Changed, Deleted: // a moved slot replaces the slots before its time
				delete(moved, c.MovedTo.UTC())
			}
		}
		if c, err = c.Evolve(e); err != nil {
			return nil, nil, err
		}
		switch body := e.Body.(type) {
		case Created, Changed:
			next, err := c.Spec.Schedule()
			if err != nil {
				return nil, nil, fmt.Errorf("version %d: %w", e.Version, err)
			}
			if last := len(chapters) - 1; last >= 0 {
				chapters[last].end = e.At
			}
			chapters = append(chapters, chapter{start: e.At, end: until, schedule: next})
		case Moved:
			moved[body.To.UTC()] = true
		case Deleted:
			chapters[len(chapters)-1].end = e.At
		}
	}
	// An edit that keeps the schedule decides no slots: those that were undecided are decided
	// later, under the same schedule. So such chapters are joined.
	return join(chapters, history), moved, nil
}

// join merges consecutive chapters with the same schedule.
func join(chapters []chapter, history []event.Event) []chapter {
	var specs []Spec
	for _, e := range history {
		switch body := e.Body.(type) {
		case Created:
			specs = append(specs, body.Spec)
		case Changed:
			specs = append(specs, body.Spec)
		}
	}
	var joined []chapter
	for i, c := range chapters {
		if i > 0 && specs[i].SameTimes(specs[i-1]) {
			joined[len(joined)-1].end = c.end
			continue
		}
		joined = append(joined, c)
	}
	return joined
}

// SameTimes reports whether two specs have the same slots.
func (s Spec) SameTimes(other Spec) bool {
	a, b := s.Trigger, other.Trigger
	anchors := (a.Anchor == nil) == (b.Anchor == nil) && (a.Anchor == nil || a.Anchor.Equal(*b.Anchor))
	events := (a.Event == nil) == (b.Event == nil) && (a.Event == nil || *a.Event == *b.Event)
	return s.Timezone == other.Timezone && anchors && events && a.Cron == b.Cron && a.Template == b.Template && a.Expression == b.Expression && a.Interval == b.Interval && a.Manual == b.Manual
}

// check compares the entries of a chapter, which are in the order of their first slots.
func (c chapter) check(entries []Range, moved map[time.Time]bool) (holes []Hole) {
	cursor := c.start
	for _, e := range entries {
		if !e.From.After(cursor) {
			holes = append(holes, Hole{From: e.From, To: e.To, Slots: e.Slots, Problem: DecidedTwice})
			continue
		}
		before := e.From.Add(-time.Microsecond)
		if n := c.count(cursor, before); n > 0 {
			holes = append(holes, Hole{From: cursor, To: before, Slots: n, Problem: Undecided})
		}
		switch n := c.count(before, e.To) + c.extra(e, moved); {
		case n == 0:
			holes = append(holes, Hole{From: e.From, To: e.To, Slots: e.Slots, Problem: NoSlot})
		case n != e.Slots:
			holes = append(holes, Hole{From: e.From, To: e.To, Slots: e.Slots - n, Problem: Miscounted})
		}
		cursor = e.To
	}
	if n := c.count(cursor, c.end); n > 0 {
		holes = append(holes, Hole{From: cursor, To: c.end, Slots: n, Problem: Undecided})
	}
	return holes
}

func (c chapter) count(after, until time.Time) int64 {
	if !until.After(after) {
		return 0
	}
	return int64(c.schedule.Count(after, until))
}

// extra counts the moved slots of an entry that are not slots of the schedule.
func (c chapter) extra(e Range, moved map[time.Time]bool) (n int64) {
	for at := range moved {
		if !at.Before(e.From) && !at.After(e.To) && c.count(at.Add(-time.Microsecond), at) == 0 {
			n++
		}
	}
	return n
}
