package servo

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"iter"
	"log/slog"
	"slices"
	"sync"

	servov1 "go.arco.dev/servo/gen/servo/v1"
	"go.arco.dev/servo/internal/domain/quality"
	"go.arco.dev/servo/internal/worker"
)

// TestInput is the input of a function under test.
type TestInput struct {
	Tenant, Run, ID, Asset, Partition, Pipeline string

	Partitions []Partition // the declared partitions that the task covers

	Attempt int            // default 1
	Cursor  string         // the cursor of an earlier attempt
	Results map[string]any // of upstream assets, by key; converted to JSON and back
	// Mapped are the results of fanned-out upstream tasks: by key, then by partition.
	Mapped map[string]map[string]any

	Secrets map[string]string // values by reference, such as env:DB_PASSWORD

	OutputDir    string // for the files of the asset's output; empty without an output
	OutputFormat string // of these files; default parquet
}

// TestTask is a task without a server, to call an asset's function in a test. It records the
// function's reports.
//
//	task := servo.NewTestTask(servo.TestInput{Results: map[string]any{"bronze/orders": orders}})
//	got, err := revenue(ctx, task.Task, Params{})
type TestTask struct {
	*Task

	recorder *recorder
}

// NewTestTask returns a task for a test.
func NewTestTask(in TestInput) *TestTask {
	r := &recorder{input: in, cursor: in.Cursor}
	r.logger = slog.New(slog.NewTextHandler(&r.log, &slog.HandlerOptions{Level: slog.LevelDebug}))
	return &TestTask{recorder: r, Task: &Task{
		Tenant: in.Tenant, Run: in.Run, ID: in.ID, Attempt: max(in.Attempt, 1), Asset: in.Asset, Partition: in.Partition,
		Pipeline: in.Pipeline, Partitions: in.Partitions, backend: r,
	}}
}

// FannedOut is one fan-out of a function under test.
type FannedOut struct {
	Tasks   []Mapped
	Barrier bool
}

// FanOuts returns the fan-outs of the function.
func (t *TestTask) FanOuts() []FannedOut {
	t.recorder.mu.Lock()
	defer t.recorder.mu.Unlock()
	return slices.Clone(t.recorder.fanOuts)
}

// Reported returns every progress that the function has reported.
func (t *TestTask) Reported() []Progress {
	t.recorder.mu.Lock()
	defer t.recorder.mu.Unlock()
	return slices.Clone(t.recorder.progress)
}

// Cursors returns the positions that the function has advanced to.
func (t *TestTask) Cursors() []string {
	t.recorder.mu.Lock()
	defer t.recorder.mu.Unlock()
	return slices.Clone(t.recorder.cursors)
}

// Logged returns the log of the function, one line for each record.
func (t *TestTask) Logged() string { return t.recorder.log.String() }

// IsPartial reports whether the function has marked its success as partial.
func (t *TestTask) IsPartial() bool { return t.partial.Load() }

// YieldedAt returns the cursor of a Yield that a function under test has returned.
func YieldedAt(err error) (cursor string, yielded bool) {
	out, yielded := outward(err).(*worker.YieldError) //nolint:errorlint // made by outward
	if yielded && out.Cursor != nil {
		cursor = *out.Cursor
	}
	return cursor, yielded
}

// recorder is the backend of a test.
type recorder struct {
	input  TestInput
	logger *slog.Logger
	log    lockedBuffer

	mu       sync.Mutex
	cursor   string
	cursors  []string
	fanOuts  []FannedOut
	progress []Progress
}

type lockedBuffer struct {
	mu     sync.Mutex
	buffer bytes.Buffer
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buffer.Write(p)
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buffer.String()
}

func (r *recorder) Logger() *slog.Logger { return r.logger }

func (r *recorder) Cursor() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.cursor
}

func (r *recorder) Advance(ctx context.Context, next string) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	r.cursor, r.cursors = next, append(r.cursors, next)
	return nil
}

func (r *recorder) FanOut(ctx context.Context, fan worker.FanOut) ([]string, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	out := FannedOut{Barrier: fan.Barrier}
	var ids []string
	for _, t := range fan.Tasks {
		out.Tasks = append(out.Tasks, Mapped{Asset: t.GetAsset(), Partition: t.GetPartition()})
		ids = append(ids, fmt.Sprintf("%s[%s]", t.GetAsset(), t.GetPartition()))
	}
	r.fanOuts = append(r.fanOuts, out)
	return ids, nil
}

func (r *recorder) Progress(p *servov1.Progress) {
	r.mu.Lock()
	defer r.mu.Unlock()
	reported := Progress{
		Phase: p.GetPhase(), Stage: p.GetStage(), Fraction: p.GetFraction(), RecordsExtracted: p.GetRecordsExtracted(),
		RecordsTransformed: p.GetRecordsTransformed(), RecordsLoaded: p.GetRecordsLoaded(), Bytes: p.GetBytes(),
	}
	if p.GetEta() != nil {
		reported.ETA = p.GetEta().AsTime()
	}
	r.progress = append(r.progress, reported)
}

func (r *recorder) Upstream(_ context.Context, asset string) (json.RawMessage, error) {
	result, given := r.input.Results[asset]
	if !given {
		return nil, &Error{Code: InvalidConfiguration, Message: "the test has no result of upstream " + asset, SuggestedAction: "add it to TestInput.Results"}
	}
	return worker.Marshal(result)
}

func (r *recorder) OutputDir() string { return r.input.OutputDir }

func (r *recorder) OutputFormat() quality.Format {
	return quality.Format(cmp.Or(r.input.OutputFormat, string(quality.Parquet)))
}

func (r *recorder) Secret(_ context.Context, reference string) (string, error) {
	value, known := r.input.Secrets[reference]
	if !known {
		return "", &Error{Code: ResourceNotFound, Message: "the test has no secret " + reference}
	}
	return value, nil
}

func (r *recorder) Inputs(context.Context) (map[string]worker.Input, error) { return nil, nil }

func (r *recorder) Mapped(_ context.Context, asset string) iter.Seq2[worker.Upstream, error] {
	return func(yield func(worker.Upstream, error) bool) {
		results := r.input.Mapped[asset]
		var partitions []string
		for p := range results {
			partitions = append(partitions, p)
		}
		slices.Sort(partitions)
		for _, p := range partitions {
			data, err := worker.Marshal(results[p])
			if !yield(worker.Upstream{Task: asset + "[" + p + "]", Asset: asset, Partition: p, Result: data}, err) {
				return
			}
		}
	}
}
