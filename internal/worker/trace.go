package worker

import (
	"context"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"

	"go.arco.dev/servo/internal/base/telemetry"
)

// traced sets the trace of an attempt's run as parent, so that spans of its code belong to it, and
// starts a span if the worker has a tracer.
func (w *Worker) traced(ctx context.Context, a *attempt) (context.Context, trace.Span) {
	l := a.lease
	ctx = telemetry.Under(ctx, telemetry.Join(l.GetTraceParent(), l.GetTraceState()))
	if w.options.Tracer == nil {
		return ctx, nil
	}
	return w.options.Tracer.Start(ctx, "worker.execute", trace.WithSpanKind(trace.SpanKindConsumer), trace.WithAttributes(
		attribute.String("servo.tenant", l.GetTenant()), attribute.String("servo.run", l.GetRun()), attribute.String("servo.task", l.GetTask()),
		attribute.Int("servo.attempt", int(l.GetAttempt())), attribute.String("servo.asset", l.GetAsset()),
		attribute.String("servo.partition", l.GetPartition()), attribute.String("servo.worker", w.options.ID)))
}

// step starts the span of a part of an attempt.
func (w *Worker) step(ctx context.Context, name string) (context.Context, trace.Span) {
	if w.options.Tracer == nil {
		return ctx, nil
	}
	return w.options.Tracer.Start(ctx, name)
}

// endSpan ends a span, if there is one, with its error.
func endSpan(span trace.Span, err error) {
	if span == nil {
		return
	}
	if err != nil {
		span.SetStatus(codes.Error, cut(storable(err.Error()), maxMessage))
	}
	span.End()
}

// traceOf returns the trace for code outside of this process; "" without one.
func traceOf(ctx context.Context) string {
	return telemetry.Format(trace.SpanContextFromContext(ctx))
}
