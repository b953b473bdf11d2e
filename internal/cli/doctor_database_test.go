package cli

import (
	"cmp"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"go.arco.dev/servo/internal/devkit/servotest"
	"go.arco.dev/servo/internal/devkit/servotest/pgbouncer"
	"go.arco.dev/servo/internal/store"
)

// TestProductionDatabase makes one thing wrong with a database at a time: the check that is named
// after it fails, and names the problem.
func TestProductionDatabase(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		check, message string
		spoil          func(t *testing.T, db *servotest.Database) string // returns the URL to look at
	}{
		"superuser": {"database role", "is a superuser", func(_ *testing.T, db *servotest.Database) string { return db.URL }},
		"inheriting role": {"database role", "inherits from servo_engine, servo_tenant", func(t *testing.T, db *servotest.Database) string {
			t.Helper()
			return db.Login(t, "INHERIT", "servo_engine, servo_tenant")
		}},
		"jit": {"database settings", "jit is on in engine transactions", func(t *testing.T, db *servotest.Database) string {
			t.Helper()
			db.Exec(t, `CREATE SCHEMA shadow; GRANT USAGE ON SCHEMA shadow TO PUBLIC;
				CREATE FUNCTION shadow.set_config(name text, value text, local boolean) RETURNS text LANGUAGE sql
				AS $$ SELECT pg_catalog.set_config(name, CASE name WHEN 'jit' THEN 'on' ELSE value END, local) $$`)
			return withSetting(t, db, "search_path = shadow, pg_catalog")
		}},
		"isolation": {"database settings", "transaction_isolation is serializable", func(t *testing.T, db *servotest.Database) string {
			t.Helper()
			return withSetting(t, db, "default_transaction_isolation = serializable")
		}},
		"asynchronous commits": {"database settings", "synchronous_commit is off", func(t *testing.T, db *servotest.Database) string {
			t.Helper()
			return withSetting(t, db, "synchronous_commit = off")
		}},
		"pooler without --pooler": {"database", "leads to a connection pooler", func(t *testing.T, db *servotest.Database) string {
			t.Helper()
			return pgbouncer.Start(t, db.URL, 2)
		}},
		"plain text to the database": {"database TLS", "permits plain text to standby.example", func(t *testing.T, db *servotest.Database) string {
			t.Helper()
			return withStandby(t, db)
		}},
		"no backup": {"backups", "none found", func(_ *testing.T, db *servotest.Database) string { return db.URL }},
		"long transaction": {"transactions", "has had one open for", func(t *testing.T, db *servotest.Database) string {
			t.Helper()
			_, err := db.Connect(t).Exec(t.Context(), `BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT FROM servo.tenants`)
			require.NoError(t, err)
			return db.URL
		}},
		"transactions of other roles are hidden": {"transactions", "", func(t *testing.T, db *servotest.Database) string {
			t.Helper()
			return db.Login(t, "NOINHERIT", "servo_engine, servo_tenant")
		}},
		"clock skew": {"clock", "off this machine's clock", func(t *testing.T, db *servotest.Database) string {
			t.Helper()
			db.SetClock(t, time.Now().Add(time.Hour))
			return db.URL
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := doctor{database: c.spoil(t, servotest.DB(t)), forProduction: true}
			found := d.databases(t.Context())
			for i := range found {
				if found[i].Check == "" {
					found[i].Check = "database"
				}
			}
			found = append(found, d.checkGuards(t.Context())...)
			require.True(t, slices.ContainsFunc(found, func(f finding) bool {
				return f.Check == c.check && f.Verdict == failed && strings.Contains(f.Message, c.message) && f.Remedy != ""
			}), "%+v", found)
		})
	}
}

// TestProductionLogin: a login role as the guide creates it passes.
func TestProductionLogin(t *testing.T) {
	t.Parallel()
	d := doctor{database: servotest.DB(t).Login(t, "NOINHERIT", "servo_engine, servo_tenant"), forProduction: true}
	passes := make(map[string]verdict)
	for _, f := range d.checkGuards(t.Context()) {
		passes[f.Check] = f.Verdict
	}
	for _, check := range []string{"database role", "row-level security", "database TLS", "database settings", "clock"} {
		require.Equal(t, passed, passes[check], check)
	}
}

func TestSettled(t *testing.T) {
	t.Parallel()
	good := store.Settings{JIT: "off", Isolation: "read committed", ReadOnly: "off", SynchronousCommit: "remote_apply"}
	require.Equal(t, passed, settled(map[string]store.Settings{"engine": good, "tenant": good}).Verdict)
	for name, spoil := range map[string]func(*store.Settings){
		"jit":       func(s *store.Settings) { s.JIT = "on" },
		"isolation": func(s *store.Settings) { s.Isolation = "repeatable read" },
		"read only": func(s *store.Settings) { s.ReadOnly = "on" },
		"commits":   func(s *store.Settings) { s.SynchronousCommit = "off" },
	} {
		bad := good
		spoil(&bad)
		f := settled(map[string]store.Settings{"engine": good, "tenant": bad})
		require.Equal(t, failed, f.Verdict, name)
		require.NotEmpty(t, f.Remedy, name)
	}
}

// withSetting sets something for all new sessions of the database.
func withSetting(t *testing.T, db *servotest.Database, setting string) string {
	t.Helper()
	db.Exec(t, `DO $$ BEGIN EXECUTE format('ALTER DATABASE %I SET `+setting+`', current_database()); END $$`)
	return db.URL
}

// withStandby names a second host, as URLs for failovers do.
func withStandby(t *testing.T, db *servotest.Database) string {
	t.Helper()
	u, err := url.Parse(db.URL)
	require.NoError(t, err)
	query := u.Query()
	query.Set("host", cmp.Or(query.Get("host"), u.Hostname())+",standby.example")
	query.Set("port", cmp.Or(query.Get("port"), u.Port(), "5432")+",5432")
	query.Set("sslmode", "disable")
	u.Host, u.RawQuery = "", query.Encode()
	return u.String()
}
