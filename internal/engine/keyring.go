package engine

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"go.arco.dev/servo/internal/domain/push"
	"go.arco.dev/servo/internal/store"
)

// keysLast is how long keys are cached: a revoked key is refused by every server after that.
const keysLast = time.Second

// keyring caches the signing keys.
type keyring struct {
	store *store.Store

	latest  atomic.Pointer[keysSeen]
	reading sync.Mutex // one goroutine reads, the others wait for its result
}

// keysSeen are the keys as of one read.
type keysSeen struct {
	keys   push.Keyring
	readAt time.Time     // by the server's clock, before the read: later changes may be missing
	ahead  time.Duration // of the database's clock
}

// Keyring returns all signing keys, and the database's time to check them by, so that all servers decide
// alike.
func (e *Engine) Keyring(ctx context.Context) (push.Keyring, time.Time, error) {
	seen, err := e.keys.since(ctx, time.Now().Add(-keysLast))
	if err != nil {
		return nil, time.Time{}, err
	}
	return seen.keys, time.Now().Add(seen.ahead), nil
}

// KeyringWith is Keyring for a signature by a key of this id. An unknown key may be new, so the keys are
// read again: one read at a time, without delaying callers with known keys.
func (e *Engine) KeyringWith(ctx context.Context, keyID string) (push.Keyring, time.Time, error) {
	came := time.Now()
	keys, now, err := e.Keyring(ctx)
	if err != nil || keys.Has(keyID) {
		return keys, now, err
	}
	seen, err := e.keys.since(ctx, came)
	if err != nil {
		return nil, time.Time{}, err
	}
	return seen.keys, time.Now().Add(seen.ahead), nil
}

// since returns keys that were read at that time or later.
func (k *keyring) since(ctx context.Context, at time.Time) (*keysSeen, error) {
	if seen := k.latest.Load(); seen != nil && !seen.readAt.Before(at) {
		return seen, nil
	}
	k.reading.Lock()
	defer k.reading.Unlock()
	if seen := k.latest.Load(); seen != nil && !seen.readAt.Before(at) {
		return seen, nil
	}
	seen := &keysSeen{readAt: time.Now()}
	rows, now, err := k.store.SigningKeys(ctx)
	if err != nil {
		return nil, err
	}
	seen.ahead = now.Sub(seen.readAt)
	for _, row := range rows {
		seen.keys = append(seen.keys, push.Key{
			ID: row.ID, Secret: row.Secret, CreatedAt: row.CreatedAt, ActiveAt: row.SignsFrom, ExpiresAt: row.ExpiresAt, RevokedAt: row.RevokedAt,
		})
	}
	if !store.Uncommitted(ctx) {
		k.latest.Store(seen)
	}
	return seen, nil
}

// forget empties the cache after this server has changed keys.
func (k *keyring) forget() { k.latest.Store(nil) }
