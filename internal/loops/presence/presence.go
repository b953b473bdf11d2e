// Package presence connects a server with the others: it announces the server and the workers that it has seen,
// and receives their notices. Only latency depends on it: a server without notices polls.
package presence

import (
	"context"
	"log/slog"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"go.arco.dev/servo/internal/base/loop"
	"go.arco.dev/servo/internal/engine"
	"go.arco.dev/servo/internal/store"
)

// Times of presence.
const (
	renewEvery = 5 * time.Second
	// startPatience bounds how long the start waits until this server receives its own notice.
	startPatience = 3 * time.Second
	// deafAfter is when a warning reports that notices do not arrive.
	deafAfter = 10 * time.Second

	// matchBatch bounds the queued tasks that leave their queue at once when workers have changed.
	matchBatch = 500

	firstBackoff = 100 * time.Millisecond
	maxBackoff   = 10 * time.Second
)

// Config are the options of the loop.
type Config struct {
	Name    string
	Version string
	// ListenURL leads to the database without a pooler in between; "" does not listen.
	ListenURL string
	Logger    *slog.Logger
}

// Presence are the running loop and the listener.
type Presence struct {
	store  *store.Store
	engine *engine.Engine
	config Config
	start  time.Time

	loop      *loop.Loop
	cancel    context.CancelFunc
	listener  sync.WaitGroup
	ready     chan struct{} // closed when this server has received its own notice for the first time
	readyOnce func()
	receives  atomic.Bool // since the listener has connected last
}

// Start announces the server and begins to listen. It returns when the server receives notices, or after
// startPatience.
func Start(ctx context.Context, s *store.Store, e *engine.Engine, config Config) *Presence {
	if config.Logger == nil {
		config.Logger = slog.New(slog.DiscardHandler)
	}
	p := &Presence{store: s, engine: e, config: config, start: time.Now(), ready: make(chan struct{})}
	p.readyOnce = sync.OnceFunc(func() { close(p.ready) })
	p.loop = loop.Start(loop.Config{Name: "presence", Every: renewEvery, Wake: e.NewWorker, RunOnce: p.renew, Logger: config.Logger}) //nolint:contextcheck // it lives until Stop
	listening, cancel := context.WithCancel(context.WithoutCancel(ctx))
	p.cancel = cancel
	if config.ListenURL == "" {
		return p
	}
	p.listener.Go(func() { p.listen(listening) })
	patience := time.NewTimer(startPatience)
	defer patience.Stop()
	select {
	case <-p.ready:
	case <-patience.C:
	case <-ctx.Done():
	}
	return p
}

// Stop ends both, and removes the server from the list. Later changes of this server are not sent to others.
func (p *Presence) Stop(ctx context.Context) error {
	p.cancel()
	p.listener.Wait()
	p.loop.Stop()
	return p.store.RemoveServer(ctx, p.config.Name)
}

func (p *Presence) renew(ctx context.Context) (more bool, err error) {
	workers, named, news := p.engine.SeenWorkers()
	others, err := p.store.RenewPresence(ctx, store.Presence{
		Name: p.config.Name, Version: p.config.Version, StartedAt: p.start, Workers: workers, Alive: named,
	})
	if err != nil {
		return false, err
	}
	p.engine.SetOthers(others)
	if !news {
		return false, nil
	}
	p.engine.WorkersKnown()
	_, err = p.engine.MatchWorkers(ctx, matchBatch)
	return false, err
}

// listen receives notices until it is stopped, and connects again after an error.
func (p *Presence) listen(ctx context.Context) {
	backoff := firstBackoff
	for ctx.Err() == nil {
		deaf := time.AfterFunc(deafAfter, p.warnDeaf)
		err := store.Listen(ctx, p.config.ListenURL, func() {
			backoff = firstBackoff
			p.engine.SetListening(true) // sends a notice, which this server receives too
		}, p.receive)
		deaf.Stop()
		p.receives.Store(false)
		p.engine.SetListening(false)
		if ctx.Err() != nil {
			return
		}
		p.config.Logger.Warn("not receiving notices of other servers; polling instead", "error", err, "again_in", backoff)
		pause := time.NewTimer(backoff/2 + time.Duration(rand.Int64N(int64(backoff/2)+1))) //nolint:gosec // a spread, not a secret
		select {
		case <-pause.C:
		case <-ctx.Done():
			pause.Stop()
		}
		backoff = min(2*backoff, maxBackoff)
	}
}

func (p *Presence) receive(notice string) {
	if p.engine.Receive(notice) {
		p.receives.Store(true)
		p.readyOnce()
	}
}

// warnDeaf warns that no notice arrives: the connection accepts LISTEN but leads to a pooler.
func (p *Presence) warnDeaf() {
	if !p.receives.Load() {
		p.config.Logger.Warn("notices of servers do not arrive; polling instead; " +
			"behind a pooler set the database's own address with --listen-database")
	}
}
