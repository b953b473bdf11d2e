package web

import (
	"cmp"
	"encoding/json"
	"net/http"
	"strconv"
	"strings"

	"github.com/a-h/templ"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/fieldmaskpb"
	"google.golang.org/protobuf/types/known/structpb"

	servov1 "go.arco.dev/servo/gen/servo/v1"
	"go.arco.dev/servo/internal/base/canon"
	"go.arco.dev/servo/internal/base/fault"
	"go.arco.dev/servo/internal/domain/access"
	"go.arco.dev/servo/internal/edge/web/view"
)

// newConfig is the form of a new config.
func (s *Web) newConfig(v *visit) (view.Page, error) {
	if err := v.mustMay(access.ConfigsWrite); err != nil {
		return view.Page{}, err
	}
	m := view.ConfigFormModel{Scope: v.scope, Tenant: v.scope.Tenant, New: true, Values: view.NewConfigValues()}
	if v.query("pipeline") != "" {
		m.Values["pipeline"] = v.query("pipeline")
	}
	return s.configForm(v, m)
}

// editConfig is the form of a stored config.
func (s *Web) editConfig(v *visit) (view.Page, error) {
	if err := v.mustMay(access.ConfigsWrite); err != nil {
		return view.Page{}, err
	}
	found, err := s.configOf(v)
	if err != nil {
		return view.Page{}, err
	}
	return s.configForm(v, view.ConfigFormModel{Scope: v.scope, Tenant: found.GetTenant(), Config: found, Values: view.ConfigValues(found)})
}

// configForm reads the options of the form.
func (s *Web) configForm(v *visit, m view.ConfigFormModel) (view.Page, error) {
	page := view.Page{Title: "Create config", Section: "configs"}
	if m.Config != nil {
		page.Title = "Edit " + m.Config.GetName()
	}
	if m.Tenant == "" {
		return s.chooseTenant(v, "Create config", "configs", "Each config belongs to a tenant.", "/ui/configs/new")
	}
	m.Workspace = cmp.Or(m.Config.GetWorkspace(), v.scope.Workspace)
	pipelines := &servov1.ListPipelinesRequest{Tenant: m.Tenant, Workspace: m.Workspace, PageSize: 100}
	list, err := s.api.assets.ListPipelines(v.ctx, pipelines)
	switch {
	case hasCode(err, fault.NotFound), hasCode(err, fault.Conflict): // nothing is deployed
	case err != nil:
		return view.Page{}, err
	}
	m.Pipelines = list.GetPipelines()
	templates, err := s.api.templates.ListTemplates(v.ctx, &servov1.ListTemplatesRequest{Tenant: m.Tenant})
	if err != nil {
		return view.Page{}, err
	}
	m.Templates = templates.GetTemplates()
	m.Preview = s.previewOf(v, m.Tenant, m.Values)
	page.Body = view.ConfigForm(m)
	return page, nil
}

// saveConfig saves the form, or shows it again with its errors.
func (s *Web) saveConfig(v *visit) (done, error) {
	m := view.ConfigFormModel{Scope: v.scope, Tenant: v.scope.Tenant, New: v.PathValue("config") == "", Values: typed(v)}
	if !m.New {
		found, err := s.configOf(v)
		if err != nil {
			return done{}, err
		}
		m.Config = found
	}
	spec, invalid := specOf(m.Values, m.Config.GetSpec())
	var saved *servov1.Config
	var err error
	switch {
	case len(invalid) > 0:
		m.Errors = invalid
	case m.New:
		saved, err = s.api.configs.CreateConfig(v.ctx, &servov1.CreateConfigRequest{
			Tenant: m.Tenant, Workspace: v.scope.Workspace, Name: m.Values["name"], Spec: spec, Enabled: proto.Bool(m.Values["enabled"] != ""), Reason: m.Values["reason"],
		})
	default:
		change := &servov1.UpdateConfigRequest{
			Tenant: m.Tenant, Config: m.Config.GetId(), Spec: spec, Enabled: enabledOf(m.Values, m.Config), Version: v.version(), Reason: m.Values["reason"],
			UpdateMask: &fieldmaskpb.FieldMask{Paths: []string{"spec"}}, // the form has all fields: an empty field clears the value
		}
		if change.Enabled != nil {
			change.UpdateMask.Paths = append(change.UpdateMask.Paths, "enabled")
		}
		saved, err = s.api.configs.UpdateConfig(v.ctx, change)
	}
	if err == nil && saved != nil {
		notice := "Config saved."
		if m.New {
			notice = "Config created."
		}
		return done{To: configPath(saved), Notice: notice}, nil
	}
	if err != nil {
		status, doc := docOf(err)
		if status >= http.StatusInternalServerError || hasCode(err, fault.Unauthenticated) || hasCode(err, fault.Forbidden) {
			return done{}, err
		}
		m.Errors = errorsByField(doc, view.FieldOf)
		if m.Config != nil && v.version() != m.Config.GetVersion() {
			m.Conflict = view.DifferingValues(view.ConfigValues(m.Config), m.Values)
			m.Conflicted, m.Errors = true, nil
		}
	}
	page, err := s.configForm(v, m)
	return done{Shown: &page, Again: true}, err
}

// typed are the values of the form.
func typed(v *visit) map[string]string {
	out := map[string]string{}
	for _, name := range view.ConfigFields() {
		out[name] = v.field(name)
	}
	return out
}

// enabledOf is the new state of a config; nil if the form does not change it.
func enabledOf(values map[string]string, c *servov1.Config) *bool {
	is, wanted := c.GetState() != servov1.Config_DISABLED, values["enabled"] != ""
	if is == wanted {
		return nil
	}
	return proto.Bool(wanted)
}

// specOf applies the values of the form to the stored spec; fields that the form does not have stay
// unchanged. It returns the values that cannot be parsed by field; the API validates the rest.
func specOf(values map[string]string, current *servov1.ConfigSpec) (*servov1.ConfigSpec, map[string]string) {
	spec, invalid := &servov1.ConfigSpec{}, map[string]string{}
	if current != nil {
		spec, _ = proto.Clone(current).(*servov1.ConfigSpec)
	}
	spec.Pipeline, spec.Timezone, spec.Overlap = values["pipeline"], values["timezone"], values["overlap"]
	spec.Jitter, spec.SlaStartDelay, spec.MaxExecution = values["jitter"], values["sla_start_delay"], values["max_execution"]
	spec.Trigger = triggerOf(values, current.GetTrigger())
	whole := func(name string) *int32 {
		if values[name] == "" {
			return nil
		}
		n, err := strconv.ParseInt(values[name], 10, 32)
		if err != nil {
			invalid[name] = "Is not a whole number."
		}
		return proto.Int32(int32(n))
	}
	spec.Priority, spec.MaxOverlap, spec.MaxConsecutiveFailures = whole("priority"), whole("max_overlap"), whole("max_consecutive_failures")
	spec.Catchup = &servov1.ConfigCatchup{Policy: values["catchup"], MaxSlots: whole("catchup_max_slots"), Window: values["catchup_window"]}
	if spec.Retry == nil {
		spec.Retry = &servov1.ConfigRetry{}
	}
	spec.Retry.MaxAttempts, spec.Retry.InitialDelay = whole("retry_attempts"), values["retry_delay"]
	if proto.Size(spec.GetRetry()) == 0 {
		spec.Retry = nil
	}
	spec.DependsOn = nil
	if values["depends_on"] != "" || values["depends_within"] != "" {
		spec.DependsOn = &servov1.ConfigDependency{Config: values["depends_on"], Within: values["depends_within"], Wait: values["depends_wait"]}
	}
	spec.Labels = labelsOf(values["labels"], invalid)
	spec.Parameters = parametersOf(values["parameters"], invalid)
	return spec, invalid
}

// triggerOf keeps the anchor of intervals as long as the kind of the trigger stays the same.
func triggerOf(values map[string]string, current *servov1.ConfigTrigger) *servov1.ConfigTrigger {
	t := &servov1.ConfigTrigger{}
	switch values["kind"] {
	case "cron":
		t.Cron = values["cron"]
		if strings.HasPrefix(t.GetCron(), "@every ") && strings.HasPrefix(current.GetCron(), "@every ") {
			t.Anchor = current.GetAnchor()
		}
	case "template":
		t.Template = values["template"]
	case "interval":
		if t.Interval = values["interval"]; current.GetInterval() != "" {
			t.Anchor = current.GetAnchor()
		}
	case "event":
		t.Event = &servov1.ConfigEvent{Config: values["event_config"], Name: values["event_name"]}
	case "manual":
		t.Manual = true
	}
	return t
}

func labelsOf(text string, invalid map[string]string) map[string]string {
	labels := map[string]string{}
	for line := range strings.Lines(text) {
		if line = strings.TrimSpace(line); line == "" {
			continue
		}
		name, value, ok := strings.Cut(line, "=")
		if !ok || name == "" {
			invalid["labels"] = view.Clip(strconv.Quote(line), 80) + " is not name=value."
			continue
		}
		labels[strings.TrimSpace(name)] = strings.TrimSpace(value)
	}
	if len(labels) == 0 {
		return nil
	}
	return labels
}

func parametersOf(text string, invalid map[string]string) *structpb.Struct {
	if text == "" {
		return nil
	}
	if f, ok := fault.As(canon.CheckExact([]byte(text))); ok { // with the position of the error
		invalid["parameters"] = f.Error() + "."
		return nil
	}
	var values map[string]any
	if err := json.Unmarshal([]byte(text), &values); err != nil {
		invalid["parameters"] = "Is not a JSON object."
		return nil
	}
	out, err := structpb.NewStruct(values)
	if err != nil {
		invalid["parameters"] = "Is not a JSON object."
	}
	return out
}

// previewConfig responds with the next slots of the typed schedule.
func (s *Web) previewConfig(v *visit) templ.Component {
	return view.SchedulePreview(s.previewOf(v, v.scope.Tenant, typed(v)))
}

// previewOf is the next slots of a schedule.
func (s *Web) previewOf(v *visit, tenant string, values map[string]string) view.Preview {
	const shown = 6
	out := view.Preview{Kind: values["kind"], Zone: view.ZoneOf(values["timezone"])}
	trigger := triggerOf(values, nil)
	if trigger.GetManual() || trigger.GetEvent() != nil || proto.Size(trigger) == 0 {
		return out
	}
	answer, err := s.api.configs.PreviewSchedule(v.ctx, &servov1.PreviewScheduleRequest{
		Tenant: tenant, Workspace: v.scope.Workspace, Trigger: trigger, Timezone: values["timezone"], Jitter: values["jitter"], Count: shown,
	})
	if err != nil {
		_, doc := docOf(err)
		out.Invalid = view.Violation(doc.Message, doc.Remedy)
		return out
	}
	out.Slots, out.Expression, out.Zone = answer.GetSlots(), answer.GetExpression(), view.ZoneOf(answer.GetTimezone())
	return out
}
