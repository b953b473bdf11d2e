package store

import (
	"context"
	"math/rand/v2"
	"time"
)

// How often and how long a transaction is tried again. A restart of PostgreSQL is over in this
// time; callers get an error for a longer one.
const (
	maxTries     = 8
	firstPause   = 5 * time.Millisecond
	longestPause = 500 * time.Millisecond
)

type onceKey struct{}

// Once makes transactions under a context be tried once, for callers that try again themselves
// or gather something as they read.
func Once(ctx context.Context) context.Context { return context.WithValue(ctx, onceKey{}, true) }

// again tries a transaction until it went through or the trouble is not transient. One that has
// asked for its commit is repeated only if PostgreSQL says that nothing was committed: otherwise
// whether it was is known to the caller alone, by what it wrote.
func (s *Store) again(ctx context.Context, try func() (committing bool, err error)) error {
	pause := firstPause
	for tries := 1; ; tries++ {
		committing, err := try()
		if err == nil || tries == maxTries || ctx.Err() != nil || ctx.Value(onceKey{}) != nil {
			return err
		}
		switch trouble := Diagnose(err); {
		case trouble == Collided:
		case trouble == Away && !committing:
		default:
			return err
		}
		s.stats.retries.Add(1)
		select {
		case <-ctx.Done():
			return err
		case <-time.After(pause/2 + rand.N(pause)): //nolint:gosec // a spread, not a secret
		}
		pause = min(2*pause, longestPause)
	}
}
