// Package admission is the loop that lets ready tasks into their pools' queues. It works
// under a duty, so one server at a time decides; it decides nothing itself.
package admission

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"go.arco.dev/servo/internal/base/loop"
	"go.arco.dev/servo/internal/engine"
	"go.arco.dev/servo/internal/store"
)

// Duty is the name of the row that the admitting server holds.
const Duty = engine.AdmissionDuty

const (
	look    = time.Second // the pace without a signal
	recount = time.Minute
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
	keeper     *keeper
	duty       store.Duty // under which it works now
	lookAt     time.Time  // when to ask whether there is anything to do
	startsMore bool       // there were more runs to start than went into one batch
	counted    int64      // the epoch in which it has counted what is in flight
	countAt    time.Time
}

func newAdmitter(s *store.Store, e *engine.Engine, config Config) *admitter {
	if config.Batch == 0 {
		config.Batch = engine.DefaultRound
	}
	return &admitter{store: s, engine: e, config: config, keeper: &keeper{store: s, name: Duty, holder: config.Holder, gained: e.WakeAdmission}}
}

// Start runs the loops: one that keeps the duty, one that works under it.
func Start(s *store.Store, e *engine.Engine, config Config) *Admission {
	a := newAdmitter(s, e, config)
	return &Admission{admitter: a, loops: []*loop.Loop{
		loop.Start(loop.Config{Name: "admission", Every: look, Wake: e.Ready, RunOnce: a.runOnce, Logger: config.Logger}),
		loop.Start(loop.Config{Name: "admission duty", Every: renewal, RunOnce: a.keeper.runOnce, Logger: config.Logger}),
	}}
}

// Admission is the running loops.
type Admission struct {
	admitter *admitter
	loops    []*loop.Loop
}

// Stop ends the loops and gives the duty back, so that the next server need not wait.
func (a *Admission) Stop(ctx context.Context) error {
	for _, l := range a.loops {
		l.Stop()
	}
	duty := a.admitter.keeper.held()
	if duty.Epoch == 0 {
		return nil
	}
	return a.admitter.store.ReleaseDuty(ctx, duty)
}

func (a *admitter) runOnce(ctx context.Context) (more bool, err error) {
	if a.duty = a.keeper.held(); a.duty.Epoch == 0 {
		return false, nil
	}
	admits, starts := true, a.engine.StartsWanted() || a.startsMore
	if now := time.Now(); now.After(a.lookAt) {
		if admits, starts, err = a.store.AdmissionWork(ctx); err != nil {
			return false, err
		}
		a.lookAt = now.Add(look)
	}
	// Each in its turn, whatever becomes of the other.
	startErr := a.start(ctx, starts)
	more, err = a.admit(ctx, admits || a.startsMore)
	if err = errors.Join(startErr, err); errors.Is(err, store.ErrDutyLost) {
		a.keeper.lost(a.duty)
		a.lookAt = time.Time{}
		return false, nil // that another server admits is how it should be
	}
	return more || a.startsMore, err
}

// start starts runs that wait for their tenants' quotas. It goes with the rounds of admission:
// both act under the same duty, and what one starts the other admits. Whether something may
// start is known here, or seen once a second: runs end on other servers too, and quotas are
// changed there.
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
