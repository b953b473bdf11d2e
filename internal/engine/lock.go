package engine

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"time"

	"go.arco.dev/servo/internal/base/fault"
	"go.arco.dev/servo/internal/base/id"
	"go.arco.dev/servo/internal/store"
)

const (
	// lockTries bounds how often a trigger requests locks again that were released while it read their
	// holders.
	lockTries = 10
	// lockPoll is how often a trigger that waits for a lock polls: the run may end on another server.
	lockPoll = time.Second
	// MaxWaitForLock bounds how long a trigger may wait for a lock.
	MaxWaitForLock = time.Minute
)

// lockedTrigger is a planned trigger that has its lock, needs none, or has a place among those that
// wait for it.
type lockedTrigger struct {
	*plannedTrigger

	waits    bool     // for its lock
	turn     int64    // its place among those that wait
	replaces []Cancel // runs to cancel because of this one
}

// lateTrigger is a planned trigger whose lock another run has.
type lateTrigger struct {
	*plannedTrigger

	holder id.Run          // that has the lock
	first  *plannedTrigger // of the same batch, which gets the lock and so the holder; nil if the holder existed before
}

// takeLocks takes the locks of triggers and returns those that have theirs or need none, and those that
// are late. Of the triggers in the batch with the same lock, one requests it.
func takeLocks(ctx context.Context, tx *store.Tx, w *working, planned []*plannedTrigger) (locked []*lockedTrigger, late []lateTrigger, err error) {
	firsts := map[store.LockKey]*plannedTrigger{}
	for _, t := range planned {
		if t.lock == "" {
			continue
		}
		// one that waits for quotas gets a run where another would be refused
		if first := firsts[t.lockKey()]; first == nil || t.WaitForQuota && !first.WaitForQuota {
			firsts[t.lockKey()] = t
		}
	}
	taken, holders, err := requestLocks(ctx, tx, w, firsts)
	if err != nil {
		return nil, nil, err
	}
	for _, t := range planned {
		holder, held := holders[t.lockKey()]
		first := firsts[t.lockKey()]
		switch {
		case t.lock == "" || taken[t.run]:
			locked = append(locked, &lockedTrigger{plannedTrigger: t})
		case held:
			late = append(late, lateTrigger{plannedTrigger: t, holder: holder})
		case first != t && taken[first.run]:
			late = append(late, lateTrigger{plannedTrigger: t, holder: first.run, first: first})
		default:
			t.result.err = fault.New(fault.Unavailable, "the lock "+t.lock+" changes hands too fast", fault.Field("pipeline"),
				fault.RetryAfter(time.Second), fault.Remedy("try again"))
		}
	}
	return locked, late, nil
}

func (t *plannedTrigger) lockKey() store.LockKey {
	return store.LockKey{Tenant: t.Tenant, Key: t.lock}
}

// requestLocks takes locks for runs. It returns the runs that have theirs and the holders of the others.
func requestLocks(ctx context.Context, tx *store.Tx, w *working, firsts map[store.LockKey]*plannedTrigger) (map[id.Run]bool, map[store.LockKey]id.Run, error) {
	taken, holders := map[id.Run]bool{}, map[store.LockKey]id.Run{}
	for range lockTries {
		var requests []store.LockRequest
		for key, t := range firsts {
			if _, held := holders[key]; held || taken[t.run] {
				continue
			}
			lateAt, breaches := t.lateAt(w.now)
			requests = append(requests, store.LockRequest{
				LockKey: key, Run: t.run, Workspace: t.workspace, Limit: t.limit, Priority: t.priority,
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
		maps.Copy(taken, given)
		maps.Copy(holders, held)
	}
	return taken, holders, nil
}

// followDecided answers triggers that another of the batch decides about: those that skip their run
// because of it, and repeats with the same idempotency key.
func followDecided(planned, fresh []*plannedTrigger, skipped []lateTrigger) {
	for _, t := range skipped {
		if t.first != nil {
			t.result.follow(t.first.result)
		}
	}
	byRun := make(map[id.Run]*plannedTrigger, len(fresh))
	for _, t := range fresh {
		byRun[t.run] = t
	}
	for _, t := range planned {
		if first := byRun[t.result.Run]; t.result.Repeat && first != nil && first != t {
			t.result.follow(first.result)
		}
	}
}

// undoRefused releases the locks of refused triggers, and the idempotency keys of triggers that created
// no run: a key is deleted if the request may be repeated, else it leads to the run that holds the lock.
func undoRefused(ctx context.Context, tx *store.Tx, fresh []*plannedTrigger, refused []*lockedTrigger) error {
	var locks []store.RunKey
	for _, t := range refused {
		if t.lock != "" && !t.waits {
			locks = append(locks, store.RunKey{Tenant: t.Tenant, Run: t.run})
		}
	}
	var forget, repoint []store.TriggerKey
	for _, t := range fresh {
		key := store.TriggerKey{Tenant: t.Tenant, Key: t.IdempotencyKey, Run: t.result.Run}
		switch {
		case key.Key == "":
		case t.result.err != nil, t.result.AlreadyRunning && (t.WaitForLock > 0 || t.result.Differs):
			forget = append(forget, key)
		case t.result.AlreadyRunning:
			repoint = append(repoint, key)
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

// withLock repeats a trigger until its lock is free or the time is over.
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

// untilFree waits outside of the lane, so that no other command waits with it.
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
		ended, stop := e.signals.RunEnded(triggered.Run)
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

// ListLocks returns the locks of a tenant in the order of their keys, after the given key.
func (e *Engine) ListLocks(ctx context.Context, owner id.Tenant, after string, most int) ([]Lock, error) {
	return e.store.ListLocks(ctx, owner, after, most)
}

// ReleaseLock cancels the run that holds a lock of the tenant that the cancel names. The lock is free
// when that run has ended.
func (e *Engine) ReleaseLock(ctx context.Context, key string, c Cancel) (Lock, Cancelled, error) {
	lock, err := e.store.GetLock(ctx, c.Tenant, key)
	if err != nil {
		return Lock{}, Cancelled{}, err
	}
	if c.Run = lock.Run; c.Reason == "" {
		c.Reason = fmt.Sprintf("its lock %s was released", key)
	}
	cancelled, err := e.CancelRun(ctx, c)
	return lock, cancelled, err
}
