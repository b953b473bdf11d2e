package simulate

import (
	"slices"
	"time"
)

// Suggestion is jitter that would lower the peak minutes: the peak before, and the exact peak once all
// changes are made.
type Suggestion struct {
	Peak    int      `json:"peak"`
	Becomes int      `json:"becomes"`
	Changes []Change `json:"changes"` // the widest window first
}

// Change is a jitter window for some configs.
type Change struct {
	Window  Duration `json:"jitter"`
	Configs []Ref    `json:"configs"`
	Count   int      `json:"config_count"`
}

const (
	suggestions = 3  // simulate again for more
	worthPeak   = 10 // peaks below this number of slots are not spread
)

// windows are the candidates, the smallest delay first.
func windows() []time.Duration {
	return []time.Duration{5 * time.Minute, 10 * time.Minute, 15 * time.Minute, 30 * time.Minute, time.Hour}
}

// suggest finds the configs of the peak minutes and selects the smallest jitter that is about as good
// as the best. Then it repeats that for the new peak.
func (s *state) suggest() []Suggestion {
	var made []Suggestion
	room := int(windows()[len(windows())-1] / time.Minute)
	counts := append(slices.Clone(s.load.minutes), make([]int32, room)...)
	spread := make([]bool, len(s.configs)) // configs that have a suggestion
	for len(made) < suggestions {
		peak := slices.Max(counts)
		if peak < worthPeak {
			break
		}
		if len(made) > 0 {
			s.findWorst(counts, spread, (peak+1)/2)
		}
		var group []move
		for i := range s.configs {
			if c := &s.configs[i]; s.worst[i] >= (peak+1)/2 {
				if m := s.move(c, i); m.useful() {
					group = append(group, m)
				}
			}
		}
		after := s.spread(counts, group)
		best := slices.MinFunc(after, func(a, b []int32) int { return int(slices.Max(a) - slices.Max(b)) })
		level := slices.Max(best)
		if level*10 > peak*9 {
			break // the gain is too small
		}
		choice := slices.IndexFunc(after, func(a []int32) bool { return slices.Max(a)*10 <= level*11 && slices.Max(a) < peak })
		counts = after[choice]
		made = append(made, Suggestion{
			Peak: int(peak), Becomes: int(slices.Max(counts)), Changes: s.changes(group, choice, spread),
		})
	}
	return made
}

// move is the effect of each window on a config: the window that it gets, which is at most what it
// tolerates, and its offset there; 0 leaves it as it is.
type move struct {
	index   int
	windows []time.Duration
	offsets []int64
}

func (m move) useful() bool { return m.windows[len(m.windows)-1] > 0 }

// move keeps within the time to the config's next slot, and within its permitted delay.
func (s *state) move(c *config, index int) move {
	bearable := s.period(c)
	if c.SLAStartDelay > 0 {
		bearable = min(bearable, c.SLAStartDelay)
	}
	m := move{index: index}
	var got time.Duration
	for _, w := range windows() {
		if w <= bearable && w > c.JitterWindow {
			got = w
		}
		m.windows = append(m.windows, got)
		m.offsets = append(m.offsets, c.Offset(got).Microseconds())
	}
	return m
}

// period returns the shortest time between the config's first slots.
func (s *state) period(c *config) time.Duration {
	const enough = 10
	shortest := MaxDuration
	var last time.Time
	n := 0
	for slot := range c.Schedule.All(s.after, s.until) {
		if n++; n > 1 {
			shortest = min(shortest, slot.Sub(last))
		}
		if last = slot; n == enough {
			break
		}
	}
	return shortest
}

// spread counts the minutes again, for each of the windows.
func (s *state) spread(counts []int32, group []move) [][]int32 {
	after := make([][]int32, len(windows()))
	for i := range after {
		after[i] = slices.Clone(counts)
	}
	for _, m := range group {
		c := &s.configs[m.index]
		for slot := range c.Schedule.All(s.after, s.until) {
			at := slot.UnixMicro()
			from := s.load.minute(at + c.jitter)
			for i, to := range m.offsets {
				if m.windows[i] > 0 {
					after[i][from]--
					after[i][s.load.minute(at+to)]++
				}
			}
		}
	}
	return after
}

// findWorst updates the peak minutes of the remaining configs, as far as they reach a level.
func (s *state) findWorst(counts []int32, spread []bool, level int32) {
	for i := range s.configs {
		c := &s.configs[i]
		if s.worst[i] = 0; spread[i] {
			continue
		}
		for slot := range c.Schedule.All(s.after, s.until) {
			if n := counts[s.load.minute(slot.UnixMicro()+c.jitter)]; n >= level {
				s.worst[i] = n
				break
			}
		}
	}
}

// changes lists the configs of each window.
func (s *state) changes(group []move, choice int, spread []bool) []Change {
	var list []Change
	for _, w := range slices.Backward(windows()) {
		change := Change{Window: Duration(w)}
		for _, m := range group {
			if m.windows[choice] != w {
				continue
			}
			spread[m.index] = true
			if change.Count++; change.Count <= s.in.Limit {
				change.Configs = append(change.Configs, s.configs[m.index].ref())
			}
		}
		if change.Count > 0 {
			list = append(list, change)
		}
	}
	return list
}
