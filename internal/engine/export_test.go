package engine

import (
	"context"
	"time"

	"go.arco.dev/servo/internal/store"
)

// CancelRuns puts several cancels into one batch.
func (e *Engine) CancelRuns(ctx context.Context, cancels []Cancel) ([]Cancelled, []error) {
	requests := make([]controlRequest, len(cancels))
	for i := range cancels {
		requests[i].cancel = &cancels[i]
	}
	found, errs := e.control.DoAll(ctx, requests)
	answers := make([]Cancelled, len(cancels))
	for i := range found {
		answers[i] = found[i].cancel
	}
	return answers, errs
}

// MaxAncestors is how many runs a retry looks back.
const MaxAncestors = maxAncestors

// FiringSeats is how many transactions fire at the same time.
const FiringSeats = firingSeats

// WaitingClaims is how many claims wait in this process for a handoff.
func (e *Engine) WaitingClaims() int {
	e.handoffs.waiting.mu.Lock()
	defer e.handoffs.waiting.mu.Unlock()
	return len(e.handoffs.waiting.waiting)
}

// Together puts a claim and a report into one batch, and gives what the claim gets.
func (e *Engine) Together(ctx context.Context, c ClaimRequest, r Report) ([]Lease, []error) {
	answers, errs := e.work.DoAll(ctx, []workRequest{{claim: &claimCommand{ClaimRequest: c, renewal: c.Lease}}, {report: &r}})
	return answers[0].leases, errs
}

// Pace is how far admission looks ahead.
type Pace struct{ pace }

// Round makes a round that takes so long and fills the queue again, and gives how far it looked ahead.
func (p *Pace) Round(queued, target int, took time.Duration) (ahead int) {
	pools := store.ReadyPools{Names: []string{"p"}, Rooms: []store.PoolRoom{{PoolQueued: queued}}}
	p.ahead(pools)
	time.Sleep(took)
	p.queued([]*poolRound{{pool: "p", queued: target}})
	p.took(took)
	return pools.Rooms[0].PoolAhead
}
