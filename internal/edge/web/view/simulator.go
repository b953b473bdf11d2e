package view

import (
	"fmt"
	"strings"
	"time"

	"go.arco.dev/servo/internal/domain/schedule"
	"go.arco.dev/servo/internal/domain/simulate"
)

// SimulatorModel is a simulation of a tenant's configs.
type SimulatorModel struct {
	Scope                Scope
	Days, Slots          int32
	Quota                int32 // concurrent runs; negative is no limit
	Zone                 *time.Location
	Idle, WithoutHistory int32
	Report               simulate.Report
	Runs, Running        HourChart
}

// HourChart is a chart with one value per hour.
type HourChart struct {
	Label         string // accessible name
	Width, Height int
	Area          string // path of the values
	Days          []Spot // begin of days
	Marks         []Spot // peaks
	Clocks        []Spot // clock changes; with a y if their text has room
	Levels        []Spot // labels of the value axis
	Limit         int    // y of the quota; 0 if it is not drawn
	LimitLabel    string
}

// Spot is a point of a chart with its label.
type Spot struct {
	X, Y  int
	Label string
}

// The sizes of a chart, in pixels.
const (
	chartWidth  = 1000
	chartHeight = 190
	chartLeft   = 44
	chartTop    = 24
	chartBottom = 168

	clockTextWidth = 230
)

// Drawn is the model with its charts.
func (m SimulatorModel) Drawn() SimulatorModel {
	if m.Zone == nil {
		m.Zone = time.UTC
	}
	m.Runs = m.chart("Slots per hour", func(h simulate.Hour) int { return h.Due }, 0)
	for i, p := range m.Report.PeakHours[:min(len(m.Report.PeakHours), 3)] {
		if p.Slots == 0 {
			continue
		}
		mark := Spot{X: m.x(p.At.Add(30 * time.Minute)), Y: yOf(p.Slots, m.highest(func(h simulate.Hour) int { return h.Due }))}
		if i == 0 {
			mark.Label = fmt.Sprintf("%d at %s", p.Slots, p.At.In(m.Zone).Format("Mon 2 Jan 15:04"))
		}
		m.Runs.Marks = append(m.Runs.Marks, mark)
	}
	m.Running = m.chart("Concurrent runs by hour", func(h simulate.Hour) int { return h.MaxRunning }, int(m.Quota))
	return m
}

// x is the position of a time.
func (m SimulatorModel) x(at time.Time) int {
	whole := m.Report.Until.Sub(m.Report.From)
	if whole <= 0 {
		return chartLeft
	}
	share := float64(at.Sub(m.Report.From)) / float64(whole)
	return chartLeft + int(min(max(share, 0), 1)*(chartWidth-chartLeft-8))
}

func yOf(n, highest int) int {
	return chartBottom - n*(chartBottom-chartTop)/max(highest, 1)
}

func (m SimulatorModel) highest(value func(simulate.Hour) int) int { return max(m.most(value), 1) }

// chart draws a value of each hour. A limit is drawn unless it is far above the values.
func (m SimulatorModel) chart(label string, value func(simulate.Hour) int, limit int) HourChart {
	highest := m.highest(value)
	c := HourChart{Width: chartWidth, Height: chartHeight}
	c.Label = fmt.Sprintf("%s: at most %d", label, highest)
	if limit > 0 && limit <= 4*highest {
		highest = max(highest, limit)
		c.Limit, c.LimitLabel = yOf(limit, highest), fmt.Sprintf("quota: %d runs", limit)
	}
	var area strings.Builder
	fmt.Fprintf(&area, "M%d %d", chartLeft, chartBottom)
	for _, h := range m.Report.Hours {
		if !h.At.Before(m.Report.Until) {
			break
		}
		fmt.Fprintf(&area, "H%dV%d", m.x(h.At), yOf(value(h), highest))
	}
	fmt.Fprintf(&area, "H%dV%dZ", m.x(m.Report.Until), chartBottom)
	c.Area = area.String()
	c.Days = m.days()
	room := 0 // right end of the last text
	for _, change := range m.Report.ClockChanges {
		spot := Spot{X: m.x(change.At), Label: clockText(change)}
		if spot.X >= room {
			spot.Y, room = 12, spot.X+clockTextWidth
		}
		c.Clocks = append(c.Clocks, spot)
	}
	c.Levels = []Spot{{Y: yOf(highest, highest), Label: Count(highest, false)}, {Y: chartBottom, Label: "0"}}
	if highest >= 4 {
		c.Levels = append(c.Levels, Spot{Y: yOf(highest/2, highest), Label: Count(highest/2, false)})
	}
	return c
}

// days is the begin of each day in the tenant's zone; not all have room for their name.
func (m SimulatorModel) days() (out []Spot) {
	from := m.Report.From.In(m.Zone)
	each := max(1, (int(m.Days)+13)/14)
	for i := 1; ; i++ {
		at := time.Date(from.Year(), from.Month(), from.Day()+i, 0, 0, 0, 0, m.Zone)
		if !at.Before(m.Report.Until) {
			return out
		}
		mark := Spot{X: m.x(at)}
		if (i-1)%each == 0 {
			mark.Label = at.Format("Mon 2 Jan")
		}
		out = append(out, mark)
	}
}

// clockText describes a clock change.
func clockText(c simulate.ClockChange) string {
	word := "back"
	if c.Kind == schedule.GapShift {
		word = "forward"
	}
	return c.Zone + ": clock moves " + word
}

// effectWords is the effect of a clock change on slots.
func effectWords(e simulate.ClockEffect) string {
	slots := Plural(e.Slots, "slot", "slots")
	switch e.Effect {
	case simulate.EffectMoved:
		return slots + " moved after the gap"
	case simulate.EffectRepeated:
		return slots + " fired twice"
	}
	return slots + " fired once"
}

// quotaWords is the effect of a quota.
func quotaWords(q simulate.QuotaMiss) string {
	switch {
	case q.Wait != nil && q.Limit == 0:
		return Plural(q.Slots, "run never starts", "runs never start")
	case q.Wait != nil:
		return Plural(q.Slots, "run waits", "runs wait") + ", up to " + Duration(time.Duration(q.Wait.Max))
	}
	return Plural(q.Slots, "slot is skipped", "slots are skipped")
}

// partNames are the first configs of a peak and the number of others.
func partNames(p simulate.PeakMinute) string {
	names := make([]string, len(p.Configs))
	for i, c := range p.Configs {
		names[i] = c.Config
	}
	return someNames(names, p.Count)
}

func refNames(c simulate.Change) string {
	names := make([]string, len(c.Configs))
	for i, ref := range c.Configs {
		names[i] = ref.Config
	}
	return someNames(names, c.Count)
}

func someNames(names []string, all int) string {
	const shown = 4
	few := names[:min(len(names), shown)]
	text := strings.Join(few, ", ")
	if all > len(few) {
		text += fmt.Sprintf(" and %d more", all-len(few))
	}
	return text
}

// refPath is the page of a config of a report, whose name is workspace/name outside of the
// workspace default.
func refPath(r simulate.Ref) string {
	workspace, name, ok := strings.Cut(r.Config, "/")
	if !ok {
		workspace, name = "", r.Config
	}
	return ConfigPath(r.Tenant, workspace, name)
}

// most is the largest value of an hour.
func (m SimulatorModel) most(value func(simulate.Hour) int) int {
	most := 0
	for _, h := range m.Report.Hours {
		most = max(most, value(h))
	}
	return most
}

func shortDuration(d simulate.Duration) string {
	if d == 0 {
		return "none"
	}
	return Duration(time.Duration(d))
}

func dayTime(t time.Time, zone *time.Location) string { return t.In(zone).Format("Mon 2 Jan 15:04") }

// assumptions are the limits of the simulation.
func (m SimulatorModel) assumptions() string {
	text := "The simulation uses the recent run durations of each pipeline."
	if m.WithoutHistory > 0 {
		text += " " + Plural(m.WithoutHistory, "config has", "configs have") + " no runs: 1 minute is assumed."
	}
	if m.Idle > 0 {
		text += " " + Plural(m.Idle, "config is", "configs are") + " paused or disabled and not included."
	}
	return text
}
