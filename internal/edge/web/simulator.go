package web

import (
	"encoding/json"
	"strconv"

	servov1 "go.arco.dev/servo/gen/servo/v1"
	"go.arco.dev/servo/internal/base/fault"
	"go.arco.dev/servo/internal/domain/simulate"
	"go.arco.dev/servo/internal/edge/web/view"
)

// simulatorRoutes is the page of the simulator.
func (s *Web) simulatorRoutes() { s.show("/simulator", s.simulator) }

const (
	defaultDays = 7
	maxDays     = 90 // of a chart that people can read
)

// simulator shows what a tenant's configs will do before they do it.
func (s *Web) simulator(v *visit) (view.Page, error) {
	page := view.Page{Title: "Simulator", Section: "simulator"}
	if v.scope.Tenant == "" {
		list, err := s.api.tenants.ListTenants(v.ctx, &servov1.ListTenantsRequest{PageSize: tenantPages})
		page.Body = view.ChooseTenant("Simulator", "Whose configs are to be simulated?", "/ui/simulator", list.GetTenants())
		return page, err
	}
	m := view.SimulatorModel{Scope: v.scope, Days: between(v.query("days"), defaultDays, maxDays), Slots: between(v.query("slots"), 0, 1_000_000)}
	answer, err := s.api.simulation.Simulate(v.ctx, &servov1.SimulateRequest{Tenant: v.scope.Tenant, Days: m.Days, Slots: m.Slots})
	if err != nil {
		return page, err
	}
	if m.Report, err = reportOf(answer); err != nil {
		return page, err
	}
	m.Idle, m.WithoutHistory = answer.GetIdle(), answer.GetWithoutHistory()
	// The line of the quota is worth a look; the chart stands without it.
	if quotas, err := s.api.tenants.GetQuotas(v.ctx, &servov1.GetQuotasRequest{Tenant: v.scope.Tenant}); err == nil {
		m.Quota = quotas.GetQuotas().GetMaxConcurrentRuns()
		m.Zone = view.ZoneOf(quotas.GetQuotas().GetZone())
	}
	page.Body = view.Simulator(m.Drawn())
	return page, nil
}

// between is a whole number from 1 to the most; otherwise what is not said.
func between(text string, unsaid, most int32) int32 {
	n, err := strconv.ParseInt(text, 10, 32)
	if err != nil || n < 1 {
		return unsaid
	}
	return min(int32(n), most)
}

// reportOf reads the report of an answer.
func reportOf(answer *servov1.SimulateResponse) (report simulate.Report, err error) {
	data, err := json.Marshal(answer.GetReport().AsMap())
	if err == nil {
		err = json.Unmarshal(data, &report)
	}
	if err != nil {
		return report, fault.New(fault.Internal, "the report does not fit: "+err.Error(), fault.Remedy("use servo simulate -o json"), fault.Cause(err))
	}
	return report, nil
}
