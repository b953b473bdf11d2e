package push

import (
	"math"
	"time"
)

// BreakerState is the state of a circuit breaker.
type BreakerState string

// The states.
const (
	BreakerClosed   BreakerState = "closed"    // the endpoint is called
	BreakerOpen     BreakerState = "open"      // the endpoint is not called
	BreakerHalfOpen BreakerState = "half-open" // the endpoint is tried
)

// BreakerConfig defines when calls to an endpoint stop, and for how long.
type BreakerConfig struct {
	Failures    int           // consecutive ones before it opens; default 5
	CoolDown    time.Duration // before it is tried; default 10 s
	MaxCoolDown time.Duration // the cool-down doubles after each failed try, up to this; default 5 min
	Probes      int           // concurrent tries, and successes before it closes; default 1
}

func (c BreakerConfig) withDefaults() BreakerConfig {
	if c.Failures <= 0 {
		c.Failures = 5
	}
	if c.CoolDown <= 0 {
		c.CoolDown = 10 * time.Second
	}
	if c.MaxCoolDown <= 0 {
		c.MaxCoolDown = 5 * time.Minute
	}
	c.MaxCoolDown = max(c.MaxCoolDown, c.CoolDown)
	if c.Probes <= 0 {
		c.Probes = 1
	}
	return c
}

// Breaker stops calls to a failing endpoint, and periodically tries whether it works again. It has no
// lock: its owner must guard it.
type Breaker struct {
	config BreakerConfig

	era       int // counts the changes of state, so that results of earlier calls are ignored
	open      bool
	failures  int // consecutive ones while closed
	coolDown  time.Duration
	triedAt   time.Time // when it may be tried, while open
	begun     int       // running tries since it is half-open
	succeeded int       // successful tries since it is half-open
}

// NewBreaker returns a closed breaker.
func NewBreaker(config BreakerConfig) *Breaker {
	config = config.withDefaults()
	return &Breaker{config: config, coolDown: config.CoolDown}
}

// Call is a call that a breaker permitted.
type Call struct{ era int }

// State returns the state of the breaker.
func (b *Breaker) State(now time.Time) BreakerState {
	switch {
	case !b.open:
		return BreakerClosed
	case now.Before(b.triedAt):
		return BreakerOpen
	}
	return BreakerHalfOpen
}

// RetryAt returns when an open breaker will be tried; zero if it is not open.
func (b *Breaker) RetryAt(now time.Time) time.Time {
	if b.State(now) == BreakerOpen {
		return b.triedAt
	}
	return time.Time{}
}

// Room returns how many calls may begin now.
func (b *Breaker) Room(now time.Time) int {
	switch b.State(now) {
	case BreakerOpen:
		return 0
	case BreakerHalfOpen:
		return b.config.Probes - b.begun - b.succeeded
	case BreakerClosed:
	}
	return math.MaxInt
}

// Begin permits a call or refuses it. The caller must End or Drop a permitted call.
func (b *Breaker) Begin(now time.Time) (Call, bool) {
	if b.Room(now) <= 0 {
		return Call{}, false
	}
	if b.open {
		b.begun++
	}
	return Call{era: b.era}, true
}

// End records whether a call has shown that the endpoint works.
func (b *Breaker) End(call Call, worked bool, now time.Time) {
	if call.era != b.era {
		return // began before the last change of state
	}
	switch {
	case b.open && worked:
		b.begun--
		if b.succeeded++; b.succeeded >= b.config.Probes {
			b.change(false)
			b.coolDown = b.config.CoolDown
		}
	case b.open:
		b.coolDown = min(2*b.coolDown, b.config.MaxCoolDown)
		b.change(true)
		b.triedAt = now.Add(b.coolDown)
	case worked:
		b.failures = 0
	default:
		if b.failures++; b.failures >= b.config.Failures {
			b.change(true)
			b.triedAt = now.Add(b.coolDown)
		}
	}
}

// Drop ends a call that has shown nothing about the endpoint, such as one that was not made.
func (b *Breaker) Drop(call Call) {
	if call.era == b.era && b.open {
		b.begun--
	}
}

func (b *Breaker) change(open bool) {
	b.era++
	b.open, b.failures, b.begun, b.succeeded = open, 0, 0, 0
}
