package worker

import (
	"context"
	"sync/atomic"
	"time"

	servov1 "go.arco.dev/servo/gen/servo/v1"
)

// attempt is one lease, from the response to its claim until its last report is answered.
type attempt struct {
	lease *servov1.Lease

	// since is the last time at which the worker certainly held the lease, by its own clock.
	since time.Time
	// expires is when the lease may expire without a heartbeat. Guarded by Worker.mu.
	expires time.Time

	ctx    context.Context
	cancel context.CancelCauseFunc
	lost   atomic.Bool // the server ignores its reports

	reports  reportQueue
	logs     logBuffer
	progress progressBox
	secrets  redactor
}

// reportQueue has the items of an attempt that the server has not answered. Guarded by the reporter's
// mutex.
type reportQueue struct {
	waiting  []item
	retained []item // were in a call, and must be sent again, first
	inCall   bool   // some of its items are in a call: the others wait, so that the order is kept
	queued   bool   // it is in the reporter's queue
	closed   bool   // its last item was added: none may follow
	tries    int    // of the retained items
	pause    time.Duration

	// startRefused is true if the server refused the start because of a cancel, so that it will
	// refuse the end that follows as well.
	startRefused bool
	replaced     bool // the last item was refused and replaced, which is done once
}

// item is one report of an attempt.
type item struct {
	*servov1.ReportItem

	size   int
	last   bool                       // ends the attempt
	alone  bool                       // no later item is sent before it is answered
	answer chan *servov1.ReportAnswer // for a waiting caller; buffered
}

func (a *attempt) handle() string { return a.lease.GetLease() }

// item returns an item for an action. Payload is its size without the frame.
func (a *attempt) item(action *servov1.ReportItem, payload int) item {
	action.Lease = a.handle()
	if a.secrets.active() {
		action = a.secrets.report(action)
		payload = sizeOf(action)
	}
	return item{ReportItem: action, size: len(action.GetLease()) + itemFrame + payload}
}

// itemFrame is an upper bound for the size of an item without its payload.
const itemFrame = 32

// started reports the start. Another instance may execute the attempt: then this report is refused,
// and the reports that follow it, which carry the same lease, must never reach the server.
func (a *attempt) started(instance string) item {
	it := a.item(&servov1.ReportItem{Action: &servov1.ReportItem_Start{Start: &servov1.Start{Instance: instance}}}, len(instance))
	it.alone = instance != ""
	return it
}

func (a *attempt) failed(fail *servov1.Fail) item {
	it := a.item(&servov1.ReportItem{Action: &servov1.ReportItem_Fail{Fail: fail}}, sizeOf(fail))
	it.last = true
	return it
}

func (a *attempt) yielded(cursor *string) item {
	yield := &servov1.Yield{Cursor: cursor}
	it := a.item(&servov1.ReportItem{Action: &servov1.ReportItem_Yield{Yield: yield}}, sizeOf(yield))
	it.last = true
	return it
}

func (a *attempt) completed(complete *servov1.Complete) item {
	payload := 0
	if complete.GetResult() != nil {
		payload = sizeOf(complete)
	}
	it := a.item(&servov1.ReportItem{Action: &servov1.ReportItem_Complete{Complete: complete}}, payload)
	it.last = true
	return it
}
