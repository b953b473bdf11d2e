package store

import (
	"cmp"
	"context"
	"encoding/json"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"

	"go.arco.dev/servo/internal/base/id"
	"go.arco.dev/servo/internal/domain/config"
	"go.arco.dev/servo/internal/domain/run"
	"go.arco.dev/servo/internal/store/internal/db"
)

// ConfigKey identifies a config.
type ConfigKey struct {
	Tenant id.Tenant
	Config id.Config
}

func (k ConfigKey) tenantID() uuid.UUID { return k.Tenant.UUID }
func (k ConfigKey) configID() uuid.UUID { return k.Config.UUID }

// ConfigName identifies a config by its name.
type ConfigName struct {
	Tenant    id.Tenant
	Workspace id.Workspace
	Name      string
}

// ConfigState is a locked config with the state that decides about its slots.
type ConfigState struct {
	config.Config
	config.Times

	WorkspaceName string
	Range         config.Range // the range of its last decided slot, if that did not fire; only its cause
	// DependencyAt is the last success of the config that it depends on.
	DependencyAt time.Time
}

// Key returns the config's key.
func (c ConfigState) Key() ConfigKey { return ConfigKey{Tenant: c.Tenant, Config: c.ID} }

// LockDueConfigs locks up to most configs that are due by now, and skips locked rows.
func (tx *Tx) LockDueConfigs(ctx context.Context, now time.Time, most int) ([]ConfigState, error) {
	return tryList(configFromRow)(tx.q.LockDueConfigs(ctx, db.LockDueConfigsParams{Now: now, Most: int32(most)})) //nolint:gosec // a batch size
}

// LockConfigs locks configs by their ids. It omits configs that do not exist.
func (tx *Tx) LockConfigs(ctx context.Context, keys []ConfigKey) ([]ConfigState, error) {
	if len(keys) == 0 {
		return nil, nil
	}
	return tryList(func(r db.LockConfigsRow) (ConfigState, error) { return configFromRow(db.LockDueConfigsRow(r)) })(tx.q.LockConfigs(ctx, db.LockConfigsParams{TenantIds: column(keys, ConfigKey.tenantID), Ids: column(keys, ConfigKey.configID)}))
}

// LockFreeConfigs locks configs by their ids, and skips locked rows.
func (tx *Tx) LockFreeConfigs(ctx context.Context, keys []ConfigKey) ([]ConfigState, error) {
	return tryList(func(r db.LockFreeConfigsRow) (ConfigState, error) { return configFromRow(db.LockDueConfigsRow(r)) })(tx.q.LockFreeConfigs(ctx, db.LockFreeConfigsParams{TenantIds: column(keys, ConfigKey.tenantID), Ids: column(keys, ConfigKey.configID)}))
}

func configFromRow(r db.LockDueConfigsRow) (ConfigState, error) {
	c := ConfigState{
		Config: config.Config{
			Tenant: id.Of[id.Tenant](r.TenantID), ID: id.Of[id.Config](r.ID), Workspace: id.Of[id.Workspace](r.WorkspaceID), Name: r.Name,
			Version: r.Version, Enabled: r.Enabled, DisabledReason: r.DisabledReason, PausedAt: timeOf(r.PausedAt), PauseNote: r.PauseNote,
			MovedTo: timeOf(r.MovedTo), CreatedBy: r.CreatedBy, CreatedAt: r.CreatedAt, UpdatedAt: r.UpdatedAt, DeletedAt: timeOf(r.DeletedAt),
		},
		Times: config.Times{
			DecidedUntil: r.DecidedUntil, NextSlot: timeOf(r.NextSlot), DueAt: timeOf(r.DueAt), ZoneData: r.ZoneData, RangeFrom: timeOf(r.RangeFrom),
			LastSlot: timeOf(r.LastSlot), LastRunAt: timeOf(r.LastRunAt), LastSuccessAt: timeOf(r.LastSuccessAt), Failures: r.Failures,
			CoveredUntil: timeOf(r.CoveredUntil),
		},
		WorkspaceName: r.Workspace,
		Range:         config.Range{Outcome: config.Outcome(r.RangeOutcome), Reason: r.RangeReason, Version: r.RangeVersion, Run: runOf(r.RangeRunID)},
		DependencyAt:  timeOf(r.DependencySuccessAt),
	}
	if r.LastRunState != nil {
		c.LastState = *r.LastRunState
	}
	c.LastRun = runOf(r.LastRunID)
	return c, json.Unmarshal(r.Spec, &c.Spec)
}

func runOf(u *uuid.UUID) *id.Run {
	if u == nil {
		return nil
	}
	found := id.Of[id.Run](*u)
	return &found
}

func uuidOf(r *id.Run) uuid.UUID {
	if r == nil {
		return uuid.UUID{}
	}
	return r.UUID
}

// SaveConfigs writes new and changed configs, in the order of their names: two transactions that
// create the same configs wait for each other without a deadlock.
func (tx *Tx) SaveConfigs(ctx context.Context, rows []ConfigState) error {
	if len(rows) == 0 {
		return nil
	}
	rows = slices.SortedFunc(slices.Values(rows), func(a, b ConfigState) int { return cmp.Compare(a.Name, b.Name) })
	specs, err := convert(rows, func(c ConfigState) (string, error) { return jsonText(&c.Spec) })
	if err != nil {
		return err
	}
	labels, err := convert(rows, func(c ConfigState) (string, error) {
		if c.Spec.Labels == nil {
			return "{}", nil
		}
		return jsonText(&c.Spec.Labels)
	})
	if err != nil {
		return err
	}
	err = tx.q.UpsertConfigs(ctx, db.UpsertConfigsParams{
		TenantIds:       column(rows, func(c ConfigState) uuid.UUID { return c.Tenant.UUID }),
		Ids:             column(rows, func(c ConfigState) uuid.UUID { return c.ID.UUID }),
		WorkspaceIds:    column(rows, func(c ConfigState) uuid.UUID { return c.Workspace.UUID }),
		Names:           column(rows, func(c ConfigState) string { return c.Name }),
		Versions:        column(rows, func(c ConfigState) int32 { return c.Version }),
		Pipelines:       column(rows, func(c ConfigState) string { return c.Spec.Pipeline }),
		Labels:          labels,
		Specs:           specs,
		Enableds:        column(rows, func(c ConfigState) bool { return c.Enabled }),
		DisabledReasons: column(rows, func(c ConfigState) string { return c.DisabledReason }),
		PausedAts:       column(rows, func(c ConfigState) time.Time { return c.PausedAt }),
		PauseNotes:      column(rows, func(c ConfigState) string { return c.PauseNote }),
		MovedTos:        column(rows, func(c ConfigState) time.Time { return c.MovedTo }),
		CreatedBys:      column(rows, func(c ConfigState) string { return c.CreatedBy }),
		CreatedAts:      column(rows, func(c ConfigState) time.Time { return c.CreatedAt }),
		UpdatedAts:      column(rows, func(c ConfigState) time.Time { return c.UpdatedAt }),
		DeletedAts:      column(rows, func(c ConfigState) time.Time { return c.DeletedAt }),
		DecidedUntils:   column(rows, func(c ConfigState) time.Time { return c.DecidedUntil }),
		NextSlots:       column(rows, func(c ConfigState) time.Time { return c.NextSlot }),
		DueAts:          column(rows, func(c ConfigState) time.Time { return c.DueAt }),
		ZoneDatas:       column(rows, func(c ConfigState) string { return c.ZoneData }),
		RangeFroms:      column(rows, func(c ConfigState) time.Time { return c.RangeFrom }),
		Failures:        column(rows, func(c ConfigState) int32 { return c.Failures }),
	})
	return taken(err, "config", rows[0].Name)
}

// MoveConfigs writes the next slot and the last runs of locked configs.
func (tx *Tx) MoveConfigs(ctx context.Context, rows []ConfigState) error {
	return tx.writes.write("move configs", len(rows), func(q *db.Queries) error {
		return q.MoveConfigs(ctx, db.MoveConfigsParams{
			TenantIds:      column(rows, func(c ConfigState) uuid.UUID { return c.Tenant.UUID }),
			Ids:            column(rows, func(c ConfigState) uuid.UUID { return c.ID.UUID }),
			DecidedUntils:  column(rows, func(c ConfigState) time.Time { return c.DecidedUntil }),
			NextSlots:      column(rows, func(c ConfigState) time.Time { return c.NextSlot }),
			DueAts:         column(rows, func(c ConfigState) time.Time { return c.DueAt }),
			ZoneDatas:      column(rows, func(c ConfigState) string { return c.ZoneData }),
			RangeFroms:     column(rows, func(c ConfigState) time.Time { return c.RangeFrom }),
			Failures:       column(rows, func(c ConfigState) int32 { return c.Failures }),
			LastSlots:      column(rows, func(c ConfigState) time.Time { return c.LastSlot }),
			LastRunIds:     column(rows, func(c ConfigState) uuid.UUID { return uuidOf(c.LastRun) }),
			LastRunStates:  column(rows, func(c ConfigState) int16 { return c.LastState }),
			LastRunAts:     column(rows, func(c ConfigState) time.Time { return c.LastRunAt }),
			LastSuccessAts: column(rows, func(c ConfigState) time.Time { return c.LastSuccessAt }),
			CoveredUntils:  column(rows, func(c ConfigState) time.Time { return c.CoveredUntil }),
		})
	})
}

// FiredSlot is a slot of a config that created a run.
type FiredSlot struct {
	ConfigKey

	At         time.Time
	Run        id.Run
	Partitions []string // of time that it covers
}

// SkippedSlots are slots of a config that created no run.
type SkippedSlots struct {
	ConfigKey
	config.Range
}

// WriteLedger records the outcomes of slots. A range that continues the one before it has the From
// of that one.
func (tx *Tx) WriteLedger(ctx context.Context, fired []FiredSlot, skipped []SkippedSlots, now time.Time, by string) error {
	err := tx.writes.write("insert slots", len(fired), func(q *db.Queries) error {
		return q.InsertSlots(ctx, db.InsertSlotsParams{
			TenantIds:  column(fired, func(s FiredSlot) uuid.UUID { return s.Tenant.UUID }),
			ConfigIds:  column(fired, func(s FiredSlot) uuid.UUID { return s.Config.UUID }),
			SlotAts:    column(fired, func(s FiredSlot) time.Time { return s.At }),
			RunIds:     column(fired, func(s FiredSlot) uuid.UUID { return s.Run.UUID }),
			Partitions: column(fired, func(s FiredSlot) string { return strings.Join(s.Partitions, "\n") }),
			Now:        now, DecidedBy: by,
		})
	})
	if err != nil {
		return err
	}
	return tx.writes.write("write slot_ranges", len(skipped), func(q *db.Queries) error {
		return q.UpsertSlotRanges(ctx, db.UpsertSlotRangesParams{
			TenantIds:      column(skipped, func(s SkippedSlots) uuid.UUID { return s.Tenant.UUID }),
			ConfigIds:      column(skipped, func(s SkippedSlots) uuid.UUID { return s.Config.UUID }),
			FromAts:        column(skipped, func(s SkippedSlots) time.Time { return s.From }),
			ToAts:          column(skipped, func(s SkippedSlots) time.Time { return s.To }),
			Slots:          column(skipped, func(s SkippedSlots) int64 { return s.Slots }),
			Outcomes:       column(skipped, func(s SkippedSlots) int16 { return int16(s.Outcome) }),
			Reasons:        column(skipped, func(s SkippedSlots) string { return s.Reason }),
			ConfigVersions: column(skipped, func(s SkippedSlots) int32 { return s.Range.Version }),
			RunIds:         column(skipped, func(s SkippedSlots) uuid.UUID { return uuidOf(s.Run) }),
			Now:            now, DecidedBy: by,
		})
	})
}

// ConfigIDs finds configs by their names. It omits configs that do not exist.
func (tx *Tx) ConfigIDs(ctx context.Context, names []ConfigName) (map[ConfigName]id.Config, error) {
	rows, err := tx.q.ConfigIDs(ctx, db.ConfigIDsParams{
		TenantIds:    column(names, func(n ConfigName) uuid.UUID { return n.Tenant.UUID }),
		WorkspaceIds: column(names, func(n ConfigName) uuid.UUID { return n.Workspace.UUID }),
		Names:        column(names, func(n ConfigName) string { return n.Name }),
	})
	if err != nil {
		return nil, err
	}
	found := make(map[ConfigName]id.Config, len(rows))
	for _, r := range rows {
		name := ConfigName{Tenant: id.Of[id.Tenant](r.TenantID), Workspace: id.Of[id.Workspace](r.WorkspaceID), Name: r.Name}
		found[name] = id.Of[id.Config](r.ID)
	}
	return found, nil
}

// ListenersOf returns, for each config, the configs that fire when it succeeds.
func (tx *Tx) ListenersOf(ctx context.Context, keys []ConfigKey) (map[id.Config][]ConfigKey, error) {
	rows, err := tx.q.Listeners(ctx, db.ListenersParams{TenantIds: column(keys, ConfigKey.tenantID), Ids: column(keys, ConfigKey.configID)})
	found := map[id.Config][]ConfigKey{}
	for _, r := range rows {
		source := id.Of[id.Config](r.SourceID)
		found[source] = append(found[source], ConfigKey{Tenant: id.Of[id.Tenant](r.TenantID), Config: id.Of[id.Config](r.ID)})
	}
	return found, err
}

// Due is the work of the scheduler.
type Due struct {
	Now     time.Time
	At      time.Time // when the next config is due; far in the future if none is
	Results bool      // results of runs wait for their configs
	Events  bool      // external events wait
}

// NextDue reads when the scheduler has work.
func (s *Store) NextDue(ctx context.Context) (d Due, err error) {
	err = s.engine(ctx, func(ctx context.Context, tx *Tx) error {
		if d.Now, err = tx.Clock(ctx); err != nil {
			return err
		}
		row, err := tx.q.NextDue(ctx)
		d.At, d.Results, d.Events = row.DueAt, row.Results, row.Events
		return err
	})
	return d, err
}

// ConfigLoad counts the live runs of a config, and those that wait for a lock.
type ConfigLoad struct{ Live, Behind int }

// LiveOfConfigs counts the live runs of configs.
func (tx *Tx) LiveOfConfigs(ctx context.Context, keys []ConfigKey) (map[id.Config]ConfigLoad, error) {
	if len(keys) == 0 {
		return nil, nil
	}
	return index(func(r db.LiveOfConfigsRow) (id.Config, ConfigLoad) {
		return id.Of[id.Config](r.ConfigID), ConfigLoad{Live: int(r.Live), Behind: int(r.Behind)}
	})(tx.q.LiveOfConfigs(ctx, db.LiveOfConfigsParams{TenantIds: column(keys, ConfigKey.tenantID), ConfigIds: column(keys, ConfigKey.configID)}))
}

// ConfigEdges returns the configs of a workspace that name other configs, with those names.
func (tx *Tx) ConfigEdges(ctx context.Context, w Workspace) (map[string][]string, error) {
	rows, err := tx.q.ConfigEdges(ctx, db.ConfigEdgesParams{TenantID: w.Tenant.UUID, WorkspaceID: w.ID.UUID})
	edges := make(map[string][]string, len(rows))
	for _, r := range rows {
		for _, name := range []string{r.AfterConfig, r.DependsOn} {
			if name != "" {
				edges[r.Name] = append(edges[r.Name], name)
			}
		}
	}
	return edges, err
}

// WaitingOfConfigs returns the runs of configs that wait for their lock, up to most of each.
func (tx *Tx) WaitingOfConfigs(ctx context.Context, keys []ConfigKey, most int) (map[id.Config][]id.Run, error) {
	rows, err := tx.q.WaitingOfConfigs(ctx, db.WaitingOfConfigsParams{
		TenantIds: column(keys, ConfigKey.tenantID), ConfigIds: column(keys, ConfigKey.configID), Most: int32(most), //nolint:gosec // a batch size
	})
	waiting := map[id.Config][]id.Run{}
	for _, r := range rows {
		of := id.Of[id.Config](r.ConfigID)
		waiting[of] = append(waiting[of], id.Of[id.Run](r.RunID))
	}
	return waiting, err
}

// ConfigResult is the result of an ended run, for its config.
type ConfigResult struct {
	ConfigKey

	ID    int64 // orders the results
	Run   id.Run
	State run.State
	At    time.Time
	// After is the last listening config that has had its run, if there are too many listeners for
	// one transaction.
	After *id.Config
}

func (tx *Tx) insertConfigResults(ctx context.Context, c Changes) error {
	rows := c.Results
	return tx.writes.write("insert config_results", len(rows), func(q *db.Queries) error {
		return q.InsertConfigResults(ctx, db.InsertConfigResultsParams{
			TenantIds: column(rows, func(r ConfigResult) uuid.UUID { return r.Tenant.UUID }),
			ConfigIds: column(rows, func(r ConfigResult) uuid.UUID { return r.Config.UUID }),
			RunIds:    column(rows, func(r ConfigResult) uuid.UUID { return r.Run.UUID }),
			States:    column(rows, func(r ConfigResult) int16 { return int16(r.State) }),
			Now:       c.Now,
		})
	})
}

// TakeConfigResults deletes and returns up to most results, the oldest first.
func (tx *Tx) TakeConfigResults(ctx context.Context, most int) ([]ConfigResult, error) {
	rows, err := tx.q.TakeConfigResults(ctx, int32(most)) //nolint:gosec // a batch size
	if err != nil {
		return nil, err
	}
	slices.SortFunc(rows, func(a, b db.ServoConfigResult) int { return cmp.Compare(a.ID, b.ID) })
	return column(rows, func(r db.ServoConfigResult) ConfigResult {
		result := ConfigResult{
			ConfigKey: ConfigKey{Tenant: id.Of[id.Tenant](r.TenantID), Config: id.Of[id.Config](r.ConfigID)},
			ID:        r.ID, Run: id.Of[id.Run](r.RunID), State: run.State(r.State), At: r.EndedAt,
		}
		if r.AfterID != nil {
			after := id.Of[id.Config](*r.AfterID)
			result.After = &after
		}
		return result
	}), nil
}

// ClaimedRuns returns those of the ended runs of which a worker has claimed a task.
func (tx *Tx) ClaimedRuns(ctx context.Context, runs []RunKey) (map[id.Run]bool, error) {
	if len(runs) == 0 {
		return nil, nil
	}
	return index(func(r uuid.UUID) (id.Run, bool) {
		return id.Of[id.Run](r), true
	})(tx.q.ClaimedRuns(ctx, db.ClaimedRunsParams{
		TenantIds: column(runs, func(r RunKey) uuid.UUID { return r.Tenant.UUID }), RunIds: column(runs, func(r RunKey) uuid.UUID { return r.Run.UUID }),
	}))
}

// LeaveConfigResults inserts results again that have to wait. The listeners up to After have had
// their runs.
func (tx *Tx) LeaveConfigResults(ctx context.Context, results []ConfigResult) error {
	if len(results) == 0 {
		return nil
	}
	return tx.q.LeaveConfigResults(ctx, db.LeaveConfigResultsParams{
		Ids:       column(results, func(r ConfigResult) int64 { return r.ID }),
		TenantIds: column(results, func(r ConfigResult) uuid.UUID { return r.Tenant.UUID }),
		ConfigIds: column(results, func(r ConfigResult) uuid.UUID { return r.Config.UUID }),
		RunIds:    column(results, func(r ConfigResult) uuid.UUID { return r.Run.UUID }),
		States:    column(results, func(r ConfigResult) int16 { return int16(r.State) }),
		EndedAts:  column(results, func(r ConfigResult) time.Time { return r.At }),
		AfterIds: column(results, func(r ConfigResult) uuid.UUID {
			if r.After == nil {
				return uuid.Nil
			}
			return r.After.UUID
		}),
	})
}

// ConfigDependents returns the names of up to most configs that run after a config or depend on it.
func (tx *Tx) ConfigDependents(ctx context.Context, n ConfigName, most int) ([]string, error) {
	return tx.q.ConfigDependents(ctx, db.ConfigDependentsParams{TenantID: n.Tenant.UUID, WorkspaceID: n.Workspace.UUID, Name: n.Name, Most: int32(most)}) //nolint:gosec // a page size
}

// ConfigNames returns the names of up to most configs of a workspace.
func (tx *Tx) ConfigNames(ctx context.Context, w Workspace, most int) ([]string, error) {
	return tx.q.ConfigNames(ctx, db.ConfigNamesParams{TenantID: w.Tenant.UUID, WorkspaceID: w.ID.UUID, Most: int32(most)}) //nolint:gosec // a page size
}

// ConfigsOfOtherZoneData returns configs after a key whose next slot was computed with older zone
// data, or also with newer, in the order of their keys.
func (tx *Tx) ConfigsOfOtherZoneData(ctx context.Context, version string, newer bool, after ConfigKey, most int) ([]ConfigKey, error) {
	return list(func(r db.ConfigsOfOtherZoneDataRow) ConfigKey {
		return ConfigKey{Tenant: id.Of[id.Tenant](r.TenantID), Config: id.Of[id.Config](r.ID)}
	})(tx.q.ConfigsOfOtherZoneData(ctx, db.ConfigsOfOtherZoneDataParams{
		ZoneData: version, Newer: newer, AfterTenant: after.Tenant.UUID, AfterID: after.Config.UUID, Most: int32(most), //nolint:gosec // a batch size
	}))
}
