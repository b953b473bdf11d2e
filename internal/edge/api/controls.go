package api

import (
	"context"

	servov1 "go.arco.dev/servo/gen/servo/v1"
	"go.arco.dev/servo/internal/domain/platform"
	"go.arco.dev/servo/internal/edge/intercept"
	"go.arco.dev/servo/internal/engine"
	"go.arco.dev/servo/internal/store"
)

// What operators do by hand.

// ForceCancelTask implements servov1.TaskServiceServer.
func (s taskService) ForceCancelTask(ctx context.Context, req *servov1.ForceCancelTaskRequest) (*servov1.Task, error) {
	key, err := s.taskKey(ctx, req)
	if err != nil {
		return nil, err
	}
	if _, err := s.engine.ForceCancelTask(ctx, engine.ForceCancel{TaskKey: key, Reason: req.GetReason(), Meta: intercept.Meta(ctx)}); err != nil {
		return nil, err
	}
	return s.GetTask(ctx, &servov1.GetTaskRequest{Tenant: req.GetTenant(), Run: req.GetRun(), Task: req.GetTask()})
}

// PauseDispatch implements servov1.AdminServiceServer.
func (s adminService) PauseDispatch(ctx context.Context, req *servov1.PauseDispatchRequest) (*servov1.DispatchStatus, error) {
	dispatch, err := s.engine.PauseDispatch(ctx, engine.Turn{Reason: req.GetReason(), By: intercept.Caller(ctx).Actor, Meta: intercept.Meta(ctx)})
	if err != nil {
		return nil, err
	}
	return s.dispatchStatus(ctx, dispatch)
}

// ResumeDispatch implements servov1.AdminServiceServer.
func (s adminService) ResumeDispatch(ctx context.Context, req *servov1.ResumeDispatchRequest) (*servov1.DispatchStatus, error) {
	dispatch, err := s.engine.ResumeDispatch(ctx, engine.Turn{Reason: req.GetReason(), By: intercept.Caller(ctx).Actor, Meta: intercept.Meta(ctx)})
	if err != nil {
		return nil, err
	}
	return s.dispatchStatus(ctx, dispatch)
}

// GetDispatch implements servov1.AdminServiceServer.
func (s adminService) GetDispatch(ctx context.Context, _ *servov1.GetDispatchRequest) (*servov1.DispatchStatus, error) {
	dispatch, err := s.store.GetSwitch(ctx, platform.Dispatch)
	if err != nil {
		return nil, err
	}
	return s.dispatchStatus(ctx, dispatch)
}

// maxHeld bounds the leased tasks in an answer.
const maxHeld = 20

func (s adminService) dispatchStatus(ctx context.Context, dispatch store.Switch) (*servov1.DispatchStatus, error) {
	held, oldest, err := s.store.Busy(ctx, maxHeld)
	if err != nil {
		return nil, err
	}
	answer := &servov1.DispatchStatus{Dispatch: dispatchToProto(dispatch), Held: int64(held), AtLeast: held >= store.MaxDepth}
	for _, t := range oldest {
		answer.Oldest = append(answer.Oldest, &servov1.HeldTask{
			Tenant: t.TenantName, Run: t.Run.String(), Task: t.Task.String(), Asset: t.Asset, Pool: t.Pool, Worker: t.Worker,
			Since: timestamp(t.Since), CancelRequested: t.CancelRequested,
		})
	}
	return answer, nil
}

func dispatchToProto(s store.Switch) *servov1.Dispatch {
	return &servov1.Dispatch{Paused: s.Off, Reason: s.Reason, ChangedBy: s.ChangedBy, ChangedAt: timestamp(s.ChangedAt)}
}

// PauseAsset implements servov1.AssetServiceServer.
func (s assetService) PauseAsset(ctx context.Context, req *servov1.PauseAssetRequest) (*servov1.Asset, error) {
	tenant, err := s.tenants.ID(ctx, req.GetTenant())
	if err != nil {
		return nil, err
	}
	_, err = s.engine.PauseAsset(ctx, engine.AssetPause{
		Tenant: tenant, Workspace: req.GetWorkspace(), Asset: req.GetAsset(), Reason: req.GetReason(), By: intercept.Caller(ctx).Actor, Meta: intercept.Meta(ctx),
	})
	if err != nil {
		return nil, err
	}
	return s.GetAsset(ctx, &servov1.GetAssetRequest{Tenant: req.GetTenant(), Workspace: req.GetWorkspace(), Asset: req.GetAsset()})
}

// ResumeAsset implements servov1.AssetServiceServer.
func (s assetService) ResumeAsset(ctx context.Context, req *servov1.ResumeAssetRequest) (*servov1.ResumeAssetResponse, error) {
	tenant, err := s.tenants.ID(ctx, req.GetTenant())
	if err != nil {
		return nil, err
	}
	changed, err := s.engine.ResumeAsset(ctx, engine.AssetPause{
		Tenant: tenant, Workspace: req.GetWorkspace(), Asset: req.GetAsset(), Reason: req.GetReason(), By: intercept.Caller(ctx).Actor, Meta: intercept.Meta(ctx),
	})
	if err != nil {
		return nil, err
	}
	return &servov1.ResumeAssetResponse{WasPaused: changed}, nil
}

// pauses returns the pauses of a workspace by asset.
func (s assetService) pauses(ctx context.Context, tenant, workspace string) (map[string]*servov1.AssetPause, error) {
	owner, err := s.tenants.ID(ctx, tenant)
	if err != nil {
		return nil, err
	}
	list, err := s.store.ListAssetPauses(ctx, owner, orDefault(workspace))
	if err != nil {
		return nil, err
	}
	pauses := make(map[string]*servov1.AssetPause, len(list))
	for _, p := range list {
		pauses[p.Asset] = &servov1.AssetPause{PausedAt: timestamp(p.PausedAt), PausedBy: p.PausedBy, Reason: p.Reason}
	}
	return pauses, nil
}
