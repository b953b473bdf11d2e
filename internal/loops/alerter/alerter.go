// Package alerter is the two loops behind alerts: one looks what holds and what is over, one
// tells the channels. Any number of servers may run them. It decides nothing: what an alert is,
// who hears of it and when a message is tried again is said by the engine.
package alerter

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"go.arco.dev/servo/internal/base/id"
	"go.arco.dev/servo/internal/base/loop"
	"go.arco.dev/servo/internal/base/netguard"
	"go.arco.dev/servo/internal/base/webhook"
	"go.arco.dev/servo/internal/domain/alert"
	"go.arco.dev/servo/internal/engine"
	"go.arco.dev/servo/internal/store"
)

// Times and bounds of the loops.
const (
	watchEvery = 2 * time.Second
	sendEvery  = time.Second
	// taken is how many messages are taken at once, channels how many are called side by side.
	// A channel that is slow holds up its own messages only.
	taken    = 100
	channels = 16
)

// Config says how a server tells of alerts.
type Config struct {
	Version string // for the User-Agent
	Guard   *netguard.Guard
	Logger  *slog.Logger
}

// Alerter is the running loops.
type Alerter struct {
	store  *store.Store
	engine *engine.Engine
	sender *webhook.Sender
	loops  []*loop.Loop
}

// Start runs the loops.
func Start(s *store.Store, e *engine.Engine, config Config) *Alerter {
	a := &Alerter{store: s, engine: e, sender: webhook.NewSender(config.Version, config.Guard)}
	a.loops = []*loop.Loop{
		loop.Start(loop.Config{Name: "alerts", Every: watchEvery, RunOnce: e.Watch, Logger: config.Logger}),
		loop.Start(loop.Config{Name: "alert messages", Every: sendEvery, Wake: e.Alerts, RunOnce: a.send, Logger: config.Logger}),
	}
	return a
}

// Stop ends the loops. What was taken and not said is taken again by another server.
func (a *Alerter) Stop() {
	for _, l := range a.loops {
		l.Stop()
	}
	a.sender.Close()
}

// send takes what is due and tells the channels, side by side; without anything it costs one
// look. A channel hears its messages in their order.
func (a *Alerter) send(ctx context.Context) (more bool, err error) {
	due, err := a.store.MessagesDue(ctx)
	if err != nil || !due {
		return false, err
	}
	begun := time.Now()
	messages, now, err := a.engine.TakeMessages(ctx, taken)
	if err != nil {
		return false, err
	}
	byChannel := map[id.Channel][]alert.Message{}
	for _, m := range messages {
		byChannel[m.Channel.ID] = append(byChannel[m.Channel.ID], m)
	}
	var (
		all   sync.WaitGroup
		seats = make(chan struct{}, channels)
		mu    sync.Mutex
		errs  []error
	)
	until := begun.Add(a.engine.MessageLease() - 2*webhook.Timeout)
	// The database's time: receivers refuse what is signed by a clock that is off.
	clock := func() time.Time { return now.Add(time.Since(begun)) }
	for _, queue := range byChannel {
		seats <- struct{}{}
		all.Go(func() {
			defer func() { <-seats }()
			if err := a.tell(ctx, queue, until, clock); err != nil {
				mu.Lock()
				defer mu.Unlock()
				errs = append(errs, err)
			}
		})
	}
	all.Wait()
	return len(messages) == taken, errors.Join(errs...)
}

// tell sends the messages of one channel until one fails: then the others are not tried, as if
// they had failed too. What cannot be said before the lease is over is left for the next time.
func (a *Alerter) tell(ctx context.Context, queue []alert.Message, until time.Time, clock func() time.Time) error {
	failure := ""
	for _, m := range queue {
		if failure == "" {
			if time.Now().After(until) {
				return nil
			}
			failure = a.call(ctx, m, clock())
		}
		if ctx.Err() != nil {
			return nil // the server stops: nobody knows whether it was heard
		}
		if err := a.engine.MessageSent(ctx, m, failure); err != nil {
			return err
		}
	}
	return nil
}

// call says one message, and why it was not heard.
func (a *Alerter) call(ctx context.Context, m alert.Message, now time.Time) (failure string) {
	if !m.Channel.DeletedAt.IsZero() {
		return "the channel was deleted"
	}
	body, err := m.Body()
	if err != nil {
		return err.Error()
	}
	return a.sender.Post(ctx, webhook.Message{
		URL: m.Channel.URL, ID: m.ID(), Secret: m.Secret, Body: body,
	}, now)
}
