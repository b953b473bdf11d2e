package intercept

import (
	"context"

	"google.golang.org/grpc/metadata"

	"go.arco.dev/servo/internal/base/event"
	"go.arco.dev/servo/internal/base/fault"
	"go.arco.dev/servo/internal/engine"
)

// Meta returns what events record about a call: its caller and its trace.
func Meta(ctx context.Context) event.Meta {
	return event.Meta{Actor: Caller(ctx).Actor, Trace: traceparent(ctx)}
}

// header returns the first value of a metadata key; empty if it is not set.
func header(ctx context.Context, key string) string {
	if values := metadata.ValueFromIncomingContext(ctx, key); len(values) > 0 {
		return values[0]
	}
	return ""
}

// IdempotencyKey returns the idempotency key of a call; empty if it has none.
func IdempotencyKey(ctx context.Context) (string, error) {
	values := metadata.ValueFromIncomingContext(ctx, "idempotency-key")
	switch {
	case len(values) == 0:
		return "", nil
	case len(values) > 1:
		return "", fault.New(fault.InvalidArgument, "is set more than once", fault.Field("idempotency_key"), fault.Remedy("send one key"))
	}
	return values[0], engine.CheckIdempotencyKey(values[0])
}
