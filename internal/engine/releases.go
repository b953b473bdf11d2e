package engine

import (
	"context"
	"fmt"
	"strings"
	"time"

	"go.arco.dev/servo/internal/base/event"
	"go.arco.dev/servo/internal/base/fault"
	"go.arco.dev/servo/internal/base/id"
	"go.arco.dev/servo/internal/domain/asset"
	"go.arco.dev/servo/internal/domain/config"
	"go.arco.dev/servo/internal/domain/platform"
	"go.arco.dev/servo/internal/domain/release"
	"go.arco.dev/servo/internal/store"
)

// CreateRelease requests a release.
type CreateRelease struct {
	Name     string // "" derives it from the digest
	Note     string
	Manifest *asset.Manifest
	Meta     event.Meta
}

// CreateRelease stores a manifest for the installation. The same name and manifest again are the same
// release.
func (e *Engine) CreateRelease(ctx context.Context, r CreateRelease) (created store.Release, isNew bool, err error) {
	if err := config.ValidateNote("note", r.Note); err != nil {
		return created, false, err
	}
	canonical, err := r.Manifest.Canonical()
	if err != nil {
		return created, false, err
	}
	if _, err := asset.Parse(canonical, "manifest.json"); err != nil {
		return created, false, err
	}
	digest, err := r.Manifest.Digest()
	if err != nil {
		return created, false, err
	}
	if r.Name == "" {
		r.Name = strings.TrimPrefix(digest, "sha256:")[:12]
	}
	if err := release.ValidateName("name", r.Name); err != nil {
		return created, false, err
	}
	err = e.store.Engine(ctx, func(ctx context.Context, tx *store.Tx) error {
		found, err := tx.ReleaseNamed(ctx, r.Name)
		switch {
		case err == nil && found.Digest == digest:
			created, isNew = found, false
			return nil
		case err == nil:
			return fault.New(fault.AlreadyExists, "release "+r.Name+" exists with another manifest", fault.Field("name"), fault.Remedy("choose another name"))
		case !fault.Is(err, fault.NotFound):
			return err
		}
		now, err := tx.Clock(ctx)
		if err != nil {
			return err
		}
		created = store.Release{
			Release: release.Release{Name: r.Name, Digest: digest, Note: r.Note}, ID: id.New[id.Release](id.NewMinter(now)), Version: 1, CreatedAt: now,
		}
		isNew = true
		if err := tx.InsertRelease(ctx, created, canonical); err != nil {
			return err
		}
		return tx.AppendPlatformEvents(ctx, releaseEvent(created, release.Created{Name: r.Name, Digest: digest, Note: r.Note}, now, r.Meta))
	})
	return created, isNew, err
}

func releaseEvent(r store.Release, body event.Body, now time.Time, meta event.Meta) platform.Event {
	return platform.Event{Subject: platform.SubjectOf(platform.KindRelease, r.ID.String()), Version: r.Version, At: now, Meta: meta, Body: body}
}

// DeleteRelease deletes a release that no channel uses. Its manifest is kept for the runs that used it.
func (e *Engine) DeleteRelease(ctx context.Context, name string, meta event.Meta) error {
	return e.store.Engine(ctx, func(ctx context.Context, tx *store.Tx) error {
		found, err := tx.ReleaseNamed(ctx, name)
		if err != nil {
			return err
		}
		r, err := tx.LockRelease(ctx, found.ID)
		if err != nil {
			return err
		}
		channels, err := tx.AllReleaseChannels(ctx)
		if err != nil {
			return err
		}
		for _, c := range channels {
			for _, used := range c.Releases() {
				if used == r.ID {
					return fault.New(fault.Conflict, fmt.Sprintf("channel %s uses release %s", c.Name, r.Name), fault.Field("release"),
						fault.Remedy("roll the channel to another release first: servo channels roll "+c.Name), fault.Value("channel", c.Name))
				}
			}
		}
		now, err := tx.Clock(ctx)
		if err != nil {
			return err
		}
		r.Version++
		if err := tx.DeleteRelease(ctx, r, now); err != nil {
			return err
		}
		return tx.AppendPlatformEvents(ctx, releaseEvent(r, release.Deleted{}, now, meta))
	})
}

// CreateReleaseChannel creates a channel that points at a release; "" is none yet.
func (e *Engine) CreateReleaseChannel(ctx context.Context, name, releaseName string, isDefault bool, meta event.Meta) (created store.ReleaseChannel, err error) {
	if err := release.ValidateChannelName("name", name); err != nil {
		return created, err
	}
	err = e.store.Engine(ctx, func(ctx context.Context, tx *store.Tx) error {
		var at store.Release
		if releaseName != "" {
			if at, err = shareRelease(ctx, tx, releaseName); err != nil {
				return err
			}
		}
		now, err := tx.Clock(ctx)
		if err != nil {
			return err
		}
		created = store.ReleaseChannel{Name: name, CreatedAt: now, UpdatedAt: now}
		version, err := tx.InsertReleaseChannel(ctx, created)
		if err != nil {
			return err
		}
		if isDefault {
			if err := e.clearDefault(ctx, tx, name, now, meta); err != nil {
				return err
			}
		}
		created.Version = version - 1
		return recordChannel(ctx, tx, &created, now, meta, release.ChannelCreated{Release: at.ID, Default: isDefault})
	})
	return created, err
}

// clearDefault makes another channel that new tenants follow an ordinary one: there is at most one.
func (e *Engine) clearDefault(ctx context.Context, tx *store.Tx, except string, now time.Time, meta event.Meta) error {
	channels, err := tx.AllReleaseChannels(ctx)
	if err != nil {
		return err
	}
	for _, c := range channels {
		if c.Default && c.Name != except {
			locked, err := tx.LockReleaseChannel(ctx, c.Name)
			if err != nil {
				return err
			}
			if err := recordChannel(ctx, tx, &locked, now, meta, release.ChannelUpdated{Default: false}); err != nil {
				return err
			}
		}
	}
	return nil
}

// SetDefaultChannel sets whether new tenants follow a channel. At most one channel is the default.
func (e *Engine) SetDefaultChannel(ctx context.Context, name string, isDefault bool, meta event.Meta) (store.ReleaseChannel, error) {
	return e.changeChannel(ctx, name, meta, func(ctx context.Context, tx *store.Tx, c store.ReleaseChannel, now time.Time) ([]event.Body, error) {
		if c.Default == isDefault {
			return nil, nil
		}
		if isDefault {
			if err := e.clearDefault(ctx, tx, name, now, meta); err != nil {
				return nil, err
			}
		}
		return []event.Body{release.ChannelUpdated{Default: isDefault}}, nil
	})
}

// DeleteReleaseChannel deletes a channel that no workspace follows.
func (e *Engine) DeleteReleaseChannel(ctx context.Context, name string, meta event.Meta) error {
	return e.store.Engine(ctx, func(ctx context.Context, tx *store.Tx) error {
		c, err := tx.LockReleaseChannel(ctx, name)
		if err != nil {
			return err
		}
		followers, err := tx.CountFollowers(ctx, name)
		if err != nil {
			return err
		}
		if followers > 0 {
			return fault.New(fault.Conflict, fmt.Sprintf("%d workspaces follow channel %s", followers, name), fault.Field("channel"),
				fault.Remedy("make them follow another channel first"), fault.Value("followers", followers))
		}
		now, err := tx.Clock(ctx)
		if err != nil {
			return err
		}
		if err := tx.DeleteReleaseChannel(ctx, name); err != nil {
			return err
		}
		c.Version++
		return tx.AppendPlatformEvents(ctx, channelEvent(c, release.ChannelDeleted{}, now, meta))
	})
}

// shareRelease reads a release by name and keeps it from being deleted.
func shareRelease(ctx context.Context, tx *store.Tx, name string) (store.Release, error) {
	found, err := tx.ReleaseNamed(ctx, name)
	if err != nil {
		return found, err
	}
	return tx.ShareRelease(ctx, found.ID)
}

func channelEvent(c store.ReleaseChannel, body event.Body, now time.Time, meta event.Meta) platform.Event {
	return platform.Event{Subject: platform.SubjectOf(platform.KindChannel, c.Name), Version: c.Version, At: now, Meta: meta, Body: body}
}

// recordChannel applies events to a channel that this transaction has locked or inserted, and writes both.
func recordChannel(ctx context.Context, tx *store.Tx, c *store.ReleaseChannel, now time.Time, meta event.Meta, bodies ...event.Body) error {
	events := make([]platform.Event, len(bodies))
	for i, body := range bodies {
		next, err := c.Evolve(body, now)
		if err != nil {
			return err
		}
		c.Channel = next
		c.Version++
		events[i] = channelEvent(*c, body, now, meta)
	}
	c.UpdatedAt = now
	if err := tx.UpdateReleaseChannel(ctx, *c); err != nil {
		return err
	}
	return tx.AppendPlatformEvents(ctx, events...)
}

// changeChannel locks a channel and records the events that fn returns.
func (e *Engine) changeChannel(ctx context.Context, name string, meta event.Meta,
	fn func(ctx context.Context, tx *store.Tx, c store.ReleaseChannel, now time.Time) ([]event.Body, error),
) (changed store.ReleaseChannel, err error) {
	err = e.store.Engine(ctx, func(ctx context.Context, tx *store.Tx) error {
		changed, err = changeChannelIn(ctx, tx, name, meta, fn)
		return err
	})
	return changed, err
}

// changeChannelIn is changeChannel in an open transaction.
func changeChannelIn(ctx context.Context, tx *store.Tx, name string, meta event.Meta,
	fn func(ctx context.Context, tx *store.Tx, c store.ReleaseChannel, now time.Time) ([]event.Body, error),
) (store.ReleaseChannel, error) {
	c, err := tx.LockReleaseChannel(ctx, name)
	if err != nil {
		return c, err
	}
	now, err := tx.Clock(ctx)
	if err != nil {
		return c, err
	}
	bodies, err := fn(ctx, tx, c, now)
	if err != nil || len(bodies) == 0 {
		return c, err
	}
	err = recordChannel(ctx, tx, &c, now, meta, bodies...)
	return c, err
}
