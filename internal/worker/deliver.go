package worker

import (
	"context"
	"time"

	"google.golang.org/grpc/codes"

	servov1 "go.arco.dev/servo/gen/servo/v1"
)

// How often a call or a single item is repeated after an internal error of the server, before the
// call is split or the item fails.
const (
	maxCallFaults = 3
	maxItemFaults = 10
)

// deliver sends a batch until it is answered, and repeats it while the outcome is unknown. A call
// that is refused as a whole is split, so that only the invalid item is refused.
func (r *reporter) deliver(ctx context.Context, batch []attemptItems) {
	wait := backoff{}
	faults := 0
	for {
		batch = r.dropLost(batch)
		if len(batch) == 0 {
			return
		}
		answers, err := r.call(ctx, batch)
		switch judge(err) {
		case delivered:
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
			return // the worker has stopped; left counts the items
		}
	}
}

// call makes one call. A wrong number of answers is an error of the server.
func (r *reporter) call(ctx context.Context, batch []attemptItems) ([]*servov1.ReportAnswer, error) {
	request := &servov1.ReportRequest{WorkerId: r.worker, Items: make([]*servov1.ReportItem, 0, count(batch))}
	for _, p := range batch {
		for _, it := range p.items {
			request.Items = append(request.Items, it.ReportItem)
		}
	}
	ctx, cancel := context.WithTimeout(ctx, reportPatience)
	defer cancel()
	response, err := r.client.Report(ctx, request)
	r.link.record("report", err)
	if err != nil {
		return nil, err
	}
	if len(response.GetAnswers()) != len(request.GetItems()) {
		return nil, errMiscounted
	}
	return response.GetAnswers(), nil
}

func count(batch []attemptItems) int {
	n := 0
	for _, p := range batch {
		n += len(p.items)
	}
	return n
}

// split halves a batch of several items, between attempts if there are several.
func split(batch []attemptItems) (first, second []attemptItems) {
	if len(batch) > 1 {
		middle := len(batch) / 2
		return batch[:middle], batch[middle:]
	}
	p := batch[0]
	middle := len(p.items) / 2
	return []attemptItems{{p.attempt, p.items[:middle]}}, []attemptItems{{p.attempt, p.items[middle:]}}
}

// dropLost drops the items of lost leases, and holds back the items of attempts that must repeat
// earlier ones first.
func (r *reporter) dropLost(batch []attemptItems) []attemptItems {
	var kept []attemptItems
	var dropped []item
	r.mu.Lock()
	for _, p := range batch {
		switch {
		case p.attempt.lost.Load():
			dropped = append(dropped, p.items...)
		case len(p.attempt.reports.retained) > 0:
			p.attempt.reports.retained = append(p.attempt.reports.retained, p.items...)
		default:
			kept = append(kept, p)
		}
	}
	freed := r.settled(dropped)
	r.mu.Unlock()
	closeAnswers(dropped)
	r.notify(freed)
	return kept
}

// settle passes each answer to its item. An item that the server could not process now is retained,
// with the later items of its attempt that were refused.
func (r *reporter) settle(batch []attemptItems, answers []*servov1.ReportAnswer) {
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
		r.notify(freed)
	}
}

// retain keeps an item for later if the server could not process it now.
func (r *reporter) retain(a *attempt, it item, problem *servov1.Problem) bool {
	if problem == nil {
		return false
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	box := &a.reports
	if len(box.retained) > 0 { // the refusal of later items may follow from it
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

// outcome is the known result of a call.
type outcome int

const (
	delivered outcome = iota
	unknown           // it may have been applied or not: repeat it
	refused           // the server will never accept it
	faulty            // the server failed, possibly because of the items
)

// judge returns what an error of a call means for its items.
func judge(err error) outcome {
	if err == nil {
		return delivered
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

// backoff waits longer after each attempt.
type backoff struct{ tries int }

// sleep waits for the next attempt, at least as long as requested; false if the context ended.
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
