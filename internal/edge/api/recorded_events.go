package api

import (
	"context"

	servov1 "go.arco.dev/servo/gen/servo/v1"
	"go.arco.dev/servo/internal/base/id"
	"go.arco.dev/servo/internal/base/telemetry"
	"go.arco.dev/servo/internal/store"
)

// ListEvents implements servov1.EventServiceServer.
func (s eventService) ListEvents(ctx context.Context, req *servov1.ListEventsRequest) (*servov1.ListEventsResponse, error) {
	filter := store.RecordedFilter{Type: req.GetType(), Subject: req.GetSubject()}
	var err error
	if filter.Tenant, err = s.ownerOrAll(ctx, req.GetTenant()); err != nil {
		return nil, err
	}
	if filter.From, err = timeOf("from", req.GetFrom()); err != nil {
		return nil, err
	}
	if filter.To, err = timeOf("to", req.GetTo()); err != nil {
		return nil, err
	}
	events, next, err := scan(req, func(p page) ([]store.RecordedEvent, string, error) {
		before, err := store.ParseEventCursor("page_token", p.after)
		if err != nil {
			return nil, "", err
		}
		events, next, err := s.store.RecordedEvents(ctx, filter, before, p.size)
		if err != nil || next == nil {
			return events, "", err
		}
		return events, next.String(), nil
	}, func(e store.RecordedEvent) string { return e.Place.String() }, func(e store.RecordedEvent) int { return len(e.Data) },
		func(e store.RecordedEvent) (*servov1.RecordedEvent, error) { return s.recorded(ctx, e) })
	return &servov1.ListEventsResponse{Events: events, NextPageToken: next}, err
}

func (s eventService) recorded(ctx context.Context, e store.RecordedEvent) (*servov1.RecordedEvent, error) {
	data, err := structOf(e.Data)
	if err != nil {
		return nil, err
	}
	out := &servov1.RecordedEvent{
		Id: e.Place.String(), Type: e.Type, Subject: e.Subject, Version: e.Version, RecordedAt: timestamp(e.At), Actor: e.Actor, Trace: telemetry.Parent(e.Trace), Data: data,
	}
	if e.Run != nil {
		out.Run = e.Run.String()
	}
	if e.Tenant != (id.Tenant{}) {
		out.Tenant, err = s.tenants.Name(ctx, e.Tenant)
	}
	return out, err
}
