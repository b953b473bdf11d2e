package admission

import (
	"context"
	"time"

	"go.arco.dev/servo/internal/engine"
	"go.arco.dev/servo/internal/store"
)

// starter starts runs that wait for their tenants' quotas. It goes with admission's rounds:
// both act under the same duty, and what one starts the other admits.
type starter struct {
	lookAt time.Time
}

// start looks when something may start by now, and every second besides: runs end on other
// servers too, and quotas are changed there.
func (s *starter) start(ctx context.Context, e *engine.Engine, duty store.Duty, most int) (more bool, err error) {
	now := time.Now()
	if wanted := e.StartsWanted(); !wanted && now.Before(s.lookAt) {
		return false, nil
	}
	started, err := e.StartRuns(ctx, duty, most)
	if err != nil {
		return false, err
	}
	if more = started == most; !more {
		s.lookAt = now.Add(look)
	}
	return more, nil
}
