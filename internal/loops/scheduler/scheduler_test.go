package scheduler_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"go.arco.dev/servo/internal/base/event"
	"go.arco.dev/servo/internal/base/id"
	"go.arco.dev/servo/internal/devkit/servotest"
	"go.arco.dev/servo/internal/domain/asset"
	"go.arco.dev/servo/internal/domain/config"
	"go.arco.dev/servo/internal/domain/schedule"
	"go.arco.dev/servo/internal/domain/tenant"
	"go.arco.dev/servo/internal/engine"
	"go.arco.dev/servo/internal/loops/scheduler"
)

const manifest = `{version: 1, assets: [{key: s/one, go: {}}], pipelines: [{name: single, select: [s/one]}]}`

// setup makes an engine with one tenant and a config of each trigger.
func setup(t *testing.T, triggers map[string]config.Trigger) (*servotest.Database, *engine.Engine, id.Tenant) {
	t.Helper()
	db := servotest.DB(t)
	e := engine.New(db.Store, engine.Config{Quotas: tenant.NoLimits()}, nil)
	t.Cleanup(e.Stop)
	owner, err := e.CreateTenant(t.Context(), "acme", event.Meta{})
	require.NoError(t, err)
	parsed, err := asset.Parse([]byte(manifest), "servo.yaml")
	require.NoError(t, err)
	_, err = e.Deploy(t.Context(), owner, "default", parsed, event.Meta{})
	require.NoError(t, err)
	for name, trigger := range triggers {
		_, err = e.SaveConfigs(t.Context(), engine.SaveConfigs{Tenant: owner, Configs: []engine.SaveConfig{{Name: name, Spec: config.Spec{Pipeline: "single", Trigger: trigger}}}})
		require.NoError(t, err)
	}
	return db, e, owner
}

// eventually waits until a query counts n.
func eventually(t *testing.T, db *servotest.Database, n int, sql string, args ...any) {
	t.Helper()
	require.Eventually(t, func() bool { return db.Count(t, sql, args...) == n }, 30*time.Second, 5*time.Millisecond, sql)
}

func TestScheduler(t *testing.T) {
	t.Parallel()

	t.Run("what was sent before it began and what is sent while it runs gets its runs", func(t *testing.T) {
		t.Parallel()
		db, e, owner := setup(t, map[string]config.Trigger{"listening": {Event: &config.Event{Name: "prices"}}})
		send := func(key string) {
			_, err := e.SendEvent(t.Context(), engine.SendEvent{Tenant: owner, Name: "prices", Key: key})
			require.NoError(t, err)
		}
		send("before")
		s := scheduler.Start(db.Store, e, scheduler.Config{})
		defer s.Stop()
		eventually(t, db, 1, `SELECT count(*) FROM servo.event_inbox WHERE done_at IS NOT NULL AND runs = 1`)
		send("while")
		eventually(t, db, 2, `SELECT count(*) FROM servo.event_inbox WHERE done_at IS NOT NULL`)
	})

	t.Run("slots of other zone data are computed again when a server starts", func(t *testing.T) {
		t.Parallel()
		db, e, _ := setup(t, map[string]config.Trigger{"yearly": {Cron: "0 0 1 1 *"}, "monthly": {Cron: "0 0 1 * *"}})
		db.Exec(t, `UPDATE servo.configs SET zone_data = '2999z-x', next_slot = next_slot + interval '1 hour', due_at = due_at + interval '1 hour'`)
		s := scheduler.Start(db.Store, e, scheduler.Config{})
		defer s.Stop()
		eventually(t, db, 2, `SELECT count(*) FROM servo.configs WHERE zone_data = $1 AND next_slot = due_at AND extract(hour FROM next_slot AT TIME ZONE 'UTC') = 0`, schedule.TZVersion())
	})

	t.Run("events that were handled long ago are forgotten", func(t *testing.T) {
		t.Parallel()
		db, e, owner := setup(t, nil)
		for _, key := range []string{"old", "new"} {
			_, err := e.SendEvent(t.Context(), engine.SendEvent{Tenant: owner, Name: "prices", Key: key})
			require.NoError(t, err)
		}
		_, err := e.HandleEvents(t.Context(), 100)
		require.NoError(t, err)
		db.Exec(t, `UPDATE servo.event_inbox SET received_at = received_at - interval '8 days' WHERE dedupe_key = 'old'`)
		s := scheduler.Start(db.Store, e, scheduler.Config{})
		defer s.Stop()
		eventually(t, db, 0, `SELECT count(*) FROM servo.event_inbox WHERE dedupe_key = 'old'`)
		eventually(t, db, 1, `SELECT count(*) FROM servo.event_inbox`)
	})
}
