package api

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

// traced begins the span of a call, under the caller's if it has sent one; what cannot be
// read begins a trace of its own. What workers ask again and again is traced for callers who
// trace it alone: a parked claim is nobody's trace. Nothing is done when traces are off.
func (s *Server) traced(ctx context.Context, method, tenant string) (context.Context, trace.Span) {
	if s.config.Tracer == nil {
		return ctx, nil
	}
	parent, told := callersTrace(ctx)
	if !told && strings.HasPrefix(method, "/servo.v1.WorkerService/") {
		return ctx, nil
	}
	if told {
		ctx = trace.ContextWithRemoteSpanContext(ctx, parent)
	}
	name := strings.TrimPrefix(method, "/")
	service, call, _ := strings.Cut(name, "/")
	return s.config.Tracer.Start(ctx, name, trace.WithSpanKind(trace.SpanKindServer), trace.WithAttributes(
		attribute.String("rpc.system", "grpc"), attribute.String("rpc.service", service), attribute.String("rpc.method", call),
		attribute.String("servo.tenant", tenant)))
}

// ended ends the span of a call, if there is one.
func ended(span trace.Span, err error) {
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

// traceparent is the trace that events record of a call: under the call's own span if it has
// one, else what the caller has sent.
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

// callersTrace is the trace that the caller has sent.
func callersTrace(ctx context.Context) (trace.SpanContext, bool) {
	return telemetry.Parse(telemetry.Join(header(ctx, "traceparent"), strings.Join(metadata.ValueFromIncomingContext(ctx, "tracestate"), ",")))
}
