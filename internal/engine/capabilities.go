package engine

import (
	"context"
	"slices"
	"strings"
	"sync"

	"go.arco.dev/servo/internal/base/event"
	"go.arco.dev/servo/internal/base/fault"
	"go.arco.dev/servo/internal/domain/asset"
	"go.arco.dev/servo/internal/domain/run"
	"go.arco.dev/servo/internal/engine/signal"
	"go.arco.dev/servo/internal/store"
)

// A task needs a capability, and a worker declares the ones it has (docs/adr/0034-capabilities.md).
// Admission holds tasks that no live worker of their pool can run, and a claim gets tasks that its
// worker can run.

const (
	maxCapabilities     = 10_000
	maxCapabilityLength = 300
	// maxSets bounds the lists that a server remembers. They are few: one for each build.
	maxSets = 10_000
	// releaseHeldBatch is how many held tasks of a pool and capability are released at once.
	releaseHeldBatch = 10_000
)

// capabilitySets caches sets by the list that workers declare, and by digest.
type capabilitySets struct {
	mu       sync.Mutex
	declared map[string]*capabilitySet
	byDigest map[string]*capabilitySet
}

// of returns the set of a list that a worker declares. A new list is validated.
func (c *capabilitySets) of(list []string) (*capabilitySet, error) {
	if len(list) == 0 {
		return nil, nil //nolint:nilnil // a worker that declares nothing can run everything
	}
	key := strings.Join(list, "\x00")
	c.mu.Lock()
	defer c.mu.Unlock()
	if s := c.declared[key]; s != nil {
		return s, nil
	}
	if len(list) > maxCapabilities {
		return nil, fault.New(fault.InvalidArgument, "must name at most 10000", fault.Field("capabilities"), fault.Remedy("split the handlers among several workers"))
	}
	for _, capability := range list {
		if capability == "" {
			return nil, fault.New(fault.InvalidArgument, "has an empty name", fault.Field("capabilities"), fault.Remedy("use exec, http, go: and a handler, or python: and an asset"))
		}
		if err := checkText("capabilities", capability, maxCapabilityLength); err != nil {
			return nil, err
		}
	}
	s := newCapabilitySet(list)
	if c.declared == nil || len(c.declared) >= maxSets {
		c.declared = map[string]*capabilitySet{}
	}
	c.declared[key] = s
	c.remember(s)
	return s, nil
}

func (c *capabilitySets) remember(s *capabilitySet) {
	if c.byDigest == nil || len(c.byDigest) >= maxSets {
		c.byDigest = map[string]*capabilitySet{}
	}
	c.byDigest[s.digest] = s
}

// ofWorkers returns the capabilities of the live workers of a pool, by the digests of their sets. Sets that
// are not cached are read.
func (c *capabilitySets) ofWorkers(ctx context.Context, tx *store.Tx, digests []string) (poolCapabilities, error) {
	if len(digests) == 0 || slices.Contains(digests, store.Everything) {
		return poolCapabilities{everything: true, workers: len(digests) > 0}, nil
	}
	can := poolCapabilities{workers: true}
	var unknown []string
	c.mu.Lock()
	for _, digest := range digests {
		if s := c.byDigest[digest]; s != nil {
			can.sets = append(can.sets, s)
		} else {
			unknown = append(unknown, digest)
		}
	}
	c.mu.Unlock()
	if len(unknown) == 0 {
		return can, nil
	}
	found, err := tx.CapabilitySets(ctx, unknown)
	if err != nil {
		return can, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for digest, list := range found {
		s := newCapabilitySet(list)
		s.digest = digest
		c.remember(s)
		can.sets = append(can.sets, s)
	}
	return can, nil
}

// lookUp reads the capabilities of the workers of each pool of a round.
func (e *Engine) lookUp(ctx context.Context, tx *store.Tx, pools []*poolRound) (err error) {
	for _, p := range pools {
		if p.can, err = e.capabilities.ofWorkers(ctx, tx, p.sets); err != nil {
			return err
		}
	}
	return nil
}

// MatchWorkers compares tasks with the capabilities of the live workers: it releases held tasks that a worker
// can run, and withdraws up to most queued ones that none can run. It returns how many it examined.
func (e *Engine) MatchWorkers(ctx context.Context, most int) (looked int, err error) {
	released := 0
	err = e.store.Engine(ctx, func(ctx context.Context, tx *store.Tx) (err error) {
		released, err = tx.ReleaseCapable(ctx, AdmissionDuty, workerAlive, releaseHeldBatch)
		return err
	})
	if err != nil {
		return 0, err
	}
	if released > 0 {
		e.signals.Publish(signal.Ready)
	}
	err = e.transact(ctx, func(ctx context.Context, tx *store.Tx, w *working) error {
		candidates, err := tx.QueuedWithoutWorker(ctx, workerAlive, most)
		looked = len(candidates)
		if err != nil || looked == 0 {
			return err
		}
		return withdraw(ctx, tx, w, candidates, tx.LockQueued, "no live worker of the pool can run it any more")
	})
	return max(looked, released), err
}

// withdraw makes queued tasks ready again. Their runs are locked first, so that a cancel finds each task in
// one of the queues.
func withdraw(ctx context.Context, tx *store.Tx, w *working, candidates []store.TaskKey, lock func(context.Context, []store.TaskKey) ([]run.Task, error), reason string) error {
	runs, err := tx.LockRuns(ctx, store.LockForMove, runKeys(candidates))
	if err != nil {
		return err
	}
	queued, err := lock(ctx, candidates)
	if err != nil {
		return err
	}
	now, err := tx.Clock(ctx)
	if err != nil {
		return err
	}
	w.at(now)
	w.addRuns(runs)
	for _, t := range queued {
		if err := w.decide(w.add(t), run.Withdraw{Reason: reason}, event.Meta{Actor: "reaper"}); err != nil {
			return err
		}
	}
	return nil
}

// UnservedNeed is a capability that tasks of a pool wait for, and what to do about it.
type UnservedNeed struct {
	store.UnservedNeed

	Remedy string
}

// UnservedNeeds are the capabilities that waiting tasks need and no live worker of their pool has.
func (e *Engine) UnservedNeeds(ctx context.Context) ([]UnservedNeed, error) {
	found, err := e.store.UnservedNeeds(ctx, workerAlive)
	if err != nil {
		return nil, err
	}
	needs := make([]UnservedNeed, len(found))
	for i, n := range found {
		_, remedy := describeNeed(n.Needs, n.Pool)
		needs[i] = UnservedNeed{UnservedNeed: n, Remedy: remedy}
	}
	return needs, nil
}

// WorkerWarnings are the assets of a manifest that no live worker can run now.
func (e *Engine) WorkerWarnings(ctx context.Context, m *asset.Manifest) (warnings []WorkerWarning, err error) {
	pools := poolNames(manifestPools(m))
	can := make(map[string]poolCapabilities, len(pools))
	err = e.store.Snapshot(ctx, func(ctx context.Context, tx *store.Tx) error {
		live, err := tx.LivePoolSets(ctx, pools, workerAlive)
		if err != nil {
			return err
		}
		for _, pool := range pools {
			if can[pool], err = e.capabilities.ofWorkers(ctx, tx, live[pool]); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	places := map[[2]string]int{}
	for _, a := range m.Assets {
		needs := a.Capability()
		if can[a.Pool].workers && can[a.Pool].canRun(needs) {
			continue
		}
		key := [2]string{a.Pool, string(a.Kind())}
		place, known := places[key]
		if !known {
			place = len(warnings)
			places[key] = place
			warnings = append(warnings, WorkerWarning{Pool: a.Pool})
		}
		w := &warnings[place]
		w.Assets = append(w.Assets, a.Key)
		if !slices.Contains(w.Capabilities, needs) {
			w.Capabilities = append(w.Capabilities, needs)
		}
	}
	for i := range warnings {
		warnings[i].describe()
	}
	return warnings, nil
}
