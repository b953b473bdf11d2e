package engine

import (
	"context"

	"go.arco.dev/servo/internal/store"
)

// PushPools are the pools that are called, and which of them have something to send.
func (e *Engine) PushPools(ctx context.Context) ([]store.PushPool, error) {
	return e.store.PushPools(ctx)
}

// PushWork is signalled when a task was queued in one of these pools, or when pools were
// configured. Take the channel first, look second, and call stop when done, signalled or not.
func (e *Engine) PushWork(pools []string) (work <-chan struct{}, stop func()) {
	w := e.signals.waitAny(append([]string{poolsTopic}, pools...))
	return w.ch, w.stop
}

// ServesPush says that a worker, which is a server that sends, can take so many tasks of a
// pool: admission fills queues by what those who serve them can hold.
func (e *Engine) ServesPush(worker, pool string, slots int) {
	e.sawClaim(ClaimRequest{Worker: worker, Pools: []string{pool}, Max: slots, Slots: slots})
}
