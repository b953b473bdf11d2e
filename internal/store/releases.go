package store

import (
	"context"
	"encoding/json"
	"time"

	"github.com/google/uuid"

	"go.arco.dev/servo/internal/base/event"
	"go.arco.dev/servo/internal/base/fault"
	"go.arco.dev/servo/internal/base/id"
	"go.arco.dev/servo/internal/domain/config"
	"go.arco.dev/servo/internal/domain/platform"
	"go.arco.dev/servo/internal/domain/release"
	"go.arco.dev/servo/internal/store/internal/db"
)

// Release is a manifest of the installation.
type Release struct {
	release.Release

	ID        id.Release
	Version   int32
	CreatedAt time.Time
}

func releaseFromRow(r db.ServoRelease) Release {
	return Release{
		Release: release.Release{Name: r.Name, Digest: r.Digest, Note: r.Note, DeletedAt: timeOf(r.DeletedAt)},
		ID:      id.Of[id.Release](r.ID), Version: r.Version, CreatedAt: r.CreatedAt,
	}
}

// Deployment is the id by which runs refer to the release.
func (r Release) Deployment() id.Deployment { return id.Of[id.Deployment](r.ID.UUID) }

// ReleaseChannel is a channel with its row.
type ReleaseChannel struct {
	release.Channel

	Name      string
	Version   int32
	CreatedAt time.Time
	UpdatedAt time.Time
}

func channelOfRow(r db.ServoReleaseChannel) (ReleaseChannel, error) {
	c := ReleaseChannel{Channel: release.Channel{Live: true, Default: r.IsDefault}, Name: r.Name, Version: r.Version, CreatedAt: r.CreatedAt, UpdatedAt: r.UpdatedAt}
	if r.CurrentID != nil {
		c.Current = id.Of[id.Release](*r.CurrentID)
	}
	if r.Rollout != "" {
		c.Rollout = &release.Rollout{}
		if err := json.Unmarshal([]byte(r.Rollout), c.Rollout); err != nil {
			return c, err
		}
	}
	return c, nil
}

// RolloutText is a rollout as the row of its channel stores it.
func RolloutText(r *release.Rollout) (string, error) {
	if r == nil {
		return "", nil
	}
	text, err := json.Marshal(r)
	return string(text), err
}

// labelsOf reads the labels of a tenant; nil for none.
func labelsOf(text string) map[string]string {
	if text == "" {
		return nil
	}
	labels := map[string]string{}
	if json.Unmarshal([]byte(text), &labels) != nil {
		return nil
	}
	return labels
}

// ResolveChannels sets the active code of workspaces that follow a channel: the release of their tenant's
// wave. It is the only place where a workspace is resolved to a release, and costs one statement if a
// workspace follows a channel, none otherwise.
func (tx *Tx) ResolveChannels(ctx context.Context, workspaces []Workspace) error {
	var names []string
	seen := map[string]bool{}
	for _, w := range workspaces {
		if w.Channel != "" && !seen[w.Channel] {
			seen[w.Channel] = true
			names = append(names, w.Channel)
		}
	}
	if len(names) == 0 {
		return nil
	}
	channels, err := tx.ReleaseChannels(ctx, names)
	if err != nil {
		return err
	}
	for i := range workspaces {
		w := &workspaces[i]
		if w.Channel == "" {
			continue
		}
		c := channels[w.Channel]
		w.Active, w.Other = nil, nil
		used := c.For(w.Channel, w.Tenant, w.Labels)
		if used == (id.Release{}) {
			continue
		}
		active := id.Of[id.Deployment](used.UUID)
		w.Active = &active
		for _, r := range c.Releases() {
			if r != used {
				other := id.Of[id.Deployment](r.UUID)
				w.Other = &other
			}
		}
	}
	return nil
}

// ReleaseChannels reads channels by name.
func (tx *Tx) ReleaseChannels(ctx context.Context, names []string) (map[string]ReleaseChannel, error) {
	rows, err := tx.q.ReleaseChannels(ctx, names)
	if err != nil {
		return nil, err
	}
	found := make(map[string]ReleaseChannel, len(rows))
	for _, r := range rows {
		if found[r.Name], err = channelOfRow(r); err != nil {
			return nil, err
		}
	}
	return found, nil
}

// AllReleaseChannels reads all channels by name: there are few.
func (tx *Tx) AllReleaseChannels(ctx context.Context) ([]ReleaseChannel, error) {
	rows, err := tx.q.AllReleaseChannels(ctx)
	if err != nil {
		return nil, err
	}
	return convert(rows, channelOfRow)
}

// ReleaseChannels reads all channels by name.
func (s *Store) ReleaseChannels(ctx context.Context) ([]ReleaseChannel, error) {
	return read(ctx, s.engine, func(ctx context.Context, tx *Tx) ([]ReleaseChannel, error) { return tx.AllReleaseChannels(ctx) })
}

// LockReleaseChannel locks a channel.
func (tx *Tx) LockReleaseChannel(ctx context.Context, name string) (ReleaseChannel, error) {
	row, err := tx.q.LockReleaseChannel(ctx, name)
	if err != nil {
		return ReleaseChannel{}, notFound(err, "channel", name)
	}
	return channelOfRow(row)
}

// ShareReleaseChannel reads a channel and keeps it from being deleted or changed in its key.
func (tx *Tx) ShareReleaseChannel(ctx context.Context, name string) (ReleaseChannel, error) {
	row, err := tx.q.ShareReleaseChannel(ctx, name)
	if err != nil {
		return ReleaseChannel{}, notFound(err, "channel", name)
	}
	return channelOfRow(row)
}

// InsertReleaseChannel writes a new channel and returns the version of its first event: one more than the
// last version of an earlier channel of that name.
func (tx *Tx) InsertReleaseChannel(ctx context.Context, c ReleaseChannel) (version int32, err error) {
	if err := tx.q.InsertReleaseChannel(ctx, db.InsertReleaseChannelParams{Name: c.Name, Now: c.CreatedAt}); err != nil {
		return 0, taken(err, "channel", c.Name)
	}
	last, err := tx.q.PlatformVersion(ctx, platform.SubjectOf(platform.KindChannel, c.Name))
	return last + 1, err
}

// UpdateReleaseChannel writes a channel that this transaction has locked or inserted.
func (tx *Tx) UpdateReleaseChannel(ctx context.Context, c ReleaseChannel) error {
	rollout, err := RolloutText(c.Rollout)
	if err != nil {
		return err
	}
	var current *uuid.UUID
	if c.Current != (id.Release{}) {
		current = &c.Current.UUID
	}
	n, err := tx.q.UpdateReleaseChannel(ctx, db.UpdateReleaseChannelParams{
		Name: c.Name, CurrentID: current, IsDefault: c.Default, Rollout: rollout, Version: c.Version, Now: c.UpdatedAt,
	})
	return exactlyOne("UpdateReleaseChannel", n, taken(err, "default channel", c.Name))
}

// DeleteReleaseChannel deletes a channel that this transaction has locked.
func (tx *Tx) DeleteReleaseChannel(ctx context.Context, name string) error {
	n, err := tx.q.DeleteReleaseChannel(ctx, name)
	return exactlyOne("DeleteReleaseChannel", n, err)
}

// CountFollowers counts the workspaces that follow a channel.
func (tx *Tx) CountFollowers(ctx context.Context, channel string) (int64, error) {
	return tx.q.CountFollowers(ctx, channel)
}

// FollowingTenant is a tenant with a workspace that follows a channel.
type FollowingTenant struct {
	ID     id.Tenant
	Name   string
	Labels map[string]string
}

// FollowingTenants reads the tenants that follow a channel.
func (s *Store) FollowingTenants(ctx context.Context, channel string) ([]FollowingTenant, error) {
	return read(ctx, s.engine, func(ctx context.Context, tx *Tx) ([]FollowingTenant, error) {
		return list(func(r db.FollowingTenantsRow) FollowingTenant {
			return FollowingTenant{ID: id.Of[id.Tenant](r.ID), Name: r.Name, Labels: labelsOf(r.Labels)}
		})(tx.q.FollowingTenants(ctx, channel))
	})
}

// FollowingConfig is an active config of a workspace that follows a channel.
type FollowingConfig struct {
	Tenant     id.Tenant
	TenantName string
	Workspace  string
	ID         id.Config
	Name       string
	Spec       config.Spec
}

// FollowingConfigs passes the active configs of all workspaces that follow a channel, by tenant.
func (s *Store) FollowingConfigs(ctx context.Context, channel string, each func(FollowingConfig) error) error {
	return s.Snapshot(ctx, func(ctx context.Context, tx *Tx) error {
		return stream(ctx, tx, func(r db.FollowingConfigsRow) error {
			c := FollowingConfig{Tenant: id.Of[id.Tenant](r.TenantID), TenantName: r.Tenant, Workspace: r.Workspace, ID: id.Of[id.Config](r.ID), Name: r.Name}
			if err := json.Unmarshal(r.Spec, &c.Spec); err != nil {
				return err
			}
			return each(c)
		}, db.FollowingConfigs, channel)()
	})
}

// WorkspaceConfigs reads the active configs of a workspace.
func (tx *Tx) WorkspaceConfigs(ctx context.Context, w Workspace) ([]FollowingConfig, error) {
	rows, err := tx.q.WorkspaceConfigs(ctx, db.WorkspaceConfigsParams{TenantID: w.Tenant.UUID, WorkspaceID: w.ID.UUID})
	if err != nil {
		return nil, err
	}
	return convert(rows, func(r db.WorkspaceConfigsRow) (FollowingConfig, error) {
		c := FollowingConfig{Tenant: w.Tenant, Workspace: w.Name, ID: id.Of[id.Config](r.ID), Name: r.Name}
		return c, json.Unmarshal(r.Spec, &c.Spec)
	})
}

// ChannelEvents reads the events of a channel, the newest first.
func (s *Store) ChannelEvents(ctx context.Context, channel string, most int) ([]platform.Event, error) {
	subject := platform.SubjectOf(platform.KindChannel, channel)
	return read(ctx, s.engine, func(ctx context.Context, tx *Tx) ([]platform.Event, error) {
		rows, err := tx.q.PlatformEventsOf(ctx, db.PlatformEventsOfParams{Subject: subject, Most: int32(most)}) //nolint:gosec // a short list
		if err != nil {
			return nil, err
		}
		return convert(rows, func(r db.PlatformEventsOfRow) (platform.Event, error) {
			body, err := tx.codec.Decode(event.Type(r.Type), r.Schema, r.Data)
			return platform.Event{Subject: subject, Version: r.Version, At: r.RecordedAt, Meta: event.Meta{Actor: r.Actor}, Body: body}, err
		})
	})
}

// TenantsWithLabel reads tenants with a label, by id, after a tenant.
func (s *Store) TenantsWithLabel(ctx context.Context, key, value string, after id.Tenant, most int) ([]TenantView, error) {
	return read(ctx, s.engine, func(ctx context.Context, tx *Tx) ([]TenantView, error) {
		return list(func(r db.TenantsWithLabelRow) TenantView {
			return TenantView{ID: id.Of[id.Tenant](r.ID), Name: r.Name}
		})(tx.q.TenantsWithLabel(ctx, db.TenantsWithLabelParams{Key: key, Value: value, After: after.UUID, Most: int32(most)})) //nolint:gosec // a batch size
	})
}

// FollowChannel writes the channel of a workspace that this transaction has locked.
func (tx *Tx) FollowChannel(ctx context.Context, w Workspace) error {
	n, err := tx.q.FollowChannel(ctx, db.FollowChannelParams{TenantID: w.Tenant.UUID, ID: w.ID.UUID, Channel: w.Channel, Version: w.Version})
	return exactlyOne("FollowChannel", n, err)
}

// LockLabels locks a tenant and reads its labels, as they are stored.
func (tx *Tx) LockLabels(ctx context.Context, tenant id.Tenant) (labels string, version int32, err error) {
	row, err := tx.q.LockTenant(ctx, tenant.UUID)
	return row.Labels, row.Version, notFound(err, "tenant", tenant.String())
}

// SetTenantLabels writes the labels of a tenant that this transaction has locked.
func (tx *Tx) SetTenantLabels(ctx context.Context, tenant id.Tenant, labels string, version int32) error {
	n, err := tx.q.SetTenantLabels(ctx, db.SetTenantLabelsParams{TenantID: tenant.UUID, Labels: labels, Version: version})
	return exactlyOne("SetTenantLabels", n, err)
}

// InsertRelease writes a release and its manifest.
func (tx *Tx) InsertRelease(ctx context.Context, r Release, manifest json.RawMessage) error {
	if err := tx.StoreManifest(ctx, r.Digest, manifest); err != nil {
		return err
	}
	err := tx.q.InsertRelease(ctx, db.InsertReleaseParams{ID: r.ID.UUID, Name: r.Name, Digest: r.Digest, Note: r.Note, Now: r.CreatedAt})
	return taken(err, "release", r.Name)
}

// ReleaseNamed reads a release by name or id.
func (tx *Tx) ReleaseNamed(ctx context.Context, name string) (Release, error) {
	row, err := tx.q.ReleaseByName(ctx, name)
	return releaseFromRow(row), notFound(err, "release", name)
}

// LockRelease locks a release.
func (tx *Tx) LockRelease(ctx context.Context, of id.Release) (Release, error) {
	row, err := tx.q.LockRelease(ctx, of.UUID)
	return releaseFromRow(row), notFound(err, "release", of.String())
}

// ShareRelease keeps a release from being deleted until this transaction ends.
func (tx *Tx) ShareRelease(ctx context.Context, of id.Release) (Release, error) {
	row, err := tx.q.ShareRelease(ctx, of.UUID)
	return releaseFromRow(row), notFound(err, "release", of.String())
}

// DeleteRelease marks a release that this transaction has locked as deleted.
func (tx *Tx) DeleteRelease(ctx context.Context, r Release, now time.Time) error {
	n, err := tx.q.DeleteRelease(ctx, db.DeleteReleaseParams{ID: r.ID.UUID, Version: r.Version, Now: now})
	return exactlyOne("DeleteRelease", n, err)
}

// ReleaseNamed reads a release by name or id, for callers that may read all releases.
func (s *Store) ReleaseNamed(ctx context.Context, name string) (Release, error) {
	return read(ctx, s.engine, func(ctx context.Context, tx *Tx) (Release, error) { return tx.ReleaseNamed(ctx, name) })
}

// ReleaseManifest reads the manifest of a release.
func (s *Store) ReleaseManifest(ctx context.Context, r Release) (json.RawMessage, error) {
	return read(ctx, s.engine, func(ctx context.Context, tx *Tx) (json.RawMessage, error) {
		found, err := tx.Manifests(ctx, []string{r.Digest})
		return found[r.Digest], err
	})
}

// ListReleases reads releases, the newest first, that are older than before.
func (s *Store) ListReleases(ctx context.Context, before *id.Release, most int) ([]Release, error) {
	upper := uuid.Max
	if before != nil {
		upper = before.UUID
	}
	return read(ctx, s.engine, func(ctx context.Context, tx *Tx) ([]Release, error) {
		return list(releaseFromRow)(tx.q.ListReleases(ctx, db.ListReleasesParams{Upper: upper, Most: int32(most)})) //nolint:gosec // a page size
	})
}

// ReleasesByID reads releases, deleted ones too.
func (s *Store) ReleasesByID(ctx context.Context, ids []id.Release) (map[id.Release]Release, error) {
	return read(ctx, s.engine, func(ctx context.Context, tx *Tx) (map[id.Release]Release, error) {
		return index(func(r db.ServoRelease) (id.Release, Release) {
			return id.Of[id.Release](r.ID), releaseFromRow(r)
		})(tx.q.ReleasesByID(ctx, column(ids, func(r id.Release) uuid.UUID { return r.UUID })))
	})
}

// ActiveCode returns what new runs of a workspace use: its active deployment, or the release of the
// channel that it follows. The tenant reads its own rows; the channel is read for them.
func (s *Store) ActiveCode(ctx context.Context, tenant id.Tenant, workspace string) (id.Deployment, error) {
	return read(ctx, s.tenant(tenant), func(ctx context.Context, tx *Tx) (id.Deployment, error) {
		row, err := tx.q.GetWorkspace(ctx, db.GetWorkspaceParams{TenantID: tenant.UUID, Name: workspace})
		if err != nil {
			return id.Deployment{}, notFound(err, "workspace", workspace)
		}
		w := []Workspace{{Tenant: tenant, ID: id.Of[id.Workspace](row.ID), Name: workspace, Channel: row.Channel}}
		if row.ActiveDeploymentID != nil {
			active := id.Of[id.Deployment](*row.ActiveDeploymentID)
			w[0].Active = &active
		}
		if err := tx.followAsTenant(ctx, tenant, w); err != nil {
			return id.Deployment{}, err
		}
		if w[0].Active == nil {
			return id.Deployment{}, NoCode(w[0], fault.NotFound)
		}
		return *w[0].Active, nil
	})
}

// followAsTenant resolves the channels of workspaces that were read with the role of their tenant.
func (tx *Tx) followAsTenant(ctx context.Context, tenant id.Tenant, workspaces []Workspace) error {
	follows := false
	for _, w := range workspaces {
		follows = follows || w.Channel != ""
	}
	if !follows {
		return nil
	}
	row, err := tx.q.GetTenant(ctx, tenant.UUID)
	if err != nil {
		return notFound(err, "tenant", tenant.String())
	}
	for i := range workspaces {
		workspaces[i].Labels = labelsOf(row.Labels)
	}
	if err := tx.q.EnterEngine(ctx); err != nil {
		return err
	}
	return tx.ResolveChannels(ctx, workspaces)
}

// NoCode explains that a workspace has nothing to run.
func NoCode(w Workspace, code fault.Code) error {
	if w.Channel != "" {
		return fault.New(code, "workspace "+w.Name+" follows channel "+w.Channel+", which has no release", fault.Field("workspace"),
			fault.Remedy("ask the platform team to roll a release: servo channels roll "+w.Channel))
	}
	return fault.New(code, "workspace "+w.Name+" has no active deployment", fault.Field("workspace"), fault.Remedy("deploy a manifest first: servo deploy"))
}
