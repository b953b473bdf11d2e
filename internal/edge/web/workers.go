package web

import (
	servov1 "go.arco.dev/servo/gen/servo/v1"
	"go.arco.dev/servo/internal/domain/access"
	"go.arco.dev/servo/internal/edge/web/view"
)

// capacityRoutes are the pages of fairness, workers and locks.
func (s *Web) capacityRoutes() {
	s.show("/fairness", s.fairness)
	s.show("/workers", s.workers)
	s.show("/locks", s.locks)
	s.act("/tenants/{tenant}/locks/release", s.releaseLock)
}

// fairness shows the shares of tenants in the pools.
func (s *Web) fairness(v *visit) (view.Page, error) {
	m := view.FairnessModel{Scope: v.scope, Pool: v.query("pool")}
	list, err := s.api.fairness.ListShares(v.ctx, &servov1.ListSharesRequest{Pool: m.Pool, Tenant: v.scope.Tenant})
	if err != nil {
		return view.Page{}, err
	}
	m.Pools, m.Truncated = view.SharesOf(list.GetShares(), m.Pool), list.GetTruncated()
	return view.Page{Title: "Fairness", Section: "fairness", Live: true, Body: view.Fairness(m)}, nil
}

// workers shows pools, workers and the oldest leases.
func (s *Web) workers(v *visit) (view.Page, error) {
	m := view.WorkersModel{Pool: v.query("pool")}
	pools, err := s.api.pools.ListPools(v.ctx, &servov1.ListPoolsRequest{})
	if err != nil {
		return view.Page{}, err
	}
	m.Pools = pools.GetPools()
	workers, err := s.api.workers.ListWorkers(v.ctx, &servov1.ListWorkersRequest{Pool: m.Pool, PageSize: rowsOfList, PageToken: v.token()})
	if err != nil {
		return view.Page{}, err
	}
	m.Workers, m.Paging = workers.GetWorkers(), v.paging(workers.GetNextPageToken())
	if m.Dispatch, err = s.api.admin.GetDispatch(v.ctx, &servov1.GetDispatchRequest{}); err != nil {
		return view.Page{}, err
	}
	return view.Page{Title: "Workers", Section: "workers", Live: m.First, Body: view.Workers(m)}, nil
}

// locks lists the locks of a tenant.
func (s *Web) locks(v *visit) (view.Page, error) {
	if v.scope.Tenant == "" {
		return s.chooseTenant(v, "Locks", "locks", "Locks prevent overlapping runs of a tenant.", "/ui/locks")
	}
	m := view.LocksModel{Scope: v.scope, MayRelease: v.may(access.LocksRelease)}
	list, err := s.api.locks.ListLocks(v.ctx, &servov1.ListLocksRequest{Tenant: v.scope.Tenant, PageSize: rowsOfList, PageToken: v.token()})
	if err != nil {
		return view.Page{}, err
	}
	m.Locks, m.Paging = list.GetLocks(), v.paging(list.GetNextPageToken())
	return view.Page{Title: "Locks", Section: "locks", Live: m.First, Body: view.Locks(m)}, nil
}

func (s *Web) releaseLock(v *visit) (done, error) {
	answer, err := s.api.locks.ReleaseLock(v.ctx, &servov1.ReleaseLockRequest{Tenant: v.scope.Tenant, Key: v.field("key"), Reason: v.field("reason")})
	notice := "The run of the lock is " + view.LookOf(answer.GetRun().GetState().String()).Label + ". The lock is released when it has ended."
	return done{To: view.Scope{Tenant: v.scope.Tenant}.At("/ui/locks"), Notice: notice}, err
}
