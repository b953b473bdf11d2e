package push

import (
	"math"
	"time"
)

// Bucket is a rate limit: so many a second, and a second's worth at once, at least one. It
// is a value without a lock: its owner guards it.
type Bucket struct {
	rate   float64 // a second; 0 is no limit
	size   float64
	tokens float64
	filled time.Time
}

// NewBucket makes a full one. A rate of 0 is no limit.
func NewBucket(perSecond float64, now time.Time) *Bucket {
	size := math.Max(1, perSecond)
	return &Bucket{rate: perSecond, size: size, tokens: size, filled: now}
}

// Rate is how many a second.
func (b *Bucket) Rate() float64 { return b.rate }

// SetRate changes the limit; what is in the bucket stays, as far as there is room.
func (b *Bucket) SetRate(perSecond float64, now time.Time) {
	b.fill(now)
	b.rate, b.size = perSecond, math.Max(1, perSecond)
	b.tokens = math.Min(b.tokens, b.size)
}

// Room is how many may pass now.
func (b *Bucket) Room(now time.Time) int {
	if b.rate <= 0 {
		return math.MaxInt
	}
	b.fill(now)
	return int(b.tokens)
}

// Take lets up to n pass and returns how many.
func (b *Bucket) Take(n int, now time.Time) int {
	taken := min(n, b.Room(now))
	if b.rate > 0 {
		b.tokens -= float64(taken)
	}
	return taken
}

// Wait is how long until one may pass.
func (b *Bucket) Wait(now time.Time) time.Duration {
	if b.Room(now) >= 1 {
		return 0
	}
	return time.Duration(math.Ceil((1 - b.tokens) / b.rate * float64(time.Second)))
}

// fill adds what has come since the last look. A clock that went back adds nothing.
func (b *Bucket) fill(now time.Time) {
	passed := now.Sub(b.filled)
	if passed <= 0 {
		return
	}
	b.filled = now
	b.tokens = math.Min(b.size, b.tokens+passed.Seconds()*b.rate)
}
