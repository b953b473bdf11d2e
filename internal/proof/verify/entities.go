package verify

import (
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"

	"go.arco.dev/servo/internal/base/event"
	"go.arco.dev/servo/internal/base/id"
	"go.arco.dev/servo/internal/domain/access"
	"go.arco.dev/servo/internal/domain/alert"
	"go.arco.dev/servo/internal/domain/backfill"
	"go.arco.dev/servo/internal/domain/config"
	"go.arco.dev/servo/internal/domain/subscription"
	"go.arco.dev/servo/internal/domain/tenant"
	"go.arco.dev/servo/internal/store"
)

// entities compares the entities of tenants (workspaces, deployments, configs, alerts …) with
// their events, some tenants at a time.
func (v *verifier) entities(ctx context.Context, tx *store.Tx) error {
	var last id.Tenant
	if v.options.Tenant == nil { // the installation has alerts and channels, but no row of its own
		if err := v.entitiesOf(ctx, tx, []id.Tenant{last}, nil); err != nil {
			return err
		}
	}
	for {
		rows, err := tx.TenantsAfter(ctx, last, v.options.Tenant, chunkTenants)
		if err != nil || len(rows) == 0 {
			return err
		}
		last = id.Of[id.Tenant](rows[len(rows)-1].ID)
		v.report.Tenants += len(rows)
		tenants := make([]id.Tenant, len(rows))
		for i, row := range rows {
			tenants[i] = id.Of[id.Tenant](row.ID)
		}
		if err := v.entitiesOf(ctx, tx, tenants, rows); err != nil {
			return err
		}
	}
}

// entitiesOf compares the entities of some tenants, and their own rows.
func (v *verifier) entitiesOf(ctx context.Context, tx *store.Tx, tenants []id.Tenant, rows []store.TenantRow) error {
	now, err := tx.Clock(ctx)
	if err != nil {
		return err
	}
	c := &entityCheck{verifier: v, entities: map[entityKey]*entity{}, now: now}
	err = tx.EachEntityRow(ctx, tenants, store.EntityRows{
		Event: c.apply, Workspace: c.workspaceRow, Deployment: c.deploymentRow, AssetPause: c.pauseRow, Config: c.configRow,
		External: c.eventRow, Template: c.templateRow,
		Alert: c.alertRow, Channel: c.channelRow, Subscription: c.subscriptionRow, Key: c.keyRow, Backfill: c.backfillRow, Chunk: c.chunkRow,
	})
	if err != nil {
		return err
	}
	for _, row := range rows {
		if err := c.tenantRow(row); err != nil {
			return err
		}
	}
	c.conclude()
	return nil
}

// entityCheck compares the rows of some tenants.
type entityCheck struct {
	*verifier

	entities map[entityKey]*entity
	now      time.Time
}

type entityKey struct {
	tenant  id.Tenant
	subject uuid.UUID
}

// entity is the fold of one subject.
type entity struct {
	tenant.Entity

	// Entities with a fold of their own; Kind and Version are in Entity too.
	config   config.Config
	external config.OutsideEvent
	template config.Template
	alert    alert.Alert
	channel  alert.Channel
	key      access.Key

	subscription subscription.Subscription
	backfill     backfillFold

	broken bool
	met    bool
	paused map[string]bool // the pauses of a workspace that have their row
}

func (c *entityCheck) diverges(kind Kind, table, column string, key entityKey, want, got string) {
	c.report.add(Divergence{Kind: kind, Table: table, Column: column, Tenant: key.tenant, Subject: key.subject, Want: want, Got: got})
}

// apply folds one event. Events come by subject and version.
func (c *entityCheck) apply(row store.EventRow) error {
	c.report.Events++
	key := entityKey{id.Of[id.Tenant](row.TenantID), row.SubjectID}
	en := c.entities[key]
	if en == nil {
		en = &entity{}
		c.entities[key] = en
	}
	if en.broken {
		return nil // reported once
	}
	if row.Position > c.limits.position {
		c.diverges(Invariant, "entity_events", "position", key,
			fmt.Sprintf("at most %d, the last that was allocated", c.limits.position), fmt.Sprint(row.Position))
	}
	if row.Version != en.Version+1 {
		en.broken = true
		c.diverges(Stream, "entity_events", "version", key, fmt.Sprint(en.Version+1), fmt.Sprint(row.Version))
		return nil
	}
	body, err := c.codec.Decode(event.Type(row.Type), row.Schema, row.Data)
	if err != nil {
		en.broken = true
		c.diverges(Undecidable, "entity_events", "type", key, "an event that this version can read", err.Error()+": refuses to decide on this stream")
		return nil
	}
	if !en.may(body) {
		c.diverges(History, "entity_events", "type", key, "an event that is possible at version "+fmt.Sprint(row.Version), row.Type)
	}
	e := event.Event{Tenant: key.tenant, Subject: row.SubjectID, Version: row.Version, At: row.RecordedAt, Meta: event.Meta{Actor: row.Actor}, Body: body}
	if err := en.fold(e); err != nil {
		en.broken = true
		c.diverges(Undecidable, "entity_events", "type", key, "an event of an entity", err.Error())
	}
	return nil
}

// begins is the kind of entity that an event creates, "" for the kinds of package tenant.
func begins(body event.Body) tenant.Kind {
	switch body.(type) {
	case config.Created:
		return kindConfig
	case config.EventReceived:
		return kindEvent
	case config.TemplateSet:
		return kindTemplate
	case alert.Raised:
		return kindAlert
	case alert.ChannelCreated:
		return kindChannel
	case subscription.Created:
		return kindSubscription
	case access.KeyCreated:
		return kindKey
	case backfill.Created:
		return kindBackfill
	}
	return ""
}

// fold applies one event.
func (en *entity) fold(e event.Event) (err error) {
	kind := en.Kind
	if en.Version == 0 {
		kind = begins(e.Body)
	}
	name := ""
	switch kind {
	case kindConfig:
		en.config, err = en.config.Evolve(e)
		name = en.config.Name
	case kindEvent:
		en.external, err = en.external.Evolve(e)
		name = en.external.Name
	case kindTemplate:
		en.template, err = en.template.Evolve(e)
		name = en.template.Name
	case kindAlert:
		en.alert, err = en.alert.Evolve(e)
		name = en.alert.Name
	case kindChannel:
		en.channel, err = en.channel.Evolve(e)
		name = en.channel.Name
	case kindSubscription:
		en.subscription, err = en.subscription.Evolve(e)
		name = en.subscription.Name
	case kindKey:
		en.key, err = en.key.Evolve(e)
		name = en.key.Name
	case kindBackfill:
		err = en.backfill.apply(e)
		name = en.backfill.Settings.Asset
	default:
		en.Entity, err = en.Evolve(e)
		return err
	}
	if err == nil {
		en.Kind, en.Name, en.Version = kind, name, e.Version
	}
	return err
}

// may reports whether an event may happen to an entity.
func (en *entity) may(body event.Body) bool {
	switch en.Kind { //nolint:exhaustive // the others depend on the event
	case kindConfig:
		return configMay(en.config, body)
	case kindAlert, kindChannel, kindSubscription, kindEvent, kindTemplate, kindKey, kindBackfill: // Evolve rejects the others
		return true
	}
	switch body := body.(type) {
	case tenant.DeploymentActivated:
		return en.Kind == tenant.KindWorkspace
	case tenant.AssetPaused:
		_, paused := en.Paused[body.Asset]
		return en.Kind == tenant.KindWorkspace && !paused
	case tenant.AssetResumed:
		_, paused := en.Paused[body.Asset]
		return en.Kind == tenant.KindWorkspace && paused
	case tenant.QuotasSet, tenant.LabelsSet:
		return en.Kind == tenant.KindTenant
	case tenant.ChannelFollowed:
		return en.Kind == tenant.KindWorkspace
	case tenant.Created, tenant.WorkspaceCreated, tenant.DeploymentRegistered:
		return en.Kind == ""
	}
	return true // not an event of an entity: Evolve rejects it
}

// meet returns the fold of a row; nil if it cannot be compared.
func (c *entityCheck) meet(table string, kind tenant.Kind, key entityKey) *entity {
	en := c.entities[key]
	switch {
	case en == nil, !en.broken && en.Kind != kind:
		c.diverges(Surplus, table, "", key, "", "a row that no event explains")
		return nil
	case en.broken:
		return nil
	}
	en.met = true
	return en
}

func compareEntity[R any](c *entityCheck, columns columns[R], key entityKey, want, got *R) {
	for _, d := range columns.diff(want, got) {
		c.diverges(Differs, columns.table, d.column, key, d.want, d.got)
	}
}

// entityRow compares a row with the fold of its entity.
func entityRow[R any](c *entityCheck, columns columns[R], kind tenant.Kind, owner, subject uuid.UUID, got R, want func(en *entity) R) error {
	key := entityKey{id.Of[id.Tenant](owner), subject}
	if en := c.meet(columns.table, kind, key); en != nil {
		wanted := want(en)
		compareEntity(c, columns, key, &wanted, &got)
	}
	return nil
}

func (c *entityCheck) tenantRow(got store.TenantRow) error {
	return entityRow(c, c.tables.tenants, tenant.KindTenant, got.ID, got.ID, got, func(en *entity) store.TenantRow { return wantTenant(en.Entity, got.ID) })
}

func (c *entityCheck) workspaceRow(got store.WorkspaceRow) error {
	key := entityKey{id.Of[id.Tenant](got.TenantID), got.ID}
	en := c.meet("workspaces", tenant.KindWorkspace, key)
	if en == nil {
		return nil
	}
	want := store.WorkspaceRow{TenantID: got.TenantID, ID: got.ID, Name: en.Name, Version: en.Version, CreatedAt: en.CreatedAt, Channel: en.Channel}
	if en.Active.UUID != uuid.Nil {
		want.ActiveDeploymentID = &en.Active.UUID
		active := c.entities[entityKey{key.tenant, en.Active.UUID}]
		if active == nil || !active.broken && active.Workspace.UUID != got.ID {
			c.diverges(History, "entity_events", "data", key, "a deployment of this workspace", en.Active.String())
		}
	}
	compareEntity(c, c.tables.workspaces, key, &want, &got)
	return nil
}

// deploymentRow compares a deployment. Its manifest is in no event, but its digest is.
func (c *entityCheck) deploymentRow(got store.DeploymentRow) error {
	key := entityKey{id.Of[id.Tenant](got.TenantID), got.ID}
	en := c.meet("deployments", tenant.KindDeployment, key)
	if en == nil {
		return nil
	}
	want := store.DeploymentRow{
		TenantID: got.TenantID, ID: got.ID, WorkspaceID: en.Workspace.UUID, Digest: en.Digest,
		Version: en.Version, CreatedAt: en.CreatedAt,
	}
	compareEntity(c, c.tables.deployments, key, &want, &got)
	return nil
}

// pauseRow compares a pause with the events of its workspace.
func (c *entityCheck) pauseRow(got store.AssetPauseRow) error {
	key := entityKey{id.Of[id.Tenant](got.TenantID), got.WorkspaceID}
	en := c.entities[key]
	if en != nil && en.broken {
		return nil
	}
	var pause tenant.Pause
	known := false
	if en != nil {
		pause, known = en.Paused[got.Asset]
	}
	if !known {
		c.diverges(Surplus, "asset_pauses", "", key, "", "a pause of "+got.Asset+" that no event explains")
		return nil
	}
	if en.paused == nil {
		en.paused = map[string]bool{}
	}
	en.paused[got.Asset] = true
	want := store.AssetPauseRow{
		TenantID: got.TenantID, WorkspaceID: got.WorkspaceID, Asset: got.Asset, PausedAt: pause.At, PausedBy: pause.By, Reason: pause.Reason,
	}
	compareEntity(c, c.tables.pauses, key, &want, &got)
	return nil
}

// conclude reports rows that are missing.
func (c *entityCheck) conclude() {
	tables := map[tenant.Kind]string{
		tenant.KindTenant: "tenants", tenant.KindWorkspace: "workspaces", tenant.KindDeployment: "deployments", kindConfig: "configs",
		kindEvent: "event_inbox", kindTemplate: "templates", kindAlert: "alerts", kindChannel: "alert_channels", kindSubscription: "subscriptions", kindKey: "api_keys",
		kindBackfill: "backfills",
	}
	for key, en := range c.entities {
		for asset := range en.Paused {
			if !en.broken && !en.paused[asset] {
				c.diverges(Missing, "asset_pauses", "", key, "the pause of "+asset, "")
			}
		}
		if !en.broken {
			c.missingChunks(key, en)
		}
		if !en.met && !en.broken && !en.gone(c.now) {
			c.diverges(Missing, tables[en.Kind], "", key, "the row of a "+string(en.Kind)+" with "+fmt.Sprint(en.Version)+" events", "")
		}
	}
}
