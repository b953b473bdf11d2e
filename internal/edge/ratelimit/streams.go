package ratelimit

import "time"

const (
	// StreamsLive is how long the report of a server about its streams counts. Streams of a killed
	// server count that long.
	StreamsLive = 30 * time.Second
	// StreamsRenew is how often a server with streams repeats its report.
	StreamsRenew = StreamsLive / 3
	// streamsFresh is how long a server refuses streams by the last answer to its report.
	streamsFresh = time.Second
)

// StreamChunk returns how many streams a server opens before it has reported them.
func StreamChunk(limit int) int { return max(1, limit/5) }

// Streams decides which streams of a tenant a server opens. Servers report to each other how many
// they have. A server has at most a chunk of unreported streams.
type Streams struct {
	limit int
	chunk int

	open       int // on this server
	reported   int // of them, to the other servers
	others     int // on other servers, as of the last answer
	answeredAt time.Time

	reporting bool // a report is pending
	sent      int
	away      bool
	retry     time.Time
}

// NewStreams creates the limit of a tenant, of at least 1 stream.
func NewStreams(limit int) Streams { return Streams{limit: limit, chunk: StreamChunk(limit)} }

// Take decides about a stream. A permitted stream ends with Leave.
func (s *Streams) Take(now time.Time) Verdict {
	switch {
	case s.open+s.others >= s.limit:
		if s.away || !s.answeredAt.IsZero() && now.Before(s.answeredAt.Add(streamsFresh)) {
			return Refuse
		}
		return Wait // a stream of another server may have ended
	case !s.away && s.open-s.reported >= s.chunk:
		return Wait
	}
	s.open++
	return Pass
}

// Leave ends a stream.
func (s *Streams) Leave() { s.open-- }

// Needs reports whether to send a report.
func (s *Streams) Needs(now time.Time) bool {
	switch {
	case s.reporting || s.away && now.Before(s.retry):
		return false
	case s.open != s.reported:
		return true
	case s.open+s.others >= s.limit && !now.Before(s.answeredAt.Add(streamsFresh)):
		return true
	}
	return s.open > 0 && !now.Before(s.answeredAt.Add(StreamsRenew))
}

// Report returns the number to report. Reported or Failed must follow.
func (s *Streams) Report() (open int) {
	s.reporting, s.sent = true, s.open
	return s.open
}

// Reported applies the answer to a report: the number of streams on other servers.
func (s *Streams) Reported(others int, now time.Time) {
	s.reporting, s.away = false, false
	s.reported, s.others, s.answeredAt = s.sent, others, now
}

// Failed records that a report has failed. Until the next one succeeds, the server counts its own
// streams only.
func (s *Streams) Failed(now time.Time) {
	s.reporting, s.away = false, true
	s.others, s.retry = 0, now.Add(RetryUnavailable)
}

// Status returns the state of the limit. The end of a stream is not known in advance: the reset is
// when a retry is useful.
func (s *Streams) Status() Status {
	return Status{Limit: s.limit, Remaining: max(0, s.limit-s.open-s.others), Reset: streamsFresh}
}

// Idle reports whether the limit can be dropped without loss.
func (s *Streams) Idle() bool { return !s.reporting && s.open == 0 && s.reported == 0 }
