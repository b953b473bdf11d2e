package config

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"go.arco.dev/servo/internal/base/fault"
	"go.arco.dev/servo/internal/domain/partition"
)

func schemeOf(t require.TestingT, dimensions ...partition.Dimension) *partition.Scheme {
	s, err := partition.New(dimensions)
	require.NoError(t, err)
	return s
}

// TestEveryPartitionIsCoveredOnce fires slots as the engine does, over random schedules, pauses,
// outages, overlaps, failures and catch-up policies: every partition that is completed after the
// creation of the config is covered by exactly one fired slot.
func TestEveryPartitionIsCoveredOnce(t *testing.T) {
	t.Parallel()
	zones := []string{"UTC", "Europe/Berlin", "Pacific/Apia", "America/Goose_Bay", "Asia/Kolkata"}
	rapid.Check(t, func(t *rapid.T) {
		zone := rapid.SampledFrom(zones)
		schemes := []*partition.Scheme{
			schemeOf(t, partition.Dimension{Name: "date", Kind: partition.Daily, Start: "2011-01-01", Timezone: zone.Draw(t, "zone"), EndOffset: rapid.IntRange(-2, 2).Draw(t, "offset")}),
			schemeOf(t, partition.Dimension{Name: "hour", Kind: partition.Hourly, Start: "2011-01-01T00Z"}),
			schemeOf(t, partition.Dimension{Name: "week", Kind: partition.Weekly, Start: "2011-W01", Timezone: zone.Draw(t, "weeks")}),
		}[:rapid.IntRange(1, 3).Draw(t, "schemes")]
		c := Config{CreatedAt: time.Date(2011, 12, 20, rapid.IntRange(0, 23).Draw(t, "hour"), 30, 0, 0, time.UTC)}
		c.Spec = Spec{
			Trigger:    Trigger{Cron: rapid.SampledFrom([]string{"0 2 * * *", "*/20 * * * *", "0 */5 * * *", "30 1 * * 1"}).Draw(t, "cron")},
			Timezone:   zone.Draw(t, "own"),
			Catchup:    Catchup{Policy: rapid.SampledFrom([]CatchupPolicy{CatchupAll, CatchupLatest, CatchupNone}).Draw(t, "catchup"), MaxSlots: rapid.IntRange(1, 5).Draw(t, "slots")},
			Partitions: &Partitions{Max: rapid.SampledFrom([]int{0, 1, 3, 50}).Draw(t, "max")},
		}
		sched, err := c.Spec.Schedule()
		require.NoError(t, err)
		decided, covered, now := c.CreatedAt, time.Time{}, c.CreatedAt
		seen := map[int]map[int64]time.Time{}
		for range rapid.IntRange(1, 25).Draw(t, "looks") {
			now = now.Add(time.Duration(rapid.Int64Range(1, 200_000).Draw(t, "wait")) * time.Second)
			if rapid.IntRange(0, 5).Draw(t, "paused") == 0 {
				decided = now // a pause skips its slots
				continue
			}
			d := c.Due(sched, decided, now)
			decided = d.Until
			for _, slot := range d.Fire {
				if rapid.IntRange(0, 3).Draw(t, "refused") == 0 {
					continue // overlap, quota, dependency or failure
				}
				cover := c.Cover(schemes, covered, slot)
				if cover.None {
					continue
				}
				require.False(t, cover.Until.After(slot))
				for i, scheme := range schemes {
					set, err := cover.Select(scheme)
					require.NoError(t, err)
					if seen[i] == nil {
						seen[i] = map[int64]time.Time{}
					}
					if most := c.Spec.Partitions.Max; most > 0 {
						require.LessOrEqual(t, set.Count(), int64(most))
					}
					for p := range set.All(partition.OldestFirst) {
						earlier, twice := seen[i][p.Ordinal]
						require.False(t, twice, "%s was covered by %s", scheme.Key(p), earlier)
						require.False(t, scheme.CompletedAt(p.Ordinal).After(slot))
						seen[i][p.Ordinal] = slot
					}
				}
				covered = cover.Until
			}
		}
		for i, scheme := range schemes {
			for _, r := range scheme.Covered(c.CreatedAt, covered) {
				for o := r.First; o <= r.Last; o++ {
					require.Contains(t, seen[i], o, "%s is lost", scheme.Title(partition.Range{First: o, Last: o}))
				}
			}
		}
	})
}

func TestCover(t *testing.T) {
	t.Parallel()
	daily := schemeOf(t, partition.Dimension{Name: "date", Kind: partition.Daily, Start: "2026-01-01", Timezone: "Europe/Berlin"}, partition.Dimension{Name: "region", Kind: partition.Static, Values: []string{"eu", "us"}})
	monthly := schemeOf(t, partition.Dimension{Name: "month", Kind: partition.Monthly, Start: "2026-01"})
	both := []*partition.Scheme{daily, monthly}
	slot := time.Date(2026, 3, 5, 2, 0, 0, 0, time.UTC)
	c := Config{CreatedAt: time.Date(2026, 3, 4, 12, 0, 0, 0, time.UTC)}

	names := func(p *Partitions, covered, at time.Time) []string {
		c.Spec.Partitions = p
		return c.Cover(both, covered, at).Names(both)
	}
	require.Equal(t, []string{"date=2026-03-04", "month=2026-02"}, names(nil, time.Time{}, slot), "the first slot has the last of each")
	require.Equal(t, []string{"date=2026-03-02..2026-03-04"}, names(nil, slot.AddDate(0, 0, -3), slot))
	require.Equal(t, []string{"date=2026-02-28..2026-03-01", "month=2026-02"}, names(&Partitions{Max: 2}, slot.AddDate(0, 0, -5), slot))
	require.Equal(t, []string{"date=2026-03-03"}, names(&Partitions{Values: map[string]string{"date": "slot-2d"}}, slot.Add(-time.Hour), slot))
	require.Equal(t, []string{"date=2026-03-05"}, names(&Partitions{Values: map[string]string{"date": "slot"}}, slot.Add(-time.Hour), slot))

	c.Spec.Partitions = &Partitions{Values: map[string]string{"region": "eu"}}
	cover := c.Cover(both, slot.AddDate(0, 0, -3), slot)
	set, err := cover.Select(daily)
	require.NoError(t, err)
	require.EqualValues(t, 3, set.Count())
	c.Spec.Partitions = nil
	require.True(t, c.Cover(both, slot.Add(-time.Minute), slot).None)
	require.False(t, c.Cover([]*partition.Scheme{schemeOf(t, partition.Dimension{Name: "r", Kind: partition.Static, Values: []string{"x"}})}, slot, slot).None, "a slot without time always fires")
	require.False(t, c.Cover(nil, slot, slot).None)
}

func TestPartitionsOfASpec(t *testing.T) {
	t.Parallel()
	daily := []*partition.Scheme{schemeOf(t, partition.Dimension{Name: "date", Kind: partition.Daily, Start: "2026-01-01"}, partition.Dimension{Name: "region", Kind: partition.Static, Values: []string{"eu"}})}
	for want, p := range map[string]Partitions{
		"max_partitions: is 10001":                               {Max: 10_001},
		`partitions.values.date: "slot-2x" is not an offset`:     {Values: map[string]string{"date": "slot-2x"}},
		`partitions.values.date: "2026-01-01" is not an offset`:  {Values: map[string]string{"date": "2026-01-01"}},
		`partitions.values.day: unknown dimension "day"`:         {Values: map[string]string{"day": "slot"}},
		`partitions.values.region: unknown value "ue" of region`: {Values: map[string]string{"region": "ue"}},
	} {
		spec := Spec{Pipeline: "p", Trigger: Trigger{Cron: "0 2 * * *"}, Partitions: &p}.Filled(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC))
		_, err := spec.Validate()
		if err == nil {
			err = spec.CheckPartitions(daily)
		}
		f, ok := fault.As(err)
		require.True(t, ok, want)
		require.ErrorContains(t, err, want)
		require.NotEmpty(t, f.Violation.Remedy)
	}
	require.ErrorContains(t, Spec{Pipeline: "p", Partitions: &Partitions{}}.CheckPartitions(nil), "no asset of pipeline p has partitions")
}
