package engine

import (
	"cmp"
	"context"
	"slices"
	"time"

	"go.arco.dev/servo/internal/base/id"
	"go.arco.dev/servo/internal/domain/run"
	"go.arco.dev/servo/internal/store"
)

// handOffBacklog admits ready tasks for the claims of the transaction that have room, as one round of
// admission, and leases them at once.
func (e *Engine) handOffBacklog(ctx context.Context, tx *store.Tx, w *working, held bool) error {
	claims := w.wanting()
	if len(claims) == 0 {
		return nil
	}
	names := poolsOfClaims(claims)
	if !held {
		waits, held, err := tx.TryAdmission(ctx, AdmissionDuty, names)
		if err != nil || !waits {
			return err
		}
		if !held {
			for _, c := range claims {
				c.busy = len(c.leases) == 0
			}
			return nil
		}
	}
	if _, err := tx.FoldSettlements(ctx, maxFold); err != nil {
		return err
	}
	ready, err := tx.ReadyPools(ctx, store.PoolQuestion{Alive: workerAlive, MostQueued: e.config.QueueTarget, Named: names, Only: true})
	if err != nil {
		return err
	}
	demand := 0
	for i, name := range ready.Names {
		for _, c := range claims {
			if slices.Contains(c.Pools, name) {
				ready.Rooms[i].PoolDemand += c.room()
			}
		}
		demand = max(demand, ready.Rooms[i].PoolDemand)
	}
	pools, err := e.readRound(ctx, tx, ready, min(demand, e.config.Round), claims[0].Tenant)
	if err != nil {
		return err
	}
	for _, p := range pools {
		p.can.add(claims[0].set)
	}
	tasks, blocked, err := w.takeReady(ctx, tx, pools)
	if err != nil {
		return err
	}
	tasks = w.only(claims, pools, tasks)
	divideRoom(claims, pools, tasks)
	admitted, left, _, err := w.admit(pools, tasks)
	if err != nil {
		return err
	}
	if left || blocked.held || e.capacityLeft(w, claims) {
		w.wakes = append(w.wakes, names...)
	}
	if admitted == 0 {
		return nil
	}
	w.roundOfClaims(pools, claims[0].Tenant == id.Tenant{})
	e.handoffs.claimed.Store(time.Now().UnixNano())
	return w.leaseAdmitted(ctx, tx, claims)
}

// wanting returns claims of this transaction that may get more tasks and that get the same ones: of one
// tenant and one set of capabilities. Other claims have their own round in a later transaction. The claims
// of dispatchers get tasks from the queue of their pool.
func (w *working) wanting() []*openClaim {
	var group []*openClaim
	for _, c := range w.claims {
		if c.room() == 0 || c.Unstarted != 0 {
			continue
		}
		if len(group) == 0 || c.Tenant == group[0].Tenant && c.set.name() == group[0].set.name() {
			group = append(group, c)
		}
	}
	return group
}

// capacityLeft reports whether claims of this transaction outside of the group still wait for tasks.
func (e *Engine) capacityLeft(w *working, group []*openClaim) bool {
	return slices.ContainsFunc(w.claims, func(c *openClaim) bool {
		return c.room() > 0 && c.Unstarted == 0 && !slices.Contains(group, c)
	})
}

// poolsOfClaims are the names of the claims' pools, each once.
func poolsOfClaims(claims []*openClaim) []string {
	var names []string
	for _, c := range claims {
		names = append(names, c.Pools...)
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// only returns the tasks that a group of claims may get now. A share of which it may get none is
// removed from the round, so that its tenant is neither charged nor moved. A task that became ready
// after the transaction read the clock is left to the next one.
func (w *working) only(claims []*openClaim, pools []*poolRound, tasks map[store.ShareKey][]store.ReadyTask) map[store.ShareKey][]store.ReadyTask {
	for _, p := range pools {
		for i := range p.shares {
			s := &p.shares[i]
			read := len(tasks[s.ShareKey])
			tasks[s.ShareKey] = slices.DeleteFunc(tasks[s.ShareKey], func(t store.ReadyTask) bool {
				return t.Since.After(w.now) || !claims[0].set.canRun(t.Needs)
			})
			s.more = len(tasks[s.ShareKey]) < read
		}
		p.shares = slices.DeleteFunc(p.shares, func(s shareRound) bool { return s.more && len(tasks[s.ShareKey]) == 0 })
	}
	return tasks
}

// divideRoom gives each pool the room that its claims have for the tasks that were read, in the order in
// which the claims name the pools, so that no task is queued that none of them gets.
func divideRoom(claims []*openClaim, pools []*poolRound, tasks map[store.ShareKey][]store.ReadyTask) {
	free, given := map[string]int{}, map[string]int{}
	for _, p := range pools {
		for _, s := range p.shares {
			free[p.pool] += len(tasks[s.ShareKey])
		}
		free[p.pool] = min(free[p.pool], p.room)
	}
	for _, c := range claims {
		room := c.room()
		for _, pool := range c.Pools {
			n := min(room, free[pool])
			free[pool] -= n
			given[pool] += n
			room -= n
		}
	}
	for _, p := range pools {
		p.room = given[p.pool]
	}
}

// roundOfClaims marks the pools of a round as served by claims. The clock of a pool moves only if all its
// tenants took part.
func (w *working) roundOfClaims(pools []*poolRound, allTenants bool) {
	w.changes.ByClaims = true
	for _, p := range pools {
		if _, moved := w.changes.Clocks[p.pool]; !moved || !allTenants {
			w.clock(p.pool, p.clock)
		}
	}
}

// leaseAdmitted leases the tasks that a round has queued in this transaction, in the order of admission.
func (w *working) leaseAdmitted(ctx context.Context, tx *store.Tx, claims []*openClaim) error {
	var (
		queued, tasks []run.Task
		to            []*openClaim
	)
	for _, t := range w.changed {
		if t.from == run.Ready && t.task.State == run.Queued {
			queued = append(queued, t.task)
		}
	}
	slices.SortFunc(queued, func(a, b run.Task) int { return cmp.Compare(a.Rank, b.Rank) })
	room := make([]int, len(claims))
	for i, c := range claims {
		room[i] = c.room()
	}
	for _, t := range queued {
		i := slices.IndexFunc(claims, func(c *openClaim) bool { return c.takes(t) })
		for i >= 0 && i < len(claims) && (room[i] == 0 || !claims[i].takes(t)) {
			i++
		}
		if i >= 0 && i < len(claims) {
			room[i]--
			tasks, to = append(tasks, t), append(to, claims[i])
		}
	}
	return w.leaseTasks(ctx, tx, tasks, to)
}
