package engine

import (
	"context"
	"errors"
	"strings"

	"go.arco.dev/servo/internal/base/event"
	"go.arco.dev/servo/internal/base/fault"
	"go.arco.dev/servo/internal/domain/run"
	"go.arco.dev/servo/internal/engine/signal"
	"go.arco.dev/servo/internal/store"
)

// PushPools returns the push pools, and which of them have queued tasks.
func (e *Engine) PushPools(ctx context.Context) ([]store.PushPool, error) {
	return e.store.PushPools(ctx)
}

// PushWork is signalled when a task was queued in one of these pools, or when pools were
// configured. Take the channel first, look second, and call stop when done, signalled or not.
func (e *Engine) PushWork(pools []string) (work <-chan struct{}, stop func()) {
	w := e.signals.WaitAny(append([]string{signal.Pools}, pools...))
	return w.C, w.Stop
}

// ServesPush records that a worker, which is a dispatching server, has this capacity for a pool:
// admission fills queues by the capacity of their workers.
func (e *Engine) ServesPush(worker, pool string, slots int) {
	e.sawClaim(ClaimRequest{Worker: worker, Pools: []string{pool}, Max: slots, Slots: slots}, nil)
}

// dispatcherPrefix begins the worker names of dispatching servers.
const dispatcherPrefix = "push/"

// DispatcherName is the name under which a server serves a push pool.
func DispatcherName(server, pool string) string { return dispatcherPrefix + server + "/" + pool }

// DispatchingServer is the server that a worker is the dispatcher of; "" for other workers.
func DispatchingServer(worker string) string {
	rest, is := strings.CutPrefix(worker, dispatcherPrefix)
	if !is {
		return ""
	}
	server, _, _ := strings.Cut(rest, "/")
	return server
}

// releaseBatch is how many leases of a former process are returned at once.
const releaseBatch = 500

// ReleaseUnstarted returns the leases that workers whose names begin with prefix have not started.
// A server calls it before its first claim: a former process that was killed returned none.
func (e *Engine) ReleaseUnstarted(ctx context.Context, prefix string, meta event.Meta) error {
	for {
		held, err := e.store.UnstartedLeases(ctx, prefix, releaseBatch)
		if err != nil || len(held) == 0 {
			return err
		}
		if err := e.interrupt(ctx, held, nil, "the server stopped while the task was sent", meta); err != nil || len(held) < releaseBatch {
			return err
		}
	}
}

// interrupt returns leases to the queue, as their worker would. Pools are those that the worker may
// serve; nil is all.
func (e *Engine) interrupt(ctx context.Context, leases []store.PulseKey, pools []string, why string, meta event.Meta) error {
	reports := make([]Report, len(leases))
	for i, l := range leases {
		reports[i] = Report{
			TaskKey: l.TaskKey, Token: l.Token, Pools: pools, Meta: meta,
			Action: Fail{Failure: run.Failure{Code: run.CodeInterrupted, Message: why}},
		}
	}
	_, errs := e.Report(ctx, reports)
	for _, err := range errs {
		if err != nil && !fault.Is(err, fault.Stale) {
			return errors.Join(errs...)
		}
	}
	return nil
}
