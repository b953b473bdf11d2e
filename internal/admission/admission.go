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
	store      *store.Store
	engine     *engine.Engine
	config     Config
	duty       store.Duty
	renewAt    time.Time
	startsMore bool  // there were more runs to start than went into one batch
	counted    int64 // the epoch in which it has counted what is in flight
	countAt    time.Time
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
	admits, starts := true, a.engine.StartsWanted() || a.startsMore
	if now := time.Now(); now.After(a.renewAt) {
		if a.duty, admits, starts, err = a.store.TakeAdmission(ctx, Duty, a.config.Holder, takeover); err != nil {
			a.duty = store.Duty{}
			return false, ignoreLost(err)
		}
		a.renewAt = now.Add(renewal)
	}
	// Each in its turn, whatever becomes of the other.
	startErr := a.start(ctx, starts)
	more, err = a.admit(ctx, admits || a.startsMore)
	if err = errors.Join(startErr, err); errors.Is(err, store.ErrDutyLost) {
		a.renewAt = time.Time{}
	}
	return more || a.startsMore, ignoreLost(err)
}

// start starts runs that wait for their tenants' quotas. It goes with the rounds of admission:
// both act under the same duty, and what one starts the other admits. Whether something may
// start is known here, or seen with the renewal of the duty: runs end on other servers too, and
// quotas are changed there.
func (a *admitter) start(ctx context.Context, wanted bool) error {
	a.startsMore = false
	if !wanted {
		return nil
	}
	started, err := a.engine.StartRuns(ctx, a.duty, a.config.Batch)
	a.startsMore = started == a.config.Batch
	return err
}

// admit makes a round. Before the first one in an epoch, and once a minute, it counts what is
// in flight: whoever held the duty before may have been interrupted by a restore.
func (a *admitter) admit(ctx context.Context, wanted bool) (more bool, err error) {
	if now := time.Now(); a.counted != a.duty.Epoch || now.After(a.countAt) {
		if err := a.engine.RecountShares(ctx, a.duty); err != nil {
			return false, err
		}
		a.counted, a.countAt = a.duty.Epoch, now.Add(recount)
	}
	if !wanted {
		return false, nil
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
