package engine

import (
	"context"
	"crypto/rand"
	"io"
	"time"

	"go.arco.dev/servo/internal/base/event"
	"go.arco.dev/servo/internal/base/fault"
	"go.arco.dev/servo/internal/domain/platform"
	"go.arco.dev/servo/internal/domain/push"
	"go.arco.dev/servo/internal/store"
)

// CreateKey creates another signing key, which signs after a delay. The existing keys stay valid.
func (e *Engine) CreateKey(ctx context.Context, lead time.Duration, meta event.Meta) (push.Key, error) {
	return e.newKey(ctx, lead, 0, meta)
}

// RotateKeys creates a signing key, which signs after a delay, and retires the others after the overlap.
func (e *Engine) RotateKeys(ctx context.Context, lead, overlap time.Duration, meta event.Meta) (push.Key, error) {
	return e.newKey(ctx, lead, overlap, meta)
}

// newKey creates a key; an overlap retires the others.
func (e *Engine) newKey(ctx context.Context, lead, overlap time.Duration, meta event.Meta) (push.Key, error) {
	checked := overlap
	if overlap == 0 {
		checked = platform.DefaultKeyOverlap
	}
	if err := platform.CheckRotation(lead, checked); err != nil {
		return push.Key{}, err
	}
	var made push.Key
	err := e.withKeys(ctx, func(ctx context.Context, tx *store.Tx, now time.Time, before []store.SigningKey) error {
		for _, k := range before {
			if overlap == 0 || !k.ExpiresAt.IsZero() || !k.RevokedAt.IsZero() {
				continue
			}
			k.ExpiresAt = now.Add(lead + overlap)
			k.Version++
			if err := tx.UpdateSigningKey(ctx, k); err != nil {
				return err
			}
			if err := tx.AppendPlatformEvents(ctx, keyEvent(k.ID, k.Version, now, platform.KeyRetired{ExpiresAt: k.ExpiresAt}, meta)); err != nil {
				return err
			}
		}
		var err error
		made, err = insertKey(ctx, tx, now, now.Add(lead), rand.Reader, meta)
		return err
	})
	if err != nil {
		return push.Key{}, err
	}
	store.AfterCommit(ctx, e.keys.forget)
	return made, nil
}

// withKeys runs a change of signing keys in a transaction that has locked them.
func (e *Engine) withKeys(ctx context.Context, change func(context.Context, *store.Tx, time.Time, []store.SigningKey) error) error {
	return e.store.Engine(ctx, func(ctx context.Context, tx *store.Tx) error {
		if err := tx.LockSigningKeys(ctx); err != nil {
			return err
		}
		now, err := tx.Clock(ctx)
		if err != nil {
			return err
		}
		keys, err := tx.SigningKeys(ctx)
		if err != nil {
			return err
		}
		return change(ctx, tx, now, keys)
	})
}

// firstKey creates a key if no key could sign, now or later.
func firstKey(ctx context.Context, tx *store.Tx, now time.Time, random io.Reader, meta event.Meta) error {
	if err := tx.LockSigningKeys(ctx); err != nil {
		return err
	}
	keys, err := tx.SigningKeys(ctx)
	if err != nil {
		return err
	}
	for _, k := range keys {
		if state := k.StateAt(now); state == platform.KeyActive || state == platform.KeyPending {
			return nil
		}
	}
	_, err = insertKey(ctx, tx, now, now, random, meta)
	return err
}

func insertKey(ctx context.Context, tx *store.Tx, now, signsFrom time.Time, random io.Reader, meta event.Meta) (push.Key, error) {
	key, err := push.NewKey(random, now)
	if err != nil {
		return push.Key{}, err
	}
	key.ActiveAt = signsFrom
	row := store.SigningKey{ID: key.ID, Secret: key.Secret, Version: 1, CreatedAt: now, Key: platform.Key{SignsFrom: signsFrom}}
	if err := tx.InsertSigningKey(ctx, row); err != nil {
		return push.Key{}, err
	}
	return key, tx.AppendPlatformEvents(ctx, keyEvent(key.ID, 1, now, platform.KeyCreated{SignsFrom: signsFrom}, meta))
}

// RevokeKey revokes a key at once. Revoking it again changes nothing.
func (e *Engine) RevokeKey(ctx context.Context, keyID, reason string, meta event.Meta) (store.SigningKey, error) {
	if err := platform.CheckNote("reason", reason, platform.MaxReasonLength); err != nil {
		return store.SigningKey{}, err
	}
	var revoked store.SigningKey
	err := e.withKeys(ctx, func(ctx context.Context, tx *store.Tx, now time.Time, keys []store.SigningKey) error {
		for _, k := range keys {
			if k.ID != keyID {
				continue
			}
			if revoked = k; !k.RevokedAt.IsZero() {
				return nil
			}
			revoked.RevokedAt = now
			revoked.Version++
			if err := tx.UpdateSigningKey(ctx, revoked); err != nil {
				return err
			}
			return tx.AppendPlatformEvents(ctx, keyEvent(k.ID, revoked.Version, now, platform.KeyRevoked{Reason: reason}, meta))
		}
		return fault.New(fault.NotFound, "no signing key of this id", fault.Field("key"), fault.Remedy("look at servo signing-keys list"))
	})
	store.AfterCommit(ctx, e.keys.forget)
	return revoked, err
}

func keyEvent(keyID string, version int32, now time.Time, body event.Body, meta event.Meta) platform.Event {
	return platform.Event{Subject: platform.SubjectOf(platform.KindKey, keyID), Version: version, At: now, Meta: meta, Body: body}
}
