package web

import (
	"context"
	"fmt"
	"sync"
	"time"

	"go.arco.dev/servo/internal/base/fault"
)

// Limits of concurrent live pages of one server.
const (
	maxLivePages   = 500 // of all sessions
	maxTenantPages = 100 // of visitors of one tenant
	maxSessionPage = 20  // of one session
)

// livePages counts the live pages and ends those of sessions that end. Each session and each
// tenant has a limit, so that none uses the capacity of the others.
type livePages struct {
	mu       sync.Mutex
	open     int
	tenants  map[string]int
	sessions map[string]*sessionPages
}

// sessionPages is the live pages of one session.
type sessionPages struct {
	open  map[int]context.CancelFunc
	next  int
	ended time.Time // logged out: refused until the expiry of its cookie
}

func newLivePages() *livePages {
	return &livePages{tenants: map[string]int{}, sessions: map[string]*sessionPages{}}
}

// add registers a live page of a session and a tenant; a session or tenant "" has no limit of its
// own. The page is cancelled when the session ends.
func (s *livePages) add(session, tenant string, cancel context.CancelFunc) (remove func(), err error) {
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
	case s.open >= maxLivePages:
		return nil, tooManyPages("this server", maxLivePages, fault.Unavailable)
	}
	if mine == nil {
		mine = &sessionPages{open: map[int]context.CancelFunc{}}
		s.sessions[session] = mine
	}
	place := mine.next
	mine.next++
	mine.open[place] = cancel
	s.open++
	s.tenants[tenant]++
	return func() { s.remove(session, tenant, place) }, nil
}

func (s *livePages) remove(session, tenant string, place int) {
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

// end closes the pages of a session and refuses new ones until the expiry of its cookie.
func (s *livePages) end(session string, until, now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for name, other := range s.sessions { // logouts are rare
		if !other.ended.IsZero() && !now.Before(other.ended) && len(other.open) == 0 {
			delete(s.sessions, name)
		}
	}
	mine := s.sessions[session]
	if mine == nil {
		mine = &sessionPages{open: map[int]context.CancelFunc{}}
		s.sessions[session] = mine
	}
	mine.ended = until
	for _, cancel := range mine.open {
		cancel()
	}
}

// hasEnded reports whether a session was logged out on this server.
func (s *livePages) hasEnded(session string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	mine := s.sessions[session]
	return mine != nil && !mine.ended.IsZero()
}

func tooManyPages(who string, limit int, code fault.Code) error {
	return fault.New(code, fmt.Sprintf("%s has %d live pages open, which is the limit", who, limit), fault.RetryAfter(time.Minute),
		fault.Remedy("close other pages, or reload this page to refresh it"), fault.Value("limit", limit))
}
