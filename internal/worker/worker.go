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

// Worker claims tasks and executes them until it is stopped.
type Worker struct {
	options   Options
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

	// base is the parent of the tasks' contexts: it outlives the context of Run, because tasks may
	// continue for a while when the worker stops.
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

// New returns a worker; Run runs it.
func New(options Options) (*Worker, error) {
	options = options.withDefaults()
	if err := options.validate(); err != nil {
		return nil, err
	}
	w := &Worker{
		options:   options,
		client:    servov1.NewWorkerServiceClient(options.Conn),
		tasks:     servov1.NewTaskServiceClient(options.Conn),
		executors: map[string]Executor{},
		link:      &link{conn: options.Conn, log: options.Logger},
		abort:     make(chan struct{}),
		denied:    make(chan struct{}),
		held:      map[string]*attempt{},
		running:   map[*attempt]struct{}{},
		idle:      make(chan struct{}),
		room:      make(chan struct{}, 1),
		claims:    newClaimIDs(),
	}
	w.lease.Store(int64(cmp.Or(options.Lease, defaultLease)))
	for _, e := range options.Executors {
		w.executors[e.Kind()] = e
	}
	w.reporter = newReporter(w)
	w.flusher = &flusher{every: options.FlushEvery, flush: w.flush}
	return w, nil
}

// Run works until the context is done, then stops: it claims no more, returns leases that it has not
// started, lets the tasks continue for the grace, interrupts the rest, and returns when everything
// was reported. It can be called once.
func (w *Worker) Run(ctx context.Context) error {
	if w.used.Swap(true) {
		return fault.New(fault.Conflict, "the worker was already run", fault.Remedy("create a new worker"))
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

	w.options.Logger.Info("working", "worker", w.options.ID, "pools", w.options.Pools, "capacity", w.options.Concurrency)
	select {
	case <-ctx.Done():
	case <-w.abort:
	case <-w.denied:
		w.options.Logger.Error("the server refused this worker", "worker", w.options.ID, "error", w.denial)
		w.Abort() // the server would not accept reports of its tasks
	}
	stopClaims()
	w.drain(&claiming)
	left := w.awaitReports()
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
			fault.Remedy("the tasks are retried when their leases expire"), fault.Value("reports", left))
	}
	w.options.Logger.Info("stopped", "worker", w.options.ID)
	return nil
}

// deny stops the worker because the server refuses its key, or does not permit its pools. Retrying
// would not help: the key must be changed.
func (w *Worker) deny(err error) {
	w.denying.Do(func() {
		p := problemOf(err)
		code, remedy := fault.Unauthenticated, "use a key with the role worker and all its pools: servo keys create NAME --platform --role worker --pool POOL"
		if codeOf(err) == codes.PermissionDenied {
			code = fault.Forbidden
		}
		if p.GetRemedy() != "" {
			remedy = p.GetRemedy()
		}
		w.denial = fault.New(code, "the server refused the worker's key: "+p.GetMessage(), fault.Remedy(remedy), fault.Cause(err))
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

// isDenied reports whether the server refuses the caller's credentials.
func isDenied(err error) bool {
	code := codeOf(err)
	return code == codes.Unauthenticated || code == codes.PermissionDenied
}

// Abort makes Run return immediately: tasks are interrupted without grace.
func (w *Worker) Abort() { w.once.Do(func() { close(w.abort) }) }

// drain lets the tasks end, then interrupts them, then abandons those that ignore their context.
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
	w.options.Logger.Info("stopping", "running", running, "given_back", len(buffered), "grace", w.options.Grace)
	for _, a := range buffered {
		w.returnLease(a)
	}
	if !w.await(w.idle, w.options.Grace) {
		w.interrupt(ErrInterrupted)
		if !w.await(w.idle, stopGrace) {
			waitBriefly(w.idle) // even without grace, processes should end before the worker
		}
	}
	// Leases that a claim has got while it was being stopped are returned too.
	claimed := make(chan struct{})
	go func() {
		defer close(claimed)
		claiming.Wait()
	}()
	w.await(claimed, claimGrace)

	for _, a := range w.stillRunning() {
		w.options.Logger.Warn("a task ignores its context and is abandoned", "task", a.lease.GetTask(), "asset", a.lease.GetAsset())
		w.end(a, a.failed(interrupted("the worker stopped, and the task did not end in time")))
	}
}

func (w *Worker) stillRunning() []*attempt {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Collect(maps.Keys(w.running))
}

// await waits for a channel for at most a time, and not at all when the worker is aborted.
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
	// select chooses randomly if the channel and the timer are ready together.
	select {
	case <-done:
		return true
	default:
		return false
	}
}

// awaitReports waits until all reports are answered, and returns how many are not.
func (w *Worker) awaitReports() int {
	flushed := w.reporter.flushed()
	if !w.await(flushed, flushGrace) {
		waitBriefly(flushed)
	}
	return w.reporter.left()
}

// waitBriefly waits briefly, even when the worker is aborted.
func waitBriefly(done <-chan struct{}) {
	timer := time.NewTimer(abortGrace)
	defer timer.Stop()
	select {
	case <-done:
	case <-timer.C:
	}
}

// accept takes the leases of a claim: up to its capacity they start, the rest is buffered. Leases that
// it must not keep, or that come too late, are returned.
func (w *Worker) accept(leases []*servov1.Lease, since time.Time, keep bool) {
	var begin, back []*attempt
	w.mu.Lock()
	w.claims.settle()
	for _, lease := range leases {
		if _, twice := w.held[lease.GetLease()]; twice {
			continue // a repeated claim may return leases of an earlier response
		}
		a := &attempt{lease: lease, since: since, expires: since.Add(w.leaseTime())}
		w.held[a.handle()] = a
		switch {
		case w.stopping || !keep:
			back = append(back, a)
		case len(w.buffer) == 0 && len(w.running) < w.options.Concurrency || lease.GetStarted():
			w.occupy(a)
			begin = append(begin, a)
		default:
			w.buffer = append(w.buffer, a)
		}
	}
	w.mu.Unlock()
	for _, a := range begin {
		go w.work(a)
	}
	for _, a := range back {
		w.returnLease(a)
	}
}

// occupy counts an attempt as running, under the lock.
func (w *Worker) occupy(a *attempt) {
	a.ctx, a.cancel = context.WithCancelCause(w.base)
	w.running[a] = struct{}{}
}

// next ends an attempt and returns a buffered one to run in its place, if there is one whose lease
// certainly has not expired.
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
			// The server may have leased it to another worker. Started or not, it is safe to leave
			// it alone.
			w.options.Logger.Warn("a lease has expired before capacity was free", "task", a.lease.GetTask())
			a.lost.Store(true)
			delete(w.held, a.handle())
		default:
			w.occupy(a)
			return a
		}
	}
	return nil
}

// margin is how close to its expiry a lease is not started any more.
func margin(lease time.Duration) time.Duration { return min(lease/10, 5*time.Second) }

// returnLease returns a lease that was not started. An instance starts it first: if another instance
// executes the task, the start is refused and the lease stays with that one.
func (w *Worker) returnLease(a *attempt) {
	if w.options.Instance != "" {
		w.reporter.report(a, a.started(w.options.Instance))
	}
	w.end(a, a.failed(interrupted("the worker stopped before it started the task")))
}

func interrupted(message string) *servov1.Fail {
	return &servov1.Fail{Error: &servov1.Failure{Code: codeInterrupted, Message: message}}
}

// end reports the end of an attempt, with its remaining log lines and progress.
func (w *Worker) end(a *attempt, last item) {
	items := append(a.logs.rest(a), a.progress.rest(a)...)
	w.reporter.report(a, append(items, last)...) // if it accepts no more items, its end was reported before
}

// forget removes a lease.
func (w *Worker) forget(a *attempt) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.held, a.handle())
}

// lose ends an attempt whose lease is lost.
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

// stop makes an attempt end because its run was cancelled. An attempt that was not started ends here.
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
	w.end(a, a.failed(&servov1.Fail{Error: &servov1.Failure{Code: codeCancelled, Message: "cancelled before it started"}}))
}
