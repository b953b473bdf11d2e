package store

import (
	"context"
	"encoding/binary"
	"time"

	"github.com/google/uuid"

	"go.arco.dev/servo/internal/base/id"
	"go.arco.dev/servo/internal/domain/access"
	"go.arco.dev/servo/internal/store/internal/db"
)

// KeyView is a key with its last use.
type KeyView struct {
	access.Key

	LastUsedAt time.Time
}

// Keys lists the keys of a tenant, or those of the installation, the newest first: the valid ones,
// or all. Now is the database's time.
func (s *Store) Keys(ctx context.Context, owner id.Tenant, everything bool, before id.Key, most int) (found []KeyView, now time.Time, err error) {
	upper := before.UUID
	if upper == uuid.Nil {
		upper = uuid.Max
	}
	err = s.ownedBy(owner)(ctx, func(ctx context.Context, tx *Tx) error {
		rows, err := tx.q.ListKeys(ctx, db.ListKeysParams{TenantID: owner.UUID, Before: upper, Everything: everything, Most: int32(most)}) //nolint:gosec // a page
		if err != nil {
			return err
		}
		found = column(rows, func(r db.ListKeysRow) KeyView {
			return KeyView{LastUsedAt: timeOf(r.LastUsedAt), Key: keyFromRow(db.LockKeyRow{
				TenantID: r.TenantID, ID: r.ID, Version: r.Version, PublicID: r.PublicID, Name: r.Name, Role: r.Role, Workspace: r.Workspace, Pools: r.Pools,
				CreatedBy: r.CreatedBy, CreatedAt: r.CreatedAt, ExpiresAt: r.ExpiresAt, ReplacedBy: r.ReplacedBy, RevokedAt: r.RevokedAt,
			})}
		})
		now, err = tx.Clock(ctx)
		return err
	})
	return found, now, err
}

// AuditFilter selects audit records. The zero tenant is the installation.
type AuditFilter struct {
	Tenant id.Tenant
	Actor  string    // "" is any
	Since  time.Time // zero is the beginning
	Before uuid.UUID // nil is the end
}

// Audit lists audit records, the newest first.
func (s *Store) Audit(ctx context.Context, f AuditFilter, most int) (found []Audit, err error) {
	before := f.Before
	if before == uuid.Nil {
		before = uuid.Max
	}
	err = s.ownedBy(f.Tenant)(ctx, func(ctx context.Context, tx *Tx) error {
		if f.Actor != "" {
			rows, err := tx.q.ListAuditOf(ctx, db.ListAuditOfParams{TenantID: f.Tenant.UUID, Actor: f.Actor, Before: before, Since: firstAt(f.Since), Most: int32(most)}) //nolint:gosec // a page
			found = column(rows, auditFromRow)
			return err
		}
		rows, err := tx.q.ListAudit(ctx, db.ListAuditParams{TenantID: f.Tenant.UUID, Before: before, Since: firstAt(f.Since), Most: int32(most)}) //nolint:gosec // a page
		found = column(rows, auditFromRow)
		return err
	})
	return found, err
}

// firstAt is the smallest UUIDv7 of a time.
func firstAt(at time.Time) (first uuid.UUID) {
	if at.UnixMilli() > 0 {
		binary.BigEndian.PutUint64(first[:8], uint64(at.UnixMilli())<<16)
	}
	return first
}

func auditFromRow(r db.ServoAuditLog) Audit {
	return Audit{
		Tenant: id.Of[id.Tenant](r.TenantID), ID: r.ID, At: r.At, Actor: r.Actor, Address: r.Address, RequestID: r.RequestID, Method: r.Method, Subject: r.Subject,
		Allowed: r.Allowed, Code: r.Code, Request: r.Request,
	}
}
