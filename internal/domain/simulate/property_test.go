package simulate_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"go.arco.dev/servo/internal/domain/schedule"
	"go.arco.dev/servo/internal/domain/simulate"
)

// Few different schedules, so that their slots meet; some with gaps and folds in the windows.
func drawSchedule(t *rapid.T) *schedule.Schedule {
	zone := rapid.SampledFrom([]string{"UTC", "Europe/Berlin", "Australia/Lord_Howe", "Africa/Cairo"}).Draw(t, "zone")
	trigger := schedule.Trigger{Kind: schedule.Cron}
	trigger.Cron = rapid.SampledFrom([]string{
		"0 * * * *", "*/15 * * * *", "30 2 * * *", "0 0 * * *", "59 23 * * *", "20,50 */4 * * *", "*/20 7 1 * * *", "0 9 * * 1-5", "@every 7m",
	}).Draw(t, "expression")
	if rapid.IntRange(0, 5).Draw(t, "other") == 0 {
		trigger = schedule.Trigger{
			Kind: schedule.Interval, Interval: rapid.SampledFrom([]time.Duration{90 * time.Second, time.Hour}).Draw(t, "interval"),
			Anchor: at("2026-03-01T00:00:00.25Z"),
		}
	}
	s, err := schedule.Parse(trigger, zone)
	require.NoError(t, err)
	return s
}

func drawInput(t *rapid.T, most int) simulate.Input {
	in := simulate.Input{
		From:  at("2026-03-25T00:00:00Z").Add(time.Duration(rapid.IntRange(0, 20*24*3600).Draw(t, "from")) * time.Second),
		Days:  rapid.IntRange(1, 4).Draw(t, "days"),
		Slots: rapid.SampledFrom([]int{0, 1, 2, 10}).Draw(t, "slots"),
		Limit: 1000,
	}
	for i := range rapid.IntRange(0, most).Draw(t, "configs") {
		window := rapid.SampledFrom([]time.Duration{0, 0, time.Minute, 10 * time.Minute, 3 * time.Hour}).Draw(t, "jitter")
		c := simulate.Config{
			Tenant: rapid.SampledFrom([]string{"a", "b", "c"}).Draw(t, "tenant"), Name: fmt.Sprint(i),
			Schedule: drawSchedule(t), JitterWindow: window,
			Duration:      time.Duration(rapid.IntRange(0, 7200).Draw(t, "duration")) * time.Second,
			MaxExecution:  rapid.SampledFrom([]time.Duration{0, time.Hour}).Draw(t, "execution"),
			SLAStartDelay: rapid.SampledFrom([]time.Duration{0, time.Second, 20 * time.Minute}).Draw(t, "sla"),
			Overlap:       rapid.SampledFrom([]string{"", "skip", "buffer_one", "buffer_all", "allow", "cancel_running"}).Draw(t, "overlap"),
			MaxOverlap:    rapid.IntRange(0, 2).Draw(t, "most"),
			Tasks:         rapid.IntRange(0, 5).Draw(t, "tasks"),
		}
		c.Jitter = c.Offset(window)
		in.Configs = append(in.Configs, c)
	}
	quota := rapid.SampledFrom([]int{simulate.NoLimit, simulate.NoLimit, 0, 1, 3})
	for _, name := range rapid.SampledFrom([][]string{nil, {"a"}, {"c", "a", "b"}}).Draw(t, "tenants") {
		in.Tenants = append(in.Tenants, simulate.Tenant{
			Name: name, MaxConcurrentRuns: quota.Draw(t, "concurrent"), MaxDailyRuns: quota.Draw(t, "daily"),
			Zone: rapid.SampledFrom([]string{"", "Africa/Cairo"}).Draw(t, "days of"),
		})
	}
	return in
}

// dueInstants are when the slots of a config are due.
func dueInstants(in simulate.Input, c simulate.Config) []time.Time {
	slots, _ := c.Schedule.Slots(in.From.Add(-time.Nanosecond), in.From.Add(time.Duration(in.Days)*24*time.Hour-time.Nanosecond), 1<<20)
	for i := range slots {
		slots[i] = slots[i].Add(c.Jitter)
	}
	return slots
}

// TestAccounts: every slot has one outcome, and every figure adds up.
func TestAccounts(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		in := drawInput(t, 12)
		r, err := simulate.Run(in)
		require.NoError(t, err)
		slots, tasks := 0, 0
		for _, c := range in.Configs {
			slots += len(dueInstants(in, c))
		}
		require.Equal(t, slots, r.Slots)
		require.Equal(t, r.Slots, r.Fired+r.SkippedOverlap+r.SkippedQuota)
		require.LessOrEqual(t, r.Wait.Runs, r.Fired-r.Unstarted)
		require.Equal(t, r.Wait.Runs, r.WaitedOverlap+r.WaitedQuota+r.WaitedWorkers)
		require.LessOrEqual(t, r.Wait.P50, r.Wait.P95)
		require.LessOrEqual(t, r.Wait.P95, r.Wait.Max)

		var hours, tenants simulate.Totals
		longest := simulate.Duration(0)
		for _, h := range r.Hours {
			hours.Slots += h.Due
			hours.Fired += h.Fired
			tasks += h.Tasks
			longest = max(longest, h.MaxWait)
			if in.Slots > 0 {
				require.LessOrEqual(t, h.MaxRunning, in.Slots, "no more run than there are places")
			}
		}
		require.Equal(t, r.Slots, hours.Slots)
		require.Equal(t, r.Fired, hours.Fired)
		require.LessOrEqual(t, tasks, 5*r.Fired)
		require.Equal(t, r.Wait.Max, longest)
		for _, tenant := range r.Tenants {
			tenants.Slots += tenant.Slots
			tenants.Fired += tenant.Fired
			tenants.SLAMisses += tenant.SLAMisses
			require.Equal(t, tenant.Slots, tenant.Fired+tenant.SkippedOverlap+tenant.SkippedQuota)
		}
		require.Equal(t, r.Slots, tenants.Slots)
		require.Equal(t, r.Fired, tenants.Fired)
		require.Equal(t, r.SLAMisses, tenants.SLAMisses)
		require.Len(t, r.Late, min(r.SLAMisses, in.Limit))
	})
}

// TestNothingHolds: where nothing is scarce, nothing waits, and the runs of an hour can be
// counted by their ends.
func TestNothingHolds(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		in := drawInput(t, 12)
		in.Slots, in.Tenants = 0, nil
		var starts, ends []time.Time
		for i := range in.Configs {
			c := &in.Configs[i]
			c.Overlap, c.MaxOverlap = simulate.OverlapAllow, 0
			takes := c.Duration
			if takes == 0 {
				takes = simulate.DefaultDuration
			}
			if c.MaxExecution > 0 {
				takes = min(takes, c.MaxExecution)
			}
			for _, due := range dueInstants(in, *c) {
				starts, ends = append(starts, due), append(ends, due.Add(takes))
			}
		}
		r, err := simulate.Run(in)
		require.NoError(t, err)
		require.Equal(t, len(starts), r.Fired)
		require.Zero(t, r.Wait)
		require.Zero(t, r.SLAMisses)
		slices.SortFunc(starts, time.Time.Compare)
		slices.SortFunc(ends, time.Time.Compare)
		upTo := func(list []time.Time, instant time.Time) int {
			n, _ := slices.BinarySearchFunc(list, instant.Add(1), time.Time.Compare)
			return n
		}
		for _, h := range r.Hours {
			most := upTo(starts, h.At) - upTo(ends, h.At)
			for _, s := range starts[upTo(starts, h.At):upTo(starts, h.At.Add(time.Hour-1))] {
				most = max(most, upTo(starts, s)-upTo(ends, s))
			}
			require.Equal(t, most, h.MaxRunning, "%s", h.At)
			require.Zero(t, h.MaxQueued)
		}
	})
}

// TestQueue: one queue before some places, with runs that all take the same time, against
// the arithmetic of queues.
func TestQueue(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		in := drawInput(t, 12)
		places := rapid.IntRange(1, 4).Draw(t, "places")
		in.Slots, in.Tenants = places, nil
		if rapid.Bool().Draw(t, "by quota") {
			in.Slots, in.Tenants = 0, []simulate.Tenant{{Name: "a", MaxConcurrentRuns: places, MaxDailyRuns: simulate.NoLimit}}
		}
		takes := time.Duration(rapid.IntRange(1, 3600).Draw(t, "takes")) * time.Second
		var due []time.Time
		for i := range in.Configs {
			c := &in.Configs[i]
			c.Tenant, c.Overlap, c.MaxOverlap, c.Duration, c.MaxExecution = "a", simulate.OverlapAllow, 0, takes, 0
			due = append(due, dueInstants(in, *c)...)
		}
		slices.SortFunc(due, time.Time.Compare)
		ends := make([]time.Time, places)
		var waits []time.Duration
		for _, d := range due {
			start := d
			if ends[0].After(start) {
				start = ends[0]
			}
			waits = append(waits, start.Sub(d))
			ends = append(ends[1:], start.Add(takes))
		}
		r, err := simulate.Run(in)
		require.NoError(t, err)
		require.Equal(t, len(waits), r.Fired)
		if len(waits) == 0 {
			return
		}
		slices.Sort(waits)
		require.Equal(t, simulate.Duration(waits[len(waits)-1]), r.Wait.Max)
		for percent, got := range map[int]simulate.Duration{50: r.Wait.P50, 95: r.Wait.P95} {
			exact := waits[(len(waits)*percent+99)/100-1]
			require.GreaterOrEqual(t, time.Duration(got), exact, "p%d", percent)
			require.LessOrEqual(t, time.Duration(got), exact+exact/32+time.Millisecond, "p%d", percent)
		}
	})
}

// TestPeaks: the highest minutes and hours are those that one finds by counting.
func TestPeaks(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		in := drawInput(t, 20)
		minutes, hours := map[time.Time]int{}, map[time.Time]int{}
		parts := map[time.Time]map[simulate.Part]bool{}
		for _, c := range in.Configs {
			own := map[time.Time]int{}
			for _, due := range dueInstants(in, c) {
				minutes[due.Truncate(time.Minute)]++
				hours[due.Truncate(time.Hour)]++
				own[due.Truncate(time.Minute)]++
			}
			for m, n := range own {
				if parts[m] == nil {
					parts[m] = map[simulate.Part]bool{}
				}
				parts[m][simulate.Part{Ref: simulate.Ref{Tenant: c.Tenant, Config: c.Name}, Slots: n}] = true
			}
		}
		highest := func(counts map[time.Time]int) []simulate.PeakHour {
			var list []simulate.PeakHour
			for m, n := range counts {
				list = append(list, simulate.PeakHour{At: m, Slots: n})
			}
			slices.SortFunc(list, func(a, b simulate.PeakHour) int {
				if a.Slots != b.Slots {
					return b.Slots - a.Slots
				}
				return a.At.Compare(b.At)
			})
			return list[:min(len(list), 10)]
		}
		r, err := simulate.Run(in)
		require.NoError(t, err)
		require.Equal(t, highest(hours), r.PeakHours)
		var got []simulate.PeakHour
		for _, m := range r.PeakMinutes {
			got = append(got, simulate.PeakHour{At: m.At, Slots: m.Slots})
			require.Equal(t, m.Count, len(m.Configs))
			own := map[simulate.Part]bool{}
			for _, part := range m.Configs {
				own[part] = true
			}
			require.Equal(t, parts[m.At], own)
		}
		require.Equal(t, highest(minutes), got)
	})
}

// TestOrder: the order of what is given has no influence, and the given is not changed.
func TestOrder(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		in := drawInput(t, 20)
		before := slices.Clone(in.Configs)
		want, err := simulate.Run(in)
		require.NoError(t, err)
		require.Equal(t, before, in.Configs)
		random := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "order"), 0))
		random.Shuffle(len(in.Configs), func(i, j int) { in.Configs[i], in.Configs[j] = in.Configs[j], in.Configs[i] })
		random.Shuffle(len(in.Tenants), func(i, j int) { in.Tenants[i], in.Tenants[j] = in.Tenants[j], in.Tenants[i] })
		got, err := simulate.Run(in)
		require.NoError(t, err)
		require.Equal(t, want, got)
	})
}

// follow makes a suggestion's changes.
func follow(t require.TestingT, in simulate.Input, s simulate.Suggestion) simulate.Input {
	windows := map[simulate.Ref]time.Duration{}
	for _, change := range s.Changes {
		require.Len(t, change.Configs, change.Count)
		for _, ref := range change.Configs {
			windows[ref] = time.Duration(change.Window)
		}
	}
	in.Configs = slices.Clone(in.Configs)
	for i := range in.Configs {
		c := &in.Configs[i]
		if window, ok := windows[simulate.Ref{Tenant: c.Tenant, Config: c.Name}]; ok {
			require.Greater(t, window, c.JitterWindow)
			if c.SLAStartDelay > 0 {
				require.LessOrEqual(t, window, c.SLAStartDelay)
			}
			c.JitterWindow, c.Jitter = window, c.Offset(window)
		}
	}
	return in
}

// TestSuggestions: who follows them gets the peak that they promise, and it is lower.
func TestSuggestions(t *testing.T) {
	t.Parallel()
	made := 0
	rapid.Check(t, func(t *rapid.T) {
		in := drawInput(t, 60)
		r, err := simulate.Run(in)
		require.NoError(t, err)
		for _, s := range r.Suggestions {
			made++
			now, err := simulate.Run(in)
			require.NoError(t, err)
			require.Equal(t, now.PeakMinutes[0].Slots, s.Peak)
			require.Less(t, s.Becomes, s.Peak)
			in = follow(t, in, s)
			then, err := simulate.Run(in)
			require.NoError(t, err)
			require.Equal(t, s.Becomes, then.PeakMinutes[0].Slots)
		}
	})
	require.Positive(t, made, "there was nothing to follow")
}

func TestSuggestion(t *testing.T) {
	t.Parallel()

	crowd := func(t *testing.T, n int, expression string, sla time.Duration) []simulate.Config {
		t.Helper()
		configs := make([]simulate.Config, n)
		for i := range configs {
			configs[i] = simulate.Config{
				Tenant: expression, Name: fmt.Sprintf("%04d", i), Schedule: cron(t, expression, "UTC"), SLAStartDelay: sla,
			}
		}
		return configs
	}

	t.Run("a peak at midnight is spread, and configs outside it stay unchanged", func(t *testing.T) {
		t.Parallel()
		in := day(append(crowd(t, 1000, "0 0 * * *", 0), crowd(t, 30, "0 5 * * *", 0)...)...)
		s := run(t, in).Suggestions
		require.NotEmpty(t, s)
		require.Equal(t, 1000, s[0].Peak)
		require.LessOrEqual(t, s[0].Becomes, 40)
		require.Len(t, s[0].Changes, 1)
		require.Equal(t, 1000, s[0].Changes[0].Count)
		require.Len(t, s[0].Changes[0].Configs, simulate.DefaultLimit)
		require.Equal(t, simulate.Duration(time.Hour), s[0].Changes[0].Window)
	})

	t.Run("no window is longer than the time to the next slot, or than a run may be late", func(t *testing.T) {
		t.Parallel()
		in := day(append(append(crowd(t, 200, "*/10 * * * *", 0), crowd(t, 200, "0 * * * *", 20*time.Minute)...), crowd(t, 200, "0 0 * * *", 0)...)...)
		in.Limit = 1000
		s := run(t, in).Suggestions
		require.NotEmpty(t, s)
		for _, change := range s[0].Changes {
			for _, ref := range change.Configs {
				switch ref.Tenant {
				case "*/10 * * * *":
					require.LessOrEqual(t, change.Window, simulate.Duration(10*time.Minute))
				case "0 * * * *":
					require.LessOrEqual(t, change.Window, simulate.Duration(15*time.Minute))
				}
			}
		}
	})

	t.Run("the least delay that does about as well is taken", func(t *testing.T) {
		t.Parallel()
		// A hundred in every other minute: spread over half an hour, a hundred more hardly show.
		in := day(append(crowd(t, 100, "0 0 * * *", 0), crowd(t, 100, "* * * * *", 0)...)...)
		s := run(t, in).Suggestions
		require.NotEmpty(t, s)
		require.Equal(t, 200, s[0].Peak)
		require.LessOrEqual(t, time.Duration(s[0].Changes[0].Window), 30*time.Minute)
	})

	t.Run("what is highest then comes next", func(t *testing.T) {
		t.Parallel()
		in := day(append(crowd(t, 1000, "0 0 * * *", 0), crowd(t, 300, "0 5 * * *", 0)...)...)
		s := run(t, in).Suggestions
		require.GreaterOrEqual(t, len(s), 2)
		require.Equal(t, 1000, s[0].Peak)
		require.Equal(t, 300, s[0].Becomes)
		require.Equal(t, simulate.Duration(5*time.Minute), s[0].Changes[0].Window, "more would change nothing")
		require.Equal(t, 300, s[1].Peak)
		require.Equal(t, 300, s[1].Changes[0].Count)
	})

	t.Run("the last minute counts, though nothing comes after it", func(t *testing.T) {
		t.Parallel()
		configs := crowd(t, 100, "59 23 * * *", 0)
		for i := range configs {
			configs[i].Duration = time.Second
		}
		require.NotEmpty(t, run(t, day(configs...)).Suggestions)
	})

	t.Run("a few are not worth it", func(t *testing.T) {
		t.Parallel()
		require.Empty(t, run(t, day(crowd(t, 9, "0 0 * * *", 0)...)).Suggestions)
	})
}
