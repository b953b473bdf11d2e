package store_test

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"go.arco.dev/servo/internal/base/event"
	"go.arco.dev/servo/internal/base/id"
	"go.arco.dev/servo/internal/domain/run"
	"go.arco.dev/servo/internal/store"
)

// unpacked is an element of a packed row, as migration 00120 describes it.
type unpacked struct {
	Subject string          `json:"s"`
	Version int32           `json:"v"`
	Schema  int16           `json:"c"`
	Type    event.Type      `json:"t"`
	Actor   string          `json:"a"`
	Trace   string          `json:"x"`
	Data    json.RawMessage `json:"d"`
}

// TestPack: every event of a transaction is in one row of its run, in the order of the run's events,
// and no row exceeds a limit.
func TestPack(t *testing.T) {
	t.Parallel()
	codec := event.NewCodec(run.Events()...)
	at := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

	rapid.Check(t, func(t *rapid.T) {
		runs := rapid.SliceOfN(rapid.Custom(func(t *rapid.T) id.Run {
			return id.Of[id.Run](uuid.UUID(rapid.SliceOfN(rapid.Byte(), 16, 16).Draw(t, "id")))
		}), 1, 4).Draw(t, "runs")
		size := rapid.SampledFrom([]int{0, 100, 40_000}).Draw(t, "size")
		events := rapid.SliceOfN(rapid.Custom(func(t *rapid.T) event.Event {
			of := rapid.SampledFrom(runs).Draw(t, "run")
			subject := of.UUID
			if rapid.Bool().Draw(t, "task") {
				subject[0] ^= 1
			}
			return event.Event{
				Run: of, Subject: subject, Version: rapid.Int32Range(1, 9).Draw(t, "version"), At: at.Add(rapid.SampledFrom([]time.Duration{0, 0, 0, 1}).Draw(t, "at")),
				Meta: event.Meta{Actor: rapid.String().Draw(t, "actor"), Trace: rapid.SampledFrom([]string{"", "00-a"}).Draw(t, "trace")},
				Body: run.TaskCancelled{Reason: strings.Repeat("x", size)},
			}
		}), 0, 60).Draw(t, "events")
		if size == 0 && len(events) > 0 { // beyond the number of events of one row
			for len(events) < 1200 {
				events = append(events, events...)
			}
		}

		rows, err := store.Pack(codec, events)
		require.NoError(t, err)
		got := map[uuid.UUID][]unpacked{}
		for _, row := range rows {
			require.Less(t, len(row.Events), 256<<10+1)
			var elements []unpacked
			require.NoError(t, json.Unmarshal(row.Events, &elements), string(row.Events))
			require.NotEmpty(t, elements)
			require.LessOrEqual(t, len(elements), 500)
			got[row.Run] = append(got[row.Run], elements...)
		}
		want := map[uuid.UUID][]unpacked{}
		for _, e := range events {
			u := unpacked{Version: e.Version, Type: e.Body.EventType(), Actor: strings.ToValidUTF8(e.Meta.Actor, "\ufffd"), Trace: e.Meta.Trace}
			if e.Subject != e.Run.UUID {
				u.Subject = e.Subject.String()
			}
			_, u.Data, err = codec.Encode(e.Body)
			require.NoError(t, err)
			want[e.Run.UUID] = append(want[e.Run.UUID], u)
		}
		require.Equal(t, want, got)
	})

	t.Run("events of one transaction and run are one row", func(t *testing.T) {
		t.Parallel()
		one, other := id.Of[id.Run](uuid.New()), id.Of[id.Run](uuid.New())
		rows, err := store.Pack(codec, []event.Event{{Run: one, At: at, Body: run.TaskQueued{}}, {Run: other, At: at, Body: run.TaskQueued{}}, {Run: one, At: at, Body: run.TaskStarted{}}})
		require.NoError(t, err)
		require.Len(t, rows, 2)
	})
}

// TestPackedRoundTrip: what the store has packed is what readers of single events see.
func TestPackedRoundTrip(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	g := w.newRun(t, w.account(t, "acme"), nil, nil)
	before := w.Count(t, `SELECT count(*) FROM servo.run_event_rows`)
	var events []event.Event
	for version := range int32(3) {
		e := happen(g.tasks[0], version+2)
		e.Meta = event.Meta{Actor: `a "quoted" <name>`, Trace: "00-1-2-01"}
		events = append(events, e)
	}
	w.append(t, events...)
	require.Equal(t, before+1, w.Count(t, `SELECT count(*) FROM servo.run_event_rows`))

	r := &reader{world: w, key: g.key()}
	r.until(t, 2+3)
	require.Equal(t, []string{"2", "3", "4"}, w.Texts(t, `SELECT version::text FROM servo.run_events WHERE actor = 'a "quoted" <name>' AND trace = '00-1-2-01' ORDER BY ordinal`))
	require.Equal(t, 3, w.Count(t, `SELECT count(DISTINCT ordinal) FROM servo.run_events WHERE actor <> '' AND subject_id = $1`, g.tasks[0].ID.UUID))
}
