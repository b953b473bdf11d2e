package worker

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc/codes"

	servov1 "go.arco.dev/servo/gen/servo/v1"
	"go.arco.dev/servo/internal/base/fault"
)

// Worker claims tasks and executes them until it is told to stop.
type Worker struct {
	config    Config
	client    servov1.WorkerServiceClient
	tasks     servov1.TaskServiceClient
	executors map[string]Executor
	link      *link
	reporter  *reporter
	flusher   *flusher

	lease atomic.Int64 // how long leases last without a heartbeat, in nanoseconds
	used  atomic.Bool
	abort chan struct{}
	once  sync.Once

	denied  chan struct{} // closed when the server refuses the worker's key
	denial  error         // why, once it is closed
	denying sync.Once

	// base is the parent of the tasks' contexts: it outlives the context of Run, since
	// tasks may go on for a while when the worker stops.
	base      context.Context
	interrupt context.CancelCauseFunc

	mu       sync.Mutex
	held     map[string]*attempt // every lease, until its last report is answered
	claims   claimIDs
	buffer   []*attempt // leased ahead of need, in their order
	running  map[*attempt]struct{}
	stopping bool
	idle     chan struct{} // closed when nothing runs, once stopping
	room     chan struct{} // wakes the claim loop
}

// New makes a worker; Run runs it.
func New(config Config) (*Worker, error) {
	config = config.withDefaults()
	if err := config.validate(); err != nil {
		return nil, err
	}
	w := &Worker{
		config:    config,
		client:    servov1.NewWorkerServiceClient(config.Conn),
		tasks:     servov1.NewTaskServiceClient(config.Conn),
		executors: map[string]Executor{},
		link:      &link{conn: config.Conn, log: config.Logger},
		abort:     make(chan struct{}),
		denied:    make(chan struct{}),
		held:      map[string]*attempt{},
		running:   map[*attempt]struct{}{},
		idle:      make(chan struct{}),
		room:      make(chan struct{}, 1),
		claims:    newClaimIDs(),
	}
	w.lease.Store(int64(cmp.Or(config.Lease, defaultLease)))
	for _, e := range config.Executors {
		w.executors[e.Kind()] = e
	}
	w.reporter = newReporter(w)
	w.flusher = &flusher{every: config.FlushEvery, flush: w.flush}
	return w, nil
}

// Run works until the context is done, then stops: it claims no more, gives back what it
// has not begun, lets the tasks go on for the grace, interrupts the rest, and returns when
// everything was reported. It can be called once.
func (w *Worker) Run(ctx context.Context) error {
	if w.used.Swap(true) {
		return fault.New(fault.Conflict, "the worker has been run", fault.Remedy("make a new one"))
	}
	w.base, w.interrupt = context.WithCancelCause(context.WithoutCancel(ctx))
	defer w.interrupt(ErrInterrupted)
	calls, stopCalls := context.WithCancel(context.WithoutCancel(ctx))
	claims, stopClaims := context.WithCancel(ctx)

	var talking, claiming sync.WaitGroup
	for range senders {
		talking.Go(func() { w.reporter.send(calls) })
	}
	talking.Go(func() { w.beat(calls) })
	claiming.Go(func() { w.claim(claims, calls) })

	w.config.Logger.Info("working", "worker", w.config.ID, "pools", w.config.Pools, "slots", w.config.Concurrency)
	select {
	case <-ctx.Done():
	case <-w.abort:
	case <-w.denied:
		w.config.Logger.Error("the server refuses this worker", "worker", w.config.ID, "error", w.denial)
		w.Abort() // nothing that its tasks report would be accepted
	}
	stopClaims()
	w.drain(&claiming)
	left := w.lastWords()
	stopCalls()
	w.reporter.stop()
	w.flusher.stop()
	claiming.Wait()
	talking.Wait()
	select {
	case <-w.denied:
		return w.denial
	default:
	}
	if left > 0 {
		return fault.New(fault.Unavailable, fmt.Sprintf("%d reports could not be delivered before the worker stopped", left),
			fault.Remedy("the tasks are tried again when their leases expire"), fault.Value("reports", left))
	}
	w.config.Logger.Info("stopped", "worker", w.config.ID)
	return nil
}

// deny ends the worker because the server refuses its key, or does not let it serve its pools.
// Another try would be refused as well: the key must be changed.
func (w *Worker) deny(err error) {
	w.denying.Do(func() {
		p := problemOf(err)
		code, remedy := fault.Unauthenticated, "give the worker a key with the role worker, of all its pools: servo keys create NAME --platform --role worker --pool POOL"
		if codeOf(err) == codes.PermissionDenied {
			code = fault.Forbidden
		}
		if p.GetRemedy() != "" {
			remedy = p.GetRemedy()
		}
		w.denial = fault.New(code, "the server refuses the worker's key: "+p.GetMessage(), fault.Remedy(remedy), fault.Cause(err))
		close(w.denied)
	})
}

// isDenied reports whether the server has refused the worker's key.
func (w *Worker) isDenied() bool {
	select {
	case <-w.denied:
		return true
	default:
		return false
	}
}

// isDenied reports whether the server knows the caller, and refuses it.
func isDenied(err error) bool {
	code := codeOf(err)
	return code == codes.Unauthenticated || code == codes.PermissionDenied
}

// Abort makes Run return at once: tasks are interrupted without grace.
func (w *Worker) Abort() { w.once.Do(func() { close(w.abort) }) }

// drain lets the tasks end, then interrupts them, then gives up those that do not listen.
func (w *Worker) drain(claiming *sync.WaitGroup) {
	w.mu.Lock()
	w.stopping = true
	buffered := w.buffer
	w.buffer = nil
	running := len(w.running)
	if running == 0 {
		close(w.idle)
	}
	w.mu.Unlock()
	w.config.Logger.Info("stopping", "running", running, "given_back", len(buffered), "grace", w.config.Grace)
	for _, a := range buffered {
		w.giveBack(a)
	}
	if !w.await(w.idle, w.config.Grace) {
		w.interrupt(ErrInterrupted)
		if !w.await(w.idle, stopGrace) {
			linger(w.idle) // even without time, processes should be gone before we are
		}
	}
	// What a claim may have brought while it was being stopped is given back too.
	claimed := make(chan struct{})
	go func() {
		defer close(claimed)
		claiming.Wait()
	}()
	w.await(claimed, claimGrace)

	for _, a := range w.stillRunning() {
		w.config.Logger.Warn("a task does not listen to its context and is abandoned", "task", a.lease.GetTask(), "asset", a.lease.GetAsset())
		w.end(a, a.failed(interrupted("the worker stopped, and the task did not end in time")))
	}
}

func (w *Worker) stillRunning() []*attempt {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Collect(maps.Keys(w.running))
}

// await waits for a channel, for so long, and not when there is no time.
func (w *Worker) await(done <-chan struct{}, most time.Duration) bool {
	timer := time.NewTimer(most)
	defer timer.Stop()
	select {
	case <-done:
		return true
	case <-w.abort:
		w.interrupt(ErrInterrupted)
	case <-timer.C:
	}
	// A channel and a timer that are ready together are chosen from by chance.
	select {
	case <-done:
		return true
	default:
		return false
	}
}

// lastWords waits until all is said, and returns how much is not.
func (w *Worker) lastWords() int {
	said := w.reporter.flushed()
	if !w.await(said, flushGrace) {
		linger(said)
	}
	return w.reporter.left()
}

// linger is the little time that there is even when there is none.
func linger(done <-chan struct{}) {
	timer := time.NewTimer(abortGrace)
	defer timer.Stop()
	select {
	case <-done:
	case <-timer.C:
	}
}

// accept takes the leases of a claim: into free slots, the rest into the buffer. What is not
// to be kept, or comes too late, is given back.
func (w *Worker) accept(leases []*servov1.Lease, since time.Time, keep bool) {
	var begin, back []*attempt
	w.mu.Lock()
	w.claims.settle()
	for _, lease := range leases {
		if _, twice := w.held[lease.GetLease()]; twice {
			continue // a repeated claim may bring what an answer brought before
		}
		a := &attempt{lease: lease, since: since, expires: since.Add(w.leaseTime())}
		w.held[a.handle()] = a
		switch {
		case w.stopping || !keep:
			back = append(back, a)
		case len(w.buffer) == 0 && len(w.running) < w.config.Concurrency || lease.GetStarted():
			w.occupy(a)
			begin = append(begin, a)
		default:
			w.buffer = append(w.buffer, a)
		}
	}
	w.mu.Unlock()
	for _, a := range begin {
		go w.slot(a)
	}
	for _, a := range back {
		w.giveBack(a)
	}
}

// occupy gives an attempt a slot, under the lock.
func (w *Worker) occupy(a *attempt) {
	a.ctx, a.cancel = context.WithCancelCause(w.base)
	w.running[a] = struct{}{}
}

// next frees the slot of an attempt and gives it to a buffered one, if there is one whose
// lease is surely alive.
func (w *Worker) next(ended *attempt) *attempt {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.running, ended)
	if w.stopping {
		if len(w.running) == 0 {
			close(w.idle)
		}
		return nil
	}
	defer w.wakeClaims()
	now := time.Now()
	for len(w.buffer) > 0 {
		a := w.buffer[0]
		w.buffer[0] = nil
		w.buffer = w.buffer[1:]
		switch {
		case a.lost.Load():
		case now.After(a.expires.Add(-margin(w.leaseTime()))):
			// Nobody knows whether the server has given it to somebody else. It will
			// find its way: started or not, it costs nothing to leave it alone.
			w.config.Logger.Warn("a lease has expired before a slot was free", "task", a.lease.GetTask())
			a.lost.Store(true)
			delete(w.held, a.handle())
		default:
			w.occupy(a)
			return a
		}
	}
	return nil
}

// margin is how near its expiry a lease is not begun any more.
func margin(lease time.Duration) time.Duration { return min(lease/10, 5*time.Second) }

// giveBack returns a lease that was not begun. An instance starts it first: if another instance
// executes the task, the start is refused and the lease stays with that one.
func (w *Worker) giveBack(a *attempt) {
	if w.config.Instance != "" {
		w.reporter.say(a, a.started(w.config.Instance))
	}
	w.end(a, a.failed(interrupted("the worker stopped before it began the task")))
}

func interrupted(message string) *servov1.Fail {
	return &servov1.Fail{Error: &servov1.Failure{Code: codeInterrupted, Message: message}}
}

// end says the last words of an attempt, with the log lines and the progress that are left.
func (w *Worker) end(a *attempt, last item) {
	items := append(a.logs.rest(a), a.progress.rest(a)...)
	w.reporter.say(a, append(items, last)...) // if nothing more can be said, its end was said before
}

// forget stops holding a lease.
func (w *Worker) forget(a *attempt) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.held, a.handle())
}

// lose ends an attempt whose lease is somebody else's by now.
func (w *Worker) lose(a *attempt) {
	if a.lost.Swap(true) {
		return
	}
	w.reporter.drop(a)
	w.mu.Lock()
	delete(w.held, a.handle())
	cancel := a.cancel
	w.mu.Unlock()
	if cancel != nil {
		cancel(ErrLeaseLost)
	}
}

// stop asks an attempt to end because its run was cancelled. One that was not begun ends
// here.
func (w *Worker) stop(a *attempt) {
	w.mu.Lock()
	cancel := a.cancel
	for i, b := range w.buffer {
		if b == a {
			w.buffer = append(w.buffer[:i:i], w.buffer[i+1:]...)
			break
		}
	}
	w.mu.Unlock()
	if cancel != nil {
		cancel(ErrCancelled)
		return
	}
	w.end(a, a.failed(&servov1.Fail{Error: &servov1.Failure{Code: codeCancelled, Message: "cancelled before it began"}}))
}
