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
	Place EventCursor

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

// RecordedEvents reads events, the newest first, before a position; zero begins with the newest. It applies the filter to a
// bounded number of events: next is where the next page begins, nil at the end. The tenant is in
// the predicate: the statement walks the feed of all tenants.
func (s *Store) RecordedEvents(ctx context.Context, f RecordedFilter, before EventCursor, most int) (events []RecordedEvent, next *EventCursor, err error) {
	if before == (EventCursor{}) {
		before = EventCursor{Tx: math.MaxInt64, Position: math.MaxInt64, Ordinal: math.MaxInt32}
	}
	if f.To.IsZero() {
		f.To = endOfTime()
	}
	tx1 := strconv.FormatUint(before.Tx, 10)
	err = s.scoped(id.Tenant{})(ctx, func(ctx context.Context, tx *Tx) error {
		floor, err := tx.q.EventsFloor(ctx, db.EventsFloorParams{Tx: tx1, Walk: triedEvents})
		if err != nil {
			return err
		}
		if floor > 0 {
			next = &EventCursor{Tx: uint64(floor)}
		}
		rows, err := tx.q.EventsNewest(ctx, db.EventsNewestParams{
			Floor: strconv.FormatInt(floor, 10), Tx: tx1, Position: before.Position, Ordinal: before.Ordinal, FromAt: f.From, ToAt: f.To, Type: f.Type, TenantID: f.Tenant.UUID,
			Subject: f.Subject, Most: int32(most + 1), //nolint:gosec // a page size
		})
		if err != nil {
			return err
		}
		events = column(rows[:min(len(rows), most)], recordedEvent)
		if len(rows) > most {
			next = &events[most-1].Place
		}
		return nil
	})
	return events, next, err
}

func recordedEvent(r db.EventsNewestRow) RecordedEvent {
	e := RecordedEvent{
		Place:  EventCursor{Tx: uint64(r.Tx), Position: r.Position, Ordinal: r.Ordinal}, //nolint:gosec // transaction ids are not negative
		Tenant: id.Of[id.Tenant](r.TenantID), Subject: r.Subject, Version: r.Version, At: r.RecordedAt,
		Type: r.Type, Actor: r.Actor, Trace: r.Trace, Data: r.Data,
	}
	if r.RunID != uuid.Nil {
		of := id.Of[id.Run](r.RunID)
		e.Run = &of
	}
	return e
}
