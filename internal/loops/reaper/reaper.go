// Package reaper is the loop that expires overdue leases, attempts, backoffs and runs. It also continues cones
// that a crash interrupted, records runs that did not begin in time, withdraws queued tasks whose tenant may no
// longer use their pool, and adds up the totals of runs. Any number of servers may run it; its cost grows with
// the rows that are due, not with all rows.
package reaper

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"go.arco.dev/servo/internal/base/loop"
	"go.arco.dev/servo/internal/engine"
	"go.arco.dev/servo/internal/store"
)

// Times of the reaper's rounds.
const (
	every       = time.Second
	poolsEvery  = 5 * time.Second
	tidyEvery   = time.Minute
	keepKeysFor = 24 * time.Hour
)

// Config are the options of the loops.
type Config struct {
	Batch  int // tasks in one transaction; 0 is 500
	Logger *slog.Logger
}

// Start runs the loops: one for overdue rows, one for pools that have changed, one that cleans up.
func Start(s *store.Store, e *engine.Engine, config Config) *Reaper {
	if config.Batch == 0 {
		config.Batch = 500
	}
	due := func(ctx context.Context) (more bool, err error) {
		o, err := s.Overdue(ctx)
		if err != nil {
			return false, err
		}
		// All of them, even if one fails.
		var errs []error
		reap := func(due bool, f func(context.Context, int) (int, error)) {
			if !due {
				return
			}
			looked, err := f(ctx, config.Batch)
			more = more || looked == config.Batch
			errs = append(errs, err)
		}
		reap(o.Leases, e.Expire)
		reap(o.Retries, e.RetryDue)
		if o.Cones {
			left, err := e.SkipDoomed(ctx, config.Batch)
			more = more || left
			errs = append(errs, err)
		}
		reap(o.Runs, e.ExpireRuns)
		reap(o.Late, e.RecordLateStarts)
		reap(o.Deltas, s.MergeTotals)
		reap(o.Partitions, s.FoldPartitionDeltas)
		return more, errors.Join(errs...)
	}
	tidy := func(ctx context.Context) (more bool, err error) {
		if _, err := s.MakePartitions(ctx); err != nil {
			return false, err
		}
		if _, _, err = s.Forget(ctx, keepKeysFor); err != nil {
			return false, err
		}
		_, moreCalls, err := s.ForgetAnsweredCalls(ctx)
		if err != nil {
			return false, err
		}
		_, moreHours, err := s.ForgetHours(ctx)
		if err != nil {
			return false, err
		}
		_, _, err = s.ForgetPresence(ctx)
		return moreCalls || moreHours, err
	}
	pools := func(ctx context.Context) (more bool, err error) {
		looked, err := e.WithdrawQueued(ctx, config.Batch)
		if err != nil {
			return false, err
		}
		unmatched, err := e.MatchWorkers(ctx, config.Batch)
		return looked == config.Batch || unmatched >= config.Batch, err
	}
	return &Reaper{loops: []*loop.Loop{
		loop.Start(loop.Config{Name: "reaper", Every: every, Wake: e.FollowUp, RunOnce: due, Logger: config.Logger}),
		loop.Start(loop.Config{Name: "pools", Every: poolsEvery, Wake: e.PoolsChanged, RunOnce: pools, Logger: config.Logger}),
		loop.Start(loop.Config{Name: "tidy", Every: tidyEvery, RunOnce: tidy, Logger: config.Logger}),
	}}
}

// Reaper are the running loops.
type Reaper struct{ loops []*loop.Loop }

// Stop ends the loops.
func (r *Reaper) Stop() {
	for _, l := range r.loops {
		l.Stop()
	}
}
