// Package loop is the one shape of everything that runs in the background: a name, a pace
// and one function that does a bounded piece of work. A loop never dies of an error: it
// logs it and tries again, later and later.
package loop

import (
	"context"
	"log/slog"
	"math/rand/v2"
	"sync"
	"time"
)

// Config says how a loop runs.
type Config struct {
	Name  string
	Every time.Duration // the pace when nothing wakes it
	// Wake, if set, gives a channel that closes when there is work. It is asked before
	// each look, so that nothing is missed in between.
	Wake func() <-chan struct{}
	// RunOnce does one piece of work. More says that the next may follow at once.
	RunOnce func(ctx context.Context) (more bool, err error)
	Logger  *slog.Logger
}

// Loop runs a function again and again until it is stopped.
type Loop struct {
	config Config
	cancel context.CancelFunc
	done   sync.WaitGroup
}

// maxBackoff bounds the wait after errors, as do two rounds of the loop: work that became
// due while the database was away must not wait for long once it is back.
const maxBackoff = 10 * time.Second

// firstBackoff is the wait after the first error: most are over at once, such as a collision of
// two transactions or a connection that was cut.
const firstBackoff = 50 * time.Millisecond

// patience bounds one piece of work. A database that went away without a word would
// otherwise be waited for until the network gives up, for a quarter of an hour.
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

// Stop cancels the piece of work in hand and waits for the loop to end.
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
			l.config.Logger.Error("loop failed, trying again", "loop", l.config.Name, "error", err, "in", backoff)
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

// sleep waits for a time, a signal or the end, whichever comes first.
func sleep(ctx context.Context, d time.Duration, wake <-chan struct{}) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-wake:
	case <-ctx.Done():
	}
}
