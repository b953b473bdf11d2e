package ratelimit

import "time"

// Meter decides which calls of one limit a server permits. It spends the tokens that the server has
// leased of the window. Until the first lease of a window arrives it permits a chunk on credit, which
// the lease then pays. While the database is unavailable the server applies the limit alone.
type Meter struct {
	limit int
	chunk int

	window time.Time // its beginning by the database's clock; zero: unknown
	early  time.Time // the window may have ended, by the server's clock
	late   time.Time // the window has certainly ended

	tokens int  // leased and not spent
	debt   int  // spent and not leased
	passed int  // in this window, on this server
	leased int  // in this window, to all servers, as of the last lease
	spent  bool // the window has no tokens left to lease

	asking bool // a lease is pending
	want   int  // tokens of the pending lease
	sent   int  // the debt that the pending lease pays

	away  bool
	retry time.Time
}

// NewMeter creates a meter for a limit of at least 1.
func NewMeter(limit int) Meter { return Meter{limit: limit, chunk: Chunk(limit)} }

// Lease is a grant of the database.
type Lease struct {
	Granted int
	Leased  int       // in this window, to all servers
	Window  time.Time // its beginning
	Now     time.Time // by the database's clock, when it was granted
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

// turn resets the meter when its window has ended. It keeps the debt, which may partly be of the
// next window.
func (m *Meter) turn(now time.Time) {
	if m.late.IsZero() || now.Before(m.late) {
		return
	}
	m.window, m.early, m.late = time.Time{}, time.Time{}, time.Time{}
	m.tokens, m.passed, m.leased, m.spent = 0, m.debt, 0, false
	if m.away { // without the database a new window begins now, and the debt of the last one was never reported
		m.early, m.late = now.Add(Window), now.Add(Window)
		m.passed, m.debt, m.sent = 0, 0, 0
	}
}

// mayBeOver reports whether the window may have ended: its end is known to within a round trip.
func (m *Meter) mayBeOver(now time.Time) bool { return !m.late.IsZero() && !now.Before(m.early) }

// Needs reports whether to request a lease: when half of the chunk is spent.
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

// Ask returns the lease to request. Granted or Failed must follow.
func (m *Meter) Ask() (want, debt int) {
	m.asking = true
	m.want, m.sent = max(1, m.chunk-m.tokens), m.debt
	return m.want, m.sent
}

// Granted applies a lease that was requested at sent and arrived at got.
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
	if m.mayBeOver(got) { // the lease arrived too late: it may be of a window that has ended
		m.tokens = 0
	}
	paid := min(m.tokens, m.debt)
	m.tokens, m.debt = m.tokens-paid, m.debt-paid
	if m.spent && !m.mayBeOver(got) {
		m.debt = 0 // the excess of this window over its limit
	}
	m.want, m.sent = 0, 0
}

// Failed records that a lease was not granted.
func (m *Meter) Failed(now time.Time) {
	m.turn(now)
	m.asking, m.want, m.sent = false, 0, 0
	m.away, m.spent, m.retry = true, false, now.Add(RetryUnavailable)
	if m.late.IsZero() {
		m.early, m.late = now.Add(Window), now.Add(Window)
	}
}

// Status is the state of a limit that callers see: of the whole tenant, as far as this server knows.
type Status struct {
	Limit     int
	Remaining int           // of the window
	Reset     time.Duration // until the next window begins
}

// Status returns the state of the limit after a decision.
func (m *Meter) Status(now time.Time) Status {
	s := Status{Limit: m.limit, Remaining: m.limit - m.leased + m.tokens - m.debt, Reset: Window}
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

// Idle reports whether the meter can be dropped without loss.
func (m *Meter) Idle(now time.Time) bool {
	m.turn(now)
	return !m.asking && m.passed == 0
}
