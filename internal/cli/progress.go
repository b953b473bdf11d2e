package cli

import (
	"fmt"
	"io"
	"strings"
	"time"

	servov1 "go.arco.dev/servo/gen/servo/v1"
)

// activity is the phase and the stage of an attempt.
func activity(p interface {
	GetPhase() string
	GetStage() string
},
) string {
	return clean(strings.TrimSpace(p.GetPhase() + " " + p.GetStage()))
}

// counters are the reported counters of an attempt.
func counters(p *servov1.Progress) string {
	var parts []string
	for _, c := range []struct {
		count int64
		what  string
	}{
		{p.GetRecordsExtracted(), "extracted"},
		{p.GetRecordsTransformed(), "transformed"},
		{p.GetRecordsLoaded(), "loaded"},
	} {
		if c.count > 0 {
			parts = append(parts, quantity(c.count, "")+" "+c.what)
		}
	}
	if p.GetBytes() > 0 {
		parts = append(parts, quantity(p.GetBytes(), "B"))
	}
	return strings.Join(parts, ", ")
}

// quantity is a large number as people read it: 999, 1.2k, 34M, 5.6 GB.
func quantity(n int64, unit string) string {
	value, prefix := float64(n), ""
	for _, next := range []string{"k", "M", "G", "T", "P", "E"} {
		if value < 999.5 {
			break
		}
		value, prefix = value/1000, next
	}
	text := fmt.Sprintf("%.0f", value)
	if prefix != "" && value < 9.95 {
		text = fmt.Sprintf("%.1f", value)
	}
	if unit != "" {
		return text + " " + prefix + unit
	}
	return text + prefix
}

// left is how long an attempt will take from now on, if that is known.
func left(p *servov1.Progress, now time.Time) string {
	if p.GetEta() == nil {
		return ""
	}
	d := p.GetEta().AsTime().Sub(now)
	switch {
	case d <= 0:
		return "later than expected"
	case p.GetEtaEstimated():
		return "about " + short(d) + " left"
	default:
		return short(d) + " left"
	}
}

// share is a bar, if the fraction is reported.
func share(p *servov1.Progress) string {
	if p.GetFraction() <= 0 {
		return ""
	}
	return bar(p.GetFraction())
}

// joined joins the texts that are not empty.
func joined(sep string, parts ...string) string {
	var kept []string
	for _, part := range parts {
		if part != "" {
			kept = append(kept, part)
		}
	}
	return strings.Join(kept, sep)
}

// stagesTable prints the stages of the latest attempt that has any, with their durations.
func stagesTable(w io.Writer, attempts []*servov1.Attempt, now time.Time) {
	for i := len(attempts) - 1; i >= 0; i-- {
		a := attempts[i]
		if len(a.GetStages()) == 0 {
			continue
		}
		var t table
		t.add(fmt.Sprintf("STAGE OF ATTEMPT %d", a.GetNumber()), "STARTED", "TOOK")
		for _, s := range a.GetStages() {
			name := orDash(clip(activity(s), 80))
			if s.GetCount() > 1 {
				name += fmt.Sprintf(" and %d more", s.GetCount()-1)
			}
			took := elapsed(now, s.GetStartedAt(), s.GetEndedAt())
			if s.GetEndedAt() == nil {
				took += " so far"
			}
			t.add(name, age(now, s.GetStartedAt()), took)
		}
		fmt.Fprintln(w)
		t.print(w)
		return
	}
}
