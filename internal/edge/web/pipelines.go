package web

import (
	"net/http"
	"strings"

	"github.com/a-h/templ"

	servov1 "go.arco.dev/servo/gen/servo/v1"
	"go.arco.dev/servo/internal/base/fault"
	"go.arco.dev/servo/internal/domain/access"
	"go.arco.dev/servo/internal/edge/web/view"
)

// pipelineRoutes are the pages of pipelines and the form that runs one.
func (s *Web) pipelineRoutes() {
	s.show("/pipelines", s.pipelines)
	s.show("/tenants/{tenant}/pipelines/{pipeline}", s.pipeline)
	s.show("/tenants/{tenant}/pipelines/{pipeline}/run", s.launch)
	s.act("/tenants/{tenant}/pipelines/{pipeline}/run", s.launchRun)
	s.preview("/tenants/{tenant}/pipelines/{pipeline}/plan", s.previewPlan)
}

const (
	recentRuns     = 20 // of a pipeline, in its health and its list of runs
	pipelineGrid   = 12 // runs of the grid
	assetsOfGrid   = 60
	deploymentRows = 10
)

// pipelines is the list of pipelines of a workspace.
func (s *Web) pipelines(v *visit) (view.Page, error) {
	if v.scope.Tenant == "" {
		return s.chooseTenant(v, "Pipelines", "pipelines", "Each tenant has its own pipelines.", "/ui/pipelines")
	}
	m := view.PipelinesModel{Scope: v.scope, Workspaces: s.workspaces(v), MayRun: v.may(access.RunsTrigger)}
	list, err := s.api.assets.ListPipelines(v.ctx, &servov1.ListPipelinesRequest{Tenant: v.scope.Tenant, Workspace: v.scope.Workspace, PageSize: rowsOfList, PageToken: v.token()})
	switch {
	case hasCode(err, fault.NotFound), hasCode(err, fault.Conflict): // nothing is deployed
	case err != nil:
		return view.Page{}, err
	}
	m.Paging = v.paging(list.GetNextPageToken())
	// One call for the runs of all pipelines: a pipeline that has not run among them shows none.
	runs, err := s.api.runs.ListRuns(v.ctx, &servov1.ListRunsRequest{Tenant: v.scope.Tenant, Workspace: v.scope.Workspace, PageSize: 100})
	if err != nil {
		return view.Page{}, err
	}
	byPipeline := map[string][]*servov1.Run{}
	for _, r := range runs.GetRuns() {
		byPipeline[r.GetPipeline()] = append(byPipeline[r.GetPipeline()], r)
	}
	for _, p := range list.GetPipelines() {
		recent := byPipeline[p.GetName()]
		m.Pipelines = append(m.Pipelines, view.PipelineSummary{Pipeline: p, Recent: recent[:min(len(recent), recentRuns)]})
	}
	return view.Page{Title: "Pipelines", Section: "pipelines", Live: m.First, Body: view.Pipelines(m)}, nil
}

// pipelineOf is the pipeline of the address.
func (s *Web) pipelineOf(v *visit) (*servov1.Pipeline, error) {
	req := &servov1.ListPipelinesRequest{Tenant: v.scope.Tenant, Workspace: v.scope.Workspace, PageSize: 100}
	for {
		list, err := s.api.assets.ListPipelines(v.ctx, req)
		if err != nil {
			return nil, err
		}
		for _, p := range list.GetPipelines() {
			if p.GetName() == v.PathValue("pipeline") {
				return p, nil
			}
		}
		if list.GetNextPageToken() == "" {
			return nil, fault.New(fault.NotFound, "no pipeline "+v.PathValue("pipeline"), fault.Field("pipeline"), fault.Remedy("deploy a manifest with this pipeline, or open the list of pipelines"))
		}
		req.PageToken = list.GetNextPageToken()
	}
}

// pipeline is one pipeline.
func (s *Web) pipeline(v *visit) (view.Page, error) {
	found, err := s.pipelineOf(v)
	if err != nil {
		return view.Page{}, err
	}
	m := view.PipelineModel{Scope: v.scope, Pipeline: found, Tab: v.query("tab"), MayRun: v.may(access.RunsTrigger), MayWrite: v.may(access.ConfigsWrite)}
	for _, fill := range []func(*visit, *view.PipelineModel) error{s.pipelineRuns, s.pipelineConfigs, s.pipelineTab} {
		if err := fill(v, &m); err != nil {
			return view.Page{}, err
		}
	}
	return view.Page{Title: found.GetName(), Section: "pipelines", Live: true, Rarely: m.Tab == "grid", Script: "graph.js", Body: view.PipelinePage(m)}, nil
}

func (s *Web) pipelineRuns(v *visit, m *view.PipelineModel) error {
	list, err := s.api.runs.ListRuns(v.ctx, &servov1.ListRunsRequest{Tenant: v.scope.Tenant, Workspace: v.scope.Workspace, Pipeline: m.Pipeline.GetName(), PageSize: recentRuns})
	m.Runs = list.GetRuns()
	return err
}

func (s *Web) pipelineConfigs(v *visit, m *view.PipelineModel) error {
	list, err := s.api.configs.ListConfigs(v.ctx, &servov1.ListConfigsRequest{
		Tenant: v.scope.Tenant, Workspace: v.scope.Workspace, Pipeline: m.Pipeline.GetName(), PageSize: rowsOfList, WithRecent: true,
	})
	m.Configs, m.MoreConfigs = list.GetConfigs(), list.GetNextPageToken() != ""
	return err
}

// pipelineTab reads the data of the selected tab.
func (s *Web) pipelineTab(v *visit, m *view.PipelineModel) error {
	switch m.Tab {
	case "runs", "configs", "parameters":
		return nil
	case "versions":
		list, err := s.api.deployments.ListDeployments(v.ctx, &servov1.ListDeploymentsRequest{Tenant: v.scope.Tenant, Workspace: v.scope.Workspace, PageSize: deploymentRows})
		m.Deployments = list.GetDeployments()
		return err
	case "grid":
		return s.pipelineGrid(v, m)
	}
	m.Tab = "graph"
	all, more, err := s.manyAssets(v, &servov1.ListAssetsRequest{Tenant: v.scope.Tenant, Workspace: v.scope.Workspace, Select: m.Pipeline.GetSelect(), PageSize: assetsOfPage})
	if err != nil {
		return err
	}
	m.Assets, m.More = len(all), more
	m.Graph = view.LineageOf(v.scope, all)
	m.Graph.Sparse = v.isLive()
	return nil
}

// pipelineGrid reads the states of the assets of the last runs.
func (s *Web) pipelineGrid(v *visit, m *view.PipelineModel) error {
	var graphs []*servov1.RunGraph
	for _, r := range m.Runs[:min(len(m.Runs), pipelineGrid)] {
		graph, err := s.api.runs.GetRunGraph(v.ctx, &servov1.GetRunGraphRequest{Tenant: v.scope.Tenant, Run: r.GetId()})
		if hasCode(err, fault.NotFound) { // older than the retention
			continue
		}
		if err != nil {
			return err
		}
		graphs = append(graphs, graph)
	}
	m.Grid = view.GridOf(graphs, assetsOfGrid)
	return nil
}

// launch is the form that runs a pipeline; with from it has the parameters of a run.
func (s *Web) launch(v *visit) (view.Page, error) {
	if err := v.mustMay(access.RunsTrigger); err != nil {
		return view.Page{}, err
	}
	found, err := s.pipelineOf(v)
	if err != nil {
		return view.Page{}, err
	}
	m := view.LaunchModel{Scope: v.scope, Pipeline: found, Values: view.LaunchValues(found, nil)}
	if from := v.query("from"); from != "" {
		run, err := s.api.runs.GetRun(v.ctx, &servov1.GetRunRequest{Tenant: v.scope.Tenant, Run: from})
		if err != nil {
			return view.Page{}, err
		}
		m.From, m.Values = run, view.LaunchValues(found, run.GetParameters())
	}
	m.Plan = s.planOf(v, m)
	return view.Page{Title: "Run " + found.GetName(), Section: "pipelines", Body: view.Launch(m)}, nil
}

// launched are the values of the form, its parameters and the values that cannot be parsed.
func (s *Web) launched(v *visit) (m view.LaunchModel, err error) {
	if m.Pipeline, err = s.pipelineOf(v); err != nil {
		return m, err
	}
	m.Scope, m.Values = v.scope, map[string]string{}
	for _, name := range view.LaunchFields(m.Pipeline) {
		m.Values[name] = v.field(name)
	}
	m.Parameters, m.Errors = view.LaunchParameters(m.Pipeline, m.Values)
	return m, nil
}

// partitionsOf are the lines of the field partitions.
func partitionsOf(text string) []string { return strings.Fields(text) }

// launchRun runs the pipeline with the values of the form, or shows the form again with its errors.
func (s *Web) launchRun(v *visit) (done, error) {
	m, err := s.launched(v)
	if err != nil {
		return done{}, err
	}
	if len(m.Errors) == 0 {
		made, err := s.api.runs.TriggerRun(v.ctx, &servov1.TriggerRunRequest{
			Tenant: v.scope.Tenant, Workspace: v.scope.Workspace, Pipeline: m.Pipeline.GetName(), Parameters: m.Parameters, Partitions: partitionsOf(m.Values["partitions"]),
			Priority: view.PriorityOf(m.Values["priority"]), Note: m.Values["note"], WaitForQuota: true, Queue: m.Values["queue"] != "",
		})
		if err == nil {
			notice := "Run created. You are viewing it."
			if made.GetAlreadyRunning() {
				notice = "No run created: a run with the same parameters is in progress. You are viewing it."
			}
			return done{To: view.RunPath(v.scope.Tenant, made.GetRun().GetId()), Notice: notice}, nil
		}
		status, doc := docOf(err)
		if status >= http.StatusInternalServerError || hasCode(err, fault.Unauthenticated) || hasCode(err, fault.Forbidden) {
			return done{}, err
		}
		m.Errors = errorsByField(doc, func(path string) string { return view.LaunchFieldOf(m.Pipeline, path) })
	}
	m.Plan = s.planOf(v, m)
	page := view.Page{Title: "Run " + m.Pipeline.GetName(), Section: "pipelines", Body: view.Launch(m)}
	return done{Shown: &page, Again: true}, nil
}

// previewPlan responds with the plan of the values of the form.
func (s *Web) previewPlan(v *visit) templ.Component {
	m, err := s.launched(v)
	if err != nil {
		_, doc := docOf(err)
		return view.PlanPreview(view.PlanModel{Invalid: view.Violation(doc.Message, doc.Remedy)})
	}
	return view.PlanPreview(s.planOf(v, m))
}

// planOf is the plan of a form, with its difference to the last run.
func (s *Web) planOf(v *visit, m view.LaunchModel) view.PlanModel {
	parameters := m.Parameters
	if parameters == nil {
		parameters, m.Errors = view.LaunchParameters(m.Pipeline, m.Values)
	}
	if len(m.Errors) > 0 {
		return view.PlanModel{Pending: true}
	}
	plan, err := s.api.runs.PlanRun(v.ctx, &servov1.PlanRunRequest{
		Tenant: v.scope.Tenant, Workspace: v.scope.Workspace, Pipeline: m.Pipeline.GetName(), Parameters: parameters, Partitions: partitionsOf(m.Values["partitions"]),
	})
	if err != nil {
		_, doc := docOf(err)
		return view.PlanModel{Invalid: view.Violation(doc.Message, doc.Remedy)}
	}
	out := view.PlanModel{Plan: plan}
	last, err := s.api.runs.ListRuns(v.ctx, &servov1.ListRunsRequest{Tenant: v.scope.Tenant, Workspace: v.scope.Workspace, Pipeline: m.Pipeline.GetName(), PageSize: 1})
	if err != nil || len(last.GetRuns()) == 0 {
		return out // the preview works without the difference
	}
	out.Last = last.GetRuns()[0]
	if graph, err := s.api.runs.GetRunGraph(v.ctx, &servov1.GetRunGraphRequest{Tenant: v.scope.Tenant, Run: out.Last.GetId()}); err == nil {
		out.Compare(graph)
	}
	return out
}
