package view

import (
	"slices"
	"strconv"
	"strings"
	"time"

	servov1 "go.arco.dev/servo/gen/servo/v1"
)

// ConfigFormModel is the form of a config.
type ConfigFormModel struct {
	Scope      Scope
	Tenant     string
	Workspace  string
	New        bool
	Config     *servov1.Config // as stored; nil of a new config
	Values     map[string]string
	Errors     map[string]string // by field; "" is the form
	Conflicted bool              // the stored version is newer than the form
	Conflict   []FieldChange     // stored and typed values
	Pipelines  []*servov1.Pipeline
	Templates  []*servov1.Template
	Preview    Preview
}

// Preview is the next slots of a schedule.
type Preview struct {
	Kind       string
	Invalid    string // the error of the schedule
	Expression string // of a template
	Zone       *time.Location
	Slots      []*servov1.PreviewedSlot
}

// formField is a field of the form, with its path in the API and its label.
type formField struct{ Name, Path, Label string }

func formFields() []formField {
	return []formField{
		{"name", "name", "Name"},
		{"pipeline", "spec.pipeline", "Pipeline"},
		{"kind", "spec.trigger", "Trigger"},
		{"cron", "spec.trigger.cron", "Cron expression"},
		{"template", "spec.trigger.template", "Template"},
		{"interval", "spec.trigger.interval", "Interval"},
		{"event_config", "spec.trigger.event.config", "After success of config"},
		{"event_name", "spec.trigger.event", "External event"},
		{"timezone", "spec.timezone", "Time zone"},
		{"overlap", "spec.overlap", "Overlap"},
		{"max_overlap", "spec.max_overlap", "Runs at once"},
		{"catchup", "spec.catchup", "Missed slots"},
		{"catchup_max_slots", "spec.catchup.max_slots", "Missed slots to fire"},
		{"catchup_window", "spec.catchup.window", "Maximum age"},
		{"jitter", "spec.jitter", "Jitter"},
		{"sla_start_delay", "spec.sla_start_delay", "Start deadline"},
		{"max_execution", "spec.max_execution", "Maximum duration"},
		{"retry_attempts", "spec.retry", "Attempts per task"},
		{"retry_delay", "spec.retry.initial_delay", "First retry delay"},
		{"priority", "spec.priority", "Priority"},
		{"max_consecutive_failures", "spec.max_consecutive_failures", "Failures until disabled"},
		{"depends_on", "spec.depends_on", "Dependency"},
		{"depends_within", "spec.depends_on.within", "Success within"},
		{"depends_wait", "spec.depends_on.wait", "Wait for the dependency"},
		{"labels", "spec.labels", "Labels"},
		{"parameters", "spec.parameters", "Parameters"},
		{"enabled", "enabled", "Enabled"},
		{"reason", "reason", "Reason"},
	}
}

// ConfigFields are the names of the form's fields.
func ConfigFields() (names []string) {
	for _, f := range formFields() {
		names = append(names, f.Name)
	}
	return names
}

// FieldOf is the field of the form for a path of the API: the field with the longest path that
// contains it, or "".
func FieldOf(path string) string {
	best, found := "", ""
	for _, f := range formFields() {
		under := strings.HasPrefix(path, f.Path+".") || strings.HasPrefix(path, f.Path+"[")
		if (path == f.Path || under) && len(f.Path) > len(best) {
			best, found = f.Path, f.Name
		}
	}
	return found
}

// Violation is the error of a field with its remedy.
func Violation(message, remedy string) string {
	text := sentence("", message)
	if remedy != "" {
		text += " " + sentence("", remedy)
	}
	return text
}

// NewConfigValues are the values of the form of a new config.
func NewConfigValues() map[string]string {
	return map[string]string{"kind": "cron", "timezone": "UTC", "overlap": "skip", "catchup": "latest", "enabled": "true"}
}

// ConfigValues are the values of the form of a stored config.
func ConfigValues(c *servov1.Config) map[string]string {
	s := c.GetSpec()
	values := map[string]string{
		"name": c.GetName(), "pipeline": s.GetPipeline(), "timezone": s.GetTimezone(), "overlap": s.GetOverlap(), "max_overlap": wholeText(s.GetMaxOverlap()),
		"catchup": s.GetCatchup().GetPolicy(), "catchup_max_slots": wholeText(s.GetCatchup().GetMaxSlots()), "catchup_window": s.GetCatchup().GetWindow(),
		"jitter": s.GetJitter(), "sla_start_delay": s.GetSlaStartDelay(), "max_execution": s.GetMaxExecution(),
		"retry_attempts": wholeText(s.GetRetry().GetMaxAttempts()), "retry_delay": s.GetRetry().GetInitialDelay(),
		"priority": wholeText(s.GetPriority()), "max_consecutive_failures": wholeText(s.GetMaxConsecutiveFailures()),
		"depends_on": s.GetDependsOn().GetConfig(), "depends_within": s.GetDependsOn().GetWithin(), "depends_wait": s.GetDependsOn().GetWait(),
		"labels": strings.Join(pairLines(s.GetLabels(), "="), "\n"), "cron": s.GetTrigger().GetCron(), "template": s.GetTrigger().GetTemplate(),
		"interval": s.GetTrigger().GetInterval(), "event_config": s.GetTrigger().GetEvent().GetConfig(), "event_name": s.GetTrigger().GetEvent().GetName(),
	}
	if len(s.GetParameters().GetFields()) > 0 {
		values["parameters"] = JSON(s.GetParameters())
	}
	if c.GetState() != servov1.Config_DISABLED {
		values["enabled"] = "true"
	}
	values["kind"] = kindOf(s.GetTrigger())
	return values
}

func kindOf(t *servov1.ConfigTrigger) string {
	switch {
	case t.GetCron() != "":
		return "cron"
	case t.GetTemplate() != "":
		return "template"
	case t.GetInterval() != "":
		return "interval"
	case t.GetEvent() != nil:
		return "event"
	}
	return "manual"
}

func wholeText(n int32) string {
	if n == 0 {
		return ""
	}
	return strconv.Itoa(int(n))
}

// DifferingValues are the fields whose stored and typed values differ.
func DifferingValues(stored, typed map[string]string) (out []FieldChange) {
	for _, f := range formFields() {
		if f.Name != "reason" && f.Name != "name" && sameText(stored[f.Name]) != sameText(typed[f.Name]) {
			out = append(out, FieldChange{Field: f.Label, Before: stored[f.Name], After: typed[f.Name]})
		}
	}
	return out
}

// sameText removes the line endings and blanks that browsers add.
func sameText(text string) string {
	return strings.TrimSpace(strings.ReplaceAll(text, "\r\n", "\n"))
}

// focus is the first field with an error.
func (m ConfigFormModel) focus() string {
	for _, f := range formFields() {
		if m.Errors[f.Name] != "" {
			return f.Name
		}
	}
	return ""
}

// previewOnce is the preview without an error that a field of the form already shows.
func (m ConfigFormModel) previewOnce() Preview {
	p := m.Preview
	if p.Invalid != "" && slices.ContainsFunc([]string{"kind", "cron", "template", "interval", "timezone", "jitter"}, func(name string) bool { return m.Errors[name] != "" }) {
		p.Invalid = ""
	}
	return p
}

// action is the address of the form.
func (m ConfigFormModel) action() string {
	if m.New {
		return Scope{Tenant: m.Tenant, Workspace: m.Workspace}.At("/ui/configs/new")
	}
	return ConfigAction(m.Config, "edit")
}

// previewAt is the address of the preview.
func (m ConfigFormModel) previewAt() string {
	return inWorkspace(Path("tenants", m.Tenant, "preview-schedule"), m.Workspace)
}

// back is the page before the form.
func (m ConfigFormModel) back() string {
	if m.New {
		return m.Scope.At("/ui/configs")
	}
	return configPage(m.Config)
}

func (m ConfigFormModel) title() string {
	if m.New {
		return "Create config"
	}
	return "Edit " + m.Config.GetName()
}

// pipelineOptions are the deployed pipelines, and the current one if it is not deployed.
func (m ConfigFormModel) pipelineOptions() []Option {
	var options []Option
	now := m.Values["pipeline"]
	for _, p := range m.Pipelines {
		label := p.GetName()
		if p.GetDescription() != "" {
			label += ": " + Clip(p.GetDescription(), 60)
		}
		options = append(options, Option{p.GetName(), label})
	}
	if now == "" {
		return slices.Insert(options, 0, Option{"", "select a pipeline"})
	}
	if !slices.ContainsFunc(options, func(o Option) bool { return o.Value == now }) {
		options = slices.Insert(options, 0, Option{now, now + " (not deployed)"})
	}
	return options
}

func (m ConfigFormModel) templateOptions() []Option {
	options := []Option{{"", "select a template"}}
	for _, t := range m.Templates {
		options = append(options, Option{t.GetName(), t.GetName() + " (" + t.GetCron() + ")"})
	}
	return options
}

func (m ConfigFormModel) saveLabel() string {
	switch {
	case m.New:
		return "Create config"
	case m.Conflicted:
		return "Overwrite version " + strconv.Itoa(int(m.Config.GetVersion()))
	}
	return "Save"
}
