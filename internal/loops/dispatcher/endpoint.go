package dispatcher

import (
	"net/http"
	"time"

	"go.arco.dev/servo/internal/base/netguard"
	"go.arco.dev/servo/internal/domain/platform"
	"go.arco.dev/servo/internal/domain/push"
	"go.arco.dev/servo/internal/store"
)

// endpoint is a push pool as this server calls it. The lock of Dispatch guards it.
type endpoint struct {
	pool    store.PushPool
	client  *http.Client
	breaker *push.Breaker
	bucket  *push.Bucket
	most    int // calls at once

	open      int // calls now
	counts    Counts
	lastError string
	waitUntil time.Time // requested by the endpoint
}

// Counts are the outcomes of this server's calls of a pool.
type Counts struct {
	Sent     int64 // calls that have ended
	Accepted int64 // answered 202: reported later
	Done     int64 // answered with a result, success or failure
	Failed   int64 // neither
}

func newEndpoint(pool store.PushPool, config Config, now time.Time) *endpoint {
	return &endpoint{
		pool: pool, client: clientOf(pool, config), breaker: push.NewBreaker(config.Breaker), bucket: push.NewBucket(rateOf(pool), now), most: config.Calls,
	}
}

func clientOf(pool store.PushPool, config Config) *http.Client {
	return netguard.New(netguard.Options{Guard: config.Guard, Timeout: pool.Timeout()})
}

// rateOf is this server's part of the pool's rate: all live servers have the same part. A server that starts or
// stops changes it within seconds.
func rateOf(pool store.PushPool) float64 {
	return float64(pool.RatePerSecond) / float64(max(pool.Servers, 1))
}

// configure applies changed options of the pool. A new URL resets breaker and rate.
func (e *endpoint) configure(pool store.PushPool, config Config, now time.Time) {
	if rate := rateOf(pool); rate != e.bucket.Rate() {
		e.bucket.SetRate(rate, now)
	}
	if pool.Version != e.pool.Version {
		e.client.CloseIdleConnections() // calls in flight have the old one
		e.client = clientOf(pool, config)
		if pool.URL != e.pool.URL {
			e.breaker, e.lastError, e.waitUntil = push.NewBreaker(config.Breaker), "", time.Time{}
		}
	}
	e.pool = pool
}

// slots is the capacity of this server for the pool.
func (e *endpoint) slots() int {
	if e.pool.MaxConcurrency == platform.NoLimit {
		return unlimitedSlots
	}
	return min(int(e.pool.MaxConcurrency), unlimitedSlots)
}

// room is how many calls may begin now. With none, wait is how long until one may, 0 if that is unknown.
func (e *endpoint) room(now time.Time) (int, time.Duration) {
	if wait := e.waitUntil.Sub(now); wait > 0 {
		return 0, wait
	}
	room := min(e.breaker.Room(now), e.bucket.Room(now), e.most-e.open)
	if room > 0 {
		return room, 0
	}
	if at := e.breaker.RetryAt(now); !at.IsZero() {
		return 0, at.Sub(now)
	}
	if wait := e.bucket.Wait(now); wait > 0 && e.bucket.Rate() > 0 {
		return 0, wait
	}
	return 0, 0 // the end of a call makes room
}

func (e *endpoint) begin(now time.Time) (push.Call, bool) {
	e.open++
	e.bucket.Take(1, now)
	return e.breaker.Begin(now)
}

func (e *endpoint) end(f *flight, o outcome, now time.Time) {
	e.open--
	e.counts.Sent++
	switch o.kind {
	case accepted:
		e.counts.Accepted++
	case done:
		e.counts.Done++
	case failed, abandoned:
		e.counts.Failed++
	}
	if o.kind == failed {
		e.lastError = o.failure.Code + ": " + o.failure.Message
	}
	if o.wait > 0 {
		e.waitUntil = now.Add(min(o.wait, maxWait))
	}
	switch {
	case !f.counted:
	case o.kind == abandoned:
		e.breaker.Drop(f.call)
	default:
		e.breaker.End(f.call, o.worked, now)
	}
}

// maxWait bounds the delay that an endpoint may request.
const maxWait = 5 * time.Minute

// Status is the state of a push pool's endpoint, as this server sees it.
type Status struct {
	Pool      string
	State     push.BreakerState
	RetryAt   time.Time // when an open breaker is tried
	Open      int       // calls now
	LastError string
	Counts
}

// Stats returns the state of every push pool's endpoint.
func (d *Dispatch) Stats() []Status {
	d.mu.Lock()
	defer d.mu.Unlock()
	stats := make([]Status, 0, len(d.endpoints))
	for _, e := range d.endpoints {
		stats = append(stats, e.status(time.Now()))
	}
	return stats
}

// Pool returns the state of one push pool's endpoint.
func (d *Dispatch) Pool(name string) (Status, bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	e, known := d.endpoints[name]
	if !known {
		return Status{}, false
	}
	return e.status(time.Now()), true
}

func (e *endpoint) status(now time.Time) Status {
	return Status{
		Pool: e.pool.Name, State: e.breaker.State(now), RetryAt: e.breaker.RetryAt(now), Open: e.open, LastError: e.lastError, Counts: e.counts,
	}
}
