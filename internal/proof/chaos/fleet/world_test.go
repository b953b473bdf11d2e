package fleet

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/types/known/structpb"

	"go.arco.dev/servo/client"
	servov1 "go.arco.dev/servo/gen/servo/v1"
	"go.arco.dev/servo/internal/devkit/devpg"
	"go.arco.dev/servo/internal/devkit/servotest/ledger"
	"go.arco.dev/servo/internal/domain/asset"
	"go.arco.dev/servo/internal/store"
)

// Sizes of the fleet.
const (
	servers = 3
	workers = 4
)

// tenants own the runs.
func tenants() []string { return []string{"acme", "brick"} }

// world is the installation, and what was done to it.
type world struct {
	seed     uint64
	dir      string // ledgers and logs
	url      string // of the database
	postgres *devpg.Server
	servers  []*process
	workers  []*process
	lines    []*line // to the servers
	clients  []*client.Client
	journal  *journal
	crashing sync.Mutex

	mu      sync.Mutex
	holders []int // the servers that have admitted, in turn
}

const database = "fleet"

// newWorld starts PostgreSQL, the servers and the workers, and deploys.
func newWorld(t *testing.T, seed uint64) *world {
	t.Helper()
	postgres, err := devpg.Start(t.Context(), devpg.Options{Settings: map[string]string{"shared_buffers": "64MB"}})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, postgres.Stop(context.Background())) })
	w := &world{seed: seed, dir: t.TempDir(), url: postgres.URL(database), postgres: postgres, journal: newJournal()}
	w.migrate(t)
	var addresses []string
	for range servers {
		l := &line{relay: newRelay(t)}
		w.lines = append(w.lines, l)
		addresses = append(addresses, l.address())
	}
	var starting sync.WaitGroup
	failed := make(chan error, servers+workers)
	begin := func(p *process) {
		t.Cleanup(p.end)
		starting.Go(func() { failed <- p.start() })
	}
	for i, l := range w.lines {
		p := &process{
			name: fmt.Sprintf("s%d", i), dir: w.dir,
			role:  func(name string) role { return role{Name: name, Database: w.url} },
			began: func(address string) { l.set(func() { l.target = address }) },
			ended: func() { l.set(func() { l.target = "" }) },
		}
		w.servers = append(w.servers, p)
		begin(p)
	}
	for i := range workers {
		p := &process{
			name: fmt.Sprintf("w%d", i), dir: w.dir,
			role: func(name string) role {
				return role{Name: name, Servers: addresses, Bare: i%2 == 1, Ledger: filepath.Join(w.dir, name+ledger.Suffix)}
			},
			began: func(string) {}, ended: func() {},
		}
		w.workers = append(w.workers, p)
		begin(p)
	}
	starting.Wait()
	close(failed)
	for err := range failed {
		require.NoError(t, err)
	}
	for i := range 2 { // two programs that trigger
		c, err := client.New(client.Options{Servers: addresses, Patience: 2 * time.Second, UserAgent: fmt.Sprintf("trigger-%d", i)})
		require.NoError(t, err)
		t.Cleanup(func() { _ = c.Close() })
		w.clients = append(w.clients, c)
	}
	w.deploy(t)
	return w
}

func (w *world) migrate(t *testing.T) {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), w.postgres.URL(""))
	require.NoError(t, err)
	_, err = conn.Exec(t.Context(), `CREATE DATABASE `+database)
	require.NoError(t, err)
	require.NoError(t, conn.Close(t.Context()))
	db, err := store.Open(t.Context(), store.Options{URL: w.url})
	require.NoError(t, err)
	defer db.Close()
	_, err = db.Migrate(t.Context())
	require.NoError(t, err)
}

func (w *world) deploy(t *testing.T) {
	t.Helper()
	parsed, err := asset.Parse([]byte(manifest()), "servo.yaml")
	require.NoError(t, err)
	canonical, err := parsed.Canonical()
	require.NoError(t, err)
	deployed := &structpb.Struct{}
	require.NoError(t, deployed.UnmarshalJSON(canonical))
	for _, tenant := range tenants() {
		_, err := w.clients[0].Tenants().CreateTenant(t.Context(), &servov1.CreateTenantRequest{Name: tenant})
		require.NoError(t, err)
		_, err = w.clients[0].Deployments().Deploy(t.Context(), &servov1.DeployRequest{Tenant: tenant, Manifest: deployed})
		require.NoError(t, err)
	}
}

func (w *world) processes() []*process {
	return append(append([]*process{}, w.workers...), w.servers...)
}

// crash stops PostgreSQL at once and starts it again.
func (w *world) crash(ctx context.Context, m mishap) error {
	if err := w.postgres.StopImmediate(ctx); err != nil {
		return err
	}
	pause(ctx, m.For)
	return w.postgres.Restart(context.WithoutCancel(ctx))
}

// query asks the database for one row, past everything that breaks.
func (w *world) query(ctx context.Context, sql string, to ...any) error {
	conn, err := pgx.Connect(ctx, w.url)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close(context.WithoutCancel(ctx)) }()
	return conn.QueryRow(ctx, sql).Scan(to...)
}

// holder is the server that admits, -1 if none does.
func (w *world) holder(ctx context.Context) (int, error) {
	var name string
	err := w.query(ctx, `SELECT holder FROM servo.duty_renewals WHERE name = 'admission' AND expires_at > now()`, &name)
	if errors.Is(err, pgx.ErrNoRows) {
		return -1, nil
	}
	if err != nil {
		return -1, err
	}
	for i, s := range w.servers {
		if strings.HasPrefix(name, s.name+"-") {
			return i, nil
		}
	}
	return -1, fmt.Errorf("%q admits", name)
}

// watchDuty notes which servers admit, one after the other.
func (w *world) watchDuty(ctx context.Context) {
	for ; ctx.Err() == nil; pause(ctx, 200*time.Millisecond) {
		holder, err := w.holder(ctx)
		if err != nil || holder < 0 {
			continue // PostgreSQL is down, or no server does
		}
		w.mu.Lock()
		if len(w.holders) == 0 || w.holders[len(w.holders)-1] != holder {
			w.holders = append(w.holders, holder)
		}
		w.mu.Unlock()
	}
}

// moves is how often the duty went from one server to another.
func (w *world) moves() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return max(0, len(w.holders)-1)
}
