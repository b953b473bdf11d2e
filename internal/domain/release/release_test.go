package release_test

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"go.arco.dev/servo/internal/base/event"
	"go.arco.dev/servo/internal/base/fault"
	"go.arco.dev/servo/internal/base/id"
	"go.arco.dev/servo/internal/domain/release"
)

var at = time.Date(2026, 11, 18, 9, 0, 0, 0, time.UTC)

func counts(ended, failed int64) release.Counts { return release.Counts{Ended: ended, Failed: failed} }

func drawCounts(t *rapid.T, name string) release.Counts {
	ended := rapid.Int64Range(0, 2000).Draw(t, name)
	return counts(ended, rapid.Int64Range(0, ended).Draw(t, name+" failed"))
}

func TestWorse(t *testing.T) {
	t.Parallel()

	t.Run("the examples of the rule", func(t *testing.T) {
		t.Parallel()
		for _, c := range []struct {
			claim    string
			now, old release.Counts
			worse    bool
		}{
			{"30 % against 1 %", counts(40, 12), counts(1000, 10), true},
			{"one failure of few runs is no proof", counts(5, 1), counts(100, 2), false},
			{"significant, but within one point", counts(100_000, 1500), counts(100_000, 1000), false},
			{"as bad as the old one", counts(500, 100), counts(500, 100), false},
			{"better than the old one", counts(500, 5), counts(500, 100), false},
			{"without old runs, 5 % of 30 is the bound", counts(30, 2), counts(0, 0), true},
			{"without old runs, 29 are too few", counts(29, 29), counts(0, 0), false},
			{"without old runs, at the bound", counts(40, 2), counts(0, 0), false},
			{"one old run proves nothing, so the fixed bound holds", counts(30, 30), counts(1, 0), true},
			{"every run fails, at a small count", counts(3, 3), counts(300, 3), true},
		} {
			require.Equal(t, c.worse, release.Evidence{New: c.now, Old: c.old}.Worse(), c.claim)
		}
	})

	t.Run("the test equals a count of all tables", func(t *testing.T) {
		t.Parallel()
		// 8 of 10 new and 2 of 20 old runs failed: p is the sum over the tables with at least 8.
		e := release.Evidence{New: counts(10, 8), Old: counts(20, 2)}
		choose := func(n, k int) float64 {
			v := 1.0
			for i := range k {
				v = v * float64(n-i) / float64(i+1)
			}
			return v
		}
		want := 0.0
		for k := 8; k <= 10; k++ {
			want += choose(10, k) * choose(20, 10-k) / choose(30, 10)
		}
		require.InEpsilon(t, want, release.Chance(e), 1e-9)
	})

	t.Run("a release that fails no more often than the old one is never worse", func(t *testing.T) {
		t.Parallel()
		rapid.Check(t, func(t *rapid.T) {
			e := release.Evidence{New: drawCounts(t, "new"), Old: drawCounts(t, "old")}
			if e.New.Rate() <= e.Old.Rate() {
				require.False(t, e.Worse())
			}
		})
	})

	t.Run("more failures never make it better", func(t *testing.T) {
		t.Parallel()
		rapid.Check(t, func(t *rapid.T) {
			e := release.Evidence{New: drawCounts(t, "new"), Old: drawCounts(t, "old")}
			if e.New.Failed < e.New.Ended && e.Worse() {
				e.New.Failed++
				require.True(t, e.Worse())
			}
		})
	})

	t.Run("few of many rollouts with the old failure rate are stopped, looked at after every run", func(t *testing.T) {
		t.Parallel()
		stopped := 0
		const rollouts = 300
		for seed := range uint64(rollouts) {
			r := rand.New(rand.NewPCG(seed, 1)) //nolint:gosec // a simulation
			e := release.Evidence{}
			for range 1000 {
				e.Old.Ended++
				if r.Float64() < 0.1 {
					e.Old.Failed++
				}
			}
			for range 200 {
				e.New.Ended++
				if r.Float64() < 0.1 {
					e.New.Failed++
				}
				if e.Worse() {
					stopped++
					break
				}
			}
		}
		require.Less(t, stopped, rollouts/10)
	})

	t.Run("every rollout with 30 % more failures is stopped within 200 runs", func(t *testing.T) {
		t.Parallel()
		for seed := range uint64(300) {
			r := rand.New(rand.NewPCG(seed, 2)) //nolint:gosec // a simulation
			e := release.Evidence{Old: counts(1000, 20)}
			for e.New.Ended < 200 && !e.Worse() {
				e.New.Ended++
				if r.Float64() < 0.32 {
					e.New.Failed++
				}
			}
			require.True(t, e.Worse())
		}
	})
}

func TestJudge(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		r := release.Rollout{State: release.Rolling, Soak: 15 * time.Minute, WaveAt: at, Base: rapid.Int64Range(0, 100).Draw(t, "base")}
		e := release.Evidence{New: drawCounts(t, "new"), Old: drawCounts(t, "old")}
		e.New.Ended += r.Base
		after := time.Duration(rapid.IntRange(0, 90).Draw(t, "minutes")) * time.Minute
		got := r.Judge(e, at.Add(after))
		enough := e.New.Ended-r.Base >= release.MinRuns
		switch {
		case e.Worse():
			require.Equal(t, release.Stop, got, "at any count and time")
		case !enough && after < 4*r.Soak:
			require.Equal(t, release.Wait, got, "small samples wait")
		case !enough:
			require.Equal(t, release.Ask, got)
		case after < r.Soak:
			require.Equal(t, release.Wait, got)
		default:
			require.Equal(t, release.Advance, got)
		}
	})
}

func TestWaves(t *testing.T) {
	t.Parallel()

	t.Run("waves hold about their share of tenants, a tenant never leaves its wave, and labelled tenants are first", func(t *testing.T) {
		t.Parallel()
		r := release.Rollout{Waves: release.DefaultWaves(), First: "tier=internal"}
		reached := make([]int, len(r.Waves))
		const tenants = 20_000
		for range tenants {
			tenant := id.Of[id.Tenant](uuid.New())
			wave := r.WaveOf("stable", tenant, nil)
			require.Equal(t, wave, r.WaveOf("stable", tenant, map[string]string{"tier": "other"}))
			require.Zero(t, r.WaveOf("stable", tenant, map[string]string{"tier": "internal"}))
			for w := wave; w < len(reached); w++ {
				reached[w]++
			}
		}
		for w, n := range reached {
			require.InDelta(t, float64(r.Waves[w])/10_000, float64(n)/tenants, 0.02)
		}
	})

	t.Run("a tenant changes from the old to the new release once, and a skipped one never", func(t *testing.T) {
		t.Parallel()
		from, to := id.Of[id.Release](uuid.New()), id.Of[id.Release](uuid.New())
		for range 100 {
			tenant := id.Of[id.Tenant](uuid.New())
			c := release.Channel{Live: true, Current: from, Rollout: &release.Rollout{From: from, To: to, State: release.Rolling, Waves: release.DefaultWaves()}}
			changed := false
			for wave := range c.Rollout.Waves {
				c.Rollout.Wave = wave
				isNew := c.For("stable", tenant, nil) == to
				require.False(t, changed && !isNew)
				changed = isNew
			}
			require.True(t, changed)
			c.Rollout.Skipped = []id.Tenant{tenant}
			require.Equal(t, from, c.For("stable", tenant, nil))
			c.Rollout.State = release.RolledBack
			require.Equal(t, from, c.For("stable", tenant, nil))
		}
	})

	t.Run("waves, soaks and labels that cannot be rolled are refused by their field", func(t *testing.T) {
		t.Parallel()
		good := release.Roll{Waves: release.DefaultWaves(), Soak: time.Minute, First: "tier=internal"}
		require.NoError(t, good.Validate())
		for field, change := range map[string]func(*release.Roll){
			"waves":        func(r *release.Roll) { r.Waves = nil },
			"waves[1]":     func(r *release.Roll) { r.Waves = []int32{500, 500, 10_000} },
			"waves[0]":     func(r *release.Roll) { r.Waves = []int32{0, 10_000} },
			"soak":         func(r *release.Roll) { r.Soak = 0 },
			"first":        func(r *release.Roll) { r.First = "internal" },
			"allow_broken": func(r *release.Roll) { r.Skipped = make([]id.Tenant, release.MaxSkipped+1) },
		} {
			r := good
			change(&r)
			refused, ok := fault.As(r.Validate())
			require.True(t, ok, field)
			require.Equal(t, field, refused.Field)
		}
	})
}

func TestChannel(t *testing.T) {
	t.Parallel()

	t.Run("any commands keep the channel in a legal state, and refusals change nothing", func(t *testing.T) {
		t.Parallel()
		rapid.Check(t, func(t *rapid.T) {
			first := id.Of[id.Release](uuid.UUID{15: 1})
			c, err := release.Channel{}.Evolve(release.ChannelCreated{Release: first}, at)
			require.NoError(t, err)
			for i := range rapid.IntRange(1, 30).Draw(t, "commands") {
				e := release.Evidence{New: drawCounts(t, "new")}
				before := c.State()
				var body event.Body
				command := rapid.SampledFrom([]string{"roll", "advance", "pause", "resume", "rollback"}).Draw(t, "command")
				switch command {
				case "roll":
					body, err = c.Start("stable", release.Roll{Rollout: uuid.New(), To: id.Of[id.Release](uuid.UUID{0: byte(i), 15: 2}), Waves: release.DefaultWaves(), Soak: time.Minute})
				case "advance":
					body, err = c.Next("stable", e, "")
				case "pause":
					body, err = c.Pause("stable", e, "", false)
				case "resume":
					body, err = c.Resume("stable", e, "")
				case "rollback":
					body, err = c.Rollback("stable", e, "", false)
				}
				if err != nil {
					require.True(t, fault.Is(err, fault.Conflict), "%v", err)
					continue
				}
				old := c
				c, err = c.Evolve(body, at.Add(time.Duration(i)*time.Minute))
				require.NoError(t, err, "%s of %s", command, before)
				r := c.Rollout
				require.NotNil(t, r)
				require.Less(t, r.Wave, len(r.Waves))
				switch c.State() {
				case release.Completed:
					require.Equal(t, r.To, c.Current)
				case release.RolledBack:
					require.Equal(t, r.From, c.Current)
				default:
					require.Equal(t, r.From, c.Current)
				}
				if old.Rollout != nil && command != "roll" {
					require.Equal(t, before, old.State(), "events do not change the value they are applied to")
				}
			}
		})
	})

	t.Run("a roll during a roll, to the same release, and commands without one are refused", func(t *testing.T) {
		t.Parallel()
		a, b := id.Of[id.Release](uuid.New()), id.Of[id.Release](uuid.New())
		c, err := release.Channel{}.Evolve(release.ChannelCreated{Release: a}, at)
		require.NoError(t, err)
		roll := release.Roll{Rollout: uuid.New(), To: b, Waves: release.DefaultWaves(), Soak: time.Minute}
		_, err = c.Next("stable", release.Evidence{}, "")
		require.ErrorContains(t, err, "was never rolled; there is nothing to advance")
		same := roll
		same.To = a
		_, err = c.Start("stable", same)
		require.ErrorContains(t, err, "uses release")
		body, err := c.Start("stable", roll)
		require.NoError(t, err)
		c, err = c.Evolve(body, at)
		require.NoError(t, err)
		_, err = c.Start("stable", roll)
		require.ErrorContains(t, err, "is being rolled")
		_, err = c.Resume("stable", release.Evidence{}, "")
		require.ErrorContains(t, err, "nothing to resume")
		_, err = release.Channel{}.Evolve(release.ChannelUpdated{}, at)
		require.ErrorContains(t, err, "unexpected event")
		require.Equal(t, []id.Release{a, b}, c.Releases())
	})

	t.Run("releases are created and deleted once", func(t *testing.T) {
		t.Parallel()
		r, err := release.Release{}.Evolve(release.Created{Name: "v1", Digest: "d"}, at)
		require.NoError(t, err)
		_, err = r.Evolve(release.Created{Name: "v1"}, at)
		require.Error(t, err)
		r, err = r.Evolve(release.Deleted{}, at)
		require.NoError(t, err)
		require.Equal(t, at, r.DeletedAt)
		_, err = r.Evolve(release.Deleted{}, at)
		require.Error(t, err)
	})

	t.Run("names and labels have an alphabet", func(t *testing.T) {
		t.Parallel()
		require.NoError(t, release.ValidateChannelName("name", "stable"))
		require.Error(t, release.ValidateChannelName("name", "Stable!"))
		require.NoError(t, release.ValidateName("name", "2026.11.1+b2"))
		require.Error(t, release.ValidateName("name", ""))
		require.NoError(t, release.ValidateLabels("labels", map[string]string{"tier": "internal"}))
		require.Error(t, release.ValidateLabels("labels", map[string]string{"tier": ""}))
		many := map[string]string{}
		for i := range 21 {
			many[fmt.Sprint("k", i)] = "v"
		}
		require.Error(t, release.ValidateLabels("labels", many))
	})
}
