package api

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	servov1 "go.arco.dev/servo/gen/servo/v1"
	"go.arco.dev/servo/internal/base/fault"
	"go.arco.dev/servo/internal/base/id"
	"go.arco.dev/servo/internal/domain/platform"
	"go.arco.dev/servo/internal/domain/push"
	"go.arco.dev/servo/internal/edge/intercept"
	"go.arco.dev/servo/internal/store"
)

// poolService implements servo.v1.PoolService.
type poolService struct{ *Server }

// Breakers has the circuit breakers of push pools on this server.
type Breakers interface {
	// Breaker returns the circuit breaker of a pool; false if its URL was not called yet.
	Breaker(pool string) (b Breaker, known bool)
}

// Breaker is the state of a circuit breaker.
type Breaker struct {
	State     push.BreakerState
	RetryAt   time.Time
	LastError string
}

// CreatePool implements servov1.PoolServiceServer.
func (s poolService) CreatePool(ctx context.Context, req *servov1.CreatePoolRequest) (*servov1.CreatePoolResponse, error) {
	settings := platform.PoolSettings{
		Kind: kindOf(req.GetKind()), URL: req.GetUrl(), MaxConcurrency: platform.NoLimit, RatePerSecond: req.GetRatePerSecond(),
		TimeoutSeconds: secondsOf(cmp.Or(req.GetTimeout().AsDuration(), platform.DefaultPoolTimeout)),
	}
	if req.MaxConcurrency != nil {
		settings.MaxConcurrency = req.GetMaxConcurrency()
	}
	var err error
	if settings.Owner, err = s.ownerOf(ctx, req.GetOwner()); err != nil {
		return nil, err
	}
	if err := s.checkPoolURL(ctx, req.GetUrl()); err != nil {
		return nil, err
	}
	if settings.Tenants, err = s.tenantsOf(ctx, req.GetTenants()); err != nil {
		return nil, err
	}
	made, err := s.engine.CreatePool(ctx, req.GetName(), settings, intercept.Meta(ctx))
	if err != nil {
		return nil, err
	}
	answer := &servov1.CreatePoolResponse{}
	if answer.Pool, err = s.read(ctx, made.Name); err != nil || made.Kind != platform.Push {
		return answer, err
	}
	keys, now, err := s.store.SigningKeys(ctx)
	if err != nil {
		return nil, err
	}
	for _, k := range keys {
		if state := k.StateAt(now); state != platform.KeyExpired && state != platform.KeyGone {
			answer.WorkerKeys = append(answer.WorkerKeys, workerKey(push.Key{ID: k.ID, Secret: k.Secret}, made.Name))
		}
	}
	return answer, nil
}

func workerKey(key push.Key, pool string) *servov1.WorkerKey {
	return &servov1.WorkerKey{Pool: pool, KeyId: key.ID, Key: key.Worker(pool).Text()}
}

func kindOf(kind servov1.Pool_Kind) platform.PoolKind {
	switch kind {
	case servov1.Pool_PULL:
		return platform.Pull
	case servov1.Pool_PUSH:
		return platform.Push
	case servov1.Pool_KIND_UNSPECIFIED:
	}
	return ""
}

// secondsOf rounds up: a pool's timeout has whole seconds.
func secondsOf(d time.Duration) int32 {
	return int32((d + time.Second - 1) / time.Second) //nolint:gosec // the contract bounds it
}

// ownerOf returns the tenant of a name; zero without a name.
func (s *Server) ownerOf(ctx context.Context, name string) (id.Tenant, error) {
	if name == "" {
		return id.Tenant{}, nil
	}
	owner, err := s.tenants.ID(ctx, name)
	if f, ok := fault.As(err); ok {
		f.Violation.Field = "owner"
	}
	return owner, err
}

// tenantsOf returns the tenants of names, sorted by id and without duplicates.
func (s *Server) tenantsOf(ctx context.Context, names []string) ([]id.Tenant, error) {
	var found []id.Tenant
	for i, name := range names {
		tenant, err := s.tenants.ID(ctx, name)
		if f, ok := fault.As(err); ok {
			f.Violation.Field = fmt.Sprintf("tenants[%d]", i)
		}
		if err != nil {
			return nil, err
		}
		found = append(found, tenant)
	}
	slices.SortFunc(found, func(a, b id.Tenant) int { return bytes.Compare(a.UUID[:], b.UUID[:]) })
	return slices.Compact(found), nil
}

// UpdatePool implements servov1.PoolServiceServer.
func (s poolService) UpdatePool(ctx context.Context, req *servov1.UpdatePoolRequest) (*servov1.Pool, error) {
	owner, err := s.ownerOf(ctx, req.GetOwner())
	if err != nil {
		return nil, err
	}
	if err := s.checkPoolURL(ctx, req.GetUrl()); err != nil {
		return nil, err
	}
	tenants, err := s.tenantsOf(ctx, req.GetTenants().GetNames())
	if err != nil {
		return nil, err
	}
	changed, err := s.engine.ChangePool(ctx, req.GetPool(), req.GetVersion(), func(p *platform.PoolSettings) {
		if req.Url != nil {
			p.URL = req.GetUrl()
		}
		if req.MaxConcurrency != nil {
			p.MaxConcurrency = req.GetMaxConcurrency()
		}
		if req.RatePerSecond != nil {
			p.RatePerSecond = req.GetRatePerSecond()
		}
		if req.GetTimeout() != nil {
			p.TimeoutSeconds = secondsOf(req.GetTimeout().AsDuration())
		}
		if req.Owner != nil {
			p.Owner = owner
		}
		if req.GetTenants() != nil {
			p.Tenants = tenants
		}
	}, intercept.Meta(ctx))
	if err != nil {
		return nil, err
	}
	return s.read(ctx, changed.Name)
}

// checkPoolURL refuses a URL that must not be called. The engine decides whether the pool needs one.
func (s poolService) checkPoolURL(ctx context.Context, url string) error {
	if url == "" {
		return nil
	}
	return s.options.Guard.CheckTarget(ctx, "url", url)
}

// DeletePool implements servov1.PoolServiceServer.
func (s poolService) DeletePool(ctx context.Context, req *servov1.DeletePoolRequest) (*servov1.DeletePoolResponse, error) {
	return &servov1.DeletePoolResponse{}, s.engine.DeletePool(ctx, req.GetPool(), req.GetVersion(), intercept.Meta(ctx))
}

// GetPool implements servov1.PoolServiceServer.
func (s poolService) GetPool(ctx context.Context, req *servov1.GetPoolRequest) (*servov1.Pool, error) {
	return s.read(ctx, req.GetPool())
}

// read returns a pool with its queue. A pool without a configuration exists if it has tasks or
// workers.
func (s poolService) read(ctx context.Context, name string) (*servov1.Pool, error) {
	pools, err := s.pools(ctx)
	if err != nil {
		return nil, err
	}
	if found, ok := pools[name]; ok {
		return found, nil
	}
	return nil, fault.New(fault.NotFound, fmt.Sprintf("no pool %.100q", name), fault.Field("pool"),
		fault.Remedy("list them with servo pools list"))
}

// ListPools implements servov1.PoolServiceServer.
func (s poolService) ListPools(ctx context.Context, _ *servov1.ListPoolsRequest) (*servov1.ListPoolsResponse, error) {
	pools, err := s.pools(ctx)
	if err != nil {
		return nil, err
	}
	answer := &servov1.ListPoolsResponse{}
	for _, name := range slices.Sorted(maps.Keys(pools)) {
		answer.Pools = append(answer.Pools, pools[name])
	}
	return answer, nil
}

// pools returns all pools by name: those with a configuration, and those in use.
func (s poolService) pools(ctx context.Context) (map[string]*servov1.Pool, error) {
	configured, err := s.store.Pools(ctx)
	if err != nil {
		return nil, err
	}
	depths, err := s.store.PoolDepths(ctx)
	if err != nil {
		return nil, err
	}
	capacities, err := s.store.PoolCapacities(ctx)
	if err != nil {
		return nil, err
	}
	pools := map[string]*servov1.Pool{}
	of := func(name string) *servov1.Pool {
		if pools[name] == nil {
			pools[name] = &servov1.Pool{Name: name, Kind: servov1.Pool_PULL, MaxConcurrency: platform.NoLimit}
		}
		return pools[name]
	}
	for _, p := range configured {
		if pools[p.Name], err = s.poolToProto(ctx, p); err != nil {
			return nil, err
		}
	}
	for _, d := range depths {
		of(d.Pool).Queued, of(d.Pool).Leased = int64(d.Queued), int64(d.Leased)
	}
	for name, c := range capacities {
		of(name).Workers, of(name).Slots = int32(c.Workers), int64(c.Slots) //nolint:gosec // workers are few
	}
	return pools, nil
}

func (s poolService) poolToProto(ctx context.Context, p store.Pool) (*servov1.Pool, error) {
	out := &servov1.Pool{
		Name: p.Name, Kind: servov1.Pool_PULL, Url: p.URL, MaxConcurrency: p.MaxConcurrency, RatePerSecond: p.RatePerSecond,
		Configured: true, Version: p.Version, CreatedAt: timestamp(p.CreatedAt), UpdatedAt: timestamp(p.UpdatedAt),
	}
	if p.Owner != (id.Tenant{}) {
		var err error
		if out.Owner, err = s.tenants.Name(ctx, p.Owner); err != nil {
			return nil, err
		}
	}
	for _, t := range p.Tenants {
		name, err := s.tenants.Name(ctx, t)
		if err != nil {
			return nil, err
		}
		out.Tenants = append(out.Tenants, name)
	}
	slices.Sort(out.GetTenants())
	if p.Kind != platform.Push {
		return out, nil
	}
	out.Kind, out.Timeout = servov1.Pool_PUSH, duration(p.Timeout())
	if s.options.Breakers != nil {
		if b, known := s.options.Breakers.Breaker(p.Name); known {
			out.Breaker = &servov1.Breaker{State: string(b.State), RetryAt: timestamp(b.RetryAt), LastError: b.LastError}
		}
	}
	return out, nil
}
