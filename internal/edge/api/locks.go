package api

import (
	"context"

	servov1 "go.arco.dev/servo/gen/servo/v1"
	"go.arco.dev/servo/internal/edge/intercept"
	"go.arco.dev/servo/internal/engine"
	"go.arco.dev/servo/internal/store"
)

// lockService implements servo.v1.LockService.
type lockService struct{ *Server }

// ListLocks implements servov1.LockServiceServer.
func (s lockService) ListLocks(ctx context.Context, req *servov1.ListLocksRequest) (*servov1.ListLocksResponse, error) {
	tenant, err := s.tenants.ID(ctx, req.GetTenant())
	if err != nil {
		return nil, err
	}
	locks, next, err := list(req, func(p page) ([]engine.Lock, error) { return s.engine.ListLocks(ctx, tenant, p.after, p.size+1) },
		func(l engine.Lock) string { return l.Key }, nil, sure(lockToProto))
	return &servov1.ListLocksResponse{Locks: locks, NextPageToken: next}, err
}

// ReleaseLock implements servov1.LockServiceServer.
func (s lockService) ReleaseLock(ctx context.Context, req *servov1.ReleaseLockRequest) (*servov1.ReleaseLockResponse, error) {
	tenant, err := s.tenants.ID(ctx, req.GetTenant())
	if err != nil {
		return nil, err
	}
	lock, _, err := s.engine.ReleaseLock(ctx, req.GetKey(), engine.Cancel{Tenant: tenant, Reason: req.GetReason(), Alone: store.InCall(ctx), Meta: intercept.Meta(ctx)})
	if err != nil {
		return nil, err
	}
	held, err := runService{s.Server}.readRun(ctx, req.GetTenant(), store.RunKey{Tenant: tenant, Run: lock.Run})
	return &servov1.ReleaseLockResponse{Lock: lockToProto(lock), Run: held}, err
}

func lockToProto(l engine.Lock) *servov1.Lock {
	return &servov1.Lock{
		Key: l.Key, Run: l.Run.String(), Workspace: l.Workspace, Pipeline: l.Pipeline, LockedAt: timestamp(l.LockedAt), LockedBy: l.LockedBy,
		DueAt: timestamp(l.DueAt), Pending: l.Pending,
	}
}
