// Package admission is the loop that moves ready tasks into their pools' queues. It works under a duty, so one
// server at a time does it; the engine decides.
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
	look    = time.Second // between rounds without a signal
	recount = time.Minute
)

// Config are the options of the loop.
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
	lookAt     time.Time  // when to look for runs to start
	startsMore bool       // more runs could start than fit into one batch
	counted    int64      // the epoch in which it has counted the tasks in flight
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

// Stop ends the loops and releases the duty, so that the next server need not wait.
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
	// Both, even if one fails.
	startErr := a.start(ctx, starts)
	more, err = a.admit(ctx, admits || a.startsMore)
	if err = errors.Join(startErr, err); errors.Is(err, store.ErrDutyLost) {
		a.keeper.lost(a.duty)
		a.lookAt = time.Time{}
		return false, nil // another server admits
	}
	return more || a.startsMore, err
}

// start starts runs that wait for their tenants' quotas. It belongs to the rounds of admission: both work
// under the same duty, and admission moves the tasks of started runs. It looks when signalled and once a
// second, since runs end and quotas change on other servers too.
func (a *admitter) start(ctx context.Context, wanted bool) error {
	a.startsMore = false
	if !wanted {
		return nil
	}
	started, err := a.engine.StartRuns(ctx, a.duty, a.config.Batch)
	a.startsMore = started == a.config.Batch
	return err
}

// admit makes a round. Before the first one of an epoch, and once a minute, it counts the tasks in flight: a
// restore may have interrupted the server that held the duty before.
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
