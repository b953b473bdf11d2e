package api

import (
	"context"

	servov1 "go.arco.dev/servo/gen/servo/v1"
	"go.arco.dev/servo/internal/store"
)

// fairnessService implements servo.v1.FairnessService.
type fairnessService struct {
	servov1.UnimplementedFairnessServiceServer
	*Server
}

const (
	// maxShares bounds an answer.
	maxShares = 1000
	// maxCompared bounds the shares among which the ones of a named tenant are looked for: what
	// it is entitled to depends on all of them.
	maxCompared = 100_000
)

// ListShares implements servov1.FairnessServiceServer.
func (s fairnessService) ListShares(ctx context.Context, req *servov1.ListSharesRequest) (*servov1.ListSharesResponse, error) {
	most := maxShares
	if req.GetTenant() != "" {
		if _, err := s.tenants.id(ctx, req.GetTenant()); err != nil {
			return nil, err
		}
		most = maxCompared
	}
	shares, err := s.store.ListShares(ctx, req.GetPool(), most+1)
	if err != nil {
		return nil, err
	}
	answer := &servov1.ListSharesResponse{Truncated: len(shares) > most}
	shares = shares[:min(len(shares), most)]
	weights, flights := map[string]float64{}, map[string]int{}
	for _, v := range shares {
		if competes(v) {
			weights[v.Pool] += v.Weight
		}
		flights[v.Pool] += v.InFlight
	}
	for _, v := range shares {
		if req.GetTenant() != "" && v.Tenant != req.GetTenant() {
			continue
		}
		share := &servov1.Share{
			Pool: v.Pool, Tenant: v.Tenant, Weight: v.Weight, Deficit: v.Deficit,
			Waiting: int32(v.Waiting), WaitingAtLeast: v.Waiting == store.MaxWaitingShown, //nolint:gosec // bounded
			InFlight: int32(v.InFlight), TenantInFlight: int32(v.TenantFlight), MaxConcurrentTasks: int32(v.MaxConcurrent), //nolint:gosec // from such columns
			ServedSeconds: v.Served, Attempts: v.Attempts,
		}
		if competes(v) {
			share.Entitled = v.Weight / weights[v.Pool]
		}
		if flights[v.Pool] > 0 {
			share.Share = float64(v.InFlight) / float64(flights[v.Pool])
		}
		answer.Shares = append(answer.Shares, share)
	}
	return answer, nil
}

// competes says that a tenant wants something of the pool now.
func competes(v store.ShareView) bool { return v.Waiting > 0 || v.InFlight > 0 }
