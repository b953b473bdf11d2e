package api

import (
	"context"

	servov1 "go.arco.dev/servo/gen/servo/v1"
	"go.arco.dev/servo/internal/base/id"
	"go.arco.dev/servo/internal/store"
)

// fairnessService implements servo.v1.FairnessService.
type fairnessService struct{ *Server }

// maxShares bounds an answer.
const maxShares = 1000

// ListShares implements servov1.FairnessServiceServer.
func (s fairnessService) ListShares(ctx context.Context, req *servov1.ListSharesRequest) (*servov1.ListSharesResponse, error) {
	var tenant id.Tenant
	if req.GetTenant() != "" {
		var err error
		if tenant, err = s.tenants.ID(ctx, req.GetTenant()); err != nil {
			return nil, err
		}
	}
	shares, more, err := s.store.ListShares(ctx, req.GetPool(), tenant, maxShares)
	if err != nil {
		return nil, err
	}
	answer := &servov1.ListSharesResponse{Truncated: more}
	for _, v := range shares {
		share := &servov1.Share{
			Pool: v.Pool, Tenant: v.Tenant, Weight: v.Weight, Deficit: v.Deficit,
			Waiting: int32(v.Waiting), WaitingAtLeast: v.Waiting == store.MaxWaitingShown, //nolint:gosec // bounded
			InFlight: int32(v.InFlight), TenantInFlight: int32(v.TenantFlight), MaxConcurrentTasks: int32(v.MaxConcurrent), //nolint:gosec // from such columns
			ServedSeconds: v.Served, Attempts: v.Attempts,
		}
		if v.Competes {
			share.Entitled = v.Weight / v.PoolWeight
		}
		if v.PoolFlight > 0 {
			share.Share = float64(v.InFlight) / float64(v.PoolFlight)
		}
		answer.Shares = append(answer.Shares, share)
	}
	return answer, nil
}
