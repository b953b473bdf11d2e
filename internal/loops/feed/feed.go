// Package feed is the loop of event subscriptions: it follows the log and posts the events of each subscription
// to its URL, at least once and in order. Any number of servers may run it. It writes no state of runs. Package
// subscription and the engine decide which events a subscription receives, and when a call is repeated.
package feed

import (
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"go.arco.dev/servo/internal/base/event"
	"go.arco.dev/servo/internal/base/loop"
	"go.arco.dev/servo/internal/base/netguard"
	"go.arco.dev/servo/internal/base/webhook"
	"go.arco.dev/servo/internal/domain/subscription"
	"go.arco.dev/servo/internal/engine"
	"go.arco.dev/servo/internal/store"
)

// Pace and bounds of the loop.
const (
	every = time.Second
	// taken is how many subscriptions are leased at once, calls how many are called in parallel. A slow receiver
	// delays only itself, unless as many as calls are slow.
	taken = 64
	calls = 16
	// page is how many events are read at once. Subscriptions with close positions share a page: those that keep
	// up cost one read together.
	page = 500
	// firstPause is the wait before a position that could not be written is written again.
	firstPause = 20 * time.Millisecond
)

// Config are the options of the loop.
type Config struct {
	Version string // for the User-Agent
	Guard   *netguard.Guard
	Every   time.Duration
	Logger  *slog.Logger
}

// Feed is the running loop.
type Feed struct {
	store  *store.Store
	engine *engine.Engine
	sender *webhook.Sender
	log    *slog.Logger
	loop   *loop.Loop

	// Calls outlive the round that began them.
	ctx     context.Context //nolint:containedctx // of the calls: it ends with Stop
	cancel  context.CancelFunc
	seats   chan struct{}
	running sync.WaitGroup

	mu   sync.Mutex
	wake chan struct{} // closed when a subscription has more events after a delivery
}

// New returns a feed that works when Once is called.
func New(s *store.Store, e *engine.Engine, config Config) *Feed {
	if config.Logger == nil {
		config.Logger = slog.New(slog.DiscardHandler)
	}
	f := &Feed{store: s, engine: e, sender: webhook.NewSender(config.Version, config.Guard), log: config.Logger, seats: make(chan struct{}, calls), wake: make(chan struct{})}
	f.ctx, f.cancel = context.WithCancel(context.Background())
	return f
}

// Start runs the loop.
func Start(s *store.Store, e *engine.Engine, config Config) *Feed {
	if config.Every == 0 {
		config.Every = every
	}
	f := New(s, e, config)
	f.loop = loop.Start(loop.Config{Name: "feed", Every: config.Every, Wake: f.woken, RunOnce: f.look, Logger: config.Logger})
	return f
}

// Stop ends the loop. Another server posts the events again whose delivery was not recorded.
func (f *Feed) Stop() {
	if f.loop != nil {
		f.loop.Stop()
	}
	f.cancel()
	f.running.Wait()
	f.sender.Close()
}

func (f *Feed) woken() <-chan struct{} {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.wake
}

func (f *Feed) again() {
	f.mu.Lock()
	defer f.mu.Unlock()
	close(f.wake)
	f.wake = make(chan struct{})
}

// Once makes one round and waits for its deliveries.
func (f *Feed) Once(ctx context.Context) (more bool, err error) {
	more, err = f.look(ctx)
	f.running.Wait()
	return more, err
}

// look leases due subscriptions and begins to post a page of new events to them. Without new events it costs two
// reads and writes nothing.
func (f *Feed) look(ctx context.Context) (more bool, err error) {
	begun := time.Now()
	due, err := f.store.SubscriptionsDue(ctx, taken)
	if err != nil || len(due) == 0 {
		return false, err
	}
	news, err := f.store.Feed(ctx, slices.MinFunc(due, event.Position.Compare), 1, false)
	if err != nil || len(news) == 0 {
		return false, err
	}
	followers, now, err := f.engine.TakeSubscriptions(ctx, taken)
	if err != nil {
		return false, err
	}
	r := &round{
		Feed: f, until: begun.Add(f.engine.FollowLease() - 2*webhook.Timeout),
		// The database's time: receivers refuse signatures by a wrong clock.
		clock: func() time.Time { return now.Add(time.Since(begun)) },
	}
	slices.SortFunc(followers, func(a, b store.Follower) int { return a.After.Compare(b.After) })
	for len(followers) > 0 && err == nil {
		followers, err = r.together(ctx, followers)
	}
	for _, s := range followers { // an error kept them from being read: they are due again
		r.idle = append(r.idle, engine.Delivery{Of: s, After: s.After})
	}
	_, settled := r.record(ctx, r.idle...)
	return r.more, errors.Join(err, settled)
}

// record writes the positions of subscriptions. It repeats after a transient error, for as long as the lease
// lasts: no other server sends to them meanwhile.
func (r *round) record(ctx context.Context, deliveries ...engine.Delivery) (ours bool, err error) {
	for pause := firstPause; ; pause = min(2*pause, every) {
		ours, err = r.engine.EventsDelivered(ctx, deliveries...)
		if err == nil || !store.IsTransient(err) || time.Now().After(r.until) {
			return ours, err
		}
		select {
		case <-ctx.Done():
			return ours, err
		case <-time.After(pause/2 + rand.N(pause)): //nolint:gosec // a spread, not a secret
		}
	}
}

// round are the leased subscriptions of one look.
type round struct {
	*Feed

	until time.Time // when the lease is nearly over
	clock func() time.Time
	more  bool              // a subscription without matching events has more to read
	idle  []engine.Delivery // positions that move without a call, all at once
}

// together reads a page for the subscription that is farthest behind, and posts it to that one and all with a
// position inside of the page. It returns the others.
func (r *round) together(ctx context.Context, followers []store.Follower) (rest []store.Follower, err error) {
	origins := slices.ContainsFunc(followers, func(s store.Follower) bool { return s.ByOrigin() })
	events, err := r.store.Feed(ctx, followers[0].After, page, origins)
	if err != nil {
		return followers, err
	}
	full := len(events) == page
	for i, s := range followers {
		from := slices.IndexFunc(events, func(e subscription.Recorded) bool { return e.At.Compare(s.After) > 0 })
		switch {
		case from < 0 && full: // the next page may have events for it, and for those after it
			return followers[i:], nil
		case from < 0:
			r.idle = append(r.idle, engine.Delivery{Of: s, After: s.After})
			continue
		}
		batches, err := s.Batches(events[from:])
		if err != nil {
			return followers[i:], err
		}
		if batches[0].Events == 0 {
			r.more = r.more || full
			r.idle = append(r.idle, engine.Delivery{Of: s, After: batches[0].Upto})
			continue
		}
		r.seats <- struct{}{}
		r.running.Go(func() {
			defer func() { <-r.seats }()
			if err := r.deliver(r.ctx, s, batches); err != nil {
				r.log.Error("could not record a delivery; the events are sent again", "subscription", s.Name, "tenant", s.Tenant, "error", err)
			}
			if full {
				r.again()
			}
		})
	}
	return nil, nil
}

// deliver posts batches one after the other. The position moves when a call was accepted, and only while this
// server holds the lease.
func (r *round) deliver(ctx context.Context, s store.Follower, batches []subscription.Batch) error {
	for i, b := range batches {
		if time.Now().After(r.until) {
			return nil // the rest is sent when the lease is over
		}
		failure := r.sender.Post(ctx, webhook.Message{URL: s.URL, ID: b.ID, Secret: s.Secret, Body: b.Body}, r.clock())
		if ctx.Err() != nil {
			return nil // the server stops: whether it was received is unknown
		}
		if failure != "" {
			return r.engine.SubscriptionFailed(ctx, s, failure)
		}
		ours, err := r.record(ctx, engine.Delivery{Of: s, After: b.Upto, Events: b.Events, Keep: i+1 < len(batches)})
		if err != nil || !ours {
			return err
		}
		s.Tries, s.FailingSince = 0, time.Time{}
	}
	return nil
}
