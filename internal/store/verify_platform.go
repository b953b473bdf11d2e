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
)

// PlatformRows take the events of the installation and its rows as they come.
type PlatformRows struct {
	Event  func(PlatformEventRow) error
	Pool   func(PoolRow) error
	Key    func(SigningKeyRow) error
	Switch func(SwitchRow) error
}

// EachPlatformRow streams what belongs to no tenant: first the events, by subject and
// version, then the rows.
func (tx *Tx) EachPlatformRow(ctx context.Context, each PlatformRows) error {
	return inOrder(
		streaming(ctx, tx, each.Event, plain((*db.Queries).VerifyPlatformEvents)),
		streaming(ctx, tx, each.Pool, plain((*db.Queries).VerifyPools)),
		streaming(ctx, tx, each.Key, plain((*db.Queries).VerifySigningKeys)),
		streaming(ctx, tx, each.Switch, plain((*db.Queries).VerifySwitches)),
	)
}
