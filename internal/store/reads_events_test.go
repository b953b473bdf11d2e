package store_test

import (
	"context"
	"encoding/json"
	"fmt"
	"testing"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"go.arco.dev/servo/internal/base/event"
	"go.arco.dev/servo/internal/base/fault"
	"go.arco.dev/servo/internal/base/id"
	"go.arco.dev/servo/internal/domain/run"
	"go.arco.dev/servo/internal/store"
)

// reader follows the events of a run, page by page.
type reader struct {
	*world

	key   store.RunKey
	place store.EventCursor
	seen  []string // subject and version of each
}

// read reads pages until there are no more for now, and reports whether the end was reached.
func (r *reader) read(t testing.TB, most int) (done bool) {
	t.Helper()
	for {
		page := must(r.RunEvents(t.Context(), r.key, r.place, most))(t)
		require.LessOrEqual(t, len(page.Events), most)
		for _, e := range page.Events {
			r.seen = append(r.seen, fmt.Sprintf("%s %d", e.Subject, e.Version))
		}
		r.place = page.Next
		require.False(t, page.More && page.Done)
		if !page.More {
			return page.Done
		}
	}
}

// until reads until n events have been seen. Transactions of other tests in the same cluster
// hold events back for as long as they run.
func (r *reader) until(t testing.TB, n int) {
	t.Helper()
	for len(r.seen) < n {
		r.read(t, 2)
	}
	require.Len(t, r.seen, n)
}

// patient lets a transaction that is held open be silent for as long as the test takes.
func patient(ctx context.Context, tx *Tx) error {
	_, err := tx.Raw().Exec(ctx, `SET LOCAL idle_in_transaction_session_timeout = 0`)
	return err
}

// happen is an event of a task, by its version.
func happen(task run.Task, version int32) event.Event {
	return event.Event{Tenant: task.Tenant, Run: task.Run, Subject: task.ID.UUID, Version: version, Body: run.TaskQueued{}}
}

func (w *world) append(t testing.TB, events ...event.Event) {
	t.Helper()
	w.apply(t, store.Changes{Events: events})
}

func TestRunEvents(t *testing.T) {
	t.Parallel()

	setup := func(t *testing.T) (*world, graph, *reader) {
		t.Helper()
		w := newWorld(t)
		g := w.newRun(t, w.account(t, "acme"), nil, nil, nil) // three events: the run's and one for each task
		return w, g, &reader{world: w, key: g.key()}
	}
	name := func(subject uuid.UUID, version int) string { return fmt.Sprintf("%s %d", subject, version) }

	t.Run("an event is given as it was recorded", func(t *testing.T) {
		t.Parallel()
		w, g, r := setup(t)
		r.until(t, 3)
		page := must(w.RunEvents(t.Context(), g.key(), store.EventCursor{}, 10))(t)
		require.Len(t, page.Events, 3)
		task, created := page.Events[0], page.Events[2]
		require.Equal(t, store.RunEvent{
			Cursor: task.Cursor, Type: "task.readied", Schema: 1, Subject: g.tasks[0].ID.UUID, Task: true, Version: 1, At: w.now, Data: json.RawMessage(`{}`),
		}, task)
		require.Equal(t, store.RunEvent{
			Cursor: created.Cursor, Type: "run.created", Schema: 1, Subject: g.run.ID.UUID, Version: 1, At: w.now,
			Meta: event.Meta{Actor: "jo", Trace: "trace"}, Data: created.Data,
		}, created)
		require.Contains(t, string(created.Data), g.tasks[0].ID.String())
		require.Equal(t, created.Cursor, page.Next)
	})

	t.Run("pages of any size give each event once", func(t *testing.T) {
		t.Parallel()
		w, g, whole := setup(t)
		for version := range int32(5) {
			w.append(t, happen(g.tasks[0], version+2), happen(g.tasks[1], version+2))
		}
		whole.until(t, 13)
		for most := 1; most <= 14; most++ {
			paged := &reader{world: w, key: g.key()}
			paged.read(t, most)
			require.Equal(t, whole.seen, paged.seen, most)
		}
	})

	t.Run("who draws a position early and commits late is neither lost nor given twice", func(t *testing.T) {
		t.Parallel()
		w, g, r := setup(t)
		r.until(t, 3)
		late := w.hold(t, func(ctx context.Context, tx *Tx) error {
			if err := patient(ctx, tx); err != nil {
				return err
			}
			if err := tx.Apply(ctx, store.Changes{Now: w.now, Events: []event.Event{happen(g.tasks[0], 2)}}); err != nil {
				return err
			}
			return tx.Flush(ctx)
		})
		w.append(t, happen(g.tasks[1], 2))
		r.read(t, 10)
		require.Len(t, r.seen, 3, "what was committed after it began waits for it")
		w.append(t, happen(g.tasks[1], 3))
		r.read(t, 10)
		require.Len(t, r.seen, 3)
		late.commit(t)
		r.until(t, 6)
		require.Equal(t, []string{name(g.tasks[0].ID.UUID, 2), name(g.tasks[1].ID.UUID, 2), name(g.tasks[1].ID.UUID, 3)}, r.seen[3:])
	})

	t.Run("so is who has its position before its transaction id", func(t *testing.T) {
		t.Parallel()
		w, g, r := setup(t)
		r.until(t, 3)
		begun, insert := make(chan struct{}), make(chan struct{})
		done := make(chan error, 1)
		go func() {
			done <- w.Engine(t.Context(), func(ctx context.Context, tx *Tx) error {
				err := patient(ctx, tx)
				close(begun)
				if err != nil {
					return err
				}
				select {
				case <-insert:
				case <-ctx.Done():
					return ctx.Err()
				}
				// position 0 was drawn before all others
				_, err = tx.Raw().Exec(ctx, `INSERT INTO servo.run_event_rows (tenant_id, run_id, position, recorded_at, events)
					VALUES ($1, $2, 0, $4, jsonb_build_array(jsonb_build_object('t', 'task.queued', 's', $3::uuid, 'v', 2, 'd', '{}'::jsonb)))`, g.run.Tenant.UUID, g.run.ID.UUID, g.tasks[0].ID.UUID, w.now)
				return err
			})
		}()
		<-begun
		w.append(t, happen(g.tasks[1], 2))
		r.until(t, 4)
		close(insert)
		require.NoError(t, <-done)
		r.until(t, 5)
		require.Equal(t, []string{name(g.tasks[1].ID.UUID, 2), name(g.tasks[0].ID.UUID, 2)}, r.seen[3:])

		again := &reader{world: w, key: g.key()}
		again.read(t, 1)
		require.Equal(t, r.seen, again.seen, "a later reader reads the same feed")
	})

	t.Run("who is rolled back leaves nothing behind", func(t *testing.T) {
		t.Parallel()
		w, g, r := setup(t)
		w.undone(t, func(tx *Tx) {
			require.NoError(t, tx.Apply(t.Context(), store.Changes{Now: w.now, Events: []event.Event{happen(g.tasks[0], 2)}}))
			require.NoError(t, tx.Flush(t.Context()))
		})
		w.append(t, happen(g.tasks[0], 2))
		r.until(t, 4)
	})

	t.Run("the end comes when the run is over and everything was read, not before", func(t *testing.T) {
		t.Parallel()
		w, g, r := setup(t)
		r.until(t, 3)
		require.False(t, r.read(t, 10), "the run is not over")

		r.place, r.seen = store.EventCursor{}, nil
		blocking := w.hold(t, func(ctx context.Context, tx *Tx) error {
			if err := patient(ctx, tx); err != nil {
				return err
			}
			_, err := tx.Raw().Exec(ctx, `SELECT pg_current_xact_id()`) // work of another session
			return err
		})
		g.run.State, g.run.Remaining, g.run.Succeeded, g.run.FinishedAt, g.run.Version = run.RunSucceeded, 0, 2, w.now, 2
		w.apply(t, store.Changes{ChangedRuns: []run.Run{g.run}, Events: []event.Event{
			{Tenant: g.run.Tenant, Run: g.run.ID, Subject: g.run.ID.UUID, Version: 2, At: w.now, Body: run.RunEnded{State: run.RunSucceeded}},
		}})
		require.False(t, r.read(t, 10), "its last event is still held back")
		require.Len(t, r.seen, 3)
		blocking.commit(t)
		r.until(t, 4)
		require.True(t, r.read(t, 10))

		page := must(w.RunEvents(t.Context(), g.key(), store.EventCursor{}, 3))(t)
		require.True(t, page.More)
		require.False(t, page.Done, "a full page with more to come is not the last")
		page = must(w.RunEvents(t.Context(), g.key(), page.Next, 1))(t)
		require.True(t, page.Done, "a full page may be")
	})

	t.Run("a run of another tenant has no events and is not found", func(t *testing.T) {
		t.Parallel()
		w, g, _ := setup(t)
		other := w.account(t, "brick")
		_, err := w.RunEvents(t.Context(), store.RunKey{Tenant: other.tenant, Run: g.run.ID}, store.EventCursor{}, 10)
		require.True(t, fault.Is(err, fault.NotFound), err)
		_, err = w.RunEvents(t.Context(), store.RunKey{Tenant: g.run.Tenant, Run: id.New[id.Run](w.mint)}, store.EventCursor{}, 10)
		require.True(t, fault.Is(err, fault.NotFound), err)
	})
}

func TestEventCursor(t *testing.T) {
	t.Parallel()

	t.Run("every cursor comes back from its text", func(t *testing.T) {
		t.Parallel()
		rapid.Check(t, func(t *rapid.T) {
			c := store.EventCursor{Tx: rapid.Uint64().Draw(t, "tx"), Position: rapid.Int64Min(0).Draw(t, "position"), Ordinal: rapid.Int32Min(0).Draw(t, "ordinal")}
			parsed, err := store.ParseEventCursor("last_event_id", c.String())
			require.NoError(t, err)
			require.Equal(t, c, parsed)
		})
	})

	t.Run("nothing is the beginning", func(t *testing.T) {
		t.Parallel()
		require.Equal(t, store.EventCursor{}, must(store.ParseEventCursor("last_event_id", ""))(t))
	})

	for _, text := range []string{"1", "-", "1-", "-1", "a-1-1", "1-b-1", "1-2", "1-2-3-4", "01-2-1", "+1-2-1", "1- 2-1", "18446744073709551616-1-1", "1-9223372036854775808-1", "1-1-2147483648"} {
		t.Run(text+" is refused", func(t *testing.T) {
			t.Parallel()
			_, err := store.ParseEventCursor("last_event_id", text)
			require.True(t, fault.Is(err, fault.InvalidArgument), err)
			require.ErrorContains(t, err, "last_event_id")
		})
	}
}
