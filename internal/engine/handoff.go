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

// The short way (docs/adr/0025-handoff.md): a transaction that makes a few tasks ready
// queues them itself, if nobody waits for their pools, and leases them to claims that wait in
// this process. It holds the admission duty for that, and whatever it does a round of
// admission and a claim would have done; it waits for nobody, and leaves everything as it is
// where something is not free.

const (
	// maxInline is how many tasks go the short way together. More are a backlog.
	maxInline = 100
	// After a try in vain the short way is not tried for a while, so that it costs nothing
	// where there is much to do: shortly if somebody else was admitting, longer if tasks wait.
	restAfterBusy    = 5 * time.Millisecond
	restAfterBacklog = 50 * time.Millisecond
)

// shortWay is what an engine remembers about it.
type shortWay struct {
	rests  atomic.Int64 // until when it is not tried, in nanoseconds
	stands stands
}

func (s *shortWay) rest(d time.Duration) { s.rests.Store(time.Now().Add(d).UnixNano()) }

func (s *shortWay) resting() bool { return time.Now().UnixNano() < s.rests.Load() }

// gift is what a transaction gives to claims by the short way.
type gift struct {
	stands []*standing     // taken off the stands for it
	claims []*claimCommand // those that get something
}

// inline queues and leases what the transaction has made ready. Its gift must be ended with the
// transaction.
func (e *Engine) inline(ctx context.Context, tx *store.Tx, w *working) (*gift, error) {
	fresh := w.fresh()
	if !e.config.Inline || len(fresh) == 0 || len(fresh) > maxInline || e.short.resting() || store.Claimed(ctx) {
		return nil, nil //nolint:nilnil // no gift is no trouble
	}
	asking := w.asking()
	g := &gift{stands: e.short.stands.take(fresh, asking)}
	claims := asking
	for _, s := range g.stands {
		claims = append(claims, s.claimCommand)
	}
	found, err := tx.Inline(ctx, store.InlineQuestion{
		Duty: AdmissionDuty, Alive: workerAlive, MostQueued: e.config.QueueTarget,
		Tasks: fresh, Claims: claimIDs(claims),
	})
	if err != nil {
		return g, err
	}
	if !found.Held {
		e.short.rest(restAfterBusy)
		return g, nil
	}
	queued, err := e.admitInline(ctx, tx, w, found)
	if err != nil {
		return g, err
	}
	for i, c := range claims {
		if i >= len(asking) && !found.Claims[i] { // it is at work elsewhere, or a repeat
			continue
		}
		given, left, err := w.leaseInline(c, queued)
		if err != nil {
			return g, err
		}
		if queued = left; given {
			g.claims = append(g.claims, c)
		}
	}
	return g, nil
}

// fresh are the tasks that the transaction has made ready, and that were not in flight when it
// began: of those the end of an attempt is still to be settled.
func (w *working) fresh() []run.Task {
	var fresh []run.Task
	for _, t := range w.changed {
		if t.task.State == run.Ready && t.from != run.Ready && !inFlight(t.from) {
			fresh = append(fresh, t.task)
		}
	}
	return fresh
}

// asking are the claims of this transaction that have got nothing so far.
func (w *working) asking() []*claimCommand {
	var asking []*claimCommand
	for _, c := range w.claims {
		if len(c.leases) == 0 && c.twin == nil {
			asking = append(asking, c)
		}
	}
	return asking
}

// inlineTask is a task that was queued by the short way and may be leased.
type inlineTask struct {
	*liveTask

	token int64
}

// admitInline makes a round of admission out of the tasks for whose pools nobody waits. It
// gives those that may be leased at once: nothing is queued before them.
func (e *Engine) admitInline(ctx context.Context, tx *store.Tx, w *working, found store.Inline) ([]inlineTask, error) {
	var shares []store.ReadyShare
	free := map[store.ShareKey]store.InlineShare{}
	for _, s := range found.Shares {
		if !s.Backlog && !s.Pauses {
			shares = append(shares, s.ReadyShare)
			free[s.ShareKey] = s
		}
	}
	if len(shares) == 0 {
		e.short.rest(restAfterBacklog)
		return nil, nil
	}
	slices.SortStableFunc(found.Tasks, func(a, b store.InlineTask) int { return cmp.Compare(b.Priority, a.Priority) })
	pools := e.round(shares, maxInline)
	if err := e.lookUp(ctx, tx, pools); err != nil {
		return nil, err
	}
	lacks := lackingTasks(pools, found.Tasks)
	tasks := map[store.ShareKey][]store.ReadyTask{}
	for _, t := range found.Tasks {
		live := w.tasks[t.ID]
		live.task.Asset, live.task.ReadyAt = t.Asset, live.task.Since
		if lacks[t.ID] { // the loop holds it
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
	var queued []inlineTask
	for _, t := range found.Tasks {
		live := w.tasks[t.ID]
		share, ok := free[store.ShareKey{Tenant: t.Tenant, Pool: t.Pool}]
		if ok && found.Dispatches && share.PoolQueued == 0 && live.task.State == run.Queued {
			queued = append(queued, inlineTask{live, t.Token})
		}
	}
	slices.SortFunc(queued, func(a, b inlineTask) int { return cmp.Compare(a.task.Rank, b.task.Rank) })
	return queued, nil
}

// leaseInline gives queued tasks to a claim, and those back that it did not get.
func (w *working) leaseInline(c *claimCommand, queued []inlineTask) (given bool, left []inlineTask, err error) {
	room := c.Max
	for _, t := range queued {
		if room == 0 || !c.takes(t.task) {
			left = append(left, t)
			continue
		}
		if err := w.leaseTo(c, t.liveTask, t.token); err != nil {
			return false, nil, err
		}
		room--
	}
	return room < c.Max, left, nil
}

// fillGift reads what the claims have got, as a repeat of them would: what they need is in the
// tables by now, the results of upstreams that have just ended among it.
func (e *Engine) fillGift(ctx context.Context, tx *store.Tx, w *working, g *gift) error {
	if g == nil || len(g.claims) == 0 {
		return nil
	}
	if err := tx.Flush(ctx); err != nil {
		return err
	}
	held, err := tx.LeasesOfClaims(ctx, claimIDs(g.claims))
	if err != nil {
		return err
	}
	for _, c := range g.claims {
		c.leases = nil
	}
	for _, offer := range held {
		for _, c := range g.claims {
			if c.Claim == offer.Task.Claim {
				c.leases = append(c.leases, leaseOf(offer.Task, offer))
			}
		}
	}
	if err := e.addCode(ctx, tx, g.claims); err != nil {
		return err
	}
	giveTwins(w.claims)
	return nil
}

// end ends the wait of the claims that were taken off the stands, after the transaction: those
// with leases have been served, the others look for themselves. If it is not known whether the
// transaction was committed nobody is served: whoever looks finds what it was given.
func (g *gift) end(committed bool) {
	if g == nil {
		return
	}
	for _, s := range g.stands {
		if !committed {
			s.leases = nil
		}
		s.end()
	}
	g.stands = nil // once
}
