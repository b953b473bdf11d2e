package signal

import (
	"sync"
	"sync/atomic"
)

// Board has the waiters of one kind of topic. A waiter takes the channel first and looks second, so
// that a signal between the two is not lost. The board forgets a topic when it is signalled or when
// its last waiter leaves.
type Board[K comparable] struct {
	mu      sync.Mutex
	topics  map[K]*topic
	waiting atomic.Int64
}

type topic struct {
	ch      chan struct{}
	waiters int64
}

// Wait returns a channel that is closed at the next signal of a topic, and a function to call when the
// wait is over.
func (b *Board[K]) Wait(key K) (<-chan struct{}, func()) {
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

func (b *Board[K]) leave(key K, t *topic) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.topics[key] != t {
		return // it was signalled, and its waiters are not counted any more
	}
	b.waiting.Add(-1)
	if t.waiters--; t.waiters == 0 {
		delete(b.topics, key)
	}
}

// Signal wakes the waiters of a topic.
func (b *Board[K]) Signal(key K) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if t, ok := b.topics[key]; ok {
		b.close(key, t)
	}
}

// All wakes the waiters of every topic.
func (b *Board[K]) All() {
	b.mu.Lock()
	defer b.mu.Unlock()
	for key, t := range b.topics {
		b.close(key, t)
	}
}

// HasWaiters reports whether a signal could wake a waiter, without a lock.
func (b *Board[K]) HasWaiters() bool { return b.waiting.Load() > 0 }

func (b *Board[K]) close(key K, t *topic) {
	close(t.ch)
	delete(b.topics, key)
	b.waiting.Add(-t.waiters)
}
