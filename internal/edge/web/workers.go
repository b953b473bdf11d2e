package web

import (
	servov1 "go.arco.dev/servo/gen/servo/v1"
	"go.arco.dev/servo/internal/domain/access"
	"go.arco.dev/servo/internal/edge/web/view"
)

// capacityRoutes are the pages about who gets what: shares of pools, workers, and locks.
func (s *Web) capacityRoutes() {
	s.show("/fairness", s.fairness)
	s.show("/workers", s.workers)
	s.show("/locks", s.locks)
	s.act("/tenants/{tenant}/locks/release", s.releaseLock)
}

// fairness is how tenants share the pools.
func (s *Web) fairness(v *visit) (view.Page, error) {
	m := view.FairnessModel{Scope: v.scope, Pool: v.query("pool")}
	list, err := s.api.fairness.ListShares(v.ctx, &servov1.ListSharesRequest{Pool: m.Pool, Tenant: v.scope.Tenant})
	if err != nil {
		return view.Page{}, err
	}
	m.Pools, m.Truncated = view.SharesOf(list.GetShares(), m.Pool), list.GetTruncated()
	return view.Page{Title: "Fairness", Section: "fairness", Live: true, Body: view.Fairness(m)}, nil
}

// workers are the pools, who works for them, and what is held the longest.
func (s *Web) workers(v *visit) (view.Page, error) {
	m := view.WorkersModel{Pool: v.query("pool"), First: v.token() == "", FirstAt: v.with("page", "")}
	pools, err := s.api.pools.ListPools(v.ctx, &servov1.ListPoolsRequest{})
	if err != nil {
		return view.Page{}, err
	}
	m.Pools = pools.GetPools()
	workers, err := s.api.workers.ListWorkers(v.ctx, &servov1.ListWorkersRequest{Pool: m.Pool, PageSize: rowsOfList, PageToken: v.token()})
	if err != nil {
		return view.Page{}, err
	}
	m.Workers, m.NextAt = workers.GetWorkers(), v.next(workers.GetNextPageToken())
	if m.Dispatch, err = s.api.admin.GetDispatch(v.ctx, &servov1.GetDispatchRequest{}); err != nil {
		return view.Page{}, err
	}
	return view.Page{Title: "Workers", Section: "workers", Live: m.First, Body: view.Workers(m)}, nil
}

// locks are the runs of a tenant that keep others out.
func (s *Web) locks(v *visit) (view.Page, error) {
	if v.scope.Tenant == "" {
		return s.chooseTenant(v, "Locks", "locks", "A lock keeps runs of one tenant from overlapping.", "/ui/locks")
	}
	m := view.LocksModel{Scope: v.scope, MayRelease: v.may(access.LocksRelease), First: v.token() == "", FirstAt: v.with("page", "")}
	list, err := s.api.locks.ListLocks(v.ctx, &servov1.ListLocksRequest{Tenant: v.scope.Tenant, PageSize: rowsOfList, PageToken: v.token()})
	if err != nil {
		return view.Page{}, err
	}
	m.Locks, m.NextAt = list.GetLocks(), v.next(list.GetNextPageToken())
	return view.Page{Title: "Locks", Section: "locks", Live: m.First, Body: view.Locks(m)}, nil
}

func (s *Web) releaseLock(v *visit) (done, error) {
	answer, err := s.api.locks.ReleaseLock(v.ctx, &servov1.ReleaseLockRequest{Tenant: v.scope.Tenant, Key: v.field("key"), Reason: v.field("reason")})
	notice := "The run that held it is " + view.LookOf(answer.GetRun().GetState().String()).Label + ". The lock is free when it has ended."
	return done{To: view.Scope{Tenant: v.scope.Tenant}.At("/ui/locks"), Notice: notice}, err
}
