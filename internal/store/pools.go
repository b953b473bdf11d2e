package store

import (
	"context"
	"time"

	"github.com/google/uuid"

	"go.arco.dev/servo/internal/base/event"
	"go.arco.dev/servo/internal/base/id"
	"go.arco.dev/servo/internal/domain/platform"
	"go.arco.dev/servo/internal/store/internal/db"
)

// Pool is a configured pool. A pool without configuration is a pull pool without limits.
type Pool struct {
	platform.PoolSettings

	Name      string
	Version   int32
	CreatedAt time.Time
	UpdatedAt time.Time
}

// Timeout is how long one call of a push pool's URL may take.
func (p Pool) Timeout() time.Duration { return time.Duration(p.TimeoutSeconds) * time.Second }

func poolFromRow(r db.ServoPool) Pool {
	p := Pool{
		PoolSettings: platform.PoolSettings{
			Kind: platform.PoolKind(r.Kind), URL: r.Url, MaxConcurrency: r.MaxConcurrency, RatePerSecond: r.RatePerS,
			TimeoutSeconds: r.TimeoutS,
		},
		Name: r.Name, Version: r.Version, CreatedAt: r.CreatedAt, UpdatedAt: r.UpdatedAt,
	}
	if r.OwnerID != nil {
		p.Owner = id.Of[id.Tenant](*r.OwnerID)
	} else if r.Accepts != nil {
		p.Tenants = column(r.Accepts, id.Of[id.Tenant])
	}
	return p
}

// Accepts returns the tenants whose tasks a pool accepts, as its row stores them: NULL for all.
func Accepts(p platform.PoolSettings) []uuid.UUID {
	tenants := p.Accepts()
	if len(tenants) == 0 {
		return nil
	}
	return column(tenants, func(t id.Tenant) uuid.UUID { return t.UUID })
}

// ownerID is NULL for a pool of the platform.
func ownerID(p Pool) *uuid.UUID {
	if p.Owner == (id.Tenant{}) {
		return nil
	}
	return &p.Owner.UUID
}

// Pools reads all configured pools, by name.
func (s *Store) Pools(ctx context.Context) ([]Pool, error) {
	return read(ctx, s.engine, func(ctx context.Context, tx *Tx) ([]Pool, error) {
		return tx.Pools(ctx)
	})
}

// Pools reads all configured pools, by name: one statement over a few rows.
func (tx *Tx) Pools(ctx context.Context) ([]Pool, error) {
	return list(poolFromRow)(tx.q.Pools(ctx))
}

// LockPool locks a configured pool by name.
func (tx *Tx) LockPool(ctx context.Context, name string) (Pool, error) {
	row, err := tx.q.LockPool(ctx, name)
	return poolFromRow(row), notFound(err, "pool", name)
}

// InsertPool writes a new pool and returns the version of its first event: one more than the last
// version of an earlier pool of that name.
func (tx *Tx) InsertPool(ctx context.Context, p Pool) (version int32, err error) {
	err = tx.q.InsertPool(ctx, db.InsertPoolParams{
		Name: p.Name, OwnerID: ownerID(p), Accepts: Accepts(p.PoolSettings), Kind: string(p.Kind), Url: p.URL, MaxConcurrency: p.MaxConcurrency, RatePerS: p.RatePerSecond,
		TimeoutS: p.TimeoutSeconds, Now: p.CreatedAt,
	})
	if err != nil {
		return 0, taken(err, "pool", p.Name)
	}
	last, err := tx.q.PlatformVersion(ctx, platform.SubjectOf(platform.KindPool, p.Name))
	if err != nil {
		return 0, err
	}
	p.Version = last + 1
	return p.Version, tx.UpdatePool(ctx, p)
}

// UpdatePool writes a pool that this transaction has locked or inserted. Its kind stays.
func (tx *Tx) UpdatePool(ctx context.Context, p Pool) error {
	n, err := tx.q.UpdatePool(ctx, db.UpdatePoolParams{
		Name: p.Name, OwnerID: ownerID(p), Accepts: Accepts(p.PoolSettings), Url: p.URL, MaxConcurrency: p.MaxConcurrency, RatePerS: p.RatePerSecond,
		TimeoutS: p.TimeoutSeconds, Version: p.Version, Now: p.UpdatedAt,
	})
	return exactlyOne("UpdatePool", n, err)
}

// DeletePool deletes a pool that this transaction has locked.
func (tx *Tx) DeletePool(ctx context.Context, p Pool) error {
	n, err := tx.q.DeletePool(ctx, db.DeletePoolParams{Name: p.Name, Version: p.Version})
	return exactlyOne("DeletePool", n, err)
}

func exactlyOne(statement string, rows int64, err error) error {
	if err == nil && rows != 1 {
		return &MismatchError{Statement: statement, Want: 1, Got: int(rows)}
	}
	return err
}

// PushPool is a push pool.
type PushPool struct {
	Pool

	Queued  bool // its queue is not empty
	Servers int  // live servers, which share its rate
}

// PushPools reads the push pools.
func (s *Store) PushPools(ctx context.Context) ([]PushPool, error) {
	return read(ctx, s.engine, func(ctx context.Context, tx *Tx) ([]PushPool, error) {
		now, err := tx.Clock(ctx)
		if err != nil {
			return nil, err
		}
		return list(func(r db.PushPoolsRow) PushPool {
			return PushPool{Pool: poolFromRow(r.ServoPool), Queued: r.Queued, Servers: int(r.Servers)}
		})(tx.q.PushPools(ctx, now.Add(-ServerLives)))
	})
}

// AppendPlatformEvents records events of pools, signing keys and switches.
func (tx *Tx) AppendPlatformEvents(ctx context.Context, events ...platform.Event) error {
	schemas, datas, err := tx.encode(column(events, func(e platform.Event) event.Body { return e.Body }))
	if err != nil {
		return err
	}
	return tx.q.InsertPlatformEvents(ctx, db.InsertPlatformEventsParams{
		Subjects:    column(events, func(e platform.Event) string { return e.Subject }),
		Versions:    column(events, func(e platform.Event) int32 { return e.Version }),
		RecordedAts: column(events, func(e platform.Event) time.Time { return e.At }),
		Types:       column(events, func(e platform.Event) string { return string(e.Body.EventType()) }),
		Actors:      column(events, func(e platform.Event) string { return e.Meta.Actor }),
		Traces:      column(events, func(e platform.Event) string { return e.Meta.Trace }),
		Schemas:     schemas, Datas: datas,
	})
}
