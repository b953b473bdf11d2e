package worker

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/trace"

	servov1 "go.arco.dev/servo/gen/servo/v1"
	"go.arco.dev/servo/internal/base/telemetry"
	"go.arco.dev/servo/internal/domain/run"
	"go.arco.dev/servo/internal/worker/host"
)

// Python executes assets of kind python in host processes. The worker renews leases, ends attempts and
// reports results itself, so code that blocks its interpreter or crashes it loses no lease.
type Python struct {
	Pool *host.Pool
	Code host.Code
	// Assets are the assets of the project, and Digest is that of its code.
	Assets []string
	Digest string
	// User is the user that hosts run as; nil is that of the worker.
	User *User
}

// Kind returns python.
func (*Python) Kind() string { return KindPython }

// Capabilities returns the assets of the project, and its code.
func (p *Python) Capabilities() []string {
	var declared []string
	for _, key := range p.Assets {
		declared = append(declared, run.PythonCapability(key))
	}
	if p.Digest != "" {
		declared = append(declared, run.PythonCapability(p.Digest))
	}
	return declared
}

// Execute runs one task in a host.
func (p *Python) Execute(ctx context.Context, task *Task) (Result, error) {
	request, err := p.request(ctx, task)
	if err != nil {
		return Result{}, err
	}
	outcome, usage, err := p.Pool.Execute(ctx, p.Code, task.Lease().GetTask(), request, &hostBackend{task}, task.Aborted())
	trace.SpanFromContext(ctx).SetAttributes(
		attribute.Float64("servo.cpu_seconds", usage.CPUSeconds), attribute.Float64("servo.memory_gb_seconds", usage.MemoryGBSeconds),
		attribute.Int64("servo.peak_memory_bytes", usage.PeakMemory), attribute.Bool("servo.warm", usage.Warm))
	switch {
	case err != nil:
		return Result{}, hostError(err)
	case outcome.Yielded:
		return Result{}, &YieldError{Cursor: outcome.Next}
	}
	return Result{JSON: outcome.Result, Partial: outcome.Partial}, nil
}

// request returns the task as hosts receive it.
func (p *Python) request(ctx context.Context, task *Task) (*host.Run, error) {
	l := task.Lease()
	request := &host.Run{
		Tenant: l.GetTenant(), RunID: l.GetRun(), Asset: l.GetAsset(), Attempt: int(l.GetAttempt()), Partition: l.GetPartition(),
		Pipeline: l.GetPipeline(), Parameters: task.Parameters(), Cursor: task.Cursor(), Config: l.GetConfig(), Trigger: l.GetTriggerType(),
		Slot: instant(l.GetSlot()), Start: instant(l.GetIntervalStart()), End: instant(l.GetIntervalEnd()),
	}
	request.Trace, _ = telemetry.Split(traceOf(ctx))
	if deadline, limited := ctx.Deadline(); limited {
		request.Deadline = deadline.UTC().Format(time.RFC3339Nano)
	}
	for _, u := range l.GetUpstream() {
		result, err := task.result(ctx, u)
		if err != nil {
			return nil, err
		}
		request.Inputs = append(request.Inputs, host.Input{Asset: u.GetAsset(), Partition: u.GetPartition(), Result: result})
	}
	return request, p.addData(ctx, task, request)
}

// hostError converts the failure of a host to the types of this package.
func hostError(err error) error {
	failure, ok := errors.AsType[*host.Failure](err)
	if !ok {
		return err
	}
	details := maps.Clone(failure.Details)
	if failure.Traceback != "" {
		if details == nil {
			details = map[string]any{}
		}
		details["traceback"] = failure.Traceback
	}
	return &Error{
		Code: failure.Class, Message: failure.Message, Details: details, SuggestedAction: failure.Remedy, NoRetry: failure.NoRetry,
		RetryAfter: time.Duration(failure.RetryAfter * float64(time.Second)), Cause: err,
	}
}

// hostBackend is a task as a host reaches it.
type hostBackend struct{ task *Task }

// Log adds a line to the task's log.
func (b *hostBackend) Log(at time.Time, level, line string) {
	t := b.task
	name, severity := levelOf(level)
	if severity >= t.worker.options.LogLevel.Level() {
		t.attempt.logs.line(t.worker, t.attempt, at, name, oneLine(line))
	}
}

// levelOf maps the level names of other languages to those of logs.
func levelOf(level string) (name string, severity slog.Level) {
	switch level {
	case "DEBUG", "TRACE", "NOTSET":
		return "DEBUG", slog.LevelDebug
	case "WARN", "WARNING":
		return "WARN", slog.LevelWarn
	case "ERROR", "CRITICAL", "FATAL":
		return "ERROR", slog.LevelError
	}
	return "INFO", slog.LevelInfo
}

// Progress reports the progress of the task.
func (b *hostBackend) Progress(p host.Progress) {
	b.task.Progress(&servov1.Progress{
		Phase: p.Phase, Stage: p.Stage, Fraction: p.Fraction, RecordsExtracted: p.Extracted, RecordsTransformed: p.Transformed,
		RecordsLoaded: p.Loaded, Bytes: p.Bytes,
	})
}

// mappedPageSize is how many results a host reads at once: they fit into a frame.
const mappedPageSize = 40

// Answer answers a request of the task.
func (b *hostBackend) Answer(ctx context.Context, method string, params json.RawMessage) (any, error) {
	var request struct {
		Next    string `json:"next"`
		Barrier bool   `json:"barrier"`
		Ordinal *int32 `json:"ordinal"`
		Asset   string `json:"asset"`
		Page    string `json:"page"`
		Name    string `json:"name"`
		Tasks   []struct {
			Asset     string `json:"asset"`
			Partition string `json:"partition"`
		} `json:"tasks"`
	}
	if err := json.Unmarshal(params, &request); err != nil {
		return nil, fmt.Errorf("the parameters of the request %q are invalid: %w", method, err)
	}
	switch method {
	case "cursor":
		return nil, answerError(b.task.Advance(ctx, request.Next))
	case "fanout":
		fan := FanOut{Barrier: request.Barrier, Ordinal: request.Ordinal}
		for _, t := range request.Tasks {
			fan.Tasks = append(fan.Tasks, &servov1.FanOutTask{Asset: t.Asset, Partition: t.Partition})
		}
		added, err := b.task.FanOut(ctx, fan)
		return added, answerError(err)
	case "input":
		files, err := b.task.inputFiles(ctx, request.Asset)
		return files, answerError(err)
	case "mapped":
		found, next, err := b.task.mappedPage(ctx, request.Asset, request.Page, mappedPageSize)
		if found == nil {
			found = []Upstream{}
		}
		return map[string]any{"results": found, "next": next}, answerError(err)
	}
	return nil, &host.Failure{Class: codeUnknown, Message: fmt.Sprintf("this worker does not answer the request %q", method)}
}

// answerError converts an error to one that a host understands.
func answerError(err error) error {
	if err == nil {
		return nil
	}
	if coded, ok := errors.AsType[*Error](err); ok {
		return &host.Failure{Class: coded.Code, Message: err.Error(), Remedy: coded.SuggestedAction}
	}
	return err
}
