package engine

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"go.arco.dev/servo/internal/domain/push"
	"go.arco.dev/servo/internal/store"
)

// keysLast is how long keys are believed without another look: a revoked one is refused
// everywhere after that.
const keysLast = time.Second

// keyring remembers the keys for a moment.
type keyring struct {
	store *store.Store

	latest  atomic.Pointer[keysSeen]
	reading sync.Mutex // one reads, the others take what it has read
}

// keysSeen is the keys as they were read at a time.
type keysSeen struct {
	keys   push.Keyring
	readAt time.Time     // by our clock, before the read: what changed later may be missing
	ahead  time.Duration // of the database's clock
}

// Keyring is all signing keys, and the time to judge them by: the database's, so that all
// servers judge alike.
func (e *Engine) Keyring(ctx context.Context) (push.Keyring, time.Time, error) {
	seen, err := e.keys.since(ctx, time.Now().Add(-keysLast))
	if err != nil {
		return nil, time.Time{}, err
	}
	return seen.keys, time.Now().Add(seen.ahead), nil
}

// KeyringWith is Keyring for a signature by a key of this id. One that is not known may be
// new: then it is looked for once more. Whoever invents ids makes us read, one read at a
// time, and nobody else waits for it.
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

// since gives keys that were read at that time or later.
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

// forget makes the next look a real one: keys have changed here.
func (k *keyring) forget() { k.latest.Store(nil) }
