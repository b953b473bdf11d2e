package simulate_test

import (
	"encoding/json"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"go.arco.dev/servo/internal/base/fault"
	"go.arco.dev/servo/internal/domain/schedule"
	"go.arco.dev/servo/internal/domain/simulate"
)

func at(text string) time.Time {
	t, err := time.Parse(time.RFC3339, text)
	if err != nil {
		panic(err)
	}
	return t
}

func cron(tb testing.TB, expression, zone string) *schedule.Schedule {
	tb.Helper()
	s, err := schedule.Parse(schedule.Trigger{Kind: schedule.Cron, Cron: expression}, zone)
	require.NoError(tb, err)
	return s
}

// day is one day of configs whose tenant is acme and whose names are a, b, c, … unless they are set.
func day(configs ...simulate.Config) simulate.Input {
	for i := range configs {
		if configs[i].Tenant == "" {
			configs[i].Tenant = "acme"
		}
		if configs[i].Name == "" {
			configs[i].Name = string(rune('a' + i))
		}
	}
	return simulate.Input{From: at("2026-06-01T00:00:00Z"), Days: 1, Configs: configs}
}

func run(tb testing.TB, in simulate.Input) simulate.Report {
	tb.Helper()
	r, err := simulate.Run(in)
	require.NoError(tb, err)
	return r
}

func quotas(concurrent, daily int) simulate.Tenant {
	return simulate.Tenant{Name: "acme", MaxConcurrentRuns: concurrent, MaxDailyRuns: daily}
}

func seconds(n int) simulate.Duration { return simulate.Duration(n) * simulate.Duration(time.Second) }

func TestWindow(t *testing.T) {
	t.Parallel()

	t.Run("the first instant is part of the window, the one after it is not", func(t *testing.T) {
		t.Parallel()
		r := run(t, day(simulate.Config{Schedule: cron(t, "0 0 * * *", "UTC"), Tasks: 3}))
		require.Equal(t, 1, r.Slots)
		require.Len(t, r.Hours, 24)
		require.Equal(t, simulate.Hour{At: at("2026-06-01T00:00:00Z"), Due: 1, Fired: 1, Tasks: 3, MaxRunning: 1}, r.Hours[0])
		require.Equal(t, at("2026-06-02T00:00:00Z"), r.Until)
	})

	t.Run("jitter moves a slot to another hour, behind the window too", func(t *testing.T) {
		t.Parallel()
		r := run(t, day(simulate.Config{Schedule: cron(t, "30 23 * * *", "UTC"), Jitter: 40 * time.Minute}))
		require.Len(t, r.Hours, 25)
		require.Equal(t, 1, r.Hours[24].Due)
		require.Equal(t, at("2026-06-02T00:10:00Z"), r.PeakMinutes[0].At)
		require.Equal(t, "a", r.PeakMinutes[0].Configs[0].Config)
	})

	t.Run("a minute at the edge has only what lies in the window", func(t *testing.T) {
		t.Parallel()
		in := day(simulate.Config{Schedule: cron(t, "15,45 0 0 * * *", "UTC")})
		in.From = at("2026-06-01T00:00:30Z")
		r := run(t, in)
		require.Equal(t, 2, r.Slots)
		require.Len(t, r.PeakMinutes, 2)
		for _, m := range r.PeakMinutes {
			require.Equal(t, 1, m.Slots)
			require.Equal(t, 1, m.Configs[0].Slots)
		}
	})

	t.Run("a run counts in every hour it reaches into, and not in the one that begins when it ends", func(t *testing.T) {
		t.Parallel()
		r := run(t, day(simulate.Config{Schedule: cron(t, "30 3 * * *", "UTC"), Duration: 150 * time.Minute}))
		for i, h := range r.Hours {
			want := 0
			if i >= 3 && i < 6 {
				want = 1
			}
			require.Equal(t, want, h.MaxRunning, "hour %d", i)
		}
	})

	t.Run("what has no slots has none here", func(t *testing.T) {
		t.Parallel()
		manual, err := schedule.Parse(schedule.Trigger{Kind: schedule.Manual}, "UTC")
		require.NoError(t, err)
		r := run(t, day(simulate.Config{Schedule: manual}))
		require.Zero(t, r.Totals)
		require.Empty(t, r.PeakMinutes)
		require.Empty(t, run(t, day()).PeakHours)
	})
}

// TestOverlap: a run of 25 minutes every ten minutes, for an hour.
func TestOverlap(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		claim   string
		overlap string
		most    int
		want    simulate.Totals
		wait    simulate.Duration // the longest
		running int
	}{
		{
			"skip leaves out what comes while a run lasts",
			simulate.OverlapSkip, 0,
			simulate.Totals{Slots: 6, Fired: 2, SkippedOverlap: 4},
			0, 1,
		},
		{
			"the default is skip",
			"", 0,
			simulate.Totals{Slots: 6, Fired: 2, SkippedOverlap: 4},
			0, 1,
		},
		{
			// 0–25; 10 waits until 25, –50; 20 is skipped; 30 waits until 50, –75; 40 is skipped; 50 waits until 75.
			"buffer_one lets one wait and leaves out the others",
			simulate.OverlapBufferOne, 0,
			simulate.Totals{Slots: 6, Fired: 4, SkippedOverlap: 2, WaitedOverlap: 3},
			seconds(25 * 60), 1,
		},
		{
			"buffer_all lets all of them wait",
			simulate.OverlapBufferAll, 0,
			simulate.Totals{Slots: 6, Fired: 6, WaitedOverlap: 5},
			seconds(75 * 60), 1,
		},
		{
			"allow lets them run beside each other",
			simulate.OverlapAllow, 0,
			simulate.Totals{Slots: 6, Fired: 6},
			0, 3,
		},
		{
			"allow may have a bound",
			simulate.OverlapAllow, 2,
			simulate.Totals{Slots: 6, Fired: 4, SkippedOverlap: 2},
			0, 2,
		},
		{
			"cancel_running ends each for the next",
			simulate.OverlapCancelRunning, 0,
			simulate.Totals{Slots: 6, Fired: 6, Cancelled: 5},
			0, 1,
		},
	} {
		t.Run(c.claim, func(t *testing.T) {
			t.Parallel()
			r := run(t, day(simulate.Config{
				Schedule: cron(t, "0/10 3 * * *", "UTC"), Duration: 25 * time.Minute, Overlap: c.overlap, MaxOverlap: c.most,
			}))
			require.Equal(t, c.want, r.Totals)
			require.Equal(t, c.wait, r.Wait.Max)
			require.Equal(t, c.running, r.Hours[3].MaxRunning)
			require.Equal(t, c.overlap == simulate.OverlapAllow && c.most == 0, len(r.Overlaps) == 0)
		})
	}
}

func TestQuotas(t *testing.T) {
	t.Parallel()

	t.Run("runs beyond max_concurrent_runs wait for those before them", func(t *testing.T) {
		t.Parallel()
		in := day(
			simulate.Config{Schedule: cron(t, "0 3 * * *", "UTC"), Duration: 10 * time.Minute},
			simulate.Config{Schedule: cron(t, "0 3 * * *", "UTC"), Duration: 20 * time.Minute},
			simulate.Config{Schedule: cron(t, "0 3 * * *", "UTC"), Duration: time.Minute, SLAStartDelay: 5 * time.Minute},
		)
		in.Tenants = []simulate.Tenant{quotas(2, simulate.NoLimit)}
		r := run(t, in)
		require.Equal(t, simulate.Totals{Slots: 3, Fired: 3, WaitedQuota: 1, SLAMisses: 1}, r.Totals)
		require.Equal(t, simulate.Waits{Runs: 1, P95: seconds(600), Max: seconds(600)}, r.Wait)
		require.Equal(t, []simulate.Late{{
			Ref: simulate.Ref{Tenant: "acme", Config: "c"}, Slot: at("2026-06-01T03:00:00Z"), Wait: seconds(600), Allowed: seconds(300),
		}}, r.Late)
		require.Equal(t, "max_concurrent_runs", r.Quotas[0].Quota)
		require.Equal(t, 1, r.Quotas[0].Slots)
		require.Equal(t, 2, r.Hours[3].MaxRunning)
		require.Equal(t, 1, r.Hours[3].MaxQueued)
		require.Equal(t, seconds(600), r.Hours[3].MaxWait)
	})

	t.Run("a tenant that may run nothing never starts anything, and misses what it promised", func(t *testing.T) {
		t.Parallel()
		in := day(simulate.Config{
			Schedule: cron(t, "0 * * * *", "UTC"), Overlap: simulate.OverlapBufferAll, SLAStartDelay: time.Minute,
		})
		in.Tenants = []simulate.Tenant{quotas(0, simulate.NoLimit)}
		r := run(t, in)
		require.Equal(t, simulate.Totals{Slots: 24, Fired: 24, Unstarted: 24, SLAMisses: 24}, r.Totals)
		require.Equal(t, 24, r.Quotas[0].Slots)
	})

	t.Run("what is cancelled while it waits was late if it waited too long", func(t *testing.T) {
		t.Parallel()
		in := day(simulate.Config{
			Schedule: cron(t, "0 * * * *", "UTC"), Overlap: simulate.OverlapCancelRunning, SLAStartDelay: time.Minute,
		})
		in.Tenants = []simulate.Tenant{quotas(0, simulate.NoLimit)}
		r := run(t, in)
		require.Equal(t, simulate.Totals{Slots: 24, Fired: 24, Cancelled: 23, Unstarted: 1, SLAMisses: 24}, r.Totals)
		require.Equal(t, 1, r.Hours[20].MaxQueued)
	})

	t.Run("max_daily_runs skips the rest of the tenant's day, which begins in its zone", func(t *testing.T) {
		t.Parallel()
		in := day(simulate.Config{Schedule: cron(t, "0 * * * *", "UTC")})
		in.Tenants = []simulate.Tenant{{
			Name: "acme", MaxConcurrentRuns: simulate.NoLimit, MaxDailyRuns: 3, Zone: "Asia/Kolkata",
		}}
		r := run(t, in)
		// Its midnight is 18:30 in UTC: three runs from 00:00 and three from 19:00.
		require.Equal(t, simulate.Totals{Slots: 24, Fired: 6, SkippedQuota: 18}, r.Totals)
		require.Equal(t, "max_daily_runs", r.Quotas[0].Quota)
		require.Equal(t, at("2026-06-01T03:00:00Z"), *r.Quotas[0].First)
		require.Equal(t, 1, r.Hours[19].Fired)
		require.Zero(t, r.Hours[18].Fired)
	})

	t.Run("a cancelled run gives its place to the next", func(t *testing.T) {
		t.Parallel()
		in := day(simulate.Config{
			Schedule: cron(t, "0/10 3 * * *", "UTC"), Duration: time.Hour, Overlap: simulate.OverlapCancelRunning,
		})
		in.Tenants = []simulate.Tenant{quotas(1, simulate.NoLimit)}
		require.Equal(t, simulate.Totals{Slots: 6, Fired: 6, Cancelled: 5}, run(t, in).Totals)
	})

	t.Run("of those that wait and are cancelled only the last starts", func(t *testing.T) {
		t.Parallel()
		in := day(
			simulate.Config{Schedule: cron(t, "0 3 * * *", "UTC"), Duration: 33 * time.Minute},
			simulate.Config{Schedule: cron(t, "5/10 3 * * *", "UTC"), Overlap: simulate.OverlapCancelRunning},
		)
		in.Tenants = []simulate.Tenant{quotas(1, simulate.NoLimit)}
		r := run(t, in)
		require.Equal(t, simulate.Totals{Slots: 7, Fired: 7, Cancelled: 2, WaitedQuota: 1}, r.Totals)
		require.Equal(t, seconds(8*60), r.Wait.Max)
	})

	t.Run("what would wait for the quota anyway does not count against the workers", func(t *testing.T) {
		t.Parallel()
		in := day(
			simulate.Config{Schedule: cron(t, "0 3 * * *", "UTC")},
			simulate.Config{Schedule: cron(t, "0 3 * * *", "UTC")},
			simulate.Config{Schedule: cron(t, "0 3 * * *", "UTC")},
		)
		in.Slots, in.Tenants = 1, []simulate.Tenant{quotas(2, simulate.NoLimit)}
		require.Equal(t, simulate.Totals{Slots: 3, Fired: 3, WaitedWorkers: 1, WaitedQuota: 1}, run(t, in).Totals)
	})

	t.Run("a queue of cancelled runs keeps those that were not", func(t *testing.T) {
		t.Parallel()
		in := day(
			simulate.Config{Schedule: cron(t, "0 0 * * *", "UTC")},
			simulate.Config{Schedule: cron(t, "* * * * * *", "UTC"), Overlap: simulate.OverlapCancelRunning},
		)
		in.Tenants = []simulate.Tenant{quotas(0, simulate.NoLimit)}
		require.Equal(t, simulate.Totals{Slots: 86401, Fired: 86401, Cancelled: 86399, Unstarted: 2}, run(t, in).Totals)
	})

	t.Run("a slot that its quota keeps from firing cancels nothing", func(t *testing.T) {
		t.Parallel()
		in := day(simulate.Config{
			Schedule: cron(t, "0/10 3 * * *", "UTC"), Duration: time.Hour, Overlap: simulate.OverlapCancelRunning,
		})
		in.Tenants = []simulate.Tenant{quotas(simulate.NoLimit, 2)}
		require.Equal(t, simulate.Totals{Slots: 6, Fired: 2, SkippedQuota: 4, Cancelled: 1}, run(t, in).Totals)
	})
}

func TestWorkers(t *testing.T) {
	t.Parallel()

	t.Run("runs wait for a place", func(t *testing.T) {
		t.Parallel()
		in := day(
			simulate.Config{Schedule: cron(t, "55 3 * * *", "UTC"), Duration: 10 * time.Minute},
			simulate.Config{Schedule: cron(t, "56 3 * * *", "UTC"), Duration: 10 * time.Minute, SLAStartDelay: 9 * time.Minute},
		)
		in.Slots = 1
		r := run(t, in)
		require.Equal(t, simulate.Totals{Slots: 2, Fired: 2, WaitedWorkers: 1}, r.Totals)
		require.Equal(t, seconds(540), r.Wait.Max)
		require.Equal(t, seconds(540), r.Hours[3].MaxWait, "it counts in the hour in which the run was made")
		require.Zero(t, r.Hours[4].MaxWait)
	})

	// several are n configs of a tenant.
	several := func(n int, tenant, expression string, takes time.Duration) []simulate.Config {
		configs := make([]simulate.Config, n)
		for i := range configs {
			configs[i] = simulate.Config{
				Tenant: tenant, Name: expression + string(rune('a'+i)), Schedule: cron(t, expression, "UTC"), Duration: takes,
			}
		}
		return configs
	}

	t.Run("places are shared by the time that runs take, not by their number", func(t *testing.T) {
		t.Parallel()
		in := day(append(several(10, "long", "0 3 * * *", 10*time.Minute), several(10, "short", "0 3 * * *", time.Minute)...)...)
		in.Slots = 1
		for _, tenant := range run(t, in).Tenants {
			if tenant.Tenant == "short" {
				require.LessOrEqual(t, tenant.Wait.Max, seconds(25*60))
			}
		}
	})

	t.Run("who did not wait has no credit for it", func(t *testing.T) {
		t.Parallel()
		noon := several(1, "old", "1 12 * * *", time.Minute)
		noon[0].SLAStartDelay = 25 * time.Minute
		in := day(slices.Concat(several(12, "old", "0 0 * * *", 10*time.Minute), noon, several(20, "new", "0 12 * * *", 10*time.Minute))...)
		in.Slots = 1
		require.Zero(t, run(t, in).SLAMisses)
	})

	t.Run("a tenant with one run is not served after another's backlog", func(t *testing.T) {
		t.Parallel()
		var configs []simulate.Config
		for range 20 {
			configs = append(configs, simulate.Config{Schedule: cron(t, "0 3 * * *", "UTC"), Duration: 10 * time.Minute})
		}
		configs = append(configs, simulate.Config{Tenant: "late", Schedule: cron(t, "5 3 * * *", "UTC"), Duration: time.Minute})
		in := day(configs...)
		in.Slots = 1
		r := run(t, in)
		for _, tenant := range r.Tenants {
			if tenant.Tenant == "late" {
				require.Equal(t, seconds(300), tenant.Wait.Max)
				return
			}
		}
		require.Fail(t, "the tenant is missing")
	})

	t.Run("a run that takes longer than it may ends then", func(t *testing.T) {
		t.Parallel()
		r := run(t, day(simulate.Config{
			Schedule: cron(t, "0 * * * *", "UTC"), Duration: 2 * time.Hour, MaxExecution: 30 * time.Minute,
		}))
		require.Equal(t, simulate.Totals{Slots: 24, Fired: 24, Overruns: 24}, r.Totals)
		require.Equal(t, []simulate.Overrun{{
			Ref: simulate.Ref{Tenant: "acme", Config: "a"}, Duration: seconds(7200), MaxExecution: seconds(1800), Runs: 24,
		}}, r.Overruns)
	})
}

func TestClockChanges(t *testing.T) {
	t.Parallel()
	configs := func() []simulate.Config {
		return []simulate.Config{
			{Name: "elapsed", Schedule: cron(t, "@every 10m", "Europe/Berlin")},
			{Name: "real", Schedule: cron(t, "*/10 * * * *", "Europe/Berlin")},
			{Name: "utc", Schedule: cron(t, "30 2 * * *", "UTC")},
			{Name: "wall", Schedule: cron(t, "30 2 * * *", "Europe/Berlin")},
			{Name: "wall-elsewhen", Schedule: cron(t, "30 4 * * *", "Europe/Berlin")},
		}
	}

	t.Run("a gap moves what is on the wall clock", func(t *testing.T) {
		t.Parallel()
		in := day(configs()...)
		in.From, in.Days = at("2026-03-28T00:00:00Z"), 3
		changes := run(t, in).ClockChanges
		require.Len(t, changes, 1)
		require.Equal(t, at("2026-03-29T01:00:00Z"), changes[0].At)
		require.Equal(t, schedule.GapShift, changes[0].Kind)
		require.Equal(t, []simulate.ClockEffect{
			{Ref: simulate.Ref{Tenant: "acme", Config: "wall"}, Effect: simulate.EffectMoved, Slots: 1},
		}, changes[0].Configs)
	})

	t.Run("a fold repeats what follows real time, and the wall clock fires once", func(t *testing.T) {
		t.Parallel()
		in := day(configs()...)
		in.From, in.Days = at("2026-10-24T00:00:00Z"), 3
		changes := run(t, in).ClockChanges
		require.Len(t, changes, 1)
		require.Equal(t, schedule.FoldShift, changes[0].Kind)
		require.Equal(t, []simulate.ClockEffect{
			{Ref: simulate.Ref{Tenant: "acme", Config: "real"}, Effect: simulate.EffectRepeated, Slots: 6},
			{Ref: simulate.Ref{Tenant: "acme", Config: "wall"}, Effect: simulate.EffectOnce, Slots: 1},
		}, changes[0].Configs)
		require.Equal(t, 2, changes[0].Count)
	})

	t.Run("half an hour counts too, in the order of time", func(t *testing.T) {
		t.Parallel()
		in := day(append(configs(), simulate.Config{Name: "x", Schedule: cron(t, "45 1 * * *", "Australia/Lord_Howe")})...)
		in.From, in.Days = at("2026-03-20T00:00:00Z"), 30
		changes := run(t, in).ClockChanges
		require.Len(t, changes, 2)
		require.Equal(t, "Australia/Lord_Howe", changes[1].Zone)
		require.Equal(t, simulate.EffectOnce, changes[1].Configs[0].Effect)
	})
}

func TestRefusals(t *testing.T) {
	t.Parallel()
	hourly := func() simulate.Config { return simulate.Config{Schedule: cron(t, "0 * * * *", "UTC")} }
	for field, change := range map[string]func(in *simulate.Input){
		"from":                              func(in *simulate.Input) { in.From = time.Time{} },
		"days":                              func(in *simulate.Input) { in.Days = 367 },
		"slots":                             func(in *simulate.Input) { in.Slots = -1 },
		"limit":                             func(in *simulate.Input) { in.Limit = -1 },
		"configs[acme/a].overlap":           func(in *simulate.Input) { in.Configs[0].Overlap = "perhaps" },
		"configs[acme/a].trigger":           func(in *simulate.Input) { in.Configs[0].Schedule = nil },
		"configs[acme/a].jitter":            func(in *simulate.Input) { in.Configs[0].Jitter = -1 },
		"configs[acme/a].duration":          func(in *simulate.Input) { in.Configs[0].Duration = 400 * 24 * time.Hour },
		"configs[acme/a]":                   func(in *simulate.Input) { in.Configs = append(in.Configs, in.Configs[0]) },
		"tenants[acme].timezone":            func(in *simulate.Input) { in.Tenants[0].Zone = "Mars/Olympus" },
		"tenants[acme]":                     func(in *simulate.Input) { in.Tenants = append(in.Tenants, in.Tenants[0]) },
		"tenants[acme].max_concurrent_runs": func(in *simulate.Input) { in.Tenants[0].MaxConcurrentRuns = -2 },
		"tenants[acme].max_daily_runs":      func(in *simulate.Input) { in.Tenants[0].MaxDailyRuns = -2 },
	} {
		t.Run(field+" is refused by its name", func(t *testing.T) {
			t.Parallel()
			in := day(hourly())
			in.Tenants = []simulate.Tenant{quotas(1, 1)}
			change(&in)
			_, err := simulate.Run(in)
			f, ok := fault.As(err)
			require.True(t, ok, "%v", err)
			require.Equal(t, fault.InvalidArgument, f.Code)
			require.Equal(t, field, f.Field)
			require.NotEmpty(t, f.Remedy)
		})
	}

	t.Run("more slots than a simulation may have are refused before they are counted one by one", func(t *testing.T) {
		t.Parallel()
		in := day(simulate.Config{Schedule: cron(t, "* * * * * *", "UTC")}, simulate.Config{Schedule: cron(t, "* * * * * *", "UTC")})
		in.Days = 366
		_, err := simulate.Run(in)
		require.True(t, fault.Is(err, fault.LimitExceeded), "%v", err)
	})
}

func TestTooManyWait(t *testing.T) {
	t.Parallel()
	in := day(simulate.Config{Schedule: cron(t, "* * * * * *", "UTC"), Overlap: simulate.OverlapBufferAll, Duration: time.Hour})
	in.Days = 30
	_, err := simulate.Run(in)
	require.True(t, fault.Is(err, fault.LimitExceeded), "%v", err)
	require.ErrorContains(t, err, "wait at 2026-06-24T")
}

func TestReportAsJSON(t *testing.T) {
	t.Parallel()
	in := month(t, 60)
	in.Slots = 5
	r := run(t, in)
	text, err := json.Marshal(r)
	require.NoError(t, err)
	var back simulate.Report
	require.NoError(t, json.Unmarshal(text, &back))
	require.Equal(t, r, back)
	require.Contains(t, string(text), `"max_wait":"`)
	require.Error(t, json.Unmarshal([]byte(`{"wait":{"max":"soon"}}`), &back))
}
