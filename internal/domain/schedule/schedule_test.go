package schedule_test

import (
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"go.arco.dev/servo/internal/base/fault"
	"go.arco.dev/servo/internal/domain/schedule"
)

func TestParse(t *testing.T) {
	t.Parallel()

	for name, c := range map[string]struct {
		trigger schedule.Trigger
		field   string
	}{
		"no kind":                   {schedule.Trigger{}, "trigger"},
		"an unknown kind":           {schedule.Trigger{Kind: "sometimes"}, "trigger"},
		"two kinds":                 {schedule.Trigger{Kind: schedule.Cron, Cron: "@daily", Interval: time.Hour}, "trigger.interval"},
		"a manual one with a time":  {schedule.Trigger{Kind: schedule.Manual, Cron: "@daily"}, "trigger.cron"},
		"an interval with an event": {schedule.Trigger{Kind: schedule.Interval, Interval: time.Hour, Event: &schedule.EventTrigger{}}, "trigger.event"},
		"no interval":               {schedule.Trigger{Kind: schedule.Interval}, "trigger.interval"},
		"a negative interval":       {schedule.Trigger{Kind: schedule.Interval, Interval: -time.Hour}, "trigger.interval"},
		"too short an interval":     {schedule.Trigger{Kind: schedule.Interval, Interval: 999 * time.Millisecond}, "trigger.interval"},
		"too long an interval":      {schedule.Trigger{Kind: schedule.Interval, Interval: schedule.MaxInterval + time.Second}, "trigger.interval"},
		"half seconds":              {schedule.Trigger{Kind: schedule.Interval, Interval: 1500 * time.Millisecond}, "trigger.interval"},
		"an anchor before 1970":     {schedule.Trigger{Kind: schedule.Interval, Interval: time.Hour, Anchor: at("1969-12-31T23:59:59Z")}, "trigger.anchor"},
		"an anchor after 9999":      {schedule.Trigger{Kind: schedule.Interval, Interval: time.Hour, Anchor: time.Unix(1<<60, 0)}, "trigger.anchor"},
		"an event of nothing":       {schedule.Trigger{Kind: schedule.Event, Event: &schedule.EventTrigger{}}, "trigger.event"},
		"no event":                  {schedule.Trigger{Kind: schedule.Event}, "trigger.event"},
		"an event of two things":    {schedule.Trigger{Kind: schedule.Event, Event: &schedule.EventTrigger{Config: "a", Name: "b"}}, "trigger.event"},
		"an event's endless name":   {schedule.Trigger{Kind: schedule.Event, Event: &schedule.EventTrigger{Name: string(make([]byte, 257))}}, "trigger.event"},
	} {
		t.Run(name+" is refused", func(t *testing.T) {
			t.Parallel()
			_, err := schedule.Parse(c.trigger, "UTC")
			f, ok := fault.As(err)
			require.True(t, ok, "%v", err)
			require.Equal(t, fault.InvalidArgument, f.Code)
			require.Equal(t, c.field, f.Field)
			require.NotEmpty(t, f.Remedy)
		})
	}

	t.Run("events and manual triggers have no slots", func(t *testing.T) {
		t.Parallel()
		for _, trigger := range []schedule.Trigger{
			{Kind: schedule.Manual},
			{Kind: schedule.Event, Event: &schedule.EventTrigger{Config: "daily"}},
			{Kind: schedule.Event, Event: &schedule.EventTrigger{Name: "billing.exported"}},
		} {
			s, err := schedule.Parse(trigger, "Europe/Berlin")
			require.NoError(t, err)
			require.False(t, s.Timed())
			require.Equal(t, trigger.Kind, s.Kind())
			require.Equal(t, "Europe/Berlin", s.Zone())
			_, ok := s.Next(time.Time{})
			require.False(t, ok)
			slots, more := s.Slots(time.Time{}, time.Unix(1<<40, 0), 10)
			require.Empty(t, slots)
			require.False(t, more)
			require.Zero(t, s.Count(time.Time{}, time.Unix(1<<40, 0)))
			require.Equal(t, schedule.NoShift, s.Shift(time.Unix(0, 0)))
		}
	})

	t.Run("templates are expressions that can be used", func(t *testing.T) {
		t.Parallel()
		names := map[string]bool{}
		for _, template := range schedule.Templates() {
			expression, ok := schedule.Resolve(template.Name)
			require.True(t, ok)
			require.Equal(t, template.Expression, expression)
			mustCron(t, expression, "UTC")
			names[template.Name] = true
		}
		for _, name := range []string{"hourly", "daily-midnight", "weekdays-9am", "weekly-monday-8am"} {
			require.True(t, names[name], name)
		}
		_, ok := schedule.Resolve("never")
		require.False(t, ok)
	})
}

func TestLimits(t *testing.T) {
	t.Parallel()
	s := mustCron(t, "* * * * *", "UTC")

	t.Run("the window excludes its beginning and includes its end", func(t *testing.T) {
		t.Parallel()
		slots, more := s.Slots(at("2026-01-01T00:00:00Z"), at("2026-01-01T00:02:00Z"), 10)
		require.Equal(t, []time.Time{at("2026-01-01T00:01:00Z"), at("2026-01-01T00:02:00Z")}, slots)
		require.False(t, more)
	})

	t.Run("a full list reports whether there are more", func(t *testing.T) {
		t.Parallel()
		slots, more := s.Slots(at("2026-01-01T00:00:00Z"), at("2026-01-01T00:02:00Z"), 2)
		require.Len(t, slots, 2)
		require.False(t, more)
		slots, more = s.Slots(at("2026-01-01T00:00:00Z"), at("2026-01-01T00:03:00Z"), 2)
		require.Len(t, slots, 2)
		require.True(t, more)
		slots, more = s.Slots(at("2026-01-01T00:00:00Z"), at("2026-01-01T00:03:00Z"), -1)
		require.Empty(t, slots)
		require.True(t, more)
	})

	t.Run("a window that ends before it begins is empty", func(t *testing.T) {
		t.Parallel()
		slots, more := s.Slots(at("2026-01-02T00:00:00Z"), at("2026-01-01T00:00:00Z"), 2)
		require.Empty(t, slots)
		require.False(t, more)
		require.Zero(t, s.Count(at("2026-01-02T00:00:00Z"), at("2026-01-01T00:00:00Z")))
	})

	t.Run("slots begin in 1970 and end in 9999, in every zone", func(t *testing.T) {
		t.Parallel()
		for _, zone := range hardZones {
			for _, expression := range []string{"* * * * *", "0,30 0-23 * * *"} {
				s := mustCron(t, expression, zone)
				first, ok := s.Next(time.Time{})
				require.True(t, ok)
				require.GreaterOrEqual(t, first.Unix(), int64(0))
				require.Less(t, first.Unix(), int64(3600))
				slots, more := s.Slots(at("9999-12-31T22:59:59Z"), time.Unix(1<<50, 0), math.MaxInt)
				require.False(t, more)
				require.Equal(t, 9999, slots[len(slots)-1].Year())
				require.Equal(t, len(slots), s.Count(at("9999-12-31T22:59:59Z"), time.Unix(1<<50, 0)))
				_, ok = s.Next(time.Unix(math.MaxInt64, 0))
				require.False(t, ok)
			}
		}
	})
}

func TestIntervals(t *testing.T) {
	t.Parallel()
	interval := func(t require.TestingT, every time.Duration, anchor time.Time) *schedule.Schedule {
		s, err := schedule.Parse(schedule.Trigger{Kind: schedule.Interval, Interval: every, Anchor: anchor}, "Europe/Berlin")
		require.NoError(t, err)
		return s
	}

	t.Run("the anchor is the first slot", func(t *testing.T) {
		t.Parallel()
		s := interval(t, 90*time.Minute, at("2026-01-01T06:00:00Z"))
		slots, more := s.Slots(time.Time{}, at("2026-01-01T10:00:00Z"), 10)
		require.Equal(t, []time.Time{at("2026-01-01T06:00:00Z"), at("2026-01-01T07:30:00Z"), at("2026-01-01T09:00:00Z")}, slots)
		require.False(t, more)
	})

	t.Run("a change of the clock moves nothing", func(t *testing.T) {
		t.Parallel()
		slots, _ := interval(t, 24*time.Hour, at("2026-03-28T02:30:00+01:00")).Slots(at("2026-03-28T01:00:00Z"), at("2026-03-30T12:00:00Z"), 10)
		require.Equal(t, []time.Time{at("2026-03-28T01:30:00Z"), at("2026-03-29T01:30:00Z"), at("2026-03-30T01:30:00Z")}, slots)
	})

	t.Run("@every is the same", func(t *testing.T) {
		t.Parallel()
		anchor := at("2026-03-28T02:30:00+01:00")
		every, err := schedule.Parse(schedule.Trigger{Kind: schedule.Cron, Cron: "@every 1h30m", Anchor: anchor}, "Europe/Berlin")
		require.NoError(t, err)
		want, _ := interval(t, 90*time.Minute, anchor).Slots(anchor, anchor.Add(100*time.Hour), 1000)
		got, _ := every.Slots(anchor, anchor.Add(100*time.Hour), 1000)
		require.Equal(t, want, got)
		require.True(t, every.Timed())
	})

	t.Run("slots are anchor + k × interval, all of them, and counted", func(t *testing.T) {
		t.Parallel()
		rapid.Check(t, func(t *rapid.T) {
			every := time.Duration(rapid.Int64Range(1, int64(schedule.MaxInterval/time.Second)).Draw(t, "seconds")) * time.Second
			anchor := time.Unix(rapid.Int64Range(0, 4e9).Draw(t, "anchor"), rapid.Int64Range(0, 999_999).Draw(t, "micros")*1000).UTC()
			s := interval(t, every, anchor)
			after := time.Unix(rapid.Int64Range(-1e9, 8e9).Draw(t, "after"), rapid.Int64Range(0, 999_999_999).Draw(t, "nanos"))
			until := after.Add(every * time.Duration(rapid.IntRange(0, 30).Draw(t, "window")))
			slots, _ := s.Slots(after, until, math.MaxInt)
			require.Equal(t, len(slots), s.Count(after, until))
			next := anchor
			if next.Before(after) {
				k := after.Unix() - anchor.Unix()
				next = time.Unix(anchor.Unix()+(k/int64(every/time.Second))*int64(every/time.Second), int64(anchor.Nanosecond())).UTC()
			}
			for !next.After(after) {
				next = next.Add(every)
			}
			var want []time.Time
			for ; !next.After(until); next = next.Add(every) {
				want = append(want, next)
			}
			require.Equal(t, want, slots)
		})
	})

	t.Run("centuries are counted without walking", func(t *testing.T) {
		t.Parallel()
		s := interval(t, time.Second, time.Time{})
		require.Equal(t, 253_402_300_800, s.Count(at("1969-01-01T00:00:00Z"), time.Unix(1<<60, 0)))
		last, ok := s.Next(at("9999-12-31T23:59:58Z"))
		require.True(t, ok)
		require.Equal(t, at("9999-12-31T23:59:59Z"), last)
		_, ok = s.Next(last)
		require.False(t, ok)
	})

	t.Run("an anchor is kept as the database keeps it", func(t *testing.T) {
		t.Parallel()
		anchor := at("2026-01-01T06:00:00Z").Add(1234 * time.Nanosecond)
		slot, _ := interval(t, time.Hour, anchor).Next(time.Time{})
		require.Equal(t, anchor.Truncate(time.Microsecond), slot)
	})
}

func TestJitter(t *testing.T) {
	t.Parallel()

	t.Run("it is within the window, and always the same", func(t *testing.T) {
		t.Parallel()
		rapid.Check(t, func(t *rapid.T) {
			var config [16]byte
			copy(config[:], rapid.SliceOfN(rapid.Byte(), 16, 16).Draw(t, "config"))
			window := time.Duration(rapid.Int64Range(1, math.MaxInt64).Draw(t, "window"))
			jitter := schedule.Jitter(config, window)
			require.GreaterOrEqual(t, jitter, time.Duration(0))
			require.Less(t, jitter, window)
			require.Equal(t, jitter, schedule.Jitter(config, window))
			require.Zero(t, jitter%time.Microsecond)
			require.Zero(t, schedule.Jitter(config, 0))
			require.Zero(t, schedule.Jitter(config, -window))
		})
	})

	t.Run("10,000 configs spread over the window", func(t *testing.T) {
		t.Parallel()
		var minutes [60]int
		for i := range 10_000 {
			config := [16]byte{byte(i), byte(i >> 8)}
			minutes[schedule.Jitter(config, time.Hour)/time.Minute]++
		}
		for _, n := range minutes {
			require.InDelta(t, 10_000/60, n, 70)
		}
	})

	t.Run("it does not change from release to release", func(t *testing.T) {
		t.Parallel()
		require.Equal(t, 1079068734*time.Microsecond, schedule.Jitter([16]byte{1}, time.Hour))
	})
}
