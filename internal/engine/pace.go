package engine

import (
	"math"
	"sync"
	"time"

	"go.arco.dev/servo/internal/store"
)

// pace is how fast workers take tasks from the pools' queues, measured by the rounds of this server. It
// only decides how far admission looks ahead: a server without rounds begins with a part of the workers'
// capacity.
type pace struct {
	mu    sync.Mutex
	at    time.Time // of the last round
	round float64   // seconds that a round takes
	pools map[string]poolPace
}

type poolPace struct {
	left int     // in the queue after the last round
	rate float64 // tasks a second
}

// maxPause is the longest time between two rounds that counts as the time of a round: after
// longer ones admission had nothing to do.
const maxPause = 0.25

// maxPacedPools bounds the pools that are remembered: workers may name any.
const maxPacedPools = 10_000

// ahead writes into each pool how many tasks its workers take while a few rounds are made. The time
// that rounds take counts, not the time between them: a long queue needs rounds seldom, and would
// grow from that.
func (p *pace) ahead(pools store.ReadyPools) {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := time.Now()
	since := now.Sub(p.at).Seconds()
	p.at = now
	for i, name := range pools.Names {
		seen := p.pools[name]
		if since < maxPause {
			seen.rate += (float64(max(0, seen.left-pools.Rooms[i].PoolQueued))/max(since, 0.001) - seen.rate) / 4
		}
		if p.pools == nil || len(p.pools) > maxPacedPools {
			p.pools = map[string]poolPace{}
		}
		p.pools[name] = seen
		pools.Rooms[i].PoolAhead = int(math.Ceil(seen.rate * p.round * roundsAhead))
	}
}

// took remembers how long a round took.
func (p *pace) took(d time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.round += (min(d.Seconds(), maxPause) - p.round) / 4
}

// queued remembers what a round leaves in the queues.
func (p *pace) queued(pools []*poolRound) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, r := range pools {
		seen := p.pools[r.pool]
		seen.left = r.queued
		p.pools[r.pool] = seen
	}
}
