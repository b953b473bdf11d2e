package store

import (
	"encoding/json"
	"time"

	"github.com/google/uuid"

	"go.arco.dev/servo/internal/base/id"
	"go.arco.dev/servo/internal/domain/run"
	"go.arco.dev/servo/internal/store/internal/db"
)

// TaskKey identifies a task. The run determines its partition, the tenant its owner.
type TaskKey struct {
	Tenant id.Tenant
	Run    id.Run
	Task   id.Task
}

// RunKey identifies a run.
type RunKey struct {
	Tenant id.Tenant
	Run    id.Run
}

// column transposes rows into one array of a set-based statement.
func column[R, C any](rows []R, of func(R) C) []C {
	out := make([]C, len(rows))
	for i, row := range rows {
		out[i] = of(row)
	}
	return out
}

// ordinals returns the numbers from 0 to n-1.
func ordinals(n int) []int32 {
	places := make([]int32, n)
	for i := range places {
		places[i] = int32(i)
	}
	return places
}

// index maps the result of a query to keys and values, as list does.
func index[R any, K comparable, V any](of func(R) (K, V)) func([]R, error) (map[K]V, error) {
	return func(rows []R, err error) (map[K]V, error) {
		found := make(map[K]V, len(rows))
		for _, row := range rows {
			key, value := of(row)
			found[key] = value
		}
		return found, err
	}
}

// convert maps rows with a function that may fail.
func convert[R, T any](rows []R, of func(R) (T, error)) ([]T, error) {
	out := make([]T, len(rows))
	for i, row := range rows {
		var err error
		if out[i], err = of(row); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// list maps the result of a query: list(f)(tx.q.Query(ctx, …)).
func list[R, T any](of func(R) T) func([]R, error) ([]T, error) {
	return tryList(func(row R) (T, error) { return of(row), nil })
}

// tryList is list with a function that may fail.
func tryList[R, T any](of func(R) (T, error)) func([]R, error) ([]T, error) {
	return func(rows []R, err error) ([]T, error) {
		if err != nil {
			return nil, err
		}
		return convert(rows, of)
	}
}

func (k TaskKey) runID() uuid.UUID    { return k.Run.UUID }
func (k TaskKey) taskID() uuid.UUID   { return k.Task.UUID }
func (k TaskKey) tenantID() uuid.UUID { return k.Tenant.UUID }

func (k RunKey) runID() uuid.UUID    { return k.Run.UUID }
func (k RunKey) tenantID() uuid.UUID { return k.Tenant.UUID }

func runFromRow(r db.ServoRun) (run.Run, error) {
	out := run.Run{
		Tenant: id.Of[id.Tenant](r.TenantID), ID: id.Of[id.Run](r.ID),
		Workspace: id.Of[id.Workspace](r.WorkspaceID), Deployment: id.Of[id.Deployment](r.DeploymentID),
		State: run.State(r.State), Version: r.Version, Pipeline: r.Pipeline, Parameters: r.Parameters, Priority: r.Priority,
		TriggerType: r.TriggerType, TriggeredBy: r.TriggeredBy, Fingerprint: r.Fingerprint, Trace: r.Trace,
		Total: r.Total, Remaining: r.Remaining, Succeeded: r.Succeeded, Failed: r.Failed, Skipped: r.Skipped, Cancelled: r.Cancelled,
		Labels: r.Labels, StartBy: timeOf(r.StartBy), StartLimit: r.StartLimitS, Late: r.Late, Released: r.Released, Divided: r.Divided,
		Warned: r.Warned, Quarantined: r.Quarantined, Overran: r.TimedOut, TimedOut: r.TimedOut, CancelReason: r.CancelReason,
		CreatedAt: r.CreatedAt, StartedAt: timeOf(r.StartedAt), FinishedAt: timeOf(r.FinishedAt),
	}
	if r.ParentRunID != nil {
		parent := id.Of[id.Run](*r.ParentRunID)
		out.Parent = &parent
	}
	if r.ConfigID != nil {
		config := id.Of[id.Config](*r.ConfigID)
		out.Config, out.Slot = &config, timeOf(r.SlotAt)
	}
	if r.WindowOf != nil {
		out.Window = &run.Window{}
		if err := json.Unmarshal(r.WindowOf, out.Window); err != nil {
			return run.Run{}, err
		}
	}
	if r.Retry != nil {
		out.Retry = &run.RetryPolicy{}
		if err := json.Unmarshal(r.Retry, out.Retry); err != nil {
			return run.Run{}, err
		}
	}
	return out, nil
}

func timeOf(t *time.Time) time.Time {
	if t == nil {
		return time.Time{}
	}
	return *t
}

func taskFromWaiting(w db.ServoWaiting) run.Task {
	return run.Task{
		Tenant: id.Of[id.Tenant](w.TenantID), Run: id.Of[id.Run](w.RunID), ID: id.Of[id.Task](w.TaskID),
		State: run.Pending, Version: w.Version, Since: w.Since, Pool: w.Pool, Needs: w.Needs, Priority: w.Priority, Timeout: w.TimeoutS,
		Dependents: w.Dependents, Unmet: w.Unmet, Asset: w.Asset,
	}
}

func taskFromReady(q db.ServoReadyQ) run.Task {
	return run.Task{
		Tenant: id.Of[id.Tenant](q.TenantID), Run: id.Of[id.Run](q.RunID), ID: id.Of[id.Task](q.TaskID),
		State: run.Ready, Version: q.Version, Since: q.Since, Pool: q.Pool, Needs: q.Needs, Priority: q.Priority, Timeout: q.TimeoutS,
		Dependents: q.Dependents, Attempt: q.Attempt, Failures: q.Failures, Fruitless: q.Fruitless, Deaths: q.Deaths, FanOuts: q.FanOuts, Cursor: q.Cursor,
		ReadyAt: q.Since, Asset: q.Asset, Divided: q.Divided,
	}
}

func taskFromQueued(q db.ServoPoolQ) run.Task {
	return run.Task{
		Tenant: id.Of[id.Tenant](q.TenantID), Run: id.Of[id.Run](q.RunID), ID: id.Of[id.Task](q.TaskID),
		State: run.Queued, Version: q.Version, Since: q.Since, Pool: q.Pool, Needs: q.Needs, Priority: q.Priority, Timeout: q.TimeoutS,
		Dependents: q.Dependents, Attempt: q.Attempt, Failures: q.Failures, Fruitless: q.Fruitless, Deaths: q.Deaths, FanOuts: q.FanOuts, Cursor: q.Cursor,
		Asset: q.Asset, Rank: q.Rank, Cost: q.Cost, ReadyAt: q.ReadyAt,
	}
}

func taskFromLease(l db.ServoLease) run.Task {
	t := run.Task{
		Tenant: id.Of[id.Tenant](l.TenantID), Run: id.Of[id.Run](l.RunID), ID: id.Of[id.Task](l.TaskID),
		State: run.Dispatched, Version: l.Version, Since: l.Since, Pool: l.Pool, Needs: l.Needs, Priority: l.Priority, Timeout: l.TimeoutS,
		Dependents: l.Dependents, Attempt: l.Attempt, Failures: l.Failures, Fruitless: l.Fruitless, Deaths: l.Deaths, FanOuts: l.FanOuts, Cursor: l.Cursor,
		Token: l.Token, Worker: l.Worker, Instance: l.Instance, Claim: id.Of[id.Claim](l.ClaimID), StartedAt: timeOf(l.StartedAt), Deadline: timeOf(l.Deadline),
		ExpiresAt: l.ExpiresAt, CancelRequested: l.CancelRequested, Asset: l.Asset, Cost: l.Cost, ReadyAt: l.ReadyAt,
		Lease: time.Duration(l.LeaseMs) * time.Millisecond, ClaimCursor: l.ClaimCursor,
	}
	if l.StartedAt != nil {
		t.State = run.Running
	}
	return t
}

func taskFromRetry(q db.ServoRetryQ) (run.Task, error) {
	t := run.Task{
		Tenant: id.Of[id.Tenant](q.TenantID), Run: id.Of[id.Run](q.RunID), ID: id.Of[id.Task](q.TaskID),
		State: run.RetryWait, Version: q.Version, Since: q.Since, Pool: q.Pool, Needs: q.Needs, Priority: q.Priority, Timeout: q.TimeoutS,
		Dependents: q.Dependents, Attempt: q.Attempt, Failures: q.Failures, Fruitless: q.Fruitless, Deaths: q.Deaths, FanOuts: q.FanOuts, Cursor: q.Cursor,
		DueAt: q.DueAt, Failure: &run.Failure{}, Asset: q.Asset,
	}
	return t, json.Unmarshal(q.Failure, t.Failure)
}
