package cli

import (
	"context"
	"os"
	"os/signal"
	"syscall"
)

// WithSignals returns a context that the first SIGINT or SIGTERM cancels, for an orderly stop. The
// next signal kills the process, unless a command handles it (see secondSignal).
func WithSignals(ctx context.Context) context.Context {
	ctx, stop := signal.NotifyContext(ctx, os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop)
	return ctx
}

// secondSignal returns a channel that is closed at the second signal. The signal after that kills
// the process. It is for commands with child processes, which a killed process cannot stop.
func secondSignal(ctx context.Context) (<-chan struct{}, context.CancelFunc) {
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	impatient := make(chan struct{})
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	go func() {
		defer signal.Stop(signals)
		for range 2 {
			select {
			case <-signals:
			case <-ctx.Done():
				return
			}
		}
		close(impatient)
	}()
	return impatient, cancel
}
