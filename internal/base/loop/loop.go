// Package loop runs background work: a named function that does a bounded piece of work, repeated at
// an interval or when it is woken. An error never ends a loop: it is logged, and the work is retried
// with a growing backoff.
package loop

import (
	"context"
	"log/slog"
	"math/rand/v2"
	"sync"
	"time"
)

// Config defines a loop.
type Config struct {
	Name  string
	Every time.Duration // the interval without a wake-up
	// Wake, if set, returns a channel that closes when there is work. It is called before each
	// round, so that no wake-up is missed.
	Wake func() <-chan struct{}
	// RunOnce does one piece of work; more reports that the next can follow immediately.
	RunOnce func(ctx context.Context) (more bool, err error)
	Logger  *slog.Logger
}

// Loop calls a function repeatedly until it is stopped.
type Loop struct {
	config Config
	cancel context.CancelFunc
	done   sync.WaitGroup
}

// maxBackoff bounds the backoff after errors, as do two intervals of the loop: work that became due
// while the database was unavailable must not wait long once it is back.
const maxBackoff = 10 * time.Second

// firstBackoff is the backoff after the first error. Most errors are brief, such as a serialization
// failure or a closed connection.
const firstBackoff = 50 * time.Millisecond

// patience bounds one piece of work. Without it, a loop would wait for an unreachable database until
// the network times out, after a quarter of an hour.
const patience = time.Minute

// Start runs the loop in the background.
func Start(config Config) *Loop {
	if config.Logger == nil {
		config.Logger = slog.New(slog.DiscardHandler)
	}
	ctx, cancel := context.WithCancel(context.Background())
	l := &Loop{config: config, cancel: cancel}
	l.done.Go(func() { l.run(ctx) })
	return l
}

// Stop cancels the current piece of work and waits for the loop to end.
func (l *Loop) Stop() {
	l.cancel()
	l.done.Wait()
}

func (l *Loop) run(ctx context.Context) {
	longest := min(2*l.config.Every, maxBackoff)
	first := min(firstBackoff, longest)
	backoff := first
	for ctx.Err() == nil {
		var wake <-chan struct{}
		if l.config.Wake != nil {
			wake = l.config.Wake()
		}
		more, err := l.once(ctx)
		switch {
		case ctx.Err() != nil:
			return
		case err != nil:
			l.config.Logger.Error("loop failed, retrying", "loop", l.config.Name, "error", err, "in", backoff)
			sleep(ctx, backoff/2+time.Duration(rand.Int64N(int64(backoff/2)+1)), nil) //nolint:gosec // a spread, not a secret
			backoff = min(2*backoff, longest)
		case more:
			backoff = first
		default:
			backoff = first
			sleep(ctx, l.config.Every, wake)
		}
	}
}

func (l *Loop) once(ctx context.Context) (more bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	return l.config.RunOnce(ctx)
}

// sleep waits for a duration, a wake-up or the end of the context, whichever comes first.
func sleep(ctx context.Context, d time.Duration, wake <-chan struct{}) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-wake:
	case <-ctx.Done():
	}
}
