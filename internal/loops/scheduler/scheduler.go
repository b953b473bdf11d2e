// Package scheduler is the loop that fires the slots of configs and handles external events. Any number of
// servers may run it: each takes due configs that no other server has locked. The engine decides, by the clock of
// the database.
package scheduler

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"go.arco.dev/servo/internal/base/loop"
	"go.arco.dev/servo/internal/engine"
	"go.arco.dev/servo/internal/store"
)

// look is how often the loop runs without a signal: other servers change configs too.
const look = time.Second

// eventPatience bounds one round of external events.
const eventPatience = 5 * time.Second

// Config are the options of the loop.
type Config struct {
	Batch  int // configs in one transaction; 0 is engine.DefaultFiring
	Logger *slog.Logger
}

// Scheduler are the running loops.
type Scheduler struct {
	store  *store.Store
	engine *engine.Engine
	config Config
	loop   *loop.Loop
	seldom *loop.Loop
	tidy   tidy

	mu    sync.Mutex
	timer *time.Timer // rings when the next config is due
	rung  chan struct{}
}

// Start runs the loops.
func Start(s *store.Store, e *engine.Engine, config Config) *Scheduler {
	if config.Batch == 0 {
		config.Batch = engine.DefaultFiring
	}
	sched := &Scheduler{store: s, engine: e, config: config, rung: make(chan struct{})}
	sched.loop = loop.Start(loop.Config{Name: "scheduler", Every: look, Wake: sched.wake, RunOnce: sched.runOnce, Logger: config.Logger})
	sched.seldom = loop.Start(loop.Config{Name: "scheduler chores", Every: chores, RunOnce: sched.doChores, Logger: config.Logger})
	return sched
}

// Stop ends the loops.
func (s *Scheduler) Stop() {
	s.loop.Stop()
	s.seldom.Stop()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.timer != nil {
		s.timer.Stop()
	}
	s.close(s.rung)
}

// wake returns a channel that is closed when a config may be due, or when the timer of the next one rings.
func (s *Scheduler) wake() <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.close(s.rung) // ends the wait for the previous one
	rung := make(chan struct{})
	s.rung = rung
	due := s.engine.Due()
	go func() {
		select {
		case <-due:
			s.ring(rung)
		case <-rung:
		}
	}()
	return rung
}

func (s *Scheduler) ring(rung chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.close(rung)
}

func (*Scheduler) close(rung chan struct{}) {
	select {
	case <-rung:
	default:
		close(rung)
	}
}

// runOnce fires due slots, applies the results of runs and creates the runs of external events.
func (s *Scheduler) runOnce(ctx context.Context) (more bool, err error) {
	d, err := s.store.NextDue(ctx)
	if err != nil {
		return false, err
	}
	// All of them, even if one fails. Firing comes first, since it waits for no lock.
	var fireErr, foldErr, eventErr error
	if d.At.After(d.Now) {
		s.alarm(d.At.Sub(d.Now))
	} else {
		var fired engine.Fired
		fired, fireErr = s.engine.FireDue(ctx, s.config.Batch)
		more = fired.More || fired.Configs > 0
	}
	if d.Results {
		var taken int
		taken, foldErr = s.engine.FoldResults(ctx, s.config.Batch)
		more = more || taken > 0 // it may have taken fewer than there are
	}
	if d.Events {
		var handled engine.Handled
		// Another transaction may hold a listening config: the others must not wait for it for long.
		bounded, cancel := context.WithTimeout(ctx, eventPatience)
		handled, eventErr = s.engine.HandleEvents(bounded, s.config.Batch)
		cancel()
		more = more || handled.More
	}
	return more, errors.Join(fireErr, foldErr, eventErr)
}

// alarm wakes the loop when the next config is due, if that is before its next round.
func (s *Scheduler) alarm(in time.Duration) {
	if in >= look {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	rung := s.rung
	s.timer = time.AfterFunc(in, func() { s.ring(rung) })
}
