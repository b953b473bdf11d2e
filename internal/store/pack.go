package store

import (
	"encoding/json"
	"strconv"
	"time"

	"github.com/google/uuid"

	"go.arco.dev/servo/internal/base/event"
)

// Limits of one row of events.
const (
	packedEvents = 500
	packedBytes  = 256 << 10
)

// packedRow is a row of the log: events of one run that were recorded together, as a JSON array.
// Migration 00120 describes its fields. The view run_events unpacks it.
type packedRow struct {
	Tenant, Run uuid.UUID
	At          time.Time
	Events      []byte
	count       int
}

// pack distributes the events of a transaction to rows, one for each run. Events of a run keep their
// order. A row that would exceed a limit is followed by another one.
func pack(codec *event.Codec, events []event.Event) ([]packedRow, error) {
	rows := make([]packedRow, 0, len(events))
	last := make(map[uuid.UUID]int, len(events)) // the row of a run that takes its next event
	for _, e := range events {
		text, err := packedEvent(codec, e)
		if err != nil {
			return nil, err
		}
		at, open := last[e.Run.UUID]
		if !open || !rows[at].takes(e, len(text)) {
			at = len(rows)
			last[e.Run.UUID] = at
			rows = append(rows, packedRow{Tenant: e.Tenant.UUID, Run: e.Run.UUID, At: e.At, Events: []byte{'['}})
		} else {
			rows[at].Events[len(rows[at].Events)-1] = ','
		}
		rows[at].Events = append(append(rows[at].Events, text...), ']')
		rows[at].count++
	}
	return rows, nil
}

// takes reports whether an event of the row's run, with its size, belongs into the row.
func (r packedRow) takes(e event.Event, size int) bool {
	return r.Tenant == e.Tenant.UUID && r.At.Equal(e.At) && r.count < packedEvents && len(r.Events)+size < packedBytes
}

// packedEvent is one element of a row.
func packedEvent(codec *event.Codec, e event.Event) ([]byte, error) {
	schema, data, err := codec.Encode(e.Body)
	if err != nil {
		return nil, err
	}
	text := make([]byte, 0, len(data)+len(e.Meta.Actor)+len(e.Meta.Trace)+110)
	text = append(append(text, `{"t":"`...), e.Body.EventType()...)
	text = append(text, '"')
	if e.Subject != e.Run.UUID {
		text = append(text, `,"s":"`...)
		text = append(append(text, e.Subject.String()...), '"')
	}
	text = strconv.AppendInt(append(text, `,"v":`...), int64(e.Version), 10)
	if schema != 1 {
		text = strconv.AppendInt(append(text, `,"c":`...), int64(schema), 10)
	}
	for _, field := range []struct{ name, value string }{{`,"a":`, e.Meta.Actor}, {`,"x":`, e.Meta.Trace}} {
		if field.value == "" {
			continue
		}
		quoted, err := json.Marshal(field.value)
		if err != nil {
			return nil, err
		}
		text = append(append(text, field.name...), quoted...)
	}
	return append(append(append(text, `,"d":`...), data...), '}'), nil
}
