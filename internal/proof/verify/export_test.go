package verify

import (
	"math"
	"reflect"
	"time"

	"go.arco.dev/servo/internal/base/id"
	"go.arco.dev/servo/internal/store"
)

// Compared are the columns that are compared, "table.column".
func Compared() []string {
	t := newTables()
	var all []string
	for table, names := range map[string][]string{
		"runs": t.runs.names, "live_runs": t.live.names, "tasks": t.tasks.names, "edges": columnsOf[store.EdgeRow]("edges").names, "waiting": t.waiting.names,
		"ready_q": t.ready.names, "pool_q": t.pool.names, "leases": t.leases.names, "retry_q": t.retry.names,
		"tenants": t.tenants.names, "workspaces": t.workspaces.names, "deployments": t.deployments.names,
		"asset_pauses": t.pauses.names, "configs": t.configs.names,
		"event_inbox": t.events.names, "templates": t.templates.names,
		"alerts": t.alerts.names, "alert_channels": t.channels.names, "subscriptions": t.subscriptions.names, "api_keys": t.keys.names,
	} {
		for _, name := range names {
			all = append(all, table+"."+name)
		}
	}
	return all
}

// ComparedElsewhere are the compared columns of backfills, their chunks and versions of outputs, which
// tests of the engine fill.
func ComparedElsewhere() []string {
	t := newTables()
	var all []string
	for table, names := range map[string][]string{"backfills": t.backfills.names, "backfill_chunks": t.chunks.names, "materializations": t.outputs.names} {
		for _, name := range names {
			all = append(all, table+"."+name)
		}
	}
	return all
}

// SameJSON compares JSON as columns are compared.
var SameJSON = sameJSON

// TaskMay and RunMay judge events.
var (
	TaskMay = taskMay
	RunMay  = runMay
)

// Replay folds recorded events of one run and gives the rows that follow, by table.
func Replay(key store.RunKey, events []store.EventRow) (map[string][]map[string]any, []Divergence) {
	var found []Divergence
	given := limits{token: math.MaxInt64, position: math.MaxInt64}
	h := newHistory(key, given, func(d Divergence) { found = append(found, d) })
	codec := store.Codec()
	for _, e := range events {
		h.apply(e, codec)
	}
	h.finish()
	t := newTables()
	rows := map[string][]map[string]any{"runs": {valuesOf(t.runs, wantRun(h.run))}, "live_runs": {}}
	if !h.run.State.Terminal() {
		rows["live_runs"] = append(rows["live_runs"], valuesOf(t.live, wantLive(h.run)))
	}
	for _, task := range h.order {
		rows["tasks"] = append(rows["tasks"], valuesOf(t.tasks, wantTask(task)))
		switch placeOf(task.State) {
		case inWaiting:
			rows["waiting"] = append(rows["waiting"], valuesOf(t.waiting, wantWaiting(task)))
		case inReady:
			rows["ready_q"] = append(rows["ready_q"], valuesOf(t.ready, wantReady(task)))
		case inPool:
			rows["pool_q"] = append(rows["pool_q"], valuesOf(t.pool, wantQueued(task)))
		case inLeases:
			rows["leases"] = append(rows["leases"], valuesOf(t.leases, wantLease(task)))
		case inRetry:
			rows["retry_q"] = append(rows["retry_q"], valuesOf(t.retry, wantRetry(task)))
		}
	}
	for _, e := range h.edges {
		rows["edges"] = append(rows["edges"], map[string]any{"upstream_id": e.upstream, "task_id": e.task})
	}
	return rows, found
}

// ReplayEntities folds recorded events of tenants, workspaces, deployments and configs.
func ReplayEntities(events []store.EventRow) (map[string][]map[string]any, []Divergence) {
	v := &verifier{codec: store.Codec(), tables: newTables(), limits: limits{position: math.MaxInt64}, report: Report{keep: len(events)}}
	c := &entityCheck{verifier: v, entities: map[entityKey]*entity{}}
	rows := map[string][]map[string]any{}
	for i, e := range events {
		_ = c.apply(e)
		if i+1 < len(events) && events[i+1].SubjectID == e.SubjectID {
			continue
		}
		en := c.entities[entityKey{id.Of[id.Tenant](e.TenantID), e.SubjectID}]
		switch en.Kind { //nolint:exhaustive // the others look alike
		case kindConfig:
			rows["configs"] = append(rows["configs"], valuesOf(v.tables.configs, wantConfig(en.config, time.Time{})))
			continue
		case kindEvent:
			rows["event_inbox"] = append(rows["event_inbox"], valuesOf(v.tables.events, wantEvent(en.external)))
			continue
		case kindAlert:
			rows["alerts"] = append(rows["alerts"], valuesOf(v.tables.alerts, wantAlert(en.alert)))
			continue
		case kindChannel:
			rows["alert_channels"] = append(rows["alert_channels"], valuesOf(v.tables.channels, wantChannel(en.channel)))
			continue
		case kindKey:
			rows["api_keys"] = append(rows["api_keys"], valuesOf(v.tables.keys, wantKey(en.key)))
			continue
		case kindSubscription:
			rows["subscriptions"] = append(rows["subscriptions"], valuesOf(v.tables.subscriptions, wantSubscription(en.subscription)))
			continue
		case kindBackfill:
			rows["backfills"] = append(rows["backfills"], valuesOf(v.tables.backfills, wantBackfill(en.backfill.Backfill)))
			continue
		case kindTemplate:
			rows["templates"] = append(rows["templates"], valuesOf(v.tables.templates, wantTemplate(en.template)))
			continue
		}
		rows[string(en.Kind)] = append(rows[string(en.Kind)], map[string]any{
			"id": e.SubjectID, "name": en.Name, "version": en.Version, "active": en.Active, "workspace": en.Workspace,
			"digest": en.Digest, "created_at": en.CreatedAt, "paused": en.Paused, "quotas": en.Quotas,
		})
	}
	return rows, v.report.Divergences
}

// valuesOf are the compared columns of a row.
func valuesOf[R any](c columns[R], row R) map[string]any {
	values := map[string]any{}
	for i, name := range c.names {
		if !c.skip[i] {
			values[name] = reflect.ValueOf(row).Field(i).Interface()
		}
	}
	return values
}
