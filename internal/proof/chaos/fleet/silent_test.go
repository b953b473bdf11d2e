package fleet

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/types/known/structpb"

	"go.arco.dev/servo"
	"go.arco.dev/servo/client"
	servov1 "go.arco.dev/servo/gen/servo/v1"
	"go.arco.dev/servo/internal/devkit/devpg"
	"go.arco.dev/servo/internal/devkit/servotest"
	"go.arco.dev/servo/internal/devkit/servotest/verifytest"
	"go.arco.dev/servo/internal/store"
)

// Sizes and times of the test of silent servers.
const (
	silentWorkers  = 2
	silentCapacity = 4
	silentTask     = 50 * time.Millisecond
	longSilence    = 20 * time.Second // of the server that admits; past every bound of the test
	shortSilence   = 4 * time.Second  // of any server
	betweenSilence = time.Second
	shortSilences  = 2

	slotConfigs = 8
	slotTask    = 1150 * time.Millisecond // longer than the interval of the configs: slots wait for each other
)

// TestSilentServer stops the server that admits, and then one of three at random, while workers of the
// SDK work off a backlog with default settings. A stopped server keeps its connections open and
// accepts calls, as a hung one does. Every run succeeds, no lease is stranded and the tables
// equal the event log. Beside the backlog, configs with an interval that is shorter than their tasks
// let slots wait for each other: their runs begin in the order of the slots. Tasks complete while
// a server is stopped; the longest time without a completion is reported, and its target is 3 s.
func TestSilentServer(t *testing.T) {
	t.Parallel()
	total, seed := settings(t)
	dice := rand.New(rand.NewPCG(seed, 2))
	w := newSilentWorld(t, seed)
	working, stop := context.WithCancel(t.Context())
	var beside sync.WaitGroup
	defer beside.Wait()
	defer stop()
	for i := range silentWorkers {
		worker := servo.NewWorker(servo.WorkerOptions{Servers: w.addresses(), ID: fmt.Sprintf("w%d", i), Concurrency: silentCapacity, Grace: time.Second})
		servo.Asset(worker, "a/b", func(ctx context.Context, _ *servo.Task, _ struct{}) (int, error) {
			pause(ctx, silentTask)
			return 1, ctx.Err()
		})
		beside.Go(func() { require.NoError(t, worker.Run(working)) })
	}
	slow := servo.NewWorker(servo.WorkerOptions{Servers: w.addresses(), ID: "slow", Pools: []string{"slow"}, Concurrency: slotConfigs, Grace: time.Second})
	servo.Asset(slow, "a/slow", func(ctx context.Context, _ *servo.Task, _ struct{}) (int, error) {
		pause(ctx, slotTask)
		return 1, ctx.Err()
	})
	beside.Go(func() { require.NoError(t, slow.Run(working)) })
	configs := w.scheduleSlots(t)
	gap := time.Duration(0)
	for begun, n := time.Now(), 0; n < shortSilences || total > smokeTime && time.Since(begun) < total; n++ {
		at, lasts := dice.IntN(len(w.servers)), shortSilence
		if n == 0 {
			holder, err := w.holder(t.Context())
			require.NoError(t, err)
			at, lasts = max(holder, 0), longSilence
		}
		w.topUp(t, lasts)
		victim := w.servers[at]
		w.journal.add("%s falls silent", victim.name)
		victim.signal(syscall.SIGSTOP)
		stopped := time.Now()
		pause(t.Context(), lasts)
		gap = max(gap, w.longestGap(t, stopped))
		completed := 0
		require.NoError(t, w.query(t.Context(), fmt.Sprintf(`SELECT count(*) FROM servo.tasks WHERE finished_at > '%s'`, stopped.UTC().Format(time.RFC3339Nano)), &completed))
		if lasts == longSilence {
			require.NotZero(t, completed, "tasks that completed while %s was stopped", victim.name)
		}
		victim.signal(syscall.SIGCONT)
		pause(t.Context(), betweenSilence)
	}
	for _, config := range configs {
		_, err := w.clients[0].Configs().PauseConfig(t.Context(), &servov1.PauseConfigRequest{Tenant: "acme", Config: config, Reason: "the test ends"})
		require.NoError(t, err)
	}
	w.drain(t)
	stop()
	beside.Wait()
	t.Logf("longest time without a completion while servers fell silent: %v (target: 3 s)", gap.Round(time.Millisecond))
	var bad, leases int
	require.NoError(t, w.query(t.Context(), `SELECT count(*) FROM servo.runs WHERE state <> 10`, &bad))
	require.NoError(t, w.query(t.Context(), `SELECT count(*) FROM servo.leases`, &leases))
	require.Zero(t, bad, "runs that did not succeed")
	require.Zero(t, leases, "leases that are left")
	var slots, inversions int
	require.NoError(t, w.query(t.Context(), `SELECT count(*) FROM servo.runs WHERE slot_at IS NOT NULL`, &slots))
	require.NoError(t, w.query(t.Context(), `
		SELECT count(*) FROM (SELECT started_at < lag(started_at) OVER (PARTITION BY config_id ORDER BY slot_at) AS inverted
		                      FROM servo.runs WHERE slot_at IS NOT NULL) AS ordered WHERE inverted`, &inversions))
	require.Greater(t, slots, 10*slotConfigs)
	require.Zero(t, inversions, "slots that began before an earlier one of their config")
	t.Logf("%d slots began in order", slots)
	for _, p := range w.servers {
		require.NoError(t, p.retire(exitGood))
	}
	verifytest.NoDeadlocks(t, w.postgres)
	db, err := store.Open(t.Context(), store.Options{URL: w.url})
	require.NoError(t, err)
	defer db.Close()
	verifytest.Clean(t, &servotest.Database{Store: db, URL: w.url})
}

// newSilentWorld is PostgreSQL with three servers, a deployment of one task, and no workers.
func newSilentWorld(t *testing.T, seed uint64) *world {
	t.Helper()
	postgres, err := devpg.Start(t.Context(), devpg.Options{Settings: map[string]string{"shared_buffers": "64MB"}})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, postgres.Stop(context.Background())) })
	w := &world{seed: seed, dir: t.TempDir(), url: postgres.URL(database), postgres: postgres, journal: newJournal()}
	w.migrate(t)
	for i := range servers {
		p := &process{
			name: fmt.Sprintf("s%d", i), dir: w.dir,
			role:  func(name string) role { return role{Name: name, Database: w.url, Defaults: true} },
			ended: func() {},
		}
		p.began = func(address string) { p.address = address }
		w.servers = append(w.servers, p)
		t.Cleanup(p.end)
		require.NoError(t, p.start())
	}
	t.Cleanup(func() { w.explain(t) })
	c, err := client.New(client.Options{Servers: w.addresses(), UserAgent: "trigger"})
	require.NoError(t, err)
	t.Cleanup(func() { _ = c.Close() })
	w.clients = append(w.clients, c)
	_, err = c.Tenants().CreateTenant(t.Context(), &servov1.CreateTenantRequest{Name: "acme"})
	require.NoError(t, err)
	manifest, err := structpb.NewStruct(map[string]any{
		"version": 1, "assets": []any{
			map[string]any{"key": "a/b", "go": map[string]any{}},
			map[string]any{"key": "a/slow", "go": map[string]any{}, "pool": "slow"},
		},
		"pipelines": []any{
			map[string]any{"name": "p", "select": []any{"a/b"}, "overlap": "allow"},
			map[string]any{"name": "slow", "select": []any{"a/slow"}},
		},
	})
	require.NoError(t, err)
	_, err = c.Deployments().Deploy(t.Context(), &servov1.DeployRequest{Tenant: "acme", Manifest: manifest})
	require.NoError(t, err)
	return w
}

// scheduleSlots makes configs whose slots come faster than their runs end.
func (w *world) scheduleSlots(t *testing.T) (configs []string) {
	t.Helper()
	for i := range slotConfigs {
		name := fmt.Sprintf("slots-%d", i)
		_, err := w.clients[0].Configs().CreateConfig(t.Context(), &servov1.CreateConfigRequest{
			Tenant: "acme", Name: name,
			Spec: &servov1.ConfigSpec{Pipeline: "slow", Trigger: &servov1.ConfigTrigger{Interval: "1s"}, Overlap: "buffer_all"},
		})
		require.NoError(t, err)
		configs = append(configs, name)
	}
	return configs
}

func (w *world) addresses() []string {
	var addresses []string
	for _, p := range w.servers {
		addresses = append(addresses, p.address)
	}
	return addresses
}

// topUp triggers as many runs as the workers can work off until the next time. All servers work
// while it does: a trigger is no call that is hedged.
func (w *world) topUp(t *testing.T, lasts time.Duration) {
	t.Helper()
	wanted := int((lasts+2*betweenSilence)/silentTask) * silentWorkers * silentCapacity
	var sending sync.WaitGroup
	missing := make(chan struct{}, wanted)
	for range wanted - w.openRuns(t.Context()) {
		missing <- struct{}{}
	}
	close(missing)
	for range 16 {
		sending.Go(func() {
			for range missing {
				_, err := w.clients[0].Runs().TriggerRun(t.Context(), &servov1.TriggerRunRequest{Tenant: "acme", Pipeline: "p"})
				if err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	sending.Wait()
}

// longestGap is the longest time without a completion while a server was stopped. The end of that
// time counts only if there was work left.
func (w *world) longestGap(t *testing.T, from time.Time) time.Duration {
	t.Helper()
	until := "now()"
	if w.openRuns(t.Context()) == 0 {
		until = "NULL"
	}
	var seconds float64
	require.NoError(t, w.query(t.Context(), fmt.Sprintf(`
		WITH moments AS (
			SELECT finished_at AS at FROM servo.tasks WHERE finished_at > '%[1]s'
			UNION ALL SELECT '%[1]s' UNION ALL SELECT %[2]s)
		SELECT coalesce(extract(epoch FROM max(gap)), 0)::float8
		FROM  (SELECT at - lag(at) OVER (ORDER BY at) AS gap FROM moments WHERE at IS NOT NULL) AS gaps`,
		from.UTC().Format(time.RFC3339Nano), until), &seconds))
	return time.Duration(seconds * float64(time.Second))
}
