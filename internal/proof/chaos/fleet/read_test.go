package fleet

import (
	"context"
	"encoding/json"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"go.arco.dev/servo/internal/base/event"
	"go.arco.dev/servo/internal/domain/run"
	"go.arco.dev/servo/internal/store"
)

// history is all that the database knows of one run.
type history struct {
	id       string
	tenant   string
	pipeline string
	key      string // the parameter
	state    run.State
	tasks    map[string]*story
}

// story is one task: its row, and its events in their order.
type story struct {
	id     string
	place  place
	state  run.TaskState // zero if it has not ended
	result json.RawMessage
	events []event.Body
}

// readHistories reads all runs.
func readHistories(ctx context.Context, conn *pgx.Conn) (map[string]*history, error) {
	runs := map[string]*history{}
	rows, err := conn.Query(ctx, `
		SELECT r.id::text, t.name, r.pipeline, coalesce(r.parameters->>'key', ''), r.state
		FROM   servo.runs r JOIN servo.tenants t ON t.id = r.tenant_id`)
	if err != nil {
		return nil, err
	}
	var (
		h     history
		state int16
	)
	_, err = pgx.ForEachRow(rows, []any{&h.id, &h.tenant, &h.pipeline, &h.key, &state}, func() error {
		one := h
		one.state, one.tasks = run.State(state), map[string]*story{}
		runs[h.id] = &one
		return nil
	})
	if err != nil {
		return nil, err
	}
	if err := readTasks(ctx, conn, runs); err != nil {
		return nil, err
	}
	return runs, readEvents(ctx, conn, runs)
}

func readTasks(ctx context.Context, conn *pgx.Conn, runs map[string]*history) error {
	rows, err := conn.Query(ctx, `SELECT run_id::text, id::text, asset, partition, coalesce(state, 0), result FROM servo.tasks`)
	if err != nil {
		return err
	}
	var (
		of    string
		s     story
		state int16
	)
	_, err = pgx.ForEachRow(rows, []any{&of, &s.id, &s.place.Asset, &s.place.Partition, &state, &s.result}, func() error {
		one := s
		one.state = run.TaskState(state)
		runs[of].tasks[s.id] = &one
		return nil
	})
	return err
}

func readEvents(ctx context.Context, conn *pgx.Conn, runs map[string]*history) error {
	rows, err := conn.Query(ctx, `
		SELECT run_id, subject_id, type, schema, data FROM servo.run_events
		WHERE  run_id <> subject_id ORDER BY run_id, subject_id, version, position`)
	if err != nil {
		return err
	}
	codec := store.Codec()
	var (
		of, subject [16]byte
		kind        string
		schema      int16
		data        []byte
	)
	_, err = pgx.ForEachRow(rows, []any{&of, &subject, &kind, &schema, &data}, func() error {
		body, err := codec.Decode(event.Type(kind), schema, data)
		if err != nil {
			return err
		}
		s := runs[uuid.UUID(of).String()].tasks[uuid.UUID(subject).String()]
		s.events = append(s.events, body)
		return nil
	})
	return err
}
