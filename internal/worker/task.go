package worker

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"sync"

	servov1 "go.arco.dev/servo/gen/servo/v1"
	"go.arco.dev/servo/internal/base/fault"
)

// Task is an attempt as its code uses it.
type Task struct {
	worker  *Worker
	attempt *attempt
	logger  *slog.Logger
	output  *taskOutput // nil if the asset has neither output nor checks

	loading sync.Mutex // of inputs
	inputs  map[string]Input
	loaded  map[int]*Input // by place among the upstreams; nil for one without an output

	mu      sync.Mutex
	cursor  string
	fanOuts int32
}

func (w *Worker) newTask(a *attempt) *Task {
	t := &Task{worker: w, attempt: a, cursor: a.lease.GetCursor()}
	// A retry repeats the fan-outs of the attempt before it, and the server adds nothing twice. A
	// task with a cursor continues: its fan-outs continue the count.
	if t.cursor != "" {
		t.fanOuts = a.lease.GetFanOuts()
	}
	t.logger = slog.New(&logHandler{task: t})
	return t
}

// Lease returns the lease as the server sent it.
func (t *Task) Lease() *servov1.Lease { return t.attempt.lease }

// Logger returns a logger for the task's log.
func (t *Task) Logger() *slog.Logger { return t.logger }

// Aborted is closed when the worker stops without grace: processes are killed then.
func (t *Task) Aborted() <-chan struct{} { return t.worker.abort }

// Parameters returns the run's parameters as a JSON object.
func (t *Task) Parameters() json.RawMessage { return fromStruct(t.Lease().GetParameters()) }

// Cursor returns the task's cursor.
func (t *Task) Cursor() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.cursor
}

// ErrCursorMoved means that the cursor did not have the expected value; Cursor returns the current one.
var ErrCursorMoved = errors.New("cursor mismatch")

// Advance moves the cursor, and returns when the server has stored it.
func (t *Task) Advance(ctx context.Context, next string) error {
	advance := &servov1.Advance{Expected: t.Cursor(), Next: next}
	if t.attempt.secrets.has(next) {
		return cursorError()
	}
	answer, err := t.ask(ctx, t.attempt.item(&servov1.ReportItem{Action: &servov1.ReportItem_Advance{Advance: advance}}, sizeOf(advance)))
	if err != nil {
		return fmt.Errorf("advance the cursor: %w", err)
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if problem := answer.GetError(); problem != nil {
		if current, moved := problem.GetValues().GetFields()["cursor"]; moved {
			t.cursor = current.GetStringValue()
			return fmt.Errorf("advance the cursor: %w: found %q", ErrCursorMoved, t.cursor)
		}
		return fmt.Errorf("advance the cursor: %w", refusal(problem))
	}
	t.cursor = next
	return nil
}

// FanOut is one call to add tasks to the run.
type FanOut struct {
	Tasks   []*servov1.FanOutTask
	Barrier bool
	Ordinal *int32 // nil continues the count
}

// The limits of one call: the server's in tasks, and a report's in bytes.
const (
	maxFanOut      = 10_000
	maxFanOutBytes = 2 << 20
)

// FanOut adds tasks to the run and returns their ids. Large numbers are added in several calls, each
// of which is atomic.
func (t *Task) FanOut(ctx context.Context, fan FanOut) ([]string, error) {
	if len(fan.Tasks) == 0 {
		return nil, nil
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	ordinal := t.fanOuts
	if fan.Ordinal != nil {
		ordinal = *fan.Ordinal
	}
	var added []string
	for rest := fan.Tasks; len(rest) > 0; ordinal++ {
		n := fitting(rest)
		call := &servov1.FanOut{Ordinal: ordinal, Tasks: rest[:n], Barrier: fan.Barrier}
		rest = rest[n:]
		if t.attempt.secrets.has(call.String()) {
			return nil, cursorError()
		}
		answer, err := t.ask(ctx, t.attempt.item(&servov1.ReportItem{Action: &servov1.ReportItem_FanOut{FanOut: call}}, sizeOf(call)))
		if err != nil {
			return added, fmt.Errorf("fan out: %w", err)
		}
		if problem := answer.GetError(); problem != nil {
			return added, fmt.Errorf("fan out: %w", refusal(problem))
		}
		added = append(added, answer.GetAdded()...)
		t.fanOuts = max(t.fanOuts, ordinal+1)
	}
	return added, nil
}

// fitting returns how many of the tasks fit into one call.
func fitting(tasks []*servov1.FanOutTask) int {
	n, size := 0, 0
	for n < len(tasks) && n < maxFanOut {
		size += len(tasks[n].GetAsset()) + len(tasks[n].GetPartition()) + 16
		if n > 0 && size > maxFanOutBytes {
			break
		}
		n++
	}
	return n
}

// ask reports an item and waits for its answer.
func (t *Task) ask(ctx context.Context, it item) (*servov1.ReportAnswer, error) {
	it.answer = make(chan *servov1.ReportAnswer, 1)
	if !t.worker.reporter.report(t.attempt, it) {
		return nil, t.ended()
	}
	select {
	case answer, ok := <-it.answer:
		if !ok {
			return nil, t.ended()
		}
		return answer, nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// ended returns why the task accepts no more reports.
func (t *Task) ended() error {
	if t.attempt.lost.Load() {
		return ErrLeaseLost
	}
	return fault.New(fault.Conflict, "the task has ended", fault.Remedy("use the task only before its function returns"))
}

// Progress reports the progress of the task. Only the latest is sent, after a while, and always
// before the task's end.
func (t *Task) Progress(p *servov1.Progress) {
	t.attempt.progress.update(t.worker, t.attempt, clampProgress(p))
}

// maxPhase is the maximum length of a phase or stage.
const maxPhase = 100

// clampProgress adjusts a progress to the limits of the server: an invalid progress must not fail a task.
func clampProgress(p *servov1.Progress) *servov1.Progress {
	p.Phase, p.Stage = cut(storable(p.GetPhase()), maxPhase), cut(storable(p.GetStage()), maxPhase)
	if math.IsNaN(float64(p.GetFraction())) {
		p.Fraction = 0
	}
	p.Fraction = min(max(p.GetFraction(), 0), 1)
	for _, counter := range []*int64{&p.RecordsExtracted, &p.RecordsTransformed, &p.RecordsLoaded, &p.Bytes} {
		*counter = max(*counter, 0)
	}
	if p.GetEta() != nil && p.GetEta().CheckValid() != nil {
		p.Eta = nil
	}
	return p
}
