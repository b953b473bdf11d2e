package daemon

import (
	"context"

	"github.com/jackc/pgx/v5"
)

// BackupRole is what a role needs to read for a backup of a database.
type BackupRole struct {
	Login      string
	AllRows    bool     // row-level security does not bind it
	Replicates bool     // it may take base backups
	HasSchema  bool     // the database has the schema servo
	Unreadable []string // tables and sequences of the schema that it may not read
	Missing    []string // roles that a dump names and this cluster does not have
}

const backupRole = `
SELECT current_user::text, me.rolsuper OR me.rolbypassrls, me.rolsuper OR me.rolreplication,
       EXISTS (SELECT FROM pg_namespace n WHERE n.nspname = 'servo'),
       ARRAY(SELECT c.relname::text FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
             WHERE  n.nspname = 'servo' AND c.relkind IN ('r', 'p', 'S')
             AND    NOT (has_schema_privilege(n.oid, 'USAGE')
                         AND CASE WHEN c.relkind = 'S' THEN has_sequence_privilege(c.oid, 'SELECT') ELSE has_table_privilege(c.oid, 'SELECT') END)
             ORDER  BY 1),
       ARRAY(SELECT w FROM unnest(ARRAY['servo_engine', 'servo_owner', 'servo_tenant']) AS w
             WHERE  NOT EXISTS (SELECT FROM pg_roles r WHERE r.rolname = w) ORDER BY 1)
FROM   pg_roles me
WHERE  me.rolname = current_user`

// ReadBackupRole looks at the database behind a URL as the role that logs in with it.
func ReadBackupRole(ctx context.Context, url string) (b BackupRole, err error) {
	conn, err := pgx.Connect(ctx, url)
	if err != nil {
		return b, err
	}
	defer func() { _ = conn.Close(ctx) }() // what it was asked is answered
	err = conn.QueryRow(ctx, backupRole).Scan(&b.Login, &b.AllRows, &b.Replicates, &b.HasSchema, &b.Unreadable, &b.Missing)
	return b, err
}
