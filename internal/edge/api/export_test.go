package api

import (
	"time"

	"go.arco.dev/servo/internal/edge/intercept"
	"go.arco.dev/servo/internal/store"
)

// What tests of the edge look at from outside.
var (
	JSONOf       = jsonOf
	JSONOfStruct = jsonOfStruct
	ValueOf      = valueOf
	ETA          = etaOf
)

// Handle writes the handle of a lease.
func Handle(key store.TaskKey, attempt int32, token int64) string {
	return handle{TaskKey: key, attempt: attempt, token: token}.encode()
}

// ReadHandle reads one.
func ReadHandle(text string) (key store.TaskKey, attempt int32, token int64, err error) {
	h, err := decodeHandle(text)
	return h.TaskKey, h.attempt, h.token, err
}

// Cut shortens texts to a page.
func Cut(req intercept.ListRequest, entries []string) (kept []string, next string, err error) {
	p, err := pageOf(req)
	if err != nil {
		return nil, "", err
	}
	kept, next = cut(p, entries, func(s string) string { return s }, func(s string) int { return len(s) })
	return kept, next, nil
}

// MaxPageBytes bounds a page.
const MaxPageBytes = maxPageBytes

// GatherUses makes the server write the last uses of keys at once.
func (s *Server) GatherUses() { s.SetTiming(func(t *intercept.Timing) { t.KeyUses = 0 }) }

// SetRateClock sets the clock of the rate limits. The server must not have been called yet.
func (s *Server) SetRateClock(now func() time.Time) {
	s.SetTiming(func(t *intercept.Timing) { t.Now = now })
}

// SetPatience sets how long a call waits for its twin. The server must not have been called yet.
func (s *Server) SetPatience(d time.Duration) {
	s.SetTiming(func(t *intercept.Timing) { t.TwinPatience = d })
}
