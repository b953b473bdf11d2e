package web

import (
	"strconv"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	servov1 "go.arco.dev/servo/gen/servo/v1"
	"go.arco.dev/servo/internal/base/fault"
	"go.arco.dev/servo/internal/domain/access"
	"go.arco.dev/servo/internal/edge/web/view"
)

// tenantRoutes are the pages of tenants with their quotas, keys, workspaces and audit.
func (s *Web) tenantRoutes() {
	s.show("/tenants", s.tenants)
	s.show("/tenants/{tenant}", s.tenant)
	s.act("/tenants", s.createTenant)
	s.act("/tenants/{tenant}/quotas", s.setQuotas)
	s.act("/tenants/{tenant}/workspaces", s.createWorkspace)
	s.act("/tenants/{tenant}/keys", s.createKey)
	s.act("/tenants/{tenant}/keys/{key}/rotate", s.rotateKey)
	s.act("/tenants/{tenant}/keys/{key}/revoke", s.revokeKey)
}

// tenants is the list of tenants; with a selected tenant it is the page of that one.
func (s *Web) tenants(v *visit) (view.Page, error) {
	if v.scope.Tenant != "" {
		return s.tenant(v)
	}
	list, err := s.api.tenants.ListTenants(v.ctx, &servov1.ListTenantsRequest{PageSize: rowsOfList, PageToken: v.token()})
	if err != nil {
		return view.Page{}, err
	}
	m := view.TenantsModel{Tenants: list.GetTenants(), MayCreate: v.may(access.TenantsManage), Paging: v.paging(list.GetNextPageToken())}
	if v.everywhere() {
		// One call for all tenants; the list works without it.
		if shares, err := s.api.fairness.ListShares(v.ctx, &servov1.ListSharesRequest{}); err == nil {
			m.Work = view.WorkOf(shares)
		}
	}
	return view.Page{Title: "Tenants", Section: "tenants", Live: m.First, Body: view.Tenants(m)}, nil
}

// tenant is the page of one tenant, also for the visitors of that tenant.
func (s *Web) tenant(v *visit) (view.Page, error) {
	name := v.scope.Tenant
	found, err := s.api.tenants.GetTenant(v.ctx, &servov1.GetTenantRequest{Tenant: name})
	if err != nil {
		return view.Page{}, err
	}
	m := view.TenantModel{
		Scope: v.scope, Tenant: found, Tab: v.query("tab"), First: v.token() == "",
		MayQuotas: v.may(access.QuotasManage), MayWorkspaces: v.may(access.WorkspacesManage), MayChannels: v.everywhere(),
		Tabs: []view.Tab{{Label: "Overview", At: view.TenantPath(name), Current: v.query("tab") == ""}},
	}
	// A key of one workspace may not see the tenant as a whole.
	for _, tab := range []struct {
		name, label string
		needs       access.Permission
	}{
		{"quotas", "Quotas", access.QuotasRead}, {"keys", "Keys", access.KeysRead}, {"workspaces", "Workspaces", access.TenantRead}, {"audit", "Audit", access.AuditRead},
	} {
		if v.may(tab.needs) && !v.scope.WorkspaceFixed {
			m.Tabs = append(m.Tabs, view.Tab{Label: tab.label, At: view.TenantPath(name) + "?tab=" + tab.name, Current: m.Tab == tab.name})
		}
	}
	if err := s.tenantTab(v, &m); err != nil {
		return view.Page{}, err
	}
	return view.Page{Title: name, Section: "tenants", Live: m.First, Rarely: true, Body: view.Tenant(m)}, nil
}

// tenantTab reads the data of the selected tab.
func (s *Web) tenantTab(v *visit, m *view.TenantModel) (err error) {
	name := m.Tenant.GetName()
	switch m.Tab {
	case "quotas":
		m.Quotas, err = s.api.tenants.GetQuotas(v.ctx, &servov1.GetQuotasRequest{Tenant: name})
		return err
	case "keys":
		if m.Keys, err = s.keys(v, name, view.TenantPath(name)+"/keys"); err != nil {
			return err
		}
		// Without workspaces to select, a new key is for all.
		if list, err := s.api.tenants.ListWorkspaces(v.ctx, &servov1.ListWorkspacesRequest{Tenant: name}); err == nil {
			m.Keys.Workspaces = list.GetWorkspaces()
		}
		return nil
	case "workspaces":
		list, err := s.api.tenants.ListWorkspaces(v.ctx, &servov1.ListWorkspacesRequest{Tenant: name})
		m.Workspaces = list.GetWorkspaces()
		return err
	case "audit":
		m.Audit, err = s.auditOf(v, name)
		return err
	}
	m.Tab = ""
	return s.tenantSums(v, m)
}

// tenantSums reads sums over runs, failed runs and open alerts.
func (s *Web) tenantSums(v *visit, m *view.TenantModel) (err error) {
	name := m.Tenant.GetName()
	failed, err := s.api.runs.ListRuns(v.ctx, &servov1.ListRunsRequest{Tenant: name, Workspace: v.scope.Workspace, State: failedStates(), PageSize: 5})
	if err != nil {
		return err
	}
	m.Failed = failed.GetRuns()
	if v.scope.WorkspaceFixed {
		return nil
	}
	m.Days = daysOf(v.query("days"))
	from := v.now.UTC().AddDate(0, 0, 1-m.Days).Format(time.DateOnly)
	m.By = v.query("by")
	if m.Metrics, err = s.api.metrics.GetTenantMetrics(v.ctx, &servov1.GetTenantMetricsRequest{Tenant: name, From: from, GroupBy: m.By}); err != nil {
		return err
	}
	if v.may(access.TenantRead) {
		list, err := s.api.tenants.ListWorkspaces(v.ctx, &servov1.ListWorkspacesRequest{Tenant: name})
		if err != nil {
			return err
		}
		m.Workspaces = list.GetWorkspaces()
	}
	open, err := s.api.alerts.ListAlerts(v.ctx, &servov1.ListAlertsRequest{Tenant: name, Open: true, PageSize: 5})
	m.Alerts = open.GetAlerts()
	return err
}

// daysOf is the number of days of the sums.
func daysOf(text string) int {
	switch text {
	case "7":
		return 7
	case "90":
		return 90
	}
	return 30
}

func (s *Web) createTenant(v *visit) (done, error) {
	made, err := s.api.tenants.CreateTenant(v.ctx, &servov1.CreateTenantRequest{Name: v.field("name")})
	return done{To: view.TenantPath(made.GetName()), Notice: "Tenant created. Next: deploy a manifest and create configs."}, err
}

func (s *Web) createWorkspace(v *visit) (done, error) {
	made, err := s.api.tenants.CreateWorkspace(v.ctx, &servov1.CreateWorkspaceRequest{Tenant: v.scope.Tenant, Name: v.field("name")})
	return done{To: view.TenantPath(v.scope.Tenant) + "?tab=workspaces", Notice: "Workspace " + made.GetName() + " created."}, err
}

// setQuotas updates the quotas that are filled in; empty fields stay unchanged.
func (s *Web) setQuotas(v *visit) (done, error) {
	quotas, err := quotasOf(v)
	if err != nil {
		return done{}, err
	}
	version, err := number(v, "version")
	if err != nil {
		return done{}, err
	}
	_, err = s.api.tenants.SetQuotas(v.ctx, &servov1.SetQuotasRequest{Tenant: v.scope.Tenant, Quotas: quotas, Version: valueOf(version)})
	return done{To: view.TenantPath(v.scope.Tenant) + "?tab=quotas", Notice: "Quotas updated."}, err
}

func quotasOf(v *visit) (*servov1.Quotas, error) {
	q := &servov1.Quotas{}
	for name, to := range map[string]**int32{
		"max_concurrent_tasks": &q.MaxConcurrentTasks, "max_queued_tasks": &q.MaxQueuedTasks, "max_concurrent_runs": &q.MaxConcurrentRuns,
		"max_daily_runs": &q.MaxDailyRuns, "max_tasks_per_run": &q.MaxTasksPerRun, "max_backfill_runs": &q.MaxBackfillRuns,
	} {
		value, err := number(v, name)
		if err != nil {
			return nil, err
		}
		*to = value
	}
	if text := v.field("fairness_weight"); text != "" {
		weight, err := strconv.ParseFloat(text, 64)
		if err != nil {
			return nil, invalid("fairness_weight", text, "use a number such as 1 or 0.5")
		}
		q.FairnessWeight = &weight
	}
	if zone := v.field("zone"); zone != "" {
		q.Zone = &zone
	}
	var err error
	q.MaxRunDuration, err = duration(v, "max_run_duration")
	return q, err
}

// number is a whole number of the form; nil if the field is empty.
func number(v *visit, name string) (*int32, error) {
	text := v.field(name)
	if text == "" {
		return nil, nil //nolint:nilnil // empty and valid
	}
	value, err := strconv.ParseInt(text, 10, 32)
	if err != nil {
		return nil, invalid(name, text, "use a whole number")
	}
	n := int32(value)
	return &n, nil
}

// valueOf is the number, or 0 for nil.
func valueOf(n *int32) int32 {
	if n == nil {
		return 0
	}
	return *n
}

// duration is a duration of the form; nil if the field is empty.
func duration(v *visit, name string) (*durationpb.Duration, error) {
	text := v.field(name)
	if text == "" {
		return nil, nil //nolint:nilnil // empty and valid
	}
	value, err := time.ParseDuration(text)
	if err != nil {
		return nil, invalid(name, text, "use a duration such as 90m or 6h")
	}
	return durationpb.New(value), nil
}

func invalid(field, text, remedy string) error {
	return fault.New(fault.InvalidArgument, strconv.Quote(view.Clip(text, 60))+" is invalid", fault.Field(field), fault.Remedy(remedy))
}
