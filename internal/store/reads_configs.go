package store

import (
	"context"
	"encoding/json"
	"slices"
	"time"

	"github.com/google/uuid"

	"go.arco.dev/servo/internal/base/event"
	"go.arco.dev/servo/internal/base/id"
	"go.arco.dev/servo/internal/domain/config"
	"go.arco.dev/servo/internal/domain/run"
	"go.arco.dev/servo/internal/store/internal/db"
)

// ConfigView is a config for readers.
type ConfigView struct{ ConfigState }

func configView(c db.ServoConfig, workspace string) (ConfigView, error) {
	state, err := configFromRow(db.LockDueConfigsRow{
		TenantID: c.TenantID, ID: c.ID, WorkspaceID: c.WorkspaceID, Name: c.Name, Version: c.Version, Spec: c.Spec, Enabled: c.Enabled,
		DisabledReason: c.DisabledReason, PausedAt: c.PausedAt, PauseNote: c.PauseNote, MovedTo: c.MovedTo, CreatedBy: c.CreatedBy,
		CreatedAt: c.CreatedAt, UpdatedAt: c.UpdatedAt, DeletedAt: c.DeletedAt, DecidedUntil: c.DecidedUntil, NextSlot: c.NextSlot,
		DueAt: c.DueAt, ZoneData: c.ZoneData, RangeFrom: c.RangeFrom, LastSlot: c.LastSlot, LastRunID: c.LastRunID,
		LastRunState: c.LastRunState, LastRunAt: c.LastRunAt, LastSuccessAt: c.LastSuccessAt, Failures: c.Failures, CoveredUntil: c.CoveredUntil, Workspace: workspace,
	})
	return ConfigView{state}, err
}

// GetConfig reads a config by its id.
func (s *Store) GetConfig(ctx context.Context, key ConfigKey) (ConfigView, error) {
	return read(ctx, s.tenant(key.Tenant), func(ctx context.Context, tx *Tx) (ConfigView, error) {
		return tx.Config(ctx, key)
	})
}

// GetAnyConfig reads a config, deleted or not.
func (s *Store) GetAnyConfig(ctx context.Context, key ConfigKey) (ConfigView, error) {
	return read(ctx, s.tenant(key.Tenant), func(ctx context.Context, tx *Tx) (ConfigView, error) {
		return tx.config(ctx, key, true)
	})
}

// Config reads a config as its tenant.
func (tx *Tx) Config(ctx context.Context, key ConfigKey) (ConfigView, error) {
	return tx.config(ctx, key, false)
}

func (tx *Tx) config(ctx context.Context, key ConfigKey, deleted bool) (ConfigView, error) {
	row, err := tx.q.GetConfig(ctx, db.GetConfigParams{TenantID: key.Tenant.UUID, ID: key.Config.UUID, Deleted: deleted})
	if err != nil {
		return ConfigView{}, notFound(err, "config", key.Config.String())
	}
	return configView(row.ServoConfig, row.Workspace)
}

// GetConfigByName reads a config by its name.
func (s *Store) GetConfigByName(ctx context.Context, tenant id.Tenant, workspace, name string) (ConfigView, error) {
	return read(ctx, s.tenant(tenant), func(ctx context.Context, tx *Tx) (ConfigView, error) {
		return tx.ConfigByName(ctx, tenant, workspace, name)
	})
}

// ConfigByName reads a config by its name, as its tenant.
func (tx *Tx) ConfigByName(ctx context.Context, tenant id.Tenant, workspace, name string) (ConfigView, error) {
	row, err := tx.q.GetConfigByName(ctx, db.GetConfigByNameParams{TenantID: tenant.UUID, Workspace: workspace, Name: name})
	if err != nil {
		return ConfigView{}, notFound(err, "config", name)
	}
	return configView(row.ServoConfig, row.Workspace)
}

// ConfigFilter selects configs of a tenant. Zero fields match all.
type ConfigFilter struct {
	Workspace string
	Pipeline  string
	Prefix    string // of the name
	State     string // ACTIVE, PAUSED or DISABLED
	Labels    map[string]string
	Failing   bool // its last run has failed
	Deleted   bool // only deleted configs, instead of the others
}

// labelText returns the labels as JSON.
func (f ConfigFilter) labelText() (string, error) {
	if f.Labels == nil {
		return "{}", nil
	}
	text, err := json.Marshal(f.Labels)
	return string(text), err
}

// ListAllConfigs reads configs of all tenants in the order of their keys, after one.
func (s *Store) ListAllConfigs(ctx context.Context, f ConfigFilter, after ConfigKey, most int) ([]ConfigView, error) {
	labels, err := f.labelText()
	if err != nil {
		return nil, err
	}
	return read(ctx, s.scoped(id.Tenant{}), func(ctx context.Context, tx *Tx) ([]ConfigView, error) {
		return tryList(func(r db.AllConfigsRow) (ConfigView, error) { return configView(r.ServoConfig, r.Workspace) })(tx.q.AllConfigs(ctx, db.AllConfigsParams{
			AfterTenant: after.Tenant.UUID, AfterID: after.Config.UUID, Workspace: f.Workspace, Pipeline: f.Pipeline, Prefix: f.Prefix, State: f.State,
			Labels: labels, Failing: f.Failing, Deleted: f.Deleted, Most: int32(most), //nolint:gosec // a page size
		}))
	})
}

// RecentSlot is the outcome of a slot, or of consecutive slots that did not fire.
type RecentSlot struct {
	At      time.Time
	Slots   int64
	Outcome config.Outcome
	Run     *id.Run
	State   run.State // of the run, if it fired
	// Triggered reports a run without a slot: At is its creation.
	Triggered bool
}

// maxRecent is how many slots of each config are returned.
const maxRecent = 20

// RecentSlots reads the outcomes of the last slots and triggered runs of configs, the newest first: of configs of one
// tenant, or of any for the zero tenant.
func (s *Store) RecentSlots(ctx context.Context, tenant id.Tenant, of []ConfigKey) (map[id.Config][]RecentSlot, error) {
	recent := make(map[id.Config][]RecentSlot, len(of))
	if len(of) == 0 {
		return recent, nil
	}
	err := s.scoped(tenant)(ctx, func(ctx context.Context, tx *Tx) error {
		clear(recent)
		rows, err := tx.q.RecentSlots(ctx, db.RecentSlotsParams{
			TenantIds: column(of, func(k ConfigKey) uuid.UUID { return k.Tenant.UUID }), ConfigIds: column(of, func(k ConfigKey) uuid.UUID { return k.Config.UUID }),
			Most: maxRecent,
		})
		for _, r := range rows {
			key := id.Of[id.Config](r.ConfigID)
			slot := RecentSlot{At: r.At, Slots: r.Slots, Outcome: config.Outcome(r.Outcome), State: run.State(r.State), Triggered: r.Triggered}
			if r.RunID != uuid.Nil {
				slot.Run = runOf(&r.RunID)
			}
			recent[key] = append(recent[key], slot)
		}
		return err
	})
	for key, slots := range recent {
		slices.SortFunc(slots, func(a, b RecentSlot) int { return b.At.Compare(a.At) })
		recent[key] = slots[:min(len(slots), maxRecent)]
	}
	return recent, err
}

// ListConfigs reads configs, the oldest first, that are younger than after.
func (s *Store) ListConfigs(ctx context.Context, tenant id.Tenant, f ConfigFilter, after id.Config, most int) ([]ConfigView, error) {
	labels, err := f.labelText()
	if err != nil {
		return nil, err
	}
	return read(ctx, s.tenant(tenant), func(ctx context.Context, tx *Tx) ([]ConfigView, error) {
		return tryList(func(r db.ListConfigsRow) (ConfigView, error) { return configView(r.ServoConfig, r.Workspace) })(tx.q.ListConfigs(ctx, db.ListConfigsParams{
			TenantID: tenant.UUID, After: after.UUID, Workspace: f.Workspace, Pipeline: f.Pipeline, Prefix: f.Prefix, State: f.State,
			Labels: labels, Failing: f.Failing, Deleted: f.Deleted, Most: int32(most), //nolint:gosec // a page size
		}))
	})
}

// OrphanedConfig is an active config whose pipeline is not deployed.
type OrphanedConfig struct{ Name, Pipeline string }

// OrphanedConfigs returns up to most active configs of a workspace that name none of the pipelines.
func (s *Store) OrphanedConfigs(ctx context.Context, tenant id.Tenant, workspace string, pipelines []string, most int) ([]OrphanedConfig, error) {
	return read(ctx, s.tenant(tenant), func(ctx context.Context, tx *Tx) ([]OrphanedConfig, error) {
		named := append([]string{}, pipelines...)                                                                                                                                                                                     // nil would be NULL, which matches nothing
		return list(func(r db.OrphanedConfigsRow) OrphanedConfig { return OrphanedConfig(r) })(tx.q.OrphanedConfigs(ctx, db.OrphanedConfigsParams{TenantID: tenant.UUID, Workspace: workspace, Pipelines: named, Most: int32(most)})) //nolint:gosec // a page size
	})
}

// LedgerEntry is a slot that fired, or a range of slots that did not.
type LedgerEntry struct {
	config.Range // one slot with outcome FIRED and its Run if it fired

	Partitions []string // of time that a slot covers that fired
	DecidedAt  time.Time
	DecidedBy  string
}

// ListSlots reads the ledger of a config, the newest first: entries with slots in [from, before).
func (s *Store) ListSlots(ctx context.Context, key ConfigKey, from, before time.Time, most int) (entries []LedgerEntry, err error) {
	err = s.Tenant(ctx, key.Tenant.String(), func(ctx context.Context, tx *Tx) error {
		entries, err = tx.listSlots(ctx, key, from, before, most)
		return err
	})
	return entries[:min(len(entries), most)], err
}

func (tx *Tx) listSlots(ctx context.Context, key ConfigKey, from, before time.Time, most int) ([]LedgerEntry, error) {
	fired, err := tx.q.ListSlots(ctx, db.ListSlotsParams{TenantID: key.Tenant.UUID, ConfigID: key.Config.UUID, FromAt: from, Before: before, Most: int32(most)}) //nolint:gosec // a page size
	if err != nil {
		return nil, err
	}
	ranges, err := tx.q.ListSlotRanges(ctx, db.ListSlotRangesParams{TenantID: key.Tenant.UUID, ConfigID: key.Config.UUID, FromAt: from, Before: before, Most: int32(most)}) //nolint:gosec // likewise
	if err != nil {
		return nil, err
	}
	return ledgerOf(fired, ranges), nil
}

func ledgerOf(fired []db.ServoSlot, ranges []db.ServoSlotRange) (entries []LedgerEntry) {
	for _, r := range fired {
		made := id.Of[id.Run](r.RunID)
		entries = append(entries, LedgerEntry{
			Range:      config.Range{From: r.SlotAt, To: r.SlotAt, Slots: 1, Outcome: config.Fired, Run: &made},
			Partitions: r.Partitions, DecidedAt: r.DecidedAt, DecidedBy: r.DecidedBy,
		})
	}
	for _, r := range ranges {
		entries = append(entries, LedgerEntry{
			Range: config.Range{
				From: r.FromAt, To: r.ToAt, Slots: r.Slots, Outcome: config.Outcome(r.Outcome), Reason: r.Reason, Version: r.ConfigVersion, Run: runOf(r.RunID),
			},
			DecidedAt: r.DecidedAt, DecidedBy: r.DecidedBy,
		})
	}
	slices.SortFunc(entries, func(a, b LedgerEntry) int { return b.From.Compare(a.From) })
	return entries
}

// Ledger is the history of a config and the outcomes of its slots, at one moment.
type Ledger struct {
	Events       []event.Event
	Fired        []config.Slot
	Ranges       []config.Range
	DecidedUntil time.Time
}

// ReadLedger reads the ledger of a config, deleted or not: up to most entries of each kind.
func (s *Store) ReadLedger(ctx context.Context, key ConfigKey, most int) (l Ledger, err error) {
	err = s.Explain(ctx, key.Tenant, func(ctx context.Context, tx *Tx) error {
		row, err := tx.q.ConfigDecidedUntil(ctx, db.ConfigDecidedUntilParams{TenantID: key.Tenant.UUID, ID: key.Config.UUID})
		if err != nil {
			return notFound(err, "config", key.Config.String())
		}
		l = Ledger{DecidedUntil: row}
		if l.Events, err = tx.configEvents(ctx, key, 0, most); err != nil {
			return err
		}
		end := time.Date(9999, 12, 31, 0, 0, 0, 0, time.UTC)
		entries, err := tx.listSlots(ctx, key, time.Time{}, end, most)
		for _, e := range entries {
			if e.Outcome == config.Fired {
				l.Fired = append(l.Fired, config.Slot{At: e.From, Run: *e.Run, Partitions: e.Partitions})
			} else {
				l.Ranges = append(l.Ranges, e.Range)
			}
		}
		return err
	}, func(context.Context, *Tx) error { return nil })
	return l, err
}

// ConfigEvents reads the events of a config after a version, the oldest first.
func (s *Store) ConfigEvents(ctx context.Context, key ConfigKey, after int32, most int) ([]event.Event, error) {
	return read(ctx, s.tenant(key.Tenant), func(ctx context.Context, tx *Tx) ([]event.Event, error) {
		return tx.configEvents(ctx, key, after, most)
	})
}

func (tx *Tx) configEvents(ctx context.Context, key ConfigKey, after int32, most int) ([]event.Event, error) {
	return tryList(func(r db.ConfigEventsRow) (event.Event, error) {
		body, err := tx.codec.Decode(event.Type(r.Type), r.Schema, r.Data)
		return event.Event{
			Tenant: key.Tenant, Subject: key.Config.UUID, Version: r.Version, At: r.RecordedAt,
			Meta: event.Meta{Actor: r.Actor, Trace: r.Trace}, Body: body,
		}, err
	})(tx.q.ConfigEvents(ctx, db.ConfigEventsParams{TenantID: key.Tenant.UUID, SubjectID: key.Config.UUID, After: after, Most: int32(most)})) //nolint:gosec // a page size
}
