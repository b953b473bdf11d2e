// Package ratelimit decides which calls of a tenant exceed its rate limits. Several servers share a
// limit: each leases tokens from the database and decides on its own between two leases. The package
// is pure: it reads no clock and no database, and never blocks. Its user requests leases when Needs
// reports true, and protects a meter with a lock.
package ratelimit

import (
	"fmt"
	"time"

	"go.arco.dev/servo/internal/base/fault"
)

// Class is a kind of calls that share a limit.
type Class int16

// The classes. The numbers are stored.
const (
	Unlimited Class = iota
	Trigger         // creates runs
	List            // reads pages
	Deploy          // deploys; each workspace has its own limit
	Stream          // streams, limited by their number
)

// String returns the name of a class.
func (c Class) String() string {
	switch c {
	case Trigger:
		return "trigger"
	case List:
		return "list"
	case Deploy:
		return "deploy"
	case Stream:
		return "stream"
	case Unlimited:
	}
	return "unlimited"
}

// Window is the period of a rate limit. It begins with each minute of the database's clock.
const Window = time.Minute

// Limits are the rate limits of a tenant. 0 is no limit.
type Limits struct {
	Trigger int // in a window
	List    int // in a window
	Deploy  int // in a window, for each workspace
	Streams int // concurrent
}

// Defaults returns the limits of a server without rate limit flags.
func Defaults() Limits { return Limits{Trigger: 100, List: 1000, Deploy: 10, Streams: 10} }

// Of returns the limit of a class; 0 is no limit.
func (l Limits) Of(c Class) int {
	switch c {
	case Trigger:
		return l.Trigger
	case List:
		return l.List
	case Deploy:
		return l.Deploy
	case Stream:
		return l.Streams
	case Unlimited:
	}
	return 0
}

// maxLimit keeps sums of what many servers have leased within 32 bits.
const maxLimit = 1_000_000

// Check validates the limits. Errors name the flags.
func (l Limits) Check() error {
	for _, f := range []struct {
		flag  string
		limit int
	}{{"--rate-trigger", l.Trigger}, {"--rate-list", l.List}, {"--rate-deploy", l.Deploy}, {"--max-streams", l.Streams}} {
		if f.limit < 0 || f.limit > maxLimit {
			return fault.New(fault.InvalidArgument, fmt.Sprintf("%d is out of range", f.limit), fault.Field(f.flag),
				fault.Remedy(fmt.Sprintf("use 1 to %d, or 0 for no limit", maxLimit)))
		}
	}
	return nil
}

// Chunk returns how many calls of a limit a server leases at once. A server also permits that many
// calls before it has a lease, so that the total may exceed the limit by one chunk for each server.
func Chunk(limit int) int { return max(1, limit/10) }

// Verdict is the decision about a call.
type Verdict int

// The verdicts.
const (
	Pass   Verdict = iota
	Refuse         // the limit is reached
	Wait           // for the pending lease, then decide again
)

// RetryUnavailable is how long to wait between two requests to an unavailable database.
const RetryUnavailable = time.Second
