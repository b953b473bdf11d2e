package store

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"go.arco.dev/servo/internal/base/event"
	"go.arco.dev/servo/internal/base/fault"
	"go.arco.dev/servo/internal/base/id"
	"go.arco.dev/servo/internal/domain/tenant"
	"go.arco.dev/servo/internal/store/internal/db"
)

// Workspace is an environment of a tenant with its active deployment.
type Workspace struct {
	Tenant  id.Tenant
	ID      id.Workspace
	Name    string
	Version int32
	// Active is the deployment of new runs. Workspaces returns that of a followed channel: a release.
	Active  *id.Deployment
	Channel string // that it follows; "" for its own deployments
	// Other is the other release of a channel that is being rolled; read for triggers only.
	Other  *id.Deployment
	Labels map[string]string // of its tenant, read for triggers only
	Quotas RunQuotas         // of its tenant, read for triggers only
	// TenantName is read for triggers only.
	TenantName string
}

// Deployment is an immutable snapshot of assets and pipelines.
type Deployment struct {
	Tenant    id.Tenant
	ID        id.Deployment
	Workspace id.Workspace
	Digest    string
	Manifest  json.RawMessage // canonical; stored once for all deployments with this digest
}

// InsertTenant writes a new tenant.
func (tx *Tx) InsertTenant(ctx context.Context, owner id.Tenant, name string, version int32, quotas tenant.Quotas, now time.Time) error {
	err := tx.q.InsertTenant(ctx, db.InsertTenantParams{
		ID: owner.UUID, Name: name, Version: version, Now: now,
		MaxConcurrentTasks: quotas.MaxConcurrentTasks, MaxQueuedTasks: quotas.MaxQueuedTasks, MaxConcurrentRuns: quotas.MaxConcurrentRuns,
		MaxDailyRuns: quotas.MaxDailyRuns, MaxRunDurationS: seconds(quotas.MaxRunDuration), MaxTasksPerRun: quotas.MaxTasksPerRun,
		MaxBackfillRuns: quotas.MaxBackfillRuns, FairnessWeight: quotas.FairnessWeight, Zone: quotas.Zone,
	})
	return taken(err, "tenant", name)
}

// InsertWorkspace writes a new workspace.
func (tx *Tx) InsertWorkspace(ctx context.Context, w Workspace, now time.Time) error {
	err := tx.q.InsertWorkspace(ctx, db.InsertWorkspaceParams{TenantID: w.Tenant.UUID, ID: w.ID.UUID, Name: w.Name, Version: w.Version, Now: now})
	if pg, ok := errors.AsType[*pgconn.PgError](err); ok && pg.Code == "23503" {
		return fault.New(fault.NotFound, "no tenant "+w.Tenant.String(), fault.Field("tenant"), fault.Remedy("check the id"))
	}
	return taken(err, "workspace", w.Name)
}

// InsertDeployment writes a deployment, or finds the one with the same digest.
func (tx *Tx) InsertDeployment(ctx context.Context, d Deployment, now time.Time) (found id.Deployment, isNew bool, err error) {
	if err := tx.StoreManifest(ctx, d.Digest, d.Manifest); err != nil {
		return d.ID, false, err
	}
	n, err := tx.q.InsertDeployment(ctx, db.InsertDeploymentParams{
		TenantID: d.Tenant.UUID, ID: d.ID.UUID, WorkspaceID: d.Workspace.UUID, Digest: d.Digest, Version: 1, Now: now,
	})
	if err != nil || n == 1 {
		return d.ID, n == 1, err
	}
	existing, err := tx.q.DeploymentByDigest(ctx, db.DeploymentByDigestParams{TenantID: d.Tenant.UUID, WorkspaceID: d.Workspace.UUID, Digest: d.Digest})
	return id.Of[id.Deployment](existing), false, err
}

// LockWorkspace locks a workspace by name.
func (tx *Tx) LockWorkspace(ctx context.Context, tenant id.Tenant, name string) (Workspace, error) {
	row, err := tx.q.LockWorkspace(ctx, db.LockWorkspaceParams{TenantID: tenant.UUID, Name: name})
	if err != nil {
		return Workspace{}, notFound(err, "workspace", name)
	}
	w := row
	out := Workspace{Tenant: tenant, ID: id.Of[id.Workspace](w.ID), Name: w.Name, Version: w.Version, Channel: w.Channel}
	if w.ActiveDeploymentID != nil {
		active := id.Of[id.Deployment](*w.ActiveDeploymentID)
		out.Active = &active
	}
	return out, nil
}

// ActivateDeployment makes a deployment the workspace's active one.
func (tx *Tx) ActivateDeployment(ctx context.Context, w Workspace) error {
	return tx.q.ActivateDeployment(ctx, db.ActivateDeploymentParams{
		TenantID: w.Tenant.UUID, ID: w.ID.UUID, Version: w.Version, DeploymentID: w.Active.UUID,
	})
}

// AppendEntityEvents records events of tenants, workspaces and deployments.
func (tx *Tx) AppendEntityEvents(ctx context.Context, events ...event.Event) error {
	schemas, datas, err := tx.encode(column(events, func(e event.Event) event.Body { return e.Body }))
	if err != nil {
		return err
	}
	return tx.q.InsertEntityEvents(ctx, db.InsertEntityEventsParams{
		TenantIds:   column(events, func(e event.Event) uuid.UUID { return e.Tenant.UUID }),
		SubjectIds:  column(events, func(e event.Event) uuid.UUID { return e.Subject }),
		Versions:    column(events, func(e event.Event) int32 { return e.Version }),
		RecordedAts: column(events, func(e event.Event) time.Time { return e.At }),
		Types:       column(events, func(e event.Event) string { return string(e.Body.EventType()) }),
		Actors:      column(events, func(e event.Event) string { return e.Meta.Actor }),
		Traces:      column(events, func(e event.Event) string { return e.Meta.Trace }),
		Schemas:     schemas, Datas: datas,
	})
}

// WorkspaceName identifies a workspace of a tenant.
type WorkspaceName struct {
	Tenant id.Tenant
	Name   string
}

// Workspaces reads workspaces by name, with the quotas of their tenants, and the releases of the channels
// that they follow.
func (tx *Tx) Workspaces(ctx context.Context, names []WorkspaceName) ([]Workspace, error) {
	found, err := list(func(r db.ActiveDeploymentsRow) Workspace {
		w := Workspace{
			Tenant: id.Of[id.Tenant](r.TenantID), TenantName: r.Tenant, ID: id.Of[id.Workspace](r.WorkspaceID), Name: r.Name,
			Quotas:  runQuotas(r.MaxQueuedTasks, r.MaxConcurrentRuns, r.MaxDailyRuns, r.MaxRunDurationS, r.MaxTasksPerRun, r.MaxBackfillRuns, r.Zone),
			Channel: r.Channel, Labels: labelsOf(r.Labels),
		}
		if r.ActiveDeploymentID != nil {
			active := id.Of[id.Deployment](*r.ActiveDeploymentID)
			w.Active = &active
		}
		return w
	})(tx.q.ActiveDeployments(ctx, db.ActiveDeploymentsParams{
		TenantIds: column(names, func(n WorkspaceName) uuid.UUID { return n.Tenant.UUID }),
		Names:     column(names, func(n WorkspaceName) string { return n.Name }),
	}))
	if err != nil {
		return nil, err
	}
	return found, tx.ResolveChannels(ctx, found)
}

// DeploymentKey identifies a deployment.
type DeploymentKey struct {
	Tenant     id.Tenant
	Deployment id.Deployment
}

// Deployments reads deployments without their manifests.
func (tx *Tx) Deployments(ctx context.Context, keys []DeploymentKey) ([]Deployment, error) {
	return list(func(r db.DeploymentsRow) Deployment {
		return Deployment{
			Tenant: id.Of[id.Tenant](r.TenantID), ID: id.Of[id.Deployment](r.ID), Workspace: id.Of[id.Workspace](r.WorkspaceID),
			Digest: r.Digest,
		}
	})(tx.q.Deployments(ctx, db.DeploymentsParams{
		TenantIds: column(keys, func(k DeploymentKey) uuid.UUID { return k.Tenant.UUID }),
		Ids:       column(keys, func(k DeploymentKey) uuid.UUID { return k.Deployment.UUID }),
	}))
}

// TenantByName finds a tenant.
func (s *Store) TenantByName(ctx context.Context, name string) (id.Tenant, error) {
	return read(ctx, s.engine, func(ctx context.Context, tx *Tx) (id.Tenant, error) {
		u, err := tx.q.TenantByName(ctx, name)
		return id.Of[id.Tenant](u), notFound(err, "tenant", name)
	})
}

// TenantView is a tenant in a list.
type TenantView struct {
	ID        id.Tenant
	Name      string
	CreatedAt time.Time
	Labels    map[string]string
}

// ListTenants reads tenants by name, after a name.
func (s *Store) ListTenants(ctx context.Context, after string, most int) ([]TenantView, error) {
	return read(ctx, s.engine, func(ctx context.Context, tx *Tx) ([]TenantView, error) {
		return list(func(r db.ListTenantsRow) TenantView {
			return TenantView{ID: id.Of[id.Tenant](r.ID), Name: r.Name, CreatedAt: r.CreatedAt, Labels: labelsOf(r.Labels)}
		})(tx.q.ListTenants(ctx, db.ListTenantsParams{After: after, Most: int32(most)})) //nolint:gosec // a page size
	})
}

func notFound(err error, kind, name string) error {
	if errors.Is(err, pgx.ErrNoRows) {
		return missing(kind, name)
	}
	return err
}

func missing(kind, name string) error {
	return fault.New(fault.NotFound, "no "+kind+" "+name, fault.Field(kind), fault.Remedy("check the name or id"))
}

func taken(err error, kind, name string) error {
	if pg, ok := errors.AsType[*pgconn.PgError](err); ok && pg.Code == "23505" {
		return fault.New(fault.AlreadyExists, kind+" "+name+" exists", fault.Field("name"), fault.Remedy("choose another name"))
	}
	return err
}
