// Package problem is the one place where faults become statuses: gRPC's with a Problem in
// the details, and HTTP's with application/problem+json. What is no fault is our mistake: it
// is answered as INTERNAL without a word of what happened.
package problem

import (
	"context"
	"errors"
	"net/http"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/structpb"

	servov1 "go.arco.dev/servo/gen/servo/v1"
	"go.arco.dev/servo/internal/fault"
)

// kind is what a code becomes at the two edges.
type kind struct {
	grpc codes.Code
	http int
}

// kindOf maps every code of a fault.
func kindOf(code fault.Code) kind {
	switch code {
	case fault.InvalidArgument, fault.InvalidManifest, fault.CycleDetected:
		return kind{codes.InvalidArgument, http.StatusBadRequest}
	case fault.NotFound:
		return kind{codes.NotFound, http.StatusNotFound}
	case fault.AlreadyExists:
		return kind{codes.AlreadyExists, http.StatusConflict}
	case fault.Conflict:
		return kind{codes.FailedPrecondition, http.StatusConflict}
	case fault.Stale:
		return kind{codes.Aborted, http.StatusConflict}
	case fault.LimitExceeded:
		return kind{codes.ResourceExhausted, http.StatusTooManyRequests}
	case fault.Unavailable:
		return kind{codes.Unavailable, http.StatusServiceUnavailable}
	case fault.Internal:
	}
	return kind{codes.Internal, http.StatusInternalServerError}
}

// Of is the problem of an error, as the API's messages carry it.
func Of(err error) *servov1.Problem {
	f, ok := fault.As(err)
	if !ok {
		return &servov1.Problem{Code: string(fault.Internal), Message: "something went wrong on our side", Remedy: "try again; if it stays, look at the server's log"}
	}
	p := &servov1.Problem{Code: string(f.Code), Message: f.Message, Field: f.Violation.Field, Remedy: f.Violation.Remedy}
	if len(f.Others) > 0 {
		for _, v := range f.Violations() {
			p.Violations = append(p.Violations, &servov1.Violation{Code: string(v.Code), Message: v.Message, Field: v.Field, Remedy: v.Remedy})
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
