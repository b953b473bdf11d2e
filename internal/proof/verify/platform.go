package verify

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/google/uuid"

	"go.arco.dev/servo/internal/base/canon"
	"go.arco.dev/servo/internal/base/event"
	"go.arco.dev/servo/internal/base/id"
	"go.arco.dev/servo/internal/domain/platform"
	"go.arco.dev/servo/internal/store"
)

// platform compares pools, signing keys and switches with their events.
func (v *verifier) platform(ctx context.Context, tx *store.Tx) error {
	c := newPlatformCheck(v)
	err := tx.EachPlatformRow(ctx, store.PlatformRows{Event: c.apply, Pool: c.poolRow, Key: c.keyRow, Switch: c.switchRow, Release: c.releaseRow, Channel: c.channelRow})
	if err != nil {
		return err
	}
	c.conclude()
	return tx.EachManifest(ctx, c.manifest)
}

// manifest compares a stored manifest with its digest.
func (c *platformCheck) manifest(digest string, text []byte) error {
	if text == nil {
		c.diverges(Missing, "manifests", "", digest, "the manifest of a deployment", "")
		return nil
	}
	got, err := canon.Digest(json.RawMessage(text))
	if err != nil {
		got = err.Error()
	}
	if got != digest {
		c.diverges(Differs, "manifests", "chunk", digest, "digest "+digest, "digest "+got)
	}
	return nil
}

type platformCheck struct {
	*verifier

	subjects map[string]*subject
	pools    columns[store.PoolRow]
	keys     columns[store.SigningKeyRow]
	switches columns[store.SwitchRow]
	releases columns[store.ReleaseRow]
	channels columns[store.ReleaseChannelRow]
}

// subject is the fold of a pool, a key or a switch.
type subject struct {
	platform.Entity

	broken bool
	met    bool
}

func newPlatformCheck(v *verifier) *platformCheck {
	return &platformCheck{
		verifier: v, subjects: map[string]*subject{}, pools: columnsOf[store.PoolRow]("pools"),
		keys: columnsOf[store.SigningKeyRow]("signing_keys"), switches: columnsOf[store.SwitchRow]("switches"),
		releases: columnsOf[store.ReleaseRow]("releases"), channels: columnsOf[store.ReleaseChannelRow]("release_channels"),
	}
}

func (c *platformCheck) diverges(kind Kind, table, column, name, want, got string) {
	c.report.add(Divergence{Kind: kind, Table: table, Column: column, Name: name, Want: want, Got: got})
}

// apply folds one event. Events come by subject and version.
func (c *platformCheck) apply(row store.PlatformEventRow) error {
	c.report.Events++
	s := c.subjects[row.Subject]
	if s == nil {
		s = &subject{}
		c.subjects[row.Subject] = s
	}
	if s.broken {
		return nil // reported once
	}
	if row.Position > c.limits.position {
		c.diverges(Invariant, "platform_events", "position", row.Subject,
			fmt.Sprintf("at most %d, the last that was allocated", c.limits.position), fmt.Sprint(row.Position))
	}
	if row.Version != s.Version+1 {
		s.broken = true
		c.diverges(Stream, "platform_events", "version", row.Subject, fmt.Sprint(s.Version+1), fmt.Sprint(row.Version))
		return nil
	}
	body, err := c.codec.Decode(event.Type(row.Type), row.Schema, row.Data)
	if err != nil {
		s.broken = true
		c.diverges(Undecidable, "platform_events", "type", row.Subject, "an event that this version can read", err.Error()+": refuses to decide on this stream")
		return nil
	}
	next, err := s.Evolve(platform.Event{
		Subject: row.Subject, Version: row.Version, At: row.RecordedAt, Meta: event.Meta{Actor: row.Actor}, Body: body,
	})
	if err != nil {
		s.broken = true
		c.diverges(History, "platform_events", "type", row.Subject, "an event that is possible at version "+fmt.Sprint(row.Version), err.Error())
		return nil
	}
	s.Entity = next
	return nil
}

// meet returns the fold of a row; nil if it cannot be compared.
func (c *platformCheck) meet(table string, kind platform.Kind, name string) *subject {
	of := platform.SubjectOf(kind, name)
	s := c.subjects[of]
	switch {
	case s == nil, !s.broken && !s.hasRow():
		c.diverges(Surplus, table, "", of, "", "a row that no event explains")
		return nil
	case s.broken:
		return nil
	}
	s.met = true
	return s
}

// hasRow reports whether the subject has a row: a deleted pool or channel has events only.
func (s *subject) hasRow() bool {
	switch s.Kind { //nolint:exhaustive // the others keep their rows
	case platform.KindPool:
		return s.Pool.Live
	case platform.KindChannel:
		return s.Channel.Live
	}
	return true
}

func comparePlatform[R any](c *platformCheck, columns columns[R], kind platform.Kind, name string, want, got *R) {
	for _, d := range columns.diff(want, got) {
		c.diverges(Differs, columns.table, d.column, platform.SubjectOf(kind, name), d.want, d.got)
	}
}

func (c *platformCheck) poolRow(got store.PoolRow) error {
	if s := c.meet("pools", platform.KindPool, got.Name); s != nil {
		p := s.Pool
		want := store.PoolRow{
			Name: got.Name, OwnerID: uuidOrNull(p.Owner), Accepts: store.Accepts(p.PoolSettings), Kind: string(p.Kind), Url: p.URL, MaxConcurrency: p.MaxConcurrency,
			RatePerS: p.RatePerSecond, TimeoutS: p.TimeoutSeconds, Version: s.Version,
			CreatedAt: p.CreatedAt, UpdatedAt: s.UpdatedAt,
		}
		comparePlatform(c, c.pools, platform.KindPool, got.Name, &want, &got)
	}
	return nil
}

func uuidOrNull(tenant id.Tenant) *uuid.UUID {
	if tenant == (id.Tenant{}) {
		return nil
	}
	return &tenant.UUID
}

func (c *platformCheck) keyRow(got store.SigningKeyRow) error {
	if s := c.meet("signing_keys", platform.KindKey, got.ID); s != nil {
		want := store.SigningKeyRow{
			ID: got.ID, Version: s.Version, CreatedAt: s.CreatedAt, SignsFrom: s.Key.SignsFrom,
			ExpiresAt: timeOrNull(s.Key.ExpiresAt), RevokedAt: timeOrNull(s.Key.RevokedAt),
		}
		comparePlatform(c, c.keys, platform.KindKey, got.ID, &want, &got)
	}
	return nil
}

func (c *platformCheck) releaseRow(got store.ReleaseRow) error {
	if s := c.meet("releases", platform.KindRelease, got.ID.String()); s != nil {
		want := store.ReleaseRow{
			ID: got.ID, Name: s.Release.Name, Digest: s.Release.Digest, Note: s.Release.Note, Version: s.Version, CreatedAt: s.CreatedAt,
			DeletedAt: timeOrNull(s.Release.DeletedAt),
		}
		comparePlatform(c, c.releases, platform.KindRelease, got.ID.String(), &want, &got)
	}
	return nil
}

func (c *platformCheck) channelRow(got store.ReleaseChannelRow) error {
	s := c.meet("release_channels", platform.KindChannel, got.Name)
	if s == nil {
		return nil
	}
	rollout, err := store.RolloutText(s.Channel.Rollout)
	if err != nil {
		return err
	}
	want := store.ReleaseChannelRow{
		Name: got.Name, IsDefault: s.Channel.Default, Rollout: rollout, Version: s.Version, CreatedAt: s.CreatedAt, UpdatedAt: s.UpdatedAt,
	}
	if s.Channel.Current.UUID != uuid.Nil {
		want.CurrentID = &s.Channel.Current.UUID
	}
	comparePlatform(c, c.channels, platform.KindChannel, got.Name, &want, &got)
	return nil
}

func (c *platformCheck) switchRow(got store.SwitchRow) error {
	if s := c.meet("switches", platform.KindSwitch, got.Name); s != nil {
		want := store.SwitchRow{
			Name: got.Name, Off: s.Switch.Off, Reason: s.Switch.Reason, ChangedBy: s.Switch.ChangedBy, ChangedAt: s.Switch.ChangedAt,
			Version: s.Version,
		}
		comparePlatform(c, c.switches, platform.KindSwitch, got.Name, &want, &got)
	}
	return nil
}

// conclude reports rows that are missing.
func (c *platformCheck) conclude() {
	tables := map[platform.Kind]string{
		platform.KindPool: "pools", platform.KindKey: "signing_keys", platform.KindSwitch: "switches",
		platform.KindRelease: "releases", platform.KindChannel: "release_channels",
	}
	for name, s := range c.subjects {
		if !s.met && !s.broken && s.hasRow() {
			c.diverges(Missing, tables[s.Kind], "", name, "the row of a subject with "+fmt.Sprint(s.Version)+" events", "")
		}
	}
}
