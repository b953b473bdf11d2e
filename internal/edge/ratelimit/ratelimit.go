// Package ratelimit is how often a tenant may call, counted by several servers together: which
// classes of calls have a limit, and what a server decides by itself between two looks at what
// all of them share. It is pure: it reads no clock and no database, and it never waits. Its
// owner asks for leases when it says so, and guards it with a lock.
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
	Trigger         // makes runs
	List            // reads pages
	Deploy          // changes what a workspace has; each workspace has a limit of its own
	Stream          // stays open
)

// String is the name of a class in messages.
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

// Window is what rates are counted in. It begins with each minute of the database's clock.
const Window = time.Minute

// Limits are what one tenant may do. 0 is no limit; the zero value has none.
type Limits struct {
	Trigger int // in a window
	List    int // in a window
	Deploy  int // in a window, for each workspace
	Streams int // at a time
}

// Defaults are the limits of a server whose operator says nothing else.
func Defaults() Limits { return Limits{Trigger: 100, List: 1000, Deploy: 10, Streams: 10} }

// Of is the limit of a class; 0 is none.
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

// Check refuses limits that make no sense, by the names of their flags.
func (l Limits) Check() error {
	for _, f := range []struct {
		flag  string
		limit int
	}{{"--rate-trigger", l.Trigger}, {"--rate-list", l.List}, {"--rate-deploy", l.Deploy}, {"--max-streams", l.Streams}} {
		if f.limit < 0 || f.limit > maxLimit {
			return fault.New(fault.InvalidArgument, fmt.Sprintf("is %d", f.limit), fault.Field(f.flag),
				fault.Remedy(fmt.Sprintf("give 1 to %d, or 0 for no limit", maxLimit)))
		}
	}
	return nil
}

// Chunk is how many calls of a limit a server leases at once. It is also how many it lets pass
// before it has a lease for them: so far the total can be over the limit for each server.
func Chunk(limit int) int { return max(1, limit/10) }

// Verdict is what becomes of a call.
type Verdict int

// The verdicts.
const (
	Pass   Verdict = iota
	Refuse         // the limit is reached
	Wait           // until what was asked for has come; then it is to be decided again
)

// RetryAway is how often a database that was away is asked again.
const RetryAway = time.Second
