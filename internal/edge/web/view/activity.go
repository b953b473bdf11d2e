package view

import (
	"strings"

	servov1 "go.arco.dev/servo/gen/servo/v1"
)

// ActivityBars are the runs that ended by hour, with a dot over hours in which promises were
// broken. The same activity is the same chart, whenever it is drawn.
func ActivityBars(a *servov1.Activity) Bars {
	var columns []Column
	for _, h := range a.GetHours() {
		c := Column{Label: h.GetHour().AsTime().Format("15:04"), Title: hourTitle(h), Parts: []Part{
			{float64(h.GetSucceededRuns()), "f-ok"}, {float64(h.GetCancelledRuns()), "f-off"}, {float64(h.GetTimedOutRuns()), "f-late"}, {float64(h.GetFailedRuns()), "f-bad"},
		}}
		if h.GetBreaches() > 0 {
			c.Mark = "f-late"
		}
		columns = append(columns, c)
	}
	return BarsOf("Runs that ended, by hour", columns, wholeNumber)
}

// quietHours says that nothing has happened in any of the hours.
func quietHours(a *servov1.Activity) bool {
	for _, h := range a.GetHours() {
		if endedIn(h)+h.GetBreaches() > 0 {
			return false
		}
	}
	return true
}

func endedIn(h *servov1.HourActivity) int64 {
	return h.GetSucceededRuns() + h.GetFailedRuns() + h.GetTimedOutRuns() + h.GetCancelledRuns()
}

// hourTitle is what happened in an hour, in words.
func hourTitle(h *servov1.HourActivity) string {
	parts := []string{"no run ended"}
	if n := endedIn(h); n > 0 {
		parts[0] = Plural(n, "run", "runs")
	}
	for _, part := range []struct {
		n    int64
		what string
	}{{h.GetSucceededRuns(), "succeeded"}, {h.GetFailedRuns(), "failed"}, {h.GetTimedOutRuns(), "timed out"}, {h.GetCancelledRuns(), "cancelled"}} {
		if part.n > 0 {
			parts = append(parts, Count(part.n, false)+" "+part.what)
		}
	}
	if h.GetAverageDuration() != nil {
		parts = append(parts, DurationOf(h.GetAverageDuration())+" on average")
	}
	if d := h.GetLongestStartDelay(); d.AsDuration() > 0 {
		parts = append(parts, "up to "+DurationOf(d)+" until the start")
	}
	if h.GetBreaches() > 0 {
		parts = append(parts, Plural(h.GetBreaches(), "breach", "breaches"))
	}
	return h.GetHour().AsTime().Format("Mon 15:04") + " UTC: " + strings.Join(parts, ", ")
}
