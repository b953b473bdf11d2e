package partition

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"go.arco.dev/servo/internal/domain/schedule"
)

func zoneOf(t require.TestingT, name string) schedule.Zone {
	zone, err := schedule.FindZone(name)
	require.NoError(t, err)
	return zone
}

func location(t require.TestingT, name string) *time.Location {
	location, err := schedule.Location(name)
	require.NoError(t, err)
	return location
}

func TestOrdinalsBeginIn1970(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]int64{
		"1970-01-01": 0, "1969-12-31": -1, "1970-02-01": 31, "2026-01-01": 20454,
		"1970-01-01T00Z": 0, "1970-01-02T01Z": 25, "1969-12-31T23Z": -1,
		"1970-W01": 0, "1970-W02": 1, "1969-W52": -1, "2026-W01": 2922,
		"1970-01": 0, "1970-12": 11, "1969-12": -1, "2026-01": 672,
	} {
		kind, ordinal, ok := readTime(text)
		require.True(t, ok, text)
		require.Equal(t, want, ordinal, text)
		require.Equal(t, text, kind.spell(ordinal))
	}
	for _, text := range []string{
		"", "x", "2026-1-1", "2026-02-30", "2026-13", "2026-W00", "2026-W54", "2025-W53", "2026-01-01T24Z", "2026-01-01T5Z",
		"2026-01-01T05", "1899-12-31", "2200-01-01", "0000-01", "2026-01-01 ", "+026-01-01", "2026-w01",
	} {
		_, _, ok := readTime(text)
		require.False(t, ok, text)
	}
}

// TestEveryZone checks every zone of the database at each of its changes and at random days.
func TestEveryZone(t *testing.T) {
	t.Parallel()
	kinds := []Kind{Hourly, Daily, Weekly, Monthly}
	for _, name := range schedule.Zones() {
		zone := zoneOf(t, name)
		instants := []time.Time{time.Unix(0, 0), time.Date(2026, 3, 29, 1, 0, 0, 0, time.UTC)}
		for _, change := range schedule.Transitions(name, time.Unix(0, 0), time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)) {
			instants = append(instants, change.At, change.At.Add(-time.Second), change.At.Add(12*time.Hour))
		}
		for _, kind := range kinds {
			c := calendar{kind, zone}
			for _, at := range instants {
				o := c.at(at)
				require.False(t, c.beginning(o).After(at), "%s %s %s", name, kind, at)
				require.True(t, c.end(o).After(at), "%s %s %s", name, kind, at)
				require.True(t, c.exists(o))
				back, ordinal, ok := readTime(kind.spell(o))
				require.True(t, ok && back == kind && ordinal == o, "%s %s %d", name, kind, o)
			}
		}
	}
}

func TestAnyZoneAndInstant(t *testing.T) {
	t.Parallel()
	zones := schedule.Zones()
	rapid.Check(t, func(t *rapid.T) {
		zone := zoneOf(t, rapid.SampledFrom(zones).Draw(t, "zone"))
		c := calendar{rapid.SampledFrom([]Kind{Hourly, Daily, Weekly, Monthly}).Draw(t, "kind"), zone}
		at := time.Unix(rapid.Int64Range(-2_000_000_000, 7_000_000_000).Draw(t, "at"), 0)
		o := c.at(at)
		require.False(t, c.beginning(o).After(at))
		require.True(t, c.end(o).After(at))
		// Beginnings never go back, so that partitions divide time without gaps.
		require.False(t, c.beginning(o-1).After(c.beginning(o)))
		if c.kind == Daily { // the local date of the middle of the day is its name
			middle := c.beginning(o).Add(c.end(o).Sub(c.beginning(o)) / 2)
			require.Equal(t, c.kind.spell(o), middle.In(location(t, zone.Name())).Format(time.DateOnly))
		}
		require.Equal(t, o-1, c.completed(at))
	})
}

func TestDaysWithChanges(t *testing.T) {
	t.Parallel()
	hours := func(zone, day string) float64 {
		_, ordinal, ok := readTime(day)
		require.True(t, ok)
		c := calendar{Daily, zoneOf(t, zone)}
		return c.end(ordinal).Sub(c.beginning(ordinal)).Hours()
	}
	require.InDelta(t, 23, hours("Europe/Berlin", "2026-03-29"), 0)
	require.InDelta(t, 25, hours("Europe/Berlin", "2026-10-25"), 0)
	require.InDelta(t, 25, hours("America/Havana", "2020-11-01"), 0)    // 01:00 → 00:00, of the same day
	require.InDelta(t, 23, hours("America/Sao_Paulo", "2018-11-04"), 0) // begins at 01:00
	require.InDelta(t, 25, hours("America/Goose_Bay", "2010-11-06"), 0) // 00:01 → 23:01 of the day before
	require.InDelta(t, 0, hours("Pacific/Apia", "2011-12-30"), 0)
	require.InDelta(t, 24, hours("Pacific/Apia", "2011-12-31"), 0)

	apia := calendar{Daily, zoneOf(t, "Pacific/Apia")}
	_, missing, _ := readTime("2011-12-30")
	require.Equal(t, []int64{missing}, apia.missingDays())
	require.Equal(t, Ranges{{missing - 2, missing - 1}, {missing + 1, missing + 2}}, without(Range{missing - 2, missing + 2}, apia.missingDays()))
	require.Empty(t, without(Range{missing, missing}, apia.missingDays()))
	for _, zone := range []string{"Pacific/Kwajalein", "Pacific/Kiritimati", "Pacific/Fakaofo", "Pacific/Enderbury"} {
		require.Len(t, calendar{Daily, zoneOf(t, zone)}.missingDays(), 1, zone)
	}
	require.Empty(t, calendar{Daily, zoneOf(t, "Europe/Berlin")}.missingDays())
}
