package simulate

import (
	"cmp"
	"slices"
	"time"

	"go.arco.dev/servo/internal/domain/schedule"
)

// ClockChange is a gap or a fold of a zone in which configs fire, and its effect on their slots.
type ClockChange struct {
	Zone    string         `json:"zone"`
	At      time.Time      `json:"at"`   // the first instant with the new offset
	Kind    schedule.Shift `json:"kind"` // gap or fold
	Before  Duration       `json:"offset_before"`
	After   Duration       `json:"offset_after"`
	Configs []ClockEffect  `json:"configs,omitempty"`
	Count   int            `json:"config_count"` // of affected configs
}

// ClockEffect is the effect of a change on one config.
type ClockEffect struct {
	Ref
	Effect string `json:"effect"`
	Slots  int    `json:"slots"` // that are moved, repeated, or would have been repeated
}

// The effects.
const (
	EffectMoved    = "moved"    // out of the gap, to the first instant after it
	EffectRepeated = "repeated" // in both passes of the fold, because the expression follows real time
	EffectOnce     = "once"     // only in the first pass of the fold
)

// clockChanges returns the changes of all zones in the window, the earliest first.
func (s *state) clockChanges() []ClockChange {
	byZone := map[string][]*config{}
	for i := range s.configs {
		if c := &s.configs[i]; c.Schedule.Timed() {
			byZone[c.Schedule.Zone()] = append(byZone[c.Schedule.Zone()], c)
		}
	}
	var changes []ClockChange
	for zone, configs := range byZone {
		for _, t := range schedule.Transitions(zone, s.after, s.until) {
			if t.Before == t.After {
				continue // another name for the same time
			}
			change := ClockChange{
				Zone: zone, At: t.At.UTC(), Kind: schedule.FoldShift,
				Before: Duration(t.Before), After: Duration(t.After),
			}
			if t.Gap() {
				change.Kind = schedule.GapShift
			}
			for _, c := range configs {
				if effect, ok := s.effect(c, t); ok {
					change.Configs = append(change.Configs, effect)
				}
			}
			change.Count = len(change.Configs)
			change.Configs = least(change.Configs, s.in.Limit)
			changes = append(changes, change)
		}
	}
	slices.SortFunc(changes, func(a, b ClockChange) int {
		return cmp.Or(a.At.Compare(b.At), cmp.Compare(a.Zone, b.Zone))
	})
	return changes
}

// effect returns the effect of a change on a config; intervals are not affected.
func (s *state) effect(c *config, t schedule.Transition) (ClockEffect, bool) {
	if t.Gap() {
		return ClockEffect{Ref: c.ref(), Effect: EffectMoved, Slots: 1}, c.Schedule.Shift(t.At) == schedule.GapShift
	}
	at := t.At.UnixMicro()
	length := (t.Before - t.After).Microseconds()
	once, again := s.count(c, at-length, at), s.count(c, at, at+length)
	slot, ok := c.Schedule.Next(instant(at - length).Add(-time.Nanosecond))
	if once+again == 0 || !ok || c.Schedule.Shift(slot) != schedule.FoldShift {
		return ClockEffect{}, false
	}
	if again > 0 {
		return ClockEffect{Ref: c.ref(), Effect: EffectRepeated, Slots: again}, true
	}
	return ClockEffect{Ref: c.ref(), Effect: EffectOnce, Slots: once}, true
}
