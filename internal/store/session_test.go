package store_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"go.arco.dev/servo/internal/base/id"
	"go.arco.dev/servo/internal/devkit/servotest"
	"go.arco.dev/servo/internal/store"
)

// TestConnectionsComeBackClean: role and tenant belong to a transaction. Whatever ends it,
// the next user of the connection starts without a role and tenant.
func TestConnectionsComeBackClean(t *testing.T) {
	t.Parallel()
	type body func(ctx context.Context, tx *Tx) error
	tenant := id.New[id.Tenant](id.NewMinter(time.Date(2026, 5, 1, 0, 0, 0, 0, time.UTC)))

	enter := map[string]func(*store.Store, context.Context, body) error{
		"Engine":   func(s *store.Store, ctx context.Context, fn body) error { return s.Engine(ctx, fn) },
		"Snapshot": func(s *store.Store, ctx context.Context, fn body) error { return s.Snapshot(ctx, fn) },
		"Tenant":   func(s *store.Store, ctx context.Context, fn body) error { return s.Tenant(ctx, tenant.String(), fn) },
	}
	roles := map[string]string{"Engine": "servo_engine", "Snapshot": "servo_engine", "Tenant": "servo_tenant"}
	failed := errors.New("failed")
	endings := map[string]func(t *testing.T, run func(context.Context, body) error, check body){
		"success": func(t *testing.T, run func(context.Context, body) error, check body) {
			t.Helper()
			require.NoError(t, run(t.Context(), check))
		},
		"an error": func(t *testing.T, run func(context.Context, body) error, check body) {
			t.Helper()
			require.ErrorIs(t, run(t.Context(), func(ctx context.Context, tx *Tx) error {
				return errors.Join(check(ctx, tx), failed)
			}), failed)
		},
		"an error of the database": func(t *testing.T, run func(context.Context, body) error, check body) {
			t.Helper()
			err := run(t.Context(), func(ctx context.Context, tx *Tx) error {
				require.NoError(t, check(ctx, tx))
				_, err := tx.Raw().Exec(ctx, `SELECT 1/0`)
				return err
			})
			require.Equal(t, "22012", servotest.SQLState(err))
		},
		"a panic": func(t *testing.T, run func(context.Context, body) error, check body) {
			t.Helper()
			require.PanicsWithValue(t, "lost", func() {
				_ = run(t.Context(), func(ctx context.Context, tx *Tx) error {
					require.NoError(t, check(ctx, tx))
					panic("lost")
				})
			})
		},
		"a cancelled context": func(t *testing.T, run func(context.Context, body) error, check body) {
			t.Helper()
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			require.ErrorIs(t, run(ctx, func(ctx context.Context, tx *Tx) error {
				require.NoError(t, check(ctx, tx))
				cancel()
				_, err := tx.Clock(ctx)
				return err
			}), context.Canceled)
		},
		"a context cancelled before the commit": func(t *testing.T, run func(context.Context, body) error, check body) {
			t.Helper()
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			require.ErrorIs(t, run(ctx, func(ctx context.Context, tx *Tx) error {
				defer cancel()
				return check(ctx, tx)
			}), context.Canceled)
		},
	}

	url := servotest.DB(t).URL
	for name, in := range enter {
		for ending, end := range endings {
			t.Run(name+" that ends with "+ending, func(t *testing.T) {
				t.Parallel()
				s, err := store.Open(t.Context(), store.Options{URL: url, MaxConns: 1})
				require.NoError(t, err)
				defer s.Close()
				var owner string
				require.NoError(t, s.Pool().QueryRow(t.Context(), `SELECT current_user`).Scan(&owner))

				end(t, func(ctx context.Context, fn body) error { return in(s, ctx, fn) }, func(ctx context.Context, tx *Tx) error {
					var role, set, jit string
					require.NoError(t, tx.Raw().QueryRow(ctx, `SELECT current_user, coalesce(current_setting('servo.tenant', true), ''), current_setting('jit')`).Scan(&role, &set, &jit))
					require.Equal(t, "off", jit)
					require.Equal(t, roles[name], role)
					require.Equal(t, name == "Tenant", set == tenant.String())
					return nil
				})
				requireClean(t, s, owner)
			})
		}
	}
}

// requireClean takes the only connection of the pool and looks at all that a transaction sets.
func requireClean(t *testing.T, s *store.Store, owner string) {
	t.Helper()
	conn, err := s.Pool().Acquire(t.Context())
	require.NoError(t, err)
	defer conn.Release()
	require.EqualValues(t, 1, s.Pool().Stat().TotalConns())
	require.EqualValues(t, 'I', conn.Conn().PgConn().TxStatus(), "no transaction is open")
	var user, tenant, seqscan, planCache, jit string
	require.NoError(t, conn.QueryRow(t.Context(), `
		SELECT current_user, coalesce(current_setting('servo.tenant', true), ''), current_setting('enable_seqscan'), current_setting('plan_cache_mode'), current_setting('jit')`).
		Scan(&user, &tenant, &seqscan, &planCache, &jit))
	require.Equal(t, []string{owner, "", "on", "auto", "on"}, []string{user, tenant, seqscan, planCache, jit})
}

// TestRolesComeWithoutJIT: planner settings make estimated costs meaningless, and PostgreSQL
// would compile every statement for seconds. Each statement that enters a role turns it off.
func TestRolesComeWithoutJIT(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("queries/*.sql")
	require.NoError(t, err)
	entrances := 0
	for _, file := range files {
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		for _, query := range strings.Split(string(text), "-- name: ")[1:] {
			if !strings.Contains(query, "set_config('role'") {
				continue
			}
			entrances++
			name, _, _ := strings.Cut(query, " ")
			require.Contains(t, query, "set_config('jit', 'off', true)", name)
		}
	}
	require.GreaterOrEqual(t, entrances, 5)
}

func TestSnapshot(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	a := w.account(t, "acme")
	require.ErrorIs(t, w.Snapshot(t.Context(), func(ctx context.Context, tx *Tx) error {
		count := func() (n int) {
			require.NoError(t, tx.Raw().QueryRow(ctx, `SELECT count(*) FROM servo.runs`).Scan(&n))
			return n
		}
		require.Zero(t, count())
		w.newRun(t, a, nil, nil)
		require.Zero(t, count(), "it sees one moment")
		_, err := tx.Raw().Exec(ctx, `SELECT 1 FROM servo.runs FOR UPDATE`)
		require.Equal(t, "25006", servotest.SQLState(err), "it is read-only")
		return errUndo
	}), errUndo)
}
