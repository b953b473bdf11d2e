// Package problem maps faults to statuses: of gRPC with a Problem in the details, and of HTTP with
// application/problem+json. An error that is no fault is answered as INTERNAL without its cause.
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

// The codes that exist only at the edge: of requests that HTTP or gRPC refuse, and of cancelled calls.
const (
	MethodNotAllowed     fault.Code = "METHOD_NOT_ALLOWED"     // the path has other methods
	UnsupportedMediaType fault.Code = "UNSUPPORTED_MEDIA_TYPE" // the body is not JSON
	TooLarge             fault.Code = "TOO_LARGE"              // the message is over the size limit
	RequestTimeout       fault.Code = "REQUEST_TIMEOUT"        // the body did not arrive in time
	Cancelled            fault.Code = "CANCELLED"              // the caller cancelled the call
	DeadlineExceeded     fault.Code = "DEADLINE_EXCEEDED"      // the caller's deadline has passed
	Unimplemented        fault.Code = "UNIMPLEMENTED"          // this server does not know the call
)

// statusClientGone is the status in access logs for a caller that cancelled. It is not registered, and
// no client receives it.
const statusClientGone = 499

// kind is the mapping of a code to gRPC and HTTP.
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
		return kind{codes.DeadlineExceeded, http.StatusGatewayTimeout, "Deadline exceeded"}
	case Unimplemented:
		return kind{codes.Unimplemented, http.StatusNotImplemented, "Not implemented"}
	case fault.Internal:
	}
	return kind{codes.Internal, http.StatusInternalServerError, "Internal error"}
}

// Of returns the problem of an error.
func Of(err error) *servov1.Problem {
	f, ok := fault.As(err)
	if !ok {
		return &servov1.Problem{Code: string(fault.Internal), Message: "internal error", Remedy: "retry; if the error persists, check the server's log"}
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

// text replaces invalid UTF-8, which a message may repeat from a request: gRPC drops a Problem with
// invalid text.
func text(of string) string { return strings.ToValidUTF8(of, "\uFFFD") }

// values maps the values that JSON can represent, and drops others.
func values(of map[string]any) *structpb.Struct {
	out := &structpb.Struct{Fields: map[string]*structpb.Value{}}
	for key, value := range of {
		if v, err := structpb.NewValue(value); err == nil {
			out.Fields[key] = v
		}
	}
	return out
}

// Status returns the gRPC status of an error. It does not change a status.
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
			return status.New(codes.Canceled, "the caller cancelled the call")
		case errors.Is(err, context.DeadlineExceeded):
			return status.New(codes.DeadlineExceeded, "the caller's deadline has passed")
		}
	}
	p := Of(err)
	st := status.New(kindOf(fault.Code(p.GetCode())).grpc, p.GetMessage())
	if detailed, err := st.WithDetails(p); err == nil {
		st = detailed
	}
	return st
}
