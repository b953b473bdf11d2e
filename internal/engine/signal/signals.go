package engine

import (
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"go.arco.dev/servo/internal/base/id"
	"go.arco.dev/servo/internal/domain/run"
)

// Topics besides the pools, which go by their names. No pool is named like these.
const (
	readyTopic    = " ready"     // wakes admission
	followUpTopic = " follow-up" // wakes the reaper
	dueTopic      = " due"       // wakes the scheduler
	startTopic    = " start"     // wakes admission if runs wait for their start
	roomTopic     = " room"      // wakes admission if it has left something behind
	workerTopic   = " worker"    // wakes who keeps the workers that are there
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

// signals wake who waits in this process, and have those told who wait in others.
type signals struct {
	work board[string] // by pool, and the topics above
	runs board[id.Run]
	// ended are runs that somebody waits for the end of, to have their lock.
	ended board[id.Run]
	// full says that admission, which is done here, has left something behind: then whatever
	// makes room wakes it.
	full atomic.Bool
	// startWaits says that runs waited for their start when this process last looked, and
	// startWanted that one may start by now.
	startWaits, startWanted atomic.Bool
	far                     *wakeups // nil tells nobody

	dryMu sync.Mutex                      // held while a pool is signalled, so that no claim misses both
	dryAt map[string]map[string]time.Time // by pool, and by what the one could run who looked
}

// dry says that within the last moment a worker that can run the same has looked for tasks of
// these pools in vain, and that none was heard of since.
func (s *signals) dry(pools []string, set string, moment time.Duration) bool {
	s.dryMu.Lock()
	defer s.dryMu.Unlock()
	for _, pool := range pools {
		if time.Since(s.dryAt[pool][set]) >= moment {
			return false
		}
	}
	return true
}

// ranDry remembers that whoever waits for a signal since before it looked has found nothing in
// any of these pools.
func (s *signals) ranDry(pools []string, set string, woken waiter) {
	s.dryMu.Lock()
	defer s.dryMu.Unlock()
	if woken.fired() {
		return
	}
	if s.dryAt == nil || len(s.dryAt) > maxPoolsRemembered {
		s.dryAt = map[string]map[string]time.Time{}
	}
	for _, pool := range pools {
		if s.dryAt[pool] == nil {
			s.dryAt[pool] = map[string]time.Time{}
		}
		s.dryAt[pool][set] = time.Now()
	}
}

// maxPoolsRemembered bounds what is remembered of pools: workers may name any.
const maxPoolsRemembered = 10_000

func newSignals() *signals { return &signals{} }

// wait is for the topics that are always waited for: nobody stops.
func (s *signals) wait(topic string) <-chan struct{} {
	ch, _ := s.work.wait(topic)
	return ch
}

// everybody signals every topic, here and elsewhere: for when it is not known what has
// become possible.
func (s *signals) everybody() {
	s.everybodyHere()
	s.far.tellAll()
}

func (s *signals) everybodyHere() {
	s.dryMu.Lock()
	clear(s.dryAt)
	s.work.everybody()
	s.dryMu.Unlock()
	s.runs.everybody()
	s.ended.everybody()
}

// wake signals topics in this process.
func (s *signals) wake(topics []string) {
	s.dryMu.Lock()
	defer s.dryMu.Unlock()
	for _, topic := range topics {
		switch topic {
		case roomTopic:
			if !s.full.Load() {
				continue
			}
			topic = readyTopic
		case startTopic:
			if !s.startWaits.Load() {
				continue
			}
			s.startWanted.Store(true)
			topic = readyTopic
		}
		delete(s.dryAt, topic)
		s.work.signal(topic)
	}
}

// publish signals topics, here and elsewhere. Never before the commit.
func (s *signals) publish(topics ...string) {
	s.wake(topics)
	s.far.tell(topics, nil)
}

// after signals what a committed working set has made possible. Never before the commit:
// whoever wakes would look, see nothing and sleep.
func (s *signals) after(w *working) {
	found := map[string]bool{}
	for _, t := range w.changed {
		switch t.task.State {
		case run.Ready:
			found[readyTopic] = true
		case run.Queued:
			found[t.task.Pool] = true
		default: // no other state wakes anybody by itself
		}
		if makesRoom(t.from, t.task.State) {
			found[roomTopic] = true
		}
	}
	if len(w.changes.OpenCones) > 0 {
		found[followUpTopic] = true
	}
	if len(w.changes.Results) > 0 {
		found[dueTopic] = true
	}
	if s.endings(w) {
		found[startTopic] = true
	}
	topics := slices.Collect(maps.Keys(found))
	s.wake(topics)
	s.far.tell(topics, s.changed(w))
}

// endings signals the runs that a working set has ended, and reports whether there are any. A run
// that begins to wait for its start makes the ends worth hearing of.
func (s *signals) endings(w *working) bool {
	for _, r := range w.changes.NewRuns {
		if r.State == run.RunPending {
			s.startWaits.Store(true)
			break
		}
	}
	if s.ended.waiting.Load() > 0 {
		for _, key := range w.changes.EndedRuns {
			s.ended.signal(key.Run)
		}
	}
	return len(w.changes.EndedRuns) > 0
}

// makesRoom reports whether a move leaves room for the next task: in a queue, or in what a
// tenant may have in flight.
func makesRoom(from, to run.TaskState) bool {
	return from == run.Queued && to != run.Queued || from.Leased() && !to.Leased()
}

// changed signals the runs that a working set has changed, and gives them if somebody
// elsewhere may wait for one. Who begins to wait only now has not looked yet, and will see
// the commit.
func (s *signals) changed(w *working) []id.Run {
	here, elsewhere := s.runs.waiting.Load() > 0, s.far.watched()
	if !here && !elsewhere {
		return nil
	}
	found := map[id.Run]bool{}
	for _, e := range w.changes.Events { // nothing changes without one
		found[e.Run] = true
	}
	runs := slices.Collect(maps.Keys(found))
	if here {
		for _, run := range runs {
			s.runs.signal(run)
		}
	}
	if !elsewhere {
		return nil
	}
	return runs
}

// waiter is a wait for any of several topics.
type waiter struct {
	ch   <-chan struct{}
	stop func()
	each []<-chan struct{}
}

// fired reports whether any of the topics was signalled, also if ch is not closed yet.
func (w waiter) fired() bool {
	for _, ch := range w.each {
		select {
		case <-ch:
			return true
		default:
		}
	}
	return false
}

// waitAny waits for the next signal of any topic. Stop it when done.
func (s *signals) waitAny(topics []string) waiter {
	if len(topics) == 1 {
		ch, stop := s.work.wait(topics[0])
		return waiter{ch: ch, stop: stop, each: []<-chan struct{}{ch}}
	}
	merged, done := make(chan struct{}), make(chan struct{})
	each := make([]<-chan struct{}, len(topics))
	var once sync.Once
	for i, topic := range topics {
		ch, stop := s.work.wait(topic)
		each[i] = ch
		go func() {
			defer stop()
			select {
			case <-ch:
				once.Do(func() { close(merged) })
			case <-done:
			}
		}()
	}
	return waiter{ch: merged, stop: func() { close(done) }, each: each}
}
