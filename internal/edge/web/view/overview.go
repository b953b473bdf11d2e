package view

import (
	"cmp"
	"slices"

	servov1 "go.arco.dev/servo/gen/servo/v1"
)

// OverviewModel is the state of the installation, or of one tenant.
type OverviewModel struct {
	Scope    Scope
	Platform bool
	Status   *servov1.Status        // nil for visitors of one tenant
	Metrics  *servov1.TenantMetrics // of the tenant, today
	Activity *servov1.Activity      // of the tenant, or of all; nil for visitors of one workspace
	Late     []*servov1.LateRun
	MoreLate bool
	Running  []*servov1.RunningRun
	Failed   []*servov1.Run
	Alerts   []*servov1.Alert
	Queues   []Queue
}

// Queue is the number of tasks of a tenant in all pools.
type Queue struct {
	Tenant            string
	Waiting, InFlight int64
	AtLeast           bool
}

// queuesShown is the number of tenants on the overview.
const queuesShown = 8

// QueuesOf are the tenants with the most waiting tasks, the first with most.
func QueuesOf(shares []*servov1.Share) []Queue {
	byTenant := map[string]*Queue{}
	for _, s := range shares {
		q := byTenant[s.GetTenant()]
		if q == nil {
			q = &Queue{Tenant: s.GetTenant()}
			byTenant[s.GetTenant()] = q
		}
		q.Waiting += int64(s.GetWaiting())
		q.InFlight += int64(s.GetInFlight())
		q.AtLeast = q.AtLeast || s.GetWaitingAtLeast()
	}
	var all []Queue
	for _, q := range byTenant {
		if q.Waiting+q.InFlight > 0 {
			all = append(all, *q)
		}
	}
	slices.SortFunc(all, func(a, b Queue) int {
		return cmp.Or(cmp.Compare(b.Waiting, a.Waiting), cmp.Compare(b.InFlight, a.InFlight), cmp.Compare(a.Tenant, b.Tenant))
	})
	return all[:min(len(all), queuesShown)]
}

// unservedText names a capability that no live worker has, and the remedy.
func unservedText(need *servov1.UnservedNeed) string {
	return Plural(need.GetTasks(), "task", "tasks") + " for " + need.GetCapability() + ": " + need.GetRemedy()
}

// poolsWithoutWorkers are the pools with tasks that no live worker can run.
func poolsWithoutWorkers(s *servov1.Status) []*servov1.PoolStatus {
	var out []*servov1.PoolStatus
	for _, p := range s.GetPools() {
		if len(p.GetUnserved()) > 0 {
			out = append(out, p)
		}
	}
	return out
}

// quiet reports whether nothing needs the operator's attention.
func (m OverviewModel) quiet() bool {
	return len(m.Late) == 0 && len(m.Failed) == 0 && len(m.Alerts) == 0 && len(poolsWithoutWorkers(m.Status)) == 0 && !m.Status.GetDispatch().GetPaused()
}

// runOrigin is the config of a run, or who triggered it.
func runOrigin(r *servov1.Run, tenants bool) string {
	by := r.GetConfig()
	if by == "" {
		by = Words(r.GetTriggerType()) + " " + Clip(r.GetTriggeredBy(), 40)
	}
	if tenants {
		return r.GetTenant() + " · " + by
	}
	return by
}
