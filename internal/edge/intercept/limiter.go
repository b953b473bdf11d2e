package api

import (
	"context"
	"log/slog"
	"maps"
	"sync"
	"time"

	"github.com/google/uuid"

	"go.arco.dev/servo/internal/base/id"
	"go.arco.dev/servo/internal/edge/ratelimit"
	"go.arco.dev/servo/internal/store"
)

const (
	leasePatience = time.Second      // for a lease; then the database counts as away
	lastPatience  = 2 * time.Second  // for saying that the streams of a server that stops are over
	maxMeters     = 10_000           // limits that are remembered; past it those that are not in use are forgotten
	forgetEach    = 10 * time.Minute // how often rows are deleted that nobody uses
)

// limiter holds what this server knows of the limits of tenants, and asks for more in the
// background.
type limiter struct {
	store   *store.Store
	log     *slog.Logger
	limits  ratelimit.Limits
	classes map[string]ratelimit.Class
	holder  uuid.UUID // this server, for as long as it lives
	now     func() time.Time

	mu      sync.RWMutex
	meters  map[store.RateKey]*meter
	seats   map[id.Tenant]*seats
	forgot  time.Time
	closed  bool
	running sync.WaitGroup
	life    context.Context //nolint:containedctx // the server's own, not a call's
	end     context.CancelFunc
}

// meter is the limit of a tenant's calls.
type meter struct {
	mu sync.Mutex
	ratelimit.Meter
	came chan struct{} // closed when the lease that is under way has come, or will not
}

// seats is the limit of a tenant's streams.
type seats struct {
	mu sync.Mutex
	ratelimit.Seats
	came  chan struct{}
	renew *time.Timer
}

func newLimiter(s *store.Store, limits ratelimit.Limits, log *slog.Logger) *limiter {
	l := &limiter{
		store: s, log: log, limits: limits, classes: rateClasses(), holder: uuid.New(), now: time.Now,
		meters: map[store.RateKey]*meter{}, seats: map[id.Tenant]*seats{}, forgot: time.Now(),
	}
	l.life, l.end = context.WithCancel(context.Background())
	return l
}

// take decides about a call. It waits only for a lease that is under way, when so many calls
// have come meanwhile that they have used up the credit too.
func (l *limiter) take(ctx context.Context, key store.RateKey, limit int) (ratelimit.Verdict, ratelimit.Standing, error) {
	m := l.meter(key, limit)
	for {
		m.mu.Lock()
		now := l.now()
		verdict := m.Take(now)
		if m.Needs(now) {
			l.lease(m, key, limit) //nolint:contextcheck // it goes on when the call is over
		}
		came, standing := m.came, m.Standing(now)
		m.mu.Unlock()
		if verdict != ratelimit.Wait {
			return verdict, standing, nil
		}
		if err := wait(ctx, came); err != nil {
			return verdict, standing, err
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

// makeRoom forgets what is not in use, or all if everything is: a chunk passes again then.
func (l *limiter) makeRoom() {
	if len(l.meters) < maxMeters {
		return
	}
	for key, m := range l.meters {
		m.mu.Lock()
		if m.Idle(l.now()) {
			delete(l.meters, key)
		}
		m.mu.Unlock()
	}
	if len(l.meters) >= maxMeters {
		clear(l.meters)
	}
}

// lease asks for one in the background. The meter is locked.
func (l *limiter) lease(m *meter, key store.RateKey, limit int) {
	want, debt := m.Ask()
	came, sent := make(chan struct{}), l.now()
	m.came = came
	started := l.background(func(ctx context.Context) {
		given, err := l.store.LeaseRate(ctx, key, store.RateRequest{Want: want, Debt: debt, Most: limit, Window: ratelimit.Window})
		m.mu.Lock()
		if err != nil {
			m.Failed(l.now())
		} else {
			m.Granted(ratelimit.Lease{Granted: given.Granted, Leased: given.Leased, Window: given.Window, Now: given.Now}, sent, l.now())
		}
		m.mu.Unlock()
		close(came)
		if err != nil {
			l.log.Warn("no lease of a rate: the limit holds for this server alone", "class", ratelimit.Class(key.Class).String(), "error", err)
			return
		}
		l.forget(ctx)
	})
	if !started {
		m.Failed(sent)
		close(came)
	}
}

// background runs something that calls do not wait for, unless the server stops.
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

// forget deletes rows that nobody uses, from time to time.
func (l *limiter) forget(ctx context.Context) {
	l.mu.Lock()
	due := l.now().Sub(l.forgot) >= forgetEach
	if due {
		l.forgot = l.now()
	}
	l.mu.Unlock()
	if !due {
		return
	}
	if _, err := l.store.ForgetRates(ctx); err != nil {
		l.log.Debug("could not delete the rates that nobody uses", "error", err)
	}
}

// sit decides about a stream. One that passes must stand up.
func (l *limiter) sit(ctx context.Context, tenant id.Tenant, limit int) (ratelimit.Verdict, ratelimit.Standing, error) {
	l.mu.Lock()
	s := l.seats[tenant]
	if s == nil {
		s = &seats{Seats: ratelimit.NewSeats(limit)}
		l.seats[tenant] = s
	}
	l.mu.Unlock()
	for {
		s.mu.Lock()
		now := l.now()
		verdict := s.Take(now)
		if s.Needs(now) {
			l.tell(s, tenant) //nolint:contextcheck // it goes on when the call is over
		}
		came, standing := s.came, s.Standing()
		s.mu.Unlock()
		if verdict != ratelimit.Wait {
			return verdict, standing, nil
		}
		if err := wait(ctx, came); err != nil {
			return verdict, standing, err
		}
	}
}

// stand ends a stream.
func (l *limiter) stand(tenant id.Tenant) {
	l.mu.RLock()
	s := l.seats[tenant]
	l.mu.RUnlock()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.Leave()
	if s.Needs(l.now()) {
		l.tell(s, tenant)
	}
}

// tell tells the other servers how many streams there are. The seats are locked.
func (l *limiter) tell(s *seats, tenant id.Tenant) {
	open := s.Tell()
	came := make(chan struct{})
	s.came = came
	started := l.background(func(ctx context.Context) {
		others, err := l.store.ReportStreams(ctx, tenant, l.holder, open, ratelimit.SeatsLive)
		s.mu.Lock()
		defer s.mu.Unlock()
		defer close(came)
		if err != nil {
			s.Failed(l.now())
			l.log.Warn("no server hears of the streams of this one: the limit holds for it alone", "error", err)
		} else {
			s.Heard(others, l.now())
		}
		if s.Needs(l.now()) {
			l.tell(s, tenant) //nolint:contextcheck // some have come or gone meanwhile: another report, with a time of its own
			return
		}
		l.renewLater(s, tenant, err != nil) //nolint:contextcheck // long after this report
	})
	if !started {
		s.Failed(l.now())
		close(came)
	}
}

// renewLater says again how many there are while there are some, and soon if nobody has heard.
func (l *limiter) renewLater(s *seats, tenant id.Tenant, soon bool) {
	if s.renew != nil {
		s.renew.Stop()
	}
	if s.Idle() {
		return
	}
	after := ratelimit.SeatsRenew
	if soon {
		after = ratelimit.RetryAway
	}
	s.renew = time.AfterFunc(after, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.Needs(l.now()) {
			l.tell(s, tenant)
		}
	})
}

// close ends what is under way, and tells the other servers that the streams of this one are over.
func (l *limiter) close() {
	l.mu.Lock()
	already := l.closed
	l.closed = true
	open := maps.Clone(l.seats)
	l.mu.Unlock()
	if already {
		return
	}
	l.end()
	l.running.Wait()
	ctx, cancel := context.WithTimeout(context.Background(), lastPatience)
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
		if _, err := l.store.ReportStreams(ctx, tenant, l.holder, 0, ratelimit.SeatsLive); err != nil {
			l.log.Debug("could not say that streams are over: they count for a while", "error", err)
		}
	}
}
