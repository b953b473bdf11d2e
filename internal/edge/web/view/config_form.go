package view

import (
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
	Config     *servov1.Config // as it is; nil of a new one
	Values     map[string]string
	Errors     map[string]string // by field; those that are about none at ""
	Conflicted bool              // somebody else has saved it meanwhile
	Conflict   []FieldChange     // what is stored, and what was typed
	Pipelines  []*servov1.Pipeline
	Templates  []*servov1.Template
	Preview    Preview
}

// Preview is the slots that a schedule would have.
type Preview struct {
	Kind       string
	Wrong      string
	Expression string // behind the name of a template
	Zone       *time.Location
	Slots      []*servov1.PreviewedSlot
}

// formField is a field of the form: what the API calls it, and what people do.
type formField struct{ Name, Path, Label string }

func formFields() []formField {
	return []formField{
		{"name", "name", "Name"},
		{"pipeline", "spec.pipeline", "Pipeline"},
		{"kind", "spec.trigger", "Fires"},
		{"cron", "spec.trigger.cron", "Cron expression"},
		{"template", "spec.trigger.template", "Template"},
		{"interval", "spec.trigger.interval", "Interval"},
		{"event_config", "spec.trigger.event.config", "After config"},
		{"event_name", "spec.trigger.event", "Event"},
		{"timezone", "spec.timezone", "Time zone"},
		{"overlap", "spec.overlap", "If runs overlap"},
		{"max_overlap", "spec.max_overlap", "Runs at once"},
		{"catchup", "spec.catchup", "Missed slots"},
		{"catchup_max_slots", "spec.catchup.max_slots", "Newest missed slots"},
		{"catchup_window", "spec.catchup.window", "Not older than"},
		{"jitter", "spec.jitter", "Jitter"},
		{"sla_start_delay", "spec.sla_start_delay", "Begins within"},
		{"max_execution", "spec.max_execution", "Ends within"},
		{"retry_attempts", "spec.retry", "Attempts"},
		{"retry_delay", "spec.retry.initial_delay", "First delay"},
		{"priority", "spec.priority", "Priority"},
		{"max_consecutive_failures", "spec.max_consecutive_failures", "Disabled after"},
		{"depends_on", "spec.depends_on", "Depends on config"},
		{"depends_within", "spec.depends_on.within", "Succeeded within"},
		{"depends_wait", "spec.depends_on.wait", "Waits for it"},
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

// FieldOf is the field of the form for a path of the API: the one whose own path is the longest
// that leads to it; "" if there is none.
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

// Broken is what is wrong with a field, and what to do.
func Broken(message, remedy string) string {
	text := sentence("", message)
	if remedy != "" {
		text += " " + sentence("", remedy)
	}
	return text
}

// NewConfigValues is what the form of a new config begins with.
func NewConfigValues() map[string]string {
	return map[string]string{"kind": "cron", "timezone": "UTC", "overlap": "skip", "catchup": "latest", "enabled": "true"}
}

// ConfigValues is a config as the form has it.
func ConfigValues(c *servov1.Config) map[string]string {
	s := c.GetSpec()
	values := map[string]string{
		"name": c.GetName(), "pipeline": s.GetPipeline(), "timezone": s.GetTimezone(), "overlap": s.GetOverlap(), "max_overlap": wholeText(s.GetMaxOverlap()),
		"catchup": s.GetCatchup().GetPolicy(), "catchup_max_slots": wholeText(s.GetCatchup().GetMaxSlots()), "catchup_window": s.GetCatchup().GetWindow(),
		"jitter": s.GetJitter(), "sla_start_delay": s.GetSlaStartDelay(), "max_execution": s.GetMaxExecution(),
		"retry_attempts": wholeText(s.GetRetry().GetMaxAttempts()), "retry_delay": s.GetRetry().GetInitialDelay(),
		"priority": wholeText(s.GetPriority()), "max_consecutive_failures": wholeText(s.GetMaxConsecutiveFailures()),
		"depends_on": s.GetDependsOn().GetConfig(), "depends_within": s.GetDependsOn().GetWithin(), "depends_wait": s.GetDependsOn().GetWait(),
		"labels": strings.Join(labelLines(s.GetLabels()), "\n"), "cron": s.GetTrigger().GetCron(), "template": s.GetTrigger().GetTemplate(),
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

// DifferingValues are the fields in which what is stored is not what was typed.
func DifferingValues(stored, typed map[string]string) (out []FieldChange) {
	for _, f := range formFields() {
		if f.Name != "reason" && f.Name != "name" && sameText(stored[f.Name]) != sameText(typed[f.Name]) {
			out = append(out, FieldChange{Field: f.Label, Before: stored[f.Name], After: typed[f.Name]})
		}
	}
	return out
}

// sameText takes from a text what browsers add to it.
func sameText(text string) string {
	return strings.TrimSpace(strings.ReplaceAll(text, "\r\n", "\n"))
}

// action is where the form goes.
func (m ConfigFormModel) action() string {
	if m.New {
		return Scope{Tenant: m.Tenant, Workspace: m.Workspace}.At("/ui/configs/new")
	}
	return ConfigAction(m.Config, "edit")
}

// previewAt is where the slots are asked for while somebody types.
func (m ConfigFormModel) previewAt() string {
	return inWorkspace(Path("tenants", m.Tenant, "preview-schedule"), m.Workspace)
}

// back is where the form was come from.
func (m ConfigFormModel) back() string {
	if m.New {
		return m.Scope.At("/ui/configs")
	}
	return configOf(m.Config)
}

func (m ConfigFormModel) title() string {
	if m.New {
		return "New config"
	}
	return "Edit " + m.Config.GetName()
}

// offered reports whether a pipeline is one of those that are deployed.
func (m ConfigFormModel) offered(name string) bool {
	for _, p := range m.Pipelines {
		if p.GetName() == name {
			return true
		}
	}
	return false
}

func (m ConfigFormModel) saveLabel() string {
	switch {
	case m.New:
		return "Make the config"
	case m.Conflicted:
		return "Save over version " + strconv.Itoa(int(m.Config.GetVersion()))
	}
	return "Save"
}
