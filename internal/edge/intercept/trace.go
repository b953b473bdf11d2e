package intercept

import (
	"context"
	"strings"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"go.arco.dev/servo/internal/base/telemetry"
)

// startSpan starts the span of a call, below the caller's span if the call names one that can be
// parsed. Calls of workers are traced only if the worker traces them, because workers poll. It
// does nothing if traces are disabled.
func (c *Chain) startSpan(ctx context.Context, method, tenant string) (context.Context, trace.Span) {
	if c.options.Tracer == nil {
		return ctx, nil
	}
	parent, sent := callersTrace(ctx)
	if !sent && strings.HasPrefix(method, "/servo.v1.WorkerService/") {
		return ctx, nil
	}
	if sent {
		ctx = trace.ContextWithRemoteSpanContext(ctx, parent)
	}
	name := strings.TrimPrefix(method, "/")
	service, call, _ := strings.Cut(name, "/")
	return c.options.Tracer.Start(ctx, name, trace.WithSpanKind(trace.SpanKindServer), trace.WithAttributes(
		attribute.String("rpc.system", "grpc"), attribute.String("rpc.service", service), attribute.String("rpc.method", call),
		attribute.String("servo.tenant", tenant)))
}

// endSpan ends the span of a call, if it has one.
func endSpan(span trace.Span, err error) {
	if span == nil {
		return
	}
	st := status.Convert(err)
	span.SetAttributes(attribute.Int("rpc.grpc.status_code", int(st.Code())))
	if err != nil {
		span.SetStatus(codes.Error, st.Message())
	}
	span.End()
}

// traceparent returns the trace that events record for a call: that of the call's own span, else the
// one that the caller sent.
func traceparent(ctx context.Context) string {
	if sc := trace.SpanContextFromContext(ctx); sc.IsValid() {
		return telemetry.Format(sc)
	}
	sc, ok := callersTrace(ctx)
	if !ok {
		return ""
	}
	return telemetry.Format(sc)
}

// callersTrace returns the trace that the caller sent.
func callersTrace(ctx context.Context) (trace.SpanContext, bool) {
	return telemetry.Parse(telemetry.Join(header(ctx, "traceparent"), strings.Join(metadata.ValueFromIncomingContext(ctx, "tracestate"), ",")))
}
