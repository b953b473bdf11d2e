package worker

import (
	"context"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"

	"go.arco.dev/servo/internal/base/telemetry"
)

// traced puts an attempt under the trace of its run, so that what its code traces belongs
// there too, and begins its span if the worker has a tracer.
func (w *Worker) traced(ctx context.Context, a *attempt) (context.Context, trace.Span) {
	l := a.lease
	ctx = telemetry.Under(ctx, telemetry.Join(l.GetTraceParent(), l.GetTraceState()))
	if w.config.Tracer == nil {
		return ctx, nil
	}
	return w.config.Tracer.Start(ctx, "worker.execute", trace.WithSpanKind(trace.SpanKindConsumer), trace.WithAttributes(
		attribute.String("servo.tenant", l.GetTenant()), attribute.String("servo.run", l.GetRun()), attribute.String("servo.task", l.GetTask()),
		attribute.Int("servo.attempt", int(l.GetAttempt())), attribute.String("servo.asset", l.GetAsset()),
		attribute.String("servo.partition", l.GetPartition()), attribute.String("servo.worker", w.config.ID)))
}

// step begins the span of a part of an attempt.
func (w *Worker) step(ctx context.Context, name string) (context.Context, trace.Span) {
	if w.config.Tracer == nil {
		return ctx, nil
	}
	return w.config.Tracer.Start(ctx, name)
}

// endSpan ends a span, if there is one, with what went wrong.
func endSpan(span trace.Span, err error) {
	if span == nil {
		return
	}
	if err != nil {
		span.SetStatus(codes.Error, cut(storable(err.Error()), maxMessage))
	}
	span.End()
}

// traceOf is the trace that code outside of this process belongs to; "" if there is none.
func traceOf(ctx context.Context) string {
	return telemetry.Format(trace.SpanContextFromContext(ctx))
}
