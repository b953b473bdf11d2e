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
	Waits   bool    // it still waited after the round that set the deficit
	Room    int     // how many more tasks it may have in flight
	Costs   []float64
	More    bool // there are more tasks than Costs has
}

// MinCost is the least that a task is charged: what costs nothing could be taken for ever.
const MinCost = 0.001

// Pick gives out room among the shares of one pool: the indexes of the shares in the order
// in which they get a task each, and the pool's clock afterwards. The shares' deficits and
// clocks are brought up to date.
//
// It is deficit round-robin with rounds as short as they can be. Whoever is owed most, by its
// weight, comes next and is charged its task's cost. When everybody who waits owes something,
// the clock goes on until the first is even: each is given time by its weight. A tenant that
// does not wait is forgiven its debts at the same pace and gathers no credit; when it comes it
// stands beside those who are owed most, so it is served before those who were served lately,
// however much was settled in their favour meanwhile.
func Pick(clock float64, shares []Share, room int) (order []int, now float64) {
	if room == 0 {
		return nil, clock // nobody waits for less because nobody can be served
	}
	q := &queue{shares: shares}
	front := clock
	for i := range shares {
		if s := &shares[i]; s.wants() && s.stays(clock) {
			front = min(front, clock-s.Deficit/s.Weight)
		}
	}
	for i := range shares {
		s := &shares[i]
		if !s.wants() {
			s.Deficit, s.Clock, s.Waits = s.Now(clock), clock, false
			continue
		}
		c := claim{share: i, at: clock - s.Deficit/s.Weight}
		if !s.stays(clock) {
			c.at = front + max(0, -s.Now(clock))/s.Weight
		}
		q.waiting = append(q.waiting, c)
	}
	heap.Init(q)
	taken := make([]int, len(shares))
	var full []claim // who can take no more in this round
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

// settle writes down what each share is owed when a round is over. Those that leave owe what
// they took beyond the one that is owed most of those that go on waiting.
func settle(clock float64, shares []Share, waiting, full []claim) {
	front := clock
	for _, c := range full {
		if s := &shares[c.share]; s.More {
			waiting = append(waiting, c)
		}
	}
	for _, c := range waiting {
		s := &shares[c.share]
		s.Deficit, s.Clock, s.Waits = (clock-c.at)*s.Weight, clock, true
		front = min(front, c.at)
	}
	for _, c := range full {
		if s := &shares[c.share]; !s.More {
			s.Deficit, s.Clock, s.Waits = min(0, front-c.at)*s.Weight, clock, false
		}
	}
}

func (s Share) wants() bool { return len(s.Costs) > 0 && s.Room > 0 }

// stays says that the share has waited since the last round.
func (s Share) stays(clock float64) bool { return s.Waits && s.Clock == clock }

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
