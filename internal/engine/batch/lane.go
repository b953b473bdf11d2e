package batch

import (
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"sync"
	"time"

	"go.arco.dev/servo/internal/base/fault"
	"go.arco.dev/servo/internal/store"
)

// Lane groups the requests that wait into one transaction and answers each on its own. An idle lane
// begins a transaction at once. The queue is bounded in length, and each wait by its caller's
// deadline.
type Lane[Q, A any] struct {
	name    string
	options Options[Q, A]
	log     *slog.Logger

	mu      sync.Mutex
	arrived *sync.Cond
	queue   []*Call[Q, A]
	stopped bool
	workers sync.WaitGroup
	counts  counts
}

// Limits bound a lane.
type Limits struct {
	Batch    int           // requests in one transaction
	Waiting  int           // requests in the queue
	InFlight int           // transactions at the same time
	Timeout  time.Duration // of a transaction, and of a caller without a deadline
}

// Options define what a lane does.
type Options[Q, A any] struct {
	Limits

	// Apply runs a batch in one transaction. It sets the answer or the error of each call; it
	// returns an error if the transaction failed. The lane calls it again after such an error, so it
	// must set every answer again and rely on the idempotency of each request.
	Apply func(ctx context.Context, calls []*Call[Q, A]) error
	// Weight is how many ordinary requests a request counts for; nil counts each as one.
	Weight func(Q) int
	// Recovered is called after a batch that was committed only after the database had been
	// unreachable: an earlier try may have been committed without a signal. Nil does nothing.
	Recovered func()
}

// Call is one request with its answer.
type Call[Q, A any] struct {
	Request Q
	Answer  A
	Err     error // refuses this request; the others of the batch are not affected

	ctx   context.Context //nolint:containedctx // the call is the request: it lives as long
	tried bool            // a transaction with it was sent: it may have been committed
	more  bool            // the next call came together with this one
	done  chan struct{}
}

// New starts a lane. Stop it when done.
func New[Q, A any](name string, options Options[Q, A], log *slog.Logger) *Lane[Q, A] {
	l := &Lane[Q, A]{name: name, options: options, log: log}
	l.arrived = sync.NewCond(&l.mu)
	for range options.InFlight {
		l.workers.Go(l.work)
	}
	return l
}

// Do applies a request and returns its answer.
func (l *Lane[Q, A]) Do(ctx context.Context, request Q) (A, error) {
	answers, errs := l.DoAll(ctx, []Q{request})
	return answers[0], errs[0]
}

// DoAll applies requests and returns an answer or an error for each. They are applied in their order,
// in one transaction if they fit into one.
func (l *Lane[Q, A]) DoAll(ctx context.Context, requests []Q) ([]A, []error) {
	if _, hasDeadline := ctx.Deadline(); !hasDeadline {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, l.options.Timeout)
		defer cancel()
	}
	answers, errs := make([]A, len(requests)), make([]error, len(requests))
	for from := 0; from < len(requests); {
		n, weight := from, 0
		for n < min(len(requests), from+l.options.Batch) && weight <= maxWeight {
			weight += l.weight(requests[n])
			n++
		}
		l.together(ctx, requests[from:n], answers[from:n], errs[from:n])
		from = n
	}
	return answers, errs
}

// maxWeight bounds a batch of heavy requests: the first that exceeds it is the last.
const maxWeight = 10_000

func (l *Lane[Q, A]) weight(request Q) int {
	if l.options.Weight == nil {
		return 1
	}
	return l.options.Weight(request)
}

// together puts requests that fit into one transaction into the queue, and waits for their answers.
func (l *Lane[Q, A]) together(ctx context.Context, requests []Q, answers []A, errs []error) {
	calls := make([]*Call[Q, A], len(requests))
	for i, request := range requests {
		calls[i] = &Call[Q, A]{ctx: ctx, Request: request, more: i < len(requests)-1, done: make(chan struct{})}
	}
	if err := l.enqueue(calls); err != nil {
		for i := range errs {
			errs[i] = err
		}
		return
	}
	for i, c := range calls {
		select {
		case <-c.done:
			if errs[i] = c.Err; c.Err == nil {
				answers[i] = c.Answer
			}
		case <-ctx.Done():
			errs[i] = deadlinePassed(ctx)
		}
	}
}

func (l *Lane[Q, A]) enqueue(calls []*Call[Q, A]) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.stopped {
		l.counts.refused.Add(int64(len(calls)))
		return fault.New(fault.Unavailable, "this server is stopping", fault.RetryAfter(time.Second), fault.Remedy("try another server"))
	}
	if len(l.queue)+len(calls) > l.options.Waiting {
		l.counts.refused.Add(int64(len(calls)))
		return fault.New(fault.Unavailable, "too many commands are waiting", fault.RetryAfter(time.Second),
			fault.Remedy("try again later"), fault.Value("lane", l.name), fault.Value("limit", l.options.Waiting))
	}
	l.queue = append(l.queue, calls...)
	l.arrived.Signal()
	return nil
}

// deadlinePassed answers a caller whose deadline has passed. Its request may still be applied.
func deadlinePassed(ctx context.Context) error {
	return fault.New(fault.Unavailable, "the deadline passed before the answer came", fault.RetryAfter(time.Second),
		fault.Remedy("repeat the same request: it is applied at most once"), fault.Cause(ctx.Err()))
}

// Stop finishes the accepted requests and refuses later ones.
func (l *Lane[Q, A]) Stop() {
	l.mu.Lock()
	l.stopped = true
	l.arrived.Broadcast()
	l.mu.Unlock()
	l.workers.Wait()
}

func (l *Lane[Q, A]) work() {
	for {
		batch := l.next()
		if batch == nil {
			return
		}
		l.execute(batch)
	}
}

// next waits for requests and takes up to a batch from the queue; nil once the lane has stopped.
func (l *Lane[Q, A]) next() []*Call[Q, A] {
	l.mu.Lock()
	defer l.mu.Unlock()
	for len(l.queue) == 0 {
		if l.stopped {
			return nil
		}
		l.arrived.Wait()
	}
	n := 0
	for weight := 0; n < len(l.queue) && weight <= maxWeight; {
		end := n // requests that came together stay together
		for ; end == n || l.queue[end-1].more; end++ {
			weight += l.weight(l.queue[end].Request)
		}
		if n > 0 && end > l.options.Batch {
			break
		}
		n = end
	}
	batch := l.queue[:n:n]
	l.queue = l.queue[n:]
	if len(l.queue) > 0 {
		l.arrived.Signal()
	}
	return batch
}

// Bounds of repeated tries.
const (
	maxCollisions = 20
	firstBackoff  = 2 * time.Millisecond
	maxBackoff    = time.Second
)

// execute applies a batch until it is committed, all deadlines have passed, or the error is traced to
// one request.
func (l *Lane[Q, A]) execute(batch []*Call[Q, A]) {
	backoff, uncertain := firstBackoff, false
	for collisions := 0; ; {
		if batch = alive(batch); len(batch) == 0 {
			return
		}
		err := l.attempt(batch)
		if err == nil {
			if uncertain && l.options.Recovered != nil {
				l.options.Recovered()
			}
			answer(batch)
			return
		}
		switch store.Diagnose(err) {
		case store.Collided:
			if collisions++; collisions > maxCollisions {
				l.fail(batch, err)
				return
			}
		case store.Away:
			uncertain = true
			l.log.Warn("database unreachable, trying again", "lane", l.name, "commands", len(batch), "error", err)
		case store.Poisoned, store.Broken:
			l.bisect(batch, err)
			return
		}
		time.Sleep(time.Duration(rand.Int64N(int64(backoff)) + 1)) //nolint:gosec // a spread, not a secret
		backoff = min(2*backoff, maxBackoff)
	}
}

func (l *Lane[Q, A]) attempt(batch []*Call[Q, A]) error {
	// The batch has its own deadline, since its callers have different ones. The store does not
	// repeat the transaction: execute does, and drops callers whose deadline has passed.
	ctx, cancel := context.WithTimeout(store.Once(context.Background()), l.options.Timeout)
	defer cancel()
	retry := false
	var none A
	for _, c := range batch {
		c.Answer, c.Err = none, nil
		retry = retry || c.tried
	}
	begun := time.Now()
	err := l.options.Apply(ctx, batch)
	l.counts.attempted(time.Since(begun), err, len(batch), retry)
	for _, c := range batch {
		c.tried = true
	}
	return err
}

// alive answers the calls whose deadline has passed, and returns the others.
func alive[Q, A any](batch []*Call[Q, A]) []*Call[Q, A] {
	kept := batch[:0:len(batch)]
	for _, c := range batch {
		if c.ctx.Err() != nil {
			c.Err = deadlinePassed(c.ctx)
			close(c.done)
			continue
		}
		kept = append(kept, c)
	}
	return kept
}

// bisect halves a batch until the failing request is alone, so that its error, a refusal by the
// database or a defect of Servo, fails no other request.
func (l *Lane[Q, A]) bisect(batch []*Call[Q, A], err error) {
	if len(batch) > 1 {
		half := len(batch) / 2
		l.execute(batch[:half:half])
		l.execute(batch[half:])
		return
	}
	if _, ours := errors.AsType[*store.MismatchError](err); ours || store.Diagnose(err) == store.Broken {
		l.fail(batch, err)
		return
	}
	batch[0].Err = fault.New(fault.InvalidArgument, "carries a value that cannot be stored", fault.Field("request"),
		fault.Remedy(`check texts for zero characters (\u0000) and numbers for their range`), fault.Cause(err))
	answer(batch)
}

func (l *Lane[Q, A]) fail(batch []*Call[Q, A], err error) {
	l.log.Error("batch failed", "lane", l.name, "commands", len(batch), "error", err)
	for _, c := range batch {
		c.Err = err
	}
	answer(batch)
}

func answer[Q, A any](batch []*Call[Q, A]) {
	for _, c := range batch {
		close(c.done)
	}
}
