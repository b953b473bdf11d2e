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

// The codes of problems that a worker treats specially.
const (
	problemUnavailable = string(fault.Unavailable)
	problemInternal    = string(fault.Internal)
	problemStale       = string(fault.Stale)
	problemNotFound    = string(fault.NotFound)
	problemConflict    = string(fault.Conflict)
)

// errMiscounted is an error of the server.
var errMiscounted = status.Error(codes.Internal, "the server did not answer each item")

// The waits between attempts.
const (
	firstPause = 50 * time.Millisecond
	maxPause   = 2 * time.Second
	// maxAsked bounds the delay that a server may request: a worker that sleeps for an hour looks
	// dead.
	maxAsked = 30 * time.Second
)

// pauseOf returns the wait after a number of attempts: it grows, with jitter so that workers do not
// retry together.
func pauseOf(tries int) time.Duration {
	pause := min(firstPause<<min(tries, 10), maxPause)
	return pause/2 + time.Duration(rand.Int64N(int64(pause/2)+1)) //nolint:gosec // a spread, not a secret
}

// link tracks whether the server responds, and logs when that changes.
type link struct {
	conn grpc.ClientConnInterface
	log  *slog.Logger

	mu   sync.Mutex
	away bool
}

// record records how a call ended.
func (l *link) record(call string, err error) {
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
		l.log.Warn("cannot reach the server, retrying", "call", call, "error", err)
	case changed:
		l.log.Info("the server responds again", "call", call)
	}
}

// pauseAfter returns the delay that the server requests. It also makes the connection reconnect soon:
// its own backoff grows to minutes.
func (l *link) pauseAfter(err error) time.Duration {
	if c, ok := l.conn.(interface{ ResetConnectBackoff() }); ok && codeOf(err) == codes.Unavailable {
		c.ResetConnectBackoff()
	}
	return min(problemOf(err).GetRetryAfter().AsDuration(), maxAsked)
}

// codeOf returns the gRPC code of an error.
func codeOf(err error) codes.Code { return status.Code(err) }

// problemOf returns the problem of a refused call.
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

// refusal converts a problem to an error for the author of the code.
func refusal(p *servov1.Problem) *fault.Fault {
	return fault.New(fault.Code(p.GetCode()), p.GetMessage(), fault.Field(p.GetField()), fault.Remedy(p.GetRemedy()),
		fault.RetryAfter(p.GetRetryAfter().AsDuration()))
}
