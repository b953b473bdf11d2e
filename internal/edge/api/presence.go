package api

import (
	"context"
	"maps"
	"slices"

	servov1 "go.arco.dev/servo/gen/servo/v1"
	"go.arco.dev/servo/internal/engine"
	"go.arco.dev/servo/internal/store"
)

// ListWorkers implements servov1.WorkerServiceServer.
func (s workerService) ListWorkers(ctx context.Context, req *servov1.ListWorkersRequest) (*servov1.ListWorkersResponse, error) {
	workers, next, err := list(req, func(p page) ([]store.WorkerView, error) {
		return s.store.ListWorkers(ctx, req.GetPool(), p.after, p.size+1)
	},
		func(w store.WorkerView) string { return w.Name }, nil, sure(workerToProto))
	return &servov1.ListWorkersResponse{Workers: workers, NextPageToken: next}, err
}

func workerToProto(w store.WorkerView) *servov1.Worker {
	out := &servov1.Worker{
		Name: w.Name, Pools: w.Pools, Slots: w.Slots, Leases: w.Leases, FirstSeenAt: timestamp(w.FirstSeen), LastSeenAt: timestamp(w.SeenAt),
		Capabilities: w.Capabilities, Silent: w.Silent, DispatcherOf: engine.DispatchingServer(w.Name),
	}
	if w.Silent && w.Leases > 0 {
		out.LeasesEndAt = timestamp(w.LeasesEndAt)
	}
	return out
}

// addPresence adds the live servers, and the pools with their queues and workers.
func (s statusService) addPresence(ctx context.Context, answer *servov1.Status) error {
	depths, err := s.store.PoolDepths(ctx)
	if err != nil {
		return err
	}
	capacities, err := s.store.PoolCapacities(ctx)
	if err != nil {
		return err
	}
	pools := map[string]*servov1.PoolStatus{}
	for _, d := range depths {
		pools[d.Pool] = &servov1.PoolStatus{Pool: d.Pool, Queued: int64(d.Queued), Leased: int64(d.Leased)}
	}
	for name, c := range capacities {
		if pools[name] == nil {
			pools[name] = &servov1.PoolStatus{Pool: name}
		}
		pools[name].Workers, pools[name].Slots = int64(c.Workers), int64(c.Slots)
	}
	unserved, err := s.engine.UnservedNeeds(ctx)
	if err != nil {
		return err
	}
	for _, u := range unserved {
		if pools[u.Pool] == nil {
			pools[u.Pool] = &servov1.PoolStatus{Pool: u.Pool}
		}
		pools[u.Pool].Unserved = append(pools[u.Pool].Unserved, &servov1.UnservedNeed{Capability: u.Needs, Tasks: int64(u.Tasks), Remedy: u.Remedy})
	}
	for _, name := range slices.Sorted(maps.Keys(pools)) {
		answer.Pools = append(answer.Pools, pools[name])
	}
	servers, err := s.store.Servers(ctx)
	for _, server := range servers {
		answer.Servers = append(answer.Servers, &servov1.Server{
			Name: server.Name, Version: server.Version, StartedAt: timestamp(server.StartedAt), LastSeenAt: timestamp(server.SeenAt),
		})
	}
	return err
}
