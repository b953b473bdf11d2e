package engine

import (
	"context"

	"go.arco.dev/servo/internal/base/event"
	"go.arco.dev/servo/internal/base/id"
	"go.arco.dev/servo/internal/domain/run"
	"go.arco.dev/servo/internal/store"
)

// coneChunk is how many tasks one transaction skips.
const coneChunk = 1000

// downstream applies the ends of the decided tasks to their dependents: a success counts down, a failure
// skips all that can never run. The rows of the runs are locked, and with them all waiting tasks.
func (e *Engine) downstream(ctx context.Context, tx *store.Tx, w *working) error {
	var succeeded, failed []store.TaskKey
	for _, t := range w.changed {
		if !t.task.Dependents {
			continue
		}
		switch t.task.State {
		case run.Succeeded:
			succeeded = append(succeeded, keyOf(t.task))
		case run.Failed:
			failed = append(failed, keyOf(t.task))
		default: // no other end concerns dependents
		}
	}
	if len(succeeded) > 0 {
		if err := countDown(ctx, tx, w, succeeded); err != nil {
			return err
		}
	}
	if len(failed) == 0 {
		return nil
	}
	more, err := skipCone(ctx, tx, w, failed)
	if more {
		w.changes.OpenCones = append(w.changes.OpenCones, runKeys(failed)...)
	}
	return err
}

// countDown subtracts the succeeded tasks from their dependents' unmet counts, and makes those with zero
// ready. A barrier with zero succeeds at once, which counts for its own dependents.
func countDown(ctx context.Context, tx *store.Tx, w *working, succeeded []store.TaskKey) error {
	for len(succeeded) > 0 {
		dependents, err := tx.Dependents(ctx, succeeded)
		if err != nil {
			return err
		}
		succeeded = nil
		for _, d := range dependents {
			t := w.add(d.Task)
			t.task.Unmet--
			w.change(t)
			if t.task.Unmet > 0 {
				continue
			}
			if err := w.decide(t, run.DependenciesMet{}, event.Meta{Actor: "engine"}); err != nil {
				return err
			}
			if t.task.State == run.Succeeded {
				succeeded = append(succeeded, keyOf(t.task))
			}
		}
	}
	return nil
}

// skipCone skips the tasks downstream of failed ones, up to a chunk. More reports that some are left.
func skipCone(ctx context.Context, tx *store.Tx, w *working, failed []store.TaskKey) (more bool, err error) {
	cause := make(map[id.Run]id.Task, len(failed))
	for _, k := range failed {
		cause[k.Run] = k.Task
	}
	cone, err := tx.Cone(ctx, failed, coneChunk+1)
	if err != nil {
		return false, err
	}
	if more = len(cone) > coneChunk; more {
		cone = cone[:coneChunk]
	}
	for _, row := range cone {
		if err := w.decide(w.add(row), run.Skip{Upstream: cause[row.Run]}, event.Meta{Actor: "engine"}); err != nil {
			return false, err
		}
	}
	return more, nil
}

// SkipDoomed continues with cones that were too large for the transaction that began them: one chunk of
// each of up to most runs. More reports that tasks are left.
func (e *Engine) SkipDoomed(ctx context.Context, most int) (more bool, err error) {
	var pending []store.RunKey
	err = e.store.Engine(ctx, func(ctx context.Context, tx *store.Tx) error {
		pending, err = tx.PendingCones(ctx, most)
		return err
	})
	for _, key := range pending {
		if err == nil {
			err = e.skipChunk(ctx, key)
		}
	}
	return len(pending) > 0, err
}

func (e *Engine) skipChunk(ctx context.Context, key store.RunKey) error {
	return e.transact(ctx, func(ctx context.Context, tx *store.Tx, w *working) error {
		runs, err := tx.LockRuns(ctx, store.LockForCount, []store.RunKey{key})
		if err != nil {
			return err
		}
		now, err := tx.Clock(ctx)
		if err != nil {
			return err
		}
		w.at(now)
		w.addRuns(runs)
		doomed, err := tx.Doomed(ctx, key, coneChunk)
		if err != nil {
			return err
		}
		if len(doomed) == 0 {
			w.changes.CloseCones = []store.RunKey{key}
			return nil
		}
		roots := make([]store.TaskKey, len(doomed))
		for i, d := range doomed {
			roots[i] = store.TaskKey{Tenant: key.Tenant, Run: key.Run, Task: d.Upstream}
		}
		_, err = skipCone(ctx, tx, w, unique(roots))
		return err
	})
}
