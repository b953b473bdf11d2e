package store

import (
	"context"
	"time"

	"github.com/google/uuid"

	"go.arco.dev/servo/internal/base/id"
	"go.arco.dev/servo/internal/domain/platform"
	"go.arco.dev/servo/internal/domain/tenant"
	"go.arco.dev/servo/internal/store/internal/db"
)

// HeartbeatSeen returns the times of the last heartbeats of these leases. It omits leases without a
// heartbeat.
func (tx *Tx) HeartbeatSeen(ctx context.Context, keys []TaskKey) (map[PulseKey]time.Time, error) {
	rows, err := tx.q.HeartbeatSeen(ctx, db.HeartbeatSeenParams{
		TenantIds: column(keys, TaskKey.tenantID), RunIds: column(keys, TaskKey.runID), TaskIds: column(keys, TaskKey.taskID),
	})
	if err != nil {
		return nil, err
	}
	byRun := make(map[uuid.UUID]id.Tenant, len(keys))
	for _, k := range keys {
		byRun[k.Run.UUID] = k.Tenant
	}
	seen := make(map[PulseKey]time.Time, len(rows))
	for _, r := range rows {
		key := TaskKey{Tenant: byRun[r.RunID], Run: id.Of[id.Run](r.RunID), Task: id.Of[id.Task](r.TaskID)}
		seen[PulseKey{TaskKey: key, Token: r.Token}] = r.SeenAt
	}
	return seen, nil
}

// Switch turns a function off for all tenants.
type Switch struct {
	platform.Switch

	Name    string
	Version int32 // 0 if it was never changed
}

// LockSwitch excludes transactions that depend on a switch, until the transaction ends.
func (tx *Tx) LockSwitch(ctx context.Context, name string) error { return tx.q.LockSwitch(ctx, name) }

// Switch reads a switch.
func (tx *Tx) Switch(ctx context.Context, name string) (Switch, error) {
	rows, err := tx.q.SwitchByName(ctx, name)
	if err != nil || len(rows) == 0 {
		return Switch{Name: name}, err
	}
	r := rows[0]
	return Switch{
		Name: r.Name, Version: r.Version,
		Switch: platform.Switch{Off: r.Off, Reason: r.Reason, ChangedBy: r.ChangedBy, ChangedAt: r.ChangedAt},
	}, nil
}

// WriteSwitch writes a switch that this transaction has locked.
func (tx *Tx) WriteSwitch(ctx context.Context, s Switch) error {
	n, err := tx.q.UpsertSwitch(ctx, db.UpsertSwitchParams{
		Name: s.Name, Off: s.Off, Reason: s.Reason, ChangedBy: s.ChangedBy, Now: s.ChangedAt, Version: s.Version,
	})
	return exactlyOne("UpsertSwitch", n, err)
}

// GetSwitch reads a switch in a transaction of its own.
func (s *Store) GetSwitch(ctx context.Context, name string) (Switch, error) {
	return read(ctx, s.Snapshot, func(ctx context.Context, tx *Tx) (Switch, error) {
		return tx.Switch(ctx, name)
	})
}

// BusyTask is a leased task, for operators.
type BusyTask struct {
	TenantName      string
	Run             id.Run
	Task            id.Task
	Asset           string
	Pool            string
	Worker          string
	Since           time.Time
	CancelRequested bool
}

// Busy counts leased tasks up to MaxDepth, and returns up to most of the oldest.
func (s *Store) Busy(ctx context.Context, most int) (held int, oldest []BusyTask, err error) {
	err = s.Snapshot(ctx, func(ctx context.Context, tx *Tx) error {
		n, err := tx.q.CountLeases(ctx, MaxDepth)
		if err != nil {
			return err
		}
		held = int(n)
		rows, err := tx.q.BusyTasks(ctx, db.BusyTasksParams{Looked: MaxDepth, Most: int32(most)}) //nolint:gosec // a short list
		oldest = column(rows, func(r db.BusyTasksRow) BusyTask {
			return BusyTask{
				TenantName: r.Tenant, Run: id.Of[id.Run](r.RunID), Task: id.Of[id.Task](r.TaskID), Asset: r.Asset, Pool: r.Pool,
				Worker: r.Worker, Since: r.Since, CancelRequested: r.CancelRequested,
			}
		})
		return err
	})
	return held, oldest, err
}

// AssetPause is a pause of an asset: its new tasks wait.
type AssetPause struct {
	Asset    string
	PausedAt time.Time
	PausedBy string
	Reason   string
}

// WriteWorkspaceVersion writes the version of a workspace that this transaction has locked.
func (tx *Tx) WriteWorkspaceVersion(ctx context.Context, w Workspace) error {
	n, err := tx.q.BumpWorkspace(ctx, db.BumpWorkspaceParams{TenantID: w.Tenant.UUID, ID: w.ID.UUID, Version: w.Version})
	return exactlyOne("BumpWorkspace", n, err)
}

// PauseAsset pauses an asset; false if it is already paused.
func (tx *Tx) PauseAsset(ctx context.Context, w Workspace, p AssetPause) (bool, error) {
	n, err := tx.q.InsertAssetPause(ctx, db.InsertAssetPauseParams{
		TenantID: w.Tenant.UUID, WorkspaceID: w.ID.UUID, Asset: p.Asset, Now: p.PausedAt, PausedBy: p.PausedBy, Reason: p.Reason,
	})
	return n > 0, err
}

// ResumeAsset resumes an asset; false if it was not paused. It waits for a round of admission that
// may still hold tasks, so that ReleaseHeld finds them all.
func (tx *Tx) ResumeAsset(ctx context.Context, w Workspace, asset string) (bool, error) {
	n, err := tx.q.DeleteAssetPause(ctx, db.DeleteAssetPauseParams{TenantID: w.Tenant.UUID, WorkspaceID: w.ID.UUID, Asset: asset})
	return n > 0, err
}

// ReleaseHeld releases the held tasks of an asset, and returns their number.
func (tx *Tx) ReleaseHeld(ctx context.Context, w Workspace, asset string) (int, error) {
	n, err := tx.q.ReleaseHeld(ctx, db.ReleaseHeldParams{TenantID: w.Tenant.UUID, WorkspaceID: w.ID.UUID, Asset: asset})
	return int(n), err
}

// maxAssetPauses bounds the list of a workspace's pauses, which has no pages: a manifest has
// no more assets.
const maxAssetPauses = 10_000

// ListAssetPauses reads the paused assets of a workspace, by key.
func (s *Store) ListAssetPauses(ctx context.Context, owner id.Tenant, workspace string) ([]AssetPause, error) {
	return read(ctx, s.tenant(owner), func(ctx context.Context, tx *Tx) ([]AssetPause, error) {
		return list(func(r db.ListAssetPausesRow) AssetPause {
			return AssetPause{Asset: r.Asset, PausedAt: r.PausedAt, PausedBy: r.PausedBy, Reason: r.Reason}
		})(tx.q.ListAssetPauses(ctx, db.ListAssetPausesParams{TenantID: owner.UUID, Workspace: workspace, Most: maxAssetPauses}))
	})
}

// TenantUsage is the use of a tenant's quotas.
type TenantUsage struct {
	InFlight int64 // tasks, by the last count of admission
	Ready    int64 // tasks that wait for admission
	Live     int64 // runs that have started and not ended
	Pending  int64 // runs that wait for their start
	Today    int64 // runs that were created today
	DayBegan time.Time
}

// GetTenantUsage counts the use of a tenant's quotas, each up to MaxDepth.
func (s *Store) GetTenantUsage(ctx context.Context, owner id.Tenant, quotas tenant.Quotas) (TenantUsage, error) {
	return read(ctx, s.tenant(owner), func(ctx context.Context, tx *Tx) (TenantUsage, error) {
		now, err := tx.Clock(ctx)
		if err != nil {
			return TenantUsage{}, err
		}
		from, _, err := quotas.Day(now)
		if err != nil {
			return TenantUsage{}, err
		}
		row, err := tx.q.TenantUsage(ctx, db.TenantUsageParams{TenantID: owner.UUID, Most: MaxDepth, Day: floor(from)})
		return TenantUsage{InFlight: row.InFlight, Ready: row.Ready, Live: row.Live, Pending: row.Pending, Today: row.Today, DayBegan: from}, err
	})
}
