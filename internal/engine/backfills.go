package engine

import (
	"context"
	"time"

	"go.arco.dev/servo/internal/base/event"
	"go.arco.dev/servo/internal/base/id"
	"go.arco.dev/servo/internal/domain/backfill"
	"go.arco.dev/servo/internal/domain/tenant"
	"go.arco.dev/servo/internal/engine/signal"
	"go.arco.dev/servo/internal/store"
)

// TriggerBackfill is the trigger type of a run of a backfill.
const TriggerBackfill = "backfill"

// BackfillDuty is the name of the duty under which one server starts the runs of backfills.
const BackfillDuty = "backfills"

// Backfill requests a backfill.
type Backfill struct {
	Tenant    id.Tenant
	Workspace string // "" is the default one
	Settings  backfill.Settings
	// Follow lets each run use the deployment that is active when it starts. Otherwise all runs use the
	// one that is active now.
	Follow bool
	Meta   event.Meta
}

// CreateBackfill resolves the partitions of a backfill and creates it. The loop starts its runs.
func (e *Engine) CreateBackfill(ctx context.Context, request Backfill) (created backfill.Backfill, err error) {
	err = e.engineWithCode(ctx, func(ctx context.Context, tx *store.Tx) error {
		now, err := tx.Clock(ctx)
		if err != nil {
			return err
		}
		r, err := e.resolveBackfill(ctx, tx, request, now)
		if err != nil {
			return err
		}
		begun := event.Event{
			Tenant: request.Tenant, Subject: id.New[id.Backfill](id.NewMinter(now)).UUID, Version: 1, At: now, Meta: request.Meta,
			Body: backfill.Created{Workspace: r.workspace.ID, Settings: r.settings, Set: r.set},
		}
		if created, err = (backfill.Backfill{}).Evolve(begun); err != nil {
			return err
		}
		if err := tx.InsertBackfill(ctx, created); err != nil {
			return err
		}
		return tx.AppendEntityEvents(ctx, begun)
	})
	if err != nil {
		return backfill.Backfill{}, err
	}
	store.AfterCommit(ctx, func() { e.signals.Publish(signal.Backfill) })
	return created, nil
}

// PauseBackfill stops the start of further runs. Pausing a paused backfill changes nothing.
func (e *Engine) PauseBackfill(ctx context.Context, key store.BackfillKey, reason string, meta event.Meta) error {
	return e.changeBackfill(ctx, key, backfill.Pause{Reason: reason}, meta, func(b backfill.Backfill) bool { return b.State == backfill.Paused })
}

// ResumeBackfill lets runs start again. Resuming a backfill that is not paused changes nothing while it has
// not ended.
func (e *Engine) ResumeBackfill(ctx context.Context, key store.BackfillKey, meta event.Meta) error {
	return e.changeBackfill(ctx, key, backfill.Resume{}, meta, func(b backfill.Backfill) bool { return b.State == backfill.Pending || b.State == backfill.Running })
}

// CancelBackfill ends a backfill and cancels its runs. If this server dies in between, the loop cancels
// them.
func (e *Engine) CancelBackfill(ctx context.Context, key store.BackfillKey, reason string, meta event.Meta) error {
	return e.changeBackfill(ctx, key, backfill.Cancel{Reason: reason}, meta, func(b backfill.Backfill) bool { return b.State == backfill.Cancelled })
}

// RetryBackfill begins a new round with the partitions that have not succeeded.
func (e *Engine) RetryBackfill(ctx context.Context, key store.BackfillKey, failedOnly bool, meta event.Meta) error {
	return e.changeBackfill(ctx, key, backfill.Retry{FailedOnly: failedOnly}, meta, func(backfill.Backfill) bool { return false })
}

// changeBackfill locks a backfill and applies an action, unless it is done already.
func (e *Engine) changeBackfill(ctx context.Context, key store.BackfillKey, action backfill.Action, meta event.Meta, done func(backfill.Backfill) bool) error {
	err := e.store.Engine(ctx, func(ctx context.Context, tx *store.Tx) error {
		b, err := lockBackfill(ctx, tx, key)
		if err != nil || done(b) {
			return err
		}
		now, err := tx.Clock(ctx)
		if err != nil {
			return err
		}
		_, err = applyToBackfill(ctx, tx, b, action, now, meta)
		return err
	})
	if err == nil {
		store.AfterCommit(ctx, func() { e.signals.Publish(signal.Backfill) })
	}
	return err
}

func lockBackfill(ctx context.Context, tx *store.Tx, key store.BackfillKey) (backfill.Backfill, error) {
	found, err := tx.LockBackfills(ctx, []store.BackfillKey{key})
	if err != nil {
		return backfill.Backfill{}, err
	}
	if len(found) == 0 {
		return backfill.Backfill{}, store.MissingBackfill(key)
	}
	return found[0], nil
}

// applyToBackfill decides an action on a locked backfill, and writes the row and the events.
func applyToBackfill(ctx context.Context, tx *store.Tx, b backfill.Backfill, action backfill.Action, now time.Time, meta event.Meta) (backfill.Backfill, error) {
	bodies, err := b.Decide(action)
	if err != nil {
		return b, err
	}
	after := b
	events := make([]event.Event, len(bodies))
	for i, body := range bodies {
		events[i] = event.Event{Tenant: b.Tenant, Subject: b.ID.UUID, Version: after.Version + 1, At: now, Meta: meta, Body: body}
		if after, err = after.Evolve(events[i]); err != nil {
			return b, err
		}
	}
	if err := tx.UpdateBackfill(ctx, b, after); err != nil {
		return b, err
	}
	return after, tx.AppendEntityEvents(ctx, events...)
}

// workspaceOr is a workspace's name, the default one for "".
func workspaceOr(name string) string {
	if name == "" {
		return tenant.DefaultWorkspace
	}
	return name
}
