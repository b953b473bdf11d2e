package engine_test

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"go.arco.dev/servo/internal/domain/config"
	"go.arco.dev/servo/internal/domain/tenant"
	"go.arco.dev/servo/internal/engine"
	"go.arco.dev/servo/internal/store"
)

func (w *clockwork) why(t testing.TB, name string) engine.Why {
	t.Helper()
	c := w.get(t, name)
	why, err := w.WhyConfig(t.Context(), c.Key())
	require.NoError(t, err)
	return why
}

// TestWhyConfig: a config without a blocker fires at the next look, and one with a blocker does
// not, whatever was done to it before.
func TestWhyConfig(t *testing.T) {
	t.Parallel()
	for seed := range uint64(3) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			random := rand.New(rand.NewPCG(seed, 5)) //nolint:gosec // a test
			limits := tenant.NoLimits()
			limits.MaxDailyRuns = int32(40 + random.IntN(40)) //nolint:gosec // a small number
			w := newClockworkOn(t, engine.Config{Quotas: limits})
			w.save(t, "c0", config.Spec{})
			keys := []store.ConfigKey{}
			for i := range 12 {
				spec := config.Spec{
					Trigger: []config.Trigger{{Cron: "* * * * *"}, {Cron: "*/2 * * * *"}, {Manual: true}}[random.IntN(3)],
					Overlap: []config.Overlap{config.OverlapSkip, config.OverlapBufferOne, config.OverlapBufferAll, config.OverlapAllow}[random.IntN(4)],
				}
				if spec.Overlap == config.OverlapAllow {
					spec.MaxOverlap = random.IntN(3)
				}
				if !spec.Trigger.Manual && random.IntN(3) == 0 {
					spec.DependsOn = &config.Dependency{Config: "c0", Within: minutes(1 + random.IntN(3))}
				}
				if random.IntN(4) == 0 {
					spec.Pipeline = "diamond"
				}
				keys = append(keys, w.save(t, fmt.Sprintf("x%d", i), spec).Key())
			}
			free, blocked := 0, map[engine.BlockerCode]int{}
			for step := range 25 {
				w.forward(t, time.Duration(20+random.IntN(40))*time.Second)
				change := engine.ChangeConfig{Tenant: w.tenant, Config: keys[random.IntN(len(keys))].Config, Meta: engineMeta}
				if random.IntN(3) == 0 {
					_, err := w.PauseConfig(t.Context(), change)
					require.NoError(t, err)
				} else if random.IntN(2) == 0 {
					_, err := w.ResumeConfig(t.Context(), change)
					require.NoError(t, err)
				}
				if step == 15 {
					w.deploy(t, strings.Replace(manifestText, "name: diamond", "name: gem", 1))
				}
				whys := map[store.ConfigKey]engine.Why{}
				for _, key := range keys {
					why, err := w.WhyConfig(t.Context(), key)
					require.NoError(t, err)
					whys[key] = why
				}
				before := w.firedSlots(t)
				w.fire(t)
				after := w.firedSlots(t)
				quota := false
				for key, why := range whys {
					if len(why.Blockers) == 0 {
						free++
						// The day's quota may have gone to another config of the same look.
						quota = quota || after[key] == before[key]
						continue
					}
					blocked[why.Blockers[0].Code]++
					require.Equal(t, before[key], after[key], "%s: %v", why.Name, why.Blockers)
				}
				if quota {
					require.NotZero(t, w.db.Count(t, `SELECT count(*) FROM servo.slot_ranges WHERE outcome = 5`))
				}
				if random.IntN(3) == 0 {
					w.finish(t, engine.Complete{})
				}
			}
			require.Positive(t, free)
			require.Greater(t, len(blocked), 2, "%v", blocked)
		})
	}

	t.Run("blockers have their values", func(t *testing.T) {
		t.Parallel()
		w := newClockwork(t)
		c := w.save(t, "daily", config.Spec{Trigger: config.Trigger{Cron: "0 2 * * *"}})
		why := w.why(t, "daily")
		require.Equal(t, "ACTIVE", why.State)
		require.Equal(t, engine.BlockedByTime, why.Blockers[0].Code)
		require.Contains(t, why.Blockers[0].Message, "T02:00:00Z")
		_, err := w.PauseConfig(t.Context(), engine.ChangeConfig{Tenant: w.tenant, Config: c.ID, Reason: "the source moves house", Meta: engineMeta})
		require.NoError(t, err)
		why = w.why(t, "daily")
		require.Equal(t, "PAUSED", why.State)
		require.Equal(t, "it is paused: the source moves house", why.Blockers[0].Message)
	})

	t.Run("a config that is paused or disabled has no next slot, and a reason only if one was given", func(t *testing.T) {
		t.Parallel()
		w := newClockwork(t)
		c := w.save(t, "daily", config.Spec{Trigger: config.Trigger{Cron: "0 2 * * *"}})
		_, err := w.PauseConfig(t.Context(), engine.ChangeConfig{Tenant: w.tenant, Config: c.ID, Meta: engineMeta})
		require.NoError(t, err)
		why := w.why(t, "daily")
		require.Len(t, why.Blockers, 1)
		require.Equal(t, "it is paused", why.Blockers[0].Message)
		require.Empty(t, why.Next)
		off := false
		_, err = w.SaveConfigs(t.Context(), engine.SaveConfigs{Tenant: w.tenant, Meta: engineMeta, Configs: []engine.SaveConfig{{Name: "daily", Spec: c.Spec, Enabled: &off}}})
		require.NoError(t, err)
		why = w.why(t, "daily")
		require.Equal(t, "it is disabled", why.Blockers[0].Message)
		require.Empty(t, why.Next)
	})

	t.Run("a run that waits for its lock names the run that holds it", func(t *testing.T) {
		t.Parallel()
		w := newClockwork(t)
		w.save(t, "buffers", config.Spec{Overlap: config.OverlapBufferAll})
		var runs []store.RunKey
		for range 2 {
			w.forward(t, time.Minute)
			w.fire(t)
			runs = append(runs, store.RunKey{Tenant: w.tenant, Run: *w.get(t, "buffers").LastRun})
		}
		why, err := w.WhyRun(t.Context(), runs[1])
		require.NoError(t, err)
		require.Equal(t, engine.BlockedByLock, why.Blockers[0].Code)
		require.Equal(t, runs[0].Run.String(), why.Blockers[0].Values["run"])
	})
}

// firedSlots counts the slots that have fired.
func (w *clockwork) firedSlots(t testing.TB) map[store.ConfigKey]int {
	t.Helper()
	counts := map[store.ConfigKey]int{}
	page, err := w.db.ListConfigs(t.Context(), w.tenant, store.ConfigFilter{}, store.ConfigKey{}.Config, 100)
	require.NoError(t, err)
	for _, c := range page {
		entries, err := w.db.ListSlots(t.Context(), c.Key(), time.Time{}, w.now.AddDate(1, 0, 0), 1000)
		require.NoError(t, err)
		for _, e := range entries {
			if e.Outcome == config.Fired {
				counts[c.Key()]++
			}
		}
	}
	return counts
}
