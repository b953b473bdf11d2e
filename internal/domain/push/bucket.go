package push

import (
	"math"
	"time"
)

// Bucket is a token bucket: a number of calls per second, with bursts of a second's worth, at least
// one. It has no lock: its owner must guard it.
type Bucket struct {
	rate   float64 // per second; 0 is no limit
	size   float64
	tokens float64
	filled time.Time
}

// NewBucket returns a full bucket. A rate of 0 is no limit.
func NewBucket(perSecond float64, now time.Time) *Bucket {
	size := math.Max(1, perSecond)
	return &Bucket{rate: perSecond, size: size, tokens: size, filled: now}
}

// Rate returns the calls per second.
func (b *Bucket) Rate() float64 { return b.rate }

// SetRate changes the limit and keeps the tokens that fit.
func (b *Bucket) SetRate(perSecond float64, now time.Time) {
	b.fill(now)
	b.rate, b.size = perSecond, math.Max(1, perSecond)
	b.tokens = math.Min(b.tokens, b.size)
}

// Room returns how many calls may be made now.
func (b *Bucket) Room(now time.Time) int {
	if b.rate <= 0 {
		return math.MaxInt
	}
	b.fill(now)
	return int(b.tokens)
}

// Take takes up to n tokens and returns how many.
func (b *Bucket) Take(n int, now time.Time) int {
	taken := min(n, b.Room(now))
	if b.rate > 0 {
		b.tokens -= float64(taken)
	}
	return taken
}

// Wait returns how long until the next token.
func (b *Bucket) Wait(now time.Time) time.Duration {
	if b.Room(now) >= 1 {
		return 0
	}
	return time.Duration(math.Ceil((1 - b.tokens) / b.rate * float64(time.Second)))
}

// fill adds the tokens since the last call. A clock that went back adds none.
func (b *Bucket) fill(now time.Time) {
	passed := now.Sub(b.filled)
	if passed <= 0 {
		return
	}
	b.filled = now
	b.tokens = math.Min(b.size, b.tokens+passed.Seconds()*b.rate)
}
