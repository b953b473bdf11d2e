package engine_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"go.arco.dev/servo/internal/base/fault"
	"go.arco.dev/servo/internal/base/id"
	"go.arco.dev/servo/internal/devkit/servotest/verifytest"
	"go.arco.dev/servo/internal/domain/asset"
	"go.arco.dev/servo/internal/domain/config"
	"go.arco.dev/servo/internal/domain/release"
	"go.arco.dev/servo/internal/domain/run"
	"go.arco.dev/servo/internal/engine"
	"go.arco.dev/servo/internal/store"
)

// releases is a database with the channel stable at release v1, and tenants that follow it.
type releases struct {
	*bundle

	tenants []id.Tenant
	rollout store.Duty
	clock   time.Time
}

// advance moves the clock of the database.
func (r *releases) advance(t *testing.T, by time.Duration) {
	t.Helper()
	r.clock = r.clock.Add(by)
	r.db.SetClock(t, r.clock)
}

const releaseText = `
version: 1
assets:
  - {key: s/one, exec: {command: [run]}, retry: {max_attempts: 1}}
pipelines:
  - name: single
    overlap: allow
    select: [s/one]
    parameters:
      - {name: n, type: integer, default: 1}
`

func setupReleases(t *testing.T, tenants int) *releases {
	t.Helper()
	b := setup(t)
	r := &releases{bundle: b, clock: time.Now().UTC().Truncate(time.Second)}
	r.advance(t, 0)
	r.release(t, "v1", releaseText)
	_, err := b.CreateReleaseChannel(t.Context(), "stable", "v1", true, engineMeta)
	require.NoError(t, err)
	for i := range tenants {
		owner, err := b.CreateTenant(t.Context(), fmt.Sprint("t", i), engineMeta)
		require.NoError(t, err)
		r.tenants = append(r.tenants, owner)
	}
	r.rollout, err = b.db.TakeDuty(t.Context(), engine.RolloutDuty, "test", time.Hour)
	require.NoError(t, err)
	return r
}

func (r *releases) release(t *testing.T, name, text string) store.Release {
	t.Helper()
	manifest, err := asset.Parse([]byte(text), "servo.yaml")
	require.NoError(t, err)
	created, _, err := r.CreateRelease(t.Context(), engine.CreateRelease{Name: name, Manifest: manifest, Meta: engineMeta})
	require.NoError(t, err)
	return created
}

func (r *releases) roll(t *testing.T, to string, waves ...int32) store.ReleaseChannel {
	t.Helper()
	c, err := r.Roll(t.Context(), engine.RollChannel{Channel: "stable", Release: to, Waves: waves, Soak: time.Minute, Meta: engineMeta})
	require.NoError(t, err)
	return c
}

func (r *releases) channel(t *testing.T) store.ReleaseChannel {
	t.Helper()
	channels, err := r.db.ReleaseChannels(t.Context())
	require.NoError(t, err)
	return channels[0]
}

// run runs the pipeline of some tenants once each; failing ones fail with the code.
func (r *releases) run(t *testing.T, tenants []id.Tenant, fails func(i int) bool) {
	t.Helper()
	triggers := make([]engine.Trigger, len(tenants))
	for i, owner := range tenants {
		triggers[i] = engine.Trigger{Tenant: owner, Pipeline: "single"}
	}
	_, errs := r.TriggerRuns(t.Context(), triggers)
	for _, err := range errs {
		require.NoError(t, err)
	}
	r.admit(t)
	for i, l := range r.claim(t, 1000, true) {
		if fails(i) {
			r.report(t, l, engine.Fail{Failure: run.Failure{Code: "BROKEN_CODE"}})
			continue
		}
		r.report(t, l, engine.Complete{})
	}
}

// judge merges the ends of runs and applies the rule.
func (r *releases) judge(t *testing.T) store.ReleaseChannel {
	t.Helper()
	for {
		n, err := r.db.MergeReleaseEnds(t.Context(), 1000)
		require.NoError(t, err)
		if n == 0 {
			break
		}
	}
	require.NoError(t, r.JudgeRollouts(t.Context(), r.rollout))
	return r.channel(t)
}

func (r *releases) releaseOf(t *testing.T, owner id.Tenant) id.Deployment {
	t.Helper()
	used, err := r.db.ActiveCode(t.Context(), owner, "default")
	require.NoError(t, err)
	return used
}

func never(int) bool { return false }

func TestReleases(t *testing.T) {
	t.Parallel()

	t.Run("a release that fails more often is rolled back in its first wave, with tenants and errors", func(t *testing.T) {
		t.Parallel()
		r := setupReleases(t, 40)
		r.run(t, r.tenants, never)
		r.run(t, r.tenants, never)
		r.judge(t)
		v2 := r.release(t, "v2", strings.Replace(releaseText, "[run]", "[run, v2]", 1))
		r.roll(t, "v2", 5000, 10_000)
		var moved []id.Tenant
		for _, owner := range r.tenants {
			if r.releaseOf(t, owner) == v2.Deployment() {
				moved = append(moved, owner)
			}
		}
		require.NotEmpty(t, moved)
		require.Less(t, len(moved), 40)
		r.run(t, moved, func(i int) bool { return i%3 == 0 })
		c := r.judge(t)
		require.Equal(t, release.RolledBack, c.State())
		require.True(t, c.Rollout.Automatic)
		require.Zero(t, c.Rollout.Wave)
		require.Contains(t, c.Rollout.Reason, "BROKEN_CODE")
		require.Contains(t, c.Rollout.Reason, "tenants: t")
		for _, owner := range r.tenants {
			require.NotEqual(t, v2.Deployment(), r.releaseOf(t, owner))
		}
		verifytest.Clean(t, r.db)
	})

	t.Run("a release with the old failure rate passes all waves, and a wave writes one row and one event", func(t *testing.T) {
		t.Parallel()
		r := setupReleases(t, 60)
		r.run(t, r.tenants, func(i int) bool { return i%5 == 0 })
		r.judge(t)
		v2 := r.release(t, "v2", strings.Replace(releaseText, "[run]", "[run, v2]", 1))
		r.roll(t, "v2", 1000, 5000, 10_000)
		rows := func() int {
			return r.db.Count(t, `SELECT count(*) FROM servo.entity_events`) + r.db.Count(t, `SELECT count(*) FROM servo.platform_events`)
		}
		for wave := 0; wave < 3; wave++ {
			c := r.channel(t)
			require.Equal(t, release.Rolling, c.State())
			var moved []id.Tenant
			for _, owner := range r.tenants {
				if r.releaseOf(t, owner) == v2.Deployment() {
					moved = append(moved, owner)
				}
			}
			for range 30/len(moved) + 1 {
				r.run(t, moved, func(i int) bool { return i%6 == 5 })
			}
			require.Equal(t, c.Rollout.Wave, r.judge(t).Rollout.Wave, "the soak is not over")
			r.advance(t, 2*time.Minute)
			before := rows()
			r.judge(t)
			require.Equal(t, before+1, rows())
		}
		c := r.channel(t)
		require.Equal(t, release.Completed, c.State())
		require.Equal(t, v2.ID, c.Current)
		verifytest.Clean(t, r.db)
	})

	t.Run("a wave without runs asks, and people advance or roll back", func(t *testing.T) {
		t.Parallel()
		r := setupReleases(t, 3)
		r.release(t, "v2", strings.Replace(releaseText, "[run]", "[run, v2]", 1))
		r.roll(t, "v2")
		r.advance(t, 5*time.Minute)
		c := r.judge(t)
		require.Equal(t, release.Paused, c.State())
		require.True(t, c.Rollout.Automatic)
		require.Contains(t, c.Rollout.Reason, "only 0 runs ended")
		change := engine.ChangeRollout{Channel: "stable", Reason: "checked by hand", Meta: engineMeta}
		c, err := r.ResumeRollout(t.Context(), change)
		require.NoError(t, err)
		require.Equal(t, release.Rolling, c.State())
		c, err = r.PauseRollout(t.Context(), change)
		require.NoError(t, err)
		require.Equal(t, release.Paused, c.State())
		for c.State().Active() {
			c, err = r.AdvanceRollout(t.Context(), change)
			require.NoError(t, err)
		}
		require.Equal(t, release.Completed, c.State())
		c, err = r.RollBack(t.Context(), change)
		require.NoError(t, err)
		require.Equal(t, release.RolledBack, c.State())
		verifytest.Clean(t, r.db)
	})

	t.Run("runs in flight keep the release that they were planned with", func(t *testing.T) {
		t.Parallel()
		r := setupReleases(t, 1)
		r.tenant = r.tenants[0]
		key := r.trigger(t, "single")
		before, err := r.db.GetRun(t.Context(), key)
		require.NoError(t, err)
		v2 := r.release(t, "v2", strings.Replace(releaseText, "[run]", "[run, v2]", 1))
		r.roll(t, "v2")
		for r.channel(t).State().Active() {
			_, err := r.AdvanceRollout(t.Context(), engine.ChangeRollout{Channel: "stable"})
			require.NoError(t, err)
		}
		require.Equal(t, v2.Deployment(), r.releaseOf(t, r.tenant))
		l := r.one(t)
		require.Equal(t, []string{"run"}, l.Code.Exec.Command, "the code of the first release")
		r.report(t, l, engine.Complete{})
		after, err := r.db.GetRun(t.Context(), key)
		require.NoError(t, err)
		require.Equal(t, before.Deployment, after.Deployment)
		require.True(t, after.Released)
		verifytest.Clean(t, r.db)
	})
}

func TestReleaseImpact(t *testing.T) {
	t.Parallel()
	saveConfig := func(t *testing.T, r *releases, owner id.Tenant, parameters string) error {
		t.Helper()
		_, err := r.SaveConfigs(t.Context(), engine.SaveConfigs{Tenant: owner, Configs: []engine.SaveConfig{{
			Name: "nightly", Spec: config.Spec{Pipeline: "single", Parameters: []byte(parameters), Trigger: config.Trigger{Manual: true}},
		}}, Meta: engineMeta})
		return err
	}

	t.Run("configs that would break are listed, refuse the roll, and their tenants can be skipped", func(t *testing.T) {
		t.Parallel()
		r := setupReleases(t, 4)
		require.NoError(t, saveConfig(t, r, r.tenants[0], `{"n": 3}`))
		require.NoError(t, saveConfig(t, r, r.tenants[1], `{}`))
		r.release(t, "typed", strings.Replace(releaseText, "type: integer, default: 1", "type: string, default: a", 1))
		r.release(t, "gone", strings.Replace(releaseText, "name: single", "name: other", 1))

		impact, err := r.CheckRelease(t.Context(), "typed", "stable")
		require.NoError(t, err)
		require.Equal(t, 2, impact.Configs)
		require.Len(t, impact.Broken, 1)
		require.Equal(t, "t0", impact.Broken[0].Tenant)
		require.Equal(t, engine.ParametersRefused, impact.Broken[0].Kind)
		impact, err = r.CheckRelease(t.Context(), "gone", "stable")
		require.NoError(t, err)
		require.Equal(t, 2, impact.Total)
		require.Equal(t, engine.PipelineMissing, impact.Broken[0].Kind)

		_, err = r.Roll(t.Context(), engine.RollChannel{Channel: "stable", Release: "typed", Meta: engineMeta})
		requireFault(t, err, fault.Conflict)
		require.ErrorContains(t, err, "would break 1 configs of 1 tenants: t0/default/nightly")
		require.Equal(t, release.None, r.channel(t).State(), "nothing is half done")
		_, err = r.Roll(t.Context(), engine.RollChannel{Channel: "stable", Release: "typed", Waves: []int32{10_000}, AllowBroken: true, Meta: engineMeta})
		require.NoError(t, err)
		require.NotEqual(t, r.releaseOf(t, r.tenants[0]), r.releaseOf(t, r.tenants[1]))

		err = saveConfig(t, r, r.tenants[1], `{"n": "text"}`)
		require.ErrorContains(t, err, "in the other release of channel stable", "during a roll both releases must accept a config")
		verifytest.Clean(t, r.db)
	})

	t.Run("an asset with other partitions breaks the configs of its pipeline, and of no other", func(t *testing.T) {
		t.Parallel()
		r := setupReleases(t, 1)
		require.NoError(t, saveConfig(t, r, r.tenants[0], `{}`))
		const asset = "exec: {command: [run]}, retry"
		r.release(t, "daily", strings.Replace(releaseText, asset, "partitions: [{dimension: date, kind: daily, start: 2026-01-01}], "+asset, 1))
		r.release(t, "more", strings.Replace(releaseText, "assets:", "assets:\n  - {key: s/two, exec: {command: [run]}, partitions: [{dimension: date, kind: daily, start: 2026-01-01}]}", 1))
		impact, err := r.CheckRelease(t.Context(), "daily", "stable")
		require.NoError(t, err)
		require.Len(t, impact.Broken, 1)
		require.Equal(t, engine.PartitionsChanged, impact.Broken[0].Kind)
		require.Contains(t, impact.Broken[0].Message, "s/one")
		impact, err = r.CheckRelease(t.Context(), "more", "stable")
		require.NoError(t, err)
		require.Empty(t, impact.Broken)
	})

	t.Run("requests that cannot be done are refused, and nothing is half done", func(t *testing.T) {
		t.Parallel()
		r := setupReleases(t, 2)
		r.release(t, "v2", strings.Replace(releaseText, "[run]", "[run, v2]", 1))
		roll := func(channel, to string) error {
			_, err := r.Roll(t.Context(), engine.RollChannel{Channel: channel, Release: to, Meta: engineMeta})
			return err
		}
		manifest, err := asset.Parse([]byte(manifestText), "servo.yaml")
		require.NoError(t, err)
		requireFault(t, roll("stable", "v9"), fault.NotFound)
		requireFault(t, roll("beta", "v2"), fault.NotFound)
		requireFault(t, roll("stable", "v1"), fault.Conflict)
		require.NoError(t, roll("stable", "v2"))
		requireFault(t, roll("stable", "v2"), fault.Conflict)
		requireFault(t, r.DeleteRelease(t.Context(), "v1", engineMeta), fault.Conflict)
		requireFault(t, r.DeleteRelease(t.Context(), "v2", engineMeta), fault.Conflict)
		requireFault(t, r.DeleteReleaseChannel(t.Context(), "stable", engineMeta), fault.Conflict)
		_, err = r.Deploy(t.Context(), r.tenants[0], "default", manifest, engineMeta)
		requireFault(t, err, fault.Conflict)
		require.ErrorContains(t, err, "follows channel stable")
		_, _, err = r.CreateRelease(t.Context(), engine.CreateRelease{Name: "v2", Manifest: manifest})
		requireFault(t, err, fault.AlreadyExists)
		_, err = r.FollowChannel(t.Context(), engine.Follow{Tenant: r.tenants[0], Channel: "nowhere"})
		requireFault(t, err, fault.NotFound)
		verifytest.Clean(t, r.db)
	})

	t.Run("workspaces follow by name, by label and as new tenants, and return to their own deployments", func(t *testing.T) {
		t.Parallel()
		r := setupReleases(t, 1)
		require.NoError(t, r.SetTenantLabels(t.Context(), r.tenant, map[string]string{"tier": "internal"}, engineMeta))
		own := r.releaseOf(t, r.tenant)
		followed, skipped, err := r.FollowByLabel(t.Context(), "stable", "tier=internal", engineMeta)
		require.NoError(t, err)
		require.Equal(t, 1, followed)
		require.Empty(t, skipped)
		require.Equal(t, r.releaseOf(t, r.tenants[0]), r.releaseOf(t, r.tenant))
		changed, err := r.FollowChannel(t.Context(), engine.Follow{Tenant: r.tenant, Meta: engineMeta})
		require.NoError(t, err)
		require.True(t, changed)
		require.Equal(t, own, r.releaseOf(t, r.tenant))
		_, err = r.SetDefaultChannel(t.Context(), "stable", false, engineMeta)
		require.NoError(t, err)
		late, err := r.CreateTenant(t.Context(), "late", engineMeta)
		require.NoError(t, err)
		_, err = r.db.ActiveCode(t.Context(), late, "default")
		requireFault(t, err, fault.NotFound)
		_, err = r.FollowChannel(t.Context(), engine.Follow{Tenant: r.tenants[0], Meta: engineMeta})
		require.NoError(t, err)
		require.NoError(t, r.DeleteReleaseChannel(t.Context(), "stable", engineMeta))
		require.NoError(t, r.DeleteRelease(t.Context(), "v1", engineMeta))
		verifytest.Clean(t, r.db)
	})
}
