package engine

import (
	"context"
	"slices"
	"time"

	"go.arco.dev/servo/internal/base/event"
	"go.arco.dev/servo/internal/base/id"
	"go.arco.dev/servo/internal/domain/fair"
	"go.arco.dev/servo/internal/domain/run"
	"go.arco.dev/servo/internal/store"
)

const (
	// workerAlive is how long after its last sign of life a worker counts as live. A claim may wait for
	// a minute.
	workerAlive = 90 * time.Second
	// unknownCost is what a task is charged whose asset has never run, in worker-seconds.
	unknownCost = 1.0
	// queueAhead is the part of a pool's capacity that is queued while all of it is in use. A tenant
	// that arrives is served after these tasks, so they are few: workers take a quarter of the
	// capacity within a quarter of a task's length.
	queueAhead = 4
	// roundsAhead is for how many rounds of admission the queue lasts at the pace at which
	// workers take tasks: with short tasks that is more than a part of their capacity.
	roundsAhead = 3
	// partRead is how much of its part of a round is read of each tenant: every row that is read is
	// locked, and a tenant that is owed more is served again in the next round.
	partRead = 1.25
	// maxFold bounds the settlements of other transactions that one round applies.
	maxFold = 10_000
)

// Admit moves ready tasks into their pools' queues under the admission duty: in fair shares, within the
// tenants' quotas, and no more than the workers will take soon. It returns how many it moved, and
// whether the next round may follow at once.
//
// It reads the tenants that come next, not all that wait, so its cost grows with what it admits.
//
// It leaves pools to the claims that admit their tasks themselves (docs/adr/0037-claims-that-admit.md).
func (e *Engine) Admit(ctx context.Context, duty store.Duty, most int) (admitted int, more bool, err error) {
	if e.handoffs.claimsAdmit() {
		e.admitAfter(leaveToClaims)
		return 0, false, nil
	}
	begun := time.Now()
	defer e.observeRound(begun, &admitted, &err)
	err = e.transact(ctx, func(ctx context.Context, tx *store.Tx, w *working) error {
		admitted, more = 0, false
		if err := tx.HoldDuty(ctx, duty); err != nil {
			return err
		}
		folded, err := tx.FoldSettlements(ctx, maxFold)
		if err != nil {
			return err
		}
		ready, err := tx.ReadyPools(ctx, store.PoolQuestion{Alive: workerAlive, MostQueued: e.config.QueueTarget})
		if err != nil {
			return err
		}
		e.pace.ahead(ready)
		for i, name := range ready.Names {
			r := &ready.Rooms[i]
			r.PoolLeft = e.config.Handoff && e.handoffs.leaves(name, *r)
		}
		pools, err := e.readRound(ctx, tx, ready, most, id.Tenant{})
		if err != nil {
			return err
		}
		tasks, blocked, err := w.takeReady(ctx, tx, pools)
		if err != nil {
			return err
		}
		now, err := tx.Clock(ctx)
		if err != nil {
			return err
		}
		w.at(now)
		var left bool
		admitted, left, more, err = w.admit(pools, tasks)
		e.pace.queued(pools)
		more = more || folded == maxFold || blocked.held // other tasks may come after the held ones
		e.signals.SetFull(left || blocked.left)          // then every change that makes room wakes admission
		return err
	})
	if admitted > 0 {
		e.pace.took(time.Since(begun))
	}
	e.handoffs.madeRound(admitted)
	return admitted, more, err
}

// readRound reads the shares that a round considers, of one tenant if it is not zero, and computes
// their room.
func (e *Engine) readRound(ctx context.Context, tx *store.Tx, ready store.ReadyPools, most int, of id.Tenant) ([]*poolRound, error) {
	heads := e.config.heads(ready, most)
	shares, err := tx.HeadShares(ctx, ready, heads, of)
	if err != nil {
		return nil, err
	}
	pools := e.round(shares, most)
	for _, p := range pools {
		p.cut = len(p.shares) == int(heads[slices.Index(ready.Names, p.pool)])
	}
	return pools, e.lookUp(ctx, tx, pools)
}

// heads is how many tenants of each pool a round reads. In a pool with room for n tasks at most
// n tenants are served. Some of them may have no room left in their quota because other pools use
// it; these are at most as many as the other pools have room for. One more shows what is charged to
// those that leave.
func (c Config) heads(pools store.ReadyPools, most int) []int32 {
	total := 0
	for _, p := range pools.Rooms {
		total += poolRoom(p, c, most)
	}
	heads := make([]int32, len(pools.Rooms))
	for i, p := range pools.Rooms {
		heads[i] = 1
		if poolRoom(p, c, most) > 0 {
			heads[i] = int32(min(total, most)) + 1 //nolint:gosec // a batch size
		}
	}
	return heads
}

// RecountShares counts the tasks in flight again, under the duty: when a server takes it over, and from
// time to time, since a repair may have moved tasks.
func (e *Engine) RecountShares(ctx context.Context, duty store.Duty) error {
	return e.store.Engine(ctx, func(ctx context.Context, tx *store.Tx) error {
		if err := tx.HoldDuty(ctx, duty); err != nil {
			return err
		}
		return tx.RecountShares(ctx)
	})
}

// poolRound is one pool in a round of admission.
type poolRound struct {
	pool   string
	clock  float64
	room   int
	whole  bool // only the size of a round bounds it
	cut    bool // more shares may exist than were read
	shares []shareRound
	queued int // tasks that were queued before, and those that the round has added

	sets []string         // digests of the capabilities of its live workers
	can  poolCapabilities // the same, looked up
}

// shareRound is one tenant of it.
type shareRound struct {
	store.ReadyShare

	room int  // by the tenant's quota
	most int  // how many of its tasks are read
	more bool // tasks that were read are left for others
}

// round computes how much room each pool and each tenant has.
func (e *Engine) round(shares []store.ReadyShare, most int) []*poolRound {
	byPool := map[string]*poolRound{}
	var pools []*poolRound
	for _, s := range shares {
		p := byPool[s.Pool]
		if p == nil {
			p = &poolRound{pool: s.Pool, clock: s.PoolClock, room: poolRoom(s.PoolRoom, e.config, most), queued: s.PoolQueued, sets: s.PoolSets}
			p.whole = p.room == most
			byPool[s.Pool] = p
			pools = append(pools, p)
		}
		p.shares = append(p.shares, shareRound{ReadyShare: s, room: min(p.room, TenantRoom(s, most))})
	}
	splitQuotas(pools)
	for _, p := range pools {
		weights := 0.0
		for _, s := range p.shares {
			if s.room > 0 {
				weights += s.Weight
			}
		}
		for i := range p.shares {
			if s := &p.shares[i]; s.room > 0 {
				// Its part and a little more: if that is not enough the next round follows at once.
				s.most = min(s.room, int(partRead*float64(p.room)*s.Weight/weights)+1)
			}
		}
	}
	return pools
}

// splitQuotas divides the free part of a tenant's quota among the pools that have room for it, since the
// quota is for all pools together. A part that one pool does not need is for the others in the next
// round.
func splitQuotas(pools []*poolRound) {
	waits := map[id.Tenant]int{}
	for _, p := range pools {
		for _, s := range p.shares {
			if s.room > 0 {
				waits[s.Tenant]++
			}
		}
	}
	left := map[id.Tenant]int{}
	for _, p := range pools {
		for i := range p.shares {
			s := &p.shares[i]
			if s.MaxInFlight < 0 || s.room == 0 {
				continue
			}
			if _, known := left[s.Tenant]; !known {
				left[s.Tenant] = s.MaxInFlight - s.InFlight
			}
			part := (left[s.Tenant] + waits[s.Tenant] - 1) / waits[s.Tenant] // rounded up: the first has no less
			s.room = min(s.room, part)
			left[s.Tenant] -= s.room
			waits[s.Tenant]--
		}
	}
}

// TenantRoom is how many more tasks of a tenant may be in flight.
func TenantRoom(s store.ReadyShare, most int) int {
	if s.MaxInFlight < 0 {
		return most
	}
	return max(0, min(most, s.MaxInFlight-s.InFlight))
}

// PoolTarget is how many tasks of a pool are queued at most: what its workers can take at once,
// and what they take until admission has made its next rounds. It is short, so that a tenant
// that arrives need not wait behind a long queue.
func (c Config) PoolTarget(s store.PoolRoom) int {
	if s.PoolWorkers == 0 {
		return min(c.QueueTarget, c.QueueWithoutWorkers)
	}
	free := max(0, s.PoolCapacity-max(0, s.PoolInFlight-s.PoolQueued))
	return min(c.QueueTarget, free+max(1, s.PoolCapacity/queueAhead, s.PoolAhead))
}

func poolRoom(s store.PoolRoom, config Config, most int) int {
	room := min(most, s.PoolDemand)
	if s.PoolDemand == 0 && !s.PoolLeft {
		room = min(most, config.PoolTarget(s)-s.PoolQueued)
	}
	if s.PoolMaxInFlight >= 0 {
		room = min(room, s.PoolMaxInFlight-s.PoolInFlight)
	}
	return max(0, room)
}

// takeReady locks the tasks that the round considers: of each share those that come next by priority,
// and where it is their turn those that are ready longest. Tasks of paused assets, those that no
// worker can run, and those whose partitions another task holds are held: they leave the order.
func (w *working) takeReady(ctx context.Context, tx *store.Tx, pools []*poolRound) (tasks map[store.ShareKey][]store.ReadyTask, blocked blockedTasks, err error) {
	ask := looksOf(pools)
	ranked, err := tx.TakeReady(ctx, ask.keys, ask.mosts)
	if err != nil {
		return nil, blocked, err
	}
	oldest, err := tx.TakeOldest(ctx, ask.oldKeys, ask.oldMosts)
	if err != nil {
		return nil, blocked, err
	}
	found := slices.Concat(ranked, oldest)
	lacking, met := lackingOf(pools, found)
	if err := tx.HoldLacking(ctx, lacking, met); err != nil {
		return nil, blocked, err
	}
	var suspects []run.Task
	seen := map[id.Task]bool{}
	for _, t := range found {
		if ask.pausing[t.Tenant] && !seen[t.ID] {
			seen[t.ID] = true
			suspects = append(suspects, t.Task)
		}
	}
	paused, err := tx.HoldPaused(ctx, suspects)
	if err != nil {
		return nil, blocked, err
	}
	tasks = inTurn(pools, ranked, oldest, paused)
	blocked, err = w.holdPartitions(ctx, tx, tasks, true)
	blocked.held = blocked.held || len(lacking) > 0
	return tasks, blocked, err
}

// looks are the shares whose tasks a round reads, and how many of each.
type looks struct {
	keys, oldKeys   []store.ShareKey
	mosts, oldMosts []int32
	pausing         map[id.Tenant]bool
}

func looksOf(pools []*poolRound) looks {
	l := looks{pausing: map[id.Tenant]bool{}}
	for _, p := range pools {
		for _, s := range p.shares {
			if s.most == 0 {
				continue
			}
			l.keys, l.mosts = append(l.keys, s.ShareKey), append(l.mosts, int32(s.most)) //nolint:gosec // a batch size
			l.pausing[s.Tenant] = s.Pauses
			if turns := fair.OldestTurns(s.Admitted, s.most); turns > 0 {
				l.oldKeys, l.oldMosts = append(l.oldKeys, s.ShareKey), append(l.oldMosts, int32(turns)) //nolint:gosec // likewise
			}
		}
	}
	return l
}

// inTurn returns the tasks of each share in the order of admission, without those that are held because
// they are paused or because no worker can run them.
func inTurn(pools []*poolRound, ranked, oldest []store.ReadyTask, held map[id.Task]bool) map[store.ShareKey][]store.ReadyTask {
	can := make(map[string]poolCapabilities, len(pools))
	for _, p := range pools {
		can[p.pool] = p.can
	}
	group := func(tasks []store.ReadyTask) map[store.ShareKey][]store.ReadyTask {
		byShare := map[store.ShareKey][]store.ReadyTask{}
		for _, t := range tasks {
			if key := (store.ShareKey{Tenant: t.Tenant, Pool: t.Pool}); !held[t.ID] && can[t.Pool].canRun(t.Needs) {
				byShare[key] = append(byShare[key], t)
			}
		}
		return byShare
	}
	byShare, old := group(ranked), group(oldest)
	for _, p := range pools {
		for _, s := range p.shares {
			if len(old[s.ShareKey]) > 0 {
				byShare[s.ShareKey] = fair.Turns(s.Admitted, byShare[s.ShareKey], old[s.ShareKey], func(t store.ReadyTask) id.Task { return t.ID }, s.most)
			}
		}
	}
	return byShare
}

// admit queues the tasks of a round in fair order and charges their tenants. Left reports that tasks stay
// ready, more that there was room for them.
func (w *working) admit(pools []*poolRound, tasks map[store.ShareKey][]store.ReadyTask) (admitted int, left, more bool, err error) {
	taken := map[id.Tenant]int{}
	var charged []store.ReadyShare
	for _, p := range pools {
		shares, counts, clock, err := w.fill(p, tasks, admitted)
		if err != nil {
			return 0, false, false, err
		}
		queued := 0
		for i, n := range counts {
			queued += n
			taken[p.shares[i].Tenant] += n
		}
		admitted += queued
		p.queued += queued
		progress := queued > 0
		for i, s := range shares {
			looked, most := len(s.Costs), p.shares[i].most
			if looked == most || counts[i] < looked {
				left = true
				more = more || looked > 0 && (p.whole || counts[i] == looked && queued < p.room)
			}
			// A share without tasks or without room in its quota leaves the order.
			leaves := most > 0 && looked == 0 || TenantRoom(p.shares[i].ReadyShare, 1) == 0
			progress = progress || leaves
			if counts[i] > 0 || leaves || s.EvenAt != p.shares[i].EvenAt {
				w.changes.Charges = append(w.changes.Charges, store.Charge{ShareKey: p.shares[i].ShareKey, Admitted: counts[i], EvenAt: s.EvenAt})
				charged = append(charged, p.shares[i].ReadyShare)
			}
		}
		left = left || p.cut
		more = more || p.cut && progress && queued < p.room
		if clock != p.clock {
			w.clock(p.pool, clock)
		}
	}
	for i, s := range charged {
		s.InFlight += taken[s.Tenant]
		w.changes.Charges[i].OverQuota = TenantRoom(s, 1) == 0
	}
	return admitted, left, more, nil
}

// clock sets the clock of a pool.
func (w *working) clock(pool string, at float64) {
	if w.changes.Clocks == nil {
		w.changes.Clocks = map[string]float64{}
	}
	w.changes.Clocks[pool] = at
}

// fill queues tasks of one pool in fair order, after those that the round has admitted to other pools. It
// returns the shares afterwards, and how many tasks of each it queued.
func (w *working) fill(p *poolRound, tasks map[store.ShareKey][]store.ReadyTask, admitted int) (shares []fair.Share, taken []int, clock float64, err error) {
	shares = make([]fair.Share, len(p.shares))
	for i, s := range p.shares {
		found := tasks[s.ShareKey]
		shares[i] = fair.Share{
			Tenant: s.Tenant, Weight: s.Weight, EvenAt: s.EvenAt, Waits: s.Waits, Room: s.most,
			Costs: costs(found), More: s.more || len(found) == s.most,
		}
	}
	order, clock := fair.Pick(p.clock, shares, p.room)
	taken = make([]int, len(shares))
	for n, i := range order {
		ready := tasks[p.shares[i].ShareKey][taken[i]]
		t := w.add(ready.Task)
		t.task.Rank = w.now.UnixMicro() + int64(admitted+n)
		t.task.Cost = float32(shares[i].Costs[taken[i]])
		taken[i]++
		if err := w.decide(t, run.Admit{}, event.Meta{Actor: "admission"}); err != nil {
			return nil, nil, 0, err
		}
		w.hold(ready)
	}
	return shares, taken, clock, nil
}

// costs are the worker-seconds that tasks are expected to take.
func costs(tasks []store.ReadyTask) []float64 {
	out := make([]float64, len(tasks))
	for i, t := range tasks {
		out[i] = unknownCost
		if t.Seconds >= 0 {
			out[i] = max(fair.MinCost, t.Seconds)
		}
	}
	return out
}
