package simulate

import (
	"fmt"
	"io"
	"strings"
	"time"
)

// The chart's columns: its minimum width, and the part besides the bar: "00:00", two figures and gaps.
const (
	minChart    = 40
	chartFigure = 8
	chartFixed  = 5 + 2*(2+chartFigure)
)

// Chart draws the busiest day of a report, hour by hour in UTC: runs created, and the maximum of
// concurrent runs. It is plain text of at most width columns (at least 40).
func Chart(w io.Writer, r Report, width int) error {
	day := busiestDay(r.Hours)
	if len(day) == 0 {
		_, err := fmt.Fprintln(w, "No slots in this window.")
		return err
	}
	bar := (max(width, minChart) - chartFixed) / 2
	total, fired, running := 0, 0, 0
	for _, h := range day {
		total += h.Fired
		fired, running = max(fired, h.Fired), max(running, h.MaxRunning)
	}
	var text strings.Builder
	fmt.Fprintf(&text, "%s (UTC): %d runs\n", day[0].At.Format(time.DateOnly), total)
	fmt.Fprintf(&text, "%5s  %-*s  %s\n", "", bar+chartFigure, "runs created", "concurrent runs")
	for _, h := range day {
		left := cell(h.Fired, fired, bar)
		right := strings.TrimRight(cell(h.MaxRunning, running, bar), " ")
		text.WriteString(strings.TrimRight(h.At.Format("15:04")+"  "+left+"  "+right, " ") + "\n")
	}
	_, err := io.WriteString(w, text.String())
	return err
}

// cell is a bar followed by its figure.
func cell(n, most, width int) string {
	if n == 0 {
		return strings.Repeat(" ", width+chartFigure)
	}
	length := max(1, n*width/most)
	figure := fmt.Sprintf(" %d", n)
	return strings.Repeat("█", length) + figure + strings.Repeat(" ", max(0, width+chartFigure-length-len(figure)))
}

// busiestDay returns the hours of the UTC day with the most runs, the first of several.
func busiestDay(hours []Hour) []Hour {
	var best []Hour
	most := 0
	for len(hours) > 0 {
		end, fired := 0, 0
		date := hours[0].At.Format(time.DateOnly)
		for end < len(hours) && hours[end].At.Format(time.DateOnly) == date {
			fired += hours[end].Fired
			end++
		}
		if fired > most {
			best, most = hours[:end], fired
		}
		hours = hours[end:]
	}
	return best
}
