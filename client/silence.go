package client

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/stats"
)

const (
	// quietAfter is how long a server with open calls may send nothing before it is probed.
	quietAfter = time.Second
	// defaultSilencePatience is how long a server may take to answer a probe, and to acknowledge a
	// claim, which it does before it parks it.
	defaultSilencePatience = time.Second
)

// server is what the client knows about one server: which calls it has open there, when it last
// sent anything, and whether it is put aside because it fell silent. A hung server keeps its
// connections open and accepts calls, so nothing below notices it for a long time.
type server struct {
	address string
	client  *Client

	aside atomic.Bool // calls avoid it until it answers a probe

	mu         sync.Mutex
	receivedAt time.Time
	open       map[*try]struct{}
	watching   bool // a look is due, or a probe is under way
}

func newServer(c *Client, address string) *server {
	return &server{address: address, client: c, open: map[*try]struct{}{}}
}

// opened registers a try that was sent to the server.
func (s *server) opened(t *try) {
	t.server.Store(s)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.open[t] = struct{}{}
	if t.acknowledged {
		t.impatience = time.AfterFunc(s.client.silence, func() {
			if !t.answered.Load() {
				s.fellSilent()
			}
		})
	}
	if !s.watching {
		s.watching, s.receivedAt = true, time.Now()
		time.AfterFunc(quietAfter, s.look)
	}
}

// closed removes a try that has ended.
func (s *server) closed(t *try) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.open, t)
	if t.impatience != nil {
		t.impatience.Stop()
	}
}

// received records that the server has sent data for a try.
func (s *server) received(t *try) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.receivedAt = time.Now()
	if t.impatience != nil {
		t.impatience.Stop()
	}
	s.aside.Store(false)
}

// look probes the server if it has open calls and has sent nothing for a while.
func (s *server) look() {
	s.mu.Lock()
	if len(s.open) == 0 && !s.aside.Load() || s.client.closed.Err() != nil {
		s.watching = false
		s.mu.Unlock()
		return
	}
	wait := quietAfter - time.Since(s.receivedAt)
	s.mu.Unlock()
	if wait <= 0 || s.aside.Load() {
		if !s.probe() { // outside of the lock: its answer takes it
			s.fellSilent()
		}
		wait = quietAfter
	}
	time.AfterFunc(wait, s.look)
}

// probe asks the server for a sign of life. Any answer is one, a refusal too. A server without
// a connection is not asked: it counts as alive once it is connected again.
func (s *server) probe() (alive bool) {
	ctx, cancel := context.WithTimeout(s.client.closed, s.client.silence)
	defer cancel()
	t := &try{only: s}
	_, err := grpc_health_v1.NewHealthClient(s.client.conn).Check(withTry(ctx, t), &grpc_health_v1.HealthCheckRequest{})
	if err != nil && t.server.Load() == nil { // it was not sent
		s.aside.Store(false)
		return true
	}
	return t.answered.Load() || s.client.closed.Err() != nil
}

// fellSilent puts the server aside and lets its open calls be hedged.
func (s *server) fellSilent() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.aside.Swap(true) {
		s.client.log.Warn("server does not respond; calls are sent to other servers until it does", "server", s.address)
	}
	for t := range s.open {
		if t.silent != nil {
			t.silent()
		}
	}
	if !s.watching {
		s.watching = true
		time.AfterFunc(quietAfter, s.look)
	}
}

// try is one try of a call, at one server.
type try struct {
	only         *server   // the only server that it may be sent to
	avoid        []*server // servers that it must not be sent to
	acknowledged bool      // the server sends headers before it works on the call
	silent       func()    // called when its server fell silent; it must not block

	server     atomic.Pointer[server] // where it was sent
	answered   atomic.Bool
	impatience *time.Timer // guarded by the server's mutex
}

// excludes reports whether the try must not be sent to a server. A nil try is a call that is not
// watched.
func (t *try) excludes(s *server) bool {
	return t != nil && (t.only != nil && t.only != s || slices.Contains(t.avoid, s))
}

func (t *try) isProbe() bool { return t != nil && t.only != nil }
func (t *try) isHedge() bool { return t != nil && len(t.avoid) > 0 }

type tryKey struct{}

func withTry(ctx context.Context, t *try) context.Context {
	return context.WithValue(ctx, tryKey{}, t)
}

func tryOf(ctx context.Context) *try {
	t, _ := ctx.Value(tryKey{}).(*try)
	return t
}

// receipts records which servers send data. It implements stats.Handler.
type receipts struct{}

// TagRPC implements stats.Handler.
func (receipts) TagRPC(ctx context.Context, _ *stats.RPCTagInfo) context.Context { return ctx }

// HandleRPC implements stats.Handler.
func (receipts) HandleRPC(ctx context.Context, event stats.RPCStats) {
	switch event.(type) {
	case *stats.InHeader, *stats.InPayload, *stats.InTrailer:
	default:
		return
	}
	if t := tryOf(ctx); t != nil {
		t.answered.Store(true)
		if s := t.server.Load(); s != nil {
			s.received(t)
		}
	}
}

// TagConn implements stats.Handler.
func (receipts) TagConn(ctx context.Context, _ *stats.ConnTagInfo) context.Context { return ctx }

// HandleConn implements stats.Handler.
func (receipts) HandleConn(context.Context, stats.ConnStats) {}
