package engine

import (
	"context"
	"crypto/rand"
	"fmt"

	"go.arco.dev/servo/internal/base/event"
	"go.arco.dev/servo/internal/base/fault"
	"go.arco.dev/servo/internal/domain/platform"
	"go.arco.dev/servo/internal/engine/signal"
	"go.arco.dev/servo/internal/store"
)

// CreatePool configures a pool. The first push pool creates the first signing key too, which sending
// needs.
func (e *Engine) CreatePool(ctx context.Context, name string, settings platform.PoolSettings, meta event.Meta) (store.Pool, error) {
	if err := platform.ValidatePoolName("name", name); err != nil {
		return store.Pool{}, err
	}
	if err := settings.Validate(); err != nil {
		return store.Pool{}, err
	}
	var made store.Pool
	err := e.store.Engine(ctx, func(ctx context.Context, tx *store.Tx) error {
		now, err := tx.Clock(ctx)
		if err != nil {
			return err
		}
		made = store.Pool{PoolSettings: settings, Name: name, CreatedAt: now, UpdatedAt: now}
		if made.Version, err = tx.InsertPool(ctx, made); err != nil {
			return err
		}
		if settings.Kind == platform.Push {
			if err := firstKey(ctx, tx, now, rand.Reader, meta); err != nil {
				return err
			}
		}
		return tx.AppendPlatformEvents(ctx, poolEvent(made, platform.PoolCreated{PoolSettings: settings}, meta))
	})
	if err != nil {
		return store.Pool{}, err
	}
	store.AfterCommit(ctx, e.poolsChanged)
	return made, nil
}

// ChangePool updates a pool of the expected version; 0 accepts any. The kind cannot change: tasks of pull
// pools and of push pools run in different ways.
func (e *Engine) ChangePool(ctx context.Context, name string, version int32, change func(*platform.PoolSettings), meta event.Meta) (store.Pool, error) {
	var pool store.Pool
	err := e.store.Engine(ctx, func(ctx context.Context, tx *store.Tx) error {
		var err error
		if pool, err = lockPool(ctx, tx, name, version); err != nil {
			return err
		}
		settings := pool.PoolSettings
		change(&settings)
		if settings.Kind != pool.Kind {
			return fault.New(fault.Conflict, fmt.Sprintf("pool %s is a %s pool", name, pool.Kind), fault.Field("kind"),
				fault.Remedy("delete the pool and create it again, once its tasks are done"))
		}
		if err := settings.Validate(); err != nil {
			return err
		}
		if settings.Equal(pool.PoolSettings) {
			return nil
		}
		now, err := tx.Clock(ctx)
		if err != nil {
			return err
		}
		pool.PoolSettings, pool.UpdatedAt = settings, now
		pool.Version++
		if err := tx.UpdatePool(ctx, pool); err != nil {
			return err
		}
		return tx.AppendPlatformEvents(ctx, poolEvent(pool, platform.PoolUpdated{PoolSettings: settings}, meta))
	})
	if err != nil {
		return store.Pool{}, err
	}
	store.AfterCommit(ctx, e.poolsChanged)
	return pool, nil
}

// DeletePool deletes the configuration of a pool of the expected version; 0 accepts any. Queued tasks are
// kept, as in a pull pool without configuration.
func (e *Engine) DeletePool(ctx context.Context, name string, version int32, meta event.Meta) error {
	err := e.store.Engine(ctx, func(ctx context.Context, tx *store.Tx) error {
		pool, err := lockPool(ctx, tx, name, version)
		if err != nil {
			return err
		}
		now, err := tx.Clock(ctx)
		if err != nil {
			return err
		}
		if err := tx.DeletePool(ctx, pool); err != nil {
			return err
		}
		pool.UpdatedAt = now
		pool.Version++
		return tx.AppendPlatformEvents(ctx, poolEvent(pool, platform.PoolDeleted{}, meta))
	})
	if err == nil {
		store.AfterCommit(ctx, e.poolsChanged)
	}
	return err
}

func lockPool(ctx context.Context, tx *store.Tx, name string, version int32) (store.Pool, error) {
	pool, err := tx.LockPool(ctx, name)
	if err != nil {
		return pool, err
	}
	if version != 0 && version != pool.Version {
		return pool, fault.New(fault.Conflict, fmt.Sprintf("pool %s is at version %d by now, not %d", name, pool.Version, version),
			fault.Field("version"), fault.Remedy("reload the pool and apply the change to it"), fault.Value("version", pool.Version))
	}
	return pool, nil
}

func poolEvent(p store.Pool, body event.Body, meta event.Meta) platform.Event {
	return platform.Event{Subject: platform.SubjectOf(platform.KindPool, p.Name), Version: p.Version, At: p.UpdatedAt, Meta: meta, Body: body}
}

// poolsChanged wakes dispatch and admission, since there may be room now.
func (e *Engine) poolsChanged() {
	e.keys.forget() // the first push pool may have created one
	e.signals.Publish(signal.Pools, signal.Ready)
}
