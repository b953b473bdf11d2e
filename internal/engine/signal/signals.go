package signal

import (
	"context"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"go.arco.dev/servo/internal/base/id"
)

// Topics besides the pools, which have their names as topics. No pool has a name like these.
const (
	Ready    = " ready"     // wakes admission
	FollowUp = " follow-up" // wakes the reaper
	Due      = " due"       // wakes the scheduler
	Start    = " start"     // wakes admission if runs wait for their start
	Room     = " room"      // wakes admission if it has left tasks behind
	Worker   = " worker"    // wakes the presence loop: a worker is new or serves other pools
	Alert    = " alert"     // wakes the alerter
	Backfill = " backfill"  // wakes the loop of backfills
	Pools    = " pools"     // wakes loops that depend on the configuration of pools
)

// Signals wake waiters in this process, and notify other servers.
type Signals struct {
	topics  Board[string]
	runs    Board[id.Run] // by run: any change
	ended   Board[id.Run] // by run: its end, which frees its lock
	notices *notices      // nil notifies no server

	full        atomic.Bool // admission of this server has left tasks behind
	startWaits  atomic.Bool // runs waited for their start when this server last looked
	startWanted atomic.Bool // one of them may start by now

	emptyMu sync.Mutex                      // held while a pool is signalled, so that no claim misses both
	emptyAt map[string]map[string]time.Time // by pool, and by the capabilities of the claim that found no task
}

// New returns signals that notify other servers through notify. Stop them when done.
func New(notify func(ctx context.Context, notice string) error, log *slog.Logger) *Signals {
	return &Signals{notices: newNotices(notify, log)}
}

// Stop sends the notices that were collected. Stopping twice is the same as once.
func (s *Signals) Stop() { s.notices.stop() }

// Wait returns a channel that is closed at the next signal of a topic. It is for loops, which wait for
// the same topics as long as the server runs.
func (s *Signals) Wait(topic string) <-chan struct{} {
	ch, _ := s.topics.Wait(topic)
	return ch
}

// RunChanged returns a channel that is closed at the next change of a run, and a function to call when
// the wait is over.
func (s *Signals) RunChanged(run id.Run) (<-chan struct{}, func()) {
	changed, stop := s.runs.Wait(run)
	s.notices.watch()
	return changed, stop
}

// RunEnded returns a channel that is closed when this server ends a run, and a function to call when
// the wait is over.
func (s *Signals) RunEnded(run id.Run) (<-chan struct{}, func()) { return s.ended.Wait(run) }

// SetFull sets whether admission has left tasks behind. Room wakes it only then.
func (s *Signals) SetFull(full bool) { s.full.Store(full) }

// SetStartWaits sets whether runs wait for their start. Start wakes admission only then.
func (s *Signals) SetStartWaits(waits bool) { s.startWaits.Store(waits) }

// StartWanted reports, once, that a run may start which could not before.
func (s *Signals) StartWanted() bool { return s.startWanted.Swap(false) }

// RecentlyEmpty reports whether within the last moment a claim with the same capabilities found no task
// in these pools, and none was signalled since.
func (s *Signals) RecentlyEmpty(pools []string, capabilities string, moment time.Duration) bool {
	s.emptyMu.Lock()
	defer s.emptyMu.Unlock()
	for _, pool := range pools {
		if time.Since(s.emptyAt[pool][capabilities]) >= moment {
			return false
		}
	}
	return true
}

// maxPoolsRemembered bounds the pools that are remembered as empty: workers may name any.
const maxPoolsRemembered = 10_000

// MarkEmpty remembers that a claim found no task in any of these pools. It has been waiting since before
// it looked; if it was signalled meanwhile, the pools may have tasks again.
func (s *Signals) MarkEmpty(pools []string, capabilities string, waiting Waiter) {
	s.emptyMu.Lock()
	defer s.emptyMu.Unlock()
	if waiting.fired() {
		return
	}
	if s.emptyAt == nil || len(s.emptyAt) > maxPoolsRemembered {
		s.emptyAt = map[string]map[string]time.Time{}
	}
	for _, pool := range pools {
		if s.emptyAt[pool] == nil {
			s.emptyAt[pool] = map[string]time.Time{}
		}
		s.emptyAt[pool][capabilities] = time.Now()
	}
}

// All signals every topic, in this server and in others, when it is not known which commits became
// visible.
func (s *Signals) All() {
	s.allHere()
	s.notices.sendAll()
}

func (s *Signals) allHere() {
	s.emptyMu.Lock()
	clear(s.emptyAt)
	s.topics.All()
	s.emptyMu.Unlock()
	s.runs.All()
	s.ended.All()
}

// Wake signals topics in this server.
func (s *Signals) Wake(topics ...string) {
	s.emptyMu.Lock()
	defer s.emptyMu.Unlock()
	for _, topic := range topics {
		switch topic {
		case Room:
			if !s.full.Load() {
				continue
			}
			topic = Ready
		case Start:
			if !s.startWaits.Load() {
				continue
			}
			s.startWanted.Store(true)
			topic = Ready
		}
		delete(s.emptyAt, topic)
		s.topics.Signal(topic)
	}
}

// Publish signals topics in this server and in others. Call it after the commit.
func (s *Signals) Publish(topics ...string) {
	s.Wake(topics...)
	s.notices.send(topics, nil)
}

// Commit is what a committed transaction signals.
type Commit struct {
	Topics  []string
	Pending bool            // it has created a run that waits for its start
	Ended   []id.Run        // runs that it has ended
	Changed func() []id.Run // runs of its events; called only if a change may wake a waiter
}

// Committed signals what a committed transaction has made possible. Call it after the commit: a waiter
// that wakes earlier looks, sees nothing and sleeps again.
func (s *Signals) Committed(c Commit) {
	if c.Pending {
		s.startWaits.Store(true)
	}
	if s.ended.HasWaiters() {
		for _, run := range c.Ended {
			s.ended.Signal(run)
		}
	}
	s.Wake(c.Topics...)
	// A waiter that comes only now has not looked yet, and will see the commit.
	here, elsewhere := s.runs.HasWaiters(), s.notices.watched()
	var runs []id.Run
	if here || elsewhere {
		runs = c.Changed()
	}
	if here {
		for _, run := range runs {
			s.runs.Signal(run)
		}
	}
	if !elsewhere {
		runs = nil
	}
	s.notices.send(c.Topics, runs)
}

// Waiter is a wait for any of several topics.
type Waiter struct {
	C    <-chan struct{}
	Stop func() // ends the wait

	each []<-chan struct{}
}

// fired reports whether any of the topics was signalled, even if C is not closed yet.
func (w Waiter) fired() bool {
	for _, ch := range w.each {
		select {
		case <-ch:
			return true
		default:
		}
	}
	return false
}

// WaitAny waits for the next signal of any topic. Stop it when done.
func (s *Signals) WaitAny(topics []string) Waiter {
	if len(topics) == 1 {
		ch, stop := s.topics.Wait(topics[0])
		return Waiter{C: ch, Stop: stop, each: []<-chan struct{}{ch}}
	}
	merged, done := make(chan struct{}), make(chan struct{})
	each := make([]<-chan struct{}, len(topics))
	var once sync.Once
	for i, topic := range topics {
		ch, stop := s.topics.Wait(topic)
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
	return Waiter{C: merged, Stop: func() { close(done) }, each: each}
}
