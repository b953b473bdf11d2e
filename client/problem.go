package client

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	servov1 "go.arco.dev/servo/gen/servo/v1"
)

// The codes that a problem may have.
const (
	InvalidArgument  = "INVALID_ARGUMENT"  // the request can never work as it is
	InvalidManifest  = "INVALID_MANIFEST"  // a manifest breaks a rule
	CycleDetected    = "CYCLE_DETECTED"    // assets depend on each other in a circle
	Unauthenticated  = "UNAUTHENTICATED"   // no valid key
	Forbidden        = "FORBIDDEN"         // the key does not permit this
	NotFound         = "NOT_FOUND"         // no such thing, or not yours
	AlreadyExists    = "ALREADY_EXISTS"    // the name is taken
	Conflict         = "CONFLICT"          // the thing is in a state that does not allow this
	Stale            = "STALE"             // the lease has expired or another worker holds it
	LimitExceeded    = "LIMIT_EXCEEDED"    // over a quota or a size limit
	Unavailable      = "UNAVAILABLE"       // no server answers, or not now
	Internal         = "INTERNAL"          // the server's mistake
	DeadlineExceeded = "DEADLINE_EXCEEDED" // the context's time was over first
	Cancelled        = "CANCELLED"         // the caller gave up
	Unimplemented    = "UNIMPLEMENTED"     // an older server that does not know the call
)

// Problem is why a call failed, written for the person who reads it. Every error of a
// client's calls is one; find it with errors.As, or ask with Is.
type Problem struct {
	Code    string
	Message string
	Field   string // of the request
	Remedy  string
	// Violations are all broken rules, the first one included, if there are several.
	Violations []Violation
	// Values are the figures behind the message.
	Values map[string]any
	// RetryAfter is when the same call may work.
	RetryAfter time.Duration

	status *status.Status
}

// Violation is one broken rule of a request.
type Violation struct {
	Code, Message, Field, Remedy string
}

// Error is the whole message on one line.
func (p *Problem) Error() string {
	var text strings.Builder
	if p.Field != "" {
		text.WriteString(p.Field + ": ")
	}
	text.WriteString(p.Message)
	if p.Remedy != "" {
		text.WriteString(" (" + p.Remedy + ")")
	}
	if n := len(p.Violations); n > 1 {
		fmt.Fprintf(&text, ", and %d more", n-1)
	}
	return text.String()
}

// GRPCStatus keeps the problem a status to those who look for one.
func (p *Problem) GRPCStatus() *status.Status {
	if p.status != nil {
		return p.status
	}
	return status.New(codes.Unknown, p.Error())
}

// Unwrap lets errors.Is find the error of a context.
func (p *Problem) Unwrap() error {
	switch p.Code {
	case Cancelled:
		return context.Canceled
	case DeadlineExceeded:
		return context.DeadlineExceeded
	}
	return nil
}

// Is reports whether err is a problem with that code.
func Is(err error, code string) bool {
	p, ok := errors.AsType[*Problem](err)
	return ok && p.Code == code
}

// problemOf turns an error of gRPC into a problem. It does not change other errors, such as io.EOF at the
// end of a stream.
func problemOf(err error) error {
	if err == nil {
		return nil
	}
	if _, done := errors.AsType[*Problem](err); done {
		return err
	}
	st, ok := status.FromError(err)
	if !ok {
		return err
	}
	for _, detail := range st.Details() {
		if message, ok := detail.(*servov1.Problem); ok {
			return fromMessage(message, st)
		}
	}
	p := &Problem{Code: codeOf(st.Code()), Message: st.Message(), status: st}
	if message, remedy, known := connectProblem(st.Message()); known && p.Code == Unavailable {
		p.Message, p.Field, p.Remedy = message, "servers", remedy
	}
	return p
}

// FromMessage returns a problem from an answer, such as that of one report among many.
func FromMessage(message *servov1.Problem) *Problem { return fromMessage(message, nil) }

func fromMessage(message *servov1.Problem, st *status.Status) *Problem {
	p := &Problem{
		Code: message.GetCode(), Message: message.GetMessage(), Field: message.GetField(), Remedy: message.GetRemedy(),
		RetryAfter: message.GetRetryAfter().AsDuration(), status: st,
	}
	if message.GetValues() != nil {
		p.Values = message.GetValues().AsMap()
	}
	for _, v := range message.GetViolations() {
		p.Violations = append(p.Violations, Violation{Code: v.GetCode(), Message: v.GetMessage(), Field: v.GetField(), Remedy: v.GetRemedy()})
	}
	return p
}

// codeOf names a status that came without a problem: from gRPC itself, or from something
// between here and the server.
func codeOf(code codes.Code) string {
	switch code {
	case codes.InvalidArgument, codes.OutOfRange:
		return InvalidArgument
	case codes.NotFound:
		return NotFound
	case codes.AlreadyExists:
		return AlreadyExists
	case codes.FailedPrecondition:
		return Conflict
	case codes.Aborted:
		return Stale
	case codes.ResourceExhausted:
		return LimitExceeded
	case codes.Unavailable:
		return Unavailable
	case codes.DeadlineExceeded:
		return DeadlineExceeded
	case codes.Canceled:
		return Cancelled
	case codes.Unimplemented:
		return Unimplemented
	default:
		return Internal
	}
}
