package engine

import (
	"cmp"
	"context"
	"slices"

	"go.arco.dev/servo/internal/event"
	"go.arco.dev/servo/internal/fair"
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
		shares, err := tx.ReadyShares(ctx)
		if err != nil {
			return err
		}
		mosts := make([]int32, len(shares))
		for i := range mosts {
			mosts[i] = int32(room) //nolint:gosec // a batch size
		}
		ready, err := tx.TakeReady(ctx, shares, mosts)
		if err != nil {
			return err
		}
		slices.SortStableFunc(ready, func(a, b run.Task) int { return cmp.Compare(fair.Rank(a.Priority, a.Since), fair.Rank(b.Priority, b.Since)) })
		ready = ready[:min(len(ready), room)]
		now, err := tx.Clock(ctx)
		if err != nil {
			return err
		}
		w.at(now)
		for i, t := range ready {
			t.Rank = now.UnixMicro() + int64(i)
			if err := w.decide(w.add(t), run.Admit{}, event.Meta{Actor: "admission"}); err != nil {
				return err
			}
		}
		admitted = len(ready)
		return nil
	})
	return admitted, err
}
