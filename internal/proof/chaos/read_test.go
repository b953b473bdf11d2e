package chaos

import (
	"context"
	"errors"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"go.arco.dev/servo/internal/base/event"
	"go.arco.dev/servo/internal/base/id"
	"go.arco.dev/servo/internal/domain/run"
	"go.arco.dev/servo/internal/store"
)

// historyChunk is how many runs are looked at together.
const historyChunk = 50

// eachHistory reads every run with its tasks and events, a few at a time.
func eachHistory(ctx context.Context, conn *pgx.Conn, look func(history)) error {
	last := uuid.Nil
	for {
		rows, err := conn.Query(ctx, `SELECT tenant_id, id, state FROM servo.runs WHERE id > $1 ORDER BY id LIMIT $2`, [16]byte(last), historyChunk)
		if err != nil {
			return err
		}
		chunk := map[uuid.UUID]*history{}
		var (
			order, owners   [][16]byte
			tenant, reached [16]byte
			state           int16
		)
		_, err = pgx.ForEachRow(rows, []any{&tenant, &reached, &state}, func() error {
			order, owners = append(order, reached), append(owners, tenant)
			chunk[reached] = &history{
				tenant: id.Of[id.Tenant](tenant), run: id.Of[id.Run](reached), state: run.State(state), tasks: map[id.Task]taskRow{},
			}
			return nil
		})
		if err != nil || len(order) == 0 {
			return err
		}
		err = errors.Join(readTasks(ctx, conn, owners, order, chunk), readQueues(ctx, conn, order, chunk), readEvents(ctx, conn, owners, order, chunk))
		if err != nil {
			return err
		}
		for _, u := range order {
			look(*chunk[u])
		}
		last = reached
	}
}

func readTasks(ctx context.Context, conn *pgx.Conn, owners, runs [][16]byte, chunk map[uuid.UUID]*history) error {
	rows, err := conn.Query(ctx, `
		SELECT t.run_id, t.id, coalesce(t.state, 0), coalesce(t.token, 0)
		FROM   unnest($1::uuid[], $2::uuid[]) AS n (tenant_id, run_id)
		JOIN   servo.tasks t ON t.tenant_id = n.tenant_id AND t.run_id = n.run_id`, owners, runs)
	if err != nil {
		return err
	}
	var (
		of, task [16]byte
		state    int16
		token    int64
	)
	_, err = pgx.ForEachRow(rows, []any{&of, &task, &state, &token}, func() error {
		chunk[of].tasks[id.Of[id.Task](task)] = taskRow{state: run.TaskState(state), token: token}
		return nil
	})
	return err
}

func readQueues(ctx context.Context, conn *pgx.Conn, runs [][16]byte, chunk map[uuid.UUID]*history) error {
	rows, err := conn.Query(ctx, `
		SELECT run_id, count(*)
		FROM   (SELECT run_id FROM servo.waiting UNION ALL SELECT run_id FROM servo.ready_q UNION ALL SELECT run_id FROM servo.pool_q
		        UNION ALL SELECT run_id FROM servo.leases UNION ALL SELECT run_id FROM servo.retry_q) AS q
		WHERE  run_id = ANY($1::uuid[])
		GROUP  BY run_id`, runs)
	if err != nil {
		return err
	}
	var (
		of [16]byte
		n  int
	)
	_, err = pgx.ForEachRow(rows, []any{&of, &n}, func() error {
		chunk[of].queued = n
		return nil
	})
	return err
}

func readEvents(ctx context.Context, conn *pgx.Conn, owners, runs [][16]byte, chunk map[uuid.UUID]*history) error {
	rows, err := conn.Query(ctx, `
		SELECT e.run_id, e.subject_id, e.version, e.recorded_at, e.type, e.schema, e.actor, e.trace, e.data
		FROM   unnest($1::uuid[], $2::uuid[]) AS n (tenant_id, run_id)
		JOIN   servo.run_events e ON e.tenant_id = n.tenant_id AND e.run_id = n.run_id
		ORDER  BY e.run_id, e.subject_id, e.version, e.position`, owners, runs)
	if err != nil {
		return err
	}
	codec := store.Codec()
	var (
		of, subject [16]byte
		e           event.Event
		kind        string
		schema      int16
		data        []byte
	)
	_, err = pgx.ForEachRow(rows, []any{&of, &subject, &e.Version, &e.At, &kind, &schema, &e.Meta.Actor, &e.Meta.Trace, &data}, func() error {
		e.Run, e.Subject = id.Of[id.Run](of), subject
		var err error
		e.Body, err = codec.Decode(event.Type(kind), schema, data)
		chunk[of].events = append(chunk[of].events, e)
		return err
	})
	return err
}
