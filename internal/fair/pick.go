package fair

import (
	"container/heap"

	"go.arco.dev/servo/internal/id"
)

// Share is one tenant's part of a pool in a round.
type Share struct {
	Tenant  id.Tenant
	Weight  float64
	Deficit float64 // worker-seconds that it is owed; below 0 it owes them
	Clock   float64 // the pool's clock when the deficit was right
	Room    int     // how many more tasks it may have in flight
	Costs   []float64
}

// MinCost is the least that a task is charged: what costs nothing could be taken for ever.
const MinCost = 0.001

// Pick gives out room among the shares of one pool: the indexes of the shares in the order
// in which they get a task each, and the pool's clock afterwards. The shares' deficits and
// clocks are brought up to date.
//
// It is deficit round-robin with rounds as short as they can be. Whoever is owed most, by its
// weight, comes next and is charged its task's cost, so a tenant that has just arrived is
// served before those who were served lately. When everybody who waits owes something, the
// clock goes on until the first is even: each is given time by its weight. A tenant that does
// not wait is forgiven its debts at the same pace and gathers no credit.
func Pick(clock float64, shares []Share, room int) (order []int, now float64) {
	q := &queue{shares: shares}
	for i := range shares {
		s := &shares[i]
		s.Deficit, s.Clock = s.Now(clock), clock
		if len(s.Costs) > 0 && s.Room > 0 {
			q.waiting = append(q.waiting, claim{share: i, at: clock - s.Deficit/s.Weight})
		}
	}
	heap.Init(q)
	taken := make([]int, len(shares))
	for len(order) < room && len(q.waiting) > 0 {
		next := &q.waiting[0]
		s := &shares[next.share]
		clock = max(clock, next.at)
		cost := max(MinCost, s.Costs[taken[next.share]])
		next.at += cost / s.Weight
		taken[next.share]++
		order = append(order, next.share)
		if taken[next.share] == min(len(s.Costs), s.Room) {
			s.Deficit, s.Clock = (clock-next.at)*s.Weight, clock
			heap.Pop(q)
		} else {
			heap.Fix(q, 0)
		}
	}
	for _, c := range q.waiting {
		s := &shares[c.share]
		s.Deficit, s.Clock = (clock-c.at)*s.Weight, clock
	}
	return order, clock
}

// Now is the share's deficit at the pool's clock: what it owes is forgiven by its weight while
// it does not wait, and what it is owed is lost then.
func (s Share) Now(clock float64) float64 {
	if clock <= s.Clock {
		return s.Deficit
	}
	return min(0, s.Deficit+(clock-s.Clock)*s.Weight)
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

// Less puts who is even first in front; of two alike, the one with the greater weight.
func (q *queue) Less(i, j int) bool {
	a, b := q.waiting[i], q.waiting[j]
	if a.at != b.at {
		return a.at < b.at
	}
	if wa, wb := q.shares[a.share].Weight, q.shares[b.share].Weight; wa != wb {
		return wa > wb
	}
	return a.share < b.share
}

// Push implements heap.Interface; nothing joins in the middle of a round.
func (q *queue) Push(c any) { q.waiting = append(q.waiting, c.(claim)) } //nolint:forcetypeassert // of claims alone

// Pop implements heap.Interface.
func (q *queue) Pop() any {
	last := q.waiting[len(q.waiting)-1]
	q.waiting = q.waiting[:len(q.waiting)-1]
	return last
}
