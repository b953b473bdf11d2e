package store

import (
	"context"
	"time"

	"github.com/google/uuid"

	"go.arco.dev/servo/internal/base/event"
	"go.arco.dev/servo/internal/base/id"
	"go.arco.dev/servo/internal/domain/subscription"
	"go.arco.dev/servo/internal/store/internal/db"
)

// Follower is a subscription with its position. The server that has leased it gets its secret.
type Follower struct {
	subscription.Subscription
	After        event.Position
	Lease        int64
	Tries        int // failed attempts since the last success
	FailingSince time.Time
	Secret       []byte
}

// FollowerView is a subscription with the state of its deliveries.
type FollowerView struct {
	Follower
	DueAt       time.Time // time of the next attempt
	Error       string    // of the last call that failed
	Delivered   int64     // events
	DeliveredAt time.Time
}

// CountSubscriptions counts the subscriptions of a tenant.
func (tx *Tx) CountSubscriptions(ctx context.Context, owner id.Tenant) (int, error) {
	n, err := tx.q.CountSubscriptions(ctx, owner.UUID)
	return int(n), err
}

// InsertSubscription writes a new subscription with its secret and its position.
func (tx *Tx) InsertSubscription(ctx context.Context, s Follower) error {
	types := s.Types
	if types == nil {
		types = []string{}
	}
	err := tx.q.InsertSubscription(ctx, db.InsertSubscriptionParams{
		TenantID: s.Tenant.UUID, ID: s.ID.UUID, Name: s.Name, Url: s.URL, Types: types, Workspace: s.Workspace, Pipeline: s.Pipeline,
		Secret: s.Secret, CreatedBy: s.CreatedBy, Now: s.CreatedAt, AfterEpoch: s.After.Epoch, AfterTx: s.After.Tx, AfterPosition: s.After.Position, AfterOrdinal: s.After.Ordinal,
	})
	return taken(err, "subscription", s.Name)
}

// LockSubscription locks a subscription by its name.
func (tx *Tx) LockSubscription(ctx context.Context, owner id.Tenant, name string) (Follower, error) {
	r, err := tx.q.LockSubscription(ctx, db.LockSubscriptionParams{TenantID: owner.UUID, Name: name})
	if err != nil {
		return Follower{}, notFound(err, "subscription", name)
	}
	return Follower{
		Subscription: subscription.Subscription{
			Tenant: owner, ID: id.Of[id.Subscription](r.ID), Version: r.Version,
			Settings: settingsOf(r.Name, r.Url, r.Types, r.Workspace, r.Pipeline),
			PausedAt: timeOf(r.PausedAt), PauseReason: r.PauseReason, CreatedBy: r.CreatedBy, CreatedAt: r.CreatedAt, DeletedAt: timeOf(r.DeletedAt),
		},
		After: event.Position{Epoch: r.AfterEpoch, Tx: r.AfterTx, Position: r.AfterPosition, Ordinal: r.AfterOrdinal}, Lease: r.Lease, Tries: int(r.Tries), FailingSince: timeOf(r.FailingSince),
	}, nil
}

func settingsOf(name, url string, types []string, workspace, pipeline string) subscription.Settings {
	if len(types) == 0 {
		types = nil
	}
	return subscription.Settings{Name: name, URL: url, Types: types, Workspace: workspace, Pipeline: pipeline}
}

// UpdateSubscription writes the changes of an event to a locked subscription, and its position. It
// ends a lease of the subscription. With again, it resets the failures.
func (tx *Tx) UpdateSubscription(ctx context.Context, s Follower, now time.Time, again bool) error {
	p := db.UpdateSubscriptionParams{
		Version: s.Version, PausedAt: orNil(s.PausedAt), PauseReason: s.PauseReason, DeletedAt: orNil(s.DeletedAt), Again: again,
		AfterEpoch: s.After.Epoch, AfterTx: s.After.Tx, AfterPosition: s.After.Position, AfterOrdinal: s.After.Ordinal, TenantID: s.Tenant.UUID, ID: s.ID.UUID,
	}
	if s.PausedAt.IsZero() && s.DeletedAt.IsZero() {
		p.DueAt = &now
	}
	return tx.q.UpdateSubscription(ctx, p)
}

// SubscriptionsDue returns the positions of subscriptions that are due: one index scan.
func (s *Store) SubscriptionsDue(ctx context.Context, most int) ([]event.Position, error) {
	return read(ctx, s.engine, func(ctx context.Context, tx *Tx) ([]event.Position, error) {
		return list(func(r db.SubscriptionsDueRow) event.Position {
			return event.Position{Epoch: r.AfterEpoch, Tx: r.AfterTx, Position: r.AfterPosition, Ordinal: r.AfterOrdinal}
		})(tx.q.SubscriptionsDue(ctx, int32(most))) //nolint:gosec // a batch size
	})
}

// TakeSubscriptions leases up to most due subscriptions to this server.
func (tx *Tx) TakeSubscriptions(ctx context.Context, now time.Time, lease time.Duration, most int) ([]Follower, error) {
	epochs, err := tx.epochs(ctx)
	if err != nil {
		return nil, err
	}
	return list(func(r db.TakeSubscriptionsRow) Follower {
		return Follower{
			Subscription: subscription.Subscription{
				Tenant: id.Of[id.Tenant](r.TenantID), ID: id.Of[id.Subscription](r.ID), Version: r.Version,
				Settings:  settingsOf(r.Name, r.Url, r.Types, r.Workspace, r.Pipeline),
				CreatedBy: r.CreatedBy, CreatedAt: r.CreatedAt,
			},
			After: epochs.Current(event.Position{Epoch: r.AfterEpoch, Tx: r.AfterTx, Position: r.AfterPosition, Ordinal: r.AfterOrdinal}),
			Lease: r.Lease, Tries: int(r.Tries), FailingSince: timeOf(r.FailingSince), Secret: r.Secret,
		}
	})(tx.q.TakeSubscriptions(ctx, db.TakeSubscriptionsParams{Now: now, Until: now.Add(lease), Most: int32(most)})) //nolint:gosec // a batch size
}

// Moved is the new position of a leased subscription, and its next due time.
type Moved struct {
	Of        Follower
	After     event.Position
	Delivered int // events since the last update
	Due       time.Time
}

// MoveSubscriptions writes the positions of subscriptions, and returns how many of them were still
// leased by the caller.
func (tx *Tx) MoveSubscriptions(ctx context.Context, now time.Time, moved []Moved) (counted int, err error) {
	n, err := tx.q.MoveSubscriptions(ctx, db.MoveSubscriptionsParams{
		Now:       now,
		TenantIds: column(moved, func(m Moved) uuid.UUID { return m.Of.Tenant.UUID }),
		Ids:       column(moved, func(m Moved) uuid.UUID { return m.Of.ID.UUID }),
		Leases:    column(moved, func(m Moved) int64 { return m.Of.Lease }),
		Epochs:    column(moved, func(m Moved) int32 { return m.After.Epoch }),
		Txs:       column(moved, func(m Moved) int64 { return m.After.Tx }),
		Positions: column(moved, func(m Moved) int64 { return m.After.Position }),
		Ordinals:  column(moved, func(m Moved) int32 { return m.After.Ordinal }),
		Delivered: column(moved, func(m Moved) int64 { return int64(m.Delivered) }),
		DueAts:    column(moved, func(m Moved) time.Time { return m.Due }),
	})
	return int(n), err
}

// FailSubscription records a failed delivery.
func (tx *Tx) FailSubscription(ctx context.Context, s Follower, now, again time.Time, failure string) (counted bool, err error) {
	n, err := tx.q.FailSubscription(ctx, db.FailSubscriptionParams{DueAt: again, Now: now, Error: failure, TenantID: s.Tenant.UUID, ID: s.ID.UUID, Lease: s.Lease})
	return n > 0, err
}

// Subscriptions returns the subscriptions of a tenant, or of the installation, by name; only one if
// a name is given.
func (s *Store) Subscriptions(ctx context.Context, owner id.Tenant, name string) ([]FollowerView, error) {
	return read(ctx, s.ownedBy(owner), func(ctx context.Context, tx *Tx) ([]FollowerView, error) {
		return list(func(r db.ListSubscriptionsRow) FollowerView {
			return FollowerView{
				Follower: Follower{
					Subscription: subscription.Subscription{
						Tenant: owner, ID: id.Of[id.Subscription](r.ID), Version: r.Version,
						Settings: settingsOf(r.Name, r.Url, r.Types, r.Workspace, r.Pipeline),
						PausedAt: timeOf(r.PausedAt), PauseReason: r.PauseReason, CreatedBy: r.CreatedBy, CreatedAt: r.CreatedAt,
					},
					After: event.Position{Epoch: r.AfterEpoch, Tx: r.AfterTx, Position: r.AfterPosition, Ordinal: r.AfterOrdinal}, Tries: int(r.Tries), FailingSince: timeOf(r.FailingSince),
				},
				DueAt: timeOf(r.DueAt), Error: r.Error, Delivered: r.Delivered, DeliveredAt: timeOf(r.DeliveredAt),
			}
		})(tx.q.ListSubscriptions(ctx, db.ListSubscriptionsParams{TenantID: owner.UUID, Name: name}))
	})
}
