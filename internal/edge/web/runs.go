package web

import (
	"fmt"
	"strconv"
	"strings"

	servov1 "go.arco.dev/servo/gen/servo/v1"
	"go.arco.dev/servo/internal/base/fault"
	"go.arco.dev/servo/internal/domain/access"
	"go.arco.dev/servo/internal/edge/web/view"
)

// runRoutes are the pages of runs and tasks.
func (s *Web) runRoutes() {
	s.show("/runs", s.runs)
	s.show("/tenants/{tenant}/runs/{run}", s.run)
	s.show("/tenants/{tenant}/runs/{run}/tasks/{task}", s.task)
	s.act("/tenants/{tenant}/runs/{run}/cancel", s.cancelRun)
	s.act("/tenants/{tenant}/runs/{run}/retry", s.retryRun)
	s.act("/tenants/{tenant}/runs/{run}/tasks/{task}/force-cancel", s.forceCancelTask)
}

// rowsOfList is the number of rows of a page of a list.
const rowsOfList = 50

// runs is the list of runs.
func (s *Web) runs(v *visit) (view.Page, error) {
	f := filters{v: v}
	m := view.RunsModel{
		Scope: v.scope, State: f.one("state", runStates()...), Pipeline: v.query("pipeline"), Config: v.query("config"), Since: f.one("since", periods()...),
	}
	if m.Invalid = f.Invalid; m.Invalid != "" {
		m.First = true
		return view.Page{Title: "Runs", Section: "runs", Body: view.Runs(m)}, nil
	}
	req := &servov1.ListRunsRequest{
		Tenant: v.scope.Tenant, Workspace: v.scope.Workspace, Pipeline: m.Pipeline, Config: m.Config, From: v.since(), PageSize: rowsOfList, PageToken: v.token(),
	}
	switch state, known := servov1.Run_State_value[m.State]; {
	case m.State == "UNFINISHED":
		req.State = []servov1.Run_State{servov1.Run_PENDING, servov1.Run_RUNNING, servov1.Run_CANCELLING}
	case m.State == "TROUBLE":
		req.State = failedStates()
	case known && state != 0:
		req.State = []servov1.Run_State{servov1.Run_State(state)}
	}
	list, err := s.api.runs.ListRuns(v.ctx, req)
	if err != nil {
		return view.Page{}, err
	}
	m.Runs, m.Paging = list.GetRuns(), v.paging(list.GetNextPageToken())
	return view.Page{Title: "Runs", Section: "runs", Live: m.First, Body: view.Runs(m)}, nil
}

// failedStates are the states of failed runs.
func failedStates() []servov1.Run_State {
	return []servov1.Run_State{servov1.Run_FAILED, servov1.Run_TIMED_OUT}
}

// run is one run.
func (s *Web) run(v *visit) (view.Page, error) {
	tenant, run := v.scope.Tenant, v.PathValue("run")
	found, err := s.api.runs.GetRun(v.ctx, &servov1.GetRunRequest{Tenant: tenant, Run: run})
	if err != nil {
		return view.Page{}, err
	}
	m := view.RunModel{Run: found, Tab: v.query("tab"), MayCancel: v.may(access.RunsCancel), MayRetry: v.may(access.RunsRetry), MayTrigger: v.may(access.RunsTrigger), Paging: v.paging("")}
	if found.GetFinishedAt() == nil {
		// The page works without the explanation.
		if why, err := s.api.runs.ExplainRun(v.ctx, &servov1.ExplainRunRequest{Tenant: tenant, Run: run}); err == nil {
			m.Why = why
		}
	}
	if found.GetFinishedAt() != nil {
		if m.Retry, err = s.retryOf(v, tenant, run); err != nil {
			return view.Page{}, err
		}
	}
	if m.Failed, err = s.failedTasks(v, found); err != nil {
		return view.Page{}, err
	}
	if err := s.runTab(v, &m); err != nil {
		return view.Page{}, err
	}
	return view.Page{Title: found.GetPipeline() + " " + view.ShortID(run), Section: "runs", Live: m.First, Rarely: m.ExpensiveToRefresh(), Script: "graph.js", Body: view.Run(m)}, nil
}

// failedTasks are the first failed tasks of a run.
func (s *Web) failedTasks(v *visit, run *servov1.Run) ([]*servov1.Task, error) {
	if run.GetTasks().GetFailed() == 0 {
		return nil, nil
	}
	const shown = 3
	list, err := s.api.tasks.ListTasks(v.ctx, &servov1.ListTasksRequest{
		Tenant: run.GetTenant(), Run: run.GetId(), State: []servov1.Task_State{servov1.Task_FAILED}, PageSize: shown,
	})
	return list.GetTasks(), err
}

// runTab reads the data of the selected tab.
func (s *Web) runTab(v *visit, m *view.RunModel) error {
	tenant, run := m.Run.GetTenant(), m.Run.GetId()
	switch m.Tab {
	case "tasks":
		f := filters{v: v}
		if m.Filter = f.one("state", taskStates()...); f.Invalid != "" {
			m.Invalid = f.Invalid
			return nil
		}
		m.Asset = v.query("asset")
		req := &servov1.ListTasksRequest{Tenant: tenant, Run: run, Asset: m.Asset, PageSize: rowsOfList, PageToken: v.token()}
		if state := servov1.Task_State_value[m.Filter]; state != 0 {
			req.State = []servov1.Task_State{servov1.Task_State(state)}
		}
		list, err := s.api.tasks.ListTasks(v.ctx, req)
		m.Tasks, m.Paging = list.GetTasks(), v.paging(list.GetNextPageToken())
		return err
	case "events":
		list, err := s.api.runs.ListRunEvents(v.ctx, &servov1.ListRunEventsRequest{Tenant: tenant, Run: run, PageSize: 100, PageToken: v.token()})
		m.Filter = v.query("type")
		m.Events, m.Paging = list.GetEvents(), v.paging(list.GetNextPageToken())
		return err
	case "parameters":
		return nil
	case "gantt":
		events, more, err := s.runEvents(v, tenant, run)
		if err != nil {
			return err
		}
		graph, err := s.api.runs.GetRunGraph(v.ctx, &servov1.GetRunGraphRequest{Tenant: tenant, Run: run})
		first, _ := strconv.Atoi(v.query("row")) // 0 without one
		m.Timeline = view.TimelineOf(events, m.Run, view.TimelineOptions{
			Now: v.now, From: v.milliseconds("from"), To: v.milliseconds("to"), Open: v.query("open"), First: first, Graph: graph, Path: v.with("page", ""),
		})
		m.Timeline.More = more
		return err
	}
	m.Tab = "graph"
	graph, err := s.api.runs.GetRunGraph(v.ctx, &servov1.GetRunGraphRequest{Tenant: tenant, Run: run})
	m.Graph = view.GraphOf(graph, v.query("by") == "task")
	m.Graph.Sparse = v.isLive()
	return err
}

// runEvents are the first events of a run, for its timeline.
func (s *Web) runEvents(v *visit, tenant, run string) (events []*servov1.Event, more bool, err error) {
	const pages = 30
	req := &servov1.ListRunEventsRequest{Tenant: tenant, Run: run, PageSize: 100}
	for range pages {
		list, err := s.api.runs.ListRunEvents(v.ctx, req)
		if err != nil {
			return nil, false, err
		}
		events = append(events, list.GetEvents()...)
		if list.GetNextPageToken() == "" {
			return events, false, nil
		}
		req.PageToken = list.GetNextPageToken()
	}
	return events, true, nil
}

// task is one task.
func (s *Web) task(v *visit) (view.Page, error) {
	tenant, run, id := v.scope.Tenant, v.PathValue("run"), v.PathValue("task")
	found, err := s.api.tasks.GetTask(v.ctx, &servov1.GetTaskRequest{Tenant: tenant, Run: run, Task: id})
	if err != nil {
		return view.Page{}, err
	}
	of, err := s.api.runs.GetRun(v.ctx, &servov1.GetRunRequest{Tenant: tenant, Run: run})
	if err != nil {
		return view.Page{}, err
	}
	m := view.TaskModel{Run: of, Task: found, MayCancel: v.may(access.RunsCancel), MayRetry: v.may(access.RunsRetry)}
	if found.GetFinishedAt() == nil {
		if why, err := s.api.tasks.ExplainTask(v.ctx, &servov1.ExplainTaskRequest{Tenant: tenant, Run: run, Task: id}); err == nil {
			m.Why = why
		}
	}
	upstream, err := s.api.tasks.ListUpstreamTasks(v.ctx, &servov1.ListUpstreamTasksRequest{Tenant: tenant, Run: run, Task: id, PageSize: 100})
	if err != nil {
		return view.Page{}, err
	}
	m.Upstream, m.MoreUpstream = upstream.GetTasks(), upstream.GetNextPageToken() != ""
	if found.GetAttempt() > 0 {
		if m.Logs, m.LogsCut, err = s.tail(v, tenant, run, id); err != nil {
			return view.Page{}, err
		}
	}
	return view.Page{Title: found.GetAsset(), Section: "runs", Live: true, Body: view.Task(m)}, nil
}

// tail is the end of the log of the last attempt of a task.
func (s *Web) tail(v *visit, tenant, run, task string) (text string, cut bool, err error) {
	const pages, most = 20, 64 << 10
	req := &servov1.ListTaskLogsRequest{Tenant: tenant, Run: run, Task: task, PageSize: 100}
	for range pages {
		list, err := s.api.tasks.ListTaskLogs(v.ctx, req)
		if hasCode(err, fault.NotFound) {
			return "", false, nil
		}
		if err != nil {
			return "", false, err
		}
		for _, chunk := range list.GetChunks() {
			text += chunk.GetText()
		}
		if len(text) > most {
			text, cut = text[len(text)-most:], true
			if _, whole, more := strings.Cut(text, "\n"); more { // begin with a whole line
				text = whole
			}
		}
		if list.GetNextPageToken() == "" {
			return text, cut || list.GetDroppedBytes() > 0, nil
		}
		req.PageToken = list.GetNextPageToken()
	}
	return text, true, nil
}

func (s *Web) cancelRun(v *visit) (done, error) {
	run, err := s.api.runs.CancelRun(v.ctx, &servov1.CancelRunRequest{Tenant: v.scope.Tenant, Run: v.PathValue("run"), Reason: v.field("reason")})
	return done{To: view.RunPath(v.scope.Tenant, v.PathValue("run")), Notice: "Run " + view.LookOf(run.GetState().String()).Label + "."}, err
}

// retryOf is the newest retry of a run; nil without one.
func (s *Web) retryOf(v *visit, tenant, run string) (*servov1.Run, error) {
	list, err := s.api.runs.ListRuns(v.ctx, &servov1.ListRunsRequest{Tenant: tenant, ParentRun: run, PageSize: 1})
	if err != nil || len(list.GetRuns()) == 0 {
		return nil, err
	}
	return list.GetRuns()[0], nil
}

// retryRun retries a run. The failed tasks of a run that was already retried run again only if the
// visitor confirms it: the earlier retry may have succeeded.
func (s *Web) retryRun(v *visit) (done, error) {
	mode := servov1.RetryRunRequest_Mode(servov1.RetryRunRequest_Mode_value[v.field("mode")])
	if mode != servov1.RetryRunRequest_ALL && mode != servov1.RetryRunRequest_FROM && v.field("again") == "" {
		newer, err := s.retryOf(v, v.scope.Tenant, v.PathValue("run"))
		if err != nil {
			return done{}, err
		}
		if newer != nil {
			return done{}, fault.New(fault.Conflict, fmt.Sprintf("run %s was already retried: run %s is %s", v.PathValue("run"), newer.GetId(), newer.GetState()),
				fault.Field("again"), fault.Remedy("open or retry run "+newer.GetId()+", or select “Retry again”"))
		}
	}
	made, err := s.api.runs.RetryRun(v.ctx, &servov1.RetryRunRequest{Tenant: v.scope.Tenant, Run: v.PathValue("run"), Mode: mode, From: v.field("from"), WaitForQuota: true})
	return done{To: view.RunPath(v.scope.Tenant, made.GetRun().GetId()), Notice: "Retry started. You are viewing the new run."}, err
}

func (s *Web) forceCancelTask(v *visit) (done, error) {
	_, err := s.api.tasks.ForceCancelTask(v.ctx, &servov1.ForceCancelTaskRequest{
		Tenant: v.scope.Tenant, Run: v.PathValue("run"), Task: v.PathValue("task"), Reason: v.field("reason"),
	})
	return done{To: view.TaskPath(v.scope.Tenant, v.PathValue("run"), v.PathValue("task")), Notice: "Task cancelled. Its worker stops at its next heartbeat."}, err
}
