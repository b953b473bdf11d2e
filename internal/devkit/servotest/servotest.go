// Package servotest has the helpers of tests: a separate database for each test, cloned from
// a migrated template in tens of milliseconds, and a database clock that a test can set.
// Nothing outside of tests imports it.
package servotest

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"net/url"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/require"

	"go.arco.dev/servo/internal/devkit/devpg"
	"go.arco.dev/servo/internal/devkit/servotest/pgbouncer"
	"go.arco.dev/servo/internal/store"
)

// Database is a migrated database that belongs to one test.
type Database struct {
	*store.Store

	URL string
}

// DB gives the test a migrated database of its own. The cluster is the one that
// SERVO_DATABASE_URL names, or a private one for this test binary.
func DB(t testing.TB) *Database {
	t.Helper()
	url := Empty(t, template(t))
	options := store.Options{URL: url, MaxConns: 8}
	if ThroughPooler() {
		options.URL, options.Pooler = pgbouncer.Start(t, url, PoolerConnections), true
	}
	s, err := store.Open(t.Context(), options)
	require.NoError(t, err)
	t.Cleanup(s.Close)
	return &Database{Store: s, URL: url}
}

// PoolerConnections is how many connections a pooler has to a test's database: fewer than its
// clients, so that they are handed on.
const PoolerConnections = 5

// ThroughPooler reports whether stores and servers of tests go through a PgBouncer in transaction
// mode: if SERVO_TEST_PGBOUNCER is 1. The URL of a Database leads past it.
func ThroughPooler() bool { return os.Getenv("SERVO_TEST_PGBOUNCER") == "1" }

// Empty makes a database from a template ("template0" for a bare one) and gives its URL.
func Empty(t testing.TB, template string) string {
	t.Helper()
	admin := cluster(t)
	name := "servo_test_" + token()
	execute(t, admin, fmt.Sprintf(`CREATE DATABASE %s TEMPLATE %s STRATEGY FILE_COPY`, name, template))
	t.Cleanup(func() {
		// the test's context is over by now
		conn, err := pgx.Connect(context.Background(), admin)
		if err != nil {
			return // the cluster went away with the test
		}
		defer func() { _ = conn.Close(context.Background()) }()
		_, _ = conn.Exec(context.Background(), `DROP DATABASE IF EXISTS `+name+` WITH (FORCE)`)
	})
	return withDatabase(t, admin, name)
}

func token() string {
	raw := make([]byte, 8)
	_, _ = rand.Read(raw) // never fails: crypto/rand panics instead
	return hex.EncodeToString(raw)
}

func withDatabase(t testing.TB, admin, name string) string {
	t.Helper()
	u, err := url.Parse(admin)
	require.NoError(t, err)
	u.Path = "/" + name
	return u.String()
}

func execute(t testing.TB, url, sql string) {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), url)
	require.NoError(t, err)
	defer func() { _ = conn.Close(context.Background()) }()
	_, err = conn.Exec(t.Context(), sql)
	require.NoError(t, err)
}

// shared is the cluster of this test binary and its template: created once, by the first
// test that needs it. The watcher of devpg stops it when the binary ends, however it ends.
var shared struct { //nolint:gochecknoglobals // one cluster for a whole test binary
	clusterOnce, templateOnce sync.Once
	url, template             string
	clusterErr, templateErr   error
}

func cluster(t testing.TB) string {
	t.Helper()
	shared.clusterOnce.Do(func() {
		if shared.url = os.Getenv("SERVO_DATABASE_URL"); shared.url != "" {
			return
		}
		server, err := devpg.Start(context.Background(), devpg.Options{Memory: true, Settings: FastSettings()})
		if err != nil {
			shared.clusterErr = err
			return
		}
		shared.url = server.URL("postgres")
	})
	require.NoError(t, shared.clusterErr)
	return shared.url
}

// FastSettings are all that differs from PostgreSQL's own settings in a throwaway cluster,
// beside those of devpg: nothing waits for a disk, and there is room for tests that run
// several servers side by side. Fault tests start a cluster of their own without.
func FastSettings() map[string]string {
	return map[string]string{"fsync": "off", "max_connections": "600"}
}

// template is a migrated database in the cluster, made once for each set of migrations and
// shared by all test binaries.
func template(t testing.TB) string {
	t.Helper()
	admin := cluster(t)
	shared.templateOnce.Do(func() { shared.template, shared.templateErr = makeTemplate(admin) })
	require.NoError(t, shared.templateErr)
	return shared.template
}

func makeTemplate(admin string) (string, error) {
	ctx := context.Background()
	digest, err := store.SchemaDigest()
	if err != nil {
		return "", err
	}
	name := "servo_template_" + digest[:16]
	conn, err := pgx.Connect(ctx, admin)
	if err != nil {
		return "", err
	}
	defer func() { _ = conn.Close(ctx) }()
	// one test binary makes it, the others wait
	if _, err := conn.Exec(ctx, `SELECT pg_advisory_lock(hashtextextended('servo.template', 0))`); err != nil {
		return "", err
	}
	var exists bool
	if err := conn.QueryRow(ctx, `SELECT EXISTS (SELECT FROM pg_database WHERE datname = $1 AND datistemplate)`, name).Scan(&exists); err != nil || exists {
		return name, err
	}
	if _, err := conn.Exec(ctx, `DROP DATABASE IF EXISTS `+name); err != nil {
		return "", err
	}
	if _, err := conn.Exec(ctx, `CREATE DATABASE `+name+` TEMPLATE template0`); err != nil {
		return "", err
	}
	if err := migrate(ctx, admin, name); err != nil {
		return "", err
	}
	_, err = conn.Exec(ctx, `ALTER DATABASE `+name+` IS_TEMPLATE true`)
	return name, err
}

func migrate(ctx context.Context, admin, name string) error {
	u, err := url.Parse(admin)
	if err != nil {
		return err
	}
	u.Path = "/" + name
	s, err := store.Open(ctx, store.Options{URL: u.String()})
	if err != nil {
		return err
	}
	defer s.Close()
	_, err = s.Migrate(ctx)
	return err
}

// Login creates a login role with options such as NOINHERIT that is a member of the granted roles,
// and gives its URL. It is dropped when the test ends.
func (d *Database) Login(t testing.TB, options, grants string) string {
	t.Helper()
	u, err := url.Parse(d.URL)
	require.NoError(t, err)
	name := u.Path[1:] + "_" + options
	execute(t, d.URL, `CREATE ROLE "`+name+`" LOGIN `+options+`; GRANT `+grants+` TO "`+name+`"`)
	t.Cleanup(func() {
		conn, err := pgx.Connect(context.Background(), d.URL)
		if err != nil {
			return // the cluster went away with the test
		}
		defer func() { _ = conn.Close(context.Background()) }()
		_, _ = conn.Exec(context.Background(), `DROP ROLE "`+name+`"`) // it owns nothing
	})
	u.User = url.User(name)
	return u.String()
}

// SetClock stops the database's clock at a time, from the next statement on.
func (d *Database) SetClock(t testing.TB, now time.Time) {
	t.Helper()
	at := now.UTC().Format(time.RFC3339Nano)
	// The first time the function is replaced. Later a row is updated, which waits for no reader.
	execute(t, d.URL, `DO $$ BEGIN
		IF to_regclass('servo.test_clock') IS NOT NULL THEN
			UPDATE servo.test_clock SET now = '`+at+`';
			RETURN;
		END IF;
		CREATE TABLE servo.test_clock (now timestamptz NOT NULL);
		GRANT SELECT ON servo.test_clock TO servo_tenant, servo_engine, servo_owner;
		INSERT INTO servo.test_clock VALUES ('`+at+`');
		CREATE OR REPLACE FUNCTION servo.clock() RETURNS timestamptz LANGUAGE sql VOLATILE
			AS 'SELECT now FROM servo.test_clock';
	END $$`)
}

// Exec runs SQL as the owner of the database: to look behind the store's back.
func (d *Database) Exec(t testing.TB, sql string) {
	t.Helper()
	execute(t, d.URL, sql)
}

// Count runs a query that gives one number, as the owner of the database.
func (d *Database) Count(t testing.TB, sql string, args ...any) int {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), d.URL)
	require.NoError(t, err)
	defer func() { _ = conn.Close(context.Background()) }()
	var n int
	require.NoError(t, conn.QueryRow(t.Context(), sql, args...).Scan(&n))
	return n
}

// Texts runs a query that gives one text a row, as the owner of the database.
func (d *Database) Texts(t testing.TB, sql string, args ...any) []string {
	t.Helper()
	rows, err := d.Connect(t).Query(t.Context(), sql, args...)
	require.NoError(t, err)
	texts, err := pgx.CollectRows(rows, pgx.RowTo[string])
	require.NoError(t, err)
	return texts
}

// Connect is a connection of the owner's own, until the test ends.
func (d *Database) Connect(t testing.TB) *pgx.Conn {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), d.URL)
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close(context.Background()) })
	return conn
}

// SQLState is the PostgreSQL error code of an error, "" if it has none.
func SQLState(err error) string {
	if pg, ok := errors.AsType[*pgconn.PgError](err); ok {
		return pg.Code
	}
	return ""
}
