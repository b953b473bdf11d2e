package store

import (
	"bytes"
	"context"
	"encoding/json"
	"time"

	"github.com/google/uuid"

	"go.arco.dev/servo/internal/base/id"
	"go.arco.dev/servo/internal/domain/run"
	"go.arco.dev/servo/internal/store/internal/db"
)

// RunView is a run with the names of its workspace and config.
type RunView struct {
	run.Run

	WorkspaceName string
	ConfigName    string // "" without a config
}

func stateNumbers(states []run.State) []int16 {
	return column(states, func(s run.State) int16 { return int16(s) })
}

// floor is the smallest id of a time. Times outside the range of ids give the ends of the range.
func floor(t time.Time) uuid.UUID {
	const end = 1 << 48 // milliseconds that fit into an id
	switch millis := t.UnixMilli(); {
	case millis < 0:
		return uuid.Nil
	case millis >= end:
		return uuid.Max
	}
	return id.Floor(t)
}

func earlier(a, b uuid.UUID) uuid.UUID {
	if bytes.Compare(b[:], a[:]) < 0 {
		return b
	}
	return a
}

func runView(r db.GetRunRow) (RunView, error) {
	found, err := runFromRow(r.ServoRun)
	return RunView{Run: found, WorkspaceName: r.Workspace, ConfigName: r.Config}, err
}

// GetRun reads a run as its tenant.
func (s *Store) GetRun(ctx context.Context, key RunKey) (RunView, error) {
	return read(ctx, s.tenant(key.Tenant), func(ctx context.Context, tx *Tx) (RunView, error) {
		return tx.getRun(ctx, key)
	})
}

func (tx *Tx) getRun(ctx context.Context, key RunKey) (RunView, error) {
	row, err := tx.q.GetRun(ctx, db.GetRunParams{TenantID: key.Tenant.UUID, ID: key.Run.UUID})
	if err != nil {
		return RunView{}, notFound(err, "run", key.Run.String())
	}
	return runView(row)
}

// TaskView is a task with its state, attempt and outcome.
type TaskView struct {
	ID        id.Task
	Index     int32 // its position in the plan; fan-outs continue the numbers
	Asset     string
	Partition string
	Pool      string
	Priority  int16
	Timeout   time.Duration // of one attempt

	State      run.TaskState
	Since      time.Time // when it entered its state
	CreatedAt  time.Time
	FinishedAt time.Time

	Attempt  int32
	Failures int32
	FanOuts  int32
	Unmet    int32 // PENDING: upstream tasks that have not succeeded
	Cursor   string
	DueAt    time.Time // RETRY_WAIT: when it is ready again

	// Of the attempt, while it is leased.
	Worker          string
	StartedAt       time.Time
	Deadline        time.Time
	ExpiresAt       time.Time
	CancelRequested bool
	SeenAt          time.Time     // last contact with its worker
	Progress        *ProgressView // nil without a report
	Usual           time.Duration // the usual duration of an attempt of its asset; 0 is unknown

	Outcome    run.Outcome
	Result     json.RawMessage
	Failure    *run.Failure // why it waits for a retry, or how it ended
	LateResult bool
}

// TaskFilter selects tasks of a run. Zero fields match all.
type TaskFilter struct {
	States []run.TaskState
	Asset  string
}

// BeforeFirst is the index to list tasks after, to begin with the first.
const BeforeFirst int32 = -1

// ListTasks reads tasks of a run in the order of its plan, after an index. A run that does not
// exist has no tasks.
func (s *Store) ListTasks(ctx context.Context, key RunKey, f TaskFilter, after int32, most int) ([]TaskView, error) {
	return read(ctx, s.tenant(key.Tenant), func(ctx context.Context, tx *Tx) ([]TaskView, error) {
		return tryList(taskView)(tx.q.ListTasks(ctx, db.ListTasksParams{
			TenantID: key.Tenant.UUID, RunID: key.Run.UUID, Asset: f.Asset, After: after,
			States: column(f.States, func(s run.TaskState) int16 { return int16(s) }), Most: int32(most), //nolint:gosec // a page size
		}))
	})
}

// GetTask reads a task as its tenant.
func (s *Store) GetTask(ctx context.Context, key TaskKey) (TaskView, error) {
	return read(ctx, s.tenant(key.Tenant), func(ctx context.Context, tx *Tx) (TaskView, error) {
		return tx.getTask(ctx, key)
	})
}

func (tx *Tx) getTask(ctx context.Context, key TaskKey) (TaskView, error) {
	rows, err := tx.q.ListTasks(ctx, db.ListTasksParams{
		TenantID: key.Tenant.UUID, RunID: key.Run.UUID, TaskID: key.Task.UUID, States: []int16{}, After: BeforeFirst, Most: 1,
	})
	if err != nil {
		return TaskView{}, err
	}
	if key.Task.UUID == uuid.Nil || len(rows) == 0 { // to the query, a zero id means all tasks
		return TaskView{}, missing("task", key.Task.String())
	}
	return taskView(rows[0])
}

func taskView(r db.ListTasksRow) (TaskView, error) {
	view := TaskView{
		ID: id.Of[id.Task](r.ID), Index: r.Ix, Asset: r.Asset, Partition: r.Partition, Pool: r.Pool, Priority: r.Priority,
		Timeout: time.Duration(r.TimeoutS) * time.Second,
		State:   run.TaskState(r.State), Since: r.Since, CreatedAt: r.CreatedAt, FinishedAt: timeOf(r.FinishedAt),
		Attempt: r.Attempt, Failures: r.Failures, FanOuts: r.FanOuts, Unmet: r.Unmet, Cursor: r.Cursor, DueAt: r.DueAt,
		Worker: r.Worker, StartedAt: r.StartedAt, Deadline: r.Deadline, ExpiresAt: r.ExpiresAt, CancelRequested: r.CancelRequested,
		SeenAt: r.SeenAt, Usual: time.Duration(r.UsualSeconds * float64(time.Second)),
		Outcome: outcomeOf(r.Outcome), Result: r.Result, LateResult: r.LateResult,
	}
	if r.Reported {
		view.Progress = &ProgressView{
			Progress: Progress{
				Phase: r.Phase, Stage: r.Stage, Fraction: r.Fraction, RecordsExtracted: r.RecordsExtracted,
				RecordsTransformed: r.RecordsTransformed, RecordsLoaded: r.RecordsLoaded, Bytes: r.Bytes, ETA: r.Eta,
			},
			Stages: r.Stages, StageSince: r.StageSince, UpdatedAt: r.UpdatedAt,
		}
	}
	return view, json.Unmarshal(r.Failure, &view.Failure) // JSON's null is nil
}

func outcomeOf(text *string) run.Outcome {
	if text == nil {
		return ""
	}
	return run.Outcome(*text)
}

// Attempts reads the attempts of a task.
func (s *Store) Attempts(ctx context.Context, key TaskKey) ([]run.Attempt, error) {
	return read(ctx, s.tenant(key.Tenant), func(ctx context.Context, tx *Tx) ([]run.Attempt, error) {
		if _, err := tx.getTask(ctx, key); err != nil {
			return nil, err
		}
		streams, err := tx.TaskEvents(ctx, []TaskKey{key})
		return run.Attempts(streams[key]), err
	})
}

// UpstreamTask is an upstream of a task.
type UpstreamTask struct {
	Task      id.Task
	Index     int32
	Asset     string
	Partition string
	State     run.TaskState
	Outcome   run.Outcome
	Result    json.RawMessage
}

// UpstreamTasks reads the upstreams of a task, in the order of the plan, after an index. This
// includes tasks that a fan-out with a barrier added.
func (s *Store) UpstreamTasks(ctx context.Context, key TaskKey, after int32, most int) ([]UpstreamTask, error) {
	return read(ctx, s.tenant(key.Tenant), func(ctx context.Context, tx *Tx) ([]UpstreamTask, error) {
		return list(func(r db.UpstreamTasksRow) UpstreamTask {
			return UpstreamTask{
				Task: id.Of[id.Task](r.ID), Index: r.Ix, Asset: r.Asset, Partition: r.Partition, State: run.TaskState(r.State),
				Outcome: outcomeOf(r.Outcome), Result: r.Result,
			}
		})(tx.q.UpstreamTasks(ctx, db.UpstreamTasksParams{
			TenantID: key.Tenant.UUID, RunID: key.Run.UUID, TaskID: key.Task.UUID, After: after, Most: int32(most), //nolint:gosec // a page size
		}))
	})
}
