package engine

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

// Times and bounds of what servers tell each other.
const (
	// tellEvery is the time between two notices of one server. The first goes out at once;
	// what comes meanwhile goes together. Each notice takes a lock of the whole cluster.
	tellEvery    = 5 * time.Millisecond
	tellPatience = 5 * time.Second
	tellAgain    = time.Second // after a notice that did not go out

	maxToldRuns = 150 // beyond that it is every run

	// Who waits for runs says so, and again as long as it does.
	watchingAgain = 5 * time.Second
	watchingLasts = 15 * time.Second
)

// notice is what servers tell each other. It is a hint: it may be lost, and everybody looks
// from time to time without one.
type notice struct {
	From     string   `json:"from"` // the engine that tells: each hears its own notices too
	Work     []string `json:"work,omitempty"`
	Runs     []id.Run `json:"runs,omitempty"`
	AllRuns  bool     `json:"all_runs,omitempty"`
	All      bool     `json:"all,omitempty"`      // whatever anybody waits for
	Watching bool     `json:"watching,omitempty"` // somebody waits for runs at the one who tells
	Hello    bool     `json:"hello,omitempty"`    // the one who tells listens from now on

	Ended map[string]time.Time `json:"ended,omitempty"` // sessions that were logged out, and when they would have expired
}

// wakeups collect what commits have made possible and tell other servers, a few milliseconds
// of commits at a time. Never in the transactions that do the work: PostgreSQL lets those
// that notify commit only one after the other.
type wakeups struct {
	self   string
	notify func(ctx context.Context, notice string) error
	log    *slog.Logger

	others    atomic.Bool  // whether there is anybody to tell
	listening atomic.Bool  // whether notices of others are heard here
	watchedAt atomic.Int64 // when another server last said that somebody waits for runs there
	saidAt    atomic.Int64 // when this one did

	sent, unsent, heard atomic.Int64 // notices

	logout atomic.Pointer[func(session string, until time.Time)] // called for sessions that ended elsewhere

	mu    sync.Mutex
	next  notice
	runs  map[id.Run]bool
	some  chan struct{} // holds one when there is something to tell
	done  chan struct{}
	once  sync.Once
	ended sync.WaitGroup
}

func newWakeups(notify func(ctx context.Context, notice string) error, log *slog.Logger) *wakeups {
	w := &wakeups{
		self: uuid.NewString(), notify: notify, log: log,
		runs: map[id.Run]bool{}, some: make(chan struct{}, 1), done: make(chan struct{}),
	}
	w.ended.Go(w.run)
	return w
}

// stop tells what is left to tell. Stopping twice is the same as once.
func (w *wakeups) stop() {
	w.once.Do(func() { close(w.done) })
	w.ended.Wait()
}

func (w *wakeups) run() {
	for {
		select {
		case <-w.some:
		case <-w.done:
			w.flush()
			return
		}
		pause := tellEvery
		if !w.flush() {
			pause = tellAgain
		}
		timer := time.NewTimer(pause)
		select {
		case <-timer.C:
		case <-w.done:
		}
		timer.Stop()
	}
}

// flush sends what was collected. What could not be sent becomes "whatever anybody waits
// for", to be sent later.
func (w *wakeups) flush() (sent bool) {
	text := w.take()
	if text == "" {
		return true
	}
	ctx, cancel := context.WithTimeout(context.Background(), tellPatience)
	defer cancel()
	if err := w.notify(ctx, text); err != nil {
		w.log.Debug("could not tell other servers, they will look by themselves", "error", err)
		w.tellAll()
		w.unsent.Add(1)
		return false
	}
	w.sent.Add(1)
	return true
}

// take gives what was collected as a notice, "" if there is nothing.
func (w *wakeups) take() string {
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

// encode gives the notice as text that fits, "" if it says nothing.
func (n notice) encode() string {
	if n.All {
		n.Work, n.Runs, n.AllRuns = nil, nil, false
	}
	if len(n.Runs) > maxToldRuns {
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

// tell collects topics and runs for other servers, if there are any. A nil receiver tells
// nobody.
func (w *wakeups) tell(topics []string, runs []id.Run) {
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
			if len(w.runs) > maxToldRuns {
				break // it is every run by now
			}
			w.runs[run] = true
		}
	})
}

func (w *wakeups) tellAll() {
	if w != nil && w.others.Load() {
		w.collect(func(n *notice) { n.All = true })
	}
}

func (w *wakeups) collect(add func(n *notice)) {
	w.mu.Lock()
	add(&w.next)
	w.mu.Unlock()
	select {
	case w.some <- struct{}{}:
	default: // it has been said
	}
}

// watch says that somebody waits for runs here, so that others tell which change.
func (w *wakeups) watch() {
	if w == nil || !w.others.Load() {
		return
	}
	now, said := time.Now(), w.saidAt.Load()
	if now.Sub(time.Unix(0, said)) > watchingAgain && w.saidAt.CompareAndSwap(said, now.UnixNano()) {
		w.collect(func(n *notice) { n.Watching = true })
	}
}

// watched reports whether somebody elsewhere may wait for runs. Who does not hear others has
// to think so.
func (w *wakeups) watched() bool {
	if w == nil || !w.others.Load() {
		return false
	}
	return !w.listening.Load() || time.Since(time.Unix(0, w.watchedAt.Load())) < watchingLasts
}

// SetOthers reports whether there are other servers: they are told what commits of this one
// make possible.
func (e *Engine) SetOthers(others bool) { e.signals.far.others.Store(others) }

// SetListening reports whether notices of other servers are heard from now on. Before that some
// may have been missed, so everybody here looks for themselves; and the others are told that
// somebody listens.
func (e *Engine) SetListening(listening bool) {
	far := e.signals.far
	far.listening.Store(listening)
	if listening {
		e.signals.everybodyHere()
		far.collect(func(n *notice) { n.Hello = true })
	}
}

// EndSession tells other servers that a session was logged out. Like all notices it may be lost: a key
// that is revoked ends its sessions for certain.
func (e *Engine) EndSession(session string, until time.Time) {
	far := e.signals.far
	if far == nil || !far.others.Load() {
		return
	}
	far.collect(func(n *notice) {
		if n.Ended == nil {
			n.Ended = map[string]time.Time{}
		}
		n.Ended[session] = until
	})
}

// OnSessionEnd calls fn for each session that was logged out at another server.
func (e *Engine) OnSessionEnd(fn func(session string, until time.Time)) {
	e.signals.far.logout.Store(&fn)
}

// Hear takes a notice that came to this server, and reports whether it was its own. One that
// cannot be read wakes everybody: it may be of a newer version.
func (e *Engine) Hear(text string) (own bool) {
	var n notice
	if err := json.Unmarshal([]byte(text), &n); err != nil {
		e.signals.everybodyHere()
		return false
	}
	far := e.signals.far
	if n.From == far.self {
		return true
	}
	far.others.Store(true)
	far.heard.Add(1)
	if n.Watching {
		far.watchedAt.Store(time.Now().UnixNano())
	}
	if ended := far.logout.Load(); ended != nil {
		for session, until := range n.Ended {
			(*ended)(session, until)
		}
	}
	if n.All {
		e.signals.everybodyHere()
		return false
	}
	e.signals.wake(n.Work)
	if n.AllRuns {
		e.signals.runs.everybody()
	}
	for _, run := range n.Runs {
		e.signals.runs.signal(run)
	}
	return false
}
