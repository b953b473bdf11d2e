package schedule_test

import (
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"go.arco.dev/servo/internal/base/fault"
	"go.arco.dev/servo/internal/domain/schedule"
)

// The zones whose changes are hard: half an hour, midnight, a whole day, 45 minutes,
// summer time that pauses for Ramadan, two hours.
var hardZones = []string{
	"Australia/Lord_Howe", "Africa/Cairo", "America/Santiago", "Pacific/Apia", "Pacific/Chatham",
	"Africa/Casablanca", "Antarctica/Troll", "Europe/Berlin", "America/New_York", "Europe/Dublin",
	"America/Nuuk", "Asia/Gaza", "Asia/Tehran", "America/Havana", "Africa/Monrovia", "Pacific/Kwajalein",
}

func at(text string) time.Time {
	instant, err := time.Parse(time.RFC3339, text)
	if err != nil {
		panic(err)
	}
	return instant
}

func zoneNames() *rapid.Generator[string] {
	return rapid.OneOf(rapid.SampledFrom(hardZones), rapid.SampledFrom(schedule.Zones()))
}

// instants draws one from 1970 to 2105, mostly near a change of the zone.
func instants(zone string) *rapid.Generator[time.Time] {
	changes := schedule.Transitions(zone, at("1970-01-03T00:00:00Z"), at("2105-01-01T00:00:00Z"))
	return rapid.Custom(func(t *rapid.T) time.Time {
		instant := at("1970-01-01T00:00:00Z").Add(time.Duration(rapid.Int64Range(0, 135*365*86400).Draw(t, "instant")) * time.Second)
		if len(changes) > 0 && rapid.IntRange(0, 4).Draw(t, "where") > 0 {
			change := rapid.SampledFrom(changes).Draw(t, "change")
			instant = change.At.Add(time.Duration(rapid.IntRange(-30*3600, 3*3600).Draw(t, "distance")) * time.Second)
		}
		return instant
	})
}

// parsed is the expression's schedule, or nil if there is rightly none.
func parsed(t require.TestingT, e expression, zone string) *schedule.Schedule {
	s, err := schedule.Parse(schedule.Trigger{Kind: schedule.Cron, Cron: e.text}, zone)
	if err == nil {
		return s
	}
	require.True(t, fault.Is(err, fault.InvalidArgument), "%s: %v", e.text, err)
	require.Contains(t, err.Error(), "never fires", "%s", e.text)
	if strings.Contains(err.Error(), "no such date") {
		for day := at("2000-01-01T00:00:00Z"); day.Year() < 2400; day = day.AddDate(0, 0, 1) {
			require.False(t, e.date(day), "%s is refused, but matches %s", e.text, day)
		}
	}
	return nil
}

func agree(t require.TestingT, e expression, zone string, after, until time.Time) {
	s := parsed(t, e, zone)
	if s == nil {
		return
	}
	location, err := schedule.Location(zone)
	require.NoError(t, err)
	want := oracle(e, location, after, until)
	got, more := s.Slots(after, until, math.MaxInt)
	require.False(t, more)
	require.Equal(t, want, got, "%s in %s after %s until %s", e.text, zone, after, until)
	require.Equal(t, len(want), s.Count(after, until), "count of %s in %s after %s until %s", e.text, zone, after, until)
}

func TestSlotsAgreeWithTheOracle(t *testing.T) {
	t.Parallel()

	t.Run("minute by minute, near the changes of any zone", func(t *testing.T) {
		t.Parallel()
		rapid.Check(t, func(t *rapid.T) {
			e := expressions(false).Draw(t, "expression")
			for range 5 {
				zone := zoneNames().Draw(t, "zone")
				after := instants(zone).Draw(t, "after")
				until := after.Add(time.Duration(rapid.IntRange(0, 50*3600).Draw(t, "window")) * time.Second)
				agree(t, e, zone, after, until)
			}
		})
	})

	t.Run("second by second", func(t *testing.T) {
		t.Parallel()
		rapid.Check(t, func(t *rapid.T) {
			e := expressions(true).Draw(t, "expression")
			zone := zoneNames().Draw(t, "zone")
			after := instants(zone).Draw(t, "after")
			until := after.Add(time.Duration(rapid.IntRange(0, 3*3600).Draw(t, "window")) * time.Second)
			agree(t, e, zone, after, until)
		})
	})

	t.Run("in every zone of the database", func(t *testing.T) {
		t.Parallel()
		for i, zone := range schedule.Zones() {
			for sample := range 3 {
				e := expressions(false).Example(3*i + sample)
				after := instants(zone).Example(3*i + sample)
				agree(t, e, zone, after, after.Add(36*time.Hour))
			}
		}
	})

	t.Run("where the time of the change itself is named", func(t *testing.T) {
		t.Parallel()
		for _, zone := range hardZones {
			for i, change := range schedule.Transitions(zone, at("1970-01-03T00:00:00Z"), at("2105-01-01T00:00:00Z")) {
				if i%13 != 0 {
					continue
				}
				for _, offset := range []time.Duration{change.Before, change.After} {
					for _, distance := range []time.Duration{-time.Minute, 0, time.Minute} {
						local := change.At.Add(offset + distance)
						agree(t, daily(local.Hour(), local.Minute()), zone, change.At.Add(-25*time.Hour), change.At.Add(25*time.Hour))
					}
				}
			}
		}
	})
}

// daily is the expression of one time of the day.
func daily(hour, minute int) expression {
	return expression{
		text:  fmt.Sprintf("%d %d * * *", minute, hour),
		clock: func(h, m, s int) bool { return h == hour && m == minute && s == 0 },
		date:  func(time.Time) bool { return true },
	}
}

func TestProperties(t *testing.T) {
	t.Parallel()

	t.Run("slots increase strictly, and Next walks through them", func(t *testing.T) {
		t.Parallel()
		rapid.Check(t, func(t *rapid.T) {
			zone := zoneNames().Draw(t, "zone")
			s := parsed(t, expressions(rapid.Bool().Draw(t, "seconds")).Draw(t, "expression"), zone)
			if s == nil {
				return
			}
			after := instants(zone).Draw(t, "after").Add(time.Duration(rapid.IntRange(0, 999_999_999).Draw(t, "fraction")))
			limit := rapid.IntRange(0, 50).Draw(t, "limit")
			slots, more := s.Slots(after, at("9999-12-31T23:59:59Z"), limit)
			require.LessOrEqual(t, len(slots), limit)
			for _, slot := range slots {
				require.True(t, slot.After(after))
				next, ok := s.Next(after)
				require.True(t, ok)
				require.Equal(t, slot, next)
				require.Equal(t, time.UTC, slot.Location())
				after = slot
			}
			_, ok := s.Next(after)
			require.Equal(t, ok, more)
		})
	})

	t.Run("windows that touch give the same slots as one", func(t *testing.T) {
		t.Parallel()
		rapid.Check(t, func(t *rapid.T) {
			zone := zoneNames().Draw(t, "zone")
			s := parsed(t, expressions(false).Draw(t, "expression"), zone)
			if s == nil {
				return
			}
			after := instants(zone).Draw(t, "after")
			middle := after.Add(time.Duration(rapid.IntRange(0, 40*3600).Draw(t, "middle")) * time.Second)
			until := middle.Add(time.Duration(rapid.IntRange(0, 40*3600).Draw(t, "until")) * time.Second)
			whole, _ := s.Slots(after, until, math.MaxInt)
			first, _ := s.Slots(after, middle, math.MaxInt)
			second, _ := s.Slots(middle, until, math.MaxInt)
			require.Equal(t, whole, append(first, second...))
		})
	})

	t.Run("counting is as good as walking, also over years", func(t *testing.T) {
		t.Parallel()
		rapid.Check(t, func(t *rapid.T) {
			zone := zoneNames().Draw(t, "zone")
			e := expressions(false).Draw(t, "expression")
			s := parsed(t, e, zone)
			if s == nil {
				return
			}
			after := instants(zone).Draw(t, "after")
			until := after.Add(time.Duration(rapid.IntRange(0, 1200*24*3600).Draw(t, "window")) * time.Second)
			slots, _ := s.Slots(after, until, math.MaxInt)
			require.Equal(t, len(slots), s.Count(after, until), e.text)
		})
	})
}

func TestPrevious(t *testing.T) {
	t.Parallel()

	t.Run("it is the last of the slots before an instant, at every change of the clock", func(t *testing.T) {
		t.Parallel()
		rapid.Check(t, func(t *rapid.T) {
			zone := zoneNames().Draw(t, "zone")
			text := rapid.SampledFrom([]string{
				"30 2 * * *", "*/15 * * * *", "0 0 1 * *", "0 9 * * 1-5", "15 1,2,3 * * 0", "*/10 0 8-10 1 1 *", "0 0 29 2 *", "@every 90m",
			}).Draw(t, "cron")
			s, err := schedule.Parse(schedule.Trigger{Kind: schedule.Cron, Cron: text, Anchor: at("1970-01-01T00:00:00Z")}, zone)
			require.NoError(t, err)
			before := instants(zone).Draw(t, "before").Add(10 * 365 * 24 * time.Hour)
			previous, ok := s.Previous(before)
			require.True(t, ok)
			require.True(t, previous.Before(before))
			next, ok := s.Next(previous)
			require.True(t, ok)
			require.False(t, next.Before(before), "%s: %s lies between %s and %s", text, next, previous, before)
		})
	})

	t.Run("there is none before the first", func(t *testing.T) {
		t.Parallel()
		s, err := schedule.Parse(schedule.Trigger{Kind: schedule.Interval, Interval: time.Hour, Anchor: at("2026-01-01T00:00:00Z")}, "UTC")
		require.NoError(t, err)
		first, ok := s.Next(at("2025-01-01T00:00:00Z"))
		require.True(t, ok)
		_, ok = s.Previous(first)
		require.False(t, ok)
	})
}
