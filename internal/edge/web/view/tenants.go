package view

import servov1 "go.arco.dev/servo/gen/servo/v1"

// TenantsModel is the list of tenants.
type TenantsModel struct {
	Paging

	Tenants   []*servov1.Tenant
	Work      map[string]Work // nil without permission
	MayCreate bool
}

// Work is the number of tasks of a tenant.
type Work struct {
	InFlight, Limit int64
	Waiting         int64
	AtLeast         bool // Waiting is a lower bound
}

// WorkOf adds up the pools of each tenant.
func WorkOf(shares *servov1.ListSharesResponse) map[string]Work {
	all := map[string]Work{}
	for _, s := range shares.GetShares() {
		w := all[s.GetTenant()]
		w.InFlight, w.Limit = int64(s.GetTenantInFlight()), int64(s.GetMaxConcurrentTasks())
		w.Waiting += int64(s.GetWaiting())
		w.AtLeast = w.AtLeast || s.GetWaitingAtLeast()
		all[s.GetTenant()] = w
	}
	return all
}

// usageClass marks a quota that is used up.
func usageClass(used, limit int64) string {
	if used >= limit {
		return "bad"
	}
	return "ok"
}
