package view

import (
	"cmp"
	"fmt"
	"net/url"
	"strconv"
	"strings"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	servov1 "go.arco.dev/servo/gen/servo/v1"
	"go.arco.dev/servo/internal/domain/schedule"
)

// ConfigModel is one config.
type ConfigModel struct {
	Paging

	Config                           *servov1.Config
	Zone                             *time.Location
	Tab                              string
	Overdue                          bool // the next slot is past due
	Why                              *servov1.Explanation
	Failed                           []*servov1.Task // of the last run
	Calendar                         Calendar
	Day                              string // the day whose slots are listed
	Slots                            []*servov1.Slots
	Next                             []*servov1.PreviewedSlot
	Runs                             []*servov1.Run
	Audit                            []ConfigChange
	AuditPaging                      Paging
	MayOperate, MayWrite, MayTrigger bool
}

// ZoneOf is a time zone by its name; UTC for an unknown name.
func ZoneOf(name string) *time.Location {
	if name == "" {
		return time.UTC
	}
	zone, err := schedule.Location(name)
	if err != nil {
		return time.UTC
	}
	return zone
}

// at is the address of an action on the config.
func (m ConfigModel) at(action string) string { return ConfigAction(m.Config, action) }

func (m ConfigModel) tabs() (tabs []Tab) {
	for _, t := range []Option{{"runs", "Runs"}, {"audit", "History"}, {"settings", "Settings"}} {
		tabs = append(tabs, Tab{t.Label, m.tabAt(t.Value), m.Tab == t.Value})
	}
	return tabs
}

// configCrumbs lead to the configs of a tenant.
func configCrumbs(tenant string) []Link {
	return []Link{{tenant, TenantPath(tenant)}, {"Configs", Scope{Tenant: tenant}.At("/ui/configs")}}
}

// tabAt is the address of a tab.
func (m ConfigModel) tabAt(tab string) string {
	query := url.Values{}
	if w := m.Config.GetWorkspace(); w != "" && w != "default" {
		query.Set("workspace", w)
	}
	if tab != "runs" {
		query.Set("tab", tab)
	}
	if m.Day != "" {
		query.Set("day", m.Day)
	}
	return withQuery(Path("tenants", m.Config.GetTenant(), "configs", m.Config.GetName()), query)
}

// ConfigAction is the address of an action on a config.
func ConfigAction(c *servov1.Config, action string) string {
	return inWorkspace(Path("tenants", c.GetTenant(), "configs", c.GetName(), action), c.GetWorkspace())
}

// wall is a time in a zone.
func wall(t *timestamppb.Timestamp, zone *time.Location) string {
	if t == nil {
		return ""
	}
	return t.AsTime().In(zone).Format("Mon 2 Jan ") + timeOfDay(t, zone)
}

// timeOfDay is a time of day, with seconds if they are not zero.
func timeOfDay(t *timestamppb.Timestamp, zone *time.Location) string {
	at := t.AsTime().In(zone)
	if at.Second() == 0 {
		return at.Format("15:04")
	}
	return at.Format("15:04:05")
}

// clockNote is the effect of a clock change on a slot.
func clockNote(note string) string {
	switch note {
	case string(schedule.GapShift):
		return "clock change: moved after the gap"
	case string(schedule.FoldShift):
		return "clock change: this hour occurs twice"
	}
	return note
}

// ScheduleText describes a trigger, in words where they are shorter than the expression.
func ScheduleText(t *servov1.ConfigTrigger) string {
	switch {
	case t.GetCron() != "":
		return cronWords(t.GetCron())
	case t.GetTemplate() != "":
		return t.GetTemplate()
	case t.GetInterval() != "":
		return "every " + t.GetInterval()
	case t.GetEvent().GetConfig() != "":
		return "after " + t.GetEvent().GetConfig()
	case t.GetEvent().GetName() != "":
		return "on external event " + t.GetEvent().GetName()
	}
	return "only when triggered manually"
}

// expressionOf is the cron expression, if ScheduleText is in words.
func expressionOf(t *servov1.ConfigTrigger) string {
	if t.GetCron() != "" && cronWords(t.GetCron()) != t.GetCron() {
		return t.GetCron()
	}
	return t.GetExpression()
}

// timedTrigger reports whether a config has slots.
func timedTrigger(t *servov1.ConfigTrigger) bool {
	return t.GetCron() != "" || t.GetTemplate() != "" || t.GetInterval() != ""
}

// cronWords describes common expressions in words; others are returned unchanged.
func cronWords(cron string) string {
	fields := strings.Fields(cron)
	if len(fields) != 5 {
		return cron
	}
	minute, hour, day, month, weekday := fields[0], fields[1], fields[2], fields[3], fields[4]
	if month != "*" || day != "*" && weekday != "*" {
		return cron
	}
	if each, ok := strings.CutPrefix(minute, "*/"); ok && hour == "*" && day == "*" && weekday == "*" && cronNumber(each, 59) {
		return "every " + each + " minutes"
	}
	if cron == "* * * * *" {
		return "every minute"
	}
	if !cronNumber(minute, 59) {
		return cron
	}
	if hour == "*" && day == "*" && weekday == "*" {
		return fmt.Sprintf("hourly at :%02s", minute)
	}
	if !cronNumber(hour, 23) {
		return cron
	}
	at := fmt.Sprintf("at %02s:%02s", hour, minute)
	switch {
	case day == "*" && weekday == "*":
		return "daily " + at
	case day == "*" && (weekday == "1-5" || strings.EqualFold(weekday, "MON-FRI")):
		return "on workdays " + at
	case day == "*" && weekdayName(weekday) != "":
		return "on " + weekdayName(weekday) + "s " + at
	case day == "L":
		return "on the last day of the month " + at
	case weekday == "*" && cronNumber(day, 31):
		return "monthly on day " + day + " " + at
	}
	return cron
}

func cronNumber(text string, most int) bool {
	n, err := strconv.Atoi(text)
	return err == nil && n >= 0 && n <= most && len(text) <= 2
}

func weekdayName(text string) string {
	for i, short := range []string{"SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT", "SUN"} {
		if text == strconv.Itoa(i) || strings.EqualFold(text, short) {
			return time.Weekday(i % 7).String()
		}
	}
	return ""
}

// failingText is the number of failures, and the number at which the config is disabled.
func failingText(c *servov1.Config) string {
	n, most := c.GetConsecutiveFailures(), c.GetSpec().GetMaxConsecutiveFailures()
	if n == 0 {
		return ""
	}
	text := "The last run failed."
	if n > 1 {
		text = fmt.Sprintf("The last %d runs failed.", n)
	}
	if most > 0 && c.GetState() == servov1.Config_ACTIVE {
		text += fmt.Sprintf(" The config is disabled after %s in a row.", Plural(most, "failure", "failures"))
	}
	return text
}

// runFailed reports whether a run failed or timed out.
func runFailed(state servov1.Run_State) bool {
	return state == servov1.Run_FAILED || state == servov1.Run_TIMED_OUT
}

// overlapWords is the effect of a slot that fires while a run is in progress.
func overlapWords(s *servov1.ConfigSpec) string {
	switch s.GetOverlap() {
	case "skip":
		return "skip the slot"
	case "buffer_one":
		return "queue one run"
	case "buffer_all":
		return "queue all runs"
	case "cancel_running":
		return "cancel the older run"
	case "allow":
		if n := s.GetMaxOverlap(); n > 0 {
			return fmt.Sprintf("up to %d runs at once", n)
		}
		return "run at once"
	}
	return s.GetOverlap()
}

// catchupWords is the effect of missed slots.
func catchupWords(c *servov1.ConfigCatchup) string {
	text := c.GetPolicy()
	switch c.GetPolicy() {
	case "latest":
		text = "fire the latest"
	case "all":
		text = fmt.Sprintf("fire the newest %d", c.GetMaxSlots())
	case "none":
		text = "fire none"
	}
	if w := c.GetWindow(); w != "" {
		text += ", not older than " + w
	}
	return text
}

// specFacts are the settings that the card Schedule does not show.
func specFacts(s *servov1.ConfigSpec) (out []Option) {
	add := func(name, value string) {
		if value != "" && value != "0" {
			out = append(out, Option{Value: value, Label: name})
		}
	}
	add("Priority", strconv.Itoa(int(s.GetPriority())))
	add("Jitter", s.GetJitter())
	if d := s.GetDependsOn(); d != nil {
		text := "success of " + d.GetConfig() + " within " + d.GetWithin()
		if d.GetWait() != "" {
			text += ", wait up to " + d.GetWait()
		}
		add("Dependency", text)
	}
	if r := s.GetRetry(); r != nil {
		add("Attempts per task", strconv.Itoa(int(r.GetMaxAttempts())))
		add("First retry delay", r.GetInitialDelay())
		add("Longest retry delay", r.GetMaxDelay())
		add("Retriable errors", strings.Join(r.GetRetryOn(), ", "))
		add("Terminal errors", strings.Join(r.GetNoRetryOn(), ", "))
	}
	add("Disabled after", Plural(s.GetMaxConsecutiveFailures(), "failure", "failures"))
	return out
}

// orEmpty is a clipped value, or a word for an empty one.
func orEmpty(text string) string { return cmp.Or(Clip(text, 200), "empty") }

// dayAt is the address of the slots of a day.
func (m ConfigModel) dayAt(day string) string {
	m.Day = day
	return m.tabAt(m.Tab) + "#day"
}

// slotTimes is the time of a slot, or of a range of slots.
func slotTimes(s *servov1.Slots, zone *time.Location) string {
	if s.GetCount() > 1 {
		return wall(s.GetFrom(), zone) + " – " + wall(s.GetTo(), zone) + " (" + Plural(s.GetCount(), "slot", "slots") + ")"
	}
	return timeOfDay(s.GetFrom(), zone)
}
