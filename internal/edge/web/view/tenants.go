package view

import (
	"fmt"
	"net/url"
	"strconv"
	"strings"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	servov1 "go.arco.dev/servo/gen/servo/v1"
)

// TenantsModel is the list of tenants.
type TenantsModel struct {
	Tenants         []*servov1.Tenant
	Work            map[string]Work // nil if it is not for the visitor
	MayCreate       bool
	First           bool
	FirstAt, NextAt string
}

// Work is what a tenant has to do now.
type Work struct {
	InFlight, Limit int64
	Waiting         int64
	AtLeast         bool // more wait: nobody counted on
}

// WorkOf adds up the pools of each tenant.
func WorkOf(shares *servov1.ListSharesResponse) map[string]Work {
	all := map[string]Work{}
	for _, s := range shares.GetShares() {
		w := all[s.GetTenant()]
		w.InFlight, w.Limit = int64(s.GetTenantInFlight()), int64(s.GetMaxConcurrentTasks())
		w.Waiting += int64(s.GetWaiting())
		w.AtLeast = w.AtLeast || s.GetWaitingAtLeast()
		all[s.GetTenant()] = w
	}
	return all
}

// Tab is a part of a page.
type Tab struct{ Name, Label string }

// TenantModel is one tenant.
type TenantModel struct {
	Scope  Scope
	Tenant *servov1.Tenant
	Tab    string // "" is the first
	Tabs   []Tab  // after the first, those for the visitor
	First  bool   // of the pages of a list

	Days    int
	By      string                 // the label that sums are shown by
	Metrics *servov1.TenantMetrics // nil if it is not for the visitor
	Trouble []*servov1.Run
	Alerts  []*servov1.Alert

	Quotas     *servov1.TenantQuotas
	Keys       KeysModel
	Workspaces []*servov1.Workspace
	Audit      AuditModel

	MayQuotas, MayWorkspaces bool
}

// labelURL shows the sums by another label.
func (m TenantModel) labelURL(label string) string {
	return m.at("") + "?" + url.Values{"days": {strconv.Itoa(m.Days)}, "by": {label}}.Encode()
}

// at is the address of a part of the page.
func (m TenantModel) at(tab string) string {
	if tab == "" {
		return TenantPath(m.Tenant.GetName())
	}
	return TenantPath(m.Tenant.GetName()) + "?tab=" + tab
}

// KeysModel is a list of keys, of a tenant or of the installation.
type KeysModel struct {
	Tenant          string // "" is the installation
	Base            string // where what is done goes to
	Keys            []*servov1.Key
	All, May        bool
	Roles           []string
	Workspaces      []*servov1.Workspace
	First           bool
	FirstAt, NextAt string
}

// AuditModel is a list of calls.
type AuditModel struct {
	Entries         []*servov1.AuditEntry
	Actor, Since    string
	First           bool
	FirstAt, NextAt string
}

// SecretModel is a secret that is shown once.
type SecretModel struct{ Title, Text, Secret, At string }

// keyAlive reports whether something can be done about a key.
func keyAlive(k *servov1.Key) bool {
	return k.GetState() == servov1.Key_ACTIVE || k.GetState() == servov1.Key_RETIRING
}

// keyReach is what a key is held to.
func keyReach(k *servov1.Key) string {
	switch {
	case len(k.GetPools()) > 0:
		return "pools " + strings.Join(k.GetPools(), ", ")
	case k.GetWorkspace() != "":
		return "workspace " + k.GetWorkspace()
	}
	return "everything"
}

// limit is a quota with what is used of it.
type limit struct {
	name, label, hint string
	value             int32
	used              int64
	counted           bool // there is a number of what is used
	least             int
}

func limitsOf(q *servov1.TenantQuotas) []limit {
	l, u := q.GetQuotas(), q.GetUsage()
	return []limit{
		{"max_concurrent_tasks", "Tasks at once", "queued, dispatched or running; 0 isolates the tenant", l.GetMaxConcurrentTasks(), u.GetConcurrentTasks(), true, -1},
		{"max_queued_tasks", "Ready tasks", "past which no run begins", l.GetMaxQueuedTasks(), u.GetQueuedTasks(), true, -1},
		{"max_concurrent_runs", "Runs at once", "that have started and not ended", l.GetMaxConcurrentRuns(), u.GetConcurrentRuns(), true, -1},
		{"max_daily_runs", "Runs in a day", "made since midnight in " + l.GetZone(), l.GetMaxDailyRuns(), u.GetDailyRuns(), true, -1},
		{"max_tasks_per_run", "Tasks of a run", "in a plan; fan-outs add to them", l.GetMaxTasksPerRun(), 0, false, 1},
		{"max_backfill_runs", "Runs of a backfill", "at once", l.GetMaxBackfillRuns(), 0, false, -1},
	}
}

func (l limit) text() string {
	if l.value < 0 {
		return "no limit"
	}
	return Count(l.value, false)
}

// class marks a quota that is used up.
func (l limit) class() string {
	if l.used >= int64(l.value) {
		return "bad"
	}
	return "ok"
}

// typed is a duration as it is typed: 90m, 6h.
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

// dayCharts are the sums of a tenant by day: runs, how long they took, and breaches.
func dayCharts(m *servov1.TenantMetrics) (runs, took, breaches Bars) {
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
	const most = 400 // days, which is what the API adds up
	for day := from; !day.After(to) && len(first) < most; day = day.AddDate(0, 0, 1) {
		d := byDay[day.Format(time.DateOnly)]
		label, title := day.Format("2 Jan"), dayTitle(day, d)
		first = append(first, Column{Label: label, Title: title, Parts: []Part{
			{float64(d.GetSuccessfulRuns()), "f-ok"}, {float64(d.GetCancelledRuns()), "f-off"}, {float64(d.GetTimedOutRuns()), "f-late"}, {float64(d.GetFailedRuns()), "f-bad"},
		}})
		second = append(second, Column{Label: label, Title: title, Parts: []Part{{d.GetAverageDuration().AsDuration().Seconds(), "f-run"}}})
		third = append(third, Column{Label: label, Title: title, Parts: []Part{{float64(d.GetBreaches()), "f-late"}}})
	}
	return BarsOf("Runs by day", first, wholeNumber), BarsOf("Average duration by day", second, seconds), BarsOf("Breaches by day", third, wholeNumber)
}

// dayTitle is what happened on a day, in words.
func dayTitle(day time.Time, d *servov1.DayMetrics) string {
	date := day.Format("Mon 2 Jan 2006")
	if d == nil {
		return date + ": no run ended"
	}
	parts := []string{Plural(d.GetTotalRuns(), "run", "runs")}
	for _, part := range []struct {
		n    int64
		what string
	}{{d.GetSuccessfulRuns(), "succeeded"}, {d.GetFailedRuns(), "failed"}, {d.GetTimedOutRuns(), "timed out"}, {d.GetCancelledRuns(), "cancelled"}} {
		if part.n > 0 {
			parts = append(parts, Count(part.n, false)+" "+part.what)
		}
	}
	if d.GetAverageDuration() != nil {
		parts = append(parts, DurationOf(d.GetAverageDuration())+" on average")
	}
	if d.GetBreaches() > 0 {
		parts = append(parts, Plural(d.GetBreaches(), "breach", "breaches"))
	}
	return date + ": " + strings.Join(parts, ", ") + fmt.Sprintf(", SLA %s", Compliance(d.GetSlaCompliance()))
}

// Compliance is a part of runs: what is not quite all never reads as all.
func Compliance(part float64) string {
	if part >= 1 {
		return "100 %"
	}
	return fmt.Sprintf("%.1f %%", min(part*100, 99.9))
}

// complianceTone is good if every run kept its promise.
func complianceTone(part float64) string {
	switch {
	case part >= 1:
		return toneOK
	case part >= 0.95:
		return toneLate
	}
	return toneBad
}

// toneIf is a tone for a number that should be zero.
func toneIf(n int64, tone string) string {
	if n == 0 {
		return ""
	}
	return tone
}

// auditResult is what became of a call.
func auditResult(e *servov1.AuditEntry) Look {
	switch {
	case !e.GetAllowed():
		return Look{toneBad, "cross", "refused"}
	case e.GetCode() != "":
		return Look{toneLate, "dash", Words(e.GetCode())}
	}
	return Look{toneOK, "check", "done"}
}

// summed are sums over runs, of a day or of the value of a label.
type summed interface {
	GetTotalRuns() int64
	GetSuccessfulRuns() int64
	GetFailedRuns() int64
	GetTimedOutRuns() int64
	GetCancelledRuns() int64
	GetAverageDuration() *durationpb.Duration
	GetSlaCompliance() float64
	GetBreaches() int64
}

// tenantCrumbs lead back to the list, for those who have one.
func tenantCrumbs(s Scope) []Crumb {
	if s.Fixed {
		return nil
	}
	return []Crumb{{"Tenants", "/ui/tenants"}}
}

func keyCommand(tenant string) string {
	if tenant == "" {
		return "servo keys create NAME --platform --role platform"
	}
	return "servo keys create NAME --tenant " + tenant + " --role viewer"
}

// roleText is a role with what it may do.
func roleText(role string) string {
	texts := map[string]string{
		"viewer": "viewer: reads", "operator": "operator: triggers, cancels, retries, pauses", "developer": "developer: deploys and writes configs",
		"admin": "admin: everything in the tenant", "worker": "worker: works for pools, and nothing else", "tick": "tick: fires what is due, and nothing else", "platform": "platform: everything, everywhere",
	}
	if text, ok := texts[role]; ok {
		return text
	}
	return role
}
