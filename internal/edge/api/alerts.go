package api

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"
	"google.golang.org/protobuf/types/known/durationpb"

	servov1 "go.arco.dev/servo/gen/servo/v1"
	"go.arco.dev/servo/internal/base/fault"
	"go.arco.dev/servo/internal/base/id"
	"go.arco.dev/servo/internal/base/suggest"
	"go.arco.dev/servo/internal/base/webhook"
	"go.arco.dev/servo/internal/domain/alert"
	"go.arco.dev/servo/internal/edge/intercept"
	"go.arco.dev/servo/internal/store"
)

// alertService implements servo.v1.AlertService.
type alertService struct{ *Server }

// ListAlerts implements servov1.AlertServiceServer.
func (s alertService) ListAlerts(ctx context.Context, req *servov1.ListAlertsRequest) (*servov1.ListAlertsResponse, error) {
	filter := store.AlertFilter{Open: req.GetOpen(), Kind: alert.Kind(req.GetKind())}
	if err := knownKind(filter.Kind); err != nil {
		return nil, err
	}
	if req.GetAllTenants() && req.GetTenant() != "" {
		return nil, fault.New(fault.InvalidArgument, "cannot be combined with tenant", fault.Field("all_tenants"), fault.Remedy("remove one of them"))
	}
	var err error
	if filter.Tenant, err = s.ownerOrAll(ctx, req.GetTenant()); err != nil {
		return nil, err
	}
	alerts, next, err := list(req, func(p page) ([]store.OwnedAlert, error) {
		if before, err := idPosition[id.Alert](p); err != nil {
			return nil, err
		} else if before != nil {
			filter.Before = *before
		}
		if req.GetAllTenants() {
			return s.store.AllOpenAlerts(ctx, filter, p.size+1)
		}
		found, err := s.store.Alerts(ctx, filter, p.size+1)
		return mapAll(found, func(a alert.Alert) store.OwnedAlert { return store.OwnedAlert{Alert: a} }), err
	}, func(a store.OwnedAlert) string { return a.ID.String() }, nil, func(a store.OwnedAlert) (*servov1.Alert, error) {
		out := alertToProto(a.Alert)
		out.Tenant = a.TenantName
		return out, nil
	})
	return &servov1.ListAlertsResponse{Alerts: alerts, NextPageToken: next}, err
}

// knownKind refuses an unknown kind of alert.
func knownKind(kind alert.Kind) error {
	if kind == "" || slices.Contains(alert.Kinds(), kind) {
		return nil
	}
	var kinds []string
	for _, k := range alert.Kinds() {
		kinds = append(kinds, string(k))
	}
	remedy := fmt.Sprintf("use one of %v", kinds)
	if near, ok := suggest.Closest(string(kind), kinds); ok {
		remedy = "did you mean " + near + "?"
	}
	return fault.New(fault.InvalidArgument, fmt.Sprintf("%.100q is not a kind of alert", kind), fault.Field("kind"), fault.Remedy(remedy))
}

// GetAlert implements servov1.AlertServiceServer.
func (s alertService) GetAlert(ctx context.Context, req *servov1.GetAlertRequest) (*servov1.Alert, error) {
	of, err := id.Parse[id.Alert]("alert", req.GetAlert())
	if err != nil {
		return nil, err
	}
	owner, err := s.ownerOrAll(ctx, req.GetTenant())
	if err != nil {
		return nil, err
	}
	found, sent, err := s.store.GetAlert(ctx, owner, of)
	if err != nil {
		return nil, err
	}
	answer := alertToProto(found)
	for _, d := range sent {
		answer.Deliveries = append(answer.Deliveries, &servov1.AlertDelivery{
			Channel: d.Channel, Change: d.Change.String(), Tries: int32(d.Tries), //nolint:gosec // a few dozens
			DeliveredAt: timestamp(d.Delivered), AgainAt: timestamp(d.Again), Error: d.Error,
		})
	}
	return answer, nil
}

func alertToProto(a alert.Alert) *servov1.Alert {
	answer := &servov1.Alert{
		Id: a.ID.String(), Kind: string(a.Kind), Severity: servov1.Alert_Severity(a.Severity), Name: a.Name, Message: a.Message,
		RaisedAt: timestamp(a.RaisedAt), ResolvedAt: timestamp(a.ResolvedAt),
	}
	if a.Kind != alert.ScheduleLag {
		answer.About = a.About.String()
	}
	return answer
}

// CreateAlertChannel implements servov1.AlertServiceServer.
func (s alertService) CreateAlertChannel(ctx context.Context, req *servov1.CreateAlertChannelRequest) (*servov1.CreateAlertChannelResponse, error) {
	owner, err := s.ownerOrAll(ctx, req.GetTenant())
	if err != nil {
		return nil, err
	}
	if err := s.options.Guard.CheckTarget(ctx, "url", req.GetUrl()); err != nil {
		return nil, err
	}
	made, secret, err := s.engine.CreateChannel(ctx, owner, alert.ChannelSettings{
		Name: req.GetName(), URL: req.GetUrl(), Severity: alert.Severity(req.GetSeverity()), //nolint:gosec // the contract bounds it
	}, intercept.Meta(ctx))
	if err != nil {
		return nil, err
	}
	return &servov1.CreateAlertChannelResponse{Channel: channelToProto(made), Secret: webhook.SecretText(secret)}, nil
}

func channelToProto(c alert.Channel) *servov1.AlertChannel {
	return &servov1.AlertChannel{
		Id: c.ID.String(), Name: c.Name, Url: c.URL, Severity: servov1.Alert_Severity(c.Severity),
		CreatedBy: c.CreatedBy, CreatedAt: timestamp(c.CreatedAt),
	}
}

// ListAlertChannels implements servov1.AlertServiceServer.
func (s alertService) ListAlertChannels(ctx context.Context, req *servov1.ListAlertChannelsRequest) (*servov1.ListAlertChannelsResponse, error) {
	owner, err := s.ownerOrAll(ctx, req.GetTenant())
	if err != nil {
		return nil, err
	}
	found, err := s.store.Channels(ctx, owner)
	if err != nil {
		return nil, err
	}
	return &servov1.ListAlertChannelsResponse{Channels: mapAll(found, channelToProto)}, nil
}

// TestAlertChannel implements servov1.AlertServiceServer.
func (s alertService) TestAlertChannel(ctx context.Context, req *servov1.TestAlertChannelRequest) (*servov1.TestAlertChannelResponse, error) {
	owner, err := s.ownerOrAll(ctx, req.GetTenant())
	if err != nil {
		return nil, err
	}
	channel, secret, now, err := s.store.ChannelSecret(ctx, owner, req.GetChannel())
	if err != nil {
		return nil, err
	}
	message := "alert_test_" + uuid.NewString()
	body, err := alert.TestMessage(req.GetTenant(), channel.Name, message, now)
	if err != nil {
		return nil, err
	}
	begun := time.Now()
	status, failure := s.sender.Send(ctx, webhook.Message{URL: channel.URL, ID: message, Secret: secret, Body: body}, now)
	if err := ctx.Err(); err != nil {
		return nil, err // the caller cancelled; the channel did not fail
	}
	return &servov1.TestAlertChannelResponse{
		Delivered: failure == "", Status: status, Error: failure, MessageId: message, Took: durationpb.New(time.Since(begun).Round(time.Millisecond)),
	}, nil
}

// DeleteAlertChannel implements servov1.AlertServiceServer.
func (s alertService) DeleteAlertChannel(ctx context.Context, req *servov1.DeleteAlertChannelRequest) (*servov1.DeleteAlertChannelResponse, error) {
	owner, err := s.ownerOrAll(ctx, req.GetTenant())
	if err != nil {
		return nil, err
	}
	return &servov1.DeleteAlertChannelResponse{}, s.engine.DeleteChannel(ctx, owner, req.GetChannel(), intercept.Meta(ctx))
}
