package store_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"go.arco.dev/servo/internal/base/id"
	"go.arco.dev/servo/internal/domain/run"
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
	t.Run("a run and a task have their state and place", func(t *testing.T) {
		t.Parallel()
		found := must(w.FindByID(t.Context(), id.Tenant{}, mine.run.ID.UUID))(t)
		require.Equal(t, store.Found{Kind: store.KindRun, Name: "daily", Tenant: a.tenant, Workspace: "default", ID: mine.run.ID.UUID, State: run.RunRunning.String()}, found[0])
		found = must(w.FindByID(t.Context(), id.Tenant{}, mine.tasks[0].ID.UUID))(t)
		require.Equal(t, mine.run.ID, found[0].Run)
		require.Equal(t, run.Running.String(), found[0].State)
		require.Equal(t, "default", found[0].Workspace)
	})
	t.Run("an unknown id, or one that is no UUID of Servo, finds nothing", func(t *testing.T) {
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
	require.ElementsMatch(t, []string{"night", "night-other", "nightly", "night%", "Night"}, configs(id.Tenant{}, "", "night", 10))
	require.Len(t, configs(id.Tenant{}, "", "night", 2), 2)
	require.Equal(t, []string{"night%"}, configs(id.Tenant{}, "", "night%", 10), "a text is a text and no pattern")
	require.Equal(t, "Night", configs(id.Tenant{}, "", "Nig", 10)[0], "what begins with it comes first")
	require.Equal(t, []string{"nightly"}, configs(id.Tenant{}, "", "HTLY", 10), "a part is enough, whatever its case")
	require.False(t, must(w.MoreConfigs(t.Context(), id.Tenant{}))(t))
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
	require.Len(t, must(w.FindLocks(t.Context(), a.tenant, "", "Daily", 5))(t), 1)
}

func TestFindKeys(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	a, b := w.account(t, "acme"), w.account(t, "brick")
	for i, k := range []struct {
		of      id.Tenant
		name    string
		revoked string
	}{{a.tenant, "ci", "NULL"}, {a.tenant, "ci-old", "servo.clock()"}, {b.tenant, "CI of brick", "NULL"}, {id.Tenant{}, "abcd", "NULL"}} {
		w.Exec(t, fmt.Sprintf(`INSERT INTO servo.api_keys (tenant_id, id, version, public_id, name, role, digest, created_at, revoked_at)
			VALUES ('%s', gen_random_uuid(), 1, 'abcd%d00000000000', '%s', 'viewer', decode(repeat('00', 32), 'hex'), servo.clock(), %s)`, k.of, i, k.name, k.revoked))
	}
	names := func(of id.Tenant, text string) (names []string) {
		t.Helper()
		for _, f := range must(w.FindKeys(t.Context(), of, text, 5))(t) {
			require.Equal(t, store.KindKey, f.Kind)
			require.Len(t, f.Public, 16)
			names = append(names, f.Name)
		}
		return names
	}
	require.Equal(t, []string{"ci", "CI of brick"}, names(id.Tenant{}, "ci"), "by a part of the name, those that are alive")
	require.Equal(t, []string{"ci"}, names(a.tenant, "ci"), "of one tenant")
	require.ElementsMatch(t, []string{"ci", "ci-old"}, names(a.tenant, "ABCD"), "by how the id begins, also one that was revoked")
	require.Equal(t, []string{"CI of brick"}, names(id.Tenant{}, "sk_abcd2"))
	require.Equal(t, []string{"CI of brick"}, names(id.Tenant{}, "sk_abcd200000000000_"+strings.Repeat("x", 43)), "a complete key is found by its id")
	require.ElementsMatch(t, []string{"ci", "ci-old", "CI of brick", "abcd"}, names(id.Tenant{}, "abcd"), "each once")
	require.Empty(t, names(id.Tenant{}, "sk_abc"), "three digits are too few")
	require.Empty(t, names(id.Tenant{}, "abcd9"))
}

func TestFindAddedTask(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	a, b := w.account(t, "acme"), w.account(t, "brick")
	mine, ended := w.newRun(t, a, nil, nil), w.newRun(t, b, nil, nil)
	w.Exec(t, `DELETE FROM servo.live_runs WHERE run_id = '`+ended.run.ID.String()+`'`)
	w.later(time.Hour)
	w.newRun(t, a, nil, nil)
	for _, g := range []graph{mine, ended} {
		added := id.New[id.Task](w.mint) // an hour after its run
		w.Exec(t, fmt.Sprintf(`UPDATE servo.tasks SET id = '%s' WHERE id = '%s'`, added, g.tasks[0].ID))
		w.Exec(t, fmt.Sprintf(`UPDATE servo.ready_q SET task_id = '%s' WHERE task_id = '%s'`, added, g.tasks[0].ID))
		for _, by := range []id.Tenant{{}, g.run.Tenant} {
			found := must(w.FindByID(t.Context(), by, added.UUID))(t)
			require.Len(t, found, 1)
			require.Equal(t, [2]any{store.KindTask, g.run.ID}, [2]any{found[0].Kind, found[0].Run})
		}
		other := a.tenant
		if g.run.Tenant == other {
			other = b.tenant
		}
		require.Empty(t, must(w.FindByID(t.Context(), other, added.UUID))(t))
	}
}
