package engine

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

// lane is a batcher: it groups the commands that wait into one transaction, at once when
// it is idle, and answers each on its own. It is bounded in length and by each caller's
// deadline.
type lane[C any] struct {
	name   string
	limits laneLimits
	log    *slog.Logger
	// apply runs a batch in one transaction. It sets the answer of each call; what it
	// returns is the trouble of the transaction as a whole. It is called again after
	// trouble, so it must answer anew and rely on each command's own idempotency.
	apply func(ctx context.Context, batch []*call[C]) error
	// settled is called after a batch that went through only after its database was away:
	// an earlier try may have been committed without anybody being told of it.
	settled func()

	mu      sync.Mutex
	arrived *sync.Cond
	queue   []*call[C]
	stopped bool
	workers sync.WaitGroup
	counts  laneCounts
}

type laneLimits struct {
	batch   int
	waiting int
	timeout time.Duration
}

// call is one command with its caller.
type call[C any] struct {
	ctx   context.Context //nolint:containedctx // the call is the request: it lives as long
	cmd   C
	err   error
	tried bool // a transaction with it was sent: it may have been committed
	more  bool // the next call was asked together with this one
	done  chan struct{}
}

func newLane[C any](name string, limits laneLimits, inFlight int, log *slog.Logger, apply func(context.Context, []*call[C]) error, settled func()) *lane[C] {
	l := &lane[C]{name: name, limits: limits, log: log, apply: apply, settled: settled}
	l.arrived = sync.NewCond(&l.mu)
	for range inFlight {
		l.workers.Go(l.work)
	}
	return l
}

// do puts a command into the lane and waits for its answer.
func (l *lane[C]) do(ctx context.Context, cmd C) error {
	return l.doAll(ctx, []C{cmd})[0]
}

// doAll puts commands into the lane together and waits for all answers. They are applied
// in their order, in one transaction if they fit into one, else one after the other.
func (l *lane[C]) doAll(ctx context.Context, cmds []C) []error {
	if _, hasDeadline := ctx.Deadline(); !hasDeadline {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, l.limits.timeout)
		defer cancel()
	}
	answers := make([]error, 0, len(cmds))
	for len(cmds) > 0 {
		n, weight := 0, 0
		for n < min(len(cmds), l.limits.batch) && weight <= maxWeight {
			weight += weightOf(cmds[n])
			n++
		}
		answers = append(answers, l.together(ctx, cmds[:n])...)
		cmds = cmds[n:]
	}
	return answers
}

// maxWeight bounds a batch of heavy commands: the first that goes beyond it is the last.
const maxWeight = 10_000

// weightOf is how many ordinary commands a command stands for.
func weightOf(cmd any) int {
	if heavy, ok := cmd.(interface{ weight() int }); ok {
		return heavy.weight()
	}
	return 1
}

// together puts what fits into one transaction into the lane and waits for the answers.
func (l *lane[C]) together(ctx context.Context, cmds []C) []error {
	calls := make([]*call[C], len(cmds))
	for i, cmd := range cmds {
		calls[i] = &call[C]{ctx: ctx, cmd: cmd, more: i < len(cmds)-1, done: make(chan struct{})}
	}
	answers := make([]error, len(cmds))
	if err := l.enqueue(calls); err != nil {
		for i := range answers {
			answers[i] = err
		}
		return answers
	}
	for i, c := range calls {
		select {
		case <-c.done:
			answers[i] = c.err
		case <-ctx.Done():
			answers[i] = l.gone(ctx)
		}
	}
	return answers
}

func (l *lane[C]) enqueue(calls []*call[C]) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.stopped {
		l.counts.refused.Add(int64(len(calls)))
		return fault.New(fault.Unavailable, "this server is stopping", fault.RetryAfter(time.Second), fault.Remedy("try another server"))
	}
	if len(l.queue)+len(calls) > l.limits.waiting {
		l.counts.refused.Add(int64(len(calls)))
		return fault.New(fault.Unavailable, "too many commands are waiting", fault.RetryAfter(time.Second),
			fault.Remedy("try again later"), fault.Value("lane", l.name), fault.Value("limit", l.limits.waiting))
	}
	l.queue = append(l.queue, calls...)
	l.arrived.Signal()
	return nil
}

// gone answers a caller whose time is over. Its command may still be applied.
func (l *lane[C]) gone(ctx context.Context) error {
	return fault.New(fault.Unavailable, "the deadline passed before the answer came", fault.RetryAfter(time.Second),
		fault.Remedy("repeat the same request: it is applied at most once"), fault.Cause(ctx.Err()))
}

func (l *lane[C]) stop() {
	l.mu.Lock()
	l.stopped = true
	l.arrived.Broadcast()
	l.mu.Unlock()
	l.workers.Wait()
}

func (l *lane[C]) work() {
	for {
		batch := l.next()
		if batch == nil {
			return
		}
		l.execute(batch)
	}
}

// next waits for commands and takes what is there, up to a batch; nil at the end.
func (l *lane[C]) next() []*call[C] {
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
		end := n // what was asked together stays together
		for ; end == n || l.queue[end-1].more; end++ {
			weight += weightOf(l.queue[end].cmd)
		}
		if n > 0 && end > l.limits.batch {
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

// Bounds of trying again.
const (
	maxCollisions = 20
	firstBackoff  = 2 * time.Millisecond
	maxBackoff    = time.Second
)

// execute applies a batch until it is committed, its callers' time is over, or the
// trouble is found to be in a command.
func (l *lane[C]) execute(batch []*call[C]) {
	backoff, uncertain := firstBackoff, false
	for collisions := 0; ; {
		if batch = l.alive(batch); len(batch) == 0 {
			return
		}
		err := l.attempt(batch)
		if err == nil {
			if uncertain {
				l.settled()
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
			l.log.Warn("database away, trying again", "lane", l.name, "commands", len(batch), "error", err)
		case store.Poisoned, store.Broken:
			l.bisect(batch, err)
			return
		}
		time.Sleep(time.Duration(rand.Int64N(int64(backoff)) + 1)) //nolint:gosec // a spread, not a secret
		backoff = min(2*backoff, maxBackoff)
	}
}

func (l *lane[C]) attempt(batch []*call[C]) error {
	// The batch has a deadline of its own: it serves callers with different ones.
	// It is tried again by execute, which knows whose time is over.
	ctx, cancel := context.WithTimeout(store.Once(context.Background()), l.limits.timeout)
	defer cancel()
	retry := false
	for _, c := range batch {
		c.err = nil
		retry = retry || c.tried
	}
	begun := time.Now()
	err := l.apply(ctx, batch)
	l.counts.attempted(time.Since(begun), err, len(batch), retry)
	for _, c := range batch {
		c.tried = true
	}
	return err
}

// alive leaves out the calls whose callers are gone.
func (l *lane[C]) alive(batch []*call[C]) []*call[C] {
	kept := batch[:0:len(batch)]
	for _, c := range batch {
		if c.ctx.Err() != nil {
			c.err = l.gone(c.ctx)
			close(c.done)
			continue
		}
		kept = append(kept, c)
	}
	return kept
}

// bisect halves a batch until the command that makes trouble stands alone, be it refused
// by the database or a mistake of ours: it must not be everybody's.
func (l *lane[C]) bisect(batch []*call[C], err error) {
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
	batch[0].err = fault.New(fault.InvalidArgument, "carries a value that cannot be stored", fault.Field("request"),
		fault.Remedy(`check texts for zero characters (\u0000) and numbers for their range`), fault.Cause(err))
	answer(batch)
}

func (l *lane[C]) fail(batch []*call[C], err error) {
	l.log.Error("batch failed", "lane", l.name, "commands", len(batch), "error", err)
	for _, c := range batch {
		c.err = err
	}
	answer(batch)
}

func answer[C any](batch []*call[C]) {
	for _, c := range batch {
		close(c.done)
	}
}
