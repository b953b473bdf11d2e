package api

import (
	"time"

	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"go.arco.dev/servo/internal/base/fault"
	"go.arco.dev/servo/internal/domain/tenant"
)

// orDefault returns the workspace of a request, or the default one.
func orDefault(workspace string) string {
	if workspace == "" {
		return tenant.DefaultWorkspace
	}
	return workspace
}

// timeOf returns a time that may be unset.
func timeOf(field string, t *timestamppb.Timestamp) (time.Time, error) {
	if t == nil {
		return time.Time{}, nil
	}
	if err := t.CheckValid(); err != nil {
		return time.Time{}, fault.New(fault.InvalidArgument, "is not a time", fault.Field(field),
			fault.Remedy("send a time such as 2026-01-31T12:00:00Z"), fault.Cause(err))
	}
	return t.AsTime(), nil
}

// timestamp leaves out a time that is not set.
func timestamp(t time.Time) *timestamppb.Timestamp {
	if t.IsZero() {
		return nil
	}
	return timestamppb.New(t)
}

// duration leaves out a duration that is not set.
func duration(d time.Duration) *durationpb.Duration {
	if d == 0 {
		return nil
	}
	return durationpb.New(d)
}
