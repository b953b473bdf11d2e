package fair

import (
	"bytes"
	"cmp"
	"container/heap"

	"go.arco.dev/servo/internal/base/id"
)

// Share is one tenant's part of a pool in a round.
type Share struct {
	Tenant id.Tenant
	Weight float64
	EvenAt float64 // the reading of the pool's clock at which the tenant is owed nothing
	Waits  bool    // it has been waiting since EvenAt was last set
	Room   int     // how many more tasks it may have in flight
	Costs  []float64
	More   bool // there are more tasks than Costs has
}

// MinCost is the minimum charge for a task, so that free tasks cannot take the whole pool.
const MinCost = 0.001

// Pick distributes room among the shares of one pool. It returns the indexes of the shares in the
// order in which each gets a task, and the pool's clock afterwards. It updates the shares.
//
// It is deficit round-robin with rounds as short as possible. The tenant that is owed most, by its
// weight, is next and is charged its task's cost. When all waiting tenants are in debt, the clock
// advances until the first is even: each receives time by its weight. A tenant that does
// not wait has its debts reduced at the same pace and collects no credit.
//
// A share records the reading of the clock at which it is even, which does not change while the
// clock advances. So the order of waiting shares is an index, and the shares that a round can serve
// are the first of it: Pick returns the same for all shares and for the first room of them (and one
// more, which determines the debts of those that leave).
func Pick(clock float64, shares []Share, room int) (order []int, now float64) {
	if room == 0 {
		return nil, clock // a round without room changes nothing
	}
	q := &queue{shares: shares}
	front := clock
	for i := range shares {
		if s := &shares[i]; s.wants() && s.Waits {
			front = min(front, s.EvenAt)
		}
	}
	for i := range shares {
		s := &shares[i]
		if !s.wants() {
			s.EvenAt, s.Waits = max(s.EvenAt, clock), false
			continue
		}
		c := claim{share: i, at: s.EvenAt}
		if !s.Waits {
			c.at = Join(s.EvenAt, front, clock)
		}
		q.waiting = append(q.waiting, c)
	}
	heap.Init(q)
	taken := make([]int, len(shares))
	var full []claim // shares that can take no more in this round
	for len(order) < room && len(q.waiting) > 0 {
		next := &q.waiting[0]
		s := &shares[next.share]
		clock = max(clock, next.at)
		next.at += max(MinCost, s.Costs[taken[next.share]]) / s.Weight
		taken[next.share]++
		order = append(order, next.share)
		if taken[next.share] == min(len(s.Costs), s.Room) {
			full = append(full, *next)
			heap.Pop(q)
		} else {
			heap.Fix(q, 0)
		}
	}
	settle(clock, shares, q.waiting, full)
	return order, clock
}

// Join returns the place of a tenant that starts to wait and would be even at evenAt: next to the
// waiting tenant that is owed most (front), behind it by its own debt. So it is served before
// tenants that were served recently, regardless of corrections in their favour.
func Join(evenAt, front, clock float64) float64 { return front + max(0, evenAt-clock) }

// settle updates EvenAt of each share after a round. Those that leave owe what they received beyond
// the remaining tenant that is owed most.
func settle(clock float64, shares []Share, waiting, full []claim) {
	front := clock
	for _, c := range full {
		if s := &shares[c.share]; s.More {
			waiting = append(waiting, c)
		}
	}
	for _, c := range waiting {
		s := &shares[c.share]
		s.EvenAt, s.Waits = c.at, true
		front = min(front, c.at)
	}
	for _, c := range full {
		if s := &shares[c.share]; !s.More {
			s.EvenAt, s.Waits = clock+max(0, c.at-front), false
		}
	}
}

func (s Share) wants() bool { return len(s.Costs) > 0 && s.Room > 0 }

// Deficit returns the worker-seconds that the share is owed at the pool's clock; a negative value is
// a debt. Credit is kept only while the tenant waits.
func (s Share) Deficit(clock float64) float64 {
	deficit := (clock - s.EvenAt) * s.Weight
	if s.Waits {
		return deficit
	}
	return min(0, deficit)
}

// claim is a share that waits, and the clock at which it is even.
type claim struct {
	share int
	at    float64
}

type queue struct {
	shares  []Share
	waiting []claim
}

func (q *queue) Len() int      { return len(q.waiting) }
func (q *queue) Swap(i, j int) { q.waiting[i], q.waiting[j] = q.waiting[j], q.waiting[i] }

// Less puts the share that is even first in front, as the index of waiting shares does.
func (q *queue) Less(i, j int) bool {
	a, b := q.waiting[i], q.waiting[j]
	return cmp.Or(cmp.Compare(a.at, b.at), bytes.Compare(q.shares[a.share].Tenant.UUID[:], q.shares[b.share].Tenant.UUID[:]), cmp.Compare(a.share, b.share)) < 0
}

// Push implements heap.Interface; nothing joins in the middle of a round.
func (q *queue) Push(c any) { q.waiting = append(q.waiting, c.(claim)) } //nolint:forcetypeassert // of claims alone

// Pop implements heap.Interface.
func (q *queue) Pop() any {
	last := q.waiting[len(q.waiting)-1]
	q.waiting = q.waiting[:len(q.waiting)-1]
	return last
}
