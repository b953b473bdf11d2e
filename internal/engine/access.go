package engine

import (
	"context"
	"crypto/rand"
	"fmt"
	"time"

	"go.arco.dev/servo/internal/base/event"
	"go.arco.dev/servo/internal/base/fault"
	"go.arco.dev/servo/internal/base/id"
	"go.arco.dev/servo/internal/domain/access"
	"go.arco.dev/servo/internal/domain/platform"
	"go.arco.dev/servo/internal/engine/batch"
	"go.arco.dev/servo/internal/store"
)

// CreateAPIKey creates a key of a tenant, or of the installation if the tenant is zero, and returns its
// secret, which is not shown again. Life is how long the key is valid; 0 sets no end.
func (e *Engine) CreateAPIKey(ctx context.Context, owner id.Tenant, settings access.Settings, life time.Duration, meta event.Meta) (made access.Key, secret access.Secret, err error) {
	err = e.store.Engine(ctx, func(ctx context.Context, tx *store.Tx) error {
		now, err := tx.Clock(ctx)
		if err != nil {
			return err
		}
		if life != 0 {
			settings.ExpiresAt = now.Add(life).Truncate(time.Microsecond)
		}
		if err := settings.Validate(owner, now); err != nil {
			return err
		}
		if err := mayServe(ctx, tx, owner, settings); err != nil {
			return err
		}
		if settings.Workspace != "" {
			if err := hasWorkspace(ctx, tx, owner, settings.Workspace); err != nil {
				return err
			}
		}
		if secret, err = access.NewSecret(rand.Reader); err != nil {
			return err
		}
		made, err = insertAPIKey(ctx, tx, owner, secret, now, access.KeyCreated{Settings: settings}, meta)
		return err
	})
	return made, secret, err
}

// Bootstrap creates a platform key, unless a valid one exists. Force creates it in any case, for an
// installation whose keys are lost.
func (e *Engine) Bootstrap(ctx context.Context, name string, force bool, meta event.Meta) (made access.Key, secret access.Secret, err error) {
	settings := access.Settings{Name: name, Role: access.Platform}
	err = e.store.Engine(ctx, func(ctx context.Context, tx *store.Tx) error {
		now, err := tx.Clock(ctx)
		if err != nil {
			return err
		}
		if err := settings.Validate(id.Tenant{}, now); err != nil {
			return err
		}
		alive, err := tx.LockKeys(ctx, id.Tenant{}, access.Platform, now)
		if err != nil {
			return err
		}
		if alive > 0 && !force {
			return fault.New(fault.Conflict, fmt.Sprintf("platform keys exist: %d", alive),
				fault.Remedy("create further keys with one of them: servo keys create; if they are lost, pass --force and revoke them with the new key"))
		}
		if secret, err = access.NewSecret(rand.Reader); err != nil {
			return err
		}
		made, err = insertAPIKey(ctx, tx, id.Tenant{}, secret, now, access.KeyCreated{Settings: settings}, meta)
		return err
	})
	return made, secret, err
}

// mayServe refuses a tenant worker keys of pools that it does not own: they have tasks of other
// tenants.
func mayServe(ctx context.Context, tx *store.Tx, owner id.Tenant, settings access.Settings) error {
	if owner == (id.Tenant{}) || len(settings.Pools) == 0 {
		return nil
	}
	pools, err := tx.Pools(ctx)
	if err != nil {
		return err
	}
	owned := map[string]bool{}
	for _, p := range pools {
		owned[p.Name] = p.Owner == owner
	}
	for i, name := range settings.Pools {
		if !owned[name] {
			return fault.New(fault.InvalidArgument, fmt.Sprintf("the pool %s does not belong to the tenant", name), fault.Field(fmt.Sprintf("pools[%d]", i)),
				fault.Remedy("use a pool whose owner is the tenant; the operators of the installation create keys of other pools"))
		}
	}
	return nil
}

func hasWorkspace(ctx context.Context, tx *store.Tx, owner id.Tenant, name string) error {
	found, err := tx.Workspaces(ctx, []store.WorkspaceName{{Tenant: owner, Name: name}})
	if err == nil && len(found) == 0 {
		err = fault.New(fault.NotFound, fmt.Sprintf("no workspace %.100s", name), fault.Field("workspace"), fault.Remedy("check the name"))
	}
	return err
}

// insertAPIKey writes a key and its first event.
func insertAPIKey(ctx context.Context, tx *store.Tx, owner id.Tenant, secret access.Secret, now time.Time, body access.KeyCreated, meta event.Meta) (made access.Key, err error) {
	alive, err := tx.LockKeys(ctx, owner, "", now)
	if err != nil {
		return made, err
	}
	if alive >= access.MaxKeys {
		return made, fault.New(fault.LimitExceeded, fmt.Sprintf("there are %d keys", alive), fault.Field("name"), fault.Remedy("revoke some first"), fault.Value("limit", access.MaxKeys))
	}
	body.Key = secret.ID
	begun := event.Event{Tenant: owner, Subject: id.New[id.Key](id.NewMinter(now)).UUID, Version: 1, At: now, Meta: meta, Body: body}
	if made, err = made.Evolve(begun); err != nil {
		return made, err
	}
	if err := tx.InsertKey(ctx, made, secret.Digest()); err != nil {
		return made, err
	}
	return made, tx.AppendEntityEvents(ctx, begun)
}

// RotateAPIKey creates a key with the permissions of another, which stays valid for the overlap. The new
// key is valid for as long as the other was when it was created.
func (e *Engine) RotateAPIKey(ctx context.Context, owner id.Tenant, key string, overlap time.Duration, meta event.Meta) (made, before access.Key, secret access.Secret, err error) {
	err = e.store.Engine(ctx, func(ctx context.Context, tx *store.Tx) error {
		if before, err = tx.LockKey(ctx, owner, key); err != nil {
			return err
		}
		now, err := tx.Clock(ctx)
		if err != nil {
			return err
		}
		end, err := before.Rotate(now, overlap)
		if err != nil {
			return err
		}
		next := access.KeyCreated{Replaces: before.Public, Settings: before.Settings}
		if !before.ExpiresAt.IsZero() {
			next.ExpiresAt = now.Add(before.ExpiresAt.Sub(before.CreatedAt))
		}
		if err := mayServe(ctx, tx, owner, next.Settings); err != nil {
			return err
		}
		if secret, err = access.NewSecret(rand.Reader); err != nil {
			return err
		}
		over := event.Event{Tenant: owner, Subject: before.ID.UUID, Version: before.Version + 1, At: now, Meta: meta, Body: access.KeyRotated{By: secret.ID, ExpiresAt: end}}
		if before, err = before.Evolve(over); err != nil {
			return err
		}
		if err := tx.UpdateKey(ctx, before); err != nil { // first, since the new key takes over the name
			return err
		}
		if err := tx.AppendEntityEvents(ctx, over); err != nil {
			return err
		}
		made, err = insertAPIKey(ctx, tx, owner, secret, now, next, meta)
		return err
	})
	return made, before, secret, err
}

// RevokeAPIKey revokes a key at once. Revoking it again changes nothing.
func (e *Engine) RevokeAPIKey(ctx context.Context, owner id.Tenant, key, reason string, meta event.Meta) (revoked access.Key, err error) {
	if err := platform.CheckNote("reason", reason, platform.MaxReasonLength); err != nil {
		return revoked, err
	}
	err = e.store.Engine(ctx, func(ctx context.Context, tx *store.Tx) error {
		if revoked, err = tx.LockKey(ctx, owner, key); err != nil || !revoked.RevokedAt.IsZero() {
			return err
		}
		now, err := tx.Clock(ctx)
		if err != nil {
			return err
		}
		over := event.Event{Tenant: owner, Subject: revoked.ID.UUID, Version: revoked.Version + 1, At: now, Meta: meta, Body: access.KeyRevoked{Reason: reason}}
		if revoked, err = revoked.Evolve(over); err != nil {
			return err
		}
		if err := tx.UpdateKey(ctx, revoked); err != nil {
			return err
		}
		return tx.AppendEntityEvents(ctx, over)
	})
	return revoked, err
}

// Audit records a call and returns after the commit. Calls that come together are recorded in one
// transaction.
func (e *Engine) Audit(ctx context.Context, a store.Audit) error {
	_, err := e.audits.Do(ctx, &a)
	return err
}

// runAudits sets the id and time of each record once: a batch that is tried again writes the same rows.
func (e *Engine) runAudits(ctx context.Context, calls []*batch.Call[*store.Audit, struct{}]) error {
	return e.store.Engine(ctx, func(ctx context.Context, tx *store.Tx) error {
		now, err := tx.Clock(ctx)
		if err != nil {
			return err
		}
		mint := id.NewMinter(now)
		records := make([]store.Audit, len(calls))
		for i, c := range calls {
			if c.Request.At.IsZero() {
				c.Request.At, c.Request.ID = now, id.New[id.Event](mint).UUID
			}
			records[i] = *c.Request
		}
		return tx.InsertAudit(ctx, records)
	})
}
