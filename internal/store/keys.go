package store

import (
	"context"
	"time"

	"go.arco.dev/servo/internal/domain/platform"
	"go.arco.dev/servo/internal/store/internal/db"
)

// SigningKey is a key with its secret. It must not appear in logs or answers.
type SigningKey struct {
	platform.Key

	ID        string
	Secret    []byte
	Version   int32
	CreatedAt time.Time
}

// SigningKeys reads all keys, including expired and revoked ones, oldest first, and the database's
// time.
func (s *Store) SigningKeys(ctx context.Context) (keys []SigningKey, now time.Time, err error) {
	err = s.engine(ctx, func(ctx context.Context, tx *Tx) error {
		if now, err = tx.Clock(ctx); err != nil {
			return err
		}
		keys, err = tx.SigningKeys(ctx)
		return err
	})
	return keys, now, err
}

// SigningKeys reads all keys, oldest first.
func (tx *Tx) SigningKeys(ctx context.Context) ([]SigningKey, error) {
	return list(func(k db.ServoSigningKey) SigningKey {
		return SigningKey{
			ID: k.ID, Secret: k.Secret, Version: k.Version, CreatedAt: k.CreatedAt,
			Key: platform.Key{SignsFrom: k.SignsFrom, ExpiresAt: timeOf(k.ExpiresAt), RevokedAt: timeOf(k.RevokedAt)},
		}
	})(tx.q.SigningKeys(ctx))
}

// LockSigningKeys lets one transaction at a time change keys.
func (tx *Tx) LockSigningKeys(ctx context.Context) error { return tx.q.LockSigningKeys(ctx) }

// InsertSigningKey writes a new key.
func (tx *Tx) InsertSigningKey(ctx context.Context, k SigningKey) error {
	return tx.q.InsertSigningKey(ctx, db.InsertSigningKeyParams{ID: k.ID, Secret: k.Secret, Now: k.CreatedAt, SignsFrom: k.SignsFrom})
}

// UpdateSigningKey writes the expiry and the revocation of a key.
func (tx *Tx) UpdateSigningKey(ctx context.Context, k SigningKey) error {
	n, err := tx.q.UpdateSigningKey(ctx, db.UpdateSigningKeyParams{
		ID: k.ID, Version: k.Version, ExpiresAt: orNil(k.ExpiresAt), RevokedAt: orNil(k.RevokedAt),
	})
	return exactlyOne("UpdateSigningKey", n, err)
}
