package daemon

import (
	"context"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"

	"go.arco.dev/servo/internal/base/telemetry"
	"go.arco.dev/servo/internal/domain/run"
	"go.arco.dev/servo/internal/engine"
)

// spans puts what the engine did for a run into the run's trace, after the commit, with the
// times that the database gave it. A batch of the engine serves many traces, so nothing is
// measured inside of it; what belongs to no sampled trace costs a look at its flag.
type spans struct {
	tracer trace.Tracer
	now    func() time.Time
}

// Committed implements engine.Observer.
func (s spans) Committed(done *engine.Committed) {
	for i := range done.Runs {
		if ctx, sampled := under(done.Runs[i].Run.Trace); sampled {
			s.run(ctx, &done.Runs[i], done.At)
		}
	}
	for i := range done.Tasks {
		m := &done.Tasks[i]
		if m.From != run.Queued || !m.To.Leased() {
			continue
		}
		if ctx, sampled := under(m.Trace); sampled {
			since := m.ReadyAt // from ready to leased: what it has waited
			if since.IsZero() {
				since = m.Since
			}
			s.span(ctx, "dispatch_task", since, done.At, "", attribute.String("servo.run", m.Run.String()), attribute.String("servo.task", m.Task.String()),
				attribute.String("servo.asset", m.Asset), attribute.String("servo.pool", m.Pool), attribute.Int("servo.attempt", int(m.Attempt)))
		}
	}
}

// run records a span for a run that was created, started or ended.
func (s spans) run(ctx context.Context, c *engine.RunChange, at time.Time) {
	r := c.Run
	about := []attribute.KeyValue{
		attribute.String("servo.tenant_id", r.Tenant.String()), attribute.String("servo.run", r.ID.String()), attribute.String("servo.pipeline", r.Pipeline),
		attribute.Int("servo.tasks", int(r.Total)), attribute.String("servo.state", r.State.String()),
	}
	committed := at
	if now := s.now(); now.After(at) { // the database's clock may be ahead of ours
		committed = now
	}
	if c.From == 0 {
		s.span(ctx, "plan_run", at, committed, "", about...)
	}
	if c.From == run.RunPending && r.State == run.RunRunning {
		s.span(ctx, "start_run", r.CreatedAt, at, "", about...) // what it has waited
	}
	if r.State.Terminal() && !c.From.Terminal() {
		problem := ""
		if r.State != run.RunSucceeded {
			problem = r.State.String()
		}
		s.span(ctx, "finalize_run", at, committed, problem, about...)
	}
}

// span is a span that is over.
func (s spans) span(ctx context.Context, name string, from, to time.Time, problem string, about ...attribute.KeyValue) {
	_, span := s.tracer.Start(ctx, name, trace.WithTimestamp(from), trace.WithAttributes(about...))
	if problem != "" {
		span.SetStatus(codes.Error, problem)
	}
	span.End(trace.WithTimestamp(to))
}

// under is a context of a sampled trace.
func under(traceparent string) (context.Context, bool) {
	sc, ok := telemetry.Parse(traceparent)
	if !ok || !sc.IsSampled() {
		return nil, false
	}
	return trace.ContextWithRemoteSpanContext(context.Background(), sc), true
}

// Refused implements engine.Observer. The span of the call has the refusal.
func (spans) Refused(string) {}

// Contended implements engine.Observer: likewise.
func (spans) Contended(bool, time.Duration) {}

// Decided implements engine.Observer.
func (spans) Decided([]engine.SlotsDecided) {}

// Admitted implements engine.Observer. A round serves many traces, and is one of its own.
func (s spans) Admitted(round engine.AdmissionRound) {
	if round.Admitted == 0 && !round.Failed {
		return
	}
	problem := ""
	if round.Failed {
		problem = "the round failed"
	}
	now := s.now()
	s.span(context.Background(), "admit", now.Add(-round.Took), now, problem, attribute.Int("servo.admitted", round.Admitted))
}
