package engine

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"go.arco.dev/servo/internal/domain/run"
	"go.arco.dev/servo/internal/store"
)

// A handoff (docs/adr/0025-handoff.md, docs/adr/0037-claims-that-admit.md) admits tasks and leases them
// to claims in one transaction, without the pool's queue: tasks that the transaction has made ready, if
// no other task waits for their pools, or else tasks that were ready before, for the claims of the
// transaction. It holds the admission duty meanwhile, and does only what a round of admission and a
// claim would have done. It waits for no lock: where one is held, it changes nothing and the tasks take
// the usual way.

const (
	// maxHandoff is how many fresh tasks one transaction hands off. More are a backlog.
	maxHandoff = 100
	// After a handoff of fresh tasks without a lease none is tried for a while, so that it costs nothing on
	// a busy server: a short while if another transaction was admitting, a longer one if tasks wait.
	restAfterBusy    = 5 * time.Millisecond
	restAfterBacklog = 50 * time.Millisecond
	// busyPoll is when a claim looks again that found another transaction admitting. The end of a round
	// of the same server wakes it earlier.
	busyPoll = 25 * time.Millisecond
	// claimsFirst is how long the admission loop leaves a pool to the claims of its workers if none of
	// them admits. Afterwards it queues what the workers will take next.
	claimsFirst = time.Second
	// The admission loop makes no round for leaveToClaims after a claim of this server has admitted tasks,
	// unless its own last round is longestLeft ago or had work of its own.
	leaveToClaims = 100 * time.Millisecond
	longestLeft   = 200 * time.Millisecond
)

// handoffs are the waiting claims of an engine, and when it tries the next handoff.
type handoffs struct {
	rests    atomic.Int64 // until when none of fresh tasks is tried, in nanoseconds
	waiting  waitingClaims
	claimed  atomic.Int64 // when a claim last admitted tasks
	looped   atomic.Int64 // when the admission loop last made a round that admitted none; 0 after one that did
	deferred atomic.Bool  // the loop will be woken

	mu   sync.Mutex
	left map[string]leftPool // pools that the loop leaves to claims
}

// leftPool is a pool that the admission loop leaves to claims.
type leftPool struct {
	claimedAt time.Time // when a claim last admitted its tasks, by the database's clock
	since     time.Time // when the loop learned of that
}

// leaves reports whether the admission loop leaves a pool with ready tasks to the claims of its workers:
// while they admit its tasks, and for a while afterwards.
func (h *handoffs) leaves(pool string, room store.PoolRoom) bool {
	if !room.PoolByClaims {
		return false
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.left == nil || len(h.left) > maxPacedPools {
		h.left = map[string]leftPool{}
	}
	last, known := h.left[pool]
	if now := time.Now(); !known || !last.claimedAt.Equal(room.PoolClaimedAt) {
		last = leftPool{claimedAt: room.PoolClaimedAt, since: now}
		h.left[pool] = last
	}
	return time.Since(last.since) < claimsFirst
}

func (h *handoffs) rest(d time.Duration) { h.rests.Store(time.Now().Add(d).UnixNano()) }

func (h *handoffs) resting() bool { return time.Now().UnixNano() < h.rests.Load() }

// claimsAdmit reports whether the admission loop may wait, since claims of this server admit and its own
// last round found nothing else to do.
func (h *handoffs) claimsAdmit() bool {
	now := time.Now().UnixNano()
	return now-h.claimed.Load() < int64(leaveToClaims) && now-h.looped.Load() < int64(longestLeft)
}

// readied remembers that tasks of these pools became ready: the admission loop waits for no claim of
// pools that it does not leave to claims.
func (h *handoffs) readied(topics []string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, topic := range topics {
		if _, left := h.left[topic]; !left && !strings.HasPrefix(topic, " ") {
			h.looped.Store(0)
		}
	}
}

// madeRound remembers a round of the admission loop.
func (h *handoffs) madeRound(admitted int) {
	if admitted > 0 {
		h.looped.Store(0)
		return
	}
	h.looped.Store(time.Now().UnixNano())
}

// admitAfter wakes the admission loop after a while.
func (e *Engine) admitAfter(d time.Duration) {
	if e.handoffs.deferred.CompareAndSwap(false, true) {
		time.AfterFunc(d, func() {
			e.handoffs.deferred.Store(false)
			e.WakeAdmission()
		})
	}
}

// handoff is the fresh tasks that a transaction leases to claims.
type handoff struct {
	taken  []takenClaim
	leased []*liveTask // fresh tasks, and the claims that get them
	to     []*openClaim
}

// takenClaim is a waiting claim that the transaction has taken.
type takenClaim struct {
	waiting *waitingClaim
	open    *openClaim
}

// handOff leases ready tasks to claims: those that the transaction has made ready, or those that wait
// longer. The caller must end the handoff with the transaction. A transaction that is committed with the
// answer of an API call makes no task ready (it cancels), so no claim waits for the commit of a caller.
func (e *Engine) handOff(ctx context.Context, tx *store.Tx, w *working) (*handoff, error) {
	if !e.config.Handoff {
		return nil, nil //nolint:nilnil // no handoff is no error
	}
	w.wakesClaims = true
	h := &handoff{}
	held, err := e.handOffFresh(ctx, tx, w, h)
	if err != nil || len(w.changes.Charges) > 0 { // one round in one transaction
		return h, err
	}
	return h, e.handOffBacklog(ctx, tx, w, held)
}

// handOffFresh queues the tasks that the transaction has made ready, if no other task waits for their
// pools, and leases them to its claims and to those that wait in this process. It reports whether the
// transaction holds the admission duty and dispatch is on.
func (e *Engine) handOffFresh(ctx context.Context, tx *store.Tx, w *working, h *handoff) (held bool, err error) {
	fresh := w.fresh()
	if len(fresh) == 0 || len(fresh) > maxHandoff || e.handoffs.resting() {
		return false, nil
	}
	asking := w.asking()
	claims := asking
	for _, waiting := range e.handoffs.waiting.take(fresh, asking) {
		open := &openClaim{claimCommand: waiting.claimCommand}
		h.taken = append(h.taken, takenClaim{waiting, open})
		claims = append(claims, open)
	}
	found, err := tx.BeginHandoff(ctx, store.HandoffQuestion{
		Duty: AdmissionDuty, Alive: workerAlive, MostQueued: e.config.QueueTarget,
		Tasks: fresh, Claims: claimIDs(claims),
	})
	if err != nil {
		return false, err
	}
	if !found.Held {
		e.handoffs.rest(restAfterBusy)
		return false, nil
	}
	queued, err := e.admitFresh(ctx, tx, w, found)
	if err != nil {
		return true, err
	}
	for i, c := range claims {
		if i >= len(asking) && !found.Claims[i] { // another transaction has it, or it is a repeat
			continue
		}
		if queued, err = w.leaseFresh(h, c, queued); err != nil {
			return true, err
		}
	}
	return found.Dispatches, nil
}

// fresh returns the tasks that the transaction has made ready and that were not in flight when it
// began: admission has yet to settle the attempt of a task that was.
func (w *working) fresh() []run.Task {
	var fresh []run.Task
	for _, t := range w.changed {
		if t.task.State == run.Ready && t.from != run.Ready && !inFlight(t.from) {
			fresh = append(fresh, t.task)
		}
	}
	return fresh
}

// asking returns the claims of this transaction that have no lease so far.
func (w *working) asking() []*openClaim {
	var asking []*openClaim
	for _, c := range w.claims {
		if len(c.leases) == 0 && c.twin == nil {
			asking = append(asking, c)
		}
	}
	return asking
}

// freshTask is a task that the transaction has queued and may lease.
type freshTask struct {
	*liveTask

	token int64
}

// admitFresh admits the fresh tasks for whose pools no other task waits, as one round of admission. It
// returns those that may be leased at once: no task is queued before them.
func (e *Engine) admitFresh(ctx context.Context, tx *store.Tx, w *working, found store.Handoff) ([]freshTask, error) {
	var shares []store.ReadyShare
	free := map[store.ShareKey]store.HandoffShare{}
	for _, s := range found.Shares {
		if !s.Backlog && !s.Pauses {
			shares = append(shares, s.ReadyShare)
			free[s.ShareKey] = s
		}
	}
	if len(shares) == 0 {
		e.handoffs.rest(restAfterBacklog)
		return nil, nil
	}
	slices.SortStableFunc(found.Tasks, func(a, b store.HandoffTask) int { return cmp.Compare(b.Priority, a.Priority) })
	pools := e.round(shares, maxHandoff)
	if err := e.lookUp(ctx, tx, pools); err != nil {
		return nil, err
	}
	lacks := lackingTasks(pools, found.Tasks)
	tasks := map[store.ShareKey][]store.ReadyTask{}
	for _, t := range found.Tasks {
		live := w.tasks[t.ID]
		live.task.ReadyAt = live.task.Since
		if lacks[t.ID] { // admission will hold it
			continue
		}
		tasks[store.ShareKey{Tenant: t.Tenant, Pool: t.Pool}] = append(tasks[store.ShareKey{Tenant: t.Tenant, Pool: t.Pool}], t.ReadyTask)
	}
	if _, err := w.holdPartitions(ctx, tx, tasks, false); err != nil {
		return nil, err
	}
	for _, p := range pools {
		for _, s := range p.shares {
			tasks[s.ShareKey] = tasks[s.ShareKey][:min(s.most, len(tasks[s.ShareKey]))]
		}
	}
	if _, _, _, err := w.admit(pools, tasks); err != nil {
		return nil, err
	}
	var queued []freshTask
	for _, t := range found.Tasks {
		live := w.tasks[t.ID]
		share, ok := free[store.ShareKey{Tenant: t.Tenant, Pool: t.Pool}]
		if ok && found.Dispatches && share.PoolQueued == 0 && live.task.State == run.Queued {
			queued = append(queued, freshTask{live, t.Token})
		}
	}
	slices.SortFunc(queued, func(a, b freshTask) int { return cmp.Compare(a.task.Rank, b.task.Rank) })
	return queued, nil
}

// leaseFresh leases queued tasks to a claim, and returns those that are left.
func (w *working) leaseFresh(h *handoff, c *openClaim, queued []freshTask) (left []freshTask, err error) {
	room := c.Max
	for _, t := range queued {
		if room == 0 || !c.takes(t.task) {
			left = append(left, t)
			continue
		}
		if err := w.leaseTo(c.claimCommand, t.liveTask, t.token); err != nil {
			return nil, err
		}
		h.leased, h.to = append(h.leased, t.liveTask), append(h.to, c)
		room--
	}
	return left, nil
}

// completeLeases adds to the leases of the transaction's claims what their workers need. The tables have
// it: for fresh tasks after the changes are written, including the results of upstreams that have just
// ended.
func (e *Engine) completeLeases(ctx context.Context, tx *store.Tx, w *working, h *handoff) error {
	claims := w.claims
	if h != nil && len(h.leased) > 0 {
		if err := tx.Flush(ctx); err != nil {
			return err
		}
		tasks := make([]run.Task, len(h.leased))
		for i, t := range h.leased {
			tasks[i] = t.task
		}
		offers, err := tx.Assign(ctx, tasks)
		if err != nil {
			return err
		}
		for i, offer := range offers {
			h.to[i].leases = append(h.to[i].leases, leaseOf(offer.Task, offer))
		}
		claims = slices.Clone(claims)
		for _, t := range h.taken {
			claims = append(claims, t.open)
		}
	}
	if len(claims) == 0 {
		return nil
	}
	giveTwins(w.claims)
	return e.addCode(ctx, tx, claims)
}

// end ends the wait of the claims that the transaction has taken. They have their leases if it was
// committed. Otherwise, or if the commit is uncertain, they look themselves and find what they were
// given. Ending twice is the same as once.
func (h *handoff) end(committed bool) {
	if h == nil {
		return
	}
	for _, t := range h.taken {
		if committed {
			t.waiting.leases = t.open.leases
		}
		close(t.waiting.done)
	}
	h.taken = nil
}
