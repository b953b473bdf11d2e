package api

import (
	"context"

	"google.golang.org/protobuf/proto"

	servov1 "go.arco.dev/servo/gen/servo/v1"
	"go.arco.dev/servo/internal/base/fault"
	"go.arco.dev/servo/internal/base/id"
	"go.arco.dev/servo/internal/domain/tenant"
	"go.arco.dev/servo/internal/edge/intercept"
)

// GetQuotas implements servov1.TenantServiceServer.
func (s tenantService) GetQuotas(ctx context.Context, req *servov1.GetQuotasRequest) (*servov1.TenantQuotas, error) {
	owner, err := s.tenants.ID(ctx, req.GetTenant())
	if err != nil {
		return nil, err
	}
	return s.readQuotas(ctx, owner)
}

// changeTries is how often a change without a version is retried after a concurrent change of the
// tenant.
const changeTries = 10

// SetQuotas implements servov1.TenantServiceServer.
func (s tenantService) SetQuotas(ctx context.Context, req *servov1.SetQuotasRequest) (*servov1.TenantQuotas, error) {
	owner, err := s.tenants.ID(ctx, req.GetTenant())
	if err != nil {
		return nil, err
	}
	for try := 1; ; try++ {
		current, version, err := s.store.GetQuotas(ctx, owner)
		if err != nil {
			return nil, err
		}
		wanted := changedQuotas(current, req.GetQuotas())
		if wanted == current { // also if a repeat finds the change of the first call
			return s.readQuotas(ctx, owner)
		}
		if req.GetVersion() != 0 {
			version = req.GetVersion()
		}
		_, err = s.engine.SetQuotas(ctx, owner, wanted, version, intercept.Meta(ctx))
		if fault.Is(err, fault.Conflict) && req.GetVersion() == 0 && try < changeTries {
			continue
		}
		if err != nil {
			return nil, err
		}
		return s.readQuotas(ctx, owner)
	}
}

func (s tenantService) readQuotas(ctx context.Context, owner id.Tenant) (*servov1.TenantQuotas, error) {
	quotas, version, err := s.store.GetQuotas(ctx, owner)
	if err != nil {
		return nil, err
	}
	used, err := s.store.GetTenantUsage(ctx, owner, quotas)
	if err != nil {
		return nil, err
	}
	return &servov1.TenantQuotas{
		Quotas: quotasToProto(quotas), Version: version,
		Usage: &servov1.QuotaUsage{
			ConcurrentTasks: used.InFlight, QueuedTasks: used.Ready, ConcurrentRuns: used.Live, PendingRuns: used.Pending,
			DailyRuns: used.Today, DayBeganAt: timestamp(used.DayBegan),
		},
	}, nil
}

func quotasToProto(q tenant.Quotas) *servov1.Quotas {
	return &servov1.Quotas{
		MaxConcurrentTasks: proto.Int32(q.MaxConcurrentTasks), MaxQueuedTasks: proto.Int32(q.MaxQueuedTasks),
		MaxConcurrentRuns: proto.Int32(q.MaxConcurrentRuns), MaxDailyRuns: proto.Int32(q.MaxDailyRuns),
		MaxRunDuration: duration(q.MaxRunDuration), MaxTasksPerRun: proto.Int32(q.MaxTasksPerRun),
		MaxBackfillRuns: proto.Int32(q.MaxBackfillRuns), FairnessWeight: proto.Float64(q.FairnessWeight), Zone: proto.String(q.Zone),
	}
}

// changedQuotas returns the quotas with the fields that a request sets.
func changedQuotas(q tenant.Quotas, change *servov1.Quotas) tenant.Quotas {
	set(&q.MaxConcurrentTasks, change.MaxConcurrentTasks)
	set(&q.MaxQueuedTasks, change.MaxQueuedTasks)
	set(&q.MaxConcurrentRuns, change.MaxConcurrentRuns)
	set(&q.MaxDailyRuns, change.MaxDailyRuns)
	set(&q.MaxTasksPerRun, change.MaxTasksPerRun)
	set(&q.MaxBackfillRuns, change.MaxBackfillRuns)
	set(&q.FairnessWeight, change.FairnessWeight)
	set(&q.Zone, change.Zone)
	if d := change.GetMaxRunDuration(); d != nil {
		q.MaxRunDuration = d.AsDuration()
	}
	return q
}

func set[T any](field, value *T) {
	if value != nil {
		*field = *value
	}
}
