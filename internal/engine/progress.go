package engine

import (
	"context"
	"fmt"

	"go.arco.dev/servo/internal/base/fault"
	"go.arco.dev/servo/internal/engine/batch"
	"go.arco.dev/servo/internal/store"
)

// Progress is how far a leased attempt is, as its worker reports it.
type Progress = store.ProgressReport

// Progress records how far attempts are. The answers are in the order of the reports. It informs people and
// decides nothing, so it has a lane of its own, which no heartbeat waits for.
func (e *Engine) Progress(ctx context.Context, reports []Progress) ([]Pulse, error) {
	if len(reports) > maxHeartbeats {
		return nil, fault.New(fault.LimitExceeded, fmt.Sprintf("has %d reports, the limit of one call is %d", len(reports), maxHeartbeats),
			fault.Field("progress"), fault.Remedy("send them in several calls"), fault.Value("limit", maxHeartbeats))
	}
	for _, p := range reports {
		if err := ValidateProgress(p); err != nil {
			return nil, err
		}
	}
	if len(reports) == 0 {
		return nil, nil
	}
	return e.progress.Do(ctx, reports)
}

// maxPhaseLength is the longest name of a phase or a stage.
const maxPhaseLength = 100

// ValidateProgress refuses an invalid progress.
func ValidateProgress(p Progress) error {
	if !(p.Fraction >= 0 && p.Fraction <= 1) { // NaN too
		return fault.New(fault.InvalidArgument, "must be 0 to 1", fault.Field("fraction"), fault.Remedy("send the share that is done"))
	}
	for _, count := range []struct {
		field string
		value int64
	}{
		{"records_extracted", p.RecordsExtracted},
		{"records_transformed", p.RecordsTransformed},
		{"records_loaded", p.RecordsLoaded},
		{"bytes", p.Bytes},
	} {
		if count.value < 0 {
			return fault.New(fault.InvalidArgument, fmt.Sprintf("is %d", count.value), fault.Field(count.field), fault.Remedy("count up from 0"))
		}
	}
	if err := checkTime("eta", p.ETA); err != nil {
		return err
	}
	if err := checkText("phase", p.Phase, maxPhaseLength); err != nil {
		return err
	}
	return checkText("stage", p.Stage, maxPhaseLength)
}

// runProgress writes the latest progress of each lease of a batch.
func (e *Engine) runProgress(ctx context.Context, calls []*batch.Call[[]Progress, []Pulse]) error {
	latest := map[store.PulseKey]int{}
	var reports []Progress
	for _, c := range calls {
		for _, p := range c.Request {
			key := pulseKey(p.Key, p.Token)
			if at, again := latest[key]; again {
				reports[at] = p
				continue
			}
			latest[key] = len(reports)
			reports = append(reports, p)
		}
	}
	alive, err := e.store.WriteProgress(ctx, reports)
	if err != nil {
		return err
	}
	for _, c := range calls {
		c.Answer = make([]Pulse, len(c.Request))
		for i, p := range c.Request {
			c.Answer[i] = alive[pulseKey(p.Key, p.Token)]
		}
	}
	return nil
}
