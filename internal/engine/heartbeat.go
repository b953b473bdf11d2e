package engine

import (
	"bytes"
	"context"
	"fmt"
	"slices"

	"go.arco.dev/servo/internal/base/event"
	"go.arco.dev/servo/internal/base/fault"
	"go.arco.dev/servo/internal/base/id"
	"go.arco.dev/servo/internal/engine/batch"
	"go.arco.dev/servo/internal/store"
)

// Heartbeat renews one lease of a worker.
type Heartbeat = store.Pulse

// Pulse answers a heartbeat or a progress: whether the lease is held, and whether to stop.
type Pulse = store.PulseAnswer

// maxHeartbeats is how many leases one call renews or reports.
const maxHeartbeats = 10_000

// Heartbeats renew leases, each for as long as its claim has requested. The answers are in the order of
// the beats. They have a lane of their own, so that an overloaded server does not look dead to its
// workers.
func (e *Engine) Heartbeats(ctx context.Context, beats []Heartbeat) ([]Pulse, error) {
	if len(beats) > maxHeartbeats {
		return nil, fault.New(fault.LimitExceeded, fmt.Sprintf("has %d heartbeats, the limit of one call is %d", len(beats), maxHeartbeats),
			fault.Field("leases"), fault.Remedy("send them in several calls"), fault.Value("limit", maxHeartbeats))
	}
	if len(beats) == 0 {
		return nil, nil
	}
	return e.heartbeats.Do(ctx, beats)
}

// SettledClaims are claims of a worker that are over: the worker will accept no lease of theirs that it
// does not hold yet.
type SettledClaims struct {
	Worker      string
	First, Last id.Claim // have the same first half, which is random for each process
	Pools       []string // that the worker may serve; nil is all
	Meta        event.Meta
}

func (s SettledClaims) validate() error {
	const shared = 8
	if !bytes.Equal(s.First.UUID[:shared], s.Last.UUID[:shared]) || bytes.Compare(s.First.UUID[:], s.Last.UUID[:]) > 0 {
		return fault.New(fault.InvalidArgument, "is not a range of claims of one process", fault.Field("settled"),
			fault.Remedy("begin the ids of all claims with the same 8 random bytes, count upward in the rest, and send the first and the last"))
	}
	return nil
}

// ReturnUnheld returns to the queue the leases of settled claims that their worker does not hold: the
// answer of a claim was lost, and the claim was repeated at another server. It returns how many.
func (e *Engine) ReturnUnheld(ctx context.Context, settled SettledClaims, held []Heartbeat) (int, error) {
	if err := settled.validate(); err != nil {
		return 0, err
	}
	leases, err := e.store.LeasesOfClaimRange(ctx, settled.Worker, settled.First, settled.Last, maxHeartbeats)
	if err != nil || len(leases) == 0 {
		return 0, err
	}
	known := make(map[store.PulseKey]bool, len(held))
	for _, b := range held {
		known[pulseKey(b.Key, b.Token)] = true
	}
	leases = slices.DeleteFunc(leases, func(l store.PulseKey) bool { return known[l] })
	if len(leases) == 0 {
		return 0, nil
	}
	return len(leases), e.interrupt(ctx, leases, settled.Pools, "the answer that had this lease did not reach the worker", settled.Meta)
}

// weightOf counts a call with its entries, which bounds a transaction.
func weightOf[T any](entries []T) int { return len(entries) }

func (e *Engine) runHeartbeats(ctx context.Context, calls []*batch.Call[[]Heartbeat, []Pulse]) error {
	var beats []Heartbeat
	seen := map[store.PulseKey]int{}
	for _, c := range calls {
		for _, b := range c.Request {
			key := pulseKey(b.Key, b.Token)
			i, known := seen[key]
			switch {
			case !known:
				seen[key] = len(beats)
				beats = append(beats, b)
			case b.Lease == 0: // the worker's own beat renews for longer than its dispatcher's
				beats[i].Lease = 0
			}
		}
	}
	alive, err := e.store.Heartbeat(ctx, beats)
	if err != nil {
		return err
	}
	for _, c := range calls {
		c.Answer = make([]Pulse, len(c.Request))
		for i, b := range c.Request {
			c.Answer[i] = alive[pulseKey(b.Key, b.Token)]
		}
	}
	return nil
}

// pulseKey identifies a lease by all its keys: a beat with another task or token must neither hide the
// right one nor get its answer.
func pulseKey(key store.TaskKey, token int64) store.PulseKey {
	return store.PulseKey{TaskKey: key, Token: token}
}
