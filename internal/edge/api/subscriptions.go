package api

import (
	"context"
	"fmt"

	servov1 "go.arco.dev/servo/gen/servo/v1"
	"go.arco.dev/servo/internal/base/fault"
	"go.arco.dev/servo/internal/base/id"
	"go.arco.dev/servo/internal/base/webhook"
	"go.arco.dev/servo/internal/domain/subscription"
	"go.arco.dev/servo/internal/edge/intercept"
	"go.arco.dev/servo/internal/store"
)

// subscriptionService implements servo.v1.SubscriptionService.
type subscriptionService struct{ *Server }

// CreateSubscription implements servov1.SubscriptionServiceServer.
func (s subscriptionService) CreateSubscription(ctx context.Context, req *servov1.CreateSubscriptionRequest) (*servov1.CreateSubscriptionResponse, error) {
	owner, err := s.ownerOrAll(ctx, req.GetTenant())
	if err != nil {
		return nil, err
	}
	if err := s.options.Guard.CheckTarget(ctx, "url", req.GetUrl()); err != nil {
		return nil, err
	}
	made, err := s.engine.CreateSubscription(ctx, owner, subscription.Settings{
		Name: req.GetName(), URL: req.GetUrl(), Types: req.GetTypes(), Workspace: req.GetWorkspace(), Pipeline: req.GetPipeline(),
	}, req.GetFrom(), intercept.Meta(ctx))
	if err != nil {
		return nil, err
	}
	return &servov1.CreateSubscriptionResponse{Subscription: subscriptionToProto(store.FollowerView{Follower: made}), Secret: webhook.SecretText(made.Secret)}, nil
}

// ListSubscriptions implements servov1.SubscriptionServiceServer.
func (s subscriptionService) ListSubscriptions(ctx context.Context, req *servov1.ListSubscriptionsRequest) (*servov1.ListSubscriptionsResponse, error) {
	owner, err := s.ownerOrAll(ctx, req.GetTenant())
	if err != nil {
		return nil, err
	}
	found, err := s.store.Subscriptions(ctx, owner, "")
	if err != nil {
		return nil, err
	}
	return &servov1.ListSubscriptionsResponse{Subscriptions: mapAll(found, subscriptionToProto)}, nil
}

// GetSubscription implements servov1.SubscriptionServiceServer.
func (s subscriptionService) GetSubscription(ctx context.Context, req *servov1.GetSubscriptionRequest) (*servov1.Subscription, error) {
	owner, err := s.ownerOrAll(ctx, req.GetTenant())
	if err != nil {
		return nil, err
	}
	return s.subscription(ctx, owner, req.GetSubscription())
}

// subscription returns a subscription with its lag.
func (s subscriptionService) subscription(ctx context.Context, owner id.Tenant, name string) (*servov1.Subscription, error) {
	var found []store.FollowerView
	var err error
	if name != "" {
		found, err = s.store.Subscriptions(ctx, owner, name)
	}
	if err != nil {
		return nil, err
	}
	if len(found) == 0 {
		return nil, fault.New(fault.NotFound, fmt.Sprintf("no subscription %q", name), fault.Field("subscription"), fault.Remedy("list them with servo subscriptions list"))
	}
	lag, err := s.store.FeedLag(ctx, found[0].After)
	if err != nil {
		return nil, err
	}
	answer := subscriptionToProto(found[0])
	answer.Lag = duration(lag)
	return answer, nil
}

// PauseSubscription implements servov1.SubscriptionServiceServer.
func (s subscriptionService) PauseSubscription(ctx context.Context, req *servov1.PauseSubscriptionRequest) (*servov1.Subscription, error) {
	return s.change(ctx, req, func(owner id.Tenant) error {
		return s.engine.PauseSubscription(ctx, owner, req.GetSubscription(), req.GetReason(), intercept.Meta(ctx))
	})
}

// ResumeSubscription implements servov1.SubscriptionServiceServer.
func (s subscriptionService) ResumeSubscription(ctx context.Context, req *servov1.ResumeSubscriptionRequest) (*servov1.Subscription, error) {
	return s.change(ctx, req, func(owner id.Tenant) error {
		return s.engine.ResumeSubscription(ctx, owner, req.GetSubscription(), intercept.Meta(ctx))
	})
}

// ReplaySubscription implements servov1.SubscriptionServiceServer.
func (s subscriptionService) ReplaySubscription(ctx context.Context, req *servov1.ReplaySubscriptionRequest) (*servov1.Subscription, error) {
	return s.change(ctx, req, func(owner id.Tenant) error {
		return s.engine.ReplaySubscription(ctx, owner, req.GetSubscription(), req.GetFrom(), intercept.Meta(ctx))
	})
}

// aboutSubscription is a request that names a subscription.
type aboutSubscription interface {
	GetTenant() string
	GetSubscription() string
}

// change changes a subscription and returns it.
func (s subscriptionService) change(ctx context.Context, req aboutSubscription, do func(owner id.Tenant) error) (*servov1.Subscription, error) {
	owner, err := s.ownerOrAll(ctx, req.GetTenant())
	if err != nil {
		return nil, err
	}
	if err := do(owner); err != nil {
		return nil, err
	}
	return s.subscription(ctx, owner, req.GetSubscription())
}

// DeleteSubscription implements servov1.SubscriptionServiceServer.
func (s subscriptionService) DeleteSubscription(ctx context.Context, req *servov1.DeleteSubscriptionRequest) (*servov1.DeleteSubscriptionResponse, error) {
	owner, err := s.ownerOrAll(ctx, req.GetTenant())
	if err != nil {
		return nil, err
	}
	return &servov1.DeleteSubscriptionResponse{}, s.engine.DeleteSubscription(ctx, owner, req.GetSubscription(), intercept.Meta(ctx))
}

func subscriptionToProto(f store.FollowerView) *servov1.Subscription {
	answer := &servov1.Subscription{
		Id: f.ID.String(), Name: f.Name, Url: f.URL, Types: f.Types, Workspace: f.Workspace, Pipeline: f.Pipeline,
		State: servov1.Subscription_ACTIVE, Position: f.After.String(), Delivered: f.Delivered, DeliveredAt: timestamp(f.DeliveredAt),
		FailingSince: timestamp(f.FailingSince), Tries: int32(f.Tries), Error: f.Error, //nolint:gosec // a few thousands
		PausedAt: timestamp(f.PausedAt), PauseReason: f.PauseReason, CreatedBy: f.CreatedBy, CreatedAt: timestamp(f.CreatedAt),
	}
	switch {
	case !f.PausedAt.IsZero():
		answer.State = servov1.Subscription_PAUSED
	case !f.FailingSince.IsZero():
		answer.State, answer.AgainAt = servov1.Subscription_FAILING, timestamp(f.DueAt)
	}
	return answer
}
