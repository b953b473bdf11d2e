package verify

import (
	"encoding/json"
	"time"

	"github.com/google/uuid"

	"go.arco.dev/servo/internal/base/id"
	"go.arco.dev/servo/internal/domain/config"
	"go.arco.dev/servo/internal/domain/tenant"
	"go.arco.dev/servo/internal/store"
)

// Entities with folds of their own, in addition to the kinds of package tenant.
const (
	kindEvent    tenant.Kind = "event"
	kindTemplate tenant.Kind = "template"
)

// gone reports whether an entity rightly has no row any more: an external event that was handled
// long ago, or a deleted template.
func (en *entity) gone(now time.Time) bool {
	if en.Kind == kindTemplate {
		return en.template.Deleted
	}
	return en.Kind == kindEvent && !en.external.DoneAt.IsZero() && en.external.ReceivedAt.Before(now.Add(-config.KeepEvents))
}

func (c *entityCheck) eventRow(got store.ExternalEventRow) error {
	key := entityKey{id.Of[id.Tenant](got.TenantID), got.ID}
	en := c.meet("event_inbox", kindEvent, key)
	if en == nil {
		return nil
	}
	c.inWorkspace(key, en.external.Workspace.UUID)
	want := wantEvent(en.external)
	if en.external.DoneAt.IsZero() { // its progress is in the row alone
		want.Runs, want.Skipped = got.Runs, got.Skipped
	}
	compareEntity(c, c.tables.events, key, &want, &got)
	return nil
}

// inWorkspace checks that the workspace of an entity belongs to its tenant.
func (c *entityCheck) inWorkspace(key entityKey, workspace uuid.UUID) {
	home := c.entities[entityKey{key.tenant, workspace}]
	if home == nil || !home.broken && home.Kind != tenant.KindWorkspace {
		c.diverges(History, "entity_events", "data", key, "a workspace of its tenant", workspace.String())
	}
}

// wantEvent is the row of an external event.
func wantEvent(o config.OutsideEvent) store.ExternalEventRow {
	row := store.ExternalEventRow{
		TenantID: o.Tenant.UUID, ID: o.ID.UUID, WorkspaceID: o.Workspace.UUID, Name: o.Name, DedupeKey: o.Key, Parameters: o.Parameters, Reason: o.Reason,
		Version: o.Version, SentBy: o.SentBy, ReceivedAt: o.ReceivedAt, Listeners: o.Listeners, Runs: o.Runs, Skipped: json.RawMessage(`{}`),
		DoneAt: timeOrNull(o.DoneAt),
	}
	if o.Skipped != nil {
		row.Skipped = jsonOrNull(&o.Skipped)
	}
	return row
}

func (c *entityCheck) templateRow(got store.TemplateRow) error {
	key := entityKey{id.Of[id.Tenant](got.TenantID), got.ID}
	en := c.meet("templates", kindTemplate, key)
	if en == nil {
		return nil
	}
	if en.template.Deleted {
		c.diverges(Surplus, "templates", "", key, "", "a row of a template that was deleted")
		return nil
	}
	want := wantTemplate(en.template)
	compareEntity(c, c.tables.templates, key, &want, &got)
	return nil
}

// wantTemplate is the row of a template.
func wantTemplate(t config.Template) store.TemplateRow {
	return store.TemplateRow{
		TenantID: t.Tenant.UUID, ID: t.ID.UUID, Name: t.Name, Version: t.Version, Cron: t.Cron, Description: t.Description,
		ChangedBy: t.ChangedBy, CreatedAt: t.CreatedAt, UpdatedAt: t.UpdatedAt,
	}
}
