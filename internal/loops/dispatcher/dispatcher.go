// Package dispatcher is the loop that sends tasks of push pools to their URLs. Any number of servers may run it:
// each claims as a worker does, signs an envelope for every lease and posts it. It decides nothing about tasks:
// the answer of an endpoint becomes a report, and later reports arrive as callbacks, at any server.
package dispatcher

import (
	"context"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/google/uuid"

	"go.arco.dev/servo/internal/base/event"
	"go.arco.dev/servo/internal/base/id"
	"go.arco.dev/servo/internal/base/loop"
	"go.arco.dev/servo/internal/base/netguard"
	"go.arco.dev/servo/internal/domain/push"
	"go.arco.dev/servo/internal/engine"
	"go.arco.dev/servo/internal/store"
)

// Times and bounds of the loop.
const (
	look = time.Second // between rounds without a signal
	// lookWithout is the same without a push pool: the creation of one wakes the loop.
	lookWithout = 10 * time.Second
	// callsAtOnce is how many calls of one pool a server makes at once.
	callsAtOnce = 100
	// unlimitedSlots is the capacity that a server announces for a pool without a limit: accepted tasks are not
	// held here.
	unlimitedSlots = 1000
	// drainFor is how long a stopping server waits for its calls.
	drainFor = 5 * time.Second
	// holdFor is how long a lease lasts without a heartbeat of this server: when it dies, other servers send its
	// tasks after that time. It is five heartbeats.
	holdFor = 5 * beatEvery
)

// Config are the options of the loop.
type Config struct {
	Server    string             // its name
	PublicURL string             // where workers reach the servers
	Calls     int                // of one pool at once; 0 is callsAtOnce
	Breaker   push.BreakerConfig // of each pool
	Guard     *netguard.Guard    // permits or refuses addresses
	Drain     time.Duration      // how long a stopping server waits for its calls; 0 is drainFor
	Logger    *slog.Logger
}

// Dispatch is the running loop.
type Dispatch struct {
	engine *engine.Engine
	store  *store.Store
	config Config
	log    *slog.Logger
	loop   *loop.Loop

	mu        sync.Mutex
	endpoints map[string]*endpoint
	names     map[id.Tenant]string
	flights   map[*flight]bool
	released  bool      // the leases of a former process of this server were returned
	nextLook  time.Time // when to look for tasks without a signal
	rung      chan struct{}
	unwait    func()

	calling context.Context //nolint:containedctx // of the calls, which outlive a round
	cancel  context.CancelFunc
	calls   sync.WaitGroup
	beating sync.WaitGroup
	stopped chan struct{}
}

// Start runs the loop.
func Start(ctx context.Context, s *store.Store, e *engine.Engine, config Config) *Dispatch {
	if config.Calls == 0 {
		config.Calls = callsAtOnce
	}
	if config.Drain == 0 {
		config.Drain = drainFor
	}
	if config.Logger == nil {
		config.Logger = slog.New(slog.DiscardHandler)
	}
	d := &Dispatch{
		engine: e, store: s, config: config, log: config.Logger, endpoints: map[string]*endpoint{}, names: map[id.Tenant]string{},
		flights: map[*flight]bool{}, rung: make(chan struct{}), unwait: func() {}, stopped: make(chan struct{}),
	}
	d.calling, d.cancel = context.WithCancel(context.WithoutCancel(ctx))
	d.beating.Go(d.keepLeases)
	d.loop = loop.Start(loop.Config{Name: "dispatch", Every: look, Wake: d.wake, RunOnce: d.runOnce, Logger: config.Logger}) //nolint:contextcheck // it lives until Stop
	return d
}

// Stop ends claiming, waits for calls up to Drain, and returns the tasks of those that have not ended.
func (d *Dispatch) Stop() {
	d.loop.Stop()
	d.mu.Lock()
	d.unwait()
	d.unwait = func() {}
	d.mu.Unlock()
	patience := time.AfterFunc(d.config.Drain, d.cancel)
	d.calls.Wait()
	patience.Stop()
	d.cancel()
	close(d.stopped)
	d.beating.Wait()
	for _, e := range d.endpoints {
		e.client.CloseIdleConnections()
	}
}

// wake returns a channel that is closed when a task may be sent: a task was queued, a call has ended, or a
// breaker or a rate has room again.
func (d *Dispatch) wake() <-chan struct{} {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.unwait()
	d.rung = make(chan struct{})
	rung, quit := d.rung, make(chan struct{})
	names := make([]string, 0, len(d.endpoints))
	for name := range d.endpoints {
		names = append(names, name)
	}
	work, stop := d.engine.PushWork(names)
	d.unwait = func() {
		stop()
		close(quit)
	}
	go func() {
		select {
		case <-work:
			d.ring(rung)
		case <-quit:
		}
	}()
	return rung
}

// ring wakes the loop, if it still waits for this channel.
func (d *Dispatch) ring(rung chan struct{}) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.ringLocked(rung)
}

func (d *Dispatch) ringLocked(rung chan struct{}) {
	d.nextLook = time.Time{}
	if rung != d.rung {
		return
	}
	select {
	case <-rung:
	default:
		close(rung)
	}
}

// runOnce sends queued tasks of all pools, as far as there is room.
func (d *Dispatch) runOnce(ctx context.Context) (more bool, err error) {
	if err := d.releaseFormer(ctx); err != nil {
		return false, err
	}
	d.announce()
	if !d.due(time.Now()) {
		return false, nil
	}
	pools, err := d.engine.PushPools(ctx)
	if err != nil {
		return false, err
	}
	if d.adopt(pools) {
		d.announce()
		more = true // look again, now that their queues wake the loop
	}
	queued := slices.ContainsFunc(pools, func(p store.PushPool) bool { return p.Queued })
	if !queued {
		return more, nil
	}
	keys, now, err := d.engine.Keyring(ctx)
	if err != nil {
		return false, err
	}
	key, err := keys.Signing(now)
	if err != nil {
		d.unsigned(err)
		return false, nil
	}
	for _, pool := range pools {
		if !pool.Queued {
			continue
		}
		full, err := d.serve(ctx, d.endpoint(pool.Name), signer{key: key, ahead: time.Until(now)})
		if err != nil {
			return false, err
		}
		more = more || full
	}
	return more, nil
}

// due reports whether it is time to look for tasks.
func (d *Dispatch) due(now time.Time) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if now.Before(d.nextLook) {
		return false
	}
	if len(d.endpoints) == 0 {
		d.nextLook = now.Add(lookWithout)
	}
	return true
}

// announce reports the capacity of this server for each pool, as workers do with claims.
func (d *Dispatch) announce() {
	d.mu.Lock()
	defer d.mu.Unlock()
	for name, e := range d.endpoints {
		if slots := e.slots(); slots > 0 {
			d.engine.ServesPush(d.worker(name), name, slots)
		}
	}
}

// releaseFormer returns, once, the tasks that a killed process with this server's name had claimed and not sent.
func (d *Dispatch) releaseFormer(ctx context.Context) error {
	if d.released {
		return nil
	}
	err := d.engine.ReleaseUnstarted(ctx, d.worker(""), event.Meta{Actor: actor})
	d.released = err == nil
	return err
}

// worker is the name by which this server serves a pool.
func (d *Dispatch) worker(pool string) string { return engine.DispatcherName(d.config.Server, pool) }

// adopt updates the endpoints from the pools, and reports whether there are new ones.
func (d *Dispatch) adopt(pools []store.PushPool) (news bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	there := map[string]bool{}
	for _, pool := range pools {
		there[pool.Name] = true
		e := d.endpoints[pool.Name]
		if e == nil || e.pool.CreatedAt != pool.CreatedAt {
			d.endpoints[pool.Name] = newEndpoint(pool, d.config, time.Now())
			news = true
			continue
		}
		e.configure(pool, d.config, time.Now())
	}
	for name := range d.endpoints {
		if !there[name] {
			delete(d.endpoints, name)
		}
	}
	return news
}

func (d *Dispatch) endpoint(pool string) *endpoint {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.endpoints[pool]
}

// unsigned records for every pool that nothing can be sent without a signing key.
func (d *Dispatch) unsigned(err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, e := range d.endpoints {
		if e.lastError != err.Error() {
			d.log.Error("nothing can be sent to a push pool", "pool", e.pool.Name, "error", err)
		}
		e.lastError = err.Error()
	}
}

// serve claims as many tasks as a pool has room for and sends them. Full reports that there may be more. A stop
// does not interrupt the claim, which might still commit: it waits for the claim and returns its leases.
func (d *Dispatch) serve(ctx context.Context, e *endpoint, s signer) (full bool, err error) {
	room := d.room(e)
	if room == 0 {
		return false, nil
	}
	request := engine.ClaimRequest{
		Worker: d.worker(e.pool.Name), Claim: id.Of[id.Claim](uuid.New()), Pools: []string{e.pool.Name}, Max: room, Slots: max(e.slots(), 1),
		Unstarted: holdFor, Meta: event.Meta{Actor: actor},
	}
	leases, err := d.engine.Claim(context.WithoutCancel(ctx), request)
	if err != nil {
		return false, err
	}
	_, s.lease = d.engine.LeaseTimes(request)
	for _, l := range leases {
		f := d.begin(e, l)
		if ctx.Err() != nil {
			f.cancel(errStopping)
		}
		d.calls.Go(func() { d.send(f, s) }) //nolint:contextcheck // a call is not bound by the round
	}
	return len(leases) == room, nil
}

// actor is the actor of the reports of this package.
const actor = "dispatch"

// room is how many tasks of a pool may be sent now. Without room it wakes the loop when there will be.
func (d *Dispatch) room(e *endpoint) int {
	d.mu.Lock()
	defer d.mu.Unlock()
	now := time.Now()
	room, wait := e.room(now)
	if room == 0 && wait > 0 {
		rung := d.rung
		time.AfterFunc(wait, func() { d.ring(rung) })
	}
	return min(room, engine.MaxClaim)
}

// begin adds an open call.
func (d *Dispatch) begin(e *endpoint, l engine.Lease) *flight {
	d.mu.Lock()
	defer d.mu.Unlock()
	f := &flight{endpoint: e, pool: e.pool.Pool, client: e.client, lease: l}
	f.call, f.counted = e.begin(time.Now())
	f.ctx, f.cancel = context.WithCancelCause(d.calling)
	d.flights[f] = true
	return f
}

// end removes an open call and records its outcome for the endpoint.
func (d *Dispatch) end(f *flight, o outcome) {
	d.mu.Lock()
	defer d.mu.Unlock()
	f.cancel(nil)
	delete(d.flights, f)
	f.endpoint.end(f, o, time.Now())
	d.ringLocked(d.rung)
}

// tenantName returns the name of a tenant. Names never change, so they are cached.
func (d *Dispatch) tenantName(ctx context.Context, tenant id.Tenant) (string, error) {
	d.mu.Lock()
	name, known := d.names[tenant]
	d.mu.Unlock()
	if known {
		return name, nil
	}
	view, err := d.store.GetTenant(ctx, tenant)
	if err != nil {
		return "", err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if len(d.names) >= maxNames {
		clear(d.names)
	}
	d.names[tenant] = view.Name
	return view.Name, nil
}

// maxNames bounds the cached names.
const maxNames = 10_000
