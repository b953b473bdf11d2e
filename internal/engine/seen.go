package engine

import (
	"slices"
	"sync"
	"time"

	"go.arco.dev/servo/internal/engine/signal"
	"go.arco.dev/servo/internal/store"
)

// maxSeen bounds how many workers and pools are remembered between two times of telling. It
// is far above what one server can serve.
const maxSeen = 20_000

// seenWorkers are the workers that this server has heard of: by their claims, which say what
// they serve, and by their heartbeats and reports. It is kept in memory and told to the
// database from time to time, outside of the transactions that do the work.
type seenWorkers struct {
	mu    sync.Mutex
	known map[string]knownWorker      // by name
	fresh map[freshWorker]knownWorker // those seen since the last time
	heard map[string]bool             // names of whose pools nothing is known
	news  bool                        // something is fresh that was not known before
}

type knownWorker struct {
	pools []string
	slots int32
	set   *capabilitySet
	at    time.Time
}

type freshWorker struct{ name, pool string }

func newSeenWorkers() *seenWorkers {
	return &seenWorkers{known: map[string]knownWorker{}, fresh: map[freshWorker]knownWorker{}, heard: map[string]bool{}}
}

// claimed takes note of a claim, and reports whether it tells anything new. A worker that does
// not say how many tasks it can hold can hold the most that it has ever asked for.
func (s *seenWorkers) claimed(r ClaimRequest, set *capabilitySet) (news bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	before, known := s.known[r.Worker]
	if !known && len(s.known) >= maxSeen {
		return false
	}
	slots := int32(r.Slots) //nolint:gosec // at most MaxSlots
	if slots == 0 {
		slots = max(before.slots, int32(r.Max)) //nolint:gosec // at most MaxClaim
	}
	now := knownWorker{pools: before.pools, slots: slots, set: set, at: time.Now()}
	if news = !slices.Equal(before.pools, r.Pools); news {
		now.pools = slices.Clone(r.Pools)
	}
	s.known[r.Worker] = now
	s.freshen(r.Worker, now)
	news = news || slots > before.slots || before.set.name() != set.name()
	s.news = s.news || news
	return news
}

func (s *seenWorkers) freshen(name string, w knownWorker) {
	for _, pool := range w.pools {
		key := freshWorker{name, pool}
		if _, there := s.fresh[key]; there || len(s.fresh) < maxSeen {
			s.fresh[key] = w
		}
	}
}

// alive takes note of any other sign of life.
func (s *seenWorkers) alive(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if w, known := s.known[name]; known {
		w.at = time.Now()
		s.known[name] = w
		s.freshen(name, w)
		return
	}
	if len(s.heard) < maxSeen {
		s.heard[name] = true
	}
}

// take gives who was seen since the last time and whether that is new, and forgets who was
// not seen for long.
func (s *seenWorkers) take() (workers []store.SeenWorker, heard []string, news bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	news, s.news = s.news, false
	for key, w := range s.fresh {
		workers = append(workers, store.SeenWorker{Name: key.name, Pool: key.pool, Slots: w.slots, Digest: w.set.name(), Capabilities: w.set.names()})
	}
	for name := range s.heard {
		heard = append(heard, name)
	}
	clear(s.fresh)
	clear(s.heard)
	for name, w := range s.known {
		if time.Since(w.at) > store.WorkerLives {
			delete(s.known, name)
		}
	}
	return workers, heard, news
}

// sawClaim takes note of a claim; what is new about a worker is not kept until the next
// round, since admission fills the queues by what workers can hold.
func (e *Engine) sawClaim(r ClaimRequest, set *capabilitySet) {
	if e.seen.claimed(r, set) {
		e.signals.Wake(signal.Worker)
	}
}

// WorkerAlive takes note of a worker that sent a heartbeat. All that were seen are written
// together, so a name that cannot be written would keep the others from it.
func (e *Engine) WorkerAlive(name string) error {
	if err := checkText("worker_id", name, maxTriggeredByLength); err != nil {
		return err
	}
	e.seen.alive(name)
	return nil
}

// SeenWorkers are the workers that were seen since the last call: those that claimed, with
// their pools, and the names of others. News says that something was not known before.
func (e *Engine) SeenWorkers() (workers []store.SeenWorker, heard []string, news bool) {
	return e.seen.take()
}

// NewWorker is signalled when something new is known about the workers of this server.
func (e *Engine) NewWorker() <-chan struct{} { return e.signals.Wait(signal.Worker) }

// WorkersKnown tells admission, wherever it is done, that pools may hold more.
func (e *Engine) WorkersKnown() { e.signals.Publish(signal.Room) }
