package daemon

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"
)

// Transaction is one of somebody's session with the database.
type Transaction struct {
	Process int32  // of PostgreSQL, by which it can be ended
	Who     string // role, and the program if it says its name
	Age     time.Duration
	Idle    bool // nothing is being done in it: somebody has forgotten it, or hangs
}

// openTransactions asks PostgreSQL itself, as the role that logs in: the roles that Servo's
// transactions take may not see what others do.
const openTransactions = `
SELECT pid, concat_ws(' ', usename::text, nullif(application_name, '')), extract(epoch FROM clock_timestamp() - xact_start)::float8, state LIKE 'idle%'
FROM   pg_stat_activity
WHERE  datname = current_database() AND backend_type = 'client backend' AND pid <> pg_backend_pid()
AND    xact_start < clock_timestamp() - make_interval(secs => $1) AND state IS NOT NULL
ORDER  BY state LIKE 'idle%' DESC, xact_start
LIMIT  10`

// OpenTransactions are those of the database behind a URL that are older than so much, the
// idle ones first. Of other roles only a role that may read statistics sees any.
func OpenTransactions(ctx context.Context, url string, older time.Duration) ([]Transaction, error) {
	conn, err := pgx.Connect(ctx, url)
	if err != nil {
		return nil, err
	}
	defer func() { _ = conn.Close(ctx) }() // what it was asked is answered
	rows, err := conn.Query(ctx, openTransactions, older.Seconds())
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, func(row pgx.CollectableRow) (t Transaction, err error) {
		var seconds float64
		err = row.Scan(&t.Process, &t.Who, &seconds, &t.Idle)
		t.Age = time.Duration(seconds * float64(time.Second))
		return t, err
	})
}
