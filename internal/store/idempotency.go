package store

import (
	"context"
	"time"

	"github.com/google/uuid"

	"go.arco.dev/servo/internal/base/event"
	"go.arco.dev/servo/internal/base/id"
	"go.arco.dev/servo/internal/domain/run"
	"go.arco.dev/servo/internal/store/internal/db"
)

// Ended is the end of a task, for a repeat of the report that ended it.
type Ended struct {
	TaskKey

	Token      int64
	State      run.TaskState
	Outcome    run.Outcome
	LateResult bool
	Code       string // of the failure, if it failed
}

// EndedTasks returns those of the tasks that have ended.
func (tx *Tx) EndedTasks(ctx context.Context, keys []TaskKey) ([]Ended, error) {
	return list(func(r db.EndedTasksRow) Ended {
		return Ended{
			TaskKey: taskKey(r.TenantID, r.RunID, r.ID), Token: *r.Token, State: run.TaskState(*r.State),
			Outcome: run.Outcome(*r.Outcome), LateResult: r.LateResult, Code: r.Code,
		}
	})(tx.q.EndedTasks(ctx, db.EndedTasksParams{
		TenantIds: column(keys, TaskKey.tenantID), RunIds: column(keys, TaskKey.runID), TaskIds: column(keys, TaskKey.taskID),
	}))
}

// TaskEvents reads the streams of these tasks, each in order.
func (tx *Tx) TaskEvents(ctx context.Context, keys []TaskKey) (map[TaskKey][]event.Event, error) {
	rows, err := tx.q.TaskEvents(ctx, db.TaskEventsParams{
		TenantIds: column(keys, TaskKey.tenantID), RunIds: column(keys, TaskKey.runID), TaskIds: column(keys, TaskKey.taskID),
	})
	if err != nil {
		return nil, err
	}
	streams := map[TaskKey][]event.Event{}
	for _, r := range rows {
		body, err := tx.codec.Decode(event.Type(r.Type), r.Schema, r.Data)
		if err != nil {
			return nil, err
		}
		key := taskKey(r.TenantID, r.RunID, r.SubjectID)
		streams[key] = append(streams[key], event.Event{Subject: r.SubjectID, Version: r.Version, At: r.RecordedAt, Body: body})
	}
	return streams, nil
}

// TriggerKey is a caller's idempotency key for a run, with a digest of the request.
type TriggerKey struct {
	Tenant id.Tenant
	Key    string
	Digest string
	Run    id.Run
}

// TakeTriggerKeys inserts new keys. If some exist already, it returns all keys with their runs. The
// insert comes first: of two concurrent transactions, one waits.
func (tx *Tx) TakeTriggerKeys(ctx context.Context, keys []TriggerKey, now time.Time) ([]TriggerKey, error) {
	if len(keys) == 0 {
		return nil, nil
	}
	tenants := column(keys, func(k TriggerKey) uuid.UUID { return k.Tenant.UUID })
	names := column(keys, func(k TriggerKey) string { return k.Key })
	inserted, err := tx.q.InsertIdempotencyKeys(ctx, db.InsertIdempotencyKeysParams{
		TenantIds: tenants, Keys: names, Now: now,
		Digests: column(keys, func(k TriggerKey) string { return k.Digest }),
		RunIds:  column(keys, func(k TriggerKey) uuid.UUID { return k.Run.UUID }),
	})
	if err != nil || len(inserted) == len(keys) {
		return nil, err
	}
	return list(func(r db.IdempotencyKeysRow) TriggerKey {
		return TriggerKey{Tenant: id.Of[id.Tenant](r.TenantID), Key: r.Key, Digest: r.Digest, Run: id.Of[id.Run](r.RunID)}
	})(tx.q.IdempotencyKeys(ctx, db.IdempotencyKeysParams{TenantIds: tenants, Keys: names}))
}

// ExistingRuns returns which of these runs exist, after a commit whose answer was lost.
func (tx *Tx) ExistingRuns(ctx context.Context, keys []RunKey) (map[id.Run]bool, error) {
	return index(func(u uuid.UUID) (id.Run, bool) {
		return id.Of[id.Run](u), true
	})(tx.q.ExistingRuns(ctx, db.ExistingRunsParams{TenantIds: column(keys, RunKey.tenantID), Ids: column(keys, RunKey.runID)}))
}

// TaskAssets returns the asset of each task.
func (tx *Tx) TaskAssets(ctx context.Context, keys []TaskKey) (map[id.Task]string, error) {
	return index(func(r db.TaskAssetsRow) (id.Task, string) {
		return id.Of[id.Task](r.ID), r.Asset
	})(tx.q.TaskAssets(ctx, db.TaskAssetsParams{
		TenantIds: column(keys, TaskKey.tenantID), RunIds: column(keys, TaskKey.runID), TaskIds: column(keys, TaskKey.taskID),
	}))
}
