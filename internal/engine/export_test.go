package engine

import (
	"context"
	"time"

	"go.arco.dev/servo/internal/store"
)

// CancelRuns puts several cancels into one batch.
func (e *Engine) CancelRuns(ctx context.Context, cancels []Cancel) ([]Cancelled, []error) {
	cmds := make([]controlCommand, len(cancels))
	for i, c := range cancels {
		cmds[i] = &cancelCommand{Cancel: c}
	}
	errs := e.control.doAll(ctx, cmds)
	answers := make([]Cancelled, len(cancels))
	for i, cmd := range cmds {
		if errs[i] == nil {
			answers[i] = cmd.(*cancelCommand).answer //nolint:forcetypeassert // made above
		}
	}
	return answers, errs
}

// MaxAncestors is how many runs a retry looks back.
const MaxAncestors = maxAncestors

// FiringSeats is how many transactions fire at the same time.
const FiringSeats = firingSeats

// Standing is how many claims wait in this process for a transaction that has something for them.
func (e *Engine) Standing() int {
	e.short.stands.mu.Lock()
	defer e.short.stands.mu.Unlock()
	return len(e.short.stands.waiting)
}

// Together puts a claim and a report into one batch, and gives what the claim gets.
func (e *Engine) Together(ctx context.Context, c ClaimRequest, r Report) ([]Lease, []error) {
	claim := &claimCommand{ClaimRequest: c, renewal: c.Lease}
	errs := e.work.doAll(ctx, []workCommand{claim, &reportCommand{Report: r}})
	return claim.leases, errs
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
