package api

import (
	"context"

	servov1 "go.arco.dev/servo/gen/servo/v1"
	"go.arco.dev/servo/internal/base/id"
	"go.arco.dev/servo/internal/domain/config"
	"go.arco.dev/servo/internal/edge/intercept"
	"go.arco.dev/servo/internal/engine"
)

// eventService implements servo.v1.EventService.
type eventService struct{ *Server }

// SendEvent implements servov1.EventServiceServer.
func (s eventService) SendEvent(ctx context.Context, req *servov1.SendEventRequest) (*servov1.SendEventResponse, error) {
	tenant, err := s.tenants.ID(ctx, req.GetTenant())
	if err != nil {
		return nil, err
	}
	parameters, err := jsonOfStruct("parameters", req.GetParameters())
	if err != nil {
		return nil, err
	}
	sent, err := s.engine.SendEvent(ctx, engine.SendEvent{
		Tenant: tenant, Workspace: req.GetWorkspace(), Name: req.GetName(), Key: req.GetDedupeKey(), Parameters: parameters,
		Reason: req.GetReason(), Meta: intercept.Meta(ctx),
	})
	if err != nil {
		return nil, err
	}
	out, err := outsideToProto(req.GetTenant(), sent.WorkspaceName, sent.OutsideEvent)
	return &servov1.SendEventResponse{Event: out, Duplicate: sent.Duplicate}, err
}

// GetEvent implements servov1.EventServiceServer.
func (s eventService) GetEvent(ctx context.Context, req *servov1.GetEventRequest) (*servov1.OutsideEvent, error) {
	tenant, err := s.tenants.ID(ctx, req.GetTenant())
	if err != nil {
		return nil, err
	}
	of, err := id.Parse[id.Event]("event", req.GetEvent())
	if err != nil {
		return nil, err
	}
	found, err := s.store.GetEvent(ctx, tenant, of)
	if err != nil {
		return nil, err
	}
	return outsideToProto(req.GetTenant(), found.WorkspaceName, found.OutsideEvent)
}

func outsideToProto(tenant, workspace string, o config.OutsideEvent) (*servov1.OutsideEvent, error) {
	parameters, err := structOf(o.Parameters)
	out := &servov1.OutsideEvent{
		Id: o.ID.String(), Tenant: tenant, Workspace: workspace, Name: o.Name, DedupeKey: o.Key, Parameters: parameters, Reason: o.Reason, SentBy: o.SentBy,
		ReceivedAt: timestamp(o.ReceivedAt), State: servov1.OutsideEvent_PENDING, Listeners: o.Listeners, Runs: o.Runs, Skipped: o.Skipped,
		DoneAt: timestamp(o.DoneAt),
	}
	if !o.DoneAt.IsZero() {
		out.State = servov1.OutsideEvent_DONE
	}
	return out, err
}
