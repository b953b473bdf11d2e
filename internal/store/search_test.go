package store_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"go.arco.dev/servo/internal/id"
	"go.arco.dev/servo/internal/run"
	"go.arco.dev/servo/internal/store"
)

func TestFindByID(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	a, mine := w.fill(t, "acme")
	b, theirs := w.fill(t, "brick")
	tables := map[string]string{ // what has ids, and where
		store.KindConfig: "configs", store.KindDeployment: "deployments", store.KindWorkspace: "workspaces", store.KindEvent: "event_inbox",
		store.KindAlert: "alerts", store.KindChannel: "alert_channels", store.KindSubscription: "subscriptions", store.KindKey: "api_keys",
		store.KindTemplate: "templates",
	}
	ofBrick := map[string]uuid.UUID{store.KindRun: theirs.run.ID.UUID, store.KindTask: theirs.tasks[0].ID.UUID, store.KindTenant: b.tenant.UUID}
	w.engine(t, func(tx *Tx) {
		for kind, table := range tables {
			var of uuid.UUID
			require.NoError(t, tx.Raw().QueryRow(t.Context(), `SELECT id FROM servo.`+table+` WHERE tenant_id = $1 LIMIT 1`, b.tenant.UUID).Scan(&of), table)
			ofBrick[kind] = of
			// These rows were made without their events.
			_, err := tx.Raw().Exec(t.Context(), `INSERT INTO servo.entity_events (tenant_id, subject_id, version, recorded_at, schema, type, actor, data)
				VALUES ($1, $2, 1, servo.clock(), 1, 'made', '', '{}') ON CONFLICT DO NOTHING`, b.tenant.UUID, of)
			require.NoError(t, err, table)
		}
	})
	for kind, of := range ofBrick {
		t.Run("a "+kind+" is found by the installation and by its tenant, and by no other", func(t *testing.T) {
			t.Parallel()
			for _, by := range []id.Tenant{{}, b.tenant} {
				found := must(w.FindByID(t.Context(), by, of))(t)
				require.Len(t, found, 1)
				require.Equal(t, kind, found[0].Kind)
				require.Equal(t, b.tenant, found[0].Tenant)
				require.Equal(t, of, found[0].ID)
				require.NotEmpty(t, found[0].Name)
			}
			require.Empty(t, must(w.FindByID(t.Context(), a.tenant, of))(t))
		})
	}
	t.Run("a run and a task say how they are, and where", func(t *testing.T) {
		t.Parallel()
		found := must(w.FindByID(t.Context(), id.Tenant{}, mine.run.ID.UUID))(t)
		require.Equal(t, store.Found{Kind: store.KindRun, Name: "daily", Tenant: a.tenant, Workspace: "default", ID: mine.run.ID.UUID, State: run.RunRunning.String()}, found[0])
		found = must(w.FindByID(t.Context(), id.Tenant{}, mine.tasks[0].ID.UUID))(t)
		require.Equal(t, mine.run.ID, found[0].Run)
		require.Equal(t, run.Running.String(), found[0].State)
		require.Equal(t, "default", found[0].Workspace)
	})
	t.Run("an id that nobody has, or that is none of ours, finds nothing", func(t *testing.T) {
		t.Parallel()
		for _, of := range []uuid.UUID{uuid.Nil, uuid.Max, uuid.New(), uuid.Must(uuid.NewV7())} {
			require.Empty(t, must(w.FindByID(t.Context(), id.Tenant{}, of))(t), of)
			require.Empty(t, must(w.FindByID(t.Context(), a.tenant, of))(t), of)
		}
	})
}

func TestFindByName(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	a, b := w.account(t, "acme"), w.account(t, "brick")
	w.account(t, "acme-test")
	other := w.workspace(t, a, "other")
	w.config(t, a, "night", nil)
	w.config(t, other, "night-other", nil)
	w.config(t, b, "nightly", nil)
	w.config(t, b, "Night", nil)
	w.config(t, b, "night%", nil)
	w.config(t, a, "night-gone", func(c *store.ConfigState) { c.DeletedAt, c.DueAt = w.now, time.Time{} })
	names := func(found []store.Found) (names []string) {
		for _, f := range found {
			names = append(names, f.Name)
		}
		return names
	}
	configs := func(of id.Tenant, workspace, prefix string, most int) []string {
		t.Helper()
		return names(must(w.FindConfigs(t.Context(), of, workspace, prefix, most))(t))
	}
	require.ElementsMatch(t, []string{"night", "night-other", "nightly", "night%"}, configs(id.Tenant{}, "", "night", 10))
	require.Len(t, configs(id.Tenant{}, "", "night", 2), 2)
	require.Equal(t, []string{"night%"}, configs(id.Tenant{}, "", "night%", 10), "a text is a text and no pattern")
	require.Equal(t, []string{"Night"}, configs(id.Tenant{}, "", "N", 10))
	require.ElementsMatch(t, []string{"night", "night-other"}, configs(a.tenant, "", "night", 10), "of one tenant")
	require.Equal(t, []string{"night-other"}, configs(a.tenant, "other", "night", 10))
	found := must(w.FindConfigs(t.Context(), b.tenant, "", "nightly", 1))(t)
	require.Equal(t, "ACTIVE", found[0].State)
	require.Equal(t, b.tenant, found[0].Tenant)

	require.Equal(t, []string{"acme", "acme-test"}, names(must(w.FindTenants(t.Context(), "ac", 5))(t)))
	require.Equal(t, []string{"acme"}, names(must(w.FindTenants(t.Context(), "ac", 1))(t)))
	require.Empty(t, must(w.FindTenants(t.Context(), "x", 5))(t))

	mine, theirs := w.newRun(t, a, nil, nil), w.newRun(t, b, nil, nil)
	for i, g := range []graph{mine, theirs} {
		w.Exec(t, fmt.Sprintf(`UPDATE servo.live_runs SET lock_key = 'default/daily-%d' WHERE run_id = '%s'`, i, g.run.ID))
	}
	locks := must(w.FindLocks(t.Context(), a.tenant, "", "default/", 5))(t)
	require.Equal(t, []string{"default/daily-0"}, names(locks))
	require.Equal(t, mine.run.ID, locks[0].Run)
	require.Empty(t, must(w.FindLocks(t.Context(), a.tenant, "other", "default/", 5))(t))
	require.Empty(t, must(w.FindLocks(t.Context(), a.tenant, "", "daily", 5))(t), "in the middle is not at the beginning")
}
