package worker

import (
	"sync"
	"time"

	"google.golang.org/protobuf/proto"

	servov1 "go.arco.dev/servo/gen/servo/v1"
)

// progressEvery is the minimum interval between two progress reports of an attempt.
const progressEvery = time.Second

// progressBox holds the latest progress of an attempt until it is sent.
type progressBox struct {
	mu     sync.Mutex
	latest *servov1.Progress // nil if it was sent
	sent   *servov1.Progress
	sentAt time.Time
}

// update stores the latest progress and sends it, immediately if none was sent for a while.
func (b *progressBox) update(w *Worker, a *attempt, p *servov1.Progress) {
	b.mu.Lock()
	b.latest = p
	b.mu.Unlock()
	b.send(w, a)
}

// send sends the latest progress if the interval has passed, else later.
func (b *progressBox) send(w *Worker, a *attempt) {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case b.latest == nil:
	case proto.Equal(b.latest, b.sent):
		b.latest = nil
	case !b.sentAt.IsZero() && time.Since(b.sentAt) < progressEvery:
		w.flusher.mark(a)
	default:
		w.reporter.report(a, b.item(a))
	}
}

// rest returns the unsent progress, for the end of the attempt.
func (b *progressBox) rest(a *attempt) []item {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.latest == nil || proto.Equal(b.latest, b.sent) {
		return nil
	}
	return []item{b.item(a)}
}

func (b *progressBox) item(a *attempt) item {
	b.sent, b.latest, b.sentAt = b.latest, nil, time.Now()
	return a.item(&servov1.ReportItem{Action: &servov1.ReportItem_Progress{Progress: b.sent}}, sizeOf(b.sent))
}
