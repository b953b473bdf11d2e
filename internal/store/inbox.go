package store

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"go.arco.dev/servo/internal/base/id"
	"go.arco.dev/servo/internal/domain/config"
	"go.arco.dev/servo/internal/store/internal/db"
)

func eventFromRow(r db.ServoEventInbox) (config.OutsideEvent, error) {
	o := config.OutsideEvent{
		Tenant: id.Of[id.Tenant](r.TenantID), ID: id.Of[id.Event](r.ID), Workspace: id.Of[id.Workspace](r.WorkspaceID), Name: r.Name, Key: r.DedupeKey,
		Parameters: r.Parameters, Reason: r.Reason, SentBy: r.SentBy, Version: r.Version, ReceivedAt: r.ReceivedAt, Listeners: r.Listeners,
		Runs: r.Runs, DoneAt: timeOf(r.DoneAt),
	}
	if r.AfterID != nil {
		o.After = id.Of[id.Config](*r.AfterID)
	}
	err := json.Unmarshal(r.Skipped, &o.Skipped)
	return o, err
}

// InsertEvent writes a new external event, unless its key exists already.
func (tx *Tx) InsertEvent(ctx context.Context, o config.OutsideEvent) (inserted bool, err error) {
	rows, err := tx.q.InsertEvent(ctx, db.InsertEventParams{
		TenantID: o.Tenant.UUID, ID: o.ID.UUID, WorkspaceID: o.Workspace.UUID, Name: o.Name, DedupeKey: o.Key, Parameters: string(o.Parameters),
		Reason: o.Reason, Version: o.Version, SentBy: o.SentBy, ReceivedAt: o.ReceivedAt, Listeners: o.Listeners,
	})
	return rows == 1, err
}

// EventKey identifies an external event.
type EventKey struct {
	Tenant    id.Tenant
	Workspace id.Workspace
	Name      string
	Key       string
}

// EventByKey finds the external event of a key.
func (tx *Tx) EventByKey(ctx context.Context, k EventKey) (found config.OutsideEvent, known bool, err error) {
	row, err := tx.q.EventByKey(ctx, db.EventByKeyParams{TenantID: k.Tenant.UUID, WorkspaceID: k.Workspace.UUID, Name: k.Name, DedupeKey: k.Key})
	if errors.Is(err, pgx.ErrNoRows) {
		return found, false, nil
	}
	if err != nil {
		return found, false, err
	}
	found, err = eventFromRow(row)
	return found, true, err
}

// CountEventListeners counts the configs that an external event of this name triggers.
func (tx *Tx) CountEventListeners(ctx context.Context, k EventKey) (int32, error) {
	return tx.q.CountEventListeners(ctx, db.CountEventListenersParams{TenantID: k.Tenant.UUID, WorkspaceID: k.Workspace.UUID, Name: k.Name})
}

// EventListener is a config that listens, with its spec.
type EventListener struct {
	Name string
	Spec config.Spec
}

// SomeEventListeners returns the first configs that listen to external events of this name.
func (tx *Tx) SomeEventListeners(ctx context.Context, k EventKey, most int) ([]EventListener, error) {
	return tryList(func(r db.SomeEventListenersRow) (EventListener, error) {
		l := EventListener{Name: r.Name}
		err := json.Unmarshal(r.Spec, &l.Spec)
		return l, err
	})(tx.q.SomeEventListeners(ctx, db.SomeEventListenersParams{
		TenantID: k.Tenant.UUID, WorkspaceID: k.Workspace.UUID, Name: k.Name, Most: int32(most), //nolint:gosec // a few
	}))
}

// TakeEvents locks up to most unfinished external events, the oldest first, and skips locked rows.
func (tx *Tx) TakeEvents(ctx context.Context, most int) ([]config.OutsideEvent, error) {
	return tryList(eventFromRow)(tx.q.TakeEvents(ctx, int32(most))) //nolint:gosec // a batch size
}

// EventListeners returns the configs that listen to each of these external events, up to most of
// each after the last one that has had its run, in the order of their ids.
func (tx *Tx) EventListeners(ctx context.Context, events []config.OutsideEvent, most int) (map[id.Event][]ConfigKey, error) {
	rows, err := tx.q.EventListeners(ctx, db.EventListenersParams{
		TenantIds:    column(events, func(o config.OutsideEvent) uuid.UUID { return o.Tenant.UUID }),
		EventIds:     column(events, func(o config.OutsideEvent) uuid.UUID { return o.ID.UUID }),
		WorkspaceIds: column(events, func(o config.OutsideEvent) uuid.UUID { return o.Workspace.UUID }),
		Names:        column(events, func(o config.OutsideEvent) string { return o.Name }),
		Afters:       column(events, func(o config.OutsideEvent) uuid.UUID { return o.After.UUID }),
		Most:         int32(most), //nolint:gosec // a batch size
	})
	found := make(map[id.Event][]ConfigKey, len(events))
	for _, r := range rows {
		of := id.Of[id.Event](r.EventID)
		found[of] = append(found[of], ConfigKey{Tenant: id.Of[id.Tenant](r.TenantID), Config: id.Of[id.Config](r.ID)})
	}
	return found, err
}

// UpdateEvents writes the progress of locked external events.
func (tx *Tx) UpdateEvents(ctx context.Context, rows []config.OutsideEvent) error {
	skipped, err := convert(rows, func(o config.OutsideEvent) (string, error) {
		if o.Skipped == nil {
			return "{}", nil
		}
		return jsonText(&o.Skipped)
	})
	if err != nil {
		return err
	}
	return tx.writes.write("update event_inbox", len(rows), func(q *db.Queries) error {
		return q.UpdateEvents(ctx, db.UpdateEventsParams{
			TenantIds: column(rows, func(o config.OutsideEvent) uuid.UUID { return o.Tenant.UUID }),
			Ids:       column(rows, func(o config.OutsideEvent) uuid.UUID { return o.ID.UUID }),
			Versions:  column(rows, func(o config.OutsideEvent) int32 { return o.Version }),
			Afters:    column(rows, func(o config.OutsideEvent) uuid.UUID { return o.After.UUID }),
			Runs:      column(rows, func(o config.OutsideEvent) int32 { return o.Runs }),
			DoneAts:   column(rows, func(o config.OutsideEvent) time.Time { return o.DoneAt }),
			Skipped:   skipped,
		})
	})
}

// ForgetEvents deletes up to most finished external events that were received longer ago than keep.
// Their keys may be used again.
func (s *Store) ForgetEvents(ctx context.Context, keep time.Duration, most int) (forgotten int64, err error) {
	err = s.engineAt(ctx, func(ctx context.Context, tx *Tx, now time.Time) error {
		forgotten, err = tx.q.ForgetEvents(ctx, db.ForgetEventsParams{Before: now.Add(-keep), Most: int32(most)}) //nolint:gosec // a batch size
		return err
	})
	return forgotten, err
}

// EventView is an external event with the name of its workspace.
type EventView struct {
	config.OutsideEvent

	WorkspaceName string
}

// GetEvent reads an external event by its id.
func (s *Store) GetEvent(ctx context.Context, tenant id.Tenant, of id.Event) (found EventView, err error) {
	err = s.Tenant(ctx, tenant.String(), func(ctx context.Context, tx *Tx) error {
		row, err := tx.q.GetEvent(ctx, db.GetEventParams{TenantID: tenant.UUID, ID: of.UUID})
		if err != nil {
			return notFound(err, "event", of.String())
		}
		found.WorkspaceName = row.Workspace
		found.OutsideEvent, err = eventFromRow(row.ServoEventInbox)
		return err
	})
	return found, err
}
