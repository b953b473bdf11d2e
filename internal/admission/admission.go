// Package admission is the loop that lets ready tasks into their pools' queues. It works
// under a duty, so one server at a time decides; it decides nothing itself.
package admission

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"go.arco.dev/servo/internal/engine"
	"go.arco.dev/servo/internal/loop"
	"go.arco.dev/servo/internal/store"
)

// Duty is the name of the row that the admitting server holds.
const Duty = engine.AdmissionDuty

// Times of the duty: a crashed holder is replaced within takeover + one look.
const (
	takeover = 3 * time.Second
	renewal  = time.Second
	look     = time.Second
	recount  = time.Minute
)

// Config says how a server admits.
type Config struct {
	Holder string // this server's name
	Batch  int    // tasks in one transaction; 0 is engine.DefaultRound
	Logger *slog.Logger
}

type admitter struct {
	store   *store.Store
	engine  *engine.Engine
	config  Config
	duty    store.Duty
	renewAt time.Time
	starter starter
	counted int64 // the epoch in which it has counted what is in flight
	countAt time.Time
}

// Start runs the loop.
func Start(s *store.Store, e *engine.Engine, config Config) *Admission {
	if config.Batch == 0 {
		config.Batch = engine.DefaultRound
	}
	a := &admitter{store: s, engine: e, config: config}
	return &Admission{admitter: a, loop: loop.Start(loop.Config{
		Name: "admission", Every: look, Wake: e.Ready, RunOnce: a.runOnce, Logger: config.Logger,
	})}
}

// Admission is the running loop.
type Admission struct {
	admitter *admitter
	loop     *loop.Loop
}

// Stop ends the loop and gives the duty back, so that the next server need not wait.
func (a *Admission) Stop(ctx context.Context) error {
	a.loop.Stop()
	if a.admitter.duty.Epoch == 0 {
		return nil
	}
	return a.admitter.store.ReleaseDuty(ctx, a.admitter.duty)
}

func (a *admitter) runOnce(ctx context.Context) (more bool, err error) {
	if now := time.Now(); now.After(a.renewAt) {
		if a.duty, err = a.store.TakeDuty(ctx, Duty, a.config.Holder, takeover); err != nil {
			a.duty = store.Duty{}
			return false, ignoreLost(err)
		}
		a.renewAt = now.Add(renewal)
	}
	// Each in its turn, whatever becomes of the other.
	started, startErr := a.starter.start(ctx, a.engine, a.duty, a.config.Batch)
	more, err = a.admit(ctx)
	if err = errors.Join(startErr, err); errors.Is(err, store.ErrDutyLost) {
		a.renewAt = time.Time{}
	}
	return more || started, ignoreLost(err)
}

// admit makes a round. Before the first one in an epoch, and once a minute, it counts what is
// in flight: whoever held the duty before may have been interrupted by a restore.
func (a *admitter) admit(ctx context.Context) (more bool, err error) {
	if now := time.Now(); a.counted != a.duty.Epoch || now.After(a.countAt) {
		if err := a.engine.RecountShares(ctx, a.duty); err != nil {
			return false, err
		}
		a.counted, a.countAt = a.duty.Epoch, now.Add(recount)
	}
	_, more, err = a.engine.Admit(ctx, a.duty, a.config.Batch)
	return more, err
}

// ignoreLost: that another server admits is how it should be.
func ignoreLost(err error) error {
	if errors.Is(err, store.ErrDutyLost) {
		return nil
	}
	return err
}
