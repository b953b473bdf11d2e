package store

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"go.arco.dev/servo/internal/base/id"
	"go.arco.dev/servo/internal/domain/backfill"
	"go.arco.dev/servo/internal/store/internal/db"
)

// BackfillKey identifies a backfill.
type BackfillKey struct {
	Tenant   id.Tenant
	Backfill id.Backfill
}

// Chunk is the run of one chunk of a backfill.
type Chunk struct {
	BackfillKey

	Round, Number int32
	Run           id.Run
}

// InsertBackfill writes a new backfill.
func (tx *Tx) InsertBackfill(ctx context.Context, b backfill.Backfill) error {
	settings, err := json.Marshal(b.Settings)
	if err != nil {
		return err
	}
	set, err := json.Marshal(b.Set)
	if err != nil {
		return err
	}
	return tx.q.InsertBackfill(ctx, db.InsertBackfillParams{
		TenantID: b.Tenant.UUID, ID: b.ID.UUID, WorkspaceID: b.Workspace.UUID, Version: b.Version, State: int16(b.State), Asset: b.Settings.Asset,
		Settings: settings, Partitions: set, Chunks: b.Chunks(), MaxRuns: b.Settings.MaxConcurrentRuns, Total: b.Total, CreatedBy: b.CreatedBy, Now: b.CreatedAt,
	})
}

// MissingBackfill is the fault of a backfill that does not exist.
func MissingBackfill(key BackfillKey) error { return missing("backfill", key.Backfill.String()) }

// WorkspaceNames returns the names of the workspaces of backfills.
func (tx *Tx) WorkspaceNames(ctx context.Context, of []backfill.Backfill) (map[id.Workspace]string, error) {
	return index(func(r db.WorkspaceNamesRow) (id.Workspace, string) { return id.Of[id.Workspace](r.ID), r.Name })(tx.q.WorkspaceNames(ctx, db.WorkspaceNamesParams{
		TenantIds: column(of, func(b backfill.Backfill) uuid.UUID { return b.Tenant.UUID }),
		Ids:       column(of, func(b backfill.Backfill) uuid.UUID { return b.Workspace.UUID }),
	}))
}

// LockBackfills locks backfills in the order of their keys.
func (tx *Tx) LockBackfills(ctx context.Context, keys []BackfillKey) ([]backfill.Backfill, error) {
	return tryList(backfillFromRow)(tx.q.LockBackfills(ctx, db.LockBackfillsParams{
		TenantIds: column(keys, func(k BackfillKey) uuid.UUID { return k.Tenant.UUID }),
		Ids:       column(keys, func(k BackfillKey) uuid.UUID { return k.Backfill.UUID }),
	}))
}

func backfillFromRow(r db.ServoBackfill) (b backfill.Backfill, err error) {
	b = backfill.Backfill{
		Tenant: id.Of[id.Tenant](r.TenantID), ID: id.Of[id.Backfill](r.ID), Workspace: id.Of[id.Workspace](r.WorkspaceID), Version: r.Version,
		State: backfill.State(r.State), Reason: r.Reason, Round: r.Round, Next: r.NextChunk, Open: r.OpenRuns,
		Total: r.Total, Completed: r.Completed, Failed: r.Failed, Skipped: r.Skipped, RoundFailed: r.RoundFailed,
		CreatedBy: r.CreatedBy, CreatedAt: r.CreatedAt, PausedAt: timeOf(r.PausedAt), FinishedAt: timeOf(r.FinishedAt),
	}
	for _, part := range []struct {
		data json.RawMessage
		into any
	}{{r.Settings, &b.Settings}, {r.Partitions, &b.Set}, {r.Undone, &b.Undone}} {
		if len(part.data) == 0 { // a list leaves the sets out
			continue
		}
		if err := json.Unmarshal(part.data, part.into); err != nil {
			return b, fmt.Errorf("backfill %s: %w", b.ID, err)
		}
	}
	return b, nil
}

// UpdateBackfill writes the changes of events to a locked backfill.
func (tx *Tx) UpdateBackfill(ctx context.Context, before, b backfill.Backfill) error {
	p := db.UpdateBackfillParams{
		TenantID: b.Tenant.UUID, ID: b.ID.UUID, Before: before.Version, Version: b.Version, State: int16(b.State), Reason: b.Reason, Round: b.Round,
		Chunks: b.Chunks(), NextChunk: b.Next, OpenRuns: b.Open, Completed: b.Completed, Failed: b.Failed, Skipped: b.Skipped, RoundFailed: b.RoundFailed,
		PausedAt: orNil(b.PausedAt), FinishedAt: orNil(b.FinishedAt), Partitions: []byte("{}"), Undone: []byte("{}"),
	}
	var err error
	if p.NewSet = b.Round != before.Round; p.NewSet {
		if p.Partitions, err = json.Marshal(b.Set); err != nil {
			return err
		}
	}
	if p.NewUndone = !b.Undone.Equal(before.Undone); p.NewUndone {
		if p.Undone, err = json.Marshal(b.Undone); err != nil {
			return err
		}
	}
	n, err := tx.q.UpdateBackfill(ctx, p)
	if err == nil && n != 1 {
		err = fmt.Errorf("backfill %s: version %d was not locked", b.ID, before.Version)
	}
	return err
}

// BackfillWaits records why the next run of a backfill could not start.
func (tx *Tx) BackfillWaits(ctx context.Context, key BackfillKey, reason string) error {
	return tx.q.BackfillWaits(ctx, db.BackfillWaitsParams{WaitsFor: reason, TenantID: key.Tenant.UUID, ID: key.Backfill.UUID})
}

// InsertChunk records the run of a chunk. The key refuses a second one.
func (tx *Tx) InsertChunk(ctx context.Context, c Chunk, now time.Time) error {
	return tx.q.InsertBackfillChunk(ctx, db.InsertBackfillChunkParams{
		TenantID: c.Tenant.UUID, BackfillID: c.Backfill.UUID, Round: c.Round, Chunk: c.Number, RunID: c.Run.UUID, Now: now,
	})
}

// EndChunk records the end of the run of a chunk. False means that it was recorded before.
func (tx *Tx) EndChunk(ctx context.Context, c Chunk, failed, skipped int64, now time.Time) (bool, error) {
	n, err := tx.q.EndBackfillChunk(ctx, db.EndBackfillChunkParams{
		Now: now, Failed: failed, Skipped: skipped, TenantID: c.Tenant.UUID, BackfillID: c.Backfill.UUID, Round: c.Round, Chunk: c.Number, RunID: c.Run.UUID,
	})
	return n == 1, err
}

// BackfillWork reports whether runs of backfills may start, and whether any has not ended.
func (s *Store) BackfillWork(ctx context.Context) (startable, open bool, err error) {
	row, err := read(ctx, s.engine, func(ctx context.Context, tx *Tx) (db.BackfillWorkRow, error) { return tx.q.BackfillWork(ctx) })
	return row.Startable, row.Open, err
}

// StartableBackfills returns backfills whose next run may start by their own limit.
func (tx *Tx) StartableBackfills(ctx context.Context, most int) ([]BackfillKey, error) {
	return list(func(r db.StartableBackfillsRow) BackfillKey {
		return BackfillKey{Tenant: id.Of[id.Tenant](r.TenantID), Backfill: id.Of[id.Backfill](r.ID)}
	})(tx.q.StartableBackfills(ctx, int32(most))) //nolint:gosec // a batch size
}

// EndedChunks returns open chunks whose run has ended.
func (tx *Tx) EndedChunks(ctx context.Context, most int) ([]Chunk, error) {
	return list(func(r db.EndedChunksRow) Chunk {
		return Chunk{
			BackfillKey: BackfillKey{Tenant: id.Of[id.Tenant](r.TenantID), Backfill: id.Of[id.Backfill](r.BackfillID)},
			Round:       r.Round, Number: r.Chunk, Run: id.Of[id.Run](r.RunID),
		}
	})(tx.q.EndedChunks(ctx, int32(most))) //nolint:gosec // a batch size
}

// CancelledChunk is a live run of a cancelled backfill.
type CancelledChunk struct {
	RunKey

	Reason string
}

// ChunksToCancel returns live runs of cancelled backfills that no cancel has reached.
func (s *Store) ChunksToCancel(ctx context.Context, most int) ([]CancelledChunk, error) {
	return read(ctx, s.engine, func(ctx context.Context, tx *Tx) ([]CancelledChunk, error) {
		return list(func(r db.ChunksToCancelRow) CancelledChunk {
			return CancelledChunk{runKey(r.TenantID, r.RunID), r.Reason}
		})(tx.q.ChunksToCancel(ctx, int32(most))) //nolint:gosec // a batch size
	})
}

// BackfillView is a backfill with what its events do not have.
type BackfillView struct {
	backfill.Backfill

	WorkspaceName string
	WaitsFor      string // why the next run could not start
	Chunks        int32  // of this round
}

// GetBackfill reads a backfill.
func (s *Store) GetBackfill(ctx context.Context, key BackfillKey) (BackfillView, error) {
	return read(ctx, s.tenant(key.Tenant), func(ctx context.Context, tx *Tx) (BackfillView, error) {
		r, err := tx.q.GetBackfill(ctx, db.GetBackfillParams{TenantID: key.Tenant.UUID, ID: key.Backfill.UUID})
		if err != nil {
			return BackfillView{}, notFound(err, "backfill", key.Backfill.String())
		}
		b, err := backfillFromRow(db.ServoBackfill{
			TenantID: r.TenantID, ID: r.ID, WorkspaceID: r.WorkspaceID, Version: r.Version, State: r.State, Reason: r.Reason, Settings: r.Settings,
			Round: r.Round, Partitions: r.Partitions, Undone: r.Undone, NextChunk: r.NextChunk, OpenRuns: r.OpenRuns, Total: r.Total,
			Completed: r.Completed, Failed: r.Failed, Skipped: r.Skipped, RoundFailed: r.RoundFailed, CreatedBy: r.CreatedBy, CreatedAt: r.CreatedAt,
			PausedAt: r.PausedAt, FinishedAt: r.FinishedAt,
		})
		return BackfillView{Backfill: b, WorkspaceName: r.Workspace, WaitsFor: r.WaitsFor, Chunks: r.Chunks}, err
	})
}

// BackfillFilter selects backfills of a tenant.
type BackfillFilter struct {
	Tenant    id.Tenant
	Workspace string // "" is all
	Asset     string // "" is all
	States    []backfill.State
	Before    id.Backfill // zero begins with the newest
}

// ListBackfills reads backfills, the newest first, without their sets.
func (s *Store) ListBackfills(ctx context.Context, f BackfillFilter, most int) ([]BackfillView, error) {
	before := f.Before.UUID
	if before == uuid.Nil {
		before = uuid.Max
	}
	return read(ctx, s.tenant(f.Tenant), func(ctx context.Context, tx *Tx) ([]BackfillView, error) {
		return tryList(func(r db.ListBackfillsRow) (BackfillView, error) {
			b, err := backfillFromRow(db.ServoBackfill{
				TenantID: r.TenantID, ID: r.ID, WorkspaceID: r.WorkspaceID, Version: r.Version, State: r.State, Reason: r.Reason, Settings: r.Settings,
				Round: r.Round, NextChunk: r.NextChunk, OpenRuns: r.OpenRuns, Total: r.Total, Completed: r.Completed, Failed: r.Failed,
				Skipped: r.Skipped, RoundFailed: r.RoundFailed, CreatedBy: r.CreatedBy, CreatedAt: r.CreatedAt, PausedAt: r.PausedAt, FinishedAt: r.FinishedAt,
			})
			return BackfillView{Backfill: b, WorkspaceName: r.Workspace, WaitsFor: r.WaitsFor, Chunks: r.Chunks}, err
		})(tx.q.ListBackfills(ctx, db.ListBackfillsParams{
			TenantID: f.Tenant.UUID, Before: before, Workspace: f.Workspace, Asset: f.Asset,
			States: column(f.States, func(s backfill.State) int16 { return int16(s) }), Most: int32(most), //nolint:gosec // a page size
		}))
	})
}

// BackfillRun is the run of a chunk with its progress.
type BackfillRun struct {
	Round, Chunk    int32
	Run             id.Run
	State           int16 // of the run; 0 if its rows were deleted
	StartedAt       time.Time
	EndedAt         time.Time
	Failed, Skipped int64 // partitions
	Tasks, Left     int32
	FailedTasks     int32
}

// ListBackfillRuns reads the runs of a backfill, the newest first, before a chunk of a round.
func (s *Store) ListBackfillRuns(ctx context.Context, key BackfillKey, beforeRound, beforeChunk int32, most int) ([]BackfillRun, error) {
	return read(ctx, s.tenant(key.Tenant), func(ctx context.Context, tx *Tx) ([]BackfillRun, error) {
		return list(func(r db.ListBackfillRunsRow) BackfillRun {
			return BackfillRun{
				Round: r.Round, Chunk: r.Chunk, Run: id.Of[id.Run](r.RunID), State: r.State, StartedAt: r.StartedAt, EndedAt: timeOf(r.EndedAt),
				Failed: r.Failed, Skipped: r.Skipped, Tasks: r.Total, Left: r.Remaining, FailedTasks: r.FailedTasks,
			}
		})(tx.q.ListBackfillRuns(ctx, db.ListBackfillRunsParams{
			TenantID: key.Tenant.UUID, BackfillID: key.Backfill.UUID, BeforeRound: beforeRound, BeforeChunk: beforeChunk, Most: int32(most), //nolint:gosec // a page size
		}))
	})
}

// BackfillOfRun returns the backfill of a run, and whether it has one.
func (s *Store) BackfillOfRun(ctx context.Context, of RunKey) (c Chunk, found bool, err error) {
	err = s.tenant(of.Tenant)(ctx, func(ctx context.Context, tx *Tx) error {
		r, err := tx.q.BackfillOfRun(ctx, db.BackfillOfRunParams{TenantID: of.Tenant.UUID, RunID: of.Run.UUID})
		if errors.Is(err, pgx.ErrNoRows) {
			return nil
		}
		c = Chunk{BackfillKey: BackfillKey{of.Tenant, id.Of[id.Backfill](r.BackfillID)}, Round: r.Round, Number: r.Chunk, Run: of.Run}
		found = err == nil
		return err
	})
	return c, found, err
}
