package engine

import (
	"cmp"
	"context"
	"slices"
	"sync/atomic"
	"time"

	"go.arco.dev/servo/internal/domain/run"
	"go.arco.dev/servo/internal/store"
)

// A handoff (docs/adr/0025-handoff.md) leases tasks in the transaction that makes them ready. If
// no task waits for their pools, the transaction queues the tasks itself and leases them to claims
// that wait in this process. It holds the admission duty meanwhile, and does only what a round of
// admission and a claim would have done. It waits for no lock: where one is held, it changes nothing
// and the tasks take the usual way.

const (
	// maxHandoff is how many tasks one transaction hands off. More are a backlog.
	maxHandoff = 100
	// After a handoff without a lease none is tried for a while, so that it costs nothing on a busy server:
	// a short while if another transaction was admitting, a longer one if tasks wait.
	restAfterBusy    = 5 * time.Millisecond
	restAfterBacklog = 50 * time.Millisecond
)

// handoffs are the waiting claims of an engine, and when it tries the next handoff.
type handoffs struct {
	rests   atomic.Int64 // until when none is tried, in nanoseconds
	waiting waitingClaims
}

func (h *handoffs) rest(d time.Duration) { h.rests.Store(time.Now().Add(d).UnixNano()) }

func (h *handoffs) resting() bool { return time.Now().UnixNano() < h.rests.Load() }

// handoff is the leases that a transaction gives to claims.
type handoff struct {
	taken  []takenClaim
	claims []*openClaim // that get tasks
}

// takenClaim is a waiting claim that the transaction has taken.
type takenClaim struct {
	waiting *waitingClaim
	open    *openClaim
}

// handOff queues and leases the tasks that the transaction has made ready. The caller must end the
// handoff with the transaction. A transaction that is committed with the answer of an API call makes no
// task ready (it cancels), so no claim waits for the commit of a caller.
func (e *Engine) handOff(ctx context.Context, tx *store.Tx, w *working) (*handoff, error) {
	fresh := w.fresh()
	if !e.config.Handoff || len(fresh) == 0 || len(fresh) > maxHandoff || e.handoffs.resting() {
		return nil, nil //nolint:nilnil // no handoff is no error
	}
	asking := w.asking()
	h, claims := &handoff{}, asking
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
		return h, err
	}
	if !found.Held {
		e.handoffs.rest(restAfterBusy)
		return h, nil
	}
	queued, err := e.admitFresh(ctx, tx, w, found)
	if err != nil {
		return h, err
	}
	for i, c := range claims {
		if i >= len(asking) && !found.Claims[i] { // another transaction has it, or it is a repeat
			continue
		}
		given, left, err := w.leaseFresh(c, queued)
		if err != nil {
			return h, err
		}
		if queued = left; given {
			h.claims = append(h.claims, c)
		}
	}
	return h, nil
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
		live.task.Asset, live.task.ReadyAt = t.Asset, live.task.Since
		if lacks[t.ID] { // admission will hold it
			continue
		}
		tasks[store.ShareKey{Tenant: t.Tenant, Pool: t.Pool}] = append(tasks[store.ShareKey{Tenant: t.Tenant, Pool: t.Pool}], t.ReadyTask)
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
func (w *working) leaseFresh(c *openClaim, queued []freshTask) (given bool, left []freshTask, err error) {
	room := c.Max
	for _, t := range queued {
		if room == 0 || !c.takes(t.task) {
			left = append(left, t)
			continue
		}
		if err := w.leaseTo(c.claimCommand, t.liveTask, t.token); err != nil {
			return false, nil, err
		}
		room--
	}
	return room < c.Max, left, nil
}

// addLeases reads the leases of the claims, as a repeat of them would: after the changes are written the
// tables have all that a lease needs, including the results of upstreams that have just ended.
func (h *handoff) addLeases(ctx context.Context, e *Engine, tx *store.Tx, w *working) error {
	if h == nil || len(h.claims) == 0 {
		return nil
	}
	if err := tx.Flush(ctx); err != nil {
		return err
	}
	held, err := tx.LeasesOfClaims(ctx, claimIDs(h.claims))
	if err != nil {
		return err
	}
	for _, offer := range held {
		for _, c := range h.claims {
			if c.Claim == offer.Task.Claim {
				c.leases = append(c.leases, leaseOf(offer.Task, offer))
			}
		}
	}
	if err := e.addCode(ctx, tx, h.claims); err != nil {
		return err
	}
	giveTwins(w.claims)
	return nil
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
