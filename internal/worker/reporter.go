package worker

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"google.golang.org/protobuf/proto"

	servov1 "go.arco.dev/servo/gen/servo/v1"
)

// The limits of a report. The server reads 4 MiB.
const (
	maxReportItems = 1000
	maxReportBytes = 3 << 20
	senders        = 2

	// maxBacklog is how many bytes may wait to be said before no more work is taken on.
	maxBacklog = 64 << 20
)

func sizeOf(m proto.Message) int { return proto.Size(m) }

// reporter says what attempts have to say: at once when it is idle, together with what has
// come in the meantime when it is not. Items of one attempt are said in their order, and
// are never in two calls at once.
type reporter struct {
	client servov1.WorkerServiceClient
	worker string
	log    *slog.Logger
	link   *link

	// answered hears the answer of each item, outside of the lock.
	answered func(a *attempt, it item, answer *servov1.ReportAnswer)
	// relieved is called when what waits has become little again.
	relieved func()
	full     int // how many items are too many to take on more work; see also maxBacklog

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
		client: w.client, worker: w.config.ID, log: w.config.Logger, link: w.link,
		answered: w.answered, relieved: w.wakeClaims, full: max(2*maxReportItems, 4*w.config.Concurrency),
	}
	r.work.L = &r.mu
	return r
}

// parcel is what one attempt says in one call.
type parcel struct {
	attempt *attempt
	items   []item
}

// say adds items to what an attempt says. After its last item nothing is taken any more.
func (r *reporter) say(a *attempt, items ...item) (taken bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if a.outbox.closed || a.lost.Load() {
		return false
	}
	r.add(a, items...)
	return true
}

// mend replaces an attempt's last item, which was refused.
func (r *reporter) mend(a *attempt, it item) {
	r.mu.Lock()
	defer r.mu.Unlock()
	a.outbox.mended = true
	r.add(a, it)
}

// add is say under the lock.
func (r *reporter) add(a *attempt, items ...item) {
	a.outbox.waiting = append(a.outbox.waiting, items...)
	a.outbox.closed = a.outbox.closed || items[len(items)-1].last
	r.items += len(items)
	r.bytes += bytesOf(items)
	r.crowded = r.crowded || r.items >= r.full || r.bytes >= maxBacklog
	r.enqueue(a)
}

// enqueue puts an attempt that has something to say into the queue, if it may speak.
func (r *reporter) enqueue(a *attempt) {
	if a.outbox.queued || a.outbox.inCall || a.outbox.pause > 0 || len(a.outbox.waiting) == 0 {
		return
	}
	a.outbox.queued = true
	r.queue = append(r.queue, a)
	r.work.Signal()
}

// overloaded reports whether so much waits to be said that more work should not be taken on.
func (r *reporter) overloaded() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.crowded
}

// drop forgets what an attempt has to say.
func (r *reporter) drop(a *attempt) {
	r.mu.Lock()
	dropped := a.outbox.waiting
	a.outbox.waiting, a.outbox.closed = nil, true
	freed := r.settled(dropped)
	r.mu.Unlock()
	giveUp(dropped)
	r.tell(freed)
}

// giveUp answers those who wait for items that nobody will answer.
func giveUp(items []item) {
	for _, it := range items {
		if it.answer != nil {
			close(it.answer)
		}
	}
}

// settled counts items that are over, under the lock. The caller tells about it after.
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

func (r *reporter) tell(freed bool) {
	if freed {
		r.relieved()
	}
}

// flushed is closed once everything is said and answered.
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

// left is how many items are not answered.
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

// send is one sender: it takes what waits, says it until it is answered, and again.
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

// take waits for something to say and takes as much as one call holds; nil at the end.
func (r *reporter) take() []parcel {
	r.mu.Lock()
	defer r.mu.Unlock()
	for r.head == len(r.queue) && !r.stopped {
		r.work.Wait()
	}
	if r.stopped {
		return nil
	}
	var batch []parcel
	count, size := 0, 0
	for r.head < len(r.queue) && count < maxReportItems {
		a := r.queue[r.head]
		n := 0
		for n < len(a.outbox.waiting) && count < maxReportItems && (count == 0 || size+a.outbox.waiting[n].size <= maxReportBytes) {
			size += a.outbox.waiting[n].size
			n++
			count++
			if a.outbox.waiting[n-1].alone {
				break
			}
		}
		if n == 0 && len(a.outbox.waiting) > 0 {
			break // it is for the next call
		}
		r.queue[r.head] = nil
		r.head++
		a.outbox.queued = false
		if n == 0 {
			continue // dropped in the meantime
		}
		a.outbox.inCall = true
		batch = append(batch, parcel{attempt: a, items: a.outbox.waiting[:n:n]})
		if a.outbox.waiting = a.outbox.waiting[n:]; len(a.outbox.waiting) == 0 {
			a.outbox.waiting = nil
		}
	}
	if r.head == len(r.queue) {
		r.queue, r.head = r.queue[:0], 0
	}
	if batch == nil {
		return []parcel{} // all that waited was dropped
	}
	return batch
}

// release lets the attempts of a call speak again; those with items to repeat after a pause.
func (r *reporter) release(batch []parcel) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, p := range batch {
		box := &p.attempt.outbox
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
			a.outbox.pause = 0
			r.enqueue(a)
		})
	}
}
