package cli

import (
	"context"
	"os"
	"os/signal"
	"syscall"
)

// WithSignals gives a context that the first SIGINT or SIGTERM ends: an orderly end is
// asked for. After it the next one kills as usual, unless a command has set itself up to
// hear it (see secondSignal).
func WithSignals(ctx context.Context) context.Context {
	ctx, stop := signal.NotifyContext(ctx, os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop)
	return ctx
}

// secondSignal gives a channel that is closed when somebody who has already asked for an
// orderly end has lost patience. The signal after that kills. It is for commands that have
// children to end: a killed process ends nobody.
func secondSignal(ctx context.Context) (<-chan struct{}, context.CancelFunc) {
	heard := make(chan os.Signal, 2)
	signal.Notify(heard, os.Interrupt, syscall.SIGTERM)
	impatient := make(chan struct{})
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	go func() {
		defer signal.Stop(heard)
		for range 2 {
			select {
			case <-heard:
			case <-ctx.Done():
				return
			}
		}
		close(impatient)
	}()
	return impatient, cancel
}
