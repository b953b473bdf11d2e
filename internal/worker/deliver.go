package worker

import (
	"context"
	"time"

	"google.golang.org/grpc/codes"

	servov1 "go.arco.dev/servo/gen/servo/v1"
)

// How often an error of the server's own is met with the same again before it is believed:
// of a whole call before the call is split, and of a single item.
const (
	maxCallFaults = 3
	maxItemFaults = 10
)

// deliver says a batch until it is answered, the same items again while the outcome is not
// known. A call that is refused as a whole is split, so that only the item that is to blame
// hears of it.
func (r *reporter) deliver(ctx context.Context, batch []parcel) {
	wait := backoff{}
	faults := 0
	for {
		batch = r.living(batch)
		if len(batch) == 0 {
			return
		}
		answers, err := r.call(ctx, batch)
		switch judge(err) {
		case heard:
			r.settle(batch, answers)
			return
		case faulty:
			if faults++; faults < maxCallFaults {
				break
			}
			fallthrough
		case refused:
			if count(batch) == 1 {
				r.settle(batch, []*servov1.ReportAnswer{{Error: problemOf(err)}})
				return
			}
			first, second := split(batch)
			r.deliver(ctx, first)
			r.deliver(ctx, second)
			return
		case unknown:
		}
		if !wait.sleep(ctx, r.link.pauseAfter(err)) {
			return // the worker is gone; whoever asks sees that items are left
		}
	}
}

// call makes one call. Wrong numbers of answers are the server's fault.
func (r *reporter) call(ctx context.Context, batch []parcel) ([]*servov1.ReportAnswer, error) {
	request := &servov1.ReportRequest{WorkerId: r.worker, Items: make([]*servov1.ReportItem, 0, count(batch))}
	for _, p := range batch {
		for _, it := range p.items {
			request.Items = append(request.Items, it.ReportItem)
		}
	}
	ctx, cancel := context.WithTimeout(ctx, reportPatience)
	defer cancel()
	response, err := r.client.Report(ctx, request)
	r.link.heard("report", err)
	if err != nil {
		return nil, err
	}
	if len(response.GetAnswers()) != len(request.GetItems()) {
		return nil, errMiscounted
	}
	return response.GetAnswers(), nil
}

func count(batch []parcel) int {
	n := 0
	for _, p := range batch {
		n += len(p.items)
	}
	return n
}

// split halves a batch of several items, between attempts if there are several.
func split(batch []parcel) (first, second []parcel) {
	if len(batch) > 1 {
		middle := len(batch) / 2
		return batch[:middle], batch[middle:]
	}
	p := batch[0]
	middle := len(p.items) / 2
	return []parcel{{p.attempt, p.items[:middle]}}, []parcel{{p.attempt, p.items[middle:]}}
}

// living leaves out what lost leases say, and keeps back the items of attempts that must
// say something else again first.
func (r *reporter) living(batch []parcel) []parcel {
	var kept []parcel
	var dropped []item
	r.mu.Lock()
	for _, p := range batch {
		switch {
		case p.attempt.lost.Load():
			dropped = append(dropped, p.items...)
		case len(p.attempt.outbox.retained) > 0:
			p.attempt.outbox.retained = append(p.attempt.outbox.retained, p.items...)
		default:
			kept = append(kept, p)
		}
	}
	freed := r.settled(dropped)
	r.mu.Unlock()
	giveUp(dropped)
	r.tell(freed)
	return kept
}

// settle gives each item its answer. An item that the server could not take now is
// retained, and with it what its attempt said after it and was refused.
func (r *reporter) settle(batch []parcel, answers []*servov1.ReportAnswer) {
	n := 0
	for _, p := range batch {
		done := p.items[:0:0]
		for _, it := range p.items {
			answer := answers[n]
			n++
			if r.retain(p.attempt, it, answer.GetError()) {
				continue
			}
			done = append(done, it)
			if it.answer != nil {
				it.answer <- answer
			}
			r.answered(p.attempt, it, answer)
		}
		r.mu.Lock()
		freed := r.settled(done)
		r.mu.Unlock()
		r.tell(freed)
	}
}

// retain keeps an item for later if the server said that it could not take it now.
func (r *reporter) retain(a *attempt, it item, problem *servov1.Problem) bool {
	if problem == nil {
		return false
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	box := &a.outbox
	if len(box.retained) > 0 { // what came after may be refused for its sake
		box.retained = append(box.retained, it)
		return true
	}
	switch problem.GetCode() {
	case problemUnavailable:
	case problemInternal:
		if box.tries >= maxItemFaults {
			return false
		}
	default:
		return false
	}
	box.retained = append(box.retained, it)
	box.pause = max(pauseOf(box.tries), problem.GetRetryAfter().AsDuration())
	box.tries++
	return true
}

// outcome is what is known about a call.
type outcome int

const (
	heard   outcome = iota
	unknown         // it may have been applied or not: say the same again
	refused         // it can never be taken as it is
	faulty          // the server failed: perhaps because of what was said
)

// judge says what an error of a call means for what was said in it.
func judge(err error) outcome {
	if err == nil {
		return heard
	}
	switch codeOf(err) { //nolint:exhaustive // the rest is unknown
	case codes.InvalidArgument, codes.ResourceExhausted, codes.OutOfRange, codes.NotFound, codes.FailedPrecondition,
		codes.Aborted, codes.AlreadyExists:
		return refused
	case codes.Internal, codes.DataLoss:
		return faulty
	}
	return unknown
}

// backoff waits longer from time to time.
type backoff struct{ tries int }

// sleep waits for the next try, at least as long as asked; false if the context ended.
func (b *backoff) sleep(ctx context.Context, atLeast time.Duration) bool {
	pause := max(pauseOf(b.tries), atLeast)
	b.tries++
	timer := time.NewTimer(pause)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}
