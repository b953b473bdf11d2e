package api

import (
	"context"
	"time"

	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"go.arco.dev/servo/internal/base/event"
	"go.arco.dev/servo/internal/base/fault"
	"go.arco.dev/servo/internal/domain/tenant"
	"go.arco.dev/servo/internal/engine"
)

// metaOf is what events record about a call: who, and in which trace.
func metaOf(ctx context.Context) event.Meta {
	return event.Meta{Actor: callerOf(ctx).Actor, Trace: traceparent(ctx)}
}

// header is the first value of a metadata key, "" if there is none.
func header(ctx context.Context, key string) string {
	if values := metadata.ValueFromIncomingContext(ctx, key); len(values) > 0 {
		return values[0]
	}
	return ""
}

// idempotencyKey is what makes a repeat of a call return its first answer.
func idempotencyKey(ctx context.Context) (string, error) {
	values := metadata.ValueFromIncomingContext(ctx, "idempotency-key")
	switch {
	case len(values) == 0:
		return "", nil
	case len(values) > 1:
		return "", fault.New(fault.InvalidArgument, "is there several times", fault.Field("idempotency_key"), fault.Remedy("send one"))
	}
	return values[0], engine.CheckIdempotencyKey(values[0])
}

// orDefault is the workspace that is meant when none is said.
func orDefault(workspace string) string {
	if workspace == "" {
		return tenant.DefaultWorkspace
	}
	return workspace
}

// timeOf reads a time that may be left out.
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
