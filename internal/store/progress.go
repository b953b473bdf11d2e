package store

import (
	"context"
	"slices"
	"time"

	"github.com/google/uuid"

	"go.arco.dev/servo/internal/base/id"
	"go.arco.dev/servo/internal/store/internal/db"
)

// Pulse is a worker's heartbeat for one lease.
type Pulse struct {
	Key   TaskKey
	Token int64
	Lease time.Duration // renews the lease for this long; 0 is the duration of its claim
}

// PulseKey identifies a lease.
type PulseKey struct {
	TaskKey

	Token int64
}

// PulseAnswer reports whether a lease is still held, and whether its worker should stop.
type PulseAnswer struct {
	Alive        bool
	ShouldCancel bool
}

// Progress is the reported progress of an attempt. All of it is optional.
type Progress struct {
	Phase, Stage string
	Fraction     float32 // the share that is done

	RecordsExtracted, RecordsTransformed, RecordsLoaded, Bytes int64

	ETA time.Time // the worker's estimate of its end; zero is unknown
}

// ProgressReport is a worker's report of the progress of a leased attempt.
type ProgressReport struct {
	Progress

	Key   TaskKey
	Token int64
}

// Heartbeat renews leases, each for the duration of its claim, and returns an answer for each lease
// that is held. Each lease may appear once.
func (s *Store) Heartbeat(ctx context.Context, pulses []Pulse) (map[PulseKey]PulseAnswer, error) {
	answers := make(map[PulseKey]PulseAnswer, len(pulses))
	err := s.engineAt(ctx, func(ctx context.Context, tx *Tx, now time.Time) error {
		rows, err := tx.q.Heartbeat(ctx, db.HeartbeatParams{
			Now:       now,
			TenantIds: column(pulses, func(p Pulse) uuid.UUID { return p.Key.Tenant.UUID }),
			RunIds:    column(pulses, func(p Pulse) uuid.UUID { return p.Key.Run.UUID }),
			TaskIds:   column(pulses, func(p Pulse) uuid.UUID { return p.Key.Task.UUID }),
			Tokens:    column(pulses, func(p Pulse) int64 { return p.Token }),
			LeaseMss:  column(pulses, func(p Pulse) int32 { return int32(p.Lease / time.Millisecond) }), //nolint:gosec // at most an hour
		})
		for _, r := range rows {
			answers[PulseKey{taskKey(r.TenantID, r.RunID, r.TaskID), r.Token}] = PulseAnswer{Alive: true, ShouldCancel: r.CancelRequested}
		}
		return err
	})
	return answers, err
}

// LeasesOfClaimRange reads up to most leases of a worker by claims from first to last.
func (s *Store) LeasesOfClaimRange(ctx context.Context, worker string, first, last id.Claim, most int) ([]PulseKey, error) {
	return read(ctx, s.engine, func(ctx context.Context, tx *Tx) ([]PulseKey, error) {
		return list(func(r db.LeasesOfClaimRangeRow) PulseKey {
			return PulseKey{taskKey(r.TenantID, r.RunID, r.TaskID), r.Token}
		})(tx.q.LeasesOfClaimRange(ctx, db.LeasesOfClaimRangeParams{
			FirstID: first.UUID, LastID: last.UUID, Worker: worker, Most: int32(most), //nolint:gosec // a batch size
		}))
	})
}

// UnstartedLeases reads leases that workers whose names begin with prefix hold and have not started,
// up to most of them.
func (s *Store) UnstartedLeases(ctx context.Context, prefix string, most int) ([]PulseKey, error) {
	return read(ctx, s.engine, func(ctx context.Context, tx *Tx) ([]PulseKey, error) {
		return list(func(r db.UnstartedLeasesRow) PulseKey {
			return PulseKey{taskKey(r.TenantID, r.RunID, r.TaskID), r.Token}
		})(tx.q.UnstartedLeases(ctx, db.UnstartedLeasesParams{Prefix: prefix, Most: int32(most)})) //nolint:gosec // a batch size
	})
}

// LeasePools returns the pool of each lease that is held; "" for the others.
func (s *Store) LeasePools(ctx context.Context, leases []PulseKey) ([]string, error) {
	pools := make([]string, len(leases))
	err := s.Engine(ctx, func(ctx context.Context, tx *Tx) error {
		rows, err := tx.q.PoolsOfLeases(ctx, db.PoolsOfLeasesParams{
			Nths:      ordinals(len(leases)),
			TenantIds: column(leases, func(l PulseKey) uuid.UUID { return l.Tenant.UUID }),
			RunIds:    column(leases, func(l PulseKey) uuid.UUID { return l.Run.UUID }),
			TaskIds:   column(leases, func(l PulseKey) uuid.UUID { return l.Task.UUID }),
			Tokens:    column(leases, func(l PulseKey) int64 { return l.Token }),
		})
		for _, r := range rows {
			pools[r.Nth] = r.Pool
		}
		return err
	})
	return pools, err
}

// WriteProgress writes changed progress of attempts, and returns an answer for each lease that is
// held. It renews leases that were not renewed for a while. Each lease may appear once.
func (s *Store) WriteProgress(ctx context.Context, reports []ProgressReport) (map[PulseKey]PulseAnswer, error) {
	return read(ctx, s.engine, func(ctx context.Context, tx *Tx) (map[PulseKey]PulseAnswer, error) {
		return tx.WriteProgress(ctx, reports)
	})
}

// WriteProgress is Store.WriteProgress inside a transaction.
func (tx *Tx) WriteProgress(ctx context.Context, reports []ProgressReport) (map[PulseKey]PulseAnswer, error) {
	now, err := tx.Clock(ctx)
	if err != nil {
		return nil, err
	}
	return index(func(r db.WriteProgressRow) (PulseKey, PulseAnswer) {
		return PulseKey{taskKey(r.TenantID, r.RunID, r.TaskID), r.Token}, PulseAnswer{Alive: true, ShouldCancel: r.CancelRequested}
	})(tx.q.WriteProgress(ctx, db.WriteProgressParams{
		Now:       now,
		TenantIds: column(reports, func(p ProgressReport) uuid.UUID { return p.Key.Tenant.UUID }),
		RunIds:    column(reports, func(p ProgressReport) uuid.UUID { return p.Key.Run.UUID }),
		TaskIds:   column(reports, func(p ProgressReport) uuid.UUID { return p.Key.Task.UUID }),
		Tokens:    column(reports, func(p ProgressReport) int64 { return p.Token }),
		Phases:    column(reports, func(p ProgressReport) string { return p.Phase }),
		Stages:    column(reports, func(p ProgressReport) string { return p.Stage }),
		Fractions: column(reports, func(p ProgressReport) float32 { return p.Fraction }),

		RecordsExtracteds:   column(reports, func(p ProgressReport) int64 { return p.RecordsExtracted }),
		RecordsTransformeds: column(reports, func(p ProgressReport) int64 { return p.RecordsTransformed }),
		RecordsLoadeds:      column(reports, func(p ProgressReport) int64 { return p.RecordsLoaded }),
		Bytes:               column(reports, func(p ProgressReport) int64 { return p.Bytes }),
		Etas:                column(reports, func(p ProgressReport) time.Time { return p.ETA }),
	}))
}

// ProgressView is the last reported progress of an attempt.
type ProgressView struct {
	Progress

	Stages     int32     // how many it has entered
	StageSince time.Time // when it entered the last of them
	UpdatedAt  time.Time
}

// Stage is a stage of an attempt. It ends when the next one begins, or with its attempt.
type Stage struct {
	Phase, Stage string
	StartedAt    time.Time
	EndedAt      time.Time // zero: with its attempt
	Count        int32     // consecutive stages that it represents: 1, or more if some were not kept
}

// AttemptProgress is the stored progress of an attempt.
type AttemptProgress struct {
	ProgressView

	Kept []Stage // in their order
}

// How many of the latest attempts and stages of a task are read.
const (
	maxAttemptsRead = 100
	maxStagesRead   = 500
)

// AttemptProgress reads the progress of the latest attempts of a task, by their numbers, with the
// latest stages.
func (s *Store) AttemptProgress(ctx context.Context, key TaskKey) (map[int32]AttemptProgress, error) {
	found := map[int32]AttemptProgress{}
	err := s.Tenant(ctx, key.Tenant.String(), func(ctx context.Context, tx *Tx) error {
		rows, err := tx.q.AttemptProgress(ctx, db.AttemptProgressParams{
			TenantID: key.Tenant.UUID, RunID: key.Run.UUID, TaskID: key.Task.UUID, Most: maxAttemptsRead,
		})
		if err != nil || len(rows) == 0 {
			return err
		}
		stages, err := tx.q.AttemptStages(ctx, db.AttemptStagesParams{
			TenantID: key.Tenant.UUID, RunID: key.Run.UUID, TaskID: key.Task.UUID, Most: maxStagesRead,
		})
		for _, r := range rows {
			found[r.Attempt] = AttemptProgress{
				ProgressView: ProgressView{
					Progress: Progress{
						Phase: r.Phase, Stage: r.Stage, Fraction: r.Fraction, RecordsExtracted: r.RecordsExtracted,
						RecordsTransformed: r.RecordsTransformed, RecordsLoaded: r.RecordsLoaded, Bytes: r.Bytes, ETA: timeOf(r.Eta),
					},
					Stages: r.Stages, StageSince: r.StageSince, UpdatedAt: r.UpdatedAt,
				},
				Kept: stagesOf(r.Attempt, stages),
			}
		}
		return err
	})
	return found, err
}

// stagesOf returns the stages of one attempt from those of all, which are sorted latest first. An
// attempt whose first stages were not read has none.
func stagesOf(attempt int32, all []db.AttemptStagesRow) []Stage {
	var (
		stages []Stage
		next   *db.AttemptStagesRow
	)
	for i, row := range all {
		if row.Attempt != attempt {
			continue
		}
		stage := Stage{Phase: row.Phase, Stage: row.Stage, StartedAt: row.StartedAt, Count: 1}
		if next != nil {
			stage.EndedAt, stage.Count = next.StartedAt, next.Seq-row.Seq
		}
		stages, next = append(stages, stage), &all[i]
	}
	if next == nil || next.Seq != 1 {
		return nil
	}
	slices.Reverse(stages)
	return stages
}
