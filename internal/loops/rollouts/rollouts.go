// Package rollouts is the loop that adds up the ends of released runs and judges rollouts. It works under a
// duty, so one server at a time does it; the engine decides.
package rollouts

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"go.arco.dev/servo/internal/base/loop"
	"go.arco.dev/servo/internal/engine"
	"go.arco.dev/servo/internal/store"
)

// Times and bounds of the loop.
const (
	every = 2 * time.Second
	lease = 10 * time.Second // of the duty
	batch = 2000

	forgetEvery = time.Minute
)

// Config are the options of the loop.
type Config struct {
	Holder string        // this server's name
	Every  time.Duration // between two rounds; 0 is 2 s
	Logger *slog.Logger
}

type judge struct {
	store    *store.Store
	engine   *engine.Engine
	holder   string
	batch    int // ends of runs in one transaction
	forgetAt time.Time
}

// Rollouts is the running loop.
type Rollouts struct {
	judge *judge
	loop  *loop.Loop
}

// Start runs the loop.
func Start(s *store.Store, e *engine.Engine, config Config) *Rollouts {
	if config.Every == 0 {
		config.Every = every
	}
	j := &judge{store: s, engine: e, holder: config.Holder, batch: batch}
	return &Rollouts{judge: j, loop: loop.Start(loop.Config{Name: "rollouts", Every: config.Every, RunOnce: j.runOnce, Logger: config.Logger})}
}

// Stop ends the loop.
func (r *Rollouts) Stop() { r.loop.Stop() }

// runOnce merges ends and judges rollouts. Without either it costs one statement. Any server may merge; the
// duty keeps two servers from judging at the same time.
func (j *judge) runOnce(ctx context.Context) (more bool, err error) {
	rolling, ended, err := j.store.ReleaseWork(ctx)
	if err != nil || !rolling && !ended {
		return false, err
	}
	duty, err := j.store.TakeDuty(ctx, engine.RolloutDuty, j.holder, lease)
	if errors.Is(err, store.ErrDutyLost) {
		return false, nil // another server judges
	}
	if err != nil {
		return false, err
	}
	merged, err := j.store.MergeReleaseEnds(ctx, j.batch)
	if err != nil {
		return false, err
	}
	if merged == j.batch {
		return true, nil // judge what has happened, not a part of it
	}
	if now := time.Now(); now.After(j.forgetAt) {
		if _, err := j.store.ForgetReleaseTotals(ctx, j.batch); err != nil {
			return false, err
		}
		j.forgetAt = now.Add(forgetEvery)
	}
	if !rolling {
		return false, nil
	}
	err = j.engine.JudgeRollouts(ctx, duty)
	if errors.Is(err, store.ErrDutyLost) {
		return false, nil
	}
	return false, err
}
