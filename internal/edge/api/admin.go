package api

import (
	"cmp"
	"context"
	"fmt"

	"github.com/google/uuid"

	servov1 "go.arco.dev/servo/gen/servo/v1"
	"go.arco.dev/servo/internal/base/fault"
	"go.arco.dev/servo/internal/proof/verify"
)

// adminService implements servo.v1.AdminService.
type adminService struct{ *Server }

// Bounds of a verification through the API.
const (
	defaultSample  = 1000
	maxDivergences = 100 // in an answer
)

// VerifyProjections implements servov1.AdminServiceServer.
func (s adminService) VerifyProjections(ctx context.Context, req *servov1.VerifyProjectionsRequest) (*servov1.VerifyProjectionsResponse, error) {
	options := verify.Options{Sample: cmp.Or(int(req.GetSample()), defaultSample), Keep: maxDivergences}
	if req.GetTenant() != "" {
		tenant, err := s.tenants.ID(ctx, req.GetTenant())
		if err != nil {
			return nil, err
		}
		options.Tenant = &tenant
	}
	report, err := verify.Verify(ctx, s.store, options)
	if err != nil {
		return nil, err
	}
	return s.reportToProto(ctx, report), nil
}

// RepairRun implements servov1.AdminServiceServer.
func (s adminService) RepairRun(ctx context.Context, req *servov1.RepairRunRequest) (*servov1.VerifyProjectionsResponse, error) {
	key, err := s.runKey(ctx, req)
	if err != nil {
		return nil, err
	}
	report, err := verify.Repair(ctx, s.store, key.Tenant, key.Run)
	if fault.Is(err, fault.Conflict) || fault.Is(err, fault.NotFound) { // a run of another tenant must look like one that does not exist
		if _, err := s.store.GetRun(ctx, key); err != nil {
			return nil, err
		}
	}
	if err != nil {
		return nil, err
	}
	return s.reportToProto(ctx, report), nil
}

func (s adminService) reportToProto(ctx context.Context, r verify.Report) *servov1.VerifyProjectionsResponse {
	answer := &servov1.VerifyProjectionsResponse{Runs: int64(r.Runs), Tasks: int64(r.Tasks), Events: int64(r.Events), Found: int64(r.Found)}
	for _, d := range r.Divergences[:min(len(r.Divergences), maxDivergences)] {
		out := &servov1.Divergence{Table: d.Table, Message: fmt.Sprint(d)}
		if d.Tenant.UUID != uuid.Nil {
			out.Tenant = d.Tenant.String()
			if name, err := s.tenants.Name(ctx, d.Tenant); err == nil { // the divergent row may be the tenant's
				out.Tenant = name
			}
		}
		if d.Run.UUID != uuid.Nil {
			out.Run = d.Run.String()
		}
		answer.Divergences = append(answer.Divergences, out)
	}
	return answer
}
