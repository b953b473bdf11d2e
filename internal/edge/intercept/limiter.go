package intercept

import (
	"context"
	"maps"
	"sync"
	"time"

	"github.com/google/uuid"

	"go.arco.dev/servo/internal/base/id"
	"go.arco.dev/servo/internal/edge/ratelimit"
	"go.arco.dev/servo/internal/store"
)

const (
	leasePatience = time.Second      // for a lease; then the database counts as unavailable
	closePatience = 2 * time.Second  // for reporting that the streams of a stopping server have ended
	maxMeters     = 10_000           // cached limits; beyond it idle ones are dropped
	deleteEach    = 10 * time.Minute // how often unused rows are deleted
)

// limiter has this server's share of the rate limits of tenants. It leases more from the database in
// the background.
type limiter struct {
	*Options

	classes map[string]ratelimit.Class
	holder  uuid.UUID // identifies this process

	mu      sync.RWMutex
	meters  map[store.RateKey]*meter
	streams map[id.Tenant]*streams
	deleted time.Time // when unused rows were last deleted
	closed  bool
	running sync.WaitGroup
	life    context.Context //nolint:containedctx // ends with the server, not with a call
	end     context.CancelFunc
}

// meter is the rate limit of a tenant's calls of one class.
type meter struct {
	mu sync.Mutex
	ratelimit.Meter
	came chan struct{} // closed when the pending lease is granted or has failed
}

// streams is the limit of a tenant's concurrent streams.
type streams struct {
	mu sync.Mutex
	ratelimit.Streams
	came  chan struct{}
	renew *time.Timer
}

func newLimiter(options *Options) *limiter {
	l := &limiter{
		Options: options, classes: RateClasses(), holder: uuid.New(),
		meters: map[store.RateKey]*meter{}, streams: map[id.Tenant]*streams{}, deleted: time.Now(),
	}
	l.life, l.end = context.WithCancel(context.Background())
	return l
}

// take decides about a call. It waits only for a pending lease, and only if concurrent calls have
// used up the credit too.
func (l *limiter) take(ctx context.Context, key store.RateKey, limit int) (ratelimit.Verdict, ratelimit.Status, error) {
	m := l.meter(key, limit)
	for {
		m.mu.Lock()
		now := l.Timing.Now()
		verdict := m.Take(now)
		if m.Needs(now) {
			l.lease(m, key, limit) //nolint:contextcheck // the lease may outlive the call
		}
		came, state := m.came, m.Status(now)
		m.mu.Unlock()
		if verdict != ratelimit.Wait {
			return verdict, state, nil
		}
		if err := wait(ctx, came); err != nil {
			return verdict, state, err
		}
	}
}

func wait(ctx context.Context, came <-chan struct{}) error {
	select {
	case <-came:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (l *limiter) meter(key store.RateKey, limit int) *meter {
	l.mu.RLock()
	found := l.meters[key]
	l.mu.RUnlock()
	if found != nil {
		return found
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if found = l.meters[key]; found == nil {
		l.makeRoom()
		found = &meter{Meter: ratelimit.NewMeter(limit)}
		l.meters[key] = found
	}
	return found
}

// makeRoom drops idle meters, or all of them if none is idle. A dropped meter starts with new credit.
func (l *limiter) makeRoom() {
	if len(l.meters) < maxMeters {
		return
	}
	for key, m := range l.meters {
		m.mu.Lock()
		if m.Idle(l.Timing.Now()) {
			delete(l.meters, key)
		}
		m.mu.Unlock()
	}
	if len(l.meters) >= maxMeters {
		clear(l.meters)
	}
}

// lease requests a lease in the background. The meter is locked.
func (l *limiter) lease(m *meter, key store.RateKey, limit int) {
	want, debt := m.Ask()
	came, sent := make(chan struct{}), l.Timing.Now()
	m.came = came
	started := l.background(func(ctx context.Context) {
		given, err := l.Store.LeaseRate(ctx, key, store.RateRequest{Want: want, Debt: debt, Most: limit, Window: ratelimit.Window})
		m.mu.Lock()
		if err != nil {
			m.Failed(l.Timing.Now())
		} else {
			m.Granted(ratelimit.Lease{Granted: given.Granted, Leased: given.Leased, Window: given.Window, Now: given.Now}, sent, l.Timing.Now())
		}
		m.mu.Unlock()
		close(came)
		if err != nil {
			l.Logger.Warn("cannot lease from a rate limit; this server applies the limit alone", "class", ratelimit.Class(key.Class).String(), "error", err)
			return
		}
		l.deleteUnused(ctx)
	})
	if !started {
		m.Failed(sent)
		close(came)
	}
}

// background runs a function that calls do not wait for. It returns false if the server stops.
func (l *limiter) background(fn func(ctx context.Context)) bool {
	l.mu.RLock()
	defer l.mu.RUnlock()
	if l.closed {
		return false
	}
	l.running.Go(func() {
		ctx, cancel := context.WithTimeout(l.life, leasePatience)
		defer cancel()
		fn(ctx)
	})
	return true
}

// deleteUnused deletes unused rows every deleteEach.
func (l *limiter) deleteUnused(ctx context.Context) {
	l.mu.Lock()
	due := l.Timing.Now().Sub(l.deleted) >= deleteEach
	if due {
		l.deleted = l.Timing.Now()
	}
	l.mu.Unlock()
	if !due {
		return
	}
	if _, err := l.Store.ForgetRates(ctx); err != nil {
		l.Logger.Debug("cannot delete unused rate limits", "error", err)
	}
}

// openStream decides about a stream. A permitted stream ends with closeStream.
func (l *limiter) openStream(ctx context.Context, tenant id.Tenant, limit int) (ratelimit.Verdict, ratelimit.Status, error) {
	l.mu.Lock()
	s := l.streams[tenant]
	if s == nil {
		s = &streams{Streams: ratelimit.NewStreams(limit)}
		l.streams[tenant] = s
	}
	l.mu.Unlock()
	for {
		s.mu.Lock()
		now := l.Timing.Now()
		verdict := s.Take(now)
		if s.Needs(now) {
			l.report(s, tenant) //nolint:contextcheck // the report may outlive the call
		}
		came, state := s.came, s.Status()
		s.mu.Unlock()
		if verdict != ratelimit.Wait {
			return verdict, state, nil
		}
		if err := wait(ctx, came); err != nil {
			return verdict, state, err
		}
	}
}

// closeStream ends a stream.
func (l *limiter) closeStream(tenant id.Tenant) {
	l.mu.RLock()
	s := l.streams[tenant]
	l.mu.RUnlock()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.Leave()
	if s.Needs(l.Timing.Now()) {
		l.report(s, tenant)
	}
}

// report reports the number of open streams to the other servers. The streams are locked.
func (l *limiter) report(s *streams, tenant id.Tenant) {
	open := s.Report()
	came := make(chan struct{})
	s.came = came
	started := l.background(func(ctx context.Context) {
		others, err := l.Store.ReportStreams(ctx, tenant, l.holder, open, ratelimit.StreamsLive)
		s.mu.Lock()
		defer s.mu.Unlock()
		defer close(came)
		if err != nil {
			s.Failed(l.Timing.Now())
			l.Logger.Warn("cannot report open streams; this server applies the limit alone", "error", err)
		} else {
			s.Reported(others, l.Timing.Now())
		}
		if s.Needs(l.Timing.Now()) {
			l.report(s, tenant) //nolint:contextcheck // the number has changed meanwhile: a new report with its own deadline
			return
		}
		l.renewLater(s, tenant, err != nil) //nolint:contextcheck // long after this report
	})
	if !started {
		s.Failed(l.Timing.Now())
		close(came)
	}
}

// renewLater repeats the report while streams are open, and soon if the last report has failed.
func (l *limiter) renewLater(s *streams, tenant id.Tenant, soon bool) {
	if s.renew != nil {
		s.renew.Stop()
	}
	if s.Idle() {
		return
	}
	after := ratelimit.StreamsRenew
	if soon {
		after = ratelimit.RetryUnavailable
	}
	s.renew = time.AfterFunc(after, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.Needs(l.Timing.Now()) {
			l.report(s, tenant)
		}
	})
}

// close ends the background work and reports that the streams of this server have ended.
func (l *limiter) close() {
	l.mu.Lock()
	already := l.closed
	l.closed = true
	open := maps.Clone(l.streams)
	l.mu.Unlock()
	if already {
		return
	}
	l.end()
	l.running.Wait()
	ctx, cancel := context.WithTimeout(context.Background(), closePatience)
	defer cancel()
	for tenant, s := range open {
		s.mu.Lock()
		if s.renew != nil {
			s.renew.Stop()
		}
		idle := s.Idle()
		s.mu.Unlock()
		if idle {
			continue
		}
		if _, err := l.Store.ReportStreams(ctx, tenant, l.holder, 0, ratelimit.StreamsLive); err != nil {
			l.Logger.Debug("cannot report that streams have ended; they count until the report expires", "error", err)
		}
	}
}
