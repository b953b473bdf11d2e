package worker

import (
	"log/slog"
	"math/rand/v2"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	servov1 "go.arco.dev/servo/gen/servo/v1"
	"go.arco.dev/servo/internal/base/fault"
)

// The codes of problems that a worker treats in a special way.
const (
	problemUnavailable = string(fault.Unavailable)
	problemInternal    = string(fault.Internal)
	problemStale       = string(fault.Stale)
	problemNotFound    = string(fault.NotFound)
	problemConflict    = string(fault.Conflict)
)

// errMiscounted is a fault of the server's.
var errMiscounted = status.Error(codes.Internal, "the server has not answered each item")

// The waits between tries.
const (
	firstPause = 50 * time.Millisecond
	maxPause   = 2 * time.Second
	// maxAsked bounds how long a server may ask to wait: a worker that sleeps for an hour
	// looks dead.
	maxAsked = 30 * time.Second
)

// pauseOf is how long to wait after so many tries: longer each time, and never two workers
// at the same moment.
func pauseOf(tries int) time.Duration {
	pause := min(firstPause<<min(tries, 10), maxPause)
	return pause/2 + time.Duration(rand.Int64N(int64(pause/2)+1)) //nolint:gosec // a spread, not a secret
}

// link watches whether the server answers, and says so when that changes.
type link struct {
	conn grpc.ClientConnInterface
	log  *slog.Logger

	mu   sync.Mutex
	away bool
}

// heard notes how a call ended.
func (l *link) heard(call string, err error) {
	away := err != nil && judge(err) == unknown && codeOf(err) != codes.Canceled && !isDenied(err)
	if err != nil && !away {
		return
	}
	l.mu.Lock()
	changed := l.away != away
	l.away = away
	l.mu.Unlock()
	switch {
	case changed && away:
		l.log.Warn("cannot reach the server, trying again", "call", call, "error", err)
	case changed:
		l.log.Info("the server answers again", "call", call)
	}
}

// pauseAfter is how long the server asks to wait. It also asks the connection to be made
// anew soon: its own patience grows to minutes.
func (l *link) pauseAfter(err error) time.Duration {
	if c, ok := l.conn.(interface{ ResetConnectBackoff() }); ok && codeOf(err) == codes.Unavailable {
		c.ResetConnectBackoff()
	}
	return min(problemOf(err).GetRetryAfter().AsDuration(), maxAsked)
}

// codeOf is the gRPC code of an error.
func codeOf(err error) codes.Code { return status.Code(err) }

// problemOf is what a call was refused with.
func problemOf(err error) *servov1.Problem {
	st := status.Convert(err)
	for _, detail := range st.Details() {
		if p, ok := detail.(*servov1.Problem); ok {
			return p
		}
	}
	code := fault.Internal
	switch st.Code() { //nolint:exhaustive // the rest is internal
	case codes.InvalidArgument, codes.OutOfRange:
		code = fault.InvalidArgument
	case codes.ResourceExhausted:
		code = fault.LimitExceeded
	case codes.NotFound:
		code = fault.NotFound
	case codes.Unavailable, codes.DeadlineExceeded, codes.Canceled, codes.Unknown:
		code = fault.Unavailable
	case codes.FailedPrecondition:
		code = fault.Conflict
	case codes.Aborted:
		code = fault.Stale
	}
	return &servov1.Problem{Code: string(code), Message: st.Message()}
}

// refusal is a problem as an error for the author of the code that met it.
func refusal(p *servov1.Problem) *fault.Fault {
	return fault.New(fault.Code(p.GetCode()), p.GetMessage(), fault.Field(p.GetField()), fault.Remedy(p.GetRemedy()),
		fault.RetryAfter(p.GetRetryAfter().AsDuration()))
}
