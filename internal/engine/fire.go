package engine

import (
	"context"
	"errors"
	"fmt"
	"time"

	"go.arco.dev/servo/internal/base/event"
	"go.arco.dev/servo/internal/base/fault"
	"go.arco.dev/servo/internal/base/id"
	"go.arco.dev/servo/internal/domain/config"
	"go.arco.dev/servo/internal/domain/run"
	"go.arco.dev/servo/internal/domain/schedule"
	"go.arco.dev/servo/internal/store"
)

// DefaultFiring is how many configs one transaction fires.
const DefaultFiring = 1000

// firingSeats is how many transactions fire at the same time, over all servers. More would spend their
// time skipping the configs that these have locked. With several, one that hangs until the database ends
// it does not stop the others.
const firingSeats = 4

// lookAgain is when a slot that waits for another config is checked again.
const lookAgain = 10 * time.Second

const scheduler = "scheduler" // the actor of its events

// Fired is the result of FireDue.
type Fired struct {
	Configs int
	Runs    int
	More    bool // there may be others
}

// FireDue decides the due slots of up to most configs: it creates their runs, records the ledger and
// computes their next slots, in one transaction. Any server may call it at any time. While enough other
// transactions fire it does nothing: they continue until no config is due.
func (e *Engine) FireDue(ctx context.Context, most int) (fired Fired, err error) {
	var f *firing
	err = e.transact(ctx, func(ctx context.Context, tx *store.Tx, w *working) error {
		now, seated, err := tx.TakeFiringSeat(ctx, firingSeats)
		f, fired = newFiring(e, now), Fired{}
		if err != nil || !seated {
			return err
		}
		due, err := tx.LockDueConfigs(ctx, now, most)
		if err != nil || len(due) == 0 {
			return err
		}
		fired.Configs, fired.More = len(due), len(due) == most
		w.at(now)
		if err := f.decide(ctx, tx, due); err != nil {
			return err
		}
		n, err := f.createRuns(ctx, tx, w, maxTasksPerBatch)
		if err != nil {
			return err
		}
		if n < len(f.batch) {
			f.postpone(n)
		}
		for _, c := range f.configs {
			if err := f.settle(c); err != nil {
				return err
			}
		}
		return f.save(ctx, tx)
	})
	if err != nil {
		return Fired{}, err
	}
	fired.Runs, fired.More = f.created, fired.More || f.more
	f.observe()
	return fired, f.followUp(ctx)
}

// firing is one transaction that fires configs.
type firing struct {
	engine  *Engine
	now     time.Time
	ledger  *ledger
	configs []*firingConfig
	batch   []*firedTrigger
	loads   map[id.Config]store.ConfigLoad
	created int
	more    bool
	cancels []Cancel // of replaced runs
}

// firingConfig is one config in it.
type firingConfig struct {
	*store.ConfigState

	schedule *schedule.Schedule
	skipped  []config.Range
	slots    []firingSlot
	until    time.Time // every slot up to here will be decided
	again    time.Time // when a waiting slot is checked again
	changed  bool      // its definition, not only its next slot
	noted    bool      // among those that are written
}

// firedTrigger is the trigger of a config, with its result once the runs were created.
type firedTrigger struct {
	*triggerCommand

	result triggerResult
}

// firingSlot is a slot that fires if its run can be created.
type firingSlot struct {
	at      time.Time
	trigger *firedTrigger
	skipped *config.Range // decided before a run was requested
	missed  bool          // it is one of several that are due at once
}

func newFiring(e *Engine, now time.Time) *firing {
	return &firing{engine: e, now: now, ledger: newLedger(e.config.Server)}
}

// decide selects the slots that fire, by their times and by the configs that they depend on.
func (f *firing) decide(ctx context.Context, tx *store.Tx, due []store.ConfigState) error {
	var counted []store.ConfigKey
	for i := range due {
		c := &firingConfig{ConfigState: &due[i]}
		f.configs = append(f.configs, c)
		if c.Spec.MaxOverlap > 0 || c.Spec.Overlap == config.OverlapBufferOne || c.Spec.Overlap == config.OverlapCancelRunning {
			counted = append(counted, c.Key())
		}
	}
	var err error
	if f.loads, err = tx.LiveOfConfigs(ctx, counted); err != nil {
		return err
	}
	for _, c := range f.configs {
		if c.schedule, err = c.Spec.Schedule(); err != nil {
			if err := f.disableUnreadable(c, err); err != nil {
				return err
			}
			continue
		}
		decision := c.Due(c.schedule, c.DecidedUntil, f.now)
		c.skipped, c.until = decision.Skipped, c.DecidedUntil
		for _, r := range decision.Skipped {
			c.until = later(c.until, r.To)
		}
		f.slotsOf(c, decision)
	}
	return nil
}

// disableUnreadable disables a config that cannot be read any more, so that the others continue.
func (f *firing) disableUnreadable(c *firingConfig, cause error) error {
	f.engine.log.Error("a config cannot be read", "tenant", c.Tenant, "config", c.ID, "error", cause)
	c.changed, c.until = true, c.DecidedUntil
	c.Failures = max(c.Failures, int32(c.Spec.MaxConsecutiveFailures)) //nolint:gosec // bounded when it was saved; alerts depend on it
	return f.ledger.record(c.ConfigState, config.Disabled{Reason: "it cannot be read: " + clipped(cause.Error(), config.MaxNote/2)}, f.now, event.Meta{Actor: scheduler})
}

func later(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}

// slotsOf adds a trigger for each slot that fires, up to the first that has to wait for another config.
func (f *firing) slotsOf(c *firingConfig, d config.Decision) {
	live := f.loads[c.ID].Live
	for _, at := range d.Fire {
		met, wait := dependencyMet(c, at, f.now)
		if wait {
			c.again = f.now.Add(lookAgain)
			if end := at.Add(c.Spec.DependsOn.Wait.Std()); end.Before(c.again) {
				c.again = end
			}
			return
		}
		c.until = later(c.until, at)
		slot := firingSlot{at: at, missed: len(d.Fire) > 1}
		switch {
		case !met:
			slot.skipped = &config.Range{Outcome: config.SkippedDependency, Reason: c.Spec.DependsOn.Config + " has not succeeded in time"}
		case c.Spec.MaxOverlap > 0 && live >= c.Spec.MaxOverlap:
			slot.skipped = &config.Range{Outcome: config.SkippedOverlap, Reason: fmt.Sprintf("%d runs have not ended, max_overlap is %d", c.Spec.MaxOverlap, c.Spec.MaxOverlap)}
		default:
			live++
			slot.trigger = f.add(configTrigger(c.ConfigState, c.schedule, at, f.now, "schedule"))
		}
		c.slots = append(c.slots, slot)
	}
	c.until = later(c.until, d.Until)
}

// dependencyMet reports whether the config that a slot depends on has succeeded, or may still.
func dependencyMet(c *firingConfig, slot, now time.Time) (met, wait bool) {
	d := c.Spec.DependsOn
	if d == nil {
		return true, false
	}
	if !c.DependencyAt.IsZero() && !c.DependencyAt.Before(slot.Add(-d.Within.Std())) {
		return true, false
	}
	return false, now.Before(slot.Add(d.Wait.Std()))
}

// configTrigger requests a run of a config.
func configTrigger(c *store.ConfigState, s *schedule.Schedule, slot, now time.Time, why string) *triggerCommand {
	window := config.WindowAt(s, slot, now)
	parameters, err := c.Spec.Render(window)
	t := newTrigger(Trigger{
		Tenant: c.Tenant, Workspace: c.WorkspaceName, Pipeline: c.Spec.Pipeline, Parameters: parameters, Priority: c.Spec.Priority,
		TriggerType: why, TriggeredBy: "config/" + c.Name, WaitForQuota: true, Meta: event.Meta{Actor: scheduler},
		For: &ForConfig{
			Config: c.ID, Name: c.Name, Slot: slot, Limit: c.Spec.MaxExecution.Std(), Overlap: c.Spec.Overlap,
			Within: c.Spec.SLAStartDelay.Std(), Delay: c.Delay(), Labels: labelText(c.Spec.Labels),
			Window: &run.Window{Config: c.Name, Slot: window.Slot, Start: window.Start, End: window.End},
		},
	})
	t.fired, t.broken = true, err
	t.cover = coverOf(c, slot, now)
	if c.Spec.Retry != nil {
		policy := policyOf(*c.Spec.Retry)
		t.Retry = &policy
	}
	return t
}

// add puts a trigger into the batch of the transaction.
func (f *firing) add(t *triggerCommand) *firedTrigger {
	fired := &firedTrigger{triggerCommand: t}
	f.batch = append(f.batch, fired)
	return fired
}

// createRuns creates the runs of the first n triggers, with which the transaction has its largest size.
func (f *firing) createRuns(ctx context.Context, tx *store.Tx, w *working, limit int) (n int, err error) {
	cmds := make([]*triggerCommand, len(f.batch))
	for i, t := range f.batch {
		cmds[i] = t.triggerCommand
	}
	planned, results, err := f.engine.planTriggers(ctx, tx, cmds, limit)
	if err != nil {
		return 0, err
	}
	for _, t := range planned {
		t.run = id.New[id.Run](w.mint)
		t.result.Run = t.run
	}
	if f.created, err = createRuns(ctx, tx, w, planned, planned, f.loads); err != nil {
		return 0, err
	}
	for i, r := range results {
		f.batch[i].result = r
		f.cancels = append(f.cancels, r.replaces...)
	}
	return len(results), nil
}

// postpone leaves the slots from the nth trigger on for the next transaction: this one is large enough.
func (f *firing) postpone(n int) {
	f.more = true
	left := make(map[*firedTrigger]bool, len(f.batch)-n)
	for _, c := range f.batch[n:] {
		left[c] = true
	}
	for _, c := range f.configs {
		for i, slot := range c.slots {
			if left[slot.trigger] {
				f.stopAt(c, i)
				break
			}
		}
	}
}

// stopAt leaves the slots of a config from the ith on undecided.
func (f *firing) stopAt(c *firingConfig, i int) {
	c.until = c.DecidedUntil
	for _, r := range c.skipped {
		c.until = later(c.until, r.To)
	}
	if c.slots = c.slots[:i]; i > 0 {
		c.until = later(c.until, c.slots[i-1].at)
	}
	c.again = f.now
}

// save writes the ledger and the state of each config.
func (f *firing) save(ctx context.Context, tx *store.Tx) error {
	var moved, saved []store.ConfigState
	for _, c := range f.configs {
		if moved = append(moved, *c.ConfigState); c.changed {
			saved = append(saved, *c.ConfigState)
		}
	}
	if err := tx.SaveConfigs(ctx, saved); err != nil {
		return err
	}
	if err := tx.MoveConfigs(ctx, moved); err != nil {
		return err
	}
	return f.ledger.write(ctx, tx, f.now)
}

// settle adds the outcomes of one config to the ledger.
func (f *firing) settle(c *firingConfig) error {
	if c.schedule == nil { // disabled: it cannot be read
		c.DueAt = time.Time{}
		return nil
	}
	for _, r := range c.skipped {
		f.ledger.skip(c.ConfigState, r)
	}
	for i, slot := range c.slots {
		r, postponed := slot.outcome()
		if postponed {
			f.stopAt(c, i)
			f.more = true
			break
		}
		if r == nil {
			covered := slot.trigger.covered
			f.ledger.fire(c.ConfigState, slot.at, slot.trigger.result.Run, covered.names)
			if !covered.until.IsZero() {
				c.CoveredUntil = covered.until
			}
			continue
		}
		r.From, r.To, r.Slots, r.Version = slot.at, slot.at, 1, c.Version
		f.ledger.skip(c.ConfigState, *r)
		if r.Outcome == config.Failed {
			if err := f.failed(c); err != nil {
				return err
			}
		}
	}
	c.DecidedUntil = c.until
	if !c.MovedTo.After(c.DecidedUntil) {
		c.MovedTo = time.Time{}
	}
	f.ledger.plan(c.ConfigState, c.schedule)
	if !c.again.IsZero() && !c.DueAt.IsZero() {
		c.DueAt = c.again
	}
	return nil
}

// outcome is why a slot did not fire, nil if it did.
func (s firingSlot) outcome() (r *config.Range, postponed bool) {
	if s.skipped != nil {
		return s.skipped, false
	}
	result := s.trigger.result
	var cause *fault.Fault
	switch {
	case result.err == nil && result.AlreadyRunning:
		return &config.Range{Outcome: config.SkippedOverlap, Run: &result.Run, Reason: s.overlapReason(s.trigger.For.Overlap)}, false
	case result.err == nil:
		return nil, false
	case fault.Is(result.err, fault.Unavailable):
		return nil, true
	case errors.Is(result.err, errNoPartition):
		return &config.Range{Outcome: config.SkippedNoPartition, Reason: errNoPartition.Message}, false
	case errors.As(result.err, &cause) && cause.Values["quota"] == quotaDaily: // its own, or of the trigger before it
		return &config.Range{Outcome: config.SkippedQuota, Reason: cause.Message}, false
	}
	return &config.Range{Outcome: config.Failed, Reason: clipped(result.err.Error(), config.MaxNote)}, false
}

// overlapReason is why a slot is skipped while a run holds the lock.
func (s firingSlot) overlapReason(overlap config.Overlap) string {
	reason := fmt.Sprintf("overlap is %s, and a run has not ended", overlap)
	if overlap == config.OverlapBufferOne {
		reason = fmt.Sprintf("overlap is %s, and a run waits already", overlap)
	}
	if s.missed {
		reason = "missed; catchup is all, but " + reason
	}
	return reason
}

func clipped(text string, most int) string {
	if len(text) <= most {
		return text
	}
	return text[:most]
}

// failed counts a failure, and disables a config that has failed too often.
func (f *firing) failed(c *firingConfig) error {
	c.Failures++
	if !c.Enabled || int(c.Failures) < c.Spec.MaxConsecutiveFailures {
		return nil
	}
	c.changed = true
	return f.ledger.record(c.ConfigState, tooManyFailures(c.Failures), f.now, event.Meta{Actor: scheduler})
}

func tooManyFailures(n int32) config.Disabled {
	return config.Disabled{Reason: fmt.Sprintf("it has failed %d times one after the other", n), Failures: n}
}

// observe reports the outcomes of the slots to the observer.
func (f *firing) observe() {
	if f.engine.config.Observer == nil {
		return
	}
	delays := make(map[id.Config]time.Duration, len(f.configs))
	for _, c := range f.configs {
		delays[c.ID] = c.Delay()
	}
	decided := make([]SlotsDecided, 0, len(f.ledger.fired)+len(f.ledger.skipped))
	for _, s := range f.ledger.fired {
		decided = append(decided, SlotsDecided{Outcome: config.Fired, Slots: 1, Lag: f.now.Sub(s.At.Add(delays[s.Config]))})
	}
	for _, s := range f.ledger.skipped {
		decided = append(decided, SlotsDecided{Outcome: s.Outcome, Slots: s.Slots})
	}
	f.engine.config.Observer.Decided(decided)
}

// followUp cancels replaced runs after the transaction, since runs are locked after configs.
func (f *firing) followUp(ctx context.Context) error { return f.engine.replace(ctx, f.cancels) }
