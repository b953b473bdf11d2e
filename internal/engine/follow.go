package engine

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"go.arco.dev/servo/internal/base/event"
	"go.arco.dev/servo/internal/base/fault"
	"go.arco.dev/servo/internal/base/id"
	"go.arco.dev/servo/internal/domain/release"
	"go.arco.dev/servo/internal/domain/tenant"
	"go.arco.dev/servo/internal/store"
)

// Follow requests that a workspace follows a channel; "" returns it to its own deployments.
type Follow struct {
	Tenant      id.Tenant
	Workspace   string // "" is the default one
	Channel     string
	AllowBroken bool // follow even if active configs of the workspace would break
	Meta        event.Meta
}

// FollowChannel makes a workspace follow a channel. New runs use the channel's release; runs in flight keep
// their deployment. The workspace's own deployments are kept, and used again when it follows no channel.
func (e *Engine) FollowChannel(ctx context.Context, f Follow) (changed bool, err error) {
	if f.Workspace == "" {
		f.Workspace = tenant.DefaultWorkspace
	}
	if err := tenant.ValidateName("workspace", f.Workspace); err != nil {
		return false, err
	}
	checks, err := e.followChecks(ctx, f)
	if err != nil {
		return false, err
	}
	err = e.store.Engine(ctx, func(ctx context.Context, tx *store.Tx) error {
		changed = false
		if f.Channel != "" {
			if _, err := tx.ShareReleaseChannel(ctx, f.Channel); err != nil {
				return err
			}
		}
		w, err := tx.LockWorkspace(ctx, f.Tenant, f.Workspace)
		if err != nil || w.Channel == f.Channel {
			return err
		}
		if checks != nil && !f.AllowBroken {
			if err := checks.refuse(ctx, tx, w, f.Channel); err != nil {
				return err
			}
		}
		changed = true
		now, err := tx.Clock(ctx)
		if err != nil {
			return err
		}
		w.Channel = f.Channel
		w.Version++
		if err := tx.FollowChannel(ctx, w); err != nil {
			return err
		}
		return tx.AppendEntityEvents(ctx, event.Event{
			Tenant: w.Tenant, Subject: w.ID.UUID, Version: w.Version, At: now, Meta: f.Meta, Body: tenant.ChannelFollowed{Channel: f.Channel},
		})
	})
	return changed, err
}

// followChecks prepares the check of a workspace's configs against the current release of a channel; nil
// if there is none.
func (e *Engine) followChecks(ctx context.Context, f Follow) (*checker, error) {
	channels, err := e.store.ReleaseChannels(ctx)
	if err != nil {
		return nil, err
	}
	for _, c := range channels {
		if c.Name == f.Channel && c.Current != (id.Release{}) {
			return e.newChecker(ctx, c.Current)
		}
	}
	return nil, nil
}

// refuse refuses a workspace with active configs that the release cannot run. Workers may come later.
func (c *checker) refuse(ctx context.Context, tx *store.Tx, w store.Workspace, channel string) error {
	configs, err := tx.WorkspaceConfigs(ctx, w)
	if err != nil {
		return err
	}
	for _, of := range configs {
		if kind, message := c.check(of); kind != "" && kind != PoolWithoutWorkers {
			return fault.New(fault.Conflict, fmt.Sprintf("config %s of workspace %s would break: %s", of.Name, w.Name, message), fault.Field("channel"),
				fault.Remedy("change the config, pause it or delete it; or follow "+channel+" with --allow-broken"), fault.Value("config", of.Name), fault.Value("kind", string(kind)))
		}
	}
	return nil
}

// FollowByLabel makes the default workspaces of all tenants with a label follow a channel, and returns how
// many changed. Tenants whose configs would break are skipped and named, up to a hundred.
func (e *Engine) FollowByLabel(ctx context.Context, channel, label string, meta event.Meta) (followed int, skipped []string, err error) {
	key, value, err := release.ParseLabel("label", label)
	if err != nil {
		return 0, nil, err
	}
	const batch, named = 500, 100
	for after := (id.Tenant{}); ; {
		tenants, err := e.store.TenantsWithLabel(ctx, key, value, after, batch)
		if err != nil || len(tenants) == 0 {
			return followed, skipped, err
		}
		for _, t := range tenants {
			after = t.ID
			changed, err := e.FollowChannel(ctx, Follow{Tenant: t.ID, Channel: channel, Meta: meta})
			switch {
			case fault.Is(err, fault.Conflict):
				if len(skipped) < named {
					skipped = append(skipped, t.Name)
				}
			case err != nil:
				return followed, skipped, err
			case changed:
				followed++
			}
		}
	}
}

// SetTenantLabels replaces the labels of a tenant.
func (e *Engine) SetTenantLabels(ctx context.Context, owner id.Tenant, labels map[string]string, meta event.Meta) error {
	if err := release.ValidateLabels("labels", labels); err != nil {
		return err
	}
	text := ""
	if len(labels) > 0 {
		sorted, err := json.Marshal(labels) // maps are written in the order of their keys
		if err != nil {
			return err
		}
		text = string(sorted)
	}
	return e.store.Engine(ctx, func(ctx context.Context, tx *store.Tx) error {
		before, version, err := tx.LockLabels(ctx, owner)
		if err != nil || before == text {
			return err
		}
		now, err := tx.Clock(ctx)
		if err != nil {
			return err
		}
		version++
		if err := tx.SetTenantLabels(ctx, owner, text, version); err != nil {
			return err
		}
		return tx.AppendEntityEvents(ctx, event.Event{Tenant: owner, Subject: owner.UUID, Version: version, At: now, Meta: meta, Body: tenant.LabelsSet{Labels: text}})
	})
}

// followDefault makes the workspace of a new tenant follow the default channel, if there is one.
func followDefault(ctx context.Context, tx *store.Tx, w store.Workspace, now time.Time, meta event.Meta) error {
	channels, err := tx.AllReleaseChannels(ctx)
	if err != nil {
		return err
	}
	for _, c := range channels {
		if !c.Default {
			continue
		}
		if _, err := tx.ShareReleaseChannel(ctx, c.Name); err != nil {
			return err
		}
		w.Channel = c.Name
		w.Version++
		if err := tx.FollowChannel(ctx, w); err != nil {
			return err
		}
		return tx.AppendEntityEvents(ctx, event.Event{
			Tenant: w.Tenant, Subject: w.ID.UUID, Version: w.Version, At: now, Meta: meta, Body: tenant.ChannelFollowed{Channel: c.Name},
		})
	}
	return nil
}

// followsChannel refuses a deployment to a workspace that follows a channel.
func followsChannel(w store.Workspace) error {
	if w.Channel == "" {
		return nil
	}
	return fault.New(fault.Conflict, fmt.Sprintf("workspace %s follows channel %s: its code comes from the channel's releases", w.Name, w.Channel), fault.Field("workspace"),
		fault.Remedy("deploy to another workspace, or stop following: servo workspaces unfollow "+w.Name), fault.Value("channel", w.Channel))
}

// noCode explains that a workspace has nothing to run.
func noCode(w store.Workspace) error { return store.NoCode(w, fault.Conflict) }
