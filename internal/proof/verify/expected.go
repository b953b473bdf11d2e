package verify

import (
	"encoding/json"
	"time"

	"github.com/google/uuid"

	"go.arco.dev/servo/internal/domain/run"
	"go.arco.dev/servo/internal/domain/tenant"
	"go.arco.dev/servo/internal/store"
)

// The rows that follow from the fold. NULL is a nil pointer or a nil JSON, as the store reads it.

func ptr[T any](value T) *T { return &value }

func timeOrNull(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	return &t
}

func textOrNull(text string) *string {
	if text == "" {
		return nil
	}
	return &text
}

// jsonOrNull is a value as the store writes it. Values from events can always be marshalled.
func jsonOrNull[T any](value *T) json.RawMessage {
	if value == nil {
		return nil
	}
	data, err := json.Marshal(value)
	if err != nil {
		return json.RawMessage(`"` + err.Error() + `"`)
	}
	return data
}

// rawOrNull is JSON as the store writes it: an empty value is NULL.
func rawOrNull(data json.RawMessage) json.RawMessage {
	if len(data) == 0 {
		return nil
	}
	return data
}

func wantRun(r run.Run) store.RunRow {
	row := store.RunRow{
		TenantID: r.Tenant.UUID, ID: r.ID.UUID, WorkspaceID: r.Workspace.UUID, DeploymentID: r.Deployment.UUID,
		CreatedAt: r.CreatedAt, StartedAt: timeOrNull(r.StartedAt), FinishedAt: timeOrNull(r.FinishedAt), Version: r.Version,
		Total: r.Total, Remaining: r.Remaining, Succeeded: r.Succeeded, Failed: r.Failed, Skipped: r.Skipped, Cancelled: r.Cancelled,
		State: int16(r.State), Priority: r.Priority, TimedOut: r.TimedOut, CancelReason: r.CancelReason, Pipeline: r.Pipeline,
		TriggerType: r.TriggerType, TriggeredBy: r.TriggeredBy, Fingerprint: r.Fingerprint,
		Parameters: rawOrNull(r.Parameters), Retry: jsonOrNull(r.Retry), Trace: r.Trace, ConfigID: configID(r), SlotAt: timeOrNull(r.Slot),
		Labels: r.Labels, StartBy: timeOrNull(r.StartBy), StartLimitS: r.StartLimit, Late: r.Late, WindowOf: jsonOrNull(r.Window),
		Released: r.Released, Divided: r.Divided, Warned: r.Warned, Quarantined: r.Quarantined,
	}
	if r.Parent != nil {
		row.ParentRunID = ptr[uuid.UUID](r.Parent.UUID)
	}
	return row
}

func configID(r run.Run) *uuid.UUID {
	if r.Config == nil {
		return nil
	}
	return ptr[uuid.UUID](r.Config.UUID)
}

// wantLive is the row of a run that has not ended.
func wantLive(r run.Run) store.LiveRunRow {
	row := store.LiveRunRow{
		TenantID: r.Tenant.UUID, RunID: r.ID.UUID, WorkspaceID: r.Workspace.UUID, CreatedAt: r.CreatedAt, DueAt: timeOrNull(r.DueAt()),
		LimitS: r.Limit, Priority: r.Priority, Pending: r.State == run.RunPending, LockedBy: r.LockedBy, Pipeline: r.Pipeline,
		ConfigID: configID(r), Breaches: store.BreachesOf(r), Turn: r.Turn,
	}
	if r.Behind {
		row.WaitKey = r.Lock
	} else {
		row.LockKey = r.Lock
	}
	return row
}

func wantTenant(en tenant.Entity, id uuid.UUID) store.TenantRow {
	q := en.Quotas
	return store.TenantRow{
		ID: id, Name: en.Name, Version: en.Version, CreatedAt: en.CreatedAt,
		MaxConcurrentTasks: q.MaxConcurrentTasks, MaxQueuedTasks: q.MaxQueuedTasks, MaxConcurrentRuns: q.MaxConcurrentRuns,
		MaxDailyRuns: q.MaxDailyRuns, MaxRunDurationS: int32(q.MaxRunDuration / time.Second), MaxTasksPerRun: q.MaxTasksPerRun, //nolint:gosec // at most a year
		MaxBackfillRuns: q.MaxBackfillRuns, FairnessWeight: q.FairnessWeight, Zone: q.Zone, Labels: en.Labels,
	}
}

// wantTask is the row in tasks: the planned columns and, once the task has ended, its outcome.
func wantTask(t *task) store.TaskRow {
	row := store.TaskRow{
		TenantID: t.Tenant.UUID, RunID: t.Run.UUID, ID: t.ID.UUID, CreatedAt: t.made, Ix: t.spec.Index, TimeoutS: t.spec.Timeout,
		Priority: t.spec.Priority, Asset: t.spec.Asset, Partition: t.spec.Partition, Pool: t.spec.Pool, Upstream: t.planned,
		Inherited: store.InheritedIDs(t.spec.Inherited),
	}
	if r := t.spec.Range; r != nil {
		row.Series, row.FirstOrdinal, row.LastOrdinal = r.Series, &r.First, &r.Last
	}
	if !t.State.Terminal() {
		return row
	}
	row.FinishedAt, row.Token, row.Version, row.Attempt = &t.Since, &t.Token, &t.Version, &t.Attempt
	row.Failures, row.FanOuts, row.State, row.Outcome = &t.Failures, &t.FanOuts, ptr(int16(t.State)), ptr(string(t.Outcome))
	row.LateResult, row.Cursor = t.LateResult, textOrNull(t.Cursor)
	row.Result, row.Failure = rawOrNull(t.Result), jsonOrNull(t.Failure)
	return row
}

func wantWaiting(t *task) store.WaitingRow {
	return store.WaitingRow{
		TenantID: t.Tenant.UUID, RunID: t.Run.UUID, TaskID: t.ID.UUID, Since: t.Since, Version: t.Version, TimeoutS: t.Timeout,
		Priority: t.Priority, Dependents: t.Dependents, Pool: t.Pool, Needs: t.Needs, Unmet: t.Unmet, Asset: t.spec.Asset,
	}
}

func wantReady(t *task) store.ReadyRow {
	return store.ReadyRow{
		TenantID: t.Tenant.UUID, RunID: t.Run.UUID, TaskID: t.ID.UUID, Since: t.Since, Version: t.Version, TimeoutS: t.Timeout,
		Priority: t.Priority, Dependents: t.Dependents, Pool: t.Pool, Needs: t.Needs, Attempt: t.Attempt, Failures: t.Failures,
		Fruitless: t.Fruitless, Deaths: t.Deaths, FanOuts: t.FanOuts, Cursor: t.Cursor, Asset: t.spec.Asset,
	}
}

func wantQueued(t *task) store.QueuedRow {
	return store.QueuedRow{
		TenantID: t.Tenant.UUID, RunID: t.Run.UUID, TaskID: t.ID.UUID, Since: t.Since, Version: t.Version, TimeoutS: t.Timeout,
		Priority: t.Priority, Dependents: t.Dependents, Pool: t.Pool, Needs: t.Needs, Attempt: t.Attempt, Failures: t.Failures,
		Fruitless: t.Fruitless, Deaths: t.Deaths, FanOuts: t.FanOuts, Cursor: t.Cursor, Asset: t.spec.Asset, ReadyAt: t.ReadyAt,
	}
}

func wantLease(t *task) store.LeaseRow {
	return store.LeaseRow{
		TenantID: t.Tenant.UUID, RunID: t.Run.UUID, TaskID: t.ID.UUID, Since: t.Since, Version: t.Version, TimeoutS: t.Timeout,
		Priority: t.Priority, Dependents: t.Dependents, Pool: t.Pool, Needs: t.Needs, Attempt: t.Attempt, Failures: t.Failures,
		Fruitless: t.Fruitless, Deaths: t.Deaths, FanOuts: t.FanOuts, Cursor: t.Cursor, Token: t.Token, ClaimID: t.Claim.UUID,
		StartedAt: timeOrNull(t.StartedAt), Deadline: timeOrNull(t.Deadline), CancelRequested: t.CancelRequested, Worker: t.Worker,
		Instance: t.Instance, Asset: t.spec.Asset, ReadyAt: t.ReadyAt, ClaimCursor: t.ClaimCursor,
	}
}

func wantRetry(t *task) store.RetryRow {
	return store.RetryRow{
		TenantID: t.Tenant.UUID, RunID: t.Run.UUID, TaskID: t.ID.UUID, Since: t.Since, Version: t.Version, TimeoutS: t.Timeout,
		Priority: t.Priority, Dependents: t.Dependents, Pool: t.Pool, Needs: t.Needs, Attempt: t.Attempt, Failures: t.Failures,
		Fruitless: t.Fruitless, Deaths: t.Deaths, FanOuts: t.FanOuts, Cursor: t.Cursor, DueAt: t.DueAt, Failure: jsonOrNull(t.Failure), Asset: t.spec.Asset,
	}
}
