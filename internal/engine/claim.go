package engine

import (
	"context"
	"slices"
	"time"

	"go.arco.dev/servo/internal/base/event"
	"go.arco.dev/servo/internal/base/fault"
	"go.arco.dev/servo/internal/base/id"
	"go.arco.dev/servo/internal/domain/asset"
	"go.arco.dev/servo/internal/domain/run"
	"go.arco.dev/servo/internal/engine/signal"
	"go.arco.dev/servo/internal/store"
)

// ClaimRequest requests queued tasks of pools.
type ClaimRequest struct {
	Worker string
	Claim  id.Claim  // the same id again gets the same leases
	Pools  []string  // in the order of preference
	Tenant id.Tenant // of a worker that gets tasks of one tenant only; zero is all
	// Capabilities are what the worker can run; none is everything.
	Capabilities []string
	Max          int
	Slots        int           // capacity of the worker; 0 is unknown
	Lease        time.Duration // 0 is the default
	// Unstarted is how long a lease lasts until its task is started, if that is shorter than the
	// lease: a dispatcher renews it that often, and the start begins the lease of the worker.
	Unstarted time.Duration
	Wait      time.Duration // how long to wait for the first task
	Start     bool          // start in the same step
	// Presence reports that the worker sends heartbeats: without a requested lease, its leases end when it
	// falls silent.
	Presence bool
	Meta     event.Meta
}

// Lease is a claimed attempt with all data that its worker needs.
type Lease struct {
	store.TaskKey
	store.Assignment

	Attempt   int32
	Token     int64
	Cursor    string
	FanOuts   int32
	ExpiresAt time.Time
	Deadline  time.Time     // set once started
	Timeout   time.Duration // of this attempt; a retry may have a longer one
	Started   bool
	Code      asset.Asset
	// Partitions are the keys of the declared partitions of the task, in order.
	Partitions []string
	// Upstream are the results of the tasks that its plan made it wait for, and of those that other
	// runs have executed instead.
	Upstream []UpstreamResult
	missing  []string // upstreams without a task; nil if all have one
}

// UpstreamResult is the result of an upstream task.
type UpstreamResult = store.UpstreamResult

// Limits of a claim.
const (
	MaxClaim      = 1000
	MaxSlots      = 100_000
	maxPools      = 100
	maxPoolLength = 100
	minLease      = time.Second
	maxLease      = time.Hour
	// maxUpstreamBytes bounds the results that are sent with one lease; the worker requests larger ones.
	maxUpstreamBytes = 64 << 10
)

func (r ClaimRequest) validate() error {
	switch {
	case r.Worker == "" || len(r.Worker) > maxTriggeredByLength:
		return fault.New(fault.InvalidArgument, "must have 1 to 200 bytes", fault.Field("worker_id"), fault.Remedy("name the worker, such as host-1"))
	case r.Claim == (id.Claim{}):
		return fault.New(fault.InvalidArgument, "is missing", fault.Field("claim_id"), fault.Remedy("send a new UUID for each claim"))
	case r.Max < 1 || r.Max > MaxClaim:
		return fault.New(fault.InvalidArgument, "must be 1 to 1000", fault.Field("max"), fault.Remedy("claim fewer tasks at once"))
	case r.Slots < 0 || r.Slots > MaxSlots:
		return fault.New(fault.InvalidArgument, "must be 0 to 100000", fault.Field("slots"), fault.Remedy("send how many tasks the worker runs at once"))
	case len(r.Pools) == 0 || len(r.Pools) > maxPools:
		return fault.New(fault.InvalidArgument, "must name 1 to 100 pools", fault.Field("pools"), fault.Remedy(`send the pools to serve, such as ["default"]`))
	case r.Lease != 0 && (r.Lease < minLease || r.Lease > maxLease):
		return fault.New(fault.InvalidArgument, "must be 1 s to 1 h", fault.Field("lease"), fault.Remedy("leave it out for 300 s"))
	}
	for _, pool := range r.Pools {
		if pool == "" || len(pool) > maxPoolLength {
			return fault.New(fault.InvalidArgument, "has a name that is empty or over 100 bytes", fault.Field("pools"), fault.Remedy("use the pool's name"))
		}
		if err := checkText("pools", pool, maxPoolLength); err != nil {
			return err
		}
	}
	return checkText("worker_id", r.Worker, maxTriggeredByLength)
}

// Claim leases queued tasks to a worker. It waits for the first one up to Wait, outside of the lane, so that
// a waiting claim delays no other command.
func (e *Engine) Claim(ctx context.Context, r ClaimRequest) ([]Lease, error) {
	if err := r.validate(); err != nil {
		return nil, err
	}
	lease, renewal := e.LeaseTimes(r)
	r.Lease = lease
	begun, patience := time.Now(), time.NewTimer(r.Wait)
	defer patience.Stop()
	set, err := e.capabilities.of(r.Capabilities)
	if err != nil {
		return nil, err
	}
	c := &claiming{Engine: e, cmd: &claimCommand{ClaimRequest: r, set: set, renewal: renewal}, unsure: true}
	for first := true; ; first = false {
		e.sawClaim(r, set)
		woken := e.signals.WaitAny(r.Pools)
		leases, over, err := c.claimOrWait(ctx, first, woken, patience.C)
		woken.Stop()
		switch {
		case err != nil:
			return nil, err
		case len(leases) > 0:
			kept, err := e.refuseMissing(ctx, leases, r.Meta)
			if err != nil || len(kept) > 0 || over && r.Wait > 0 && time.Since(begun) >= r.Wait {
				return kept, err
			}
		case over:
			return c.recall(ctx)
		}
	}
}

// LeaseTimes is how long the leases of a claim last, and how long a heartbeat renews them. A claim
// that requests a duration gets it. A worker that sends heartbeats and requests none loses its leases when
// it has been silent for WorkerTimeout, and a little more: it sends a heartbeat each third of that time, so
// its last one may be as old when it falls silent.
func (e *Engine) LeaseTimes(r ClaimRequest) (lease, renewal time.Duration) {
	switch {
	case r.Unstarted != 0:
		return min(r.Unstarted, e.config.Lease), e.config.HeartbeatTimeout
	case r.Lease != 0:
		return r.Lease, r.Lease
	case r.Presence:
		lease = e.config.WorkerTimeout + e.config.WorkerTimeout/6
		return lease, lease
	}
	return e.config.Lease, e.config.HeartbeatTimeout
}

// claiming is a claim whose caller waits for leases.
type claiming struct {
	*Engine

	cmd    *claimCommand
	unsure bool // a transaction may have given it leases that it has not seen
}

// claimOrWait looks for tasks and then waits until a handoff gives it leases or until it should look
// again. A first look is skipped if a claim that could run the same has just found nothing.
func (c *claiming) claimOrWait(ctx context.Context, first bool, woken signal.Waiter, patience <-chan time.Time) (leases []Lease, over bool, err error) {
	waits, pools, set, poll := c.cmd.Wait > 0, c.cmd.Pools, c.cmd.set.name(), c.config.PollEvery
	if !first || !waits || !c.config.Handoff || !c.signals.RecentlyEmpty(pools, set, c.config.PollEvery) {
		answer, err := c.work.Do(ctx, workRequest{claim: c.cmd})
		if err != nil || len(answer.leases) > 0 {
			return answer.leases, true, err
		}
		if c.unsure = false; !waits {
			return nil, true, nil
		}
		switch {
		case answer.busy: // tasks are ready, and another transaction admits
			poll = min(poll, busyPoll)
		case c.cmd.Tenant == (id.Tenant{}): // a claim for one tenant does not see the tasks of others
			c.signals.MarkEmpty(pools, set, woken)
		}
	}
	leases, over = c.wait(ctx, poll, woken.C, patience)
	return leases, over, nil
}

// wait waits until a handoff has ended, the claim should look itself, or it has waited long enough.
func (c *claiming) wait(ctx context.Context, every time.Duration, woken <-chan struct{}, patience <-chan time.Time) (leases []Lease, over bool) {
	w := c.handoffs.waiting.add(c.cmd)
	poll := time.NewTimer(every)
	defer poll.Stop()
	select {
	case <-w.done:
		c.unsure = true
		return w.leases, false
	case <-woken:
	case <-poll.C:
	case <-patience:
		over = true
	case <-ctx.Done():
		over = true
	}
	if c.handoffs.waiting.leave(w) {
		return nil, over
	}
	<-w.done // bounded by the deadline of the transaction
	c.unsure = true
	return w.leases, over
}

// recall returns the leases of a claim that is about to be answered without any: it may be a repeat
// that has not looked, or a handoff to it was committed and the answer of the database was lost. It
// takes no other task, and outlives its caller's deadline: the caller may be gone, or the server may
// be stopping.
func (c *claiming) recall(ctx context.Context) ([]Lease, error) {
	if !c.unsure {
		return nil, nil
	}
	again := *c.cmd
	again.Max = 0
	answer, err := c.work.Do(context.WithoutCancel(ctx), workRequest{claim: &again})
	if err != nil {
		return nil, err
	}
	return c.refuseMissing(ctx, answer.leases, again.Meta)
}

// takes reports whether the claim may take a task, and its worker can run it.
func (c *claimCommand) takes(t run.Task) bool {
	return (c.Tenant == id.Tenant{} || c.Tenant == t.Tenant) && slices.Contains(c.Pools, t.Pool) && c.set.canRun(t.Needs)
}

// claimCommand is a claim with the capabilities of its worker.
type claimCommand struct {
	ClaimRequest

	set     *capabilitySet // what its worker can run
	renewal time.Duration  // how long a heartbeat renews its leases
}

// openClaim is a claim in one transaction.
type openClaim struct {
	*claimCommand

	queued []run.Task // tasks of its pools' queues that it will get
	leases []Lease
	repeat bool       // its first try was committed
	busy   bool       // tasks are ready for it, and another transaction admits
	twin   *openClaim // the same claim id, earlier in the batch
}

// room is how many more tasks the claim may get.
func (c *openClaim) room() int {
	if c.repeat || c.twin != nil {
		return 0
	}
	return c.Max - len(c.queued) - len(c.leases)
}

// giveLeases leases the tasks that the claims of a batch have taken from queues.
func (w *working) giveLeases(ctx context.Context, tx *store.Tx, claims []*openClaim) error {
	var (
		tasks []run.Task
		to    []*openClaim
	)
	for _, c := range claims {
		for _, t := range c.queued {
			tasks, to = append(tasks, t), append(to, c)
		}
		c.queued = nil
	}
	return w.leaseTasks(ctx, tx, tasks, to)
}

// leaseTasks leases each queued task to its claim.
func (w *working) leaseTasks(ctx context.Context, tx *store.Tx, tasks []run.Task, to []*openClaim) error {
	offers, err := tx.Assign(ctx, tasks)
	if err != nil {
		return err
	}
	for i, offer := range offers {
		t := w.add(offer.Task)
		if err := w.leaseTo(to[i].claimCommand, t, offer.Token); err != nil {
			return err
		}
		w.known(offer.Workspace, offer.Trace)
		to[i].leases = append(to[i].leases, leaseOf(t.task, offer))
	}
	return nil
}

// giveTwins gives each claim the leases of an earlier one with the same id.
func giveTwins(claims []*openClaim) {
	for _, c := range claims {
		if c.twin != nil {
			c.leases = c.twin.leases
		}
	}
}

// leaseTo leases a queued task to a claim.
func (w *working) leaseTo(c *claimCommand, t *liveTask, token int64) error {
	err := w.decide(t, run.Claim{Token: token, Worker: c.Worker, Claim: c.Claim, Start: c.Start}, c.Meta)
	if err != nil {
		return err
	}
	t.task.ExpiresAt, t.task.Lease = w.now.Add(c.Lease), c.renewal
	return nil
}

func leaseOf(t run.Task, o store.Offer) Lease {
	l := Lease{
		TaskKey: keyOf(t), Assignment: o.Assignment, Attempt: t.Attempt, Token: t.Token, Cursor: t.Cursor, FanOuts: t.FanOuts,
		ExpiresAt: t.ExpiresAt, Deadline: t.Deadline, Timeout: time.Duration(t.Timeout) * time.Second, Started: t.State == run.Running,
	}
	for _, upstream := range o.Upstream {
		l.Upstream = append(l.Upstream, UpstreamResult{Run: t.Run, Task: upstream})
	}
	for _, from := range o.Inherited {
		l.Upstream = append(l.Upstream, UpstreamResult{Run: from.Run, Task: from.Task})
	}
	return l
}

// takeQueued locks the queued tasks that the claims of a batch will get, and no more: other servers skip a locked
// task, and no signal reports that it is free again. Each pool is read once, in the order in which the
// claims name them: a second read would return the same locked tasks. Workers of one tenant are served by
// their own read, and so are workers with other capabilities.
func takeQueued(ctx context.Context, tx *store.Tx, claims []*openClaim) error {
	type queue struct {
		store.ShareKey

		set string
	}
	asking := map[queue][]*openClaim{}
	var pools []queue
	for _, c := range claims {
		if c.room() == 0 {
			continue
		}
		for i, pool := range c.Pools {
			if slices.Contains(c.Pools[:i], pool) {
				continue // named twice
			}
			key := queue{store.ShareKey{Tenant: c.Tenant, Pool: pool}, c.set.name()}
			if asking[key] == nil {
				pools = append(pools, key)
			}
			asking[key] = append(asking[key], c)
		}
	}
	offered := map[string][]id.Task{} // by pool
	for _, pool := range pools {
		demand := 0
		for _, c := range asking[pool] {
			demand += c.room()
		}
		if demand == 0 {
			continue
		}
		taken, err := tx.TakeQueued(ctx, store.Demand{
			Pool: pool.Pool, Tenant: pool.Tenant, Everything: pool.set == store.Everything, Capabilities: asking[pool][0].set.names(),
			Taken: offered[pool.Pool], Most: min(demand, maxOffers),
		})
		if err != nil {
			return err
		}
		for _, t := range taken {
			offered[pool.Pool] = append(offered[pool.Pool], t.ID)
		}
		for _, c := range asking[pool] {
			n := min(c.room(), len(taken))
			c.queued = append(c.queued, taken[:n]...)
			taken = taken[n:]
		}
	}
	return nil
}

// maxOffers bounds what one transaction leases from one pool.
const maxOffers = 2000

// openClaims opens claims in a transaction. Those whose first try was committed have their leases. Each
// waits until an earlier try with its id has ended.
func openClaims(ctx context.Context, tx *store.Tx, cmds []*claimCommand) ([]*openClaim, error) {
	if len(cmds) == 0 {
		return nil, nil
	}
	claims := make([]*openClaim, len(cmds))
	byID := make(map[id.Claim]*openClaim, len(cmds))
	for i, cmd := range cmds {
		claims[i] = &openClaim{claimCommand: cmd, twin: byID[cmd.Claim]}
		if claims[i].twin == nil {
			byID[cmd.Claim] = claims[i]
		}
	}
	ids := claimIDs(claims)
	if err := tx.LockClaims(ctx, ids); err != nil {
		return nil, err
	}
	held, err := tx.LeasesOfClaims(ctx, ids)
	if err != nil {
		return nil, err
	}
	offers, err := tx.Assign(ctx, held)
	if err != nil {
		return nil, err
	}
	for _, offer := range offers {
		c := byID[offer.Task.Claim]
		c.repeat = true
		c.leases = append(c.leases, leaseOf(offer.Task, offer))
	}
	return claims, nil
}

func claimIDs(claims []*openClaim) []id.Claim {
	ids := make([]id.Claim, len(claims))
	for i, c := range claims {
		ids[i] = c.Claim
	}
	return ids
}

// addCode adds the code of each leased task, and the results of its upstreams.
func (e *Engine) addCode(ctx context.Context, tx *store.Tx, claims []*openClaim) error {
	var keys []store.DeploymentKey
	for _, c := range claims {
		for _, l := range c.leases {
			keys = append(keys, store.DeploymentKey{Tenant: l.Tenant, Deployment: l.Deployment})
		}
	}
	found, err := e.deploymentsOf(ctx, keys)
	if err != nil {
		return err
	}
	for _, c := range claims {
		for i := range c.leases {
			l := &c.leases[i]
			if d := found[l.Deployment]; d != nil {
				l.Code, _ = d.Asset(l.Asset)
				l.Partitions = d.partitionsOf(l.Asset, l.Partition)
			}
		}
	}
	return addUpstream(ctx, tx, claims)
}

// addUpstream adds the results of the upstreams of all leased tasks: one statement, and none without
// upstreams.
func addUpstream(ctx context.Context, tx *store.Tx, claims []*openClaim) error {
	var tasks []store.UpstreamsOf
	var waited []*Lease
	for _, c := range claims {
		if c.twin != nil {
			continue // the leases of its twin
		}
		for i := range c.leases {
			l := &c.leases[i]
			if len(l.Upstream) > 0 {
				tasks = append(tasks, store.UpstreamsOf{Tenant: l.Tenant, Results: l.Upstream})
				waited = append(waited, l)
			}
		}
	}
	if err := tx.UpstreamResults(ctx, tasks, maxUpstreamBytes); err != nil {
		return err
	}
	for _, l := range waited {
		l.missingInputs()
	}
	return nil
}
