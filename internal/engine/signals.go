package engine

import (
	"sync"
	"sync/atomic"

	"go.arco.dev/servo/internal/id"
	"go.arco.dev/servo/internal/run"
)

// Topics besides the pools, which go by their names. No pool is named like these.
const (
	readyTopic    = " ready"     // wakes admission
	followUpTopic = " follow-up" // wakes the reaper
)

// board is where waiters of one kind of topic stand. A waiter takes the channel first and
// looks second, so that a signal between the two is not lost. A topic is forgotten when it
// is signalled, or when the last who waits for it goes away.
type board[K comparable] struct {
	mu     sync.Mutex
	topics map[K]*topic
	// waiting counts who waits, for whoever would rather not look whom to signal.
	waiting atomic.Int64
}

type topic struct {
	ch      chan struct{}
	waiters int64
}

// wait gives a channel that is closed at the next signal of a topic, and what to call when
// it is not waited for any more.
func (b *board[K]) wait(key K) (<-chan struct{}, func()) {
	b.mu.Lock()
	defer b.mu.Unlock()
	t, ok := b.topics[key]
	if !ok {
		t = &topic{ch: make(chan struct{})}
		if b.topics == nil {
			b.topics = map[K]*topic{}
		}
		b.topics[key] = t
	}
	t.waiters++
	b.waiting.Add(1)
	return t.ch, sync.OnceFunc(func() { b.leave(key, t) })
}

func (b *board[K]) leave(key K, t *topic) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.topics[key] != t {
		return // it was signalled, and those who waited are not counted any more
	}
	b.waiting.Add(-1)
	if t.waiters--; t.waiters == 0 {
		delete(b.topics, key)
	}
}

func (b *board[K]) signal(key K) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if t, ok := b.topics[key]; ok {
		b.close(key, t)
	}
}

// everybody signals every topic.
func (b *board[K]) everybody() {
	b.mu.Lock()
	defer b.mu.Unlock()
	for key, t := range b.topics {
		b.close(key, t)
	}
}

func (b *board[K]) close(key K, t *topic) {
	close(t.ch)
	delete(b.topics, key)
	b.waiting.Add(-t.waiters)
}

// signals wake who waits in this process.
type signals struct {
	work board[string] // by pool, and the topics above
	runs board[id.Run]
	// full says that admission stopped because enough was queued: then a claim, which
	// makes room, wakes it.
	full atomic.Bool
}

func newSignals() *signals { return &signals{} }

// wait is for the topics that are always waited for: nobody stops.
func (s *signals) wait(topic string) <-chan struct{} {
	ch, _ := s.work.wait(topic)
	return ch
}

// everybody signals every topic: for when it is not known what has become possible.
func (s *signals) everybody() {
	s.work.everybody()
	s.runs.everybody()
}

// after signals what a committed working set has made possible. Never before the commit:
// whoever wakes would look, see nothing and sleep.
func (s *signals) after(w *working) {
	topics := map[string]bool{}
	for _, t := range w.changed {
		switch t.task.State {
		case run.Ready:
			topics[readyTopic] = true
		case run.Queued:
			topics[t.task.Pool] = true
		case run.Dispatched, run.Running:
			if t.from == run.Queued && s.full.Load() {
				topics[readyTopic] = true
			}
		default: // no other state wakes anybody
		}
	}
	if len(w.changes.OpenCones) > 0 {
		topics[followUpTopic] = true
	}
	for topic := range topics {
		s.work.signal(topic)
	}
	s.changed(w)
}

// changed signals the runs that a working set has changed. Who begins to wait only now has
// not looked yet, and will see the commit.
func (s *signals) changed(w *working) {
	if s.runs.waiting.Load() == 0 {
		return
	}
	runs := map[id.Run]bool{}
	for _, e := range w.changes.Events { // nothing changes without one
		runs[e.Run] = true
	}
	for run := range runs {
		s.runs.signal(run)
	}
}

// waiter is a wait for any of several topics.
type waiter struct {
	ch   <-chan struct{}
	stop func()
}

// waitAny waits for the next signal of any topic. Stop it when done.
func (s *signals) waitAny(topics []string) waiter {
	if len(topics) == 1 {
		ch, stop := s.work.wait(topics[0])
		return waiter{ch: ch, stop: stop}
	}
	merged, done := make(chan struct{}), make(chan struct{})
	var once sync.Once
	for _, topic := range topics {
		ch, stop := s.work.wait(topic)
		go func() {
			defer stop()
			select {
			case <-ch:
				once.Do(func() { close(merged) })
			case <-done:
			}
		}()
	}
	return waiter{ch: merged, stop: func() { close(done) }}
}
