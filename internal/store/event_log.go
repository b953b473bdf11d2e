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

// triedEvents is on how many events of each kind a filter is tried for one page.
const triedEvents = 5_000

// RecordedEvent is an event of the log as people read it.
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

// RecordedFilter says which events are wanted. Zero fields ask for nothing.
type RecordedFilter struct {
	Tenant   id.Tenant
	Type     string // how it begins
	Subject  string
	From, To time.Time
}

// EventPlace is a place in the log. The zero one is after the newest.
type EventPlace struct{ Tx, Position int64 }

// RecordedEvents reads events, the newest first, before a place. A filter is tried on a bounded
// number of them: next is where to go on, nil if there is nothing more. The tenant is in the
// predicate: the walk goes along the feed of all.
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
