package view

import (
	"strings"

	"google.golang.org/protobuf/types/known/durationpb"

	servov1 "go.arco.dev/servo/gen/servo/v1"
)

// ActivityBars are the runs that ended by hour, with a dot over hours with SLA breaches. The
// same activity gives the same chart, at any time.
func ActivityBars(a *servov1.Activity) Bars {
	var columns []Column
	for _, h := range a.GetHours() {
		c := Column{Label: h.GetHour().AsTime().Format("15:04"), Title: hourTitle(h), Parts: outcomeParts(h.GetSucceededRuns(), h)}
		if h.GetBreaches() > 0 {
			c.Mark = "f-late"
		}
		columns = append(columns, c)
	}
	return BarsOf("Runs ended by hour", columns, wholeNumber)
}

// quietHours reports whether no run ended and no SLA was breached.
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

// hourTitle describes an hour in words.
func hourTitle(h *servov1.HourActivity) string {
	parts := []string{"no run ended"}
	if n := endedIn(h); n > 0 {
		parts[0] = Plural(n, "run", "runs")
	}
	parts = append(parts, outcomeWords(h.GetSucceededRuns(), h)...)
	if d := h.GetLongestStartDelay(); d.AsDuration() > 0 {
		parts = append(parts, "start delay up to "+DurationOf(d))
	}
	if h.GetBreaches() > 0 {
		parts = append(parts, Plural(h.GetBreaches(), "SLA breach", "SLA breaches"))
	}
	return h.GetHour().AsTime().Format("Mon 15:04") + " UTC: " + strings.Join(parts, ", ")
}

// outcomes are sums of runs by outcome, of an hour, a day or the value of a label.
type outcomes interface {
	GetFailedRuns() int64
	GetTimedOutRuns() int64
	GetCancelledRuns() int64
	GetAverageDuration() *durationpb.Duration
}

// outcomeParts is a column of a chart of runs.
func outcomeParts(succeeded int64, o outcomes) []Part {
	return []Part{{float64(succeeded), "f-ok"}, {float64(o.GetCancelledRuns()), "f-off"}, {float64(o.GetTimedOutRuns()), "f-late"}, {float64(o.GetFailedRuns()), "f-bad"}}
}

// outcomeWords are the sums in words, without those that are zero.
func outcomeWords(succeeded int64, o outcomes) (parts []string) {
	for _, part := range []struct {
		n    int64
		what string
	}{{succeeded, "succeeded"}, {o.GetFailedRuns(), "failed"}, {o.GetTimedOutRuns(), "timed out"}, {o.GetCancelledRuns(), "cancelled"}} {
		if part.n > 0 {
			parts = append(parts, Count(part.n, false)+" "+part.what)
		}
	}
	if o.GetAverageDuration() != nil {
		parts = append(parts, DurationOf(o.GetAverageDuration())+" on average")
	}
	return parts
}
