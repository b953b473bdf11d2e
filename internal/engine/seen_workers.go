package engine

import (
	"slices"
	"sync"
	"time"

	"go.arco.dev/servo/internal/engine/signal"
	"go.arco.dev/servo/internal/store"
)

// maxSeen bounds the workers and pools that are remembered between two writes. It is far above what one
// server can serve.
const maxSeen = 20_000

// seenWorkers are the workers that called this server: with claims, which name their pools, and with
// heartbeats and reports. They are kept in memory and written to the database from time to time, outside of
// the transactions that do the work.
type seenWorkers struct {
	mu    sync.Mutex
	known map[string]knownWorker      // by name
	fresh map[freshWorker]knownWorker // seen since the last write
	named map[string]bool             // names of workers with unknown pools
	news  bool                        // fresh has something that was not known before
}

type knownWorker struct {
	pools []string
	slots int32
	set   *capabilitySet
	at    time.Time
}

type freshWorker struct{ name, pool string }

func newSeenWorkers() *seenWorkers {
	return &seenWorkers{known: map[string]knownWorker{}, fresh: map[freshWorker]knownWorker{}, named: map[string]bool{}}
}

// claimed remembers the worker of a claim, and reports whether anything about it is new. A worker that does
// not report its capacity has the capacity of its largest claim.
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

// alive remembers a worker that sent anything else.
func (s *seenWorkers) alive(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if w, known := s.known[name]; known {
		w.at = time.Now()
		s.known[name] = w
		s.freshen(name, w)
		return
	}
	if len(s.named) < maxSeen {
		s.named[name] = true
	}
}

// take returns the workers that were seen since the last call and whether anything is new, and forgets
// those that were not seen for long.
func (s *seenWorkers) take() (workers []store.SeenWorker, named []string, news bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	news, s.news = s.news, false
	for key, w := range s.fresh {
		workers = append(workers, store.SeenWorker{Name: key.name, Pool: key.pool, Slots: w.slots, Digest: w.set.name(), Capabilities: w.set.names()})
	}
	for name := range s.named {
		named = append(named, name)
	}
	clear(s.fresh)
	clear(s.named)
	for name, w := range s.known {
		if time.Since(w.at) > store.WorkerLives {
			delete(s.known, name)
		}
	}
	return workers, named, news
}

// sawClaim remembers the worker of a claim. News are written at once, since admission fills the queues by
// the capacity of workers.
func (e *Engine) sawClaim(r ClaimRequest, set *capabilitySet) {
	if e.seen.claimed(r, set) {
		e.signals.Wake(signal.Worker)
	}
}

// WorkerAlive remembers a worker that sent a heartbeat. All workers are written in one statement, so a name
// that cannot be stored is left out: it would fail the others.
func (e *Engine) WorkerAlive(name string) error {
	if err := checkText("worker_id", name, maxTriggeredByLength); err != nil {
		return err
	}
	e.seen.alive(name)
	return nil
}

// SeenWorkers returns the workers that were seen since the last call: those that claimed, with their pools,
// and the names of others. News reports that something was not known before.
func (e *Engine) SeenWorkers() (workers []store.SeenWorker, named []string, news bool) {
	return e.seen.take()
}

// NewWorker is signalled when a worker of this server is new, or serves other pools.
func (e *Engine) NewWorker() <-chan struct{} { return e.signals.Wait(signal.Worker) }

// WorkersKnown notifies admission, on whichever server, that pools may have more capacity.
func (e *Engine) WorkersKnown() { e.signals.Publish(signal.Room) }
