package engine

import (
	"slices"
	"sync"

	"go.arco.dev/servo/internal/base/id"
	"go.arco.dev/servo/internal/domain/run"
)

// waitingClaims are the claims that wait in this process for a handoff, or for a signal to look
// themselves. The one that waits longest gets a task first.
type waitingClaims struct {
	mu      sync.Mutex
	waiting []*waitingClaim
}

// waitingClaim is a claim that waits.
type waitingClaim struct {
	*claimCommand

	leases []Lease // by a committed handoff; read it after done is closed
	// done is closed when a transaction that has taken the claim has ended. A claim without leases
	// must look itself.
	done chan struct{}
}

func (b *waitingClaims) add(c *claimCommand) *waitingClaim {
	w := &waitingClaim{claimCommand: c, done: make(chan struct{})}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.waiting = append(b.waiting, w)
	return w
}

// take removes and returns claims that could get these tasks, as many as the tasks need, without
// those that are part of the transaction (asking). Of claims with the same id it takes one: a repeat
// may wait beside its first try. The caller must end the wait of each.
func (b *waitingClaims) take(tasks []run.Task, asking []*openClaim) []*waitingClaim {
	served := map[id.Claim]bool{}
	for _, c := range asking {
		served[c.Claim] = true
	}
	wanted := slices.Clone(tasks)
	b.mu.Lock()
	defer b.mu.Unlock()
	var taken []*waitingClaim
	b.waiting = slices.DeleteFunc(b.waiting, func(w *waitingClaim) bool {
		if served[w.Claim] {
			return false
		}
		room := w.Max
		wanted = slices.DeleteFunc(wanted, func(t run.Task) bool {
			takes := room > 0 && w.takes(t)
			if takes {
				room--
			}
			return takes
		})
		if room == w.Max {
			return false
		}
		served[w.Claim] = true
		taken = append(taken, w)
		return true
	})
	return taken
}

// leave ends the wait of a claim. False means that a transaction has taken the claim, and that the
// caller must wait for its end.
func (b *waitingClaims) leave(w *waitingClaim) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	i := slices.Index(b.waiting, w)
	if i < 0 {
		return false
	}
	b.waiting = slices.Delete(b.waiting, i, i+1)
	return true
}
