package engine

import (
	"context"

	"go.arco.dev/servo/internal/event"
	"go.arco.dev/servo/internal/run"
	"go.arco.dev/servo/internal/store"
)

// Admit moves ready tasks into their pools' queues, by priority and time, under the
// admission duty. It stops when enough is queued, and says how many it moved.
func (e *Engine) Admit(ctx context.Context, duty store.Duty, most int) (int, error) {
	admitted := 0
	err := e.transact(ctx, func(ctx context.Context, tx *store.Tx, w *working) error {
		if err := tx.HoldDuty(ctx, duty); err != nil {
			return err
		}
		queued, err := tx.CountQueued(ctx, e.config.QueueTarget)
		if err != nil {
			return err
		}
		room := min(most, e.config.QueueTarget-queued)
		e.signals.full.Store(room < most)
		if room <= 0 {
			return nil
		}
		ready, err := tx.TakeReady(ctx, room)
		if err != nil {
			return err
		}
		now, err := tx.Clock(ctx)
		if err != nil {
			return err
		}
		w.at(now)
		for _, t := range ready {
			if err := w.decide(w.add(t), run.Admit{}, event.Meta{Actor: "admission"}); err != nil {
				return err
			}
		}
		admitted = len(ready)
		return nil
	})
	return admitted, err
}
