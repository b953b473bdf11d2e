package daemon

import (
	"context"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// Guard has the settings of a database that protect data and access.
type Guard struct {
	Login      string   // the role that servers log in with
	Superuser  bool     // it is above every policy
	BypassRLS  bool     // it passes by every policy
	Inherits   []string // roles whose rights it has without taking them
	Sees       int      // rows of tenants that it sees without taking a role
	Open       []string
	Roles      []string
	Fsync      bool
	FullPages  bool       // a page that was half written at a crash can be restored
	Archives   bool       // the write-ahead log is kept elsewhere
	Archived   *time.Time // when that last worked
	Failing    bool       // and has not worked since it was last tried
	Standbys   int        // that follow now, as far as the role may see
	Replicates bool       // a replication slot exists, as backup programs and standbys create
}

// guard asks PostgreSQL itself, as the role that logs in. Open are the tables of tenants whose
// policies do not bind all roles; Roles are the roles of transactions that bypass them.
const guard = `
SELECT current_user::text, me.rolsuper, me.rolbypassrls,
       ARRAY(SELECT r.rolname::text FROM pg_roles r
             WHERE  r.rolname IN ('servo_owner', 'servo_engine', 'servo_tenant') AND pg_has_role(current_user, r.oid, 'USAGE')
             ORDER  BY 1),
       ARRAY(SELECT c.relname::text FROM pg_class c
             WHERE  c.relnamespace = 'servo'::regnamespace AND c.relkind IN ('r', 'p') AND NOT (c.relrowsecurity AND c.relforcerowsecurity)
             AND    (c.relname = 'tenants' OR EXISTS (SELECT FROM pg_attribute a WHERE a.attrelid = c.oid AND a.attname = 'tenant_id' AND NOT a.attisdropped))
             ORDER  BY 1),
       ARRAY(SELECT r.rolname::text FROM pg_roles r
             WHERE  r.rolname IN ('servo_tenant', 'servo_engine', 'servo_owner')
             AND    (r.rolsuper OR r.rolbypassrls OR r.rolcanlogin OR r.rolname <> 'servo_owner' AND EXISTS (SELECT FROM pg_class c WHERE c.relowner = r.oid)
                     OR EXISTS (SELECT FROM pg_auth_members m WHERE m.member = r.oid))
             ORDER  BY 1),
       current_setting('fsync')::bool, current_setting('full_page_writes')::bool, current_setting('archive_mode') <> 'off', a.last_archived_time,
       coalesce(a.last_failed_time > a.last_archived_time OR a.last_failed_time IS NOT NULL AND a.last_archived_time IS NULL, false),
       (SELECT count(*) FROM pg_stat_replication), EXISTS (SELECT FROM pg_replication_slots WHERE slot_type = 'physical' AND active)
FROM   pg_roles me, pg_stat_archiver a
WHERE  me.rolname = current_user`

// ReadGuard looks at the database behind a URL.
func ReadGuard(ctx context.Context, url string) (g Guard, err error) {
	conn, err := pgx.Connect(ctx, url)
	if err != nil {
		return g, err
	}
	defer func() { _ = conn.Close(ctx) }() // what it was asked is answered
	err = conn.QueryRow(ctx, guard).Scan(&g.Login, &g.Superuser, &g.BypassRLS, &g.Inherits, &g.Open, &g.Roles, &g.Fsync, &g.FullPages, &g.Archives, &g.Archived, &g.Failing, &g.Standbys, &g.Replicates)
	if err != nil {
		return g, err
	}
	// What the catalogue promises is tried: without a role nothing is seen.
	err = conn.QueryRow(ctx, `SELECT count(*) FROM (SELECT FROM servo.tenants LIMIT 1) AS seen`).Scan(&g.Sees)
	if pg, ok := errors.AsType[*pgconn.PgError](err); ok && pg.Code == "42501" { // not allowed even to look
		err = nil
	}
	return g, err
}
