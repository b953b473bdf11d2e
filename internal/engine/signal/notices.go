package signal

import (
	"context"
	"encoding/json"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/uuid"

	"go.arco.dev/servo/internal/base/id"
	"go.arco.dev/servo/internal/store"
)

// Times and bounds of notices.
const (
	// sendEvery is the time between two notices of one server. The first is sent at once; what comes
	// meanwhile is sent together. Each notice takes a lock of the whole cluster.
	sendEvery   = 5 * time.Millisecond
	sendTimeout = 5 * time.Second
	sendAgain   = time.Second // after a notice that could not be sent

	maxRuns = 150 // with more, a notice is for every run

	// A server with waiters for runs notifies the others of that, and again as long as it has any.
	watchingAgain = 5 * time.Second
	watchingLasts = 15 * time.Second
)

// notice is a message between servers.
type notice struct {
	From     string   `json:"from"` // the engine that sends: each receives its own notices too
	Work     []string `json:"work,omitempty"`
	Runs     []id.Run `json:"runs,omitempty"`
	AllRuns  bool     `json:"all_runs,omitempty"`
	All      bool     `json:"all,omitempty"`      // every topic
	Watching bool     `json:"watching,omitempty"` // the sender has waiters for runs
	Hello    bool     `json:"hello,omitempty"`    // the sender receives notices from now on

	Ended map[string]time.Time `json:"ended,omitempty"` // sessions that were logged out, and when they would have expired
}

// notices collect the signals of commits and send them to other servers, a few milliseconds of commits
// at a time. They are never sent in the transactions that do the work: PostgreSQL commits
// transactions that notify one after the other.
type notices struct {
	self   string
	notify func(ctx context.Context, notice string) error
	log    *slog.Logger

	others    atomic.Bool  // there are other servers
	listening atomic.Bool  // this server receives notices
	watchedAt atomic.Int64 // when another server last reported waiters for runs
	watchAt   atomic.Int64 // when this server last did

	sent, unsent, received atomic.Int64

	logout atomic.Pointer[func(session string, until time.Time)] // called for sessions that ended elsewhere

	mu    sync.Mutex
	next  notice
	runs  map[id.Run]bool
	some  chan struct{} // holds one when there is a notice to send
	done  chan struct{}
	once  sync.Once
	ended sync.WaitGroup
}

func newNotices(notify func(ctx context.Context, notice string) error, log *slog.Logger) *notices {
	w := &notices{
		self: uuid.NewString(), notify: notify, log: log,
		runs: map[id.Run]bool{}, some: make(chan struct{}, 1), done: make(chan struct{}),
	}
	w.ended.Go(w.run)
	return w
}

func (w *notices) stop() {
	w.once.Do(func() { close(w.done) })
	w.ended.Wait()
}

func (w *notices) run() {
	for {
		select {
		case <-w.some:
		case <-w.done:
			w.flush()
			return
		}
		pause := sendEvery
		if !w.flush() {
			pause = sendAgain
		}
		timer := time.NewTimer(pause)
		select {
		case <-timer.C:
		case <-w.done:
		}
		timer.Stop()
	}
}

// flush sends what was collected. What could not be sent becomes a notice of every topic, sent later.
func (w *notices) flush() (sent bool) {
	text := w.take()
	if text == "" {
		return true
	}
	ctx, cancel := context.WithTimeout(context.Background(), sendTimeout)
	defer cancel()
	if err := w.notify(ctx, text); err != nil {
		w.log.Debug("could not notify other servers; they poll", "error", err)
		w.sendAll()
		w.unsent.Add(1)
		return false
	}
	w.sent.Add(1)
	return true
}

// take returns what was collected as a notice, "" if there is nothing.
func (w *notices) take() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	n := w.next
	for run := range w.runs {
		n.Runs = append(n.Runs, run)
	}
	w.next, w.runs = notice{}, map[id.Run]bool{}
	n.From = w.self
	return n.encode()
}

// encode returns the notice as text that fits into a notification, "" if it is empty.
func (n notice) encode() string {
	if n.All {
		n.Work, n.Runs, n.AllRuns = nil, nil, false
	}
	if len(n.Runs) > maxRuns {
		n.AllRuns = true
	}
	if n.AllRuns {
		n.Runs = nil
	}
	if len(n.Work) == 0 && len(n.Runs) == 0 && !n.AllRuns && !n.All && !n.Watching && !n.Hello && len(n.Ended) == 0 {
		return ""
	}
	text, err := json.Marshal(n)
	if err != nil || len(text) > store.MaxNotice {
		return notice{From: n.From, All: true, Watching: n.Watching, Hello: n.Hello}.encode()
	}
	return string(text)
}

// send collects topics and runs for other servers, if there are any. A nil receiver sends nothing.
func (w *notices) send(topics []string, runs []id.Run) {
	if w == nil || !w.others.Load() || len(topics)+len(runs) == 0 {
		return
	}
	w.collect(func(n *notice) {
		for _, topic := range topics {
			if !slices.Contains(n.Work, topic) {
				n.Work = append(n.Work, topic)
			}
		}
		for _, run := range runs {
			if len(w.runs) > maxRuns {
				break // it is every run by now
			}
			w.runs[run] = true
		}
	})
}

func (w *notices) sendAll() {
	if w != nil && w.others.Load() {
		w.collect(func(n *notice) { n.All = true })
	}
}

func (w *notices) collect(add func(n *notice)) {
	w.mu.Lock()
	add(&w.next)
	w.mu.Unlock()
	select {
	case w.some <- struct{}{}:
	default: // the sender has been woken
	}
}

// watch reports to other servers that this one has waiters for runs, so that they send which change.
func (w *notices) watch() {
	if w == nil || !w.others.Load() {
		return
	}
	now, last := time.Now(), w.watchAt.Load()
	if now.Sub(time.Unix(0, last)) > watchingAgain && w.watchAt.CompareAndSwap(last, now.UnixNano()) {
		w.collect(func(n *notice) { n.Watching = true })
	}
}

// watched reports whether another server may have waiters for runs. A server that receives no notices
// has to assume so.
func (w *notices) watched() bool {
	if w == nil || !w.others.Load() {
		return false
	}
	return !w.listening.Load() || time.Since(time.Unix(0, w.watchedAt.Load())) < watchingLasts
}

// SetOthers sets whether there are other servers to notify.
func (s *Signals) SetOthers(others bool) { s.notices.others.Store(others) }

// SetListening sets whether this server receives notices from now on. It may have missed some before, so
// every waiter looks itself, and the others are notified that it receives.
func (s *Signals) SetListening(listening bool) {
	s.notices.listening.Store(listening)
	if listening {
		s.allHere()
		s.notices.collect(func(n *notice) { n.Hello = true })
	}
}

// EndSession notifies other servers that a session was logged out. Like all notices it may be lost: a key
// that is revoked ends its sessions for certain.
func (s *Signals) EndSession(session string, until time.Time) {
	if s.notices == nil || !s.notices.others.Load() {
		return
	}
	s.notices.collect(func(n *notice) {
		if n.Ended == nil {
			n.Ended = map[string]time.Time{}
		}
		n.Ended[session] = until
	})
}

// OnSessionEnd calls fn for each session that was logged out at another server.
func (s *Signals) OnSessionEnd(fn func(session string, until time.Time)) {
	s.notices.logout.Store(&fn)
}

// Receive handles a notice that this server received, and reports whether it was its own. A notice that
// cannot be read wakes every waiter: it may come from a newer version.
func (s *Signals) Receive(text string) (own bool) {
	var n notice
	if err := json.Unmarshal([]byte(text), &n); err != nil {
		s.allHere()
		return false
	}
	if n.From == s.notices.self {
		return true
	}
	s.notices.others.Store(true)
	s.notices.received.Add(1)
	if n.Watching {
		s.notices.watchedAt.Store(time.Now().UnixNano())
	}
	if ended := s.notices.logout.Load(); ended != nil {
		for session, until := range n.Ended {
			(*ended)(session, until)
		}
	}
	if n.All {
		s.allHere()
		return false
	}
	s.Wake(n.Work...)
	if n.AllRuns {
		s.runs.All()
	}
	for _, run := range n.Runs {
		s.runs.Signal(run)
	}
	return false
}

// Stats count the notices between this server and the others since the start.
type Stats struct {
	Sent, Unsent, Received int64
	Listening              bool // whether this server receives notices now
}

// Stats returns the counts of notices.
func (s *Signals) Stats() Stats {
	n := s.notices
	return Stats{Sent: n.sent.Load(), Unsent: n.unsent.Load(), Received: n.received.Load(), Listening: n.listening.Load()}
}
