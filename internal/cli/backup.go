package cli

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"go.arco.dev/servo/internal/base/fault"
	"go.arco.dev/servo/internal/daemon"
)

// newBackup is about copies of the database.
func newBackup() *cobra.Command {
	return group("backup", "Check that the database can be backed up", newBackupCheck())
}

func newBackupCheck() *cobra.Command {
	var (
		database string
		form     output
	)
	cmd := &cobra.Command{
		Use:   "check",
		Short: "Check that a role can back up the database",
		Long: `Check that the role of the database URL can back up the database: it reads all rows under
row-level security and all tables, it may take base backups, the roles that a dump names exist,
and the write-ahead log is archived or followed.

A dump of a role that row-level security binds fails or lacks rows. PostgreSQL does not record
base backups, dumps and copies of disks: when the last one was made is not checked.

Exits with 1 if a backup would fail.`,
		Example: `  servo admin backup check --database postgres://backup@localhost/servo`,
		Args:    exactly(0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			url, err := databaseURL(cmd.Context(), database)
			if err != nil {
				return err
			}
			report := checkBackup(cmd.Context(), url, time.Now())
			if err := render(cmd.OutOrStdout(), form, report, report.table); err != nil {
				return err
			}
			if !report.Healthy {
				return withExit(exitFailed, fault.New(fault.Conflict, "a backup would fail", fault.Remedy("see the list above")))
			}
			return nil
		},
	}
	addDatabase(cmd, &database)
	addOutput(cmd, &form)
	return cmd
}

// checkBackup checks the database with the role of the backup.
func checkBackup(ctx context.Context, url string, now time.Time) diagnosis {
	ctx, cancel := context.WithTimeout(ctx, doctorPatience)
	defer cancel()
	role, err := daemon.ReadBackupRole(ctx, url)
	if err != nil {
		return diagnosisOf(under("database", failing(err)))
	}
	found := checkBackupRole(role)
	if !role.HasSchema {
		return diagnosisOf(found)
	}
	guard, err := daemon.ReadGuard(ctx, url)
	if err != nil {
		return diagnosisOf(append(found, under("write-ahead log", failing(err))...))
	}
	archive := checkArchive(guard, now)
	archive.Check = "write-ahead log"
	if archive.Verdict == failed && !guard.Failing { // a dump needs none
		archive.Verdict = doubted
	}
	return diagnosisOf(append(found, archive))
}

// checkBackupRole lists what the role and the cluster lack for a backup.
func checkBackupRole(b daemon.BackupRole) []finding {
	schema := finding{Check: "schema", Verdict: passed, Message: "the database has the schema servo"}
	if !b.HasSchema {
		schema.Verdict, schema.Message, schema.Remedy = failed, "the database has no schema servo", "name the database of the servers in --database"
	}
	roles := finding{Check: "roles", Verdict: passed, Message: "servo_owner, servo_engine and servo_tenant exist; a dump does not contain them: dump them with pg_dumpall --roles-only"}
	if len(b.Missing) > 0 {
		roles.Verdict, roles.Message = failed, "missing in this cluster: "+strings.Join(b.Missing, ", ")
		roles.Remedy = "restore the roles with pg_dumpall --roles-only before the dump, or run servo migrate up"
	}
	rows := finding{Check: "rows", Verdict: passed, Message: fmt.Sprintf("row-level security does not bind %s", clean(b.Login))}
	if !b.AllRows {
		rows.Verdict, rows.Message = failed, fmt.Sprintf("row-level security binds %s: pg_dump fails or omits rows", clean(b.Login))
		rows.Remedy = "back up with a role of its own: CREATE ROLE backup LOGIN BYPASSRLS REPLICATION"
	}
	tables := finding{Check: "tables", Verdict: passed, Message: fmt.Sprintf("%s may read all tables and sequences", clean(b.Login))}
	if n := len(b.Unreadable); n > 0 {
		tables.Verdict, tables.Message = failed, fmt.Sprintf("%s may not read %s, %s among them", clean(b.Login), count(n, "table"), clean(b.Unreadable[0]))
		tables.Remedy = "GRANT pg_read_all_data TO " + clean(b.Login)
	}
	base := finding{Check: "base backups", Verdict: passed, Message: fmt.Sprintf("%s may take them with pg_basebackup", clean(b.Login))}
	if !b.Replicates {
		base.Verdict, base.Message = doubted, fmt.Sprintf("%s may not take them", clean(b.Login))
		base.Remedy = "ALTER ROLE " + clean(b.Login) + " REPLICATION, unless another role takes them"
	}
	return []finding{schema, roles, rows, tables, base}
}

// diagnosisOf is a report that is healthy if nothing has failed.
func diagnosisOf(checks []finding) diagnosis {
	report := diagnosis{Healthy: true, Checks: checks}
	for _, f := range checks {
		report.Healthy = report.Healthy && f.Verdict != failed
	}
	return report
}
