package worker

import (
	"context"
	"sync/atomic"
	"time"

	servov1 "go.arco.dev/servo/gen/servo/v1"
)

// attempt is one lease, from the answer of its claim to the answer of its last report.
type attempt struct {
	lease *servov1.Lease

	// since is when the lease was surely held by us, by our own clock.
	since time.Time
	// expires is when it may be over if no heartbeat renews it. Guarded by Worker.mu.
	expires time.Time

	ctx    context.Context
	cancel context.CancelCauseFunc
	lost   atomic.Bool // nothing that it still says counts

	outbox   outbox
	logs     logBuffer
	progress progressBox
}

// outbox is what an attempt has to say and has not been answered. It is the reporter's, and
// guarded by its mutex.
type outbox struct {
	waiting  []item
	retained []item // were in the call, and must be said again, first
	inCall   bool   // some of its items are in a call: the others wait, so that order holds
	queued   bool   // it stands in the reporter's queue
	closed   bool   // its last item was said: nothing comes after it
	tries    int    // of the retained items
	pause    time.Duration

	// startRefused remembers that the server refused the start because of a cancel, so the
	// end that follows will be refused as well.
	startRefused bool
	mended       bool // the last item was refused and replaced, which is done once
}

// item is one thing that an attempt says.
type item struct {
	*servov1.ReportItem

	size   int
	last   bool                       // ends the attempt
	alone  bool                       // nothing that follows is sent before it is answered
	answer chan *servov1.ReportAnswer // for who waits; buffered
}

func (a *attempt) handle() string { return a.lease.GetLease() }

// item makes an item of what happened. Payload is its size beyond the frame.
func (a *attempt) item(action *servov1.ReportItem, payload int) item {
	action.Lease = a.handle()
	return item{ReportItem: action, size: len(action.GetLease()) + itemFrame + payload}
}

// itemFrame is a generous size of what stands around an item's payload.
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
