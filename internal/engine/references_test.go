package engine_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"go.arco.dev/servo/internal/base/fault"
	"go.arco.dev/servo/internal/domain/asset"
	"go.arco.dev/servo/internal/domain/config"
	"go.arco.dev/servo/internal/engine"
	"go.arco.dev/servo/internal/store"
)

func after(name string) config.Spec {
	return config.Spec{Pipeline: "single", Trigger: config.Trigger{Event: &config.Event{Config: name}}}
}

func dependsOn(name string) config.Spec {
	return config.Spec{
		Pipeline: "single", Trigger: config.Trigger{Cron: "* * * * *"}, DependsOn: &config.Dependency{Config: name, Within: asset.Duration(time.Hour)},
	}
}

func (w *clockwork) saveAll(ctx context.Context, dryRun bool, configs ...engine.SaveConfig) error {
	_, err := w.SaveConfigs(ctx, engine.SaveConfigs{Tenant: w.tenant, Configs: configs, DryRun: dryRun, Meta: engineMeta})
	return err
}

func TestConfigsNameOthersThatExist(t *testing.T) {
	t.Parallel()

	t.Run("an unknown name is refused, with a suggestion, also by a dry run", func(t *testing.T) {
		t.Parallel()
		w := newClockwork(t)
		w.save(t, "acme-aws-cost", config.Spec{})
		for field, spec := range map[string]config.Spec{"trigger.event.config": after("acme-aws-costs"), "depends_on.config": dependsOn("acme-aws-costs")} {
			for _, dry := range []bool{true, false} {
				f, ok := fault.As(w.saveAll(t.Context(), dry, engine.SaveConfig{Name: "report", Spec: spec}))
				require.True(t, ok)
				require.Equal(t, fault.InvalidArgument, f.Violation.Code)
				require.Equal(t, field, f.Violation.Field)
				require.Equal(t, `no config "acme-aws-costs" in workspace default; did you mean acme-aws-cost?`, f.Violation.Message)
			}
			f, _ := fault.As(w.saveAll(t.Context(), false, engine.SaveConfig{Name: "a", Spec: after("acme-aws-cost")}, engine.SaveConfig{Name: "b", Spec: spec}))
			require.Equal(t, "configs[1]."+field, f.Violation.Field)
		}
		require.Equal(t, 1, w.db.Count(t, `SELECT count(*) FROM servo.configs`))
	})

	t.Run("one of the same request will do, in any order", func(t *testing.T) {
		t.Parallel()
		w := newClockwork(t)
		require.NoError(t, w.saveAll(t.Context(), false,
			engine.SaveConfig{Name: "c", Spec: dependsOn("b")}, engine.SaveConfig{Name: "b", Spec: after("a")},
			engine.SaveConfig{Name: "a", Spec: config.Spec{Pipeline: "single", Trigger: config.Trigger{Manual: true}}}))
	})

	t.Run("a dry run takes those that are coming for known, a save does not", func(t *testing.T) {
		t.Parallel()
		w := newClockwork(t)
		save := engine.SaveConfigs{Tenant: w.tenant, Configs: []engine.SaveConfig{{Name: "next", Spec: after("coming")}}, Coming: []string{"coming"}, DryRun: true, Meta: engineMeta}
		_, err := w.SaveConfigs(t.Context(), save)
		require.NoError(t, err)
		save.DryRun = false
		_, err = w.SaveConfigs(t.Context(), save)
		require.ErrorContains(t, err, `no config "coming"`)
	})

	t.Run("its own name will not", func(t *testing.T) {
		t.Parallel()
		w := newClockwork(t)
		require.ErrorContains(t, w.saveAll(t.Context(), false, engine.SaveConfig{Name: "a", Spec: after("a")}), "names the config itself")
	})

	t.Run("another workspace's and another tenant's configs are none, nor those that are deleted", func(t *testing.T) {
		t.Parallel()
		w := newClockwork(t)
		gone := w.save(t, "gone", config.Spec{})
		_, err := w.DeleteConfig(t.Context(), engine.ChangeConfig{Tenant: w.tenant, Config: gone.ID, Meta: engineMeta})
		require.NoError(t, err)
		require.ErrorContains(t, w.saveAll(t.Context(), false, engine.SaveConfig{Name: "a", Spec: after("gone")}), `no config "gone"`)
	})

	t.Run("a config that others need is not deleted unless it is forced, and they can still be disabled", func(t *testing.T) {
		t.Parallel()
		w := newClockwork(t)
		source := w.save(t, "source", config.Spec{})
		w.save(t, "next", after("source"))
		w.save(t, "checked", dependsOn("source"))
		change := engine.ChangeConfig{Tenant: w.tenant, Config: source.ID, Meta: engineMeta}
		_, err := w.DeleteConfig(t.Context(), change)
		require.True(t, fault.Is(err, fault.Conflict), "%v", err)
		require.ErrorContains(t, err, "configs run after source or depend on it: checked, next")
		w.get(t, "source")
		change.Force = true
		_, err = w.DeleteConfig(t.Context(), change)
		require.NoError(t, err)
		off := false
		require.NoError(t, w.saveAll(t.Context(), false, engine.SaveConfig{Name: "next", Spec: w.get(t, "next").Spec, Enabled: &off}))
		changed := w.get(t, "next").Spec
		changed.Priority = 9
		require.Error(t, w.saveAll(t.Context(), false, engine.SaveConfig{Name: "next", Spec: changed}), "a config that is saved again must be valid")
	})

	t.Run("who saves a name and who deletes its config at the same time do not both succeed", func(t *testing.T) {
		t.Parallel()
		w := newClockwork(t)
		for range 20 {
			source := w.save(t, "source", config.Spec{Trigger: config.Trigger{Manual: true}})
			var saved, deleted error
			var group errgroup.Group
			group.Go(func() error {
				saved = w.saveAll(t.Context(), false, engine.SaveConfig{Name: "next", Spec: after("source")})
				return nil
			})
			group.Go(func() error {
				_, deleted = w.DeleteConfig(t.Context(), engine.ChangeConfig{Tenant: w.tenant, Config: source.ID, Meta: engineMeta})
				return nil
			})
			require.NoError(t, group.Wait())
			require.NotEqual(t, saved == nil, deleted == nil, "saved: %v, deleted: %v", saved, deleted)
			for _, name := range []string{"next", "source"} {
				c, err := w.db.GetConfigByName(t.Context(), w.tenant, "default", name)
				if fault.Is(err, fault.NotFound) {
					continue
				}
				require.NoError(t, err)
				_, err = w.DeleteConfig(t.Context(), engine.ChangeConfig{Tenant: w.tenant, Config: c.ID, Meta: engineMeta})
				require.NoError(t, err)
			}
		}
	})
}

func TestZonesAreRenewed(t *testing.T) {
	t.Parallel()
	w := newClockwork(t)
	berlin := func(name string) store.ConfigState {
		return w.save(t, name, config.Spec{Trigger: config.Trigger{Cron: "*/30 * * * *"}, Timezone: "Europe/Berlin"})
	}
	late, early, fresh := berlin("late"), berlin("early"), berlin("fresh")
	paused := berlin("paused")
	_, err := w.PauseConfig(t.Context(), engine.ChangeConfig{Tenant: w.tenant, Config: paused.ID, Meta: engineMeta})
	require.NoError(t, err)
	w.forward(t, 30*time.Minute)
	w.fire(t)
	w.finish(t, engine.Complete{})
	// Another version of the server has computed the next slots with other rules.
	w.db.Exec(t, `UPDATE servo.configs SET zone_data = '2020a-x', next_slot = next_slot + interval '1 hour', due_at = due_at + interval '1 hour' WHERE name IN ('late', 'paused')`)
	w.db.Exec(t, `UPDATE servo.configs SET zone_data = '2999z-x', next_slot = next_slot - interval '1 hour', due_at = due_at - interval '1 hour' WHERE name = 'early'`)

	renewed, err := w.RenewZones(t.Context(), store.ConfigKey{}, false, 100)
	require.NoError(t, err)
	require.Equal(t, 2, renewed.Configs, "newer data is not changed")
	require.Equal(t, midnight.Add(59*time.Minute+30*time.Second), w.get(t, "late").NextSlot)
	require.Equal(t, w.get(t, "fresh").DueAt, w.get(t, "late").DueAt)
	require.Zero(t, w.get(t, "paused").DueAt, "what is paused stays so")
	require.Equal(t, w.get(t, "fresh").ZoneData, w.get(t, "paused").ZoneData)
	renewed, err = w.RenewZones(t.Context(), store.ConfigKey{}, true, 100)
	require.NoError(t, err)
	require.Equal(t, 1, renewed.Configs)
	renewed, err = w.RenewZones(t.Context(), store.ConfigKey{}, true, 100)
	require.NoError(t, err)
	require.Equal(t, engine.Renewed{}, renewed)

	require.Zero(t, w.fire(t).Runs, "no slot that is decided is decided again")
	for range 3 {
		w.forward(t, 30*time.Minute)
		w.fire(t)
		w.finish(t, engine.Complete{})
	}
	for _, c := range []store.ConfigState{late, early, fresh} {
		require.Equal(t, []string{"00:30 FIRED", "01:00 FIRED", "01:30 FIRED", "02:00 FIRED"}, w.slots(t, c.Name), c.Name)
		w.requireNoHoles(t, c.Key(), w.now)
	}
}
