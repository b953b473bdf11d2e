package schedule_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"go.arco.dev/servo/internal/base/fault"
	"go.arco.dev/servo/internal/domain/schedule"
)

func TestZones(t *testing.T) {
	t.Parallel()
	begin, end := at("1970-01-01T00:00:00Z"), at("9999-12-31T23:59:59Z")

	t.Run("the version names the release and the content", func(t *testing.T) {
		t.Parallel()
		require.Equal(t, "2025c-8f55634d05f8", schedule.TZVersion())
	})

	t.Run("all zones are there, and change as package time reads them", func(t *testing.T) {
		t.Parallel()
		all := schedule.Zones()
		require.Greater(t, len(all), 590)
		for _, name := range all {
			location, err := schedule.Location(name)
			require.NoError(t, err)
			// The listed changes and the rules after them; where the cycle of 400 years closes.
			for _, from := range []time.Time{begin, at("2490-01-01T00:00:00Z")} {
				compareChanges(t, name, location, from, max(from.Year()+20, 2110))
			}
		}
	})

	t.Run("between the changes nothing changes", func(t *testing.T) {
		t.Parallel()
		rapid.Check(t, func(t *rapid.T) {
			name := zoneNames().Draw(t, "zone")
			location, err := schedule.Location(name)
			require.NoError(t, err)
			instant := time.Unix(rapid.Int64Range(begin.Unix(), end.Unix()-2*366*86400).Draw(t, "instant"), 0)
			offset := func(instant time.Time) time.Duration {
				_, seconds := instant.In(location).Zone()
				return time.Duration(seconds) * time.Second
			}
			holds := offset(instant)
			last := instant
			for _, change := range schedule.Transitions(name, instant, instant.AddDate(2, 0, 0)) {
				require.True(t, change.At.After(last))
				require.Equal(t, holds, change.Before)
				middle := last.Add(change.At.Sub(last) / 2)
				require.Equal(t, holds, offset(middle), "%s at %s", name, middle)
				holds, last = change.After, change.At
			}
			require.Equal(t, holds, offset(instant.AddDate(2, 0, 0)))
		})
	})

	t.Run("changes are listed with their direction", func(t *testing.T) {
		t.Parallel()
		changes := schedule.Transitions("Europe/Berlin", at("2026-03-29T00:59:59Z"), at("2026-10-25T01:00:00Z"))
		require.Equal(t, []schedule.Transition{
			{At: at("2026-03-29T01:00:00Z"), Before: time.Hour, After: 2 * time.Hour},
			{At: at("2026-10-25T01:00:00Z"), Before: 2 * time.Hour, After: time.Hour},
		}, changes)
		require.True(t, changes[0].Gap())
		require.False(t, changes[1].Gap())
		require.Empty(t, schedule.Transitions("Europe/Berlin", at("2026-03-29T01:00:00Z"), at("2026-10-25T00:59:59Z")))
		require.Empty(t, schedule.Transitions("Nowhere", begin, end))
		require.Empty(t, schedule.Transitions("UTC", begin, end))
	})

	for _, name := range []string{"", "Local", "local", "europe/berlin", "Europe/Berlin ", "/usr/share/zoneinfo/UTC", "../UTC", "Europe", "UTC+1", "\x00"} {
		t.Run("no zone is called "+name, func(t *testing.T) {
			t.Parallel()
			_, err := schedule.Parse(schedule.Trigger{Kind: schedule.Manual}, name)
			f, ok := fault.As(err)
			require.True(t, ok)
			require.Equal(t, fault.InvalidArgument, f.Code)
			require.Equal(t, "timezone", f.Field)
			require.NotEmpty(t, f.Remedy)
		})
	}

	t.Run("a similar name is suggested", func(t *testing.T) {
		t.Parallel()
		_, err := schedule.Location("Europe/Berln")
		require.ErrorContains(t, err, "did you mean Europe/Berlin?")
	})
}

// compareChanges holds the changes of a zone until a year against package time.
func compareChanges(t *testing.T, name string, location *time.Location, from time.Time, year int) {
	t.Helper()
	var previous time.Time
	for _, change := range schedule.Transitions(name, from, time.Date(year, 1, 1, 0, 0, 0, 0, time.UTC)) {
		_, before := change.At.Add(-time.Second).In(location).Zone()
		_, after := change.At.In(location).Zone()
		require.Equal(t, time.Duration(before)*time.Second, change.Before, "%s before %s", name, change.At)
		require.Equal(t, time.Duration(after)*time.Second, change.After, "%s at %s", name, change.At)
		require.NotEqual(t, before, after)
		// A fold that reached back behind a gap would put readings out of order.
		require.True(t, previous.IsZero() || change.At.Sub(previous) > 6*24*time.Hour, "%s at %s", name, change.At)
		previous = change.At
	}
}
