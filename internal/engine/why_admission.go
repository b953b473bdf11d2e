package engine

import (
	"context"
	"fmt"
	"maps"

	"go.arco.dev/servo/internal/base/id"
	"go.arco.dev/servo/internal/domain/fair"
	"go.arco.dev/servo/internal/domain/run"
	"go.arco.dev/servo/internal/store"
)

// Tasks that wait for admission are explained by computing the next round on a snapshot, with the functions
// of the loop and without writing. So the loop admits a task without a blocker.

// ready explains a task that waits for admission.
func (q *inquiry) ready(ctx context.Context, tx *store.Tx) error {
	q.why.Next = "admission takes it in its next round"
	place, err := tx.ReadyPlace(ctx, q.key(), store.MaxDepth)
	if err != nil {
		return err
	}
	written, err := q.written(ctx, tx)
	if err != nil {
		return err
	}
	if place.Held && !place.LacksWorker && !written || q.pause != nil {
		q.paused()
	}
	if written {
		return nil
	}
	if blocked, err := q.access(ctx, tx); err != nil || blocked {
		return err
	}
	if blocked, err := q.capable(ctx, tx); err != nil || blocked {
		return err
	}
	if err := q.admitting(ctx, tx); err != nil {
		return err
	}
	own := store.ShareKey{Tenant: q.run.Tenant, Pool: q.task.Pool}
	shares, err := tx.LookShares(ctx, own, workerAlive, q.config.QueueTarget, maxFold, func(pools store.ReadyPools) []int32 {
		return q.config.heads(pools, q.config.Round)
	})
	if err != nil {
		return err
	}
	pools := q.round(shares, q.config.Round)
	if err := q.lookUp(ctx, tx, pools); err != nil {
		return err
	}
	p, mine := find(pools, own)
	if p == nil {
		return nil // all of it is held
	}
	tasks, err := lookReady(ctx, tx, p)
	if err != nil {
		return err
	}
	w := newWorking()
	w.at(q.now)
	_, taken, _, err := w.fill(p, tasks, 0)
	if err != nil {
		return err
	}
	if t := w.tasks[q.task.ID]; t != nil && t.task.State == run.Queued {
		return nil
	}
	if p.shares[mine].room <= 0 {
		return q.noRoom(ctx, tx, p.shares[mine])
	}
	q.notItsTurn(p, mine, tasks, taken, place)
	return nil
}

// written checks whether another task holds partitions of this one.
func (q *inquiry) written(ctx context.Context, tx *store.Tx) (bool, error) {
	if !q.run.Divided {
		return false, nil
	}
	holder, held, err := tx.HolderOf(ctx, q.key(), q.task.Asset)
	if err != nil || !held {
		return false, err
	}
	q.why.Next = "admission takes it when the other task has ended"
	q.block(BlockedByPartition, fmt.Sprintf("partition %s of asset %s is held by run %s: its task %s has been admitted and has not ended", q.task.Partition, q.task.Asset, holder.Run, holder.Task),
		"wait until that task ends, or cancel its run: servo runs cancel "+holder.Run.String(),
		map[string]any{"asset": q.task.Asset, "partition": q.task.Partition, "run": holder.Run.String(), "task": holder.Task.String()})
	return true, nil
}

// access checks whether the pool accepts tasks of the tenant: admission skips those that it does not accept.
func (q *inquiry) access(ctx context.Context, tx *store.Tx) (blocked bool, err error) {
	access, err := tx.PoolAccess(ctx, []string{q.task.Pool})
	of, restricted := access[q.task.Pool]
	if err != nil || !restricted || of.Accepts(q.run.Tenant) {
		return false, err
	}
	name, err := tx.TenantName(ctx, q.run.Tenant)
	if err != nil {
		return false, err
	}
	v := poolRefusal(of, q.task.Pool, name, "")
	q.why.Next = "it waits until the pool accepts it"
	q.block(BlockedByAccess, v.Message, v.Remedy+"; or cancel the run", map[string]any{"pool": q.task.Pool})
	return true, nil
}

func find(pools []*poolRound, key store.ShareKey) (p *poolRound, share int) {
	for _, p := range pools {
		for i, s := range p.shares {
			if s.ShareKey == key {
				return p, i
			}
		}
	}
	return nil, 0
}

// lookReady reads the tasks that takeReady would lock for one pool, without those that it
// would hold.
func lookReady(ctx context.Context, tx *store.Tx, p *poolRound) (map[store.ShareKey][]store.ReadyTask, error) {
	var (
		shares, old     []store.ReadyShare
		mosts, oldMosts []int32
	)
	for _, s := range p.shares {
		if s.most == 0 {
			continue
		}
		shares, mosts = append(shares, s.ReadyShare), append(mosts, int32(s.most)) //nolint:gosec // a batch size
		if turns := fair.OldestTurns(s.Admitted, s.most); turns > 0 {
			old, oldMosts = append(old, s.ReadyShare), append(oldMosts, int32(turns)) //nolint:gosec // likewise
		}
	}
	ranked, held, err := tx.LookReady(ctx, shares, mosts, false)
	if err != nil {
		return nil, err
	}
	oldest, heldToo, err := tx.LookReady(ctx, old, oldMosts, true)
	maps.Copy(held, heldToo)
	return inTurn([]*poolRound{p}, ranked, oldest, held), err
}

func (q *inquiry) paused() {
	message, values := "asset "+q.task.Asset+" is paused", map[string]any{"asset": q.task.Asset}
	if p := q.pause; p != nil {
		message += " since " + q.at(p.PausedAt)
		if p.PausedBy != "" {
			message += " by " + p.PausedBy
		}
		if p.Reason != "" {
			message += ": " + p.Reason
		}
		values["since"], values["by"], values["reason"] = q.at(p.PausedAt), p.PausedBy, p.Reason
	}
	q.block(BlockedByPause, message, "resume it: servo assets resume "+q.task.Asset, values)
}

// admitting checks whether a server admits.
func (q *inquiry) admitting(ctx context.Context, tx *store.Tx) error {
	duty, err := tx.DutyOf(ctx, AdmissionDuty)
	if err != nil || duty.ExpiresAt.After(q.now) {
		return err
	}
	message, values := "no server admits tasks or starts runs", map[string]any{}
	if !duty.ExpiresAt.IsZero() {
		message = fmt.Sprintf("no server has admitted tasks or started runs since %s", q.at(duty.ExpiresAt))
		values["since"] = q.at(duty.ExpiresAt)
	}
	q.block(BlockedByNoAdmission, message, "start a server: servo server; within seconds it takes over", values)
	return nil
}

// noRoom adds the limits that leave no room for a task of its tenant in its pool.
func (q *inquiry) noRoom(ctx context.Context, tx *store.Tx, s shareRound) error {
	blocked := len(q.why.Blockers)
	if TenantRoom(s.ReadyShare, 1) == 0 {
		q.block(BlockedByTasks, fmt.Sprintf("%d of the tenant's tasks are queued or run, the quota max_concurrent_tasks is %d", s.InFlight, s.MaxInFlight),
			"wait until one ends, or raise the quota: servo quotas set", map[string]any{"quota": "max_concurrent_tasks", "limit": s.MaxInFlight, "current": s.InFlight})
	}
	// Each limit by itself: the computation of the loop, without the other one.
	limited, queued := s.PoolRoom, s.PoolRoom
	limited.PoolQueued = q.config.PoolTarget(s.PoolRoom) - 1
	if poolRoom(limited, q.config, 1) == 0 {
		q.block(BlockedByPool, fmt.Sprintf("%d tasks of pool %s are queued or run, its limit is %d", s.PoolInFlight, s.Pool, s.PoolMaxInFlight),
			"wait until one ends, or raise the pool's max_concurrency", map[string]any{"pool": s.Pool, "limit": s.PoolMaxInFlight, "current": s.PoolInFlight})
	}
	queued.PoolMaxInFlight = -1
	if poolRoom(queued, q.config, 1) == 0 {
		if err := q.dispatching(ctx, tx); err != nil {
			return err
		}
		if s.PoolWorkers == 0 {
			push, err := q.isPush(ctx, tx)
			if err != nil {
				return err
			}
			if err := q.noWorker(ctx, push); err != nil {
				return err
			}
		}
		q.block(BlockedByQueue, fmt.Sprintf("the queue of pool %s is full: %d tasks, which is what its workers take next", s.Pool, s.PoolQueued),
			"wait until workers have taken some, or start more",
			map[string]any{"pool": s.Pool, "limit": q.config.PoolTarget(s.PoolRoom), "current": s.PoolQueued, "workers": s.PoolWorkers, "slots": s.PoolCapacity})
	}
	if len(q.why.Blockers) == blocked { // the rest of the quota is for pools that come before
		q.block(BlockedByTasks, fmt.Sprintf("%d of the tenant's tasks are queued or run, and other pools take what the quota max_concurrent_tasks of %d leaves",
			s.InFlight, s.MaxInFlight), "wait for the next rounds, or raise the quota: servo quotas set",
			map[string]any{"quota": "max_concurrent_tasks", "limit": s.MaxInFlight, "current": s.InFlight})
	}
	return nil
}

// notItsTurn adds what comes first if there is room: other tenants, or other tasks of its tenant.
func (q *inquiry) notItsTurn(p *poolRound, mine int, tasks map[store.ShareKey][]store.ReadyTask, taken []int, ready store.ReadyPlace) {
	own, others := taken[mine], 0
	for i, n := range taken {
		if i != mine {
			others += n
		}
	}
	place := ready.Ahead
	for i, t := range tasks[p.shares[mine].ShareKey] {
		if t.ID == q.task.ID {
			place = i
		}
	}
	if rank, of := turn(p, mine, tasks); others > 0 && rank > 0 {
		q.block(BlockedByOthers, fmt.Sprintf("its tenant is served as number %d of %d that wait for pool %s: the next tasks are %d of other tenants and %d of its own",
			rank, of, p.pool, others, own), "wait for the next rounds; more workers or a greater fairness_weight make it sooner",
			map[string]any{"pool": p.pool, "rank": rank, "of": of, "room": p.room, "own": own})
	}
	if place > 0 {
		latest := fair.OldestEvery * (ready.Older + 1)
		q.block(BlockedByOwnTasks, fmt.Sprintf("%d ready tasks of its own tenant come before it in pool %s; the next round takes %d of them; it starts at the latest with task number %d of its tenant from now on, whatever their priorities",
			place, p.pool, own, latest), "wait, or give its run a higher priority", map[string]any{"pool": p.pool, "ahead": place, "taken": own, "latest": latest})
	}
	if others == 0 && place == 0 {
		q.block(BlockedByRound, fmt.Sprintf("the next round of admission takes %d tasks, and others come first", p.room),
			"nothing to do: the round after that follows at once", map[string]any{"room": p.room})
	}
}

// turn is the place of a tenant among those that may be served, and how many these are.
func turn(p *poolRound, mine int, tasks map[store.ShareKey][]store.ReadyTask) (rank, of int) {
	var (
		waiting []fair.Share
		which   []int
	)
	for i, s := range p.shares {
		if found := tasks[s.ShareKey]; s.most > 0 && len(found) > 0 {
			waiting = append(waiting, fair.Share{
				Tenant: s.Tenant, Weight: s.Weight, EvenAt: s.EvenAt, Waits: s.Waits, Room: 1, Costs: costs(found[:1]),
			})
			which = append(which, i)
		}
	}
	order, _ := fair.Pick(p.clock, waiting, len(waiting))
	for n, i := range order {
		if which[i] == mine {
			return n + 1, len(order)
		}
	}
	return 0, len(order)
}

// starting explains a run that waits for its start.
func (q *inquiry) starting(ctx context.Context, tx *store.Tx) error {
	if err := q.admitting(ctx, tx); err != nil {
		return err
	}
	starts, err := q.wouldStart(ctx, tx)
	if err != nil || starts {
		return err
	}
	key := store.RunKey{Tenant: q.run.Tenant, Run: q.run.ID}
	quotas, err := tx.RunQuotasOf(ctx, []id.Tenant{key.Tenant})
	if err != nil {
		return err
	}
	used, err := runningOf(ctx, tx, quotas)
	if err != nil {
		return err
	}
	ahead, err := tx.StartPlace(ctx, key, store.MaxDepth)
	if err != nil {
		return err
	}
	blocked := len(q.why.Blockers)
	if err := q.behind(ctx, tx); err != nil {
		return err
	}
	u := used[key.Tenant]
	switch {
	case u == nil:
	case u.backlogged():
		q.block(BlockedByBacklog, fmt.Sprintf("%d tasks of the tenant are ready and wait, the quota max_queued_tasks is %d", u.Queued, u.quotas.MaxQueuedTasks),
			"wait until some are done, or raise the quota: servo quotas set",
			map[string]any{"quota": quotaQueued, "limit": u.quotas.MaxQueuedTasks, "current": u.Queued})
	case u.room(1) == 0:
		q.block(BlockedByRuns, fmt.Sprintf("%d runs of the tenant have started and not ended, the quota max_concurrent_runs is %d", u.Running, u.quotas.MaxConcurrentRuns),
			"wait until one ends, cancel one, or raise the quota: servo quotas set",
			map[string]any{"quota": quotaRuns, "limit": u.quotas.MaxConcurrentRuns, "current": u.Running})
	}
	if ahead > 0 {
		q.block(BlockedByOlder, fmt.Sprintf("%d runs of the tenant that wait as well start before it, by priority and age", ahead),
			"wait, or trigger it with a higher priority", map[string]any{"ahead": ahead})
	}
	if len(q.why.Blockers) == blocked {
		q.block(BlockedByRound, "the next round of admission starts as many runs as it can, and others come first",
			"nothing to do: the round after that follows at once", map[string]any{"round": q.config.Round})
	}
	return nil
}

// behind explains a run that waits for its lock.
func (q *inquiry) behind(ctx context.Context, tx *store.Tx) error {
	waiting, err := tx.WithLive(ctx, []run.Run{q.run.Run})
	if err != nil || len(waiting) == 0 || !waiting[0].Behind {
		return err
	}
	key := store.LockKey{Tenant: q.run.Tenant, Key: waiting[0].Lock}
	holders, err := tx.LockHolders(ctx, []store.LockKey{key})
	if holder, held := holders[key]; held && holder != q.run.ID {
		q.block(BlockedByLock, fmt.Sprintf("it waits for the lock %s, which run %s holds or gets before it", key.Key, holder), "wait until that run ends, or cancel it: servo runs cancel "+holder.String(),
			map[string]any{"lock": key.Key, "run": holder.String()})
	}
	return err
}

// wouldStart computes the next StartRuns on the snapshot.
func (q *inquiry) wouldStart(ctx context.Context, tx *store.Tx) (bool, error) {
	candidates, err := startable(ctx, tx, q.config.Round)
	if err != nil || len(candidates) == 0 {
		return false, err
	}
	runs, err := tx.LookRuns(ctx, candidates)
	if err != nil {
		return false, err
	}
	quotas, err := tx.RunQuotasOf(ctx, tenantsOf(candidates))
	if err != nil {
		return false, err
	}
	used, err := runningOf(ctx, tx, quotas)
	if err != nil {
		return false, err
	}
	waiting, err := tx.WithLive(ctx, runs)
	if err != nil {
		return false, err
	}
	w := newWorking()
	w.at(q.now)
	w.addRuns(waiting)
	roots, err := rootsByRun(ctx, tx, w, candidates)
	if err != nil {
		return false, err
	}
	free := make(map[id.Run]bool, len(candidates)) // candidates that wait for a lock are the next to get it
	for _, key := range candidates {
		free[key.Run] = true
	}
	if _, err := w.start(candidates, roots, used, free); err != nil {
		return false, err
	}
	r := w.runs[q.run.ID]
	return r != nil && r.run.State == run.RunRunning, nil
}
