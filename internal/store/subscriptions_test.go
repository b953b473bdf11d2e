package store_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"go.arco.dev/servo/internal/base/event"
	"go.arco.dev/servo/internal/base/fault"
	"go.arco.dev/servo/internal/base/id"
	"go.arco.dev/servo/internal/domain/subscription"
	"go.arco.dev/servo/internal/store"
)

// subscribe writes a subscription of a tenant, or of the installation.
func (w *world) subscribe(t testing.TB, owner id.Tenant, name string) store.Follower {
	t.Helper()
	s := store.Follower{
		Subscription: subscription.Subscription{
			Tenant: owner, ID: id.New[id.Subscription](w.mint), Version: 1, CreatedBy: "jo", CreatedAt: w.now,
			Settings: subscription.Settings{Name: name, URL: "https://example.com/" + name, Types: []string{"run.*"}, Workspace: "prod", Pipeline: "daily"},
		},
		After: event.Position{Epoch: 1, Tx: 7, Position: 8}, Secret: make([]byte, 32),
	}
	w.engine(t, func(tx *Tx) { require.NoError(t, tx.InsertSubscription(t.Context(), s)) })
	return s
}

func TestSubscriptionRows(t *testing.T) {
	t.Parallel()

	t.Run("subscriptions come back as they were written", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t)
		acme, brick := w.account(t, "acme"), w.account(t, "brick")
		mine, all := w.subscribe(t, acme.tenant, "mine"), w.subscribe(t, id.Tenant{}, "all")
		view := func(s store.Follower) []store.FollowerView {
			s.Secret = nil
			return []store.FollowerView{{Follower: s, DueAt: w.now}}
		}
		require.Equal(t, view(mine), must(w.Subscriptions(t.Context(), acme.tenant, ""))(t))
		require.Equal(t, view(all), must(w.Subscriptions(t.Context(), id.Tenant{}, "all"))(t))
		require.Empty(t, must(w.Subscriptions(t.Context(), brick.tenant, "mine"))(t))
		w.engine(t, func(tx *Tx) {
			require.Equal(t, 1, must(tx.CountSubscriptions(t.Context(), acme.tenant))(t))
			locked := must(tx.LockSubscription(t.Context(), acme.tenant, "mine"))(t)
			require.Equal(t, view(mine)[0].Follower, locked)
			_, err := tx.LockSubscription(t.Context(), brick.tenant, "mine")
			require.True(t, fault.Is(err, fault.NotFound), err)
			locked.Version, locked.DeletedAt = 2, w.now
			require.NoError(t, tx.UpdateSubscription(t.Context(), locked, w.now, true))
		})
		require.Empty(t, must(w.Subscriptions(t.Context(), acme.tenant, ""))(t))
		again := w.subscribe(t, acme.tenant, "mine") // the name is free again
		again.ID = id.New[id.Subscription](w.mint)
		err := w.Engine(t.Context(), func(ctx context.Context, tx *Tx) error { return tx.InsertSubscription(ctx, again) })
		require.True(t, fault.Is(err, fault.AlreadyExists), err)
	})

	t.Run("who has lost its lease moves nothing", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t)
		acme := w.account(t, "acme")
		w.subscribe(t, acme.tenant, "mine")
		require.Equal(t, []event.Position{{Epoch: 1, Tx: 7, Position: 8}}, must(w.SubscriptionsDue(t.Context(), 10))(t))
		take := func(now time.Time) (found []store.Follower) {
			w.engine(t, func(tx *Tx) { found = must(tx.TakeSubscriptions(t.Context(), now, time.Minute, 10))(t) })
			return found
		}
		stale := take(w.now)
		require.Len(t, stale, 1)
		require.Len(t, stale[0].Secret, 32)
		require.Empty(t, take(w.now), "it is taken")
		fresh := take(w.now.Add(time.Minute))
		require.Len(t, fresh, 1, "until the lease is over")

		move := func(of store.Follower, tx int64) (counted int) {
			w.engine(t, func(x *Tx) {
				counted = must(x.MoveSubscriptions(t.Context(), w.now, []store.Moved{{Of: of, After: event.Position{Epoch: 1, Tx: tx}, Delivered: 3, Due: w.now.Add(time.Minute)}}))(t)
			})
			return counted
		}
		require.Equal(t, 1, move(fresh[0], 20))
		require.Zero(t, move(stale[0], 10), "neither back")
		require.Zero(t, move(stale[0], 30), "nor ahead")
		w.engine(t, func(tx *Tx) {
			require.False(t, must(tx.FailSubscription(t.Context(), stale[0], w.now, w.now, "late"))(t))
			require.True(t, must(tx.FailSubscription(t.Context(), fresh[0], w.now, w.now.Add(time.Hour), "down"))(t))
		})
		found := must(w.Subscriptions(t.Context(), acme.tenant, "mine"))(t)[0]
		require.Equal(t, event.Position{Epoch: 1, Tx: 20}, found.After)
		require.Equal(t, []any{int64(3), 1, "down", w.now, w.now.Add(time.Hour)}, []any{found.Delivered, found.Tries, found.Error, found.FailingSince, found.DueAt})
		require.Equal(t, 1, must(w.FeedState(t.Context()))(t).Failing)
		require.Equal(t, 1, move(fresh[0], 21))
		found = must(w.Subscriptions(t.Context(), acme.tenant, "mine"))(t)[0]
		require.Equal(t, []any{int64(6), 0, "", time.Time{}}, []any{found.Delivered, found.Tries, found.Error, found.FailingSince}, "what goes well ends a failure")
	})
}

func TestFeedOrigins(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	g := w.newRun(t, w.account(t, "acme"), nil, nil, nil)
	var found []subscription.Recorded
	for len(found) < 5 { // the tenant's, its workspace's, the run's and two of tasks
		found = must(w.Feed(t.Context(), event.Position{}, 10, true))(t)
		require.NoError(t, t.Context().Err())
	}
	for _, e := range found {
		if e.Run == g.run.ID {
			require.Equal(t, []string{"default", g.run.Pipeline}, []string{e.Workspace, e.Pipeline})
		} else {
			require.Empty(t, e.Pipeline)
		}
	}
}
