package worker

import (
	"context"
	"errors"
	"slices"
	"time"

	servov1 "go.arco.dev/servo/gen/servo/v1"
)

// maxBeats is how many leases one heartbeat renews: the server's limit.
const maxBeats = 10_000

// beat renews all leases periodically until the worker ends.
func (w *Worker) beat(ctx context.Context) {
	pause := w.beatEvery()
	wait := backoff{}
	for {
		timer := time.NewTimer(pause)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return
		}
		pause = w.beatEvery()
		if err := w.beatOnce(ctx); err != nil && ctx.Err() == nil {
			// Sooner than the next heartbeat, because the leases expire.
			pause = min(pause, max(pauseOf(wait.tries), w.link.pauseAfter(err)))
			wait.tries++
			continue
		}
		wait.tries = 0
	}
}

func (w *Worker) beatOnce(ctx context.Context) error {
	w.mu.Lock()
	all := make([]*attempt, 0, len(w.held))
	for _, a := range w.held {
		all = append(all, a)
	}
	settled := w.claims.finished()
	w.mu.Unlock()
	if len(all) <= maxBeats {
		if len(all) == 0 && settled == nil {
			return nil
		}
		return w.renewAll(ctx, all, settled)
	}
	for chunk := range slices.Chunk(all, maxBeats) {
		if err := w.renewAll(ctx, chunk, nil); err != nil {
			return err
		}
	}
	return nil
}

// renewAll sends a heartbeat, in parts if it is refused as a whole, so that one invalid lease does not
// prevent the renewal of the others. Settled is nil unless the attempts are all that the worker holds.
func (w *Worker) renewAll(ctx context.Context, attempts []*attempt, settled *servov1.ClaimRange) error {
	err := w.renew(ctx, attempts, settled)
	switch {
	case judge(err) != refused:
		return err
	case len(attempts) == 0:
		w.options.Logger.Warn("the server refused a heartbeat", "error", err)
		return nil
	case len(attempts) == 1:
		w.options.Logger.Warn("the server refused a heartbeat", "task", attempts[0].lease.GetTask(), "error", err)
		return nil
	}
	middle := len(attempts) / 2
	return errors.Join(w.renewAll(ctx, attempts[:middle], nil), w.renewAll(ctx, attempts[middle:], nil))
}

// renew sends one heartbeat and processes its answers.
func (w *Worker) renew(ctx context.Context, attempts []*attempt, settled *servov1.ClaimRange) error {
	request := &servov1.HeartbeatRequest{WorkerId: w.options.ID, Leases: make([]*servov1.HeartbeatItem, len(attempts)), Settled: settled}
	for i, a := range attempts {
		request.Leases[i] = &servov1.HeartbeatItem{Lease: a.handle()} // progress is reported separately
	}
	ctx, cancel := context.WithTimeout(ctx, max(w.beatEvery(), 5*time.Second))
	defer cancel()
	sent := time.Now()
	response, err := w.client.Heartbeat(ctx, request)
	w.link.record("heartbeat", err)
	if err == nil && len(response.GetLeases()) != len(attempts) {
		err = errMiscounted
	}
	if err != nil {
		return err
	}
	w.mu.Lock()
	for i, answer := range response.GetLeases() {
		if answer.GetHeld() {
			attempts[i].expires = later(attempts[i].expires, sent.Add(w.leaseTime()))
		}
	}
	w.mu.Unlock()
	for i, answer := range response.GetLeases() {
		switch {
		case !answer.GetHeld():
			w.lose(attempts[i])
		case answer.GetShouldCancel():
			w.stop(attempts[i])
		}
	}
	return nil
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}
