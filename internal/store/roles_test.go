package store_test

import (
	"context"
	"net/url"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"go.arco.dev/servo/internal/base/fault"
	"go.arco.dev/servo/internal/base/id"
	"go.arco.dev/servo/internal/devkit/servotest"
	"go.arco.dev/servo/internal/store"
)

// TestLogin: servers log in with a role that owns nothing and inherits nothing. What it does
// without taking a role is refused by PostgreSQL, whatever the statement is.
func TestLogin(t *testing.T) {
	t.Parallel()
	const insufficientPrivilege = "42501"
	run := func(t *testing.T, at, sql string) error {
		t.Helper()
		conn, err := pgx.Connect(t.Context(), at)
		require.NoError(t, err)
		defer func() { _ = conn.Close(context.Background()) }()
		_, err = conn.Exec(t.Context(), sql)
		return err
	}
	count := func(t *testing.T, at, sql string) (n int) {
		t.Helper()
		conn, err := pgx.Connect(t.Context(), at)
		require.NoError(t, err)
		defer func() { _ = conn.Close(context.Background()) }()
		require.NoError(t, conn.QueryRow(t.Context(), sql).Scan(&n))
		return n
	}
	// login makes a role and an empty database of its own, and gives both its URL and the superuser's.
	login := func(t *testing.T, options string) (own, admin string) {
		t.Helper()
		admin = servotest.Empty(t, "template0")
		u, err := url.Parse(admin)
		require.NoError(t, err)
		database := u.Path[1:]
		u.User = url.User(database)
		require.NoError(t, run(t, admin, `CREATE ROLE `+database+` LOGIN `+options))
		t.Cleanup(func() {
			conn, err := pgx.Connect(context.Background(), admin)
			if err != nil {
				return
			}
			defer func() { _ = conn.Close(context.Background()) }()
			_, _ = conn.Exec(context.Background(), `ALTER DATABASE `+database+` OWNER TO CURRENT_USER; DROP OWNED BY `+database+`; DROP ROLE `+database)
		})
		return u.String(), admin
	}
	open := func(t *testing.T, at string) *store.Store {
		t.Helper()
		s, err := store.Open(t.Context(), store.Options{URL: at, MaxConns: 4})
		require.NoError(t, err)
		t.Cleanup(s.Close)
		return s
	}
	const owned = `SELECT count(*) FROM pg_class WHERE relnamespace = 'servo'::regnamespace AND relkind IN ('r', 'p', 'v', 'S') AND relowner <> 'servo_owner'::regrole`

	t.Run("it migrates, works, and sees and changes nothing without a role", func(t *testing.T) {
		t.Parallel()
		own, admin := login(t, "NOINHERIT CREATEROLE")
		u, err := url.Parse(own)
		require.NoError(t, err)
		require.NoError(t, run(t, admin, `ALTER DATABASE `+u.Path[1:]+` OWNER TO `+u.User.Username()))
		s := open(t, own)
		applied, err := s.Migrate(t.Context())
		require.NoError(t, err)
		require.Positive(t, applied)
		require.Zero(t, count(t, admin, owned))
		require.NoError(t, s.Prepare(t.Context()))
		_, err = s.TakeDuty(t.Context(), "admission", "a", time.Minute)
		require.NoError(t, err)
		_, err = s.CheckFeedEpoch(t.Context())
		require.NoError(t, err)
		require.NoError(t, s.Tenant(t.Context(), id.New[id.Tenant](id.NewMinter(time.Now())).String(), func(ctx context.Context, tx *store.Tx) error {
			_, err := tx.Clock(ctx)
			return err
		}))

		require.NoError(t, run(t, admin, `INSERT INTO servo.tenants (id, name, version, created_at) VALUES (gen_random_uuid(), 'acme', 1, now())`))
		require.Zero(t, count(t, own, `SELECT count(*) FROM unnest(ARRAY['servo_owner', 'servo_engine', 'servo_tenant']) AS r(role) WHERE pg_has_role(r.role, 'USAGE')`))
		for _, sql := range []string{
			`SELECT FROM servo.tenants`, `UPDATE servo.tenants SET name = 'x'`, `DELETE FROM servo.run_event_rows`, `INSERT INTO servo.duties (name) VALUES ('x')`,
			`DROP TABLE servo.leases`, `CREATE TABLE servo.mine (n int)`, `SELECT servo.raise_fencing_token()`,
		} {
			require.Equal(t, insufficientPrivilege, servotest.SQLState(run(t, own, sql)), sql)
		}
		require.NoError(t, run(t, own, `SET ROLE servo_engine; SELECT FROM servo.tenants`))
		again, err := s.Migrate(t.Context())
		require.NoError(t, err)
		require.Zero(t, again)

		// What an earlier version left to the login role.
		require.NoError(t, run(t, admin, `ALTER SCHEMA servo OWNER TO `+u.User.Username()+`; ALTER TABLE servo.migration_checksums OWNER TO `+u.User.Username()+
			`; ALTER TABLE servo.runs OWNER TO `+u.User.Username()+`; ALTER FUNCTION servo.clock() OWNER TO `+u.User.Username()+
			`; ALTER SEQUENCE servo.event_position OWNER TO `+u.User.Username()))
		_, err = s.Migrate(t.Context())
		require.NoError(t, err)
		require.Zero(t, count(t, admin, owned))
		require.NoError(t, s.Prepare(t.Context()), "functions work for their new owner")
	})

	t.Run("a role that may not own the schema gets the missing grants", func(t *testing.T) {
		t.Parallel()
		own, _ := login(t, "NOINHERIT")
		_, err := open(t, own).Migrate(t.Context())
		require.True(t, fault.Is(err, fault.Forbidden), err)
		require.ErrorContains(t, err, "may not migrate")
	})
}
