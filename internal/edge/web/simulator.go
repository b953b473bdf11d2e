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
	maxDays     = 90 // more are not readable in a chart
)

// simulator predicts the slots and runs of a tenant's configs.
func (s *Web) simulator(v *visit) (view.Page, error) {
	page := view.Page{Title: "Simulator", Section: "simulator"}
	if v.scope.Tenant == "" {
		return s.chooseTenant(v, "Simulator", "simulator", "The simulator runs the configs of one tenant.", "/ui/simulator")
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
	// The chart works without the line of the quota.
	if quotas, err := s.api.tenants.GetQuotas(v.ctx, &servov1.GetQuotasRequest{Tenant: v.scope.Tenant}); err == nil {
		m.Quota = quotas.GetQuotas().GetMaxConcurrentRuns()
		m.Zone = view.ZoneOf(quotas.GetQuotas().GetZone())
	}
	page.Body = view.Simulator(m.Drawn())
	return page, nil
}

// between is a whole number from 1 to most; otherwise the default.
func between(text string, byDefault, most int32) int32 {
	n, err := strconv.ParseInt(text, 10, 32)
	if err != nil || n < 1 {
		return byDefault
	}
	return min(int32(n), most)
}

// reportOf is the report of a response.
func reportOf(answer *servov1.SimulateResponse) (report simulate.Report, err error) {
	data, err := json.Marshal(answer.GetReport().AsMap())
	if err == nil {
		err = json.Unmarshal(data, &report)
	}
	if err != nil {
		return report, fault.New(fault.Internal, "the report cannot be parsed: "+err.Error(), fault.Remedy("use servo simulate -o json"), fault.Cause(err))
	}
	return report, nil
}
