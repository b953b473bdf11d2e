package daemon

import (
	"context"
	"log/slog"
	"time"

	"go.arco.dev/servo/internal/domain/run"
	"go.arco.dev/servo/internal/edge/metrics"
	"go.arco.dev/servo/internal/engine"
)

// observe passes changes of the engine to metrics, the log, traces and the observer of the options.
func (d *Daemon) observe() {
	d.recorder = metrics.NewRecorder(d.config.TenantLabels, d.config.AssetLabels)
	all := observers{d.recorder, runLog{d.config.Logger}}
	if tracer := d.config.Traces.Tracer(); tracer != nil {
		all = append(all, spans{tracer: tracer, now: time.Now})
	}
	if d.config.Engine.Observer != nil {
		all = append(all, d.config.Engine.Observer)
	}
	d.config.Engine.Observer = all
}

// observers passes each change to several observers.
type observers []engine.Observer

// Committed implements engine.Observer.
func (o observers) Committed(done *engine.Committed) {
	for _, one := range o {
		one.Committed(done)
	}
}

// Refused implements engine.Observer.
func (o observers) Refused(quota string) {
	for _, one := range o {
		one.Refused(quota)
	}
}

// Contended implements engine.Observer.
func (o observers) Contended(got bool, waited time.Duration) {
	for _, one := range o {
		one.Contended(got, waited)
	}
}

// Admitted implements engine.Observer.
func (o observers) Admitted(round engine.AdmissionRound) {
	for _, one := range o {
		one.Admitted(round)
	}
}

// Decided implements engine.Observer.
func (o observers) Decided(slots []engine.SlotsDecided) {
	for _, one := range o {
		one.Decided(slots)
	}
}

// runLog writes a line for each run that ends: at INFO if it did not end well, else at DEBUG,
// as it does for each move of a task. Thousands of runs a second would otherwise be thousands
// of lines.
type runLog struct{ log *slog.Logger }

// Committed implements engine.Observer.
func (l runLog) Committed(done *engine.Committed) {
	ctx := context.Background()
	debug := l.log.Enabled(ctx, slog.LevelDebug)
	for _, c := range done.Runs {
		if !c.Run.State.Terminal() || c.From.Terminal() || c.Run.State == run.RunSucceeded && !debug {
			continue
		}
		level := slog.LevelInfo
		if c.Run.State == run.RunSucceeded {
			level = slog.LevelDebug
		}
		l.log.LogAttrs(ctx, level, "run ended", slog.String("tenant", c.Run.Tenant.String()), slog.String("run", c.Run.ID.String()),
			slog.String("pipeline", c.Run.Pipeline), slog.String("state", c.Run.State.String()), slog.Int("failed", int(c.Run.Failed)),
			slog.Duration("took", c.Run.FinishedAt.Sub(c.Run.CreatedAt)), slog.String("trace", c.Run.Trace))
	}
	if !debug {
		return
	}
	for _, m := range done.Tasks {
		l.log.LogAttrs(ctx, slog.LevelDebug, "task moved", slog.String("tenant", m.Tenant.String()), slog.String("run", m.Run.String()),
			slog.String("task", m.Task.String()), slog.String("from", m.From.String()), slog.String("to", m.To.String()),
			slog.String("outcome", string(m.Outcome)), slog.Int("attempt", int(m.Attempt)), slog.String("trace", m.Trace))
	}
}

// Refused implements engine.Observer. The caller has received the reason.
func (runLog) Refused(string) {}

// Contended implements engine.Observer: likewise.
func (runLog) Contended(bool, time.Duration) {}

// Admitted implements engine.Observer.
func (runLog) Admitted(engine.AdmissionRound) {}

// Decided implements engine.Observer.
func (runLog) Decided([]engine.SlotsDecided) {}
