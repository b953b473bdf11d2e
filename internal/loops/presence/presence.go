// Package presence keeps a server in touch with the others: it says that the server is there
// and which workers it has seen, and listens to what other servers have done. Nothing depends
// on it but time: who hears nothing looks by itself, only later.
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
	// startPatience bounds how long the start waits until this server hears itself.
	startPatience = 3 * time.Second
	// deafAfter is when it is said that notices do not arrive.
	deafAfter = 10 * time.Second

	// matchBatch bounds the queued tasks that leave their queue at once when workers have changed.
	matchBatch = 500

	firstBackoff = 100 * time.Millisecond
	maxBackoff   = 10 * time.Second
)

// Config says who this server is.
type Config struct {
	Name    string
	Version string
	// ListenURL leads to the database without a pooler in between; "" does not listen.
	ListenURL string
	Logger    *slog.Logger
}

// Presence is the running loop and the listener.
type Presence struct {
	store  *store.Store
	engine *engine.Engine
	config Config
	start  time.Time

	loop      *loop.Loop
	cancel    context.CancelFunc
	listener  sync.WaitGroup
	heard     chan struct{} // closed when this server has heard itself for the first time
	hearsOnce func()
	hears     atomic.Bool // since the listener has connected last
}

// Start says that the server is there and begins to listen. It returns when the server hears
// what others tell; if that does not come about soon it goes on without.
func Start(ctx context.Context, s *store.Store, e *engine.Engine, config Config) *Presence {
	if config.Logger == nil {
		config.Logger = slog.New(slog.DiscardHandler)
	}
	p := &Presence{store: s, engine: e, config: config, start: time.Now(), heard: make(chan struct{})}
	p.hearsOnce = sync.OnceFunc(func() { close(p.heard) })
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
	case <-p.heard:
	case <-patience.C:
	case <-ctx.Done():
	}
	return p
}

// Stop ends both, and takes the server's name off the list. What is done after it is not told
// to anybody any more.
func (p *Presence) Stop(ctx context.Context) error {
	p.cancel()
	p.listener.Wait()
	p.loop.Stop()
	return p.store.RemoveServer(ctx, p.config.Name)
}

func (p *Presence) renew(ctx context.Context) (more bool, err error) {
	workers, heard, news := p.engine.SeenWorkers()
	others, err := p.store.RenewPresence(ctx, store.Presence{
		Name: p.config.Name, Version: p.config.Version, StartedAt: p.start, Workers: workers, Alive: heard,
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

// listen hears what others tell until it is stopped, over one connection after another.
func (p *Presence) listen(ctx context.Context) {
	backoff := firstBackoff
	for ctx.Err() == nil {
		deaf := time.AfterFunc(deafAfter, p.sayDeaf)
		err := store.Listen(ctx, p.config.ListenURL, func() {
			backoff = firstBackoff
			p.engine.SetListening(true) // it tells something, and so hears itself
		}, p.hear)
		deaf.Stop()
		p.hears.Store(false)
		p.engine.SetListening(false)
		if ctx.Err() != nil {
			return
		}
		p.config.Logger.Warn("not listening to other servers: looking from time to time instead", "error", err, "again_in", backoff)
		pause := time.NewTimer(backoff/2 + time.Duration(rand.Int64N(int64(backoff/2)+1))) //nolint:gosec // a spread, not a secret
		select {
		case <-pause.C:
		case <-ctx.Done():
			pause.Stop()
		}
		backoff = min(2*backoff, maxBackoff)
	}
}

func (p *Presence) hear(notice string) {
	if p.engine.Receive(notice) {
		p.hears.Store(true)
		p.hearsOnce()
	}
}

// sayDeaf: a connection on which one may listen and nothing comes is a pooler's.
func (p *Presence) sayDeaf() {
	if !p.hears.Load() {
		p.config.Logger.Warn("nothing of what servers tell each other arrives: looking from time to time instead; " +
			"behind a pooler give the database's own address with --listen-database")
	}
}
