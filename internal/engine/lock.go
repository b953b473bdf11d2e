package engine

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"go.arco.dev/servo/internal/base/event"
	"go.arco.dev/servo/internal/base/fault"
	"go.arco.dev/servo/internal/base/id"
	"go.arco.dev/servo/internal/domain/asset"
	"go.arco.dev/servo/internal/domain/config"
	"go.arco.dev/servo/internal/store"
)

const (
	// lockTries bounds how often a trigger asks again for locks that were released while it
	// looked who holds them.
	lockTries = 10
	// lockPoll is how often a trigger that waits for a lock looks without a signal: the run may
	// end on another server.
	lockPoll = time.Second
	// MaxWaitForLock bounds how long a trigger may wait for a lock.
	MaxWaitForLock = time.Minute
)

// bound says how long the run may take and what it excludes others by.
func (t *triggerCommand) bound() error {
	t.limit, t.lock = int32(t.quotas.MaxRunDuration/time.Second), "" //nolint:gosec // at most a year
	p, ok := t.code.Pipeline(t.Pipeline)
	if !ok {
		return nil // a selection: it has neither limit nor lock of its own
	}
	if own := int32(p.MaxExecution.Std() / time.Second); own > 0 && own < t.limit { //nolint:gosec // at most a week
		t.limit = own
	}
	if t.For != nil {
		if own := int32(t.For.Limit / time.Second); own > 0 && own < t.limit { //nolint:gosec // at most a week
			t.limit = own
		}
		switch {
		case t.For.Overlap == config.OverlapAllow:
			return nil
		case p.Lock == nil: // its own runs, and nobody else's
			t.lock = "config/" + t.Workspace + "/" + t.For.Name
			return nil
		}
	} else if p.Overlap == asset.OverlapAllow {
		return nil
	}
	var err error
	t.lock, err = t.code.locks[t.Pipeline].Of(t.Workspace, t.planned.Parameters)
	return err
}

// takeLocks gives the triggers their locks and leaves out those that cannot have theirs. Of
// those in the batch that want the same lock one asks for all.
func (e *Engine) takeLocks(ctx context.Context, tx *store.Tx, w *working, batch []*call[controlCommand]) ([]*call[controlCommand], error) {
	asking := map[store.LockKey]*call[controlCommand]{}
	for _, c := range batch {
		t := c.cmd.(*triggerCommand) //nolint:forcetypeassert // sorted by runControl
		if t.lock == "" {
			continue
		}
		key := store.LockKey{Tenant: t.Tenant, Key: t.lock}
		// one that waits for quotas gets a run where another would be refused
		if first := asking[key]; first == nil || t.WaitForQuota && !first.cmd.(*triggerCommand).WaitForQuota { //nolint:forcetypeassert // likewise
			asking[key] = c
		}
	}
	if len(asking) == 0 {
		return batch, nil
	}
	taken, holders, err := askForLocks(ctx, tx, w, asking)
	if err != nil {
		return nil, err
	}
	var unlocked []*call[controlCommand]
	for _, c := range batch {
		t := c.cmd.(*triggerCommand) //nolint:forcetypeassert // sorted by runControl
		key := store.LockKey{Tenant: t.Tenant, Key: t.lock}
		holder, held := holders[key]
		first := asking[key]
		switch {
		case t.lock == "" || taken[t.run]:
			unlocked = append(unlocked, c)
		case held:
			t.answer = Triggered{Run: holder, AlreadyRunning: true}
		case first != c && taken[first.cmd.(*triggerCommand).run]: //nolint:forcetypeassert // likewise
			t.behind = first
		default:
			c.err = fault.New(fault.Unavailable, "the lock "+t.lock+" changes hands too fast", fault.Field("pipeline"),
				fault.RetryAfter(time.Second), fault.Remedy("try again"))
		}
	}
	return unlocked, nil
}

func askForLocks(ctx context.Context, tx *store.Tx, w *working, asking map[store.LockKey]*call[controlCommand]) (map[id.Run]bool, map[store.LockKey]id.Run, error) {
	taken, holders := map[id.Run]bool{}, map[store.LockKey]id.Run{}
	for range lockTries {
		var requests []store.LockRequest
		for key, c := range asking {
			t := c.cmd.(*triggerCommand) //nolint:forcetypeassert // sorted by runControl
			if _, held := holders[key]; held || taken[t.run] {
				continue
			}
			lateAt, breaches := t.lateAt(w.now)
			requests = append(requests, store.LockRequest{
				LockKey: key, Run: t.run, Workspace: t.workspace, Limit: t.limit, Priority: t.Priority,
				By: cmp.Or(t.TriggeredBy, t.Meta.Actor), Pipeline: t.Pipeline, Config: t.configID(),
				LateAt: lateAt, Breaches: breaches,
			})
		}
		if len(requests) == 0 {
			break
		}
		given, held, err := tx.TakeLocks(ctx, requests, w.now)
		if err != nil {
			return nil, nil, err
		}
		for run := range given {
			taken[run] = true
		}
		for key, run := range held {
			holders[key] = run
		}
	}
	return taken, holders, nil
}

// settleRefused undoes what was taken for triggers that made no run, and answers those that
// stood behind another of the batch.
func settleRefused(ctx context.Context, tx *store.Tx, batch, fresh []*call[controlCommand]) error {
	var (
		locks           []store.RunKey
		forget, repoint []store.TriggerKey
		byRun           = make(map[id.Run]*call[controlCommand], len(fresh))
		triggerOf       = func(c *call[controlCommand]) *triggerCommand { return c.cmd.(*triggerCommand) } //nolint:forcetypeassert // sorted by runControl
		follow          = func(c, first *call[controlCommand]) {
			c.err, triggerOf(c).answer.Run = first.err, triggerOf(first).answer.Run
		}
	)
	for _, c := range fresh {
		t := triggerOf(c)
		byRun[t.run] = c
		if t.behind != nil {
			follow(c, t.behind)
			t.answer.AlreadyRunning = true
		} else if t.refused && t.lock != "" && !t.waits {
			locks = append(locks, store.RunKey{Tenant: t.Tenant, Run: t.run})
		}
		key := store.TriggerKey{Tenant: t.Tenant, Key: t.IdempotencyKey, Run: t.answer.Run}
		switch {
		case key.Key == "":
		case c.err != nil, t.answer.AlreadyRunning && (t.WaitForLock > 0 || t.answer.Differs): // it may be asked again
			forget = append(forget, key)
		case t.answer.AlreadyRunning:
			repoint = append(repoint, key)
		}
	}
	for _, c := range batch { // repeats of what this very batch has decided
		t := triggerOf(c)
		if first := byRun[t.answer.Run]; t.answer.Repeat && first != nil && first != c {
			follow(c, first)
		}
	}
	if err := tx.ReleaseLocks(ctx, locks); err != nil {
		return err
	}
	if err := tx.ForgetTriggerKeys(ctx, forget); err != nil {
		return err
	}
	return tx.RepointTriggerKeys(ctx, repoint)
}

// withLock tries again until the lock is free or the time is over.
func (e *Engine) withLock(ctx context.Context, wait time.Duration, try func() (Triggered, error)) (Triggered, error) {
	if wait < 0 || wait > MaxWaitForLock {
		return Triggered{}, fault.New(fault.InvalidArgument, "is "+wait.String(), fault.Field("wait_for_lock"),
			fault.Remedy("wait for at most "+MaxWaitForLock.String()))
	}
	begun, contended := time.Now(), false
	triggered, err := e.untilFree(ctx, wait, func() (Triggered, error) {
		triggered, err := try()
		contended = contended || triggered.AlreadyRunning
		return triggered, err
	})
	e.answered(triggered, err, contended, time.Since(begun))
	if err == nil {
		err = triggered.conflict()
	}
	if err != nil {
		return Triggered{}, err
	}
	return triggered, nil
}

// untilFree waits outside of the lane: nobody else waits with it.
func (e *Engine) untilFree(ctx context.Context, wait time.Duration, try func() (Triggered, error)) (Triggered, error) {
	triggered, err := try()
	if wait == 0 || err != nil || !triggered.AlreadyRunning {
		return triggered, err
	}
	over := time.NewTimer(wait)
	defer over.Stop()
	poll := time.NewTicker(lockPoll)
	defer poll.Stop()
	for err == nil && triggered.AlreadyRunning {
		ended, stop := e.signals.ended.wait(triggered.Run)
		holder := triggered.Run
		if triggered, err = try(); err == nil && triggered.AlreadyRunning && triggered.Run == holder {
			select {
			case <-ended:
			case <-poll.C:
			case <-over.C:
				stop()
				return triggered, nil
			case <-ctx.Done():
				stop()
				return triggered, nil
			}
		}
		stop()
	}
	return triggered, err
}

// Lock is a lock and the run that holds it.
type Lock = store.LockView

// ListLocks reads the locks of a tenant by their keys, after the key given.
func (e *Engine) ListLocks(ctx context.Context, owner id.Tenant, after string, most int) ([]Lock, error) {
	return e.store.ListLocks(ctx, owner, after, most)
}

// ReleaseLock cancels the run that holds a lock. The lock is free when that run has ended.
func (e *Engine) ReleaseLock(ctx context.Context, owner id.Tenant, key, reason string, meta event.Meta) (Lock, Cancelled, error) {
	lock, err := e.store.GetLock(ctx, owner, key)
	if err != nil {
		return Lock{}, Cancelled{}, err
	}
	if reason == "" {
		reason = fmt.Sprintf("its lock %s was released", key)
	}
	cancelled, err := e.CancelRun(ctx, Cancel{Tenant: owner, Run: lock.Run, Reason: reason, Meta: meta})
	return lock, cancelled, err
}
