package ratelimit

import "time"

// Meter decides which calls of one limit a server lets pass. It spends what the server has
// leased of the window; before the first lease of a window has come it lets a chunk pass on
// credit, which the lease then pays. When the database is away the server is alone, and the
// limit holds for it alone.
type Meter struct {
	limit int
	chunk int

	window time.Time // its beginning, by the database; zero is not known
	early  time.Time // here it may be over, by our clock
	late   time.Time // here it certainly is

	tokens int  // leased and not spent
	debt   int  // spent and not leased
	passed int  // in this window, here
	leased int  // in this window, to all servers, as it was last told
	spent  bool // the window has nothing more to lease

	asking bool // a lease is under way
	want   int  // of it
	sent   int  // the debt that it pays

	away  bool
	retry time.Time
}

// NewMeter makes one for a limit, which is at least 1.
func NewMeter(limit int) Meter { return Meter{limit: limit, chunk: Chunk(limit)} }

// Lease is what the database has given.
type Lease struct {
	Granted int
	Leased  int       // in this window, to all servers
	Window  time.Time // its beginning
	Now     time.Time // by the database, when it was given
}

// Take decides about a call.
func (m *Meter) Take(now time.Time) Verdict {
	m.turn(now)
	over := m.mayBeOver(now)
	switch {
	case m.tokens > 0 && !over:
		m.tokens--
	case m.away && m.passed < m.limit:
		m.debt++
	case m.away || m.spent && !over:
		return Refuse
	case m.debt < m.chunk && !over:
		m.debt++
	default:
		return Wait
	}
	m.passed++
	return Pass
}

// turn forgets a window that is over. A debt is not forgotten: a part of it may be of the next
// window already.
func (m *Meter) turn(now time.Time) {
	if m.late.IsZero() || now.Before(m.late) {
		return
	}
	m.window, m.early, m.late = time.Time{}, time.Time{}, time.Time{}
	m.tokens, m.passed, m.leased, m.spent = 0, m.debt, 0, false
	if m.away { // nobody says when the next one ends, and nobody was told of this one
		m.early, m.late = now.Add(Window), now.Add(Window)
		m.passed, m.debt, m.sent = 0, 0, 0
	}
}

// mayBeOver is in the moments between the earliest and the latest end of a window.
func (m *Meter) mayBeOver(now time.Time) bool { return !m.late.IsZero() && !now.Before(m.early) }

// Needs reports whether it is time to ask for a lease: when half of the chunk is spent.
func (m *Meter) Needs(now time.Time) bool {
	m.turn(now)
	switch {
	case m.asking:
		return false
	case m.away:
		return !now.Before(m.retry)
	case m.mayBeOver(now):
		return true
	}
	return !m.spent && m.tokens <= m.chunk/2
}

// Ask says what to ask for. Granted or Failed must follow.
func (m *Meter) Ask() (want, debt int) {
	m.asking = true
	m.want, m.sent = max(1, m.chunk-m.tokens), m.debt
	return m.want, m.sent
}

// Granted takes in a lease that was asked for at sent and has come at got.
func (m *Meter) Granted(l Lease, sent, got time.Time) {
	m.turn(got)
	left := l.Window.Add(Window).Sub(l.Now)
	if !l.Window.Equal(m.window) {
		m.window, m.tokens, m.passed = l.Window, 0, m.debt
	}
	m.early, m.late = sent.Add(left), got.Add(left)
	m.asking, m.away = false, false
	m.leased, m.spent = l.Leased, l.Granted < m.want
	m.debt -= m.sent
	m.tokens += l.Granted
	if m.mayBeOver(got) { // it has taken so long to come that it is worth nothing, and pays nothing of what passed since
		m.tokens = 0
	}
	paid := min(m.tokens, m.debt)
	m.tokens, m.debt = m.tokens-paid, m.debt-paid
	if m.spent && !m.mayBeOver(got) {
		m.debt = 0 // it is what this window is over its limit by
	}
	m.want, m.sent = 0, 0
}

// Failed says that there was no lease.
func (m *Meter) Failed(now time.Time) {
	m.turn(now)
	m.asking, m.want, m.sent = false, 0, 0
	m.away, m.spent, m.retry = true, false, now.Add(RetryAway)
	if m.late.IsZero() {
		m.early, m.late = now.Add(Window), now.Add(Window)
	}
}

// Standing is what a caller is told: about the tenant as a whole, as far as this server knows.
type Standing struct {
	Limit     int
	Remaining int           // of the window
	Reset     time.Duration // until the next one begins
}

// Standing is how things are after a decision.
func (m *Meter) Standing(now time.Time) Standing {
	s := Standing{Limit: m.limit, Remaining: m.limit - m.leased + m.tokens - m.debt, Reset: Window}
	if m.away {
		s.Remaining = m.limit - m.passed
	}
	if m.spent {
		s.Remaining = m.tokens
	}
	s.Remaining = max(0, min(s.Remaining, m.limit))
	if !m.late.IsZero() {
		s.Reset = max(0, m.late.Sub(now))
	}
	return s
}

// Idle reports whether nothing is lost by forgetting the meter.
func (m *Meter) Idle(now time.Time) bool {
	m.turn(now)
	return !m.asking && m.passed == 0
}
