package push

import (
	"math"
	"time"
)

// BreakerState is whether an endpoint is called.
type BreakerState string

// The states.
const (
	BreakerClosed   BreakerState = "closed"    // it is called
	BreakerOpen     BreakerState = "open"      // it is left in peace
	BreakerHalfOpen BreakerState = "half-open" // it is tried
)

// BreakerConfig says when an endpoint is left in peace, and for how long.
type BreakerConfig struct {
	Failures    int           // in a row, before it opens; 5 if not said
	CoolDown    time.Duration // before it is tried; 10 s if not said
	MaxCoolDown time.Duration // it doubles after each try that failed, up to this; 5 min if not said
	Probes      int           // tries at once, and successes before it closes; 1 if not said
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

// Breaker stops calls to an endpoint that fails, and finds out from time to time whether it
// works again. It is a value without a lock: its owner guards it.
type Breaker struct {
	config BreakerConfig

	era       int // counts the changes of state, so that late ends of calls say nothing
	open      bool
	failures  int // in a row while closed
	coolDown  time.Duration
	triedAt   time.Time // when it may be tried, while open
	begun     int       // tries of this half-open time that are under way
	succeeded int       // tries of this half-open time that went well
}

// NewBreaker makes a closed one.
func NewBreaker(config BreakerConfig) *Breaker {
	config = config.withDefaults()
	return &Breaker{config: config, coolDown: config.CoolDown}
}

// Call is a call that a breaker let pass.
type Call struct{ era int }

// State is how the breaker stands.
func (b *Breaker) State(now time.Time) BreakerState {
	switch {
	case !b.open:
		return BreakerClosed
	case now.Before(b.triedAt):
		return BreakerOpen
	}
	return BreakerHalfOpen
}

// RetryAt is when an open breaker will be tried; zero if it is not open.
func (b *Breaker) RetryAt(now time.Time) time.Time {
	if b.State(now) == BreakerOpen {
		return b.triedAt
	}
	return time.Time{}
}

// Room is how many calls may begin now.
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

// Begin lets a call pass, or not. One that passes must come to its End or be Dropped.
func (b *Breaker) Begin(now time.Time) (Call, bool) {
	if b.Room(now) <= 0 {
		return Call{}, false
	}
	if b.open {
		b.begun++
	}
	return Call{era: b.era}, true
}

// End reports whether a call has shown the endpoint to work.
func (b *Breaker) End(call Call, worked bool, now time.Time) {
	if call.era != b.era {
		return // from before the last change: what it says is old
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

// Drop ends a call that has shown nothing about the endpoint, such as one that was never
// made.
func (b *Breaker) Drop(call Call) {
	if call.era == b.era && b.open {
		b.begun--
	}
}

func (b *Breaker) change(open bool) {
	b.era++
	b.open, b.failures, b.begun, b.succeeded = open, 0, 0, 0
}
