// Package alerter has the two loops of alerts: one raises and resolves alerts, one sends messages to the
// channels. Any number of servers may run them. The engine decides what an alert is, which channels receive it
// and when a message is retried.
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
	// taken is how many messages are leased at once, channels how many are called in parallel. A slow channel
	// delays its own messages only.
	taken    = 100
	channels = 16
)

// Config are the options of the loops.
type Config struct {
	Version string // for the User-Agent
	Guard   *netguard.Guard
	Logger  *slog.Logger
}

// Alerter are the running loops.
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

// Stop ends the loops. Another server sends the messages that were leased and not sent.
func (a *Alerter) Stop() {
	for _, l := range a.loops {
		l.Stop()
	}
	a.sender.Close()
}

// send leases due messages and sends them, the channels in parallel. Without messages it costs one statement.
// Each channel receives its messages in order.
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
	// The database's time: receivers refuse signatures by a wrong clock.
	clock := func() time.Time { return now.Add(time.Since(begun)) }
	for _, queue := range byChannel {
		seats <- struct{}{}
		all.Go(func() {
			defer func() { <-seats }()
			if err := a.deliver(ctx, queue, until, clock); err != nil {
				mu.Lock()
				defer mu.Unlock()
				errs = append(errs, err)
			}
		})
	}
	all.Wait()
	return len(messages) == taken, errors.Join(errs...)
}

// deliver sends the messages of one channel until one fails: then the others are not sent, as if they had
// failed too. Messages that cannot be sent before the lease is over are left for the next time.
func (a *Alerter) deliver(ctx context.Context, queue []alert.Message, until time.Time, clock func() time.Time) error {
	failure := ""
	for _, m := range queue {
		if failure == "" {
			if time.Now().After(until) {
				return nil
			}
			failure = a.call(ctx, m, clock())
		}
		if ctx.Err() != nil {
			return nil // the server stops: whether it was received is unknown
		}
		if err := a.engine.MessageSent(ctx, m, failure); err != nil {
			return err
		}
	}
	return nil
}

// call sends one message, and returns why it failed; "" if it was received.
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
