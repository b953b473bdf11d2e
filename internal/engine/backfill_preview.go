package engine

import (
	"context"
	"time"

	"go.arco.dev/servo/internal/base/id"
	"go.arco.dev/servo/internal/store"
)

// BackfillPreview is the size of a backfill and how long it is expected to take.
type BackfillPreview struct {
	Asset       string
	Deployment  id.Deployment
	Partitions  int64
	Runs        int32
	Tasks       int64
	First, Last string        // keys of the first and the last partition in its order
	Work        time.Duration // of all tasks together, by past attempts
	Parallel    int           // tasks that run at the same time, by the quota and the tenant's share
	ETA         time.Duration
	Unknown     int // assets without a past attempt, whose tasks count as a second each
}

// PreviewBackfill returns what CreateBackfill would create.
func (e *Engine) PreviewBackfill(ctx context.Context, request Backfill) (p BackfillPreview, err error) {
	err = e.engineWithCode(ctx, func(ctx context.Context, tx *store.Tx) error {
		now, err := tx.Clock(ctx)
		if err != nil {
			return err
		}
		r, err := e.resolveBackfill(ctx, tx, request, now)
		if err != nil {
			return err
		}
		p, err = e.previewOf(ctx, tx, r)
		return err
	})
	return p, err
}
