package engine

import (
	"context"

	"go.arco.dev/servo/internal/domain/schedule"
	"go.arco.dev/servo/internal/engine/signal"
	"go.arco.dev/servo/internal/store"
)

// Renewed is the result of RenewZones.
type Renewed struct {
	Configs int             // whose next slot was computed again
	Last    store.ConfigKey // where to continue
	More    bool
}

// RenewZones computes the next slots of up to most configs again that were computed with other zone data:
// after the given config, and only those with older data unless newer is set. It starts from the last
// decision, so that no slot is decided twice and none is left out.
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
				// The zone may not exist any more. FireDue reports that and disables the config.
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
