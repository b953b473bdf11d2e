package store

import (
	"context"
	"encoding/json"
	"time"

	"github.com/google/uuid"

	"go.arco.dev/servo/internal/base/id"
	"go.arco.dev/servo/internal/domain/access"
	"go.arco.dev/servo/internal/store/internal/db"
)

// ShownKey is an API key with the data to authenticate a caller that presents it.
type ShownKey struct {
	access.Key

	Digest     access.Digest
	TenantName string    // "" for the installation
	Claims     []string  // pools that a worker may claim from; for a tenant's key those that the tenant owns
	Now        time.Time // the database's
}

// KeyByPublicID finds the key that a caller presents.
func (s *Store) KeyByPublicID(ctx context.Context, publicID string) (ShownKey, error) {
	return read(ctx, s.engine, func(ctx context.Context, tx *Tx) (ShownKey, error) {
		r, err := tx.q.KeyByPublicID(ctx, publicID)
		if err != nil {
			return ShownKey{}, notFound(err, "key", publicID)
		}
		return ShownKey{
			Key: keyFromRow(db.LockKeyRow{
				TenantID: r.TenantID, ID: r.ID, Version: r.Version, PublicID: r.PublicID, Name: r.Name, Role: r.Role, Workspace: r.Workspace, Pools: r.Pools,
				CreatedBy: r.CreatedBy, CreatedAt: r.CreatedAt, ExpiresAt: r.ExpiresAt, ReplacedBy: r.ReplacedBy, RevokedAt: r.RevokedAt,
			}),
			Digest: access.Digest(r.Digest), TenantName: r.Tenant, Claims: r.Claims, Now: r.Now,
		}, nil
	})
}

func keyFromRow(r db.LockKeyRow) access.Key {
	k := access.Key{
		Tenant: id.Of[id.Tenant](r.TenantID), ID: id.Of[id.Key](r.ID), Version: r.Version, Public: r.PublicID,
		Settings:  access.Settings{Name: r.Name, Role: access.Role(r.Role), Workspace: textOf(r.Workspace), ExpiresAt: timeOf(r.ExpiresAt)},
		CreatedBy: r.CreatedBy, CreatedAt: r.CreatedAt, ReplacedBy: textOf(r.ReplacedBy), RevokedAt: timeOf(r.RevokedAt),
	}
	if len(r.Pools) > 0 {
		k.Pools = r.Pools
	}
	return k
}

func textOf(t *string) string {
	if t == nil {
		return ""
	}
	return *t
}

func textOrNil(t string) *string {
	if t == "" {
		return nil
	}
	return &t
}

// LockKeys keeps other transactions from creating keys of an owner, and counts the valid keys: of
// one role, or of all if it is "".
func (tx *Tx) LockKeys(ctx context.Context, owner id.Tenant, role access.Role, now time.Time) (alive int, err error) {
	if err := tx.q.LockKeys(ctx, owner.UUID); err != nil {
		return 0, err
	}
	n, err := tx.q.CountKeys(ctx, db.CountKeysParams{TenantID: owner.UUID, Now: now, Role: string(role)})
	return int(n), err
}

// LockKey locks a key by its id, or a valid key by its name.
func (tx *Tx) LockKey(ctx context.Context, owner id.Tenant, key string) (access.Key, error) {
	row, err := tx.q.LockKey(ctx, db.LockKeyParams{TenantID: owner.UUID, Key: key})
	if err != nil {
		return access.Key{}, notFound(err, "key", key)
	}
	return keyFromRow(row), nil
}

// InsertKey writes a new key with the digest of its secret.
func (tx *Tx) InsertKey(ctx context.Context, k access.Key, digest access.Digest) error {
	pools := k.Pools
	if pools == nil {
		pools = []string{}
	}
	err := tx.q.InsertKey(ctx, db.InsertKeyParams{
		TenantID: k.Tenant.UUID, ID: k.ID.UUID, PublicID: k.Public, Name: k.Name, Role: string(k.Role), Workspace: textOrNil(k.Workspace), Pools: pools,
		Digest: digest[:], CreatedBy: k.CreatedBy, Now: k.CreatedAt, ExpiresAt: orNil(k.ExpiresAt),
	})
	return taken(err, "key", k.Name)
}

// UpdateKey writes the changeable columns of a locked key.
func (tx *Tx) UpdateKey(ctx context.Context, k access.Key) error {
	return tx.q.UpdateKey(ctx, db.UpdateKeyParams{
		Version: k.Version, ExpiresAt: orNil(k.ExpiresAt), ReplacedBy: textOrNil(k.ReplacedBy), RevokedAt: orNil(k.RevokedAt),
		TenantID: k.Tenant.UUID, ID: k.ID.UUID,
	})
}

// KeyUse is when a key was last used.
type KeyUse struct {
	Tenant id.Tenant
	Key    id.Key
	At     time.Time
}

// TouchKeys writes when keys were last used.
func (s *Store) TouchKeys(ctx context.Context, uses []KeyUse) error {
	if len(uses) == 0 {
		return nil
	}
	return s.engine(ctx, func(ctx context.Context, tx *Tx) error {
		return tx.q.TouchKeys(ctx, db.TouchKeysParams{
			TenantIds: column(uses, func(u KeyUse) uuid.UUID { return u.Tenant.UUID }),
			Ids:       column(uses, func(u KeyUse) uuid.UUID { return u.Key.UUID }),
			Ats:       column(uses, func(u KeyUse) time.Time { return u.At }),
		})
	})
}

// Audit is a record of one call that changed something, or tried to.
type Audit struct {
	Tenant    id.Tenant // zero for the installation
	ID        uuid.UUID
	At        time.Time
	Actor     string
	Address   string
	RequestID string
	Method    string
	Subject   string
	Allowed   bool
	Code      string // of the error
	Request   json.RawMessage
}

// InsertAudit writes audit records. Existing records stay as they are.
func (tx *Tx) InsertAudit(ctx context.Context, calls []Audit) error {
	return tx.q.InsertAudit(ctx, db.InsertAuditParams{
		TenantIds:  column(calls, func(a Audit) uuid.UUID { return a.Tenant.UUID }),
		Ids:        column(calls, func(a Audit) uuid.UUID { return a.ID }),
		Ats:        column(calls, func(a Audit) time.Time { return a.At }),
		Actors:     column(calls, func(a Audit) string { return a.Actor }),
		Addresses:  column(calls, func(a Audit) string { return a.Address }),
		RequestIds: column(calls, func(a Audit) string { return a.RequestID }),
		Methods:    column(calls, func(a Audit) string { return a.Method }),
		Subjects:   column(calls, func(a Audit) string { return a.Subject }),
		Alloweds:   column(calls, func(a Audit) bool { return a.Allowed }),
		Codes:      column(calls, func(a Audit) string { return a.Code }),
		Requests:   column(calls, func(a Audit) string { return string(a.Request) }),
	})
}
