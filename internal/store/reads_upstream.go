package store

import (
	"context"

	"go.arco.dev/servo/internal/base/id"
	"go.arco.dev/servo/internal/domain/run"
	"go.arco.dev/servo/internal/store/internal/db"
)

// UpstreamOf reads one upstream of a task. It finds no task that is not an upstream.
func (s *Store) UpstreamOf(ctx context.Context, key TaskKey, upstreamRun id.Run, upstream id.Task) (UpstreamTask, error) {
	return read(ctx, s.tenant(key.Tenant), func(ctx context.Context, tx *Tx) (UpstreamTask, error) {
		r, err := tx.q.UpstreamOf(ctx, db.UpstreamOfParams{
			TenantID: key.Tenant.UUID, RunID: key.Run.UUID, TaskID: key.Task.UUID, UpstreamRunID: upstreamRun.UUID, UpstreamID: upstream.UUID,
		})
		if err != nil {
			return UpstreamTask{}, notFound(err, "upstream task", upstream.String())
		}
		return UpstreamTask{
			Task: id.Of[id.Task](r.ID), Index: r.Ix, Asset: r.Asset, Partition: r.Partition, State: run.TaskState(r.State),
			Outcome: outcomeOf(r.Outcome), Result: r.Result,
		}, nil
	})
}
