package chaos

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
)

// watchSQL lets the database itself note what was moved later than it was due: a lease by
// its expiry, renewals included, or its deadline; a retry by the end of its backoff; a
// ready task by when it became ready, if it waited for long.
const watchSQL = `
CREATE SCHEMA chaos;
CREATE TABLE chaos.late (what text NOT NULL, run_id uuid NOT NULL, task_id uuid NOT NULL, due_at timestamptz NOT NULL, moved_at timestamptz NOT NULL);

CREATE FUNCTION chaos.note_lease() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    renewed timestamptz;
    due     timestamptz;
BEGIN
    SELECT h.expires_at INTO renewed FROM servo.heartbeats h WHERE h.run_id = OLD.run_id AND h.task_id = OLD.task_id AND h.token = OLD.token;
    due := least(greatest(OLD.expires_at, renewed), OLD.deadline);
    IF servo.clock() > due THEN
        INSERT INTO chaos.late VALUES ('lease', OLD.run_id, OLD.task_id, due, servo.clock());
    END IF;
    RETURN NULL;
END $$;
CREATE TRIGGER note AFTER DELETE ON servo.leases FOR EACH ROW EXECUTE FUNCTION chaos.note_lease();

CREATE FUNCTION chaos.note_retry() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF servo.clock() > OLD.due_at THEN
        INSERT INTO chaos.late VALUES ('retry', OLD.run_id, OLD.task_id, OLD.due_at, servo.clock());
    END IF;
    RETURN NULL;
END $$;
CREATE TRIGGER note AFTER DELETE ON servo.retry_q FOR EACH ROW EXECUTE FUNCTION chaos.note_retry();

CREATE FUNCTION chaos.note_ready() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF servo.clock() > OLD.since + interval '500 ms' THEN
        INSERT INTO chaos.late VALUES ('ready', OLD.run_id, OLD.task_id, OLD.since, servo.clock());
    END IF;
    RETURN NULL;
END $$;
CREATE TRIGGER note AFTER DELETE ON servo.ready_q FOR EACH ROW EXECUTE FUNCTION chaos.note_ready();
`

// wait is a task that was moved later than it was due.
type wait struct {
	what      string
	run, task uuid.UUID
	span      span
	blamed    time.Duration // the longest part that no window excuses, locks of silent servers aside
	silences  int           // servers that fell silent in the meantime, each of which may have held locks
	alone     time.Duration // the longest part that not even their locks excuse
}

// over is what is blamed beyond the locks of silent servers.
func (w wait) over() time.Duration {
	return max(w.alone, w.blamed-time.Duration(w.silences)*silenceTimeout)
}

func (w wait) String() string {
	return fmt.Sprintf("%v without excuse, %d silent servers, %v without them: %s of task %s of run %s, due %s, moved after %v",
		w.blamed.Round(time.Millisecond), w.silences, w.alone.Round(time.Millisecond), w.what, w.task, w.run,
		w.span.from.UTC().Format("15:04:05.000"), w.span.to.Sub(w.span.from).Round(time.Millisecond))
}

// lateness is how late tasks of one kind were moved.
type lateness struct {
	count   int
	longest wait // by what is blamed
	worst   wait // by what is blamed beyond the locks of silent servers
}

// measureWaits finds the longest wait of each kind.
func measureWaits(ctx context.Context, conn *pgx.Conn, excused *windows) (map[string]lateness, error) {
	rows, err := conn.Query(ctx, `SELECT what, run_id, task_id, due_at, moved_at FROM chaos.late`)
	if err != nil {
		return nil, err
	}
	found := map[string]lateness{}
	var w wait
	_, err = pgx.ForEachRow(rows, []any{&w.what, (*[16]byte)(&w.run), (*[16]byte)(&w.task), &w.span.from, &w.span.to}, func() error {
		w.blamed, w.alone = excused.outside(w.span, causeSilence), excused.outside(w.span)
		w.silences = excused.touching(w.span, causeSilence)
		l := found[w.what]
		l.count++
		if w.blamed > l.longest.blamed {
			l.longest = w
		}
		if w.over() > l.worst.over() {
			l.worst = w
		}
		found[w.what] = l
		return nil
	})
	return found, err
}

// slow is when the machine is overloaded.
const slow = 200 * time.Millisecond

// probe looks again and again how fast the machine is: it connects and sends a query that
// needs nothing and waits for nothing. While that is slow, nothing can be asked of the
// reaper. It returns what nineteen of twenty looks took at most.
func (w *world) probe(ctx context.Context) (pace time.Duration) {
	var took []time.Duration
	for ; ctx.Err() == nil; pause(ctx, 100*time.Millisecond) {
		begun := time.Now()
		if err := w.look(ctx); err != nil {
			continue
		}
		took = append(took, time.Since(begun))
		if took[len(took)-1] > slow {
			w.excused.add(causeMachine, span{begun, time.Now()})
			w.journal.add("slow", "the machine took %v for nothing", took[len(took)-1].Round(time.Millisecond))
		}
	}
	slices.Sort(took)
	return took[len(took)*19/20]
}

func (w *world) look(ctx context.Context) error {
	conn, err := pgx.Connect(ctx, w.url)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close(context.WithoutCancel(ctx)) }()
	_, err = conn.Exec(ctx, `SELECT 1`)
	return err
}
