// Package problem is the one place where faults become statuses: gRPC's with a Problem in
// the details, and HTTP's with application/problem+json. What is no fault is our mistake: it
// is answered as INTERNAL without a word of what happened.
package problem

import (
	"context"
	"errors"
	"net/http"
	"strings"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/structpb"

	servov1 "go.arco.dev/servo/gen/servo/v1"
	"go.arco.dev/servo/internal/base/fault"
)

// The codes that exist only at the edge: what HTTP and gRPC refuse before a call is made, or
// give up while it goes on.
const (
	MethodNotAllowed     fault.Code = "METHOD_NOT_ALLOWED"     // the path is there, for other methods
	UnsupportedMediaType fault.Code = "UNSUPPORTED_MEDIA_TYPE" // the body is not JSON
	TooLarge             fault.Code = "TOO_LARGE"              // the message is over the size limit
	RequestTimeout       fault.Code = "REQUEST_TIMEOUT"        // the body did not come in time
	Cancelled            fault.Code = "CANCELLED"              // the caller has gone
	DeadlineExceeded     fault.Code = "DEADLINE_EXCEEDED"      // the caller's time is over
	Unimplemented        fault.Code = "UNIMPLEMENTED"          // this server does not know the call
)

// statusClientGone is what an access log shows for a caller that did not wait; no such
// status is registered, and nobody is there to read it.
const statusClientGone = 499

// kind is what a code becomes at the two edges.
type kind struct {
	grpc  codes.Code
	http  int
	title string
}

// kindOf maps every code.
func kindOf(code fault.Code) kind {
	switch code {
	case fault.InvalidArgument:
		return kind{codes.InvalidArgument, http.StatusBadRequest, "Invalid argument"}
	case fault.InvalidManifest:
		return kind{codes.InvalidArgument, http.StatusBadRequest, "Invalid manifest"}
	case fault.CycleDetected:
		return kind{codes.InvalidArgument, http.StatusBadRequest, "Assets depend on each other in a circle"}
	case fault.NotFound:
		return kind{codes.NotFound, http.StatusNotFound, "Not found"}
	case fault.AlreadyExists:
		return kind{codes.AlreadyExists, http.StatusConflict, "Already exists"}
	case fault.Conflict:
		return kind{codes.FailedPrecondition, http.StatusConflict, "Not possible in this state"}
	case fault.Stale:
		return kind{codes.Aborted, http.StatusConflict, "The lease is no longer held"}
	case fault.LimitExceeded:
		return kind{codes.ResourceExhausted, http.StatusTooManyRequests, "Over a limit"}
	case fault.Unavailable:
		return kind{codes.Unavailable, http.StatusServiceUnavailable, "Not available now"}
	case fault.Unauthenticated:
		return kind{codes.Unauthenticated, http.StatusUnauthorized, "A key is needed"}
	case fault.Forbidden:
		return kind{codes.PermissionDenied, http.StatusForbidden, "Not permitted"}
	case MethodNotAllowed:
		return kind{codes.Unimplemented, http.StatusMethodNotAllowed, "Method not allowed"}
	case UnsupportedMediaType:
		return kind{codes.InvalidArgument, http.StatusUnsupportedMediaType, "Unsupported media type"}
	case TooLarge:
		return kind{codes.ResourceExhausted, http.StatusRequestEntityTooLarge, "Too large"}
	case RequestTimeout:
		return kind{codes.DeadlineExceeded, http.StatusRequestTimeout, "The request took too long to arrive"}
	case Cancelled:
		return kind{codes.Canceled, statusClientGone, "Cancelled by the caller"}
	case DeadlineExceeded:
		return kind{codes.DeadlineExceeded, http.StatusGatewayTimeout, "The time is over"}
	case Unimplemented:
		return kind{codes.Unimplemented, http.StatusNotImplemented, "Not implemented"}
	case fault.Internal:
	}
	return kind{codes.Internal, http.StatusInternalServerError, "Internal error"}
}

// Of is the problem of an error, as the API's messages carry it.
func Of(err error) *servov1.Problem {
	f, ok := fault.As(err)
	if !ok {
		return &servov1.Problem{Code: string(fault.Internal), Message: "something went wrong on our side", Remedy: "try again; if it stays, look at the server's log"}
	}
	p := &servov1.Problem{Code: string(f.Code), Message: text(f.Message), Field: text(f.Violation.Field), Remedy: text(f.Violation.Remedy)}
	if len(f.Others) > 0 {
		for _, v := range f.Violations() {
			p.Violations = append(p.Violations, &servov1.Violation{Code: string(v.Code), Message: text(v.Message), Field: text(v.Field), Remedy: text(v.Remedy)})
		}
	}
	if len(f.Values) > 0 {
		p.Values = values(f.Values)
	}
	if f.RetryAfter > 0 {
		p.RetryAfter = durationpb.New(f.RetryAfter)
	}
	return p
}

// text makes sure that what a caller has sent and a message repeats can be sent back: a
// Problem with other bytes than UTF-8 would be lost on the way.
func text(of string) string { return strings.ToValidUTF8(of, "\uFFFD") }

// values keeps what JSON can carry; a figure that it cannot is left out.
func values(of map[string]any) *structpb.Struct {
	out := &structpb.Struct{Fields: map[string]*structpb.Value{}}
	for key, value := range of {
		if v, err := structpb.NewValue(value); err == nil {
			out.Fields[key] = v
		}
	}
	return out
}

// Status is the gRPC status of an error. A status stays what it is.
func Status(err error) *status.Status {
	if err == nil {
		return nil
	}
	if _, isFault := fault.As(err); !isFault {
		if st, ok := status.FromError(err); ok {
			return st
		}
		switch {
		case errors.Is(err, context.Canceled):
			return status.New(codes.Canceled, "the caller has gone")
		case errors.Is(err, context.DeadlineExceeded):
			return status.New(codes.DeadlineExceeded, "the caller's time is over")
		}
	}
	p := Of(err)
	st := status.New(kindOf(fault.Code(p.GetCode())).grpc, p.GetMessage())
	if detailed, err := st.WithDetails(p); err == nil {
		st = detailed
	}
	return st
}
