package engine

import (
	"context"

	"go.arco.dev/servo/internal/domain/schedule"
	"go.arco.dev/servo/internal/engine/signal"
	"go.arco.dev/servo/internal/store"
)

// Renewed is what one look at configs with other zone data has done.
type Renewed struct {
	Configs int             // whose next slot was computed anew
	Last    store.ConfigKey // where to go on
	More    bool
}

// RenewZones computes the next slots of up to most configs anew whose own was computed with
// other zone data: after the config that is given, and only those with older data unless
// newer is set. It starts from what is decided, so that no slot is decided twice and none is
// left out.
func (e *Engine) RenewZones(ctx context.Context, after store.ConfigKey, newer bool, most int) (renewed Renewed, err error) {
	version := schedule.TZVersion()
	err = e.store.Engine(ctx, func(ctx context.Context, tx *store.Tx) error {
		keys, err := tx.ConfigsOfOtherZoneData(ctx, version, newer, after, most)
		if err != nil || len(keys) == 0 {
			return err
		}
		renewed.Last, renewed.More = keys[len(keys)-1], len(keys) == most
		locked, err := tx.LockConfigs(ctx, keys)
		if err != nil {
			return err
		}
		l := newLedger(e.config.Server)
		var moved []store.ConfigState
		for i := range locked {
			c := &locked[i]
			if c.ZoneData == version || !c.DeletedAt.IsZero() {
				continue // by now
			}
			s, err := c.Spec.Schedule()
			if err != nil {
				// A zone may be gone. What fires it next says so and sets it aside.
				e.log.Error("a config cannot be read", "tenant", c.Tenant, "config", c.ID, "error", err)
				continue
			}
			l.plan(c, s)
			moved = append(moved, *c)
		}
		renewed.Configs = len(moved)
		return tx.MoveConfigs(ctx, moved)
	})
	if err != nil {
		return Renewed{}, err
	}
	if renewed.Configs > 0 {
		e.signals.Publish(signal.Due)
	}
	return renewed, nil
}
