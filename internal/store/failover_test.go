package store_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"go.arco.dev/servo/internal/base/event"
	"go.arco.dev/servo/internal/base/id"
	"go.arco.dev/servo/internal/devkit/devpg"
	"go.arco.dev/servo/internal/devkit/servotest"
	"go.arco.dev/servo/internal/domain/tenant"
	"go.arco.dev/servo/internal/store"
)

// failover is a primary with a standby, and servers that know the addresses of both.
type failover struct {
	primary, standby *devpg.Server
	servers          []*store.Store

	mu      sync.Mutex
	tenants int
	tokens  map[int64]int
	places  map[string]map[string]bool // of the feed: which events were there
}

func newFailover(t *testing.T) *failover {
	t.Helper()
	ctx := t.Context()
	start := func(dir string) *devpg.Server {
		server, err := devpg.Start(ctx, devpg.Options{Dir: dir, Settings: map[string]string{"shared_buffers": "32MB", "max_connections": "60", "fsync": "off"}})
		require.NoError(t, err)
		t.Cleanup(func() { _ = server.Stop(context.Background()) })
		return server
	}
	dir, err := os.MkdirTemp("", "servo-failover-") // PostgreSQL's user must pass through it
	require.NoError(t, err)
	require.NoError(t, os.Chmod(dir, 0o755)) //nolint:gosec // likewise
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	f := &failover{tokens: map[int64]int{}, places: map[string]map[string]bool{}}
	f.primary = start(filepath.Join(dir, "primary"))
	s, err := store.Open(ctx, store.Options{URL: f.primary.URL("")})
	require.NoError(t, err)
	_, err = s.Migrate(ctx)
	require.NoError(t, err)
	require.NoError(t, s.Prepare(ctx))
	s.Close()
	require.NoError(t, f.primary.BaseBackup(ctx, filepath.Join(dir, "standby")))
	f.standby = start(filepath.Join(dir, "standby"))
	for range 3 {
		s, err := store.Open(ctx, store.Options{MaxConns: 3, URL: fmt.Sprintf(
			"postgres://servo@%s,%s/postgres?sslmode=disable&target_session_attrs=read-write&connect_timeout=5", f.primary.TCPAddr(), f.standby.TCPAddr())})
		require.NoError(t, err)
		t.Cleanup(s.Close)
		f.servers = append(f.servers, s)
	}
	return f
}

func (*failover) on(t *testing.T, server *devpg.Server, sql string) (answer string) {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), server.URL(""))
	require.NoError(t, err)
	defer func() { _ = conn.Close(context.Background()) }()
	rows, err := conn.Query(t.Context(), sql)
	require.NoError(t, err)
	answers, err := pgx.CollectRows(rows, pgx.RowTo[string])
	require.NoError(t, err)
	if len(answers) > 0 {
		answer = answers[0]
	}
	return answer
}

func (f *failover) until(t *testing.T, server *devpg.Server, want, sql string) {
	t.Helper()
	for f.on(t, server, sql) != want {
		require.NoError(t, t.Context().Err())
	}
}

// work gives out tokens and records events, on all servers at once.
func (f *failover) work(t *testing.T, rounds int) {
	t.Helper()
	var done sync.WaitGroup
	for _, s := range f.servers {
		done.Go(func() {
			for range rounds {
				if err := f.round(t.Context(), s); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	done.Wait()
	found, err := f.servers[0].Feed(t.Context(), event.Position{Epoch: 1}, 10_000, false)
	require.NoError(t, err)
	for _, e := range found {
		if f.places[e.At.String()] == nil {
			f.places[e.At.String()] = map[string]bool{}
		}
		f.places[e.At.String()][e.Stream] = true
	}
}

func (f *failover) round(ctx context.Context, s *store.Store) error {
	f.mu.Lock()
	f.tenants++
	name := fmt.Sprintf("tenant-%d", f.tenants)
	f.mu.Unlock()
	var token int64
	err := s.Engine(ctx, func(ctx context.Context, tx *Tx) error {
		now, err := tx.Clock(ctx)
		if err != nil {
			return err
		}
		made := id.Of[id.Tenant](uuid.New())
		if err := tx.InsertTenant(ctx, made, name, 1, tenant.DefaultQuotas(), now); err != nil {
			return err
		}
		if err := tx.AppendEntityEvents(ctx, event.Event{Tenant: made, Subject: made.UUID, Version: 1, At: now, Body: tenant.Created{Name: name}}); err != nil {
			return err
		}
		return tx.Raw().QueryRow(ctx, `SELECT nextval('servo.fencing_token')`).Scan(&token)
	})
	f.mu.Lock()
	defer f.mu.Unlock()
	f.tokens[token]++
	return err
}

// TestFailover: servers connect by themselves to a standby that is promoted after it has missed
// commits. Its sequences and transaction ids are those of the moment when it was cut off; no
// fencing token and no place of the feed may be given out again.
func TestFailover(t *testing.T) {
	t.Parallel()
	f := newFailover(t)
	f.work(t, 20)
	at := f.on(t, f.primary, `SELECT pg_current_wal_flush_lsn()::text`)
	f.until(t, f.standby, "true", `SELECT (pg_last_wal_replay_lsn() >= '`+at+`'::pg_lsn)::text`)

	f.on(t, f.standby, `ALTER SYSTEM SET primary_conninfo = ''`)
	f.on(t, f.standby, `SELECT pg_reload_conf()::text`)
	f.until(t, f.standby, "0", `SELECT count(*)::text FROM pg_stat_wal_receiver`)
	f.work(t, 20) // what no other server will ever know
	at = f.on(t, f.primary, `SELECT pg_current_wal_flush_lsn()::text`)
	require.Equal(t, "true", f.on(t, f.standby, `SELECT (pg_last_wal_receive_lsn() < '`+at+`'::pg_lsn)::text`))

	now, cancel := context.WithCancel(t.Context())
	cancel()
	_ = f.primary.Stop(now) // at once
	require.Equal(t, "true", f.on(t, f.standby, `SELECT pg_promote()::text`))
	f.work(t, 20)

	require.Len(t, f.tokens, 3*3*20)
	for token, times := range f.tokens {
		require.Equal(t, 1, times, "token %d", token)
	}
	for place, events := range f.places {
		require.Len(t, events, 1, "place %s", place)
	}
	require.Equal(t, "2", f.on(t, f.standby, `SELECT count(*)::text FROM servo.feed_epochs`), "one server raises for all")
}

// TestClusterBehindPooler: a pooler connects to the promoted standby by itself, and the
// connections of servers stay. Then each transaction looks.
func TestClusterBehindPooler(t *testing.T) {
	t.Parallel()
	db := servotest.DB(t)
	s, err := store.Open(t.Context(), store.Options{URL: db.URL, MaxConns: 2, Pooler: true})
	require.NoError(t, err)
	defer s.Close()
	_, err = s.CheckFeedEpoch(t.Context())
	require.NoError(t, err)
	for name, transaction := range map[string]func(ctx context.Context, fn func(ctx context.Context, tx *Tx) error) error{
		"Engine": s.Engine,
		"a call": func(ctx context.Context, fn func(ctx context.Context, tx *Tx) error) error {
			claim := s.CallTx(store.Call{Key: "k"})
			defer claim.Abandon(ctx)
			return s.Engine(claim.With(ctx), fn)
		},
	} {
		before := db.Count(t, `SELECT max(epoch) FROM servo.feed_epochs`)
		token := db.Count(t, `SELECT last_value FROM servo.fencing_token`)
		db.Exec(t, `UPDATE servo.feed_epochs SET cluster = 'another/00000001' WHERE epoch = (SELECT max(epoch) FROM servo.feed_epochs)`)
		s.KnowCluster("another/00000001")
		tries := 0
		require.NoError(t, transaction(t.Context(), func(ctx context.Context, tx *Tx) error {
			tries++
			var epochs, raised int
			require.NoError(t, tx.Raw().QueryRow(ctx, `SELECT max(epoch), (SELECT last_value FROM servo.fencing_token) FROM servo.feed_epochs`).Scan(&epochs, &raised))
			require.Equal(t, before+1, epochs, name)
			require.GreaterOrEqual(t, raised, token)
			return nil
		}))
		require.Equal(t, 1, tries, "nothing is done before tokens and epoch were raised")
	}
}
