// Package feed is the loop behind event subscriptions: it follows the log and posts what each
// subscription asks for to its URL, at least once and in order. Any number of servers may run
// it. It writes no state of runs, and decides nothing: who hears of what, and when a call is
// repeated, is said by package subscription and the engine.
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
	// taken is how many subscriptions are looked after at once, calls how many are called side
	// by side. One that is slow holds up itself alone; only so many that are slow hold up others.
	taken = 64
	calls = 16
	// page is how many events are read at once. Subscriptions that stand close to each other
	// share a page: those that keep up cost one read together.
	page = 500
	// firstPause is the wait before what could not be written down is tried again.
	firstPause = 20 * time.Millisecond
)

// Config says how a server sends.
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

	// Calls outlive the look that began them.
	ctx     context.Context //nolint:containedctx // of the calls: it ends with Stop
	cancel  context.CancelFunc
	seats   chan struct{}
	running sync.WaitGroup

	mu   sync.Mutex
	wake chan struct{} // closes when somebody who has just heard is to hear more
}

// New makes a feed that looks when it is told to.
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

// Stop ends the loop. What was posted and not written down is posted again by another server.
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

// Once looks once and waits until everybody has heard.
func (f *Feed) Once(ctx context.Context) (more bool, err error) {
	more, err = f.look(ctx)
	f.running.Wait()
	return more, err
}

// look takes subscriptions that are due and begins to tell them a page of what they have not
// heard of. Without anything new it costs two reads and writes nothing.
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
		// The database's time: receivers refuse what is signed by a clock that is off.
		clock: func() time.Time { return now.Add(time.Since(begun)) },
	}
	slices.SortFunc(followers, func(a, b store.Follower) int { return a.After.Compare(b.After) })
	for len(followers) > 0 && err == nil {
		followers, err = r.together(ctx, followers)
	}
	for _, s := range followers { // an error kept them from being looked after: they are due again
		r.idle = append(r.idle, engine.Heard{Of: s, After: s.After})
	}
	_, settled := r.record(ctx, r.idle...)
	return r.more, errors.Join(err, settled)
}

// record writes down where subscriptions stand. A transient error is not taken for the end: until
// the place is written nobody else is told anything, for as long as the lease lasts.
func (r *round) record(ctx context.Context, heard ...engine.Heard) (ours bool, err error) {
	for pause := firstPause; ; pause = min(2*pause, every) {
		ours, err = r.engine.SubscriptionsHeard(ctx, heard...)
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

// round is one look after the subscriptions that were taken.
type round struct {
	*Feed

	until time.Time // then the lease is nearly over
	clock func() time.Time
	more  bool           // somebody who was told nothing has more to look through
	idle  []engine.Heard // what is moved without a call, all at once
}

// together reads a page for the subscription that is farthest behind and tells it, and all that
// stand inside of the page; it gives those that stand further on.
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
		case from < 0 && full: // the next page may have something for it, and for those after it
			return followers[i:], nil
		case from < 0:
			r.idle = append(r.idle, engine.Heard{Of: s, After: s.After})
			continue
		}
		batches, err := s.Batches(events[from:])
		if err != nil {
			return followers[i:], err
		}
		if batches[0].Events == 0 {
			r.more = r.more || full
			r.idle = append(r.idle, engine.Heard{Of: s, After: batches[0].Upto})
			continue
		}
		r.seats <- struct{}{}
		r.running.Go(func() {
			defer func() { <-r.seats }()
			if err := r.tell(r.ctx, s, batches); err != nil {
				r.log.Error("could not write down what a receiver has heard; it is told again", "subscription", s.Name, "tenant", s.Tenant, "error", err)
			}
			if full {
				r.again()
			}
		})
	}
	return nil, nil
}

// tell posts batches one after the other. The place moves when a call was accepted, and only as
// long as the subscription is ours.
func (r *round) tell(ctx context.Context, s store.Follower, batches []subscription.Batch) error {
	for i, b := range batches {
		if time.Now().After(r.until) {
			return nil // what is left is taken again when the lease is over
		}
		failure := r.sender.Post(ctx, webhook.Message{URL: s.URL, ID: b.ID, Secret: s.Secret, Body: b.Body}, r.clock())
		if ctx.Err() != nil {
			return nil // the server stops: nobody knows whether it was heard
		}
		if failure != "" {
			return r.engine.SubscriptionFailed(ctx, s, failure)
		}
		ours, err := r.record(ctx, engine.Heard{Of: s, After: b.Upto, Events: b.Events, Keep: i+1 < len(batches)})
		if err != nil || !ours {
			return err
		}
		s.Tries, s.FailingSince = 0, time.Time{}
	}
	return nil
}
