package view

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"google.golang.org/protobuf/types/known/structpb"

	servov1 "go.arco.dev/servo/gen/servo/v1"
)

// PipelinePath is the page of a pipeline.
func PipelinePath(tenant, workspace, pipeline string) string {
	return inWorkspace(Path("tenants", tenant, "pipelines", pipeline), workspace)
}

// LaunchPath is the form that runs a pipeline; from is a run whose parameters it has, or "".
func LaunchPath(tenant, workspace, pipeline, from string) string {
	query := url.Values{}
	if workspace != "" && workspace != "default" {
		query.Set("workspace", workspace)
	}
	if from != "" {
		query.Set("from", from)
	}
	return withQuery(Path("tenants", tenant, "pipelines", pipeline, "run"), query)
}

// PipelinesModel is the list of pipelines.
type PipelinesModel struct {
	Paging

	Scope      Scope
	Workspaces []string
	Pipelines  []PipelineSummary
	MayRun     bool
}

// PipelineSummary is a pipeline with its newest runs, the newest first.
type PipelineSummary struct {
	Pipeline *servov1.Pipeline
	Recent   []*servov1.Run
}

// PipelineModel is one pipeline.
type PipelineModel struct {
	Scope            Scope
	Pipeline         *servov1.Pipeline
	Tab              string
	Runs             []*servov1.Run
	Configs          []*servov1.Config
	MoreConfigs      bool
	Deployments      []*servov1.Deployment
	Graph            Graph
	Assets           int
	More             bool // assets that are not drawn
	Grid             Grid
	MayRun, MayWrite bool
}

func (m PipelineModel) tabs() (tabs []Tab) {
	for _, t := range []Option{
		{"graph", "Graph"}, {"grid", "Grid"}, {"runs", "Runs"}, {"configs", "Configs (" + Count(len(m.Configs), m.MoreConfigs) + ")"}, {"parameters", "Parameters"}, {"versions", "Versions"},
	} {
		tabs = append(tabs, Tab{t.Label, m.tabAt(t.Value), m.Tab == t.Value})
	}
	return tabs
}

func (m PipelineModel) tabAt(tab string) string {
	at := PipelinePath(m.Scope.Tenant, m.Scope.Workspace, m.Pipeline.GetName())
	if tab == "graph" {
		return at
	}
	joint := "?"
	if strings.Contains(at, "?") {
		joint = "&"
	}
	return at + joint + "tab=" + tab
}

func pipelineCrumbs(s Scope, further ...Link) []Link {
	return append([]Link{{s.Tenant, TenantPath(s.Tenant)}, {"Pipelines", s.At("/ui/pipelines")}}, further...)
}

// Health is the outcome of the newest runs of a pipeline.
type Health struct {
	Ended, Succeeded, Failed, Running int
	Typical                           time.Duration // median duration of succeeded runs
	LastSuccess                       *servov1.Run
}

// HealthOf counts runs.
func HealthOf(runs []*servov1.Run) (h Health) {
	var took []time.Duration
	for _, r := range runs {
		switch {
		case r.GetFinishedAt() == nil:
			h.Running++
			continue
		case r.GetState() == servov1.Run_SUCCEEDED:
			h.Succeeded++
			if h.LastSuccess == nil {
				h.LastSuccess = r
			}
			took = append(took, r.GetFinishedAt().AsTime().Sub(r.GetStartedAt().AsTime()))
		case runFailed(r.GetState()):
			h.Failed++
		}
		h.Ended++
	}
	if len(took) > 0 {
		slices.Sort(took)
		h.Typical = took[len(took)/2]
	}
	return h
}

// share is the share of succeeded runs in words.
func (h Health) share() string {
	if h.Ended == 0 {
		return "–"
	}
	return Percent(float64(h.Succeeded) / float64(h.Ended))
}

func (h Health) tone() string {
	switch {
	case h.Ended == 0:
		return ""
	case h.Failed == 0:
		return toneOK
	case h.Failed*2 >= h.Ended:
		return toneBad
	}
	return toneLate
}

// Grid is the states of assets in runs: assets are rows, runs are columns, the oldest at the left.
type Grid struct {
	Runs []*servov1.Run
	Rows []GridRow
	Cut  int // assets that are not shown
}

// GridRow is an asset.
type GridRow struct {
	Asset string
	Cells []GridCell
}

// GridCell is an asset in a run.
type GridCell struct {
	Look  Look
	Title string
	At    string
	Count int32
}

// GridOf arranges the graphs of runs, given the newest first.
func GridOf(graphs []*servov1.RunGraph, most int) (g Grid) {
	place := map[string]int{}
	graphs = slices.Clone(graphs)
	slices.Reverse(graphs)
	for _, graph := range graphs {
		for _, group := range graph.GetGroups() {
			if _, known := place[group.GetAsset()]; !known {
				place[group.GetAsset()] = len(place)
			}
		}
	}
	rows := make([]GridRow, len(place))
	for asset, i := range place {
		rows[i] = GridRow{Asset: asset, Cells: make([]GridCell, len(graphs))}
	}
	for column, graph := range graphs {
		run := graph.GetRun()
		g.Runs = append(g.Runs, run)
		for _, group := range graph.GetGroups() {
			look, detail := groupLook(group)
			rows[place[group.GetAsset()]].Cells[column] = GridCell{
				Look: look, Count: group.GetTotal(), Title: group.GetAsset() + " in run " + ShortID(run.GetId()) + ": " + detail,
				At: RunPath(run.GetTenant(), run.GetId()) + "?tab=tasks&asset=" + url.QueryEscape(group.GetAsset()),
			}
		}
	}
	g.Cut = max(0, len(rows)-most)
	g.Rows = rows[:len(rows)-g.Cut]
	return g
}

// LaunchModel is the form that runs a pipeline.
type LaunchModel struct {
	Scope      Scope
	Pipeline   *servov1.Pipeline
	From       *servov1.Run // whose parameters the form has
	Values     map[string]string
	Parameters *structpb.Struct
	Errors     map[string]string // by field; "" is the form
	Plan       PlanModel
}

// parameterPrefix begins the names of the fields of parameters.
const parameterPrefix = "parameter."

// LaunchFields are the names of the fields of the form.
func LaunchFields(p *servov1.Pipeline) []string {
	names := []string{"partitions", "priority", "note", "queue"}
	for _, parameter := range p.GetParameters() {
		names = append(names, parameterPrefix+parameter.GetName())
	}
	return names
}

// LaunchValues are the values of the form: of a run, or the defaults.
func LaunchValues(p *servov1.Pipeline, run *structpb.Struct) map[string]string {
	values := map[string]string{}
	for _, parameter := range p.GetParameters() {
		value := parameter.GetDefault()
		if of, set := run.GetFields()[parameter.GetName()]; set {
			value = of
		}
		values[parameterPrefix+parameter.GetName()] = valueText(parameter.GetType(), value)
	}
	return values
}

// valueText is a value as the text of a field.
func valueText(kind string, v *structpb.Value) string {
	if v == nil {
		return ""
	}
	if s, is := v.GetKind().(*structpb.Value_StringValue); is && kind == "string" {
		return s.StringValue
	}
	if _, null := v.GetKind().(*structpb.Value_NullValue); null {
		return ""
	}
	text := JSON(v)
	if kind == "object" || kind == "array" {
		return text
	}
	return strings.Trim(text, `"`)
}

// LaunchParameters parses the fields of parameters by their types. It returns the errors by field.
func LaunchParameters(p *servov1.Pipeline, values map[string]string) (*structpb.Struct, map[string]string) {
	out, invalid := &structpb.Struct{Fields: map[string]*structpb.Value{}}, map[string]string{}
	for _, parameter := range p.GetParameters() {
		name := parameterPrefix + parameter.GetName()
		text := values[name]
		if text == "" {
			if parameter.GetRequired() && parameter.GetDefault() == nil {
				invalid[name] = "Enter a value: the parameter is required."
			}
			continue
		}
		value, err := parseValue(parameter.GetType(), text)
		if err != nil {
			invalid[name] = sentence("", err.Error())
			continue
		}
		out.Fields[parameter.GetName()] = value
	}
	return out, invalid
}

func parseValue(kind, text string) (*structpb.Value, error) {
	switch kind {
	case "string":
		return structpb.NewStringValue(text), nil
	case "integer":
		n, err := strconv.ParseInt(text, 10, 64)
		if err != nil {
			return nil, fmt.Errorf("%s is not a whole number", strconv.Quote(Clip(text, 40)))
		}
		return structpb.NewNumberValue(float64(n)), nil
	case "number":
		n, err := strconv.ParseFloat(text, 64)
		if err != nil {
			return nil, fmt.Errorf("%s is not a number", strconv.Quote(Clip(text, 40)))
		}
		return structpb.NewNumberValue(n), nil
	case "boolean":
		b, err := strconv.ParseBool(text)
		if err != nil {
			return nil, fmt.Errorf("%s is not true or false", strconv.Quote(Clip(text, 40)))
		}
		return structpb.NewBoolValue(b), nil
	}
	var value any
	if err := json.Unmarshal([]byte(text), &value); err != nil {
		return nil, fmt.Errorf("the value is not JSON: %w", err)
	}
	return structpb.NewValue(value)
}

// LaunchFieldOf is the field of the form for a path of the API; "" is the form.
func LaunchFieldOf(p *servov1.Pipeline, path string) string {
	if name, is := strings.CutPrefix(path, "parameters."); is {
		name, _, _ = strings.Cut(name, ".")
		path = parameterPrefix + strings.Trim(name, `"`)
	}
	path, _, _ = strings.Cut(path, "[")
	if slices.Contains(LaunchFields(p), path) {
		return path
	}
	return ""
}

// PriorityOf is a priority of the form; 0 is the pipeline's.
func PriorityOf(text string) int32 {
	n, err := strconv.ParseInt(text, 10, 32)
	if err != nil {
		return 0
	}
	return int32(n)
}

func priorityOptions() []Option {
	options := []Option{{"", "of the pipeline"}}
	for n := 10; n > 0; n-- {
		label := strconv.Itoa(n)
		switch n {
		case 10:
			label += " (first)"
		case 1:
			label += " (last)"
		}
		options = append(options, Option{strconv.Itoa(n), label})
	}
	return options
}

func (m LaunchModel) action() string {
	return LaunchPath(m.Scope.Tenant, m.Scope.Workspace, m.Pipeline.GetName(), "")
}

func (m LaunchModel) planAt() string {
	return inWorkspace(Path("tenants", m.Scope.Tenant, "pipelines", m.Pipeline.GetName(), "plan"), m.Scope.Workspace)
}

func (m LaunchModel) crumbs() []Link {
	return pipelineCrumbs(m.Scope, Link{m.Pipeline.GetName(), PipelinePath(m.Scope.Tenant, m.Scope.Workspace, m.Pipeline.GetName())})
}

// PlanModel is the plan of a form with its difference to the last run.
type PlanModel struct {
	Plan           *servov1.PlanRunResponse
	Pending        bool // the form is not complete
	Invalid        string
	Last           *servov1.Run
	Added, Removed []string // tasks that the last run did not have, and those that it had
	Changed        []FieldChange
	Compared       bool
}

// Compare sets the difference to the last run, given its graph.
func (m *PlanModel) Compare(last *servov1.RunGraph) {
	before := last.GetRun().GetParameters().GetFields()
	for _, name := range slices.Sorted(maps.Keys(before)) {
		if now := m.Plan.GetParameters().GetFields()[name]; JSON(now) != JSON(before[name]) {
			m.Changed = append(m.Changed, FieldChange{Field: name, Before: JSON(before[name]), After: JSON(now)})
		}
	}
	for _, name := range slices.Sorted(maps.Keys(m.Plan.GetParameters().GetFields())) {
		if before[name] == nil {
			m.Changed = append(m.Changed, FieldChange{Field: name, After: JSON(m.Plan.GetParameters().GetFields()[name])})
		}
	}
	if len(last.GetNodes()) == 0 {
		return
	}
	had, has := map[string]bool{}, map[string]bool{}
	for _, n := range last.GetNodes() {
		had[strings.TrimSpace(n.GetAsset()+" "+n.GetPartition())] = true
	}
	for _, t := range m.Plan.GetTasks() {
		has[strings.TrimSpace(t.GetAsset()+" "+t.GetPartition())] = true
	}
	m.Added, m.Removed, m.Compared = missingOf(has, had), missingOf(had, has), true
}

// missingOf are the names of a that b does not have.
func missingOf(a, b map[string]bool) (out []string) {
	for _, name := range slices.Sorted(maps.Keys(a)) {
		if !b[name] {
			out = append(out, name)
		}
	}
	return out
}

// planAsset is the number of tasks of an asset of a plan.
type planAsset struct {
	Asset, Pool string
	Tasks       int
	First, Last string // partitions
}

// assets are the assets of the plan in its order.
func (m PlanModel) assets() (out []planAsset) {
	place := map[string]int{}
	for _, t := range m.Plan.GetTasks() {
		i, known := place[t.GetAsset()]
		if !known {
			i = len(out)
			place[t.GetAsset()] = i
			out = append(out, planAsset{Asset: t.GetAsset(), Pool: t.GetPool(), First: t.GetPartition()})
		}
		out[i].Tasks++
		out[i].Last = t.GetPartition()
	}
	return out
}

// partitions is the range of partitions of an asset.
func (a planAsset) partitions() string {
	if a.First == a.Last {
		return a.First
	}
	return a.First + " – " + a.Last
}

// parameterHint is the description of a parameter with its type.
func parameterHint(p *servov1.Parameter) string {
	parts := []string{p.GetType()}
	if p.GetRequired() {
		parts = append(parts, "required")
	}
	text := strings.Join(parts, ", ")
	if p.GetDescription() != "" {
		text = sentence("", strings.TrimRight(p.GetDescription(), ".")) + " " + sentence("", text)
	}
	return text
}

// enumOptions are the permitted values of a parameter.
func enumOptions(p *servov1.Parameter) []Option {
	options := []Option{{"", "default"}}
	if p.GetDefault() == nil {
		options[0].Label = "select a value"
	}
	for _, v := range p.GetEnum() {
		text := valueText(p.GetType(), v)
		options = append(options, Option{text, text})
	}
	return options
}

// runDotLabel names a run in a row of dots.
func runDotLabel(r *servov1.Run) string {
	return LookOf(r.GetState().String()).Label + ", created " + r.GetCreatedAt().AsTime().UTC().Format("2 Jan 15:04 UTC") + ", " + cmp.Or(r.GetConfig(), r.GetTriggerType())
}

func oldestRunsFirst(runs []*servov1.Run) []*servov1.Run {
	out := slices.Clone(runs)
	slices.Reverse(out)
	return out
}

func typical(h Health) string {
	if h.Typical == 0 {
		return ""
	}
	return Duration(h.Typical)
}

// firstOf are the first n of a list.
func firstOf[T any](all []T, n int) []T { return all[:min(len(all), n)] }

// firstNames are the first names of a list in one line.
func firstNames(all []string) string {
	text := strings.Join(firstOf(all, 8), ", ")
	if len(all) > 8 {
		text += ", …"
	}
	return text
}
