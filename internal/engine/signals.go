package engine

import (
	"sync"
	"sync/atomic"

	"go.arco.dev/servo/internal/run"
)

// Topics besides the pools, which go by their names. No pool is named like these.
const (
	readyTopic    = " ready"     // wakes admission
	followUpTopic = " follow-up" // wakes the reaper
)

// signals wake who waits in this process. A waiter takes the channel first and looks
// second, so that a signal between the two is not lost.
type signals struct {
	mu     sync.Mutex
	topics map[string]chan struct{}
	// full says that admission stopped because enough was queued: then a claim, which
	// makes room, wakes it.
	full atomic.Bool
}

func newSignals() *signals { return &signals{topics: map[string]chan struct{}{}} }

// wait gives a channel that is closed at the next signal of a topic.
func (s *signals) wait(topic string) <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	ch, ok := s.topics[topic]
	if !ok {
		ch = make(chan struct{})
		s.topics[topic] = ch
	}
	return ch
}

func (s *signals) signal(topic string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if ch, ok := s.topics[topic]; ok {
		close(ch)
		delete(s.topics, topic)
	}
}

// everybody signals every topic: for when it is not known what has become possible.
func (s *signals) everybody() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for topic, ch := range s.topics {
		close(ch)
		delete(s.topics, topic)
	}
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
		s.signal(topic)
	}
}

// waiter is a wait for any of several topics.
type waiter struct {
	ch   <-chan struct{}
	done chan struct{}
}

// waitAny waits for the next signal of any topic. Stop it when done.
func (s *signals) waitAny(topics []string) waiter {
	w := waiter{done: make(chan struct{})}
	if len(topics) == 1 {
		w.ch = s.wait(topics[0])
		return w
	}
	merged := make(chan struct{})
	var once sync.Once
	for _, topic := range topics {
		ch := s.wait(topic)
		go func() {
			select {
			case <-ch:
				once.Do(func() { close(merged) })
			case <-w.done:
			}
		}()
	}
	w.ch = merged
	return w
}

func (w waiter) stop() { close(w.done) }
