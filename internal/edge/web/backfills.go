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

// runsOfBackfill is how many runs the page of a backfill lists.
const runsOfBackfill = 20

// backfillRoutes are the pages of backfills.
func (s *Web) backfillRoutes() {
	s.show("/backfills", s.backfills)
	s.show("/backfills/new", s.newBackfill)
	s.show("/tenants/{tenant}/backfills/{backfill}", s.backfill)
	s.act("/tenants/{tenant}/backfills", s.createBackfill)
	s.act("/tenants/{tenant}/backfills/{backfill}/pause", s.pauseBackfill)
	s.act("/tenants/{tenant}/backfills/{backfill}/resume", s.resumeBackfill)
	s.act("/tenants/{tenant}/backfills/{backfill}/cancel", s.cancelBackfill)
	s.act("/tenants/{tenant}/backfills/{backfill}/retry", s.retryBackfill)
}

// backfills lists the backfills of a tenant.
func (s *Web) backfills(v *visit) (view.Page, error) {
	if v.scope.Tenant == "" {
		return s.chooseTenant(v, "Backfills", "backfills", "Backfills cover many partitions of a tenant's assets.", "/ui/backfills")
	}
	m := view.BackfillsModel{Scope: v.scope, State: v.query("state"), MayCreate: v.may(access.BackfillsCreate)}
	req := &servov1.ListBackfillsRequest{Tenant: v.scope.Tenant, Workspace: v.scope.Workspace, PageSize: rowsOfList, PageToken: v.token()}
	if state, known := servov1.Backfill_State_value[m.State]; known && m.State != "" {
		req.States = []servov1.Backfill_State{servov1.Backfill_State(state)}
	}
	list, err := s.api.backfills.ListBackfills(v.ctx, req)
	if err != nil {
		return view.Page{}, err
	}
	m.Backfills, m.Paging = list.GetBackfills(), v.paging(list.GetNextPageToken())
	return view.Page{Title: "Backfills", Section: "backfills", Live: m.First, Body: view.Backfills(m)}, nil
}

// backfill is one backfill.
func (s *Web) backfill(v *visit) (view.Page, error) {
	found, err := s.api.backfills.GetBackfill(v.ctx, &servov1.GetBackfillRequest{Tenant: v.scope.Tenant, Workspace: v.scope.Workspace, Backfill: v.PathValue("backfill")})
	if err != nil {
		return view.Page{}, err
	}
	m := view.BackfillModel{Scope: v.scope, Backfill: found, MayManage: v.may(access.BackfillsManage)}
	runs, err := s.api.backfills.ListBackfillRuns(v.ctx, &servov1.ListBackfillRunsRequest{
		Tenant: v.scope.Tenant, Workspace: v.scope.Workspace, Backfill: found.GetId(), PageSize: runsOfBackfill,
	})
	if err != nil {
		return view.Page{}, err
	}
	m.Runs, m.More = runs.GetRuns(), runs.GetNextPageToken() != ""
	return view.Page{Title: "Backfill of " + found.GetAsset(), Section: "backfills", Live: true, Body: view.Backfill(m)}, nil
}

// newBackfill is the form of a backfill. The asset page fills in the asset and the partitions.
func (s *Web) newBackfill(v *visit) (view.Page, error) {
	if v.scope.Tenant == "" {
		return s.chooseTenant(v, "Create backfill", "backfills", "Backfills cover many partitions of a tenant's assets.", "/ui/backfills/new")
	}
	req := &servov1.CreateBackfillRequest{Tenant: v.scope.Tenant, Asset: v.query("asset"), Partitions: strings.Fields(v.query("partitions"))}
	if only, known := servov1.CreateBackfillRequest_Only_value[v.query("only")]; known {
		req.Only = servov1.CreateBackfillRequest_Only(only)
	}
	return backfillForm(view.BackfillForm{Scope: v.scope, Request: req}), nil
}

func backfillForm(f view.BackfillForm) view.Page {
	return view.Page{Title: "Create backfill", Section: "backfills", Body: view.NewBackfill(f)}
}

// createBackfill previews a backfill, and creates it once its preview was seen.
func (s *Web) createBackfill(v *visit) (done, error) {
	f := view.BackfillForm{Scope: v.scope, Errors: map[string]string{}}
	f.Request = &servov1.CreateBackfillRequest{
		Tenant: v.scope.Tenant, Workspace: v.scope.Workspace, Asset: v.field("asset"), Partitions: strings.Fields(v.field("partitions")),
		FailureThreshold: v.field("failure_threshold"),
		Only:             servov1.CreateBackfillRequest_Only(servov1.CreateBackfillRequest_Only_value[v.field("only")]),
		Order:            servov1.CreateBackfillRequest_Order(servov1.CreateBackfillRequest_Order_value[v.field("order")]),
	}
	f.Request.ChunkSize = numberField(v, &f, "chunk_size")
	f.Request.MaxConcurrentRuns = numberField(v, &f, "max_concurrent_runs")
	if len(f.Errors) > 0 {
		page := backfillForm(f)
		return done{Shown: &page, Again: true}, nil
	}
	var err error
	if v.field("do") == "create" {
		made, err := s.api.backfills.CreateBackfill(v.ctx, f.Request)
		if err == nil {
			notice := fmt.Sprintf("Backfill created: %d partitions in %d runs.", made.GetTotal(), made.GetRuns())
			return done{To: view.BackfillPath(v.scope.Tenant, made.GetWorkspace(), made.GetId()), Notice: notice}, nil
		}
		return s.refusedBackfill(f, err)
	}
	if f.Preview, err = s.api.backfills.PreviewBackfill(v.ctx, f.Request); err != nil {
		return s.refusedBackfill(f, err)
	}
	page := backfillForm(f)
	return done{Shown: &page}, nil
}

// refusedBackfill shows the form again with the error at its field.
func (*Web) refusedBackfill(f view.BackfillForm, err error) (done, error) {
	if !hasCode(err, fault.InvalidArgument) && !hasCode(err, fault.LimitExceeded) && !hasCode(err, fault.Conflict) {
		return done{}, err
	}
	_, doc := docOf(err)
	field, _, _ := strings.Cut(doc.Field, "[")
	switch field {
	case "asset", "partitions", "chunk_size", "max_concurrent_runs", "failure_threshold":
	default:
		field = ""
	}
	f.Errors = map[string]string{field: doc.Message + ": " + doc.Remedy}
	page := backfillForm(f)
	return done{Shown: &page, Again: true}, nil
}

// numberField reads a number of the form; empty is 0.
func numberField(v *visit, f *view.BackfillForm, name string) int32 {
	text := v.field(name)
	if text == "" {
		return 0
	}
	n, err := strconv.ParseInt(text, 10, 32)
	if err != nil || n < 1 {
		f.Errors[name] = "is not a number: write one such as 100"
		return 0
	}
	return int32(n)
}

// changedBackfill is the result of an action on a backfill.
func changedBackfill(v *visit, b *servov1.Backfill, err error, notice string) (done, error) {
	return done{To: view.BackfillPath(v.scope.Tenant, b.GetWorkspace(), v.PathValue("backfill")), Notice: notice}, err
}

func (s *Web) pauseBackfill(v *visit) (done, error) {
	b, err := s.api.backfills.PauseBackfill(v.ctx, &servov1.PauseBackfillRequest{Tenant: v.scope.Tenant, Workspace: v.scope.Workspace, Backfill: v.PathValue("backfill"), Reason: v.field("reason")})
	return changedBackfill(v, b, err, "Backfill paused. Started runs continue.")
}

func (s *Web) resumeBackfill(v *visit) (done, error) {
	b, err := s.api.backfills.ResumeBackfill(v.ctx, &servov1.ResumeBackfillRequest{Tenant: v.scope.Tenant, Workspace: v.scope.Workspace, Backfill: v.PathValue("backfill"), Reason: v.field("reason")})
	return changedBackfill(v, b, err, "Backfill resumed.")
}

func (s *Web) cancelBackfill(v *visit) (done, error) {
	b, err := s.api.backfills.CancelBackfill(v.ctx, &servov1.CancelBackfillRequest{Tenant: v.scope.Tenant, Workspace: v.scope.Workspace, Backfill: v.PathValue("backfill"), Reason: v.field("reason")})
	return changedBackfill(v, b, err, fmt.Sprintf("Backfill cancelled. %d runs are being cancelled.", b.GetOpenRuns()))
}

func (s *Web) retryBackfill(v *visit) (done, error) {
	b, err := s.api.backfills.RetryBackfill(v.ctx, &servov1.RetryBackfillRequest{Tenant: v.scope.Tenant, Workspace: v.scope.Workspace, Backfill: v.PathValue("backfill"), Reason: v.field("reason")})
	return changedBackfill(v, b, err, fmt.Sprintf("Retry started: %d partitions.", b.GetPending()))
}
