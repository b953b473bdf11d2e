package store

import (
	"context"
	"time"

	"github.com/google/uuid"

	"go.arco.dev/servo/internal/id"
	"go.arco.dev/servo/internal/store/internal/db"
)

// DueLeases are candidates for expiry or timeout: to be looked at again under locks.
func (tx *Tx) DueLeases(ctx context.Context, now time.Time, most int) ([]TaskKey, error) {
	rows, err := tx.q.DueLeases(ctx, db.DueLeasesParams{Now: now, Most: int32(most)}) //nolint:gosec // a batch size
	if err != nil {
		return nil, err
	}
	return column(rows, func(r db.DueLeasesRow) TaskKey { return taskKey(r.TenantID, r.RunID, r.TaskID) }), nil
}

// DueRetries are candidates whose backoff is over.
func (tx *Tx) DueRetries(ctx context.Context, now time.Time, most int) ([]TaskKey, error) {
	rows, err := tx.q.DueRetries(ctx, db.DueRetriesParams{Now: now, Most: int32(most)}) //nolint:gosec // a batch size
	if err != nil {
		return nil, err
	}
	return column(rows, func(r db.DueRetriesRow) TaskKey { return taskKey(r.TenantID, r.RunID, r.TaskID) }), nil
}

func taskKey(tenant, run, task uuid.UUID) TaskKey {
	return TaskKey{Tenant: id.Of[id.Tenant](tenant), Run: id.Of[id.Run](run), Task: id.Of[id.Task](task)}
}

// PendingCones are runs with tasks that are still to be skipped.
func (tx *Tx) PendingCones(ctx context.Context, most int) ([]RunKey, error) {
	rows, err := tx.q.PendingCones(ctx, int32(most)) //nolint:gosec // a batch size
	if err != nil {
		return nil, err
	}
	return column(rows, func(r db.ServoCone) RunKey {
		return RunKey{Tenant: id.Of[id.Tenant](r.TenantID), Run: id.Of[id.Run](r.RunID)}
	}), nil
}

// Pulse is one worker's sign of life for one lease.
type Pulse struct {
	Key      TaskKey
	Token    int64
	Phase    string
	Stage    string
	Progress float32

	RecordsExtracted, RecordsTransformed, RecordsLoaded, Bytes int64

	ETA time.Time // when the worker thinks it ends; zero is unknown
}

// PulseKey is the lease that a pulse is for.
type PulseKey struct {
	TaskKey

	Token int64
}

// PulseAnswer says whether a lease is still held, and whether its worker should stop.
type PulseAnswer struct {
	Alive        bool
	ShouldCancel bool
}

// Heartbeat renews leases for ttl and answers for those that are held. Each lease may
// appear once.
func (s *Store) Heartbeat(ctx context.Context, pulses []Pulse, ttl time.Duration) (map[PulseKey]PulseAnswer, error) {
	answers := make(map[PulseKey]PulseAnswer, len(pulses))
	err := s.Engine(ctx, func(ctx context.Context, tx *Tx) error {
		now, err := tx.Clock(ctx)
		if err != nil {
			return err
		}
		rows, err := tx.q.Heartbeat(ctx, db.HeartbeatParams{
			Now: now, ExpiresAt: now.Add(ttl),
			TenantIds:  column(pulses, func(p Pulse) uuid.UUID { return p.Key.Tenant.UUID }),
			RunIds:     column(pulses, func(p Pulse) uuid.UUID { return p.Key.Run.UUID }),
			TaskIds:    column(pulses, func(p Pulse) uuid.UUID { return p.Key.Task.UUID }),
			Tokens:     column(pulses, func(p Pulse) int64 { return p.Token }),
			Phases:     column(pulses, func(p Pulse) string { return p.Phase }),
			Stages:     column(pulses, func(p Pulse) string { return p.Stage }),
			Progresses: column(pulses, func(p Pulse) float32 { return p.Progress }),

			RecordsExtracteds:   column(pulses, func(p Pulse) int64 { return p.RecordsExtracted }),
			RecordsTransformeds: column(pulses, func(p Pulse) int64 { return p.RecordsTransformed }),
			RecordsLoadeds:      column(pulses, func(p Pulse) int64 { return p.RecordsLoaded }),
			Bytes:               column(pulses, func(p Pulse) int64 { return p.Bytes }),
			Etas:                column(pulses, func(p Pulse) time.Time { return p.ETA }),
		})
		for _, r := range rows {
			answers[PulseKey{taskKey(r.TenantID, r.RunID, r.TaskID), r.Token}] = PulseAnswer{Alive: true, ShouldCancel: r.CancelRequested}
		}
		return err
	})
	return answers, err
}

// Forget deletes what only repeats needed: heartbeats of leases that are over, and
// idempotency keys older than keep.
func (s *Store) Forget(ctx context.Context, keep time.Duration) (heartbeats, keys int64, err error) {
	err = s.Engine(ctx, func(ctx context.Context, tx *Tx) error {
		now, err := tx.Clock(ctx)
		if err != nil {
			return err
		}
		if heartbeats, err = tx.q.ForgetHeartbeats(ctx, now); err != nil {
			return err
		}
		keys, err = tx.q.ForgetIdempotencyKeys(ctx, now.Add(-keep))
		return err
	})
	return heartbeats, keys, err
}
