package store

import (
	"context"
	"math/rand/v2"
	"time"
)

// How often and how long a transaction is retried. A restart of PostgreSQL takes less than this
// time; callers get an error after a longer outage.
const (
	maxTries     = 8
	firstPause   = 5 * time.Millisecond
	longestPause = 500 * time.Millisecond
)

type onceKey struct{}

// Once disables retries of transactions under a context, for callers that retry themselves or
// collect data while they read.
func Once(ctx context.Context) context.Context { return context.WithValue(ctx, onceKey{}, true) }

// again retries a transaction until it succeeds or its error is not transient. A transaction that
// has sent its COMMIT is repeated only if PostgreSQL reports that it was not committed. Otherwise
// only the caller can find out, by the rows that it wrote.
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
