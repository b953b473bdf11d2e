package engine

import (
	"context"

	"go.arco.dev/servo/internal/base/event"
	"go.arco.dev/servo/internal/domain/run"
	"go.arco.dev/servo/internal/store"
)

// Expire ends up to most attempts whose lease was not renewed or whose deadline has passed, and returns how
// many it examined.
func (e *Engine) Expire(ctx context.Context, most int) (int, error) {
	looked := 0
	err := e.transact(ctx, func(ctx context.Context, tx *store.Tx, w *working) error {
		looked = 0
		now, err := tx.Clock(ctx)
		if err != nil {
			return err
		}
		candidates, err := tx.DueLeases(ctx, now, most)
		if err != nil || len(candidates) == 0 {
			return err
		}
		looked = len(candidates)
		runs, err := tx.LockRuns(ctx, store.LockForCount, runKeys(candidates))
		if err != nil {
			return err
		}
		leases, err := tx.LockLeasesWithHeartbeats(ctx, candidates)
		if err != nil {
			return err
		}
		if now, err = tx.Clock(ctx); err != nil {
			return err
		}
		w.at(now)
		w.addRuns(runs)
		w.addTasks(leases)
		if err := e.expire(ctx, tx, w, leases); err != nil {
			return err
		}
		return e.downstream(ctx, tx, w)
	})
	return looked, err
}

// expire checks each lease again under its lock: it is past its deadline, not renewed, or alive. For a live
// one it sets when the reaper checks it next.
func (e *Engine) expire(ctx context.Context, tx *store.Tx, w *working, leases []run.Task) error {
	var due []store.TaskKey
	for _, t := range leases {
		if timedOut(t, w) || !t.ExpiresAt.After(w.now) {
			due = append(due, keyOf(t))
		} else {
			w.changes.Reschedule = append(w.changes.Reschedule, t)
		}
	}
	policies, err := e.policies(ctx, tx, w, due)
	if err != nil {
		return err
	}
	for _, k := range due {
		t := w.tasks[k.Task]
		var cmd run.Command = run.Expire{Policy: policies.of(t.task, run.CodeHeartbeatLost)}
		if timedOut(t.task, w) {
			cmd = run.TimeOut{Policy: policies.of(t.task, run.CodeTimeout)}
		}
		if err := w.decide(t, cmd, event.Meta{Actor: "reaper"}); err != nil {
			return err
		}
	}
	return nil
}

func timedOut(t run.Task, w *working) bool {
	return t.State == run.Running && !t.Deadline.After(w.now)
}

// RetryDue makes up to most tasks ready whose backoff is over, and returns how many it examined.
func (e *Engine) RetryDue(ctx context.Context, most int) (int, error) {
	looked := 0
	err := e.transact(ctx, func(ctx context.Context, tx *store.Tx, w *working) error {
		looked = 0
		now, err := tx.Clock(ctx)
		if err != nil {
			return err
		}
		candidates, err := tx.DueRetries(ctx, now, most)
		if err != nil || len(candidates) == 0 {
			return err
		}
		looked = len(candidates)
		runs, err := tx.LockRuns(ctx, store.LockForMove, runKeys(candidates))
		if err != nil {
			return err
		}
		due, err := tx.LockRetries(ctx, candidates, now)
		if err != nil {
			return err
		}
		if now, err = tx.Clock(ctx); err != nil {
			return err
		}
		w.at(now)
		w.addRuns(runs)
		for _, t := range due {
			if err := w.decide(w.add(t), run.RetryDue{}, event.Meta{Actor: "reaper"}); err != nil {
				return err
			}
		}
		return nil
	})
	return looked, err
}
