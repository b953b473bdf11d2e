package daemon

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"
)

// Transaction is an open transaction of a session.
type Transaction struct {
	Process int32  // of PostgreSQL, by which it can be ended
	Who     string // role, and the program if it sets application_name
	Age     time.Duration
	Idle    bool // no statement is running: its program is idle or hangs
	Holds   bool // rows that were deleted since cannot be removed, and the feed waits (backend_xmin)
}

// openTransactions asks PostgreSQL itself. A transaction of any database of the cluster holds the
// feed and vacuum back: they stop at the oldest that runs.
const openTransactions = `
SELECT pid, concat_ws(' ', usename::text, nullif(application_name, ''), nullif('of database ' || datname, 'of database ' || current_database())),
       extract(epoch FROM clock_timestamp() - xact_start)::float8, coalesce(state LIKE 'idle%', false), backend_xmin IS NOT NULL OR backend_xid IS NOT NULL
FROM   pg_stat_activity
WHERE  backend_type IN ('client backend', 'walsender') AND pid <> pg_backend_pid()
AND    xact_start < clock_timestamp() - make_interval(secs => $1)
ORDER  BY state LIKE 'idle%' DESC, xact_start
LIMIT  100`

// readStatistics lets the session see what other roles do, if the login role may: it inherits
// nothing, so that being a member is not enough.
const readStatistics = `
DO $$ BEGIN
    SET ROLE pg_read_all_stats;
EXCEPTION WHEN insufficient_privilege THEN
    NULL;
END $$`

// OpenTransactions are those of the database behind a URL that are older than a duration, the
// idle ones first. Blind reports that those of other roles are hidden.
func OpenTransactions(ctx context.Context, url string, older time.Duration) (open []Transaction, blind bool, err error) {
	conn, err := pgx.Connect(ctx, url)
	if err != nil {
		return nil, false, err
	}
	defer func() { _ = conn.Close(ctx) }() // what it was asked is answered
	if _, err := conn.Exec(ctx, readStatistics); err != nil {
		return nil, false, err
	}
	if err := conn.QueryRow(ctx, `SELECT NOT pg_has_role('pg_read_all_stats', 'USAGE')`).Scan(&blind); err != nil {
		return nil, false, err
	}
	rows, err := conn.Query(ctx, openTransactions, older.Seconds())
	if err != nil {
		return nil, false, err
	}
	open, err = pgx.CollectRows(rows, func(row pgx.CollectableRow) (t Transaction, err error) {
		var seconds float64
		err = row.Scan(&t.Process, &t.Who, &seconds, &t.Idle, &t.Holds)
		t.Age = time.Duration(seconds * float64(time.Second))
		return t, err
	})
	return open, blind, err
}
