package view

import (
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	servov1 "go.arco.dev/servo/gen/servo/v1"
)

// TenantModel is one tenant.
type TenantModel struct {
	Scope  Scope
	Tenant *servov1.Tenant
	Tab    string // "" is the first
	Tabs   []Tab  // that the visitor may open
	First  bool   // the first page of a list

	Days    int
	By      string                 // label of the sums
	Metrics *servov1.TenantMetrics // nil without permission
	Failed  []*servov1.Run
	Alerts  []*servov1.Alert

	Quotas     *servov1.TenantQuotas
	Keys       KeysModel
	Workspaces []*servov1.Workspace
	Audit      AuditModel

	MayQuotas, MayWorkspaces, MayChannels bool
}

// follows reports whether a workspace of the tenant follows a channel.
func (m TenantModel) follows() bool {
	return slices.ContainsFunc(m.Workspaces, func(w *servov1.Workspace) bool { return w.GetChannel() != "" })
}

// labelURL is the address of the sums by another label.
func (m TenantModel) labelURL(label string) string {
	return withQuery(TenantPath(m.Tenant.GetName()), url.Values{"days": {strconv.Itoa(m.Days)}, "by": {label}})
}

// crumbs lead to the list of tenants, for visitors with more than one.
func (m TenantModel) crumbs() []Link {
	if m.Scope.Fixed {
		return nil
	}
	return []Link{{"Tenants", "/ui/tenants"}}
}

// limit is a quota with its usage.
type limit struct {
	name, label, hint string
	value             int32
	used              int64
	counted           bool // the usage is known
	least             int
}

func limitsOf(q *servov1.TenantQuotas) []limit {
	l, u := q.GetQuotas(), q.GetUsage()
	return []limit{
		{"max_concurrent_tasks", "Concurrent tasks", "queued, dispatched or running; 0 stops the tenant", l.GetMaxConcurrentTasks(), u.GetConcurrentTasks(), true, -1},
		{"max_queued_tasks", "Ready tasks", "above the limit no run starts", l.GetMaxQueuedTasks(), u.GetQueuedTasks(), true, -1},
		{"max_concurrent_runs", "Concurrent runs", "started and not ended", l.GetMaxConcurrentRuns(), u.GetConcurrentRuns(), true, -1},
		{"max_daily_runs", "Daily runs", "created since midnight in " + l.GetZone(), l.GetMaxDailyRuns(), u.GetDailyRuns(), true, -1},
		{"max_tasks_per_run", "Tasks per run", "in a plan; fan-outs add tasks", l.GetMaxTasksPerRun(), 0, false, 1},
		{"max_backfill_runs", "Backfill runs", "concurrent runs of one backfill", l.GetMaxBackfillRuns(), 0, false, -1},
	}
}

// typed formats a duration as it is typed: 90m, 6h.
func typed(d *durationpb.Duration) string {
	if d == nil {
		return ""
	}
	text := d.AsDuration().String()
	if strings.HasSuffix(text, "m0s") {
		text = strings.TrimSuffix(text, "0s")
	}
	if strings.HasSuffix(text, "h0m") {
		text = strings.TrimSuffix(text, "0m")
	}
	return text
}

// dayBars are charts by day: runs, average duration and SLA breaches.
func dayBars(m *servov1.TenantMetrics) (runs, took, breaches Bars) {
	byDay := map[string]*servov1.DayMetrics{}
	for _, d := range m.GetByDay() {
		byDay[d.GetDay()] = d
	}
	from, err := time.Parse(time.DateOnly, m.GetFrom())
	to, wrong := time.Parse(time.DateOnly, m.GetTo())
	if err != nil || wrong != nil {
		return runs, took, breaches
	}
	var first, second, third []Column
	const most = 400 // days, the limit of the API
	for day := from; !day.After(to) && len(first) < most; day = day.AddDate(0, 0, 1) {
		d := byDay[day.Format(time.DateOnly)]
		label, title := day.Format("2 Jan"), dayTitle(day, d)
		first = append(first, Column{Label: label, Title: title, Parts: outcomeParts(d.GetSuccessfulRuns(), d)})
		second = append(second, Column{Label: label, Title: title, Parts: []Part{{d.GetAverageDuration().AsDuration().Seconds(), "f-run"}}})
		third = append(third, Column{Label: label, Title: title, Parts: []Part{{float64(d.GetBreaches()), "f-late"}}})
	}
	return BarsOf("Runs by day", first, wholeNumber), BarsOf("Average duration by day", second, seconds), BarsOf("SLA breaches by day", third, wholeNumber)
}

// dayTitle describes a day in words.
func dayTitle(day time.Time, d *servov1.DayMetrics) string {
	date := day.Format("Mon 2 Jan 2006")
	if d == nil {
		return date + ": no run ended"
	}
	parts := append([]string{Plural(d.GetTotalRuns(), "run", "runs")}, outcomeWords(d.GetSuccessfulRuns(), d)...)
	if d.GetBreaches() > 0 {
		parts = append(parts, Plural(d.GetBreaches(), "SLA breach", "SLA breaches"))
	}
	return date + ": " + strings.Join(parts, ", ") + fmt.Sprintf(", SLA %s", Compliance(d.GetSlaCompliance()))
}

// Compliance formats a fraction of runs; less than all is never 100 %.
func Compliance(part float64) string {
	if part >= 1 {
		return "100 %"
	}
	return fmt.Sprintf("%.1f %%", min(part*100, 99.9))
}

// complianceTone is the tone of an SLA compliance.
func complianceTone(part float64) string {
	switch {
	case part >= 1:
		return toneOK
	case part >= 0.95:
		return toneLate
	}
	return toneBad
}

// toneIf is a tone for a number above zero.
func toneIf(n int64, tone string) string {
	if n == 0 {
		return ""
	}
	return tone
}

// summed are sums over runs, of a day or of the value of a label.
type summed interface {
	outcomes

	GetTotalRuns() int64
	GetSuccessfulRuns() int64
	GetSlaCompliance() float64
	GetBreaches() int64
}

// sumHeadings are the headings of sumRow.
func sumHeadings() []string {
	return []string{"Runs|right", "Succeeded|right", "Failed|right", "Timed out|right", "Cancelled|right", "Average duration|right", "SLA compliance|right", "SLA breaches|right"}
}
