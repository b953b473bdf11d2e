// Package backfiller is the loop that starts the runs of backfills and records their ends. It works under a
// duty, so one server at a time does it; the engine decides.
package backfiller

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"go.arco.dev/servo/internal/base/loop"
	"go.arco.dev/servo/internal/engine"
	"go.arco.dev/servo/internal/store"
)

const (
	look  = time.Second     // between rounds without a signal: quotas free on other servers too
	ttl   = 5 * time.Second // after which another server takes the duty of a crashed one
	batch = 100             // runs in one transaction
)

// Config are the options of the loop.
type Config struct {
	Holder string // this server's name
	Logger *slog.Logger
}

// Backfiller is the running loop.
type Backfiller struct {
	store  *store.Store
	engine *engine.Engine
	config Config
	duty   store.Duty // zero while another server holds it
	loop   *loop.Loop
}

// New returns a loop that is not running, for tests that call RunOnce.
func New(s *store.Store, e *engine.Engine, config Config) *Backfiller {
	return &Backfiller{store: s, engine: e, config: config}
}

// Start runs the loop.
func Start(s *store.Store, e *engine.Engine, config Config) *Backfiller {
	b := New(s, e, config)
	b.loop = loop.Start(loop.Config{Name: "backfills", Every: look, Wake: e.Backfills, RunOnce: b.RunOnce, Logger: config.Logger})
	return b
}

// Stop ends the loop and releases the duty, so that the next server need not wait.
func (b *Backfiller) Stop(ctx context.Context) error {
	b.loop.Stop()
	return b.release(ctx)
}

func (b *Backfiller) release(ctx context.Context) error {
	if b.duty.Epoch == 0 {
		return nil
	}
	duty := b.duty
	b.duty = store.Duty{}
	return b.store.ReleaseDuty(ctx, duty)
}

// RunOnce records ended runs, cancels the runs of cancelled backfills and starts the next ones. It takes the
// duty only while a backfill has work, so that an idle server renews nothing.
func (b *Backfiller) RunOnce(ctx context.Context) (more bool, err error) {
	startable, open, err := b.store.BackfillWork(ctx)
	if err != nil {
		return false, err
	}
	if !startable && !open {
		return false, b.release(ctx)
	}
	if b.duty, err = b.store.TakeDuty(ctx, engine.BackfillDuty, b.config.Holder, ttl); err != nil {
		b.duty = store.Duty{}
		if errors.Is(err, store.ErrDutyLost) {
			return false, nil // another server has it
		}
		return false, err
	}
	if more, err = b.work(ctx, open); errors.Is(err, store.ErrDutyLost) {
		b.duty = store.Duty{}
		return false, nil
	}
	return more, err
}

// work does all three, even if one fails.
func (b *Backfiller) work(ctx context.Context, open bool) (more bool, err error) {
	var ended int
	if open {
		var endErr, cancelErr error
		ended, endErr = b.engine.EndBackfillRuns(ctx, b.duty, batch)
		_, cancelErr = b.engine.CancelBackfillRuns(ctx, batch)
		err = errors.Join(endErr, cancelErr)
	}
	started, startErr := b.engine.StartBackfillRuns(ctx, b.duty, batch)
	return ended == batch || started > 0, errors.Join(err, startErr)
}
