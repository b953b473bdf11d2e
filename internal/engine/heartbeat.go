package engine

import (
	"context"
	"fmt"

	"go.arco.dev/servo/internal/fault"
	"go.arco.dev/servo/internal/store"
)

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
	for _, count := range []struct {
		field string
		value int64
	}{
		{"records_extracted", b.RecordsExtracted},
		{"records_transformed", b.RecordsTransformed},
		{"records_loaded", b.RecordsLoaded},
		{"bytes", b.Bytes},
	} {
		if count.value < 0 {
			return fault.New(fault.InvalidArgument, fmt.Sprintf("is %d", count.value), fault.Field(count.field), fault.Remedy("count up from 0"))
		}
	}
	if err := checkTime("eta", b.ETA); err != nil {
		return err
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
