package api

import (
	"context"
	"time"

	servov1 "go.arco.dev/servo/gen/servo/v1"
	"go.arco.dev/servo/internal/base/fault"
	"go.arco.dev/servo/internal/domain/run"
	"go.arco.dev/servo/internal/engine"
	"go.arco.dev/servo/internal/store"
)

// progressOf maps the progress of a lease, and validates it.
func progressOf(h handle, p *servov1.Progress) (engine.Progress, error) {
	eta, err := timeOf("eta", p.GetEta())
	if err != nil {
		return engine.Progress{}, err
	}
	progress := engine.Progress{Key: h.TaskKey, Token: h.token, Progress: store.Progress{
		Phase: p.GetPhase(), Stage: p.GetStage(), Fraction: p.GetFraction(),
		RecordsExtracted: p.GetRecordsExtracted(), RecordsTransformed: p.GetRecordsTransformed(), RecordsLoaded: p.GetRecordsLoaded(),
		Bytes: p.GetBytes(), ETA: eta,
	}}
	return progress, engine.ValidateProgress(progress)
}

// applyProgress writes the progress of a batch. Invalid items were refused before, so that an error
// concerns all of them.
func (s workerService) applyProgress(ctx context.Context, b *batch) {
	if len(b.progress.items) == 0 {
		return
	}
	pulses, err := s.engine.Progress(ctx, b.progress.items)
	for i, place := range b.progress.places {
		switch {
		case err != nil:
			b.errs[place] = err
		case !pulses[i].Alive:
			b.errs[place] = fault.New(fault.Stale, "the lease has expired or was replaced", fault.Field("lease"), fault.Remedy("stop working on the task"))
		}
	}
}

// progressOfTask returns the progress of a leased task; nil if it is unknown.
func progressOfTask(t store.TaskView) *servov1.Progress {
	eta, estimated := etaOf(t)
	switch {
	case t.Progress != nil:
		out := progressToProto(*t.Progress)
		out.Eta, out.EtaEstimated = timestamp(eta), estimated
		return out
	case estimated:
		return &servov1.Progress{Eta: timestamp(eta), EtaEstimated: true}
	}
	return nil
}

func progressToProto(p store.ProgressView) *servov1.Progress {
	out := &servov1.Progress{
		Phase: p.Phase, Stage: p.Stage, Fraction: p.Fraction, Eta: timestamp(p.ETA),
		RecordsExtracted: p.RecordsExtracted, RecordsTransformed: p.RecordsTransformed, RecordsLoaded: p.RecordsLoaded, Bytes: p.Bytes,
	}
	if p.Stages > 0 {
		out.StageSince = timestamp(p.StageSince)
	}
	return out
}

// minFraction is the smallest completed share that permits an estimate. maxEstimate bounds estimates.
const (
	minFraction = 0.01
	maxEstimate = 365 * 24 * time.Hour
)

// etaOf returns when a running task will end: as its worker reports; else estimated from its progress;
// else from the usual duration of its asset. It may be in the past if the task takes longer.
func etaOf(t store.TaskView) (eta time.Time, estimated bool) {
	if p := t.Progress; p != nil && !p.ETA.IsZero() {
		return p.ETA, false
	}
	if t.State != run.Running || t.StartedAt.IsZero() {
		return time.Time{}, false
	}
	if p := t.Progress; p != nil && p.Fraction >= minFraction && p.UpdatedAt.After(t.StartedAt) {
		whole := float64(p.UpdatedAt.Sub(t.StartedAt)) / float64(p.Fraction)
		if whole > float64(maxEstimate) {
			return time.Time{}, false
		}
		return t.StartedAt.Add(time.Duration(whole)), true
	}
	if t.Usual > 0 && t.Usual <= maxEstimate {
		return t.StartedAt.Add(t.Usual), true
	}
	return time.Time{}, false
}

// addProgress adds the stored progress to an attempt. The last stage ends with the attempt.
func addProgress(out *servov1.Attempt, of run.Attempt, kept store.AttemptProgress) {
	out.Progress = progressToProto(kept.ProgressView)
	for _, stage := range kept.Kept {
		ended := stage.EndedAt
		if ended.IsZero() {
			ended = of.EndedAt
		}
		out.Stages = append(out.Stages, &servov1.Stage{
			Phase: stage.Phase, Stage: stage.Stage, StartedAt: timestamp(stage.StartedAt), EndedAt: timestamp(ended), Count: stage.Count,
		})
	}
}
