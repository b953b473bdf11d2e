package store

import (
	"context"
	"encoding/json"
	"math"
	"strconv"
	"time"

	"github.com/google/uuid"

	"go.arco.dev/servo/internal/base/id"
	"go.arco.dev/servo/internal/store/internal/db"
)

// triedEvents is how many events of each kind a filter is applied to for one page.
const triedEvents = 5_000

// RecordedEvent is an event of the log.
type RecordedEvent struct {
	Tx, Position int64

	Tenant  id.Tenant // zero for the installation
	Run     *id.Run
	Subject string
	Version int32
	At      time.Time
	Type    string
	Actor   string
	Trace   string
	Data    json.RawMessage
}

// RecordedFilter selects events. Zero fields match all.
type RecordedFilter struct {
	Tenant   id.Tenant
	Type     string // prefix of the type
	Subject  string
	From, To time.Time
}

// EventPlace is a position in the log. The zero value is after the newest event.
type EventPlace struct{ Tx, Position int64 }

// RecordedEvents reads events, the newest first, before a position. It applies the filter to a
// bounded number of events: next is where the next page begins, nil at the end. The tenant is in
// the predicate: the statement walks the feed of all tenants.
func (s *Store) RecordedEvents(ctx context.Context, f RecordedFilter, before EventPlace, most int) (events []RecordedEvent, next *EventPlace, err error) {
	if before == (EventPlace{}) {
		before = EventPlace{Tx: math.MaxInt64, Position: math.MaxInt64}
	}
	if f.To.IsZero() {
		f.To = endOfTime()
	}
	tx1 := strconv.FormatInt(before.Tx, 10)
	err = s.scoped(id.Tenant{})(ctx, func(ctx context.Context, tx *Tx) error {
		floor, err := tx.q.EventsFloor(ctx, db.EventsFloorParams{Tx: tx1, Walk: triedEvents})
		if err != nil {
			return err
		}
		if floor > 0 {
			next = &EventPlace{Tx: floor}
		}
		rows, err := tx.q.EventsNewest(ctx, db.EventsNewestParams{
			Floor: strconv.FormatInt(floor, 10), Tx: tx1, Position: before.Position, FromAt: f.From, ToAt: f.To, Type: f.Type, TenantID: f.Tenant.UUID,
			Subject: f.Subject, Most: int32(most + 1), //nolint:gosec // a page size
		})
		if err != nil {
			return err
		}
		if len(rows) > most {
			rows = rows[:most]
			next = &EventPlace{Tx: rows[most-1].Tx, Position: rows[most-1].Position}
		}
		events = column(rows, recordedEvent)
		return nil
	})
	return events, next, err
}

func recordedEvent(r db.EventsNewestRow) RecordedEvent {
	e := RecordedEvent{
		Tx: r.Tx, Position: r.Position, Tenant: id.Of[id.Tenant](r.TenantID), Subject: r.Subject, Version: r.Version, At: r.RecordedAt,
		Type: r.Type, Actor: r.Actor, Trace: r.Trace, Data: r.Data,
	}
	if r.RunID != uuid.Nil {
		of := id.Of[id.Run](r.RunID)
		e.Run = &of
	}
	return e
}
