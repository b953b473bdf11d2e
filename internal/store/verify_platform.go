package store

import (
	"context"

	"go.arco.dev/servo/internal/store/internal/db"
)

type (
	// PlatformEventRow is a recorded event of the installation.
	PlatformEventRow = db.VerifyPlatformEventsRow
	// PoolRow is a row of pools.
	PoolRow = db.ServoPool
	// SigningKeyRow is a row of signing_keys.
	SigningKeyRow = db.ServoSigningKey
	// SwitchRow is a row of switches.
	SwitchRow = db.ServoSwitch
	// ReleaseRow is a row of releases.
	ReleaseRow = db.ServoRelease
	// ReleaseChannelRow is a row of release_channels.
	ReleaseChannelRow = db.ServoReleaseChannel
)

// PlatformRows receives the events of the installation and its rows.
type PlatformRows struct {
	Event  func(PlatformEventRow) error
	Pool   func(PoolRow) error
	Key    func(SigningKeyRow) error
	Switch func(SwitchRow) error

	Release func(ReleaseRow) error
	Channel func(ReleaseChannelRow) error
}

// EachManifest reads the manifests that are stored or referred to, one at a time; one that is not stored
// is nil.
func (tx *Tx) EachManifest(ctx context.Context, each func(digest string, manifest []byte) error) error {
	digests, err := tx.q.VerifyManifestDigests(ctx)
	if err != nil {
		return err
	}
	for _, digest := range digests {
		found, err := tx.Manifests(ctx, []string{digest})
		if err != nil {
			return err
		}
		if err := each(digest, found[digest]); err != nil {
			return err
		}
	}
	return nil
}

// EachPlatformRow streams the rows that belong to no tenant: first the events, by subject and
// version, then the rows.
func (tx *Tx) EachPlatformRow(ctx context.Context, each PlatformRows) error {
	return inOrder(
		stream(ctx, tx, each.Event, db.VerifyPlatformEvents),
		streamWhole(ctx, tx, each.Pool, "servo.pools q ORDER BY q.name"),
		streamWhole(ctx, tx, each.Key, "servo.signing_keys q ORDER BY q.id"),
		streamWhole(ctx, tx, each.Switch, "servo.switches q ORDER BY q.name"),
		streamWhole(ctx, tx, each.Release, "servo.releases q ORDER BY q.id"),
		streamWhole(ctx, tx, each.Channel, "servo.release_channels q ORDER BY q.name"),
	)
}
