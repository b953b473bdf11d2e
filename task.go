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
	"go.arco.dev/servo/internal/worker"
)

// Task is the task that a function executes: what it is, and what may be said about it.
type Task struct {
	Tenant    string // the tenant's name
	Run       string // the run's id
	ID        string // the task's id
	Attempt   int    // counts from 1
	Asset     string // namespace/name
	Partition string // "" if the asset has none
	Pipeline  string // what was triggered

	// Token is the fencing token of the attempt: a later attempt, of any task, has a higher one. A
	// store that keeps the highest token it has seen can refuse what an attempt writes that has
	// been replaced. 0 in push pools and in tests of functions.
	Token int64

	Config      string    // the name of the config that made the run; "" without one
	TriggerType string    // what made the run: schedule, event, manual, api, retry
	Slot        time.Time // the slot that the run works for; zero if no slot made it
	// IntervalStart and IntervalEnd are the data interval: from the slot before to Slot, or to the
	// time of the trigger. Zero if the config has no slots. They are in UTC.
	IntervalStart, IntervalEnd time.Time

	backend backend
	partial atomic.Bool
}

// backend is what stands behind a task: a worker, or a test.
type backend interface {
	Cursor() string
	Advance(ctx context.Context, next string) error
	FanOut(ctx context.Context, fan worker.FanOut) ([]string, error)
	Progress(p *servov1.Progress)
	Logger() *slog.Logger
	Upstream(ctx context.Context, asset string) (json.RawMessage, error)
	Mapped(ctx context.Context, asset string) iter.Seq2[worker.Upstream, error]
}

func taskOf(t *worker.Task) *Task {
	l := t.Lease()
	task := &Task{
		Tenant: l.GetTenant(), Run: l.GetRun(), ID: l.GetTask(), Attempt: int(l.GetAttempt()), Asset: l.GetAsset(), Partition: l.GetPartition(),
		Pipeline: l.GetPipeline(), Token: l.GetFencingToken(), Config: l.GetConfig(), TriggerType: l.GetTriggerType(), backend: t,
	}
	for to, from := range map[*time.Time]*timestamppb.Timestamp{&task.Slot: l.GetSlot(), &task.IntervalStart: l.GetIntervalStart(), &task.IntervalEnd: l.GetIntervalEnd()} {
		if from != nil {
			*to = from.AsTime()
		}
	}
	return task
}

// Log writes into the task's log, which is kept with the attempt.
func (t *Task) Log() *slog.Logger { return t.backend.Logger() }

// Partial marks the task as a success with a flaw: it will end as PARTIAL_SUCCESS.
func (t *Task) Partial() { t.partial.Store(true) }

// Progress is how far a task is, for people who watch. All of it is optional.
type Progress struct {
	Phase    string  // such as EXTRACT
	Stage    string  // what it is doing
	Fraction float32 // the share that is done, 0 to 1

	RecordsExtracted   int64
	RecordsTransformed int64
	RecordsLoaded      int64
	Bytes              int64
	ETA                time.Time // when it will be done, if known
}

// Progress says how far the task is. It may be called as often as convenient: the latest is
// sent at most once a second, and always before the task ends. A stage, which is a phase and a
// stage together, lasts until another one is named; how long each took is kept.
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

// Cursor is the task's resumable position: where an earlier attempt has left it, or where
// Advance has moved it; "" in the beginning.
func (t *Task) Cursor() string { return t.backend.Cursor() }

// Advance moves the cursor, at most 4 KiB, and returns when the server has it: an attempt
// that comes after this one goes on from there. If the cursor is not where this task thinks,
// the error is ErrCursorMoved.
func (t *Task) Advance(ctx context.Context, next string) error { return t.backend.Advance(ctx, next) }

// Mapped is a task to add to the run: an asset of the run's deployment, and a partition.
type Mapped struct {
	Asset     string
	Partition string
}

// FanOutOption says more about a fan-out.
type FanOutOption func(*worker.FanOut)

// Barrier makes what waits for this task wait for the added ones too; it reads their results
// with MappedResults.
func Barrier() FanOutOption { return func(f *worker.FanOut) { f.Barrier = true } }

// Ordinal numbers the fan-out itself, among those of its task, from 0 and without gaps. See
// FanOut for when that is of use.
func Ordinal(n int) FanOutOption {
	return func(f *worker.FanOut) {
		ordinal := int32(n) //nolint:gosec // the server refuses what is not the next
		f.Ordinal = &ordinal
	}
}

// FanOut adds tasks to the run and returns their ids. Up to 10,000 are added at once and
// atomically; more are added in several steps.
//
// The fan-outs of a task are numbered, and a number that the server has heard adds nothing:
// an attempt that follows a failed one may fan out again as it did. A task with a cursor
// counts on where the attempt before it was; if such an attempt may fail between its fan-out
// and its Advance, give the fan-outs their Ordinal, such as the number of the page.
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
