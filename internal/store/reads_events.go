package store

import (
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"time"

	"github.com/google/uuid"

	"go.arco.dev/servo/internal/base/event"
	"go.arco.dev/servo/internal/base/fault"
	"go.arco.dev/servo/internal/base/id"
	"go.arco.dev/servo/internal/domain/run"
	"go.arco.dev/servo/internal/store/internal/db"
)

// EventCursor is a position in the feed: transactions in the order of their ids, rows of one by
// position, events of a row by ordinal. Zero is before the first.
type EventCursor struct {
	Tx       uint64
	Position int64
	Ordinal  int32
}

// String is the cursor for readers: "tx-position-ordinal".
func (c EventCursor) String() string { return fmt.Sprintf("%d-%d-%d", c.Tx, c.Position, c.Ordinal) }

// ParseEventCursor parses the result of String. "" is the beginning.
func ParseEventCursor(field, text string) (EventCursor, error) {
	if text == "" {
		return EventCursor{}, nil
	}
	var c EventCursor
	if _, err := fmt.Sscanf(text, "%d-%d-%d", &c.Tx, &c.Position, &c.Ordinal); err != nil || c.String() != text {
		return EventCursor{}, fault.New(fault.InvalidArgument, "is not a place in the events of a run", fault.Field(field),
			fault.Remedy("send the id of the last event that was received, or nothing to begin with the first"))
	}
	return c, nil
}

// RunEvent is a recorded event of a run or of one of its tasks.
type RunEvent struct {
	Cursor  EventCursor
	Type    event.Type
	Schema  int16
	Subject uuid.UUID // the run, or one of its tasks
	Task    bool      // which of the two
	Version int32     // orders the events of one subject; the feed's order does not
	At      time.Time
	Meta    event.Meta
	Data    json.RawMessage
}

// RunEventPage is a page of the feed.
type RunEventPage struct {
	Events []RunEvent
	Next   EventCursor // the next page begins after this
	More   bool        // the next page has events already
	Done   bool        // the run has ended and this is its last page
}

// RunEvents reads the events of a run and its tasks after a position in the feed. It stops before
// events that a running transaction may still precede (docs/adr/0007), so that a reader of
// consecutive pages sees each event once.
func (s *Store) RunEvents(ctx context.Context, key RunKey, after EventCursor, most int) (RunEventPage, error) {
	var page RunEventPage
	err := s.Tenant(ctx, key.Tenant.String(), func(ctx context.Context, tx *Tx) error {
		page = RunEventPage{Next: after}
		// The run first: if it has ended, the next statement sees all of its events.
		found, err := tx.getRun(ctx, key)
		if err != nil {
			return err
		}
		rows, err := tx.q.RunEvents(ctx, db.RunEventsParams{
			TenantID: key.Tenant.UUID, RunID: key.Run.UUID, Tx: strconv.FormatUint(after.Tx, 10), Position: after.Position, Ordinal: after.Ordinal,
			Most: int32(most) + 1, //nolint:gosec // a page size
		})
		if err != nil {
			return err
		}
		for _, r := range rows {
			if !r.Settled || len(page.Events) == most {
				page.More = r.Settled
				return nil
			}
			e := runEvent(key.Run, r)
			page.Events, page.Next = append(page.Events, e), e.Cursor
		}
		page.Done = found.State.Terminal()
		return nil
	})
	return page, err
}

func runEvent(of id.Run, r db.RunEventsRow) RunEvent {
	return RunEvent{
		Cursor: EventCursor{Tx: uint64(r.Tx), Position: r.Position, Ordinal: r.Ordinal}, //nolint:gosec // transaction ids are not negative
		Type:   event.Type(r.Type), Schema: r.Schema, Subject: r.SubjectID, Task: r.SubjectID != of.UUID, Version: r.Version,
		At: r.RecordedAt, Meta: event.Meta{Actor: r.Actor, Trace: r.Trace}, Data: r.Data,
	}
}

// RunPlan is a run with its plan.
type RunPlan struct {
	RunView
	run.Made
}

// GetRunPlan reads a run with its planned and added tasks, and those that ended without success.
func (s *Store) GetRunPlan(ctx context.Context, key RunKey) (RunPlan, error) {
	var found RunPlan
	err := s.Tenant(ctx, key.Tenant.String(), func(ctx context.Context, tx *Tx) error {
		view, err := tx.getRun(ctx, key)
		if err != nil {
			return err
		}
		found = RunPlan{RunView: view}
		rows, err := tx.q.RunPlanEvents(ctx, db.RunPlanEventsParams{TenantID: key.Tenant.UUID, RunID: key.Run.UUID})
		if err != nil {
			return err
		}
		for _, r := range rows {
			body, err := tx.codec.Decode(event.Type(r.Type), r.Schema, r.Data)
			if err != nil {
				return err
			}
			switch body := body.(type) {
			case run.RunCreated:
				found.Additions = append(found.Additions, run.RunTasksAdded{Tasks: body.Tasks})
			case run.RunTasksAdded:
				found.Additions = append(found.Additions, body)
			}
		}
		ids, err := tx.q.UnsuccessfulTasks(ctx, db.UnsuccessfulTasksParams{TenantID: key.Tenant.UUID, RunID: key.Run.UUID})
		found.Unsuccessful = column(ids, id.Of[id.Task])
		return err
	})
	return found, err
}
