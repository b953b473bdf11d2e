package simulate

import (
	"fmt"
	"math"
	"slices"
	"time"

	"go.arco.dev/servo/internal/base/fault"
	"go.arco.dev/servo/internal/domain/schedule"
)

// state is a simulation at one instant.
type state struct {
	in           Input
	after, until time.Time // slots lie in (after, until]
	configs      []config  // by tenant and name
	tenants      []tenant  // by name

	now     int64   // microseconds
	due     wheel   // the next slot of each config
	ends    wheel   // of the running runs
	turns   moments // tenants that could start a run, by their served time
	served  int64   // the served time of the tenant that last started a run
	running int
	queued  int // fired and not started, for any reason

	load     load
	together []int32 // the configs of the slots in the current minute
	worst    []int32 // for each config the maximum of slots in a minute with one of its slots
	ahead    []int64 // for each config a batch of its next slots
	waits    waits
	late     []Late // the first SLA misses
}

// config is a config and its state. Its lock is held while alive is not 0. The fields that each slot
// reads come first and fit a cache line.
type config struct {
	jitter  int64
	takes   int64  // duration of a run
	life    uint32 // increases when the current run is cancelled
	alive   int32  // runs that have not ended
	most    int32  // runs that may be alive for another to fire; -1 is any number
	tenant  int32
	tasks   int32
	slots   int32
	fired   int32
	skips   int32 // by overlap
	taken   int16 // of the batch of slots
	filled  int16
	locks   bool // runs wait for each other
	cancels bool // the next run cancels the current one
	started bool // the current run
	*Config

	due     int64 // of the current run
	totals  Totals
	buffer  fifo  // runs that wait for the lock
	skipped first // by overlap
}

// first is the first instant of several.
type first struct {
	at   int64
	some bool
}

func (f *first) see(at int64) {
	if !f.some {
		f.at, f.some = at, true
	}
}

// tenant is a tenant with its runs.
type tenant struct {
	Tenant
	midnights *schedule.Schedule
	dayEnds   int64
	today     int // runs created since midnight
	running   int
	pending   fifo // runs that could start
	waiting   int  // those of them that were not cancelled
	served    int64
	inTurn    bool

	totals  Totals
	waits   waits
	skipped first // by max_daily_runs
	held    waits // runs that waited for max_concurrent_runs
}

// cause is the first reason why a run waited.
type cause uint8

const (
	byWorkers cause = iota
	byQuota
	byOverlap
)

// pending is a run that has not started.
type pending struct {
	due    int64
	config int32
	life   uint32
	cause  cause
}

// fifo is a queue that releases memory that it does not need.
type fifo struct {
	items []pending
	head  int
}

func (f *fifo) len() int { return len(f.items) - f.head }

func (f *fifo) push(p pending) { f.items = append(f.items, p) }

func (f *fifo) pop() pending {
	p := f.items[f.head]
	f.head++
	if f.head == len(f.items) {
		f.items, f.head = f.items[:0], 0
	} else if f.head >= 1024 && f.head*2 >= len(f.items) {
		f.items = f.items[:copy(f.items, f.items[f.head:])]
		f.head = 0
	}
	return p
}

// sweep removes cancelled runs, so that a queue of them does not grow without bound.
func (f *fifo) sweep(gone func(pending) bool) {
	f.items = slices.DeleteFunc(f.items[f.head:], gone)
	f.head = 0
}

func newConfig(c *Config, tenant int32) config {
	if c.Overlap == "" {
		c.Overlap = OverlapSkip
	}
	if c.Duration == 0 {
		c.Duration = DefaultDuration
	}
	takes := c.Duration
	if c.overruns() {
		takes = c.MaxExecution
	}
	most := int32(-1)
	switch {
	case c.Overlap == OverlapSkip:
		most = 0
	case c.Overlap == OverlapBufferOne:
		most = 1
	case c.Overlap == OverlapAllow && c.MaxOverlap > 0:
		most = int32(min(c.MaxOverlap, math.MaxInt32) - 1) //nolint:gosec // bounded
	}
	return config{
		Config: c, tenant: tenant,
		jitter: c.Jitter.Microseconds(), takes: max(1, takes.Microseconds()), tasks: int32(c.Tasks), //nolint:gosec // bounded
		most: most, locks: c.Overlap != OverlapAllow, cancels: c.Overlap == OverlapCancelRunning,
	}
}

func (c *Config) overruns() bool { return c.MaxExecution > 0 && c.Duration > c.MaxExecution }

// batch is how many slots of a config are computed at a time: a sequence is cheaper than single slots,
// and all of them would need too much memory.
const batch = 32

// next returns the config's next due instant, after a slot.
func (s *state) next(c *config, index int, after time.Time) (int64, bool) {
	ahead := s.ahead[index*batch : (index+1)*batch]
	if c.taken == c.filled {
		c.taken, c.filled = 0, 0
		for slot := range c.Schedule.All(after, s.until) {
			ahead[c.filled] = slot.UnixMicro()
			if c.filled++; c.filled == batch {
				break
			}
		}
		if c.filled == 0 {
			return 0, false
		}
	}
	c.taken++
	return ahead[c.taken-1] + c.jitter, true
}

// replay processes instant after instant. At each, runs end first, then slots fire, and then runs
// start: so the order of processing favours no config.
func (s *state) replay() error {
	s.due.at, s.ends.at = s.now/minute, s.now/minute
	for i := range s.configs {
		if at, ok := s.next(&s.configs[i], i, s.after); ok {
			s.due.push(moment{at: at, config: int32(i)})
		}
	}
	for {
		at := min(s.due.next(), s.ends.next())
		if at == never {
			break
		}
		s.advance(at)
		for s.ends.next() == at {
			s.end(s.ends.pop())
		}
		for s.due.next() == at {
			m := s.due.pop()
			c := &s.configs[m.config]
			s.slot(c, m.config)
			if next, ok := s.next(c, int(m.config), time.UnixMicro(at-c.jitter)); ok {
				s.due.push(moment{at: next, config: m.config})
			}
		}
		s.dispatch()
		if s.queued > MaxQueued {
			return fault.New(fault.LimitExceeded, fmt.Sprintf("more than %d runs wait at %s", MaxQueued, instant(at).Format(time.RFC3339)),
				fault.Field("days"), fault.Remedy("simulate fewer days; runs are created faster than quotas, overlap or workers let them end"))
		}
	}
	s.closeMinute()
	s.abandon()
	return nil
}

// advance moves the clock.
func (s *state) advance(at int64) {
	s.load.lasts(s.now, at, s.running, s.queued)
	if s.now/minute != at/minute {
		s.closeMinute()
	}
	s.now = at
}

// closeMinute records for the configs of a minute how many slots it had.
func (s *state) closeMinute() {
	n := int32(len(s.together)) //nolint:gosec // of a minute
	for _, i := range s.together {
		s.worst[i] = max(s.worst[i], n)
	}
	s.together = s.together[:0]
}

// slot decides about a slot: the lock first, then the daily quota, as the scheduler does.
func (s *state) slot(c *config, index int32) {
	t := &s.tenants[c.tenant]
	h := s.load.hour(s.now)
	s.load.minutes[s.load.minute(s.now)]++
	s.together = append(s.together, index)
	h.Due++
	c.slots++
	switch {
	case c.most >= 0 && c.alive > c.most:
		c.skips++
		c.skipped.see(s.now - c.jitter)
		return
	case !t.mayFire(s.now):
		c.totals.SkippedQuota++
		t.skipped.see(s.now - c.jitter)
		return
	}
	t.today++
	h.Fired++
	h.Tasks += int(c.tasks)
	c.fired++
	if c.cancels && c.alive > 0 {
		s.cancel(c, t)
	}
	p := pending{due: s.now, config: index, life: c.life}
	c.alive++
	if s.in.Slots == 0 && t.waiting == 0 && t.mayStart() && (c.alive == 1 || !c.locks) {
		s.start(c, t, p) // the most common case
		return
	}
	s.queued++
	if c.alive > 1 && c.locks {
		p.cause = byOverlap
		c.buffer.push(p)
		return
	}
	s.enqueue(p, t)
}

// mayFire counts by the days of the tenant's zone.
func (t *tenant) mayFire(now int64) bool {
	if t.MaxDailyRuns == NoLimit {
		return true
	}
	if now >= t.dayEnds {
		t.today, t.dayEnds = 0, never
		if midnight, ok := t.midnights.Next(time.UnixMicro(now)); ok {
			t.dayEnds = midnight.UnixMicro()
		}
	}
	return t.today < t.MaxDailyRuns
}

func (t *tenant) mayStart() bool {
	return t.MaxConcurrentRuns == NoLimit || t.running < t.MaxConcurrentRuns
}

// enqueue lets a run that holds its lock wait for capacity.
func (s *state) enqueue(p pending, t *tenant) {
	c := &s.configs[p.config]
	c.due, c.started = p.due, false
	if p.cause != byOverlap && t.MaxConcurrentRuns != NoLimit && t.running+t.waiting >= t.MaxConcurrentRuns {
		p.cause = byQuota
	}
	if t.pending.len() > 2*t.waiting+1024 {
		t.pending.sweep(func(p pending) bool { return p.life != s.configs[p.config].life })
	}
	t.waiting++
	t.pending.push(p)
	s.offer(c.tenant)
}

// cancel cancels the current run in favour of the next.
func (s *state) cancel(c *config, t *tenant) {
	c.totals.Cancelled++
	c.life++
	c.alive--
	if c.started {
		s.running--
		t.running--
		s.offer(c.tenant)
		return
	}
	// It is still in the queue of its tenant, which skips it later.
	s.queued--
	t.waiting--
	s.judge(c, s.now-c.due, c.due)
}

// end ends a run, unless it was cancelled before.
func (s *state) end(m moment) {
	c := &s.configs[m.config]
	if m.life != c.life {
		return
	}
	t := &s.tenants[c.tenant]
	s.running--
	t.running--
	c.alive--
	if c.locks && c.alive > 0 {
		s.enqueue(c.buffer.pop(), t)
	}
	s.offer(c.tenant)
}

// start starts a run.
func (s *state) start(c *config, t *tenant, p pending) {
	wait := s.now - p.due
	s.running++
	t.running++
	t.served += c.takes
	c.started = true
	s.ends.push(moment{at: s.now + c.takes, config: p.config, life: p.life})
	s.waits.add(wait)
	t.waits.add(wait)
	if wait == 0 {
		return
	}
	h := s.load.hour(p.due)
	h.MaxWait = max(h.MaxWait, micros(wait))
	switch p.cause {
	case byOverlap:
		c.totals.WaitedOverlap++
	case byQuota:
		c.totals.WaitedQuota++
		t.held.add(wait)
	case byWorkers:
		c.totals.WaitedWorkers++
	}
	s.judge(c, wait, p.due)
}

// judge compares a wait with the SLA.
func (s *state) judge(c *config, wait, due int64) {
	if c.SLAStartDelay > 0 && wait > c.SLAStartDelay.Microseconds() {
		s.miss(c, wait, due)
	}
}

func (s *state) miss(c *config, wait, due int64) {
	c.totals.SLAMisses++
	if len(s.late) < s.in.Limit {
		s.late = append(s.late, Late{
			Ref: c.ref(), Slot: instant(due - c.jitter), Wait: micros(wait), Allowed: Duration(c.SLAStartDelay),
		})
	}
}

// abandon counts runs that never started: runs of tenants that may have none. They wait at least until
// the end of the simulation.
func (s *state) abandon() {
	over := max(s.now, s.until.UnixMicro())
	give := func(c *config, p pending) {
		c.totals.Unstarted++
		if c.SLAStartDelay > 0 {
			s.miss(c, over-p.due, p.due)
		}
	}
	for i := range s.tenants {
		t := &s.tenants[i]
		for t.pending.len() > 0 {
			p := t.pending.pop()
			c := &s.configs[p.config]
			if p.life != c.life {
				continue
			}
			give(c, p)
			for c.buffer.len() > 0 {
				give(c, c.buffer.pop())
			}
		}
	}
}

func (c *config) ref() Ref { return Ref{Tenant: c.Tenant, Config: c.Name} }

func instant(at int64) time.Time { return time.UnixMicro(at).UTC() }
