package engine

import (
	"context"
	"fmt"
	"time"

	"go.arco.dev/servo/internal/base/event"
	"go.arco.dev/servo/internal/base/fault"
	"go.arco.dev/servo/internal/base/id"
	"go.arco.dev/servo/internal/base/webhook"
	"go.arco.dev/servo/internal/domain/subscription"
	"go.arco.dev/servo/internal/store"
)

// Bounds of subscriptions.
const (
	followLease    = time.Minute
	maxFollowError = 500
)

// sender is the actor that pauses subscriptions whose receiver fails.
const sender = "feed"

// FollowLease is how long a subscription is leased to the server that has taken it.
func (*Engine) FollowLease() time.Duration { return followLease }

// CreateSubscription creates a subscription of a tenant, or of the installation if the tenant is zero. It
// receives the events after a position in the feed (now, beginning, or an earlier one). Its secret is not
// shown again.
func (e *Engine) CreateSubscription(ctx context.Context, owner id.Tenant, settings subscription.Settings, from string, meta event.Meta) (made store.Follower, err error) {
	if err := settings.Validate(store.EventTypes()); err != nil {
		return made, err
	}
	err = e.store.Engine(ctx, func(ctx context.Context, tx *store.Tx) error {
		made = store.Follower{Secret: webhook.NewSecret()}
		now, err := tx.Clock(ctx)
		if err != nil {
			return err
		}
		there, err := tx.CountSubscriptions(ctx, owner)
		if err != nil {
			return err
		}
		if there >= subscription.Max {
			return fault.New(fault.LimitExceeded, fmt.Sprintf("there are %d subscriptions", there), fault.Field("name"), fault.Remedy("delete one first"))
		}
		if made.After, err = tx.FeedPlace(ctx, "from", from); err != nil {
			return err
		}
		begun := event.Event{
			Tenant: owner, Subject: id.New[id.Subscription](id.NewMinter(now)).UUID, Version: 1, At: now, Meta: meta,
			Body: subscription.Created{Settings: settings, From: made.After.String()},
		}
		if made.Subscription, err = made.Evolve(begun); err != nil {
			return err
		}
		if err := tx.InsertSubscription(ctx, made); err != nil {
			return err
		}
		return tx.AppendEntityEvents(ctx, begun)
	})
	return made, err
}

// PauseSubscription pauses a subscription. Pausing it again changes nothing.
func (e *Engine) PauseSubscription(ctx context.Context, owner id.Tenant, name, reason string, meta event.Meta) error {
	return e.changeSubscription(ctx, owner, name, meta, func(_ context.Context, _ *store.Tx, s *store.Follower) (event.Body, error) {
		if !s.PausedAt.IsZero() {
			return nil, nil
		}
		return subscription.Paused{Reason: clipped(reason, maxFollowError)}, nil
	})
}

// ResumeSubscription resumes a subscription at its position. Resuming it again changes nothing.
func (e *Engine) ResumeSubscription(ctx context.Context, owner id.Tenant, name string, meta event.Meta) error {
	return e.changeSubscription(ctx, owner, name, meta, func(_ context.Context, _ *store.Tx, s *store.Follower) (event.Body, error) {
		if s.PausedAt.IsZero() {
			return nil, nil
		}
		return subscription.Resumed{}, nil
	})
}

// ReplaySubscription moves a subscription to another position, earlier or later.
func (e *Engine) ReplaySubscription(ctx context.Context, owner id.Tenant, name, from string, meta event.Meta) error {
	return e.changeSubscription(ctx, owner, name, meta, func(ctx context.Context, tx *store.Tx, s *store.Follower) (_ event.Body, err error) {
		s.After, err = tx.FeedPlace(ctx, "from", from)
		return subscription.Replayed{From: s.After.String()}, err
	})
}

// DeleteSubscription deletes a subscription. Events that were not delivered are not sent any more.
func (e *Engine) DeleteSubscription(ctx context.Context, owner id.Tenant, name string, meta event.Meta) error {
	return e.changeSubscription(ctx, owner, name, meta, func(context.Context, *store.Tx, *store.Follower) (event.Body, error) {
		return subscription.Deleted{}, nil
	})
}

// changeSubscription locks a subscription and records the event that decide returns; nil changes nothing. The
// server that sends for it loses its lease, so the result of that call does not move the position.
func (e *Engine) changeSubscription(ctx context.Context, owner id.Tenant, name string, meta event.Meta,
	decide func(ctx context.Context, tx *store.Tx, s *store.Follower) (event.Body, error),
) error {
	return e.store.Engine(ctx, func(ctx context.Context, tx *store.Tx) error {
		s, err := tx.LockSubscription(ctx, owner, name)
		if err != nil {
			return err
		}
		body, err := decide(ctx, tx, &s)
		if err != nil || body == nil {
			return err
		}
		now, err := tx.Clock(ctx)
		if err != nil {
			return err
		}
		return recordSubscription(ctx, tx, s, now, meta, body)
	})
}

func recordSubscription(ctx context.Context, tx *store.Tx, s store.Follower, now time.Time, meta event.Meta, body event.Body) (err error) {
	happened := event.Event{Tenant: s.Tenant, Subject: s.ID.UUID, Version: s.Version + 1, At: now, Meta: meta, Body: body}
	if s.Subscription, err = s.Evolve(happened); err != nil {
		return err
	}
	if err := tx.UpdateSubscription(ctx, s, now, s.PausedAt.IsZero()); err != nil {
		return err
	}
	return tx.AppendEntityEvents(ctx, happened)
}

// TakeSubscriptions leases up to most due subscriptions. The caller reports the outcome of each before the
// lease is over, or another server takes them again. Now is the database's time.
func (e *Engine) TakeSubscriptions(ctx context.Context, most int) (taken []store.Follower, now time.Time, err error) {
	err = e.store.Engine(ctx, func(ctx context.Context, tx *store.Tx) error {
		if now, err = tx.Clock(ctx); err != nil {
			return err
		}
		taken, err = tx.TakeSubscriptions(ctx, now, followLease, most)
		return err
	})
	return taken, now, err
}

// Delivery is the position of a subscription after its receiver has accepted events.
type Delivery struct {
	Of     store.Follower
	After  event.Position
	Events int           // that were accepted; 0 if none matched
	Keep   bool          // more events follow: the caller keeps the lease
	Rest   time.Duration // otherwise: when the subscription is due again
}

// EventsDelivered moves subscriptions forward. All reports that each was still leased to the caller: one that
// was not is not moved.
func (e *Engine) EventsDelivered(ctx context.Context, deliveries ...Delivery) (all bool, err error) {
	if len(deliveries) == 0 {
		return true, nil
	}
	err = e.store.Engine(ctx, func(ctx context.Context, tx *store.Tx) error {
		now, err := tx.Clock(ctx)
		if err != nil {
			return err
		}
		moved := make([]store.Moved, len(deliveries))
		for i, d := range deliveries {
			due := now.Add(d.Rest)
			if d.Keep {
				due = now.Add(followLease)
			}
			moved[i] = store.Moved{Of: d.Of, After: d.After, Delivered: d.Events, Due: due}
		}
		counted, err := tx.MoveSubscriptions(ctx, now, moved)
		all = counted == len(moved)
		return err
	})
	return all, err
}

// SubscriptionFailed records that a call was not accepted: it is retried with a growing delay, and after days
// of failures the subscription is paused.
func (e *Engine) SubscriptionFailed(ctx context.Context, s store.Follower, failure string) error {
	paused, counted := false, false
	var again time.Time
	err := e.store.Engine(ctx, func(ctx context.Context, tx *store.Tx) error {
		now, err := tx.Clock(ctx)
		if err != nil {
			return err
		}
		again = now.Add(subscription.Again(s.Tries))
		if counted, err = tx.FailSubscription(ctx, s, now, again, clipped(failure, maxFollowError)); err != nil || !counted {
			return err
		}
		if s.FailingSince.IsZero() || now.Sub(s.FailingSince) < subscription.PauseAfter {
			return nil
		}
		locked, err := tx.LockSubscription(ctx, s.Tenant, s.Name)
		if err != nil {
			return err
		}
		paused = true
		return recordSubscription(ctx, tx, locked, now, event.Meta{Actor: sender}, subscription.Paused{
			Reason: clipped(fmt.Sprintf("no call was accepted for %s: %s", subscription.PauseAfter, failure), maxFollowError),
		})
	})
	switch {
	case err != nil || !counted:
	case paused:
		e.log.Error("subscription paused: its receiver accepts no calls", "tenant", s.Tenant, "subscription", s.Name, "error", failure)
	default:
		e.log.Warn("events not delivered", "tenant", s.Tenant, "subscription", s.Name, "tries", s.Tries+1, "again", again, "error", failure)
	}
	return err
}
