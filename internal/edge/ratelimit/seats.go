package ratelimit

import "time"

const (
	// SeatsLive is how long what a server says about its streams counts: so long those of one
	// that was killed do.
	SeatsLive = 30 * time.Second
	// SeatsRenew is how often a server with streams says how many there are.
	SeatsRenew = SeatsLive / 3
	// seatsFresh is how long a server refuses by what it has heard without asking again.
	seatsFresh = time.Second
)

// SeatChunk is how many streams a server opens before it has told the others of them.
func SeatChunk(limit int) int { return max(1, limit/5) }

// Seats decides which streams of a tenant a server opens. Servers tell each other how many they
// have; what a server has not told yet is at most a chunk.
type Seats struct {
	limit int
	chunk int

	open   int // here
	told   int // of them, to the others
	others int // elsewhere, as it was last heard
	heard  time.Time

	asking bool
	sent   int
	away   bool
	retry  time.Time
}

// NewSeats makes them for a limit, which is at least 1.
func NewSeats(limit int) Seats { return Seats{limit: limit, chunk: SeatChunk(limit)} }

// Take decides about a stream. One that passes must Leave.
func (s *Seats) Take(now time.Time) Verdict {
	switch {
	case s.open+s.others >= s.limit:
		if s.away || !s.heard.IsZero() && now.Before(s.heard.Add(seatsFresh)) {
			return Refuse
		}
		return Wait // somewhere one may have ended
	case !s.away && s.open-s.told >= s.chunk:
		return Wait
	}
	s.open++
	return Pass
}

// Leave says that a stream is over.
func (s *Seats) Leave() { s.open-- }

// Needs reports whether it is time to tell the others.
func (s *Seats) Needs(now time.Time) bool {
	switch {
	case s.asking || s.away && now.Before(s.retry):
		return false
	case s.open != s.told:
		return true
	case s.open+s.others >= s.limit && !now.Before(s.heard.Add(seatsFresh)):
		return true
	}
	return s.open > 0 && !now.Before(s.heard.Add(SeatsRenew))
}

// Tell says what to tell. Heard or Failed must follow.
func (s *Seats) Tell() (open int) {
	s.asking, s.sent = true, s.open
	return s.open
}

// Heard takes in how many the others have.
func (s *Seats) Heard(others int, now time.Time) {
	s.asking, s.away = false, false
	s.told, s.others, s.heard = s.sent, others, now
}

// Failed says that nobody was told. Until somebody is, the server counts for itself.
func (s *Seats) Failed(now time.Time) {
	s.asking, s.away = false, true
	s.others, s.retry = 0, now.Add(RetryAway)
}

// Standing is how things are. Nobody can say when a stream ends: the reset is when it is worth
// looking again.
func (s *Seats) Standing() Standing {
	return Standing{Limit: s.limit, Remaining: max(0, s.limit-s.open-s.others), Reset: seatsFresh}
}

// Idle reports whether nothing is lost by forgetting them.
func (s *Seats) Idle() bool { return !s.asking && s.open == 0 && s.told == 0 }
