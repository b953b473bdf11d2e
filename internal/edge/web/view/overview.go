package view

import (
	"cmp"
	"slices"

	servov1 "go.arco.dev/servo/gen/servo/v1"
)

// OverviewModel is what an operator looks at first.
type OverviewModel struct {
	Scope    Scope
	Platform bool
	Status   *servov1.Status        // nil for whoever sees one tenant
	Metrics  *servov1.TenantMetrics // of the tenant, today
	Activity *servov1.Activity      // of the tenant, or of all; nil for whoever sees one workspace
	Late     []*servov1.LateRun
	MoreLate bool
	Running  []*servov1.RunningRun
	Failed   []*servov1.Run
	Alerts   []*servov1.Alert
	Queues   []Queue
}

// Queue is how a tenant stands in the queues of all pools.
type Queue struct {
	Tenant            string
	Waiting, InFlight int64
	AtLeast           bool
}

// queuesShown is how many tenants the overview names.
const queuesShown = 8

// QueuesOf are the tenants that wait most.
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

// mostWaiting is the length that the longest bar stands for.
func mostWaiting(queues []Queue) int64 {
	most := int64(1)
	for _, q := range queues {
		most = max(most, q.Waiting)
	}
	return most
}

// unservedText says what tasks need that no live worker has, and what to do.
func unservedText(need *servov1.UnservedNeed) string {
	return Count(need.GetTasks(), false) + " for " + need.GetCapability() + ": " + need.GetRemedy()
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

// toneOf is a tone for a number that should be zero.
func toneOf(n int64, tone string) string {
	if n > 0 {
		return tone
	}
	return ""
}

// quiet says that there is nothing to worry about.
func (m OverviewModel) quiet() bool {
	return len(m.Late) == 0 && len(m.Failed) == 0 && len(m.Alerts) == 0 && len(poolsWithoutWorkers(m.Status)) == 0 && !m.Status.GetDispatch().GetPaused()
}
