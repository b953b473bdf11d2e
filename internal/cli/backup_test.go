package cli

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"go.arco.dev/servo/internal/daemon"
	"go.arco.dev/servo/internal/devkit/servotest"
)

func TestBackupCheck(t *testing.T) {
	t.Parallel()
	whole := daemon.BackupRole{Login: "backup", AllRows: true, Replicates: true, HasSchema: true}

	for name, c := range map[string]struct {
		lacks   func(b *daemon.BackupRole)
		check   string
		verdict verdict
		remedy  string
	}{
		"row-level security": {func(b *daemon.BackupRole) { b.AllRows = false }, "rows", failed, "BYPASSRLS"},
		"tables":             {func(b *daemon.BackupRole) { b.Unreadable = []string{"runs", "tasks"} }, "tables", failed, "GRANT pg_read_all_data TO backup"},
		"roles":              {func(b *daemon.BackupRole) { b.Missing = []string{"servo_owner"} }, "roles", failed, "pg_dumpall --roles-only"},
		"schema":             {func(b *daemon.BackupRole) { b.HasSchema = false }, "schema", failed, "--database"},
		"replication":        {func(b *daemon.BackupRole) { b.Replicates = false }, "base backups", doubted, "REPLICATION"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := whole
			c.lacks(&b)
			for _, f := range checkBackupRole(b) {
				if f.Check == c.check {
					require.Equal(t, c.verdict, f.Verdict)
					require.Contains(t, f.Remedy, c.remedy)
				} else {
					require.Equal(t, passed, f.Verdict, f.Check)
				}
			}
			require.Equal(t, c.verdict == doubted, diagnosisOf(checkBackupRole(b)).Healthy)
		})
	}

	t.Run("a superuser of a migrated database can", func(t *testing.T) {
		t.Parallel()
		report := checkBackup(t.Context(), servotest.DB(t).URL, time.Now())
		require.True(t, report.Healthy, report)
		require.Len(t, report.Checks, 6)
	})

	t.Run("an empty database is not one to back up", func(t *testing.T) {
		t.Parallel()
		require.False(t, checkBackup(t.Context(), servotest.Empty(t, "template0"), time.Now()).Healthy)
	})
}
