package slots

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"go.arco.dev/servo/internal/base/event"
	"go.arco.dev/servo/internal/base/id"
	"go.arco.dev/servo/internal/devkit/servotest"
	"go.arco.dev/servo/internal/devkit/servotest/lives"
	"go.arco.dev/servo/internal/devkit/servotest/verifytest"
	"go.arco.dev/servo/internal/domain/asset"
	"go.arco.dev/servo/internal/domain/config"
	"go.arco.dev/servo/internal/domain/tenant"
	"go.arco.dev/servo/internal/engine"
	"go.arco.dev/servo/internal/loops/scheduler"
	"go.arco.dev/servo/internal/store"
)

const (
	replicas = 8
	configs  = 1000
	period   = 2 * time.Second // in which all configs are due at the same second
	rounds   = 4
)

// serverVariable turns the test binary into a server; its value is a serverConfig.
const serverVariable = "SERVO_SLOTS_SERVER"

func TestMain(m *testing.M) {
	if text := os.Getenv(serverVariable); text != "" {
		os.Exit(lives.Play(text, serve))
	}
	os.Exit(m.Run())
}

// serverConfig is the configuration of a server process.
type serverConfig struct {
	Name     string
	Database string
}

// serve is the life of a server that does nothing but fire, in batches of its own size.
func serve(ctx context.Context, config serverConfig, ready func()) error {
	db, err := store.Open(ctx, store.Options{URL: config.Database, MaxConns: 4})
	if err != nil {
		return err
	}
	defer db.Close()
	e := engine.New(db, engine.Config{Server: config.Name}, nil)
	defer e.Stop()
	loop := scheduler.Start(db, e, scheduler.Config{Batch: 50 + rand.IntN(200)})
	ready()
	<-ctx.Done()
	loop.Stop()
	return nil
}

// TestSlots: 1,000 configs are due at the same second, again and again, and servers are killed
// all the time. Each slot has one row, and each that fired one run.
func TestSlots(t *testing.T) {
	t.Parallel()
	lasting := servotest.Duration(t, rounds*period)
	db := servotest.DB(t)
	owner := prepare(t, db)
	cast := lives.New(replicas, serverVariable, func(name string) any { return serverConfig{Name: name, Database: db.URL} })
	t.Cleanup(cast.End)
	for i := range replicas {
		require.NoError(t, cast.Start(t.Context(), i))
	}
	for end := time.Now().Add(lasting); time.Now().Before(end); {
		victim := rand.IntN(replicas)
		cast.Kill(victim)
		require.NoError(t, cast.Start(t.Context(), victim))
		select {
		case <-time.After(time.Duration(rand.IntN(200)) * time.Millisecond):
		case <-t.Context().Done():
		}
	}
	// What is due when the killing ends is fired, and then nothing more.
	end := time.Now()
	for db.Count(t, `SELECT count(*) FROM servo.configs WHERE decided_until < $1`, end.Add(-period)) > 0 {
		require.NoError(t, t.Context().Err())
	}
	cast.End()

	require.Equal(t, db.Count(t, `SELECT count(*) FROM servo.slots`), db.Count(t, `SELECT count(*) FROM servo.runs WHERE slot_at IS NOT NULL`))
	require.Zero(t, db.Count(t, `SELECT count(*) FROM (SELECT config_id, slot_at FROM servo.runs GROUP BY 1, 2 HAVING count(*) > 1) AS twice`))
	require.Zero(t, db.Count(t, `SELECT count(*) FROM servo.slot_ranges`), "all of them are caught up with")
	fired := db.Count(t, `SELECT count(*) FROM servo.slots`)
	require.GreaterOrEqual(t, fired, int(lasting/period)*configs-configs)
	requireNoHoles(t, db, owner)
	verifytest.Clean(t, db)
	t.Logf("%d slots fired, %d kills of servers", fired, cast.Kills)
}

// prepare makes configs that are all due at the same second.
func prepare(t *testing.T, db *servotest.Database) id.Tenant {
	t.Helper()
	e := engine.New(db.Store, engine.Config{Quotas: tenant.NoLimits()}, nil)
	defer e.Stop()
	owner, err := e.CreateTenant(t.Context(), "acme", event.Meta{})
	require.NoError(t, err)
	manifest, err := asset.Parse([]byte(`{version: 1, assets: [{key: s/one, go: {}}], pipelines: [{name: one, select: [s/one]}]}`), "servo.yaml")
	require.NoError(t, err)
	_, err = e.Deploy(t.Context(), owner, "default", manifest, event.Meta{})
	require.NoError(t, err)
	anchor := time.Now().UTC().Truncate(time.Second)
	save := make([]engine.SaveConfig, configs)
	for i := range save {
		save[i] = engine.SaveConfig{Name: fmt.Sprintf("config-%d", i), Spec: config.Spec{
			Pipeline: "one", Trigger: config.Trigger{Interval: asset.Duration(period), Anchor: &anchor}, Overlap: config.OverlapAllow,
			Catchup: config.Catchup{Policy: config.CatchupAll, MaxSlots: 1000},
		}}
	}
	_, err = e.SaveConfigs(t.Context(), engine.SaveConfigs{Tenant: owner, Configs: save})
	require.NoError(t, err)
	return owner
}

// requireNoHoles holds the ledger of every config against its history.
func requireNoHoles(t *testing.T, db *servotest.Database, owner id.Tenant) {
	t.Helper()
	var after id.Config
	for {
		page, err := db.ListConfigs(t.Context(), owner, store.ConfigFilter{}, after, 500)
		require.NoError(t, err)
		if len(page) == 0 {
			return
		}
		for _, c := range page {
			events, err := db.ConfigEvents(t.Context(), c.Key(), 0, 10)
			require.NoError(t, err)
			entries, err := db.ListSlots(t.Context(), c.Key(), time.Time{}, c.DecidedUntil.AddDate(1, 0, 0), 100_000)
			require.NoError(t, err)
			fired := make([]config.Slot, len(entries))
			for i, e := range entries {
				fired[i] = config.Slot{At: e.From, Run: *e.Run}
			}
			holes, err := config.Holes(events, fired, nil, c.DecidedUntil)
			require.NoError(t, err)
			require.Empty(t, holes, c.Name)
			after = c.ID
		}
	}
}
