package web

import (
	"context"
	"fmt"
	"sync"
	"time"

	"go.arco.dev/servo/internal/base/fault"
)

// How many pages may be open at once, on one server.
const (
	maxOpenPages   = 500 // of all sessions
	maxTenantPages = 100 // of callers of one tenant
	maxSessionPage = 20  // of one session
)

// seats counts the pages that are open, and ends those of sessions that end. Each session and each
// tenant has a limit, so that none takes the places of the others.
type seats struct {
	mu       sync.Mutex
	open     int
	tenants  map[string]int
	sessions map[string]*sessionSeats
}

// sessionSeats is the open pages of one session.
type sessionSeats struct {
	open  map[int]context.CancelFunc
	next  int
	ended time.Time // logged out: it is refused until its cookie would have expired
}

func newSeats() *seats {
	return &seats{tenants: map[string]int{}, sessions: map[string]*sessionSeats{}}
}

// take opens a page for a session and a tenant; "" is none, and has no limit of its own. The page is
// cancelled when the session ends.
func (s *seats) take(session, tenant string, cancel context.CancelFunc) (leave func(), err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	mine := s.sessions[session]
	switch {
	case mine != nil && !mine.ended.IsZero():
		return nil, errLoggedOut
	case session != "" && mine != nil && len(mine.open) >= maxSessionPage:
		return nil, tooManyPages("this session", maxSessionPage, fault.LimitExceeded)
	case tenant != "" && s.tenants[tenant] >= maxTenantPages:
		return nil, tooManyPages("the tenant", maxTenantPages, fault.LimitExceeded)
	case s.open >= maxOpenPages:
		return nil, tooManyPages("this server", maxOpenPages, fault.Unavailable)
	}
	if mine == nil {
		mine = &sessionSeats{open: map[int]context.CancelFunc{}}
		s.sessions[session] = mine
	}
	place := mine.next
	mine.next++
	mine.open[place] = cancel
	s.open++
	s.tenants[tenant]++
	return func() { s.leave(session, tenant, place) }, nil
}

func (s *seats) leave(session, tenant string, place int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	mine := s.sessions[session]
	delete(mine.open, place)
	if len(mine.open) == 0 && mine.ended.IsZero() {
		delete(s.sessions, session)
	}
	s.open--
	if s.tenants[tenant]--; s.tenants[tenant] == 0 {
		delete(s.tenants, tenant)
	}
}

// end closes the pages of a session and refuses new ones until its cookie would have expired.
func (s *seats) end(session string, until, now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for name, other := range s.sessions { // logouts are rare, and so are sessions that ended
		if !other.ended.IsZero() && !now.Before(other.ended) && len(other.open) == 0 {
			delete(s.sessions, name)
		}
	}
	mine := s.sessions[session]
	if mine == nil {
		mine = &sessionSeats{open: map[int]context.CancelFunc{}}
		s.sessions[session] = mine
	}
	mine.ended = until
	for _, cancel := range mine.open {
		cancel()
	}
}

// hasEnded reports whether a session was logged out on this server.
func (s *seats) hasEnded(session string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	mine := s.sessions[session]
	return mine != nil && !mine.ended.IsZero()
}

func tooManyPages(who string, limit int, code fault.Code) error {
	return fault.New(code, fmt.Sprintf("%s has %d live pages open, which is the limit", who, limit), fault.RetryAfter(time.Minute),
		fault.Remedy("close other pages, or reload this one to see what is new"), fault.Value("limit", limit))
}
