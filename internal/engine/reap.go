package engine

import (
	"context"
	"fmt"

	"go.arco.dev/servo/internal/event"
	"go.arco.dev/servo/internal/fault"
	"go.arco.dev/servo/internal/run"
	"go.arco.dev/servo/internal/store"
)

// Expire ends attempts whose lease was not renewed or whose deadline is over, up to most
// of them, and says how many it looked at.
func (e *Engine) Expire(ctx context.Context, most int) (int, error) {
	looked := 0
	err := e.transact(ctx, func(ctx context.Context, tx *store.Tx, w *working) error {
		now, err := tx.Clock(ctx)
		if err != nil {
			return err
		}
		candidates, err := tx.DueLeases(ctx, now, most)
		if err != nil || len(candidates) == 0 {
			return err
		}
		looked = len(candidates)
		runs, err := tx.LockRuns(ctx, store.LockForCount, runKeys(candidates))
		if err != nil {
			return err
		}
		leases, err := tx.LockLeasesWithHeartbeats(ctx, candidates)
		if err != nil {
			return err
		}
		if now, err = tx.Clock(ctx); err != nil {
			return err
		}
		w.at(now)
		w.addRuns(runs)
		w.addTasks(leases)
		if err := e.expire(ctx, tx, w, leases); err != nil {
			return err
		}
		return e.downstream(ctx, tx, w)
	})
	return looked, err
}

// expire looks at each lease again under its lock: past its deadline, not renewed, or
// alive, in which case the reaper is told when to look next.
func (e *Engine) expire(ctx context.Context, tx *store.Tx, w *working, leases []run.Task) error {
	var due []store.TaskKey
	for _, t := range leases {
		if timedOut(t, w) || !t.ExpiresAt.After(w.now) {
			due = append(due, keyOf(t))
		} else {
			w.changes.Reschedule = append(w.changes.Reschedule, t)
		}
	}
	policies, err := e.policies(ctx, tx, w, due)
	if err != nil {
		return err
	}
	for _, k := range due {
		t := w.tasks[k.Task]
		var cmd run.Command = run.Expire{Policy: policies.of(t.task, run.CodeHeartbeatLost)}
		if timedOut(t.task, w) {
			cmd = run.TimeOut{Policy: policies.of(t.task, run.CodeTimeout)}
		}
		if err := w.decide(t, cmd, event.Meta{Actor: "reaper"}); err != nil {
			return err
		}
	}
	return nil
}

func timedOut(t run.Task, w *working) bool {
	return t.State == run.Running && !t.Deadline.After(w.now)
}

// RetryDue makes tasks ready whose backoff is over, up to most of them, and says how many
// it looked at.
func (e *Engine) RetryDue(ctx context.Context, most int) (int, error) {
	looked := 0
	err := e.transact(ctx, func(ctx context.Context, tx *store.Tx, w *working) error {
		now, err := tx.Clock(ctx)
		if err != nil {
			return err
		}
		candidates, err := tx.DueRetries(ctx, now, most)
		if err != nil || len(candidates) == 0 {
			return err
		}
		looked = len(candidates)
		runs, err := tx.LockRuns(ctx, store.LockForMove, runKeys(candidates))
		if err != nil {
			return err
		}
		due, err := tx.LockRetries(ctx, candidates, now)
		if err != nil {
			return err
		}
		if now, err = tx.Clock(ctx); err != nil {
			return err
		}
		w.at(now)
		w.addRuns(runs)
		for _, t := range due {
			if err := w.decide(w.add(t), run.RetryDue{}, event.Meta{Actor: "reaper"}); err != nil {
				return err
			}
		}
		return nil
	})
	return looked, err
}

// Admit moves ready tasks into their pools' queues, by priority and time, under the
// admission duty. It stops when enough is queued, and says how many it moved.
func (e *Engine) Admit(ctx context.Context, duty store.Duty, most int) (int, error) {
	admitted := 0
	err := e.transact(ctx, func(ctx context.Context, tx *store.Tx, w *working) error {
		if err := tx.HoldDuty(ctx, duty); err != nil {
			return err
		}
		queued, err := tx.CountQueued(ctx, e.config.QueueTarget)
		if err != nil {
			return err
		}
		room := min(most, e.config.QueueTarget-queued)
		e.signals.full.Store(room < most)
		if room <= 0 {
			return nil
		}
		ready, err := tx.TakeReady(ctx, room)
		if err != nil {
			return err
		}
		now, err := tx.Clock(ctx)
		if err != nil {
			return err
		}
		w.at(now)
		for _, t := range ready {
			if err := w.decide(w.add(t), run.Admit{}, event.Meta{Actor: "admission"}); err != nil {
				return err
			}
		}
		admitted = len(ready)
		return nil
	})
	return admitted, err
}

// Heartbeat is one worker's sign of life for one lease.
type Heartbeat = store.Pulse

// Pulse answers a heartbeat: whether the lease is held, and whether to stop.
type Pulse = store.PulseAnswer

// Heartbeats renew leases. The answers stand in the order of the beats. They have a lane of
// their own, so that a server with too much to do does not look dead to its workers.
func (e *Engine) Heartbeats(ctx context.Context, beats []Heartbeat) ([]Pulse, error) {
	for _, b := range beats {
		if err := validateHeartbeat(b); err != nil {
			return nil, err
		}
	}
	if len(beats) > maxHeartbeats {
		return nil, fault.New(fault.LimitExceeded, fmt.Sprintf("has %d heartbeats, the limit of one call is %d", len(beats), maxHeartbeats),
			fault.Field("leases"), fault.Remedy("send them in several calls"), fault.Value("limit", maxHeartbeats))
	}
	if len(beats) == 0 {
		return nil, nil
	}
	cmd := &heartbeatCommand{beats: beats}
	if err := e.heartbeats.do(ctx, cmd); err != nil {
		return nil, err
	}
	return cmd.answers, nil
}

// Limits of a heartbeat: phase and stage, and how many one call brings.
const (
	maxPhaseLength = 100
	maxHeartbeats  = 10_000
)

func validateHeartbeat(b Heartbeat) error {
	if !(b.Progress >= 0 && b.Progress <= 1) { // NaN too
		return fault.New(fault.InvalidArgument, "must be 0 to 1", fault.Field("progress"), fault.Remedy("send the share that is done"))
	}
	if err := checkText("phase", b.Phase, maxPhaseLength); err != nil {
		return err
	}
	return checkText("stage", b.Stage, maxPhaseLength)
}

type heartbeatCommand struct {
	beats   []Heartbeat
	answers []Pulse
}

func (e *Engine) runHeartbeats(ctx context.Context, batch []*call[*heartbeatCommand]) error {
	latest := map[store.PulseKey]Heartbeat{}
	for _, c := range batch {
		for _, b := range c.cmd.beats {
			latest[pulseKey(b)] = b
		}
	}
	beats := make([]Heartbeat, 0, len(latest))
	for _, b := range latest {
		beats = append(beats, b)
	}
	alive, err := e.store.Heartbeat(ctx, beats, e.config.HeartbeatTimeout)
	if err != nil {
		return err
	}
	for _, c := range batch {
		c.cmd.answers = make([]Pulse, len(c.cmd.beats))
		for i, b := range c.cmd.beats {
			c.cmd.answers[i] = alive[pulseKey(b)]
		}
	}
	return nil
}

// pulseKey tells leases apart by all that they are known by: a beat with somebody else's
// task or another token must neither hold back the right one nor get its answer.
func pulseKey(b Heartbeat) store.PulseKey { return store.PulseKey{TaskKey: b.Key, Token: b.Token} }
