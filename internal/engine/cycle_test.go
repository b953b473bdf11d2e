package engine_test

import (
	"fmt"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"go.arco.dev/servo/internal/base/fault"
	"go.arco.dev/servo/internal/domain/config"
	"go.arco.dev/servo/internal/engine"
)

func TestCyclesOfConfigs(t *testing.T) {
	t.Parallel()
	save := func(t *testing.T, w *clockwork, configs ...engine.SaveConfig) error {
		t.Helper()
		_, err := w.SaveConfigs(t.Context(), engine.SaveConfigs{Tenant: w.tenant, Configs: configs, Meta: engineMeta})
		return err
	}
	refused := func(t *testing.T, err error, path string) {
		t.Helper()
		requireFault(t, err, fault.InvalidArgument)
		require.ErrorContains(t, err, "cycle: "+path)
	}

	t.Run("a cycle of events, of dependencies, or of both is refused with its path", func(t *testing.T) {
		t.Parallel()
		w := newClockwork(t)
		w.save(t, "a", config.Spec{})
		w.save(t, "b", after("a"))
		w.save(t, "c", dependsOn("b"))
		refused(t, save(t, w, engine.SaveConfig{Name: "a", Spec: after("c")}), "a → c → b → a")
		refused(t, save(t, w, engine.SaveConfig{Name: "a", Spec: dependsOn("c")}), "a → c → b → a")
		require.NoError(t, save(t, w, engine.SaveConfig{Name: "d", Spec: after("c")}))
		require.Equal(t, int32(1), w.get(t, "a").Version)
	})

	t.Run("so is one that a bulk request would make, and none that it resolves", func(t *testing.T) {
		t.Parallel()
		w := newClockwork(t)
		refused(t, save(t, w, engine.SaveConfig{Name: "x", Spec: after("y")}, engine.SaveConfig{Name: "y", Spec: dependsOn("x")}), "x → y → x")
		w.save(t, "a", config.Spec{})
		w.save(t, "b", after("a"))
		require.NoError(t, save(t, w, engine.SaveConfig{Name: "a", Spec: after("b")}, engine.SaveConfig{Name: "b", Spec: config.Spec{Pipeline: "single", Trigger: config.Trigger{Manual: true}}}))
	})

	t.Run("two requests at once cannot each add a half", func(t *testing.T) {
		t.Parallel()
		w := newClockwork(t)
		for round := range 5 {
			name := func(s string) string { return fmt.Sprintf("%s%d", s, round) }
			w.save(t, name("a"), config.Spec{})
			w.save(t, name("b"), after(name("a")))
			w.save(t, name("c"), config.Spec{})
			w.save(t, name("d"), after(name("c")))
			errs := make([]error, 2)
			var group sync.WaitGroup
			for i, c := range []engine.SaveConfig{{Name: name("a"), Spec: after(name("d"))}, {Name: name("c"), Spec: after(name("b"))}} {
				group.Go(func() {
					_, errs[i] = w.SaveConfigs(t.Context(), engine.SaveConfigs{Tenant: w.tenant, Configs: []engine.SaveConfig{c}, Meta: engineMeta})
				})
			}
			group.Wait()
			require.True(t, (errs[0] == nil) != (errs[1] == nil), "%v", errs)
		}
	})

	t.Run("a cycle that got in otherwise ends after a number of hops", func(t *testing.T) {
		t.Parallel()
		w := newClockwork(t)
		w.save(t, "a", config.Spec{Pipeline: "single", Trigger: config.Trigger{Manual: true}})
		w.save(t, "b", after("a"))
		w.db.Exec(t, `UPDATE servo.configs SET spec = jsonb_set(spec, '{trigger}', '{"event": {"config": "b"}}') WHERE name = 'a'`)
		_, err := w.TriggerConfig(t.Context(), w.tenant, w.get(t, "a").ID, engine.Trigger{})
		require.NoError(t, err)
		runs := 0
		for w.db.Count(t, `SELECT count(*) FROM servo.live_runs`) > 0 {
			w.finish(t, engine.Complete{})
			require.Less(t, runs, 200, "it runs without end")
			runs++
		}
		require.Equal(t, 101, w.db.Count(t, `SELECT count(*) FROM servo.runs`))
	})
}
