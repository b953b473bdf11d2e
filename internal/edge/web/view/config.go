package view

import (
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	servov1 "go.arco.dev/servo/gen/servo/v1"
	"go.arco.dev/servo/internal/domain/schedule"
)

// ConfigsModel is the list of configs.
type ConfigsModel struct {
	Scope                          Scope
	State, Pipeline, Label, Prefix string
	Configs                        []*servov1.Config
	Wrong                          string // with a filter
	First                          bool
	FirstAt, NextAt                string
	MayWrite                       bool
}

// ConfigModel is one config.
type ConfigModel struct {
	Config                           *servov1.Config
	Zone                             *time.Location
	Tab                              string
	Overdue                          bool // its slot should have fired
	Why                              *servov1.Explanation
	Failed                           []*servov1.Task // of the last run
	Calendar                         Calendar
	Day                              string // whose slots are listed
	Slots                            []*servov1.Slots
	Next                             []*servov1.PreviewedSlot
	Runs                             []*servov1.Run
	Audit                            []ConfigChange
	AuditFirst                       bool
	AuditFirstAt, AuditNextAt        string
	First                            bool
	FirstAt, NextAt                  string
	MayOperate, MayWrite, MayTrigger bool
}

// ZoneOf is a time zone by its name; UTC if there is none of that name.
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

// at is the address of something that is done to a config, or of a part of its page.
func (m ConfigModel) at(action string) string { return ConfigAction(m.Config, action) }

// tabAt is the address of a part of the page.
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
	path := Path("tenants", m.Config.GetTenant(), "configs", m.Config.GetName())
	if len(query) == 0 {
		return path
	}
	return path + "?" + query.Encode()
}

// ConfigAction is the address of something that is done to a config.
func ConfigAction(c *servov1.Config, action string) string {
	return inWorkspace(Path("tenants", c.GetTenant(), "configs", c.GetName(), action), c.GetWorkspace())
}

// configOf is the page of a config.
func configOf(c *servov1.Config) string {
	return ConfigPath(c.GetTenant(), c.GetWorkspace(), c.GetName())
}

// wall is what a clock on the wall of a zone shows.
func wall(t *timestamppb.Timestamp, zone *time.Location) string {
	if t == nil {
		return ""
	}
	return t.AsTime().In(zone).Format("Mon 2 Jan ") + timeOfDay(t, zone)
}

// timeOfDay has seconds where the schedule has them.
func timeOfDay(t *timestamppb.Timestamp, zone *time.Location) string {
	at := t.AsTime().In(zone)
	if at.Second() == 0 {
		return at.Format("15:04")
	}
	return at.Format("15:04:05")
}

// clockNote says what a change of the clock does to a slot.
func clockNote(note string) string {
	switch note {
	case string(schedule.GapShift):
		return "clock put forward: moved behind the gap"
	case string(schedule.FoldShift):
		return "clock put back: this hour comes twice"
	}
	return note
}

// ScheduleText says when a config fires: in words where they are shorter than the expression.
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
		return "on the event " + t.GetEvent().GetName()
	}
	return "by hand alone"
}

// expressionOf is the expression behind the words.
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

// cronWords says the most common expressions in words; others stay as they are.
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
		return "on the last of the month " + at
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

// slotLook is how a slot is shown: by its run, once that is known.
func slotLook(outcome servov1.Slots_Outcome, state servov1.Run_State) Look {
	if outcome == servov1.Slots_FIRED && state != servov1.Run_STATE_UNSPECIFIED {
		return LookOf(state.String())
	}
	return LookOf(outcome.String())
}

// failingText says how near a config is to being disabled.
func failingText(c *servov1.Config) string {
	n, most := c.GetConsecutiveFailures(), c.GetSpec().GetMaxConsecutiveFailures()
	if n == 0 {
		return ""
	}
	text := "Its last run has failed."
	if n > 1 {
		text = fmt.Sprintf("Its last %d runs have failed, one after the other.", n)
	}
	if most > 0 && c.GetState() == servov1.Config_ACTIVE {
		text += fmt.Sprintf(" After %s it is disabled.", Plural(most, "failure", "failures"))
	}
	return text
}

// runFailed reports whether a run has ended badly.
func runFailed(state servov1.Run_State) bool {
	return state == servov1.Run_FAILED || state == servov1.Run_TIMED_OUT
}

// labelLines are labels in the order of their names.
func labelLines(labels map[string]string) []string {
	return pairLines(labels, "=")
}

// overlapWords says what a slot does while a run goes on.
func overlapWords(s *servov1.ConfigSpec) string {
	switch s.GetOverlap() {
	case "skip":
		return "the slot is skipped"
	case "buffer_one":
		return "one run waits"
	case "buffer_all":
		return "every run waits"
	case "cancel_running":
		return "the older run is cancelled"
	case "allow":
		if n := s.GetMaxOverlap(); n > 0 {
			return fmt.Sprintf("up to %d run at once", n)
		}
		return "they run at once"
	}
	return s.GetOverlap()
}

// catchupWords says what becomes of slots that were missed.
func catchupWords(c *servov1.ConfigCatchup) string {
	text := c.GetPolicy()
	switch c.GetPolicy() {
	case "latest":
		text = "the latest one fires"
	case "all":
		text = fmt.Sprintf("the newest %d fire", c.GetMaxSlots())
	case "none":
		text = "none of them fires"
	}
	if w := c.GetWindow(); w != "" {
		text += ", unless older than " + w
	}
	return text
}

// specFacts are the settings that have no place of their own.
func specFacts(s *servov1.ConfigSpec) (out [][2]string) {
	add := func(name, value string) {
		if value != "" && value != "0" {
			out = append(out, [2]string{name, value})
		}
	}
	add("Priority", strconv.Itoa(int(s.GetPriority())))
	add("Jitter", s.GetJitter())
	if d := s.GetDependsOn(); d != nil {
		text := d.GetConfig() + " succeeded within " + d.GetWithin()
		if d.GetWait() != "" {
			text += ", waits " + d.GetWait()
		}
		add("Depends on", text)
	}
	if r := s.GetRetry(); r != nil {
		add("Attempts", strconv.Itoa(int(r.GetMaxAttempts())))
		add("First delay", r.GetInitialDelay())
		add("Longest delay", r.GetMaxDelay())
		add("Retried on", strings.Join(r.GetRetryOn(), ", "))
		add("Not retried on", strings.Join(r.GetNoRetryOn(), ", "))
	}
	add("Disabled after", Plural(s.GetMaxConsecutiveFailures(), "failure", "failures"))
	return out
}

func orNothing(text string) string {
	if text == "" {
		return "nothing"
	}
	return text
}

// dayAt is the page with the slots of a day.
func (m ConfigModel) dayAt(day string) string {
	m.Day = day
	return m.tabAt(m.Tab) + "#day"
}

// With is At with one more parameter.
func (s Scope) With(path, name, value string) string {
	at := s.At(path)
	join := "?"
	if strings.Contains(at, "?") {
		join = "&"
	}
	return at + join + url.Values{name: {value}}.Encode()
}

// inWords is what tells a config from others besides its name.
func inWords(c *servov1.Config) string {
	parts := append([]string{c.GetSpec().GetPipeline()}, labelLines(c.GetSpec().GetLabels())...)
	if w := c.GetWorkspace(); w != "default" {
		parts = append(parts, "in "+w)
	}
	return Clip(strings.Join(parts, " · "), 90)
}

func oldestFirst(recent []*servov1.RecentSlot) []*servov1.RecentSlot {
	out := slices.Clone(recent)
	slices.Reverse(out)
	return out
}

// recentText says what a dot stands for.
func recentText(s *servov1.RecentSlot, zone *time.Location) string {
	text := wall(s.GetSlot(), zone) + ": " + slotLook(s.GetOutcome(), s.GetState()).Label
	if s.GetCount() > 1 {
		text += " (" + Plural(s.GetCount(), "slot", "slots") + ")"
	}
	return text
}
