package verify

import (
	"go.arco.dev/servo/internal/domain/subscription"
	"go.arco.dev/servo/internal/domain/tenant"
	"go.arco.dev/servo/internal/store"
)

// Subscriptions are entities with a fold of their own, like configs.
const kindSubscription tenant.Kind = "subscription"

func (c *entityCheck) subscriptionRow(got store.SubscriptionRow) error {
	return entityRow(c, c.tables.subscriptions, kindSubscription, got.TenantID, got.ID, got, func(en *entity) store.SubscriptionRow { return wantSubscription(en.subscription) })
}

func wantSubscription(s subscription.Subscription) store.SubscriptionRow {
	types := s.Types
	if types == nil {
		types = []string{}
	}
	return store.SubscriptionRow{
		TenantID: s.Tenant.UUID, ID: s.ID.UUID, Version: s.Version, Name: s.Name, Url: s.URL, Types: types, Workspace: s.Workspace, Pipeline: s.Pipeline,
		PausedAt: timeOrNull(s.PausedAt), PauseReason: s.PauseReason, CreatedBy: s.CreatedBy, CreatedAt: s.CreatedAt,
		DeletedAt: timeOrNull(s.DeletedAt),
	}
}
