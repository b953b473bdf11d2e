package engine

import (
	"context"
	"time"

	"go.arco.dev/servo/internal/base/event"
	"go.arco.dev/servo/internal/base/fault"
	"go.arco.dev/servo/internal/base/id"
	"go.arco.dev/servo/internal/domain/asset"
	"go.arco.dev/servo/internal/domain/run"
	"go.arco.dev/servo/internal/domain/tenant"
	"go.arco.dev/servo/internal/store"
)

// CreateTenant creates a tenant with its default workspace and the default quotas.
func (e *Engine) CreateTenant(ctx context.Context, name string, meta event.Meta) (id.Tenant, error) {
	if err := tenant.ValidateName("name", name); err != nil {
		return id.Tenant{}, err
	}
	quotas := e.config.Quotas
	var created id.Tenant
	err := e.store.Engine(ctx, func(ctx context.Context, tx *store.Tx) error {
		now, err := tx.Clock(ctx)
		if err != nil {
			return err
		}
		mint := id.NewMinter(now)
		created = id.New[id.Tenant](mint)
		if err := tx.InsertTenant(ctx, created, name, 1, quotas, now); err != nil {
			return err
		}
		w := store.Workspace{Tenant: created, ID: id.New[id.Workspace](mint), Name: tenant.DefaultWorkspace, Version: 1}
		if err := tx.InsertWorkspace(ctx, w, now); err != nil {
			return err
		}
		err = tx.AppendEntityEvents(ctx,
			event.Event{Tenant: created, Subject: created.UUID, Version: 1, At: now, Meta: meta, Body: tenant.Created{Name: name, Quotas: &quotas}},
			event.Event{Tenant: created, Subject: w.ID.UUID, Version: 1, At: now, Meta: meta, Body: tenant.WorkspaceCreated{Name: w.Name}})
		if err != nil {
			return err
		}
		return followDefault(ctx, tx, w, now, meta)
	})
	if err != nil {
		return id.Tenant{}, err
	}
	return created, nil
}

// CreateWorkspace creates another workspace of a tenant.
func (e *Engine) CreateWorkspace(ctx context.Context, owner id.Tenant, name string, meta event.Meta) (id.Workspace, error) {
	if err := tenant.ValidateName("name", name); err != nil {
		return id.Workspace{}, err
	}
	var created id.Workspace
	err := e.store.Engine(ctx, func(ctx context.Context, tx *store.Tx) error {
		now, err := tx.Clock(ctx)
		if err != nil {
			return err
		}
		created = id.New[id.Workspace](id.NewMinter(now))
		if err := tx.InsertWorkspace(ctx, store.Workspace{Tenant: owner, ID: created, Name: name, Version: 1}, now); err != nil {
			return err
		}
		return tx.AppendEntityEvents(ctx,
			event.Event{Tenant: owner, Subject: created.UUID, Version: 1, At: now, Meta: meta, Body: tenant.WorkspaceCreated{Name: name}})
	})
	if err != nil {
		return id.Workspace{}, err
	}
	return created, nil
}

// Deploy registers a manifest as a deployment and makes it the workspace's active one.
// The same manifest again is the same deployment.
func (e *Engine) Deploy(ctx context.Context, owner id.Tenant, workspace string, manifest *asset.Manifest, meta event.Meta) (id.Deployment, error) {
	if manifest == nil {
		return id.Deployment{}, fault.New(fault.InvalidArgument, "is missing", fault.Field("manifest"), fault.Remedy("send a manifest"))
	}
	if workspace == "" {
		workspace = tenant.DefaultWorkspace
	}
	if err := tenant.ValidateName("workspace", workspace); err != nil {
		return id.Deployment{}, err
	}
	canonical, err := manifest.Canonical()
	if err != nil {
		return id.Deployment{}, err
	}
	// A manifest that was not parsed may break any rule, and could not be run later.
	parsed, err := asset.Parse(canonical, "manifest.json")
	if err != nil {
		return id.Deployment{}, err
	}
	digest, err := manifest.Digest()
	if err != nil {
		return id.Deployment{}, err
	}
	var deployed id.Deployment
	err = e.store.Engine(ctx, func(ctx context.Context, tx *store.Tx) error {
		w, err := tx.LockWorkspace(ctx, owner, workspace)
		if err != nil {
			return err
		}
		now, err := tx.Clock(ctx)
		if err != nil {
			return err
		}
		if err := followsChannel(w); err != nil {
			return err
		}
		if err := refuseManifest(ctx, tx, store.WorkspaceName{Tenant: owner, Name: workspace}, parsed); err != nil {
			return err
		}
		d := store.Deployment{Tenant: owner, ID: id.New[id.Deployment](id.NewMinter(now)), Workspace: w.ID, Digest: digest, Manifest: canonical}
		var isNew bool
		if deployed, isNew, err = tx.InsertDeployment(ctx, d, now); err != nil {
			return err
		}
		if isNew {
			err = tx.AppendEntityEvents(ctx, event.Event{
				Tenant: owner, Subject: deployed.UUID, Version: 1, At: now, Meta: meta,
				Body: tenant.DeploymentRegistered{Workspace: w.ID, Digest: digest},
			})
			if err != nil {
				return err
			}
		}
		return activate(ctx, tx, w, deployed, now, meta)
	})
	if err != nil {
		return id.Deployment{}, err
	}
	return deployed, nil
}

// ActivateDeployment makes an earlier deployment of a workspace the active one. Runs in flight keep theirs.
func (e *Engine) ActivateDeployment(ctx context.Context, owner id.Tenant, workspace string, of id.Deployment, meta event.Meta) error {
	manifest, _, err := e.Code(ctx, store.DeploymentKey{Tenant: owner, Deployment: of})
	if err != nil {
		return err
	}
	return e.store.Engine(ctx, func(ctx context.Context, tx *store.Tx) error {
		w, err := tx.LockWorkspace(ctx, owner, workspace)
		if err != nil {
			return err
		}
		if err := followsChannel(w); err != nil {
			return err
		}
		found, err := tx.Deployments(ctx, []store.DeploymentKey{{Tenant: owner, Deployment: of}})
		if err != nil {
			return err
		}
		if len(found) != 1 || found[0].Workspace != w.ID {
			return fault.New(fault.NotFound, "no deployment "+of.String()+" in workspace "+workspace, fault.Field("deployment"), fault.Remedy("list them: servo deployments list"))
		}
		now, err := tx.Clock(ctx)
		if err != nil {
			return err
		}
		if err := refuseManifest(ctx, tx, store.WorkspaceName{Tenant: owner, Name: workspace}, manifest); err != nil {
			return err
		}
		return activate(ctx, tx, w, of, now, meta)
	})
}

func activate(ctx context.Context, tx *store.Tx, w store.Workspace, deployment id.Deployment, now time.Time, meta event.Meta) error {
	if w.Active != nil && *w.Active == deployment {
		return nil
	}
	w.Active, w.Version = &deployment, w.Version+1
	if err := tx.ActivateDeployment(ctx, w); err != nil {
		return err
	}
	return tx.AppendEntityEvents(ctx, event.Event{
		Tenant: w.Tenant, Subject: w.ID.UUID, Version: w.Version, At: now, Meta: meta, Body: tenant.DeploymentActivated{Deployment: deployment},
	})
}

// policyFor resolves the retry policy of a failure: the run's own (from its config) above
// the pipeline's above the asset's.
func policyFor(d *deployment, r run.Run, key, code string) run.RetryPolicy {
	var layers []run.RetryPolicy
	if r.Retry != nil {
		layers = append(layers, *r.Retry)
	}
	if p, ok := d.Pipeline(r.Pipeline); ok && p.Retry != nil {
		layers = append(layers, policyOf(*p.Retry))
	}
	if a, ok := d.Asset(key); ok && a.Retry != nil {
		layers = append(layers, policyOf(*a.Retry))
	}
	return run.Resolve(code, layers...)
}

func policyOf(r asset.Retry) run.RetryPolicy {
	return run.RetryPolicy{
		MaxAttempts: r.MaxAttempts, MaxDeaths: r.MaxDeaths, InitialDelay: r.InitialDelay.Std(), MaxDelay: r.MaxDelay.Std(), Multiplier: r.Multiplier,
		Jitter: r.Jitter, RetryOn: r.RetryOn, NoRetryOn: r.NoRetryOn, TimeoutGrowth: r.TimeoutGrowth,
	}
}
