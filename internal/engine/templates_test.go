package engine_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"go.arco.dev/servo/internal/base/fault"
	"go.arco.dev/servo/internal/devkit/servotest/verifytest"
	"go.arco.dev/servo/internal/domain/config"
	"go.arco.dev/servo/internal/engine"
)

func (w *clockwork) template(t testing.TB, name, cron string) (changed int) {
	t.Helper()
	_, changed, err := w.SetTemplate(t.Context(), engine.SetTemplate{Tenant: w.tenant, Name: name, Cron: cron, Meta: engineMeta})
	require.NoError(t, err)
	return changed
}

func by(template string) config.Spec {
	return config.Spec{Pipeline: "single", Trigger: config.Trigger{Template: template}, Overlap: config.OverlapAllow}
}

func TestTemplates(t *testing.T) {
	t.Parallel()

	t.Run("a config keeps the schedule of its template, and follows its changes", func(t *testing.T) {
		t.Parallel()
		w := newClockwork(t)
		require.Zero(t, w.template(t, "often", "* * * * *"))
		used := w.save(t, "used", by("often"))
		require.Equal(t, "* * * * *", used.Spec.Trigger.Expression)
		paused := w.save(t, "paused", by("often"))
		_, err := w.PauseConfig(t.Context(), engine.ChangeConfig{Tenant: w.tenant, Config: paused.ID, Reason: "holidays", Meta: engineMeta})
		require.NoError(t, err)
		w.save(t, "hourly", by("hourly"))
		w.forward(t, time.Minute)
		w.fire(t)
		w.forward(t, 2*time.Minute)
		require.Equal(t, 2, w.template(t, "often", "*/10 * * * *"))
		require.Zero(t, w.template(t, "often", "*/10 * * * *"), "twice is the same as once")
		c := w.get(t, "used")
		require.Equal(t, "*/10 * * * *", c.Spec.Trigger.Expression)
		require.Equal(t, "often", c.Spec.Trigger.Template)
		require.Equal(t, midnight.Add(9*time.Minute+30*time.Second), c.NextSlot)
		require.EqualValues(t, 2, c.Version)
		w.forward(t, 7*time.Minute)
		w.fire(t)
		require.Equal(t, []string{"00:01 FIRED", "00:02-00:03 SKIPPED_EDITED 2", "00:10 FIRED"}, w.slots(t, "used"))
		require.Equal(t, []string{"00:01-00:03 SKIPPED_PAUSED 3"}, w.slots(t, "paused"))
		events, err := w.db.ConfigEvents(t.Context(), used.Key(), 1, 10)
		require.NoError(t, err)
		require.Equal(t, "template often changed", events[0].Body.(config.Changed).Reason)
		require.Equal(t, engineMeta.Actor, events[0].Meta.Actor)
		w.requireNoHoles(t, used.Key(), w.now)
		require.Equal(t, "", w.get(t, "hourly").Spec.Trigger.Expression, "what is built in stands for itself")
		saved, err := w.SaveConfigs(t.Context(), engine.SaveConfigs{Tenant: w.tenant, Configs: []engine.SaveConfig{{Name: "used", Spec: by("often")}}, Meta: engineMeta})
		require.NoError(t, err)
		require.False(t, saved[0].Changed, "the same file again changes nothing")
		verifytest.Clean(t, w.db)
	})

	t.Run("one that is used is not deleted, and one that is not is gone", func(t *testing.T) {
		t.Parallel()
		w := newClockwork(t)
		w.template(t, "often", "* * * * *")
		c := w.save(t, "used", by("often"))
		err := w.DeleteTemplate(t.Context(), w.tenant, "often", engineMeta)
		require.True(t, fault.Is(err, fault.Conflict), "%v", err)
		require.ErrorContains(t, err, "1 configs use template often: used")
		_, err = w.DeleteConfig(t.Context(), engine.ChangeConfig{Tenant: w.tenant, Config: c.ID, Meta: engineMeta})
		require.NoError(t, err)
		require.NoError(t, w.DeleteTemplate(t.Context(), w.tenant, "often", engineMeta))
		require.True(t, fault.Is(w.DeleteTemplate(t.Context(), w.tenant, "often", engineMeta), fault.NotFound))
		require.ErrorContains(t, w.saveAll(t.Context(), false, engine.SaveConfig{Name: "used", Spec: by("often")}), `unknown template "often"`)
		w.template(t, "often", "*/2 * * * *")
		verifytest.Clean(t, w.db)
	})

	t.Run("a mistake is reported with its field, and nothing is stored", func(t *testing.T) {
		t.Parallel()
		w := newClockwork(t)
		w.template(t, "own", "30 2 * * *")
		set := func(name, cron string, version int32) *fault.Fault {
			_, _, err := w.SetTemplate(t.Context(), engine.SetTemplate{Tenant: w.tenant, Name: name, Cron: cron, Version: version, Meta: engineMeta})
			f, ok := fault.As(err)
			require.True(t, ok, "%v", err)
			return f
		}
		require.Contains(t, set("hourly", "5 * * * *", 0).Violation.Message, "built-in")
		require.Equal(t, "name", set("a b", "5 * * * *", 0).Violation.Field)
		require.Equal(t, "cron", set("x", "61 * * * *", 0).Violation.Field)
		require.Equal(t, "cron", set("x", "0 0 30 2 *", 0).Violation.Field)
		require.Equal(t, "cron", set("x", "@every 90m", 0).Violation.Field)
		require.Equal(t, fault.Conflict, set("own", "5 * * * *", 7).Violation.Code)
		require.Error(t, w.DeleteTemplate(t.Context(), w.tenant, "hourly", engineMeta))
		f, _ := fault.As(w.saveAll(t.Context(), false, engine.SaveConfig{Name: "a", Spec: by("onw")}))
		require.Equal(t, "trigger.template", f.Violation.Field)
		require.Equal(t, "did you mean own?", f.Violation.Remedy)
		require.Equal(t, 1, w.db.Count(t, `SELECT count(*) FROM servo.templates`))
	})

	t.Run("a template is its tenant's alone", func(t *testing.T) {
		t.Parallel()
		w := newClockwork(t)
		other, err := w.CreateTenant(t.Context(), "brick", engineMeta)
		require.NoError(t, err)
		_, _, err = w.SetTemplate(t.Context(), engine.SetTemplate{Tenant: other, Name: "theirs", Cron: "* * * * *", Meta: engineMeta})
		require.NoError(t, err)
		require.ErrorContains(t, w.saveAll(t.Context(), false, engine.SaveConfig{Name: "a", Spec: by("theirs")}), "unknown template")
		require.True(t, fault.Is(w.DeleteTemplate(t.Context(), w.tenant, "theirs", engineMeta), fault.NotFound))
	})

	t.Run("who saves configs and who changes their template at the same time leave no config behind", func(t *testing.T) {
		t.Parallel()
		w := newClockwork(t)
		w.template(t, "often", "* * * * *")
		w.save(t, "all", by("often"))
		for round := range 10 {
			var group errgroup.Group
			for i := range 4 {
				group.Go(func() error {
					return w.saveAll(t.Context(), false, engine.SaveConfig{Name: fmt.Sprintf("c%d-%d", round, i), Spec: by("often")}, engine.SaveConfig{Name: "all", Spec: by("often")})
				})
			}
			cron := fmt.Sprintf("%d * * * *", round)
			group.Go(func() error {
				_, _, err := w.SetTemplate(t.Context(), engine.SetTemplate{Tenant: w.tenant, Name: "often", Cron: cron, Meta: engineMeta})
				return err
			})
			require.NoError(t, group.Wait())
			require.Zero(t, w.db.Count(t, `SELECT count(*) FROM servo.configs WHERE spec->'trigger'->>'expression' <> $1`, cron))
		}
		verifytest.Clean(t, w.db)
	})
}
