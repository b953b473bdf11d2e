package verify

import (
	"encoding/json"
	"time"

	"go.arco.dev/servo/internal/base/event"
	"go.arco.dev/servo/internal/base/id"
	"go.arco.dev/servo/internal/domain/config"
	"go.arco.dev/servo/internal/domain/tenant"
	"go.arco.dev/servo/internal/store"
)

// kindConfig adds to the kinds of package tenant: a config is an entity with a fold of its own.
const kindConfig tenant.Kind = "config"

// configMay reports whether an event may happen to a config. Evolve rejects events that cannot be
// folded at all.
func configMay(c config.Config, body event.Body) bool {
	switch body.(type) {
	case config.Paused:
		return c.PausedAt.IsZero()
	case config.Resumed:
		return !c.PausedAt.IsZero()
	case config.Disabled:
		return c.Enabled
	case config.Enabled:
		return !c.Enabled
	}
	return true
}

func (c *entityCheck) configRow(got store.ConfigRow) error {
	key := entityKey{id.Of[id.Tenant](got.TenantID), got.ID}
	en := c.meet("configs", kindConfig, key)
	if en == nil {
		return nil
	}
	c.inWorkspace(key, en.config.Workspace.UUID)
	want := wantConfig(en.config, got.DecidedUntil)
	compareEntity(c, c.tables.configs, key, &want, &got)
	c.due(key, en.config, got)
	return nil
}

// wantConfig is the row of a config whose slots are decided until a time. From then on the row
// has no moved_to.
func wantConfig(c config.Config, decided time.Time) store.ConfigRow {
	row := store.ConfigRow{
		TenantID: c.Tenant.UUID, ID: c.ID.UUID, WorkspaceID: c.Workspace.UUID, Name: c.Name, Version: c.Version,
		Pipeline: c.Spec.Pipeline, Labels: json.RawMessage(`{}`), Spec: jsonOrNull(&c.Spec),
		Enabled: c.Enabled, DisabledReason: c.DisabledReason, PausedAt: timeOrNull(c.PausedAt), PauseNote: c.PauseNote,
		CreatedBy: c.CreatedBy, CreatedAt: c.CreatedAt, UpdatedAt: c.UpdatedAt, DeletedAt: timeOrNull(c.DeletedAt),
	}
	if c.Spec.Labels != nil {
		row.Labels = jsonOrNull(&c.Spec.Labels)
	}
	if c.MovedTo.After(decided) {
		row.MovedTo = &c.MovedTo
	}
	if on := c.Spec.Trigger.Event; on != nil {
		row.AfterConfig, row.OnEvent = textOrNull(on.Config), textOrNull(on.Name)
	}
	row.Template = textOrNull(c.Spec.Trigger.Template)
	if on := c.Spec.DependsOn; on != nil {
		row.DependsOn = textOrNull(on.Config)
	}
	return row
}

// due checks that a config has a due time exactly while it can fire and has a next slot.
func (c *entityCheck) due(key entityKey, of config.Config, got store.ConfigRow) {
	want := false
	if of.Fires() {
		s, err := of.Spec.Schedule()
		if err != nil {
			c.diverges(Invariant, "configs", "spec", key, "a valid schedule, or a disabled config", err.Error())
			return
		}
		_, due := of.Next(s, got.DecidedUntil)
		want = !due.IsZero()
	}
	switch {
	case want && got.DueAt == nil:
		c.diverges(Invariant, "configs", "due_at", key, "a time: the config has a next slot", "")
	case !want && got.DueAt != nil:
		c.diverges(Invariant, "configs", "due_at", key, "", got.DueAt.UTC().Format(time.RFC3339Nano)+" for a config that does not fire or has no next slot")
	}
}

// ledger reports entries of the ledger of slots that contradict the runs or each other.
func (v *verifier) ledger(row store.LedgerRow) error {
	d := Divergence{Kind: Invariant, Tenant: id.Of[id.Tenant](row.TenantID), Run: id.Of[id.Run](row.RunID)}
	if row.ConfigID != nil {
		d.Subject = *row.ConfigID
	}
	slot := row.At.UTC().Format(time.RFC3339Nano)
	switch row.Wrong {
	case "run without slot":
		d.Table, d.Column, d.Want, d.Got = "runs", "slot_at", "slot "+slot+" in the ledger, with this run", "none"
	case "slot without run":
		d.Table, d.Column, d.Want, d.Got = "slots", "run_id", "the run that slot "+slot+" has made", "none"
	case "slot in range":
		d.Table, d.Column, d.Want, d.Got = "slots", "slot_at", "one outcome of slot "+slot, "a fired slot inside a range of slots that did not fire"
	case "ranges overlap":
		d.Table, d.Column, d.Want, d.Got = "slot_ranges", "from_at", "ranges one after the other", "one from "+slot+" inside of another"
	case "slot without config":
		d.Kind, d.Table, d.Column, d.Want, d.Got = Surplus, "slots", "config_id", "a config", "slot "+slot+" without one"
	default:
		d.Kind, d.Table, d.Column, d.Want, d.Got = Surplus, "slot_ranges", "config_id", "a config", "a range from "+slot+" without one"
	}
	v.report.add(d)
	return nil
}
