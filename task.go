package servo

import (
	"context"
	"encoding/json"
	"iter"
	"log/slog"
	"sync/atomic"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	servov1 "go.arco.dev/servo/gen/servo/v1"
	"go.arco.dev/servo/internal/domain/quality"
	"go.arco.dev/servo/internal/worker"
)

// Task is the task that a function executes.
type Task struct {
	Tenant    string // the tenant's name
	Run       string // the run's id
	ID        string // the task's id
	Attempt   int    // starts at 1
	Asset     string // namespace/name
	Partition string // the key of its partition or range; "" if the asset has none
	Pipeline  string // the pipeline of the run

	// Partitions are the declared partitions that the task covers, in order: one, or those of a
	// range. Nil if the asset has none.
	Partitions []Partition

	// Token is the fencing token of the attempt: a later attempt, of any task, has a higher one. A
	// store that keeps the highest token it has seen can refuse the writes of a replaced attempt.
	// It is 0 in tests.
	Token int64

	Config      string    // the name of the run's config; "" without one
	TriggerType string    // schedule, event, manual, api or retry
	Slot        time.Time // the slot of the run; zero without one
	// IntervalStart and IntervalEnd are the data interval: from the previous slot to Slot, or to the
	// time of the trigger. Zero if the config has no slots. They are in UTC.
	IntervalStart, IntervalEnd time.Time

	backend backend
	partial atomic.Bool
}

// Partition is one partition of an asset: its values by dimension, such as date: 2026-01-01.
type Partition = worker.Partition

// backend implements a task: a worker, or a test.
type backend interface {
	Cursor() string
	Advance(ctx context.Context, next string) error
	FanOut(ctx context.Context, fan worker.FanOut) ([]string, error)
	Progress(p *servov1.Progress)
	Logger() *slog.Logger
	Upstream(ctx context.Context, asset string) (json.RawMessage, error)
	Mapped(ctx context.Context, asset string) iter.Seq2[worker.Upstream, error]
	OutputDir() string
	OutputFormat() quality.Format
	Inputs(ctx context.Context) (map[string]worker.Input, error)
	Secret(ctx context.Context, reference string) (string, error)
}

func taskOf(t *worker.Task) *Task {
	l := t.Lease()
	task := &Task{
		Tenant: l.GetTenant(), Run: l.GetRun(), ID: l.GetTask(), Attempt: int(l.GetAttempt()), Asset: l.GetAsset(), Partition: l.GetPartition(),
		Pipeline: l.GetPipeline(), Token: l.GetFencingToken(), Config: l.GetConfig(), TriggerType: l.GetTriggerType(), Partitions: worker.PartitionsOf(l), backend: t,
	}
	for to, from := range map[*time.Time]*timestamppb.Timestamp{&task.Slot: l.GetSlot(), &task.IntervalStart: l.GetIntervalStart(), &task.IntervalEnd: l.GetIntervalEnd()} {
		if from != nil {
			*to = from.AsTime()
		}
	}
	return task
}

// Log returns a logger for the task's log, which is stored with the attempt.
func (t *Task) Log() *slog.Logger { return t.backend.Logger() }

// Secret returns the value of a secret, such as env:DB_PASSWORD, file:acme/db or
// vault:kv/acme/db#password. A parameter may contain the reference, also as ${secret:…}. The rules of the
// worker must permit it. The value does not appear in logs, results, errors and progress of the task.
func (t *Task) Secret(ctx context.Context, reference string) (string, error) {
	return t.backend.Secret(ctx, reference)
}

// Partial marks the result as partial: the task ends as PARTIAL_SUCCESS.
func (t *Task) Partial() { t.partial.Store(true) }

// Progress is the progress of a task, as the run page shows it. All fields are optional.
type Progress struct {
	Phase    string  // such as EXTRACT
	Stage    string  // the current step
	Fraction float32 // the completed share, 0 to 1

	RecordsExtracted   int64
	RecordsTransformed int64
	RecordsLoaded      int64
	Bytes              int64
	ETA                time.Time // the expected end, if known
}

// Progress reports the progress of the task. It can be called at any rate: the latest progress is sent
// at most once a second, and always before the task ends. A phase and stage last until another one is
// reported; the server records the duration of each.
func (t *Task) Progress(p Progress) {
	message := &servov1.Progress{
		Phase: p.Phase, Stage: p.Stage, Fraction: p.Fraction, RecordsExtracted: p.RecordsExtracted,
		RecordsTransformed: p.RecordsTransformed, RecordsLoaded: p.RecordsLoaded, Bytes: p.Bytes,
	}
	if !p.ETA.IsZero() {
		message.Eta = timestamppb.New(p.ETA)
	}
	t.backend.Progress(message)
}

// Cursor returns the task's cursor: the position that an earlier attempt or Advance has stored; ""
// at first.
func (t *Task) Cursor() string { return t.backend.Cursor() }

// Advance moves the cursor, which has at most 4 KiB, and returns when the server has stored it: the
// next attempt continues from there. It returns ErrCursorMoved if the stored cursor is not the one
// that this task expects.
func (t *Task) Advance(ctx context.Context, next string) error { return t.backend.Advance(ctx, next) }

// Mapped is a task to add to the run: an asset of the run's deployment, and a partition.
type Mapped struct {
	Asset     string
	Partition string
}

// FanOutOption is an option of [Task.FanOut].
type FanOutOption func(*worker.FanOut)

// Barrier makes the downstream tasks of this task wait for the added tasks too. They read the results
// with [MappedResults].
func Barrier() FanOutOption { return func(f *worker.FanOut) { f.Barrier = true } }

// Ordinal sets the number of the fan-out among those of its task, from 0 without gaps. [Task.FanOut]
// describes when to use it.
func Ordinal(n int) FanOutOption {
	return func(f *worker.FanOut) {
		ordinal := int32(n) //nolint:gosec // the server refuses other numbers than the next
		f.Ordinal = &ordinal
	}
}

// FanOut adds tasks to the run and returns their ids. Up to 10,000 tasks are added atomically; more
// are added in several steps.
//
// The fan-outs of a task are numbered, and the server ignores a number that it has already received:
// a retry can repeat the fan-outs of the attempt before it. A task with a cursor continues the count of
// the attempt before it. If such an attempt can fail between its fan-out and its Advance, set the
// [Ordinal] of its fan-outs, for example to the number of the page.
func (t *Task) FanOut(ctx context.Context, tasks []Mapped, options ...FanOutOption) ([]string, error) {
	fan := worker.FanOut{Tasks: make([]*servov1.FanOutTask, len(tasks))}
	for i, m := range tasks {
		fan.Tasks[i] = &servov1.FanOutTask{Asset: m.Asset, Partition: m.Partition}
	}
	for _, option := range options {
		option(&fan)
	}
	return t.backend.FanOut(ctx, fan)
}
