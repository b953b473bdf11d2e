package worker

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"google.golang.org/protobuf/proto"

	servov1 "go.arco.dev/servo/gen/servo/v1"
)

// The limits of a report. The server accepts 4 MiB.
const (
	maxReportItems = 1000
	maxReportBytes = 3 << 20
	senders        = 2

	// maxBacklog is how many bytes of reports may be pending before the worker claims no more tasks.
	maxBacklog = 64 << 20
)

func sizeOf(m proto.Message) int { return proto.Size(m) }

// reporter sends the reports of attempts: immediately when it is idle, in batches when it is not.
// Items of one attempt are sent in their order, and never in two calls at once.
type reporter struct {
	client servov1.WorkerServiceClient
	worker string
	log    *slog.Logger
	link   *link

	// answered is called with the answer to each item, outside of the lock.
	answered func(a *attempt, it item, answer *servov1.ReportAnswer)
	// relieved is called when the backlog has become small again.
	relieved func()
	full     int // the number of pending items above which the worker claims no more; see also maxBacklog

	mu      sync.Mutex
	work    sync.Cond
	queue   []*attempt
	head    int // of the queue
	items   int // waiting, retained or in calls
	bytes   int // of these
	crowded bool
	stopped bool
	empty   []chan struct{} // closed when no item is left
}

func newReporter(w *Worker) *reporter {
	r := &reporter{
		client: w.client, worker: w.options.ID, log: w.options.Logger, link: w.link,
		answered: w.answered, relieved: w.wakeClaims, full: max(2*maxReportItems, 4*w.options.Concurrency),
	}
	r.work.L = &r.mu
	return r
}

// attemptItems has the items of one attempt in one call.
type attemptItems struct {
	attempt *attempt
	items   []item
}

// report adds items of an attempt. After its last item it accepts no more.
func (r *reporter) report(a *attempt, items ...item) (taken bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if a.reports.closed || a.lost.Load() {
		return false
	}
	r.add(a, items...)
	return true
}

// replaceLast replaces an attempt's last item, which was refused.
func (r *reporter) replaceLast(a *attempt, it item) {
	r.mu.Lock()
	defer r.mu.Unlock()
	a.reports.replaced = true
	r.add(a, it)
}

// add is report under the lock.
func (r *reporter) add(a *attempt, items ...item) {
	a.reports.waiting = append(a.reports.waiting, items...)
	a.reports.closed = a.reports.closed || items[len(items)-1].last
	r.items += len(items)
	r.bytes += bytesOf(items)
	r.crowded = r.crowded || r.items >= r.full || r.bytes >= maxBacklog
	r.enqueue(a)
}

// enqueue adds an attempt with waiting items to the queue, unless it is in a call or pauses.
func (r *reporter) enqueue(a *attempt) {
	if a.reports.queued || a.reports.inCall || a.reports.pause > 0 || len(a.reports.waiting) == 0 {
		return
	}
	a.reports.queued = true
	r.queue = append(r.queue, a)
	r.work.Signal()
}

// overloaded reports whether the backlog is so large that the worker should claim no more tasks.
func (r *reporter) overloaded() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.crowded
}

// drop discards the items of an attempt.
func (r *reporter) drop(a *attempt) {
	r.mu.Lock()
	dropped := a.reports.waiting
	a.reports.waiting, a.reports.closed = nil, true
	freed := r.settled(dropped)
	r.mu.Unlock()
	closeAnswers(dropped)
	r.notify(freed)
}

// closeAnswers wakes the callers that wait for answers to dropped items.
func closeAnswers(items []item) {
	for _, it := range items {
		if it.answer != nil {
			close(it.answer)
		}
	}
}

// settled removes items from the counts, under the lock. The caller must call notify afterwards.
func (r *reporter) settled(items []item) (freed bool) {
	r.items -= len(items)
	r.bytes -= bytesOf(items)
	if r.items == 0 {
		for _, ch := range r.empty {
			close(ch)
		}
		r.empty = nil
	}
	if r.crowded && r.items <= r.full/2 && r.bytes <= maxBacklog/2 {
		r.crowded = false
		return true
	}
	return false
}

func bytesOf(items []item) int {
	n := 0
	for _, it := range items {
		n += it.size
	}
	return n
}

func (r *reporter) notify(freed bool) {
	if freed {
		r.relieved()
	}
}

// flushed returns a channel that is closed once all items are answered.
func (r *reporter) flushed() <-chan struct{} {
	r.mu.Lock()
	defer r.mu.Unlock()
	done := make(chan struct{})
	if r.items == 0 {
		close(done)
	} else {
		r.empty = append(r.empty, done)
	}
	return done
}

// left returns how many items are not answered.
func (r *reporter) left() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.items
}

// stop ends the senders once their calls have ended.
func (r *reporter) stop() {
	r.mu.Lock()
	r.stopped = true
	r.work.Broadcast()
	r.mu.Unlock()
}

// send is one sender: it takes a batch, delivers it, and repeats.
func (r *reporter) send(ctx context.Context) {
	for {
		batch := r.take()
		if batch == nil {
			return
		}
		r.deliver(ctx, batch)
		r.release(batch)
	}
}

// take waits for items and returns as many as fit into one call; nil at the end.
func (r *reporter) take() []attemptItems {
	r.mu.Lock()
	defer r.mu.Unlock()
	for r.head == len(r.queue) && !r.stopped {
		r.work.Wait()
	}
	if r.stopped {
		return nil
	}
	var batch []attemptItems
	count, size := 0, 0
	for r.head < len(r.queue) && count < maxReportItems {
		a := r.queue[r.head]
		n := 0
		for n < len(a.reports.waiting) && count < maxReportItems && (count == 0 || size+a.reports.waiting[n].size <= maxReportBytes) {
			size += a.reports.waiting[n].size
			n++
			count++
			if a.reports.waiting[n-1].alone {
				break
			}
		}
		if n == 0 && len(a.reports.waiting) > 0 {
			break // for the next call
		}
		r.queue[r.head] = nil
		r.head++
		a.reports.queued = false
		if n == 0 {
			continue // dropped in the meantime
		}
		a.reports.inCall = true
		batch = append(batch, attemptItems{attempt: a, items: a.reports.waiting[:n:n]})
		if a.reports.waiting = a.reports.waiting[n:]; len(a.reports.waiting) == 0 {
			a.reports.waiting = nil
		}
	}
	if r.head == len(r.queue) {
		r.queue, r.head = r.queue[:0], 0
	}
	if batch == nil {
		return []attemptItems{} // all waiting items were dropped
	}
	return batch
}

// release allows the attempts of a call to send again; those with items to repeat after a pause.
func (r *reporter) release(batch []attemptItems) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, p := range batch {
		box := &p.attempt.reports
		box.inCall = false
		if len(box.retained) == 0 {
			box.tries = 0
			r.enqueue(p.attempt)
			continue
		}
		box.waiting, box.retained = append(box.retained, box.waiting...), nil
		box.pause = max(box.pause, time.Millisecond)
		a := p.attempt
		time.AfterFunc(box.pause, func() {
			r.mu.Lock()
			defer r.mu.Unlock()
			a.reports.pause = 0
			r.enqueue(a)
		})
	}
}
