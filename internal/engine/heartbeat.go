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

// Heartbeat is one worker's sign of life for one lease.
type Heartbeat = store.Pulse

// Pulse answers a heartbeat or a progress: whether the lease is held, and whether to stop.
type Pulse = store.PulseAnswer

// maxHeartbeats is how many leases one call renews or tells of.
const maxHeartbeats = 10_000

// Heartbeats renew leases, each for as long as its claim has asked. The answers stand in the
// order of the beats. They have a lane of their own, so that a server with too much to do does
// not look dead to its workers.
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

// SettledClaims are claims of a worker that are over: it will not take any lease of theirs that it does
// not hold already.
type SettledClaims struct {
	Worker      string
	First, Last id.Claim // share their first half, which one process makes at random
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

// ReturnUnheld gives back to the queue what settled claims were leased and their worker does not hold: a
// server that was stopped has answered a claim that another had answered before. It says how many.
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

// pulseKey tells leases apart by all that they are known by: a beat with somebody else's
// task or another token must neither hold back the right one nor get its answer.
func pulseKey(key store.TaskKey, token int64) store.PulseKey {
	return store.PulseKey{TaskKey: key, Token: token}
}
