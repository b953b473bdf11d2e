package schedule_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"go.arco.dev/servo/internal/base/fault"
	"go.arco.dev/servo/internal/domain/schedule"
)

func TestChangesOfTheClock(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		expression, zone, after string
		want                    []string
	}{
		"a time in the gap fires at its end": {
			"30 2 * * *", "Europe/Berlin", "2026-03-28T00:00:00Z",
			[]string{"2026-03-28T02:30:00+01:00", "2026-03-29T03:00:00+02:00", "2026-03-30T02:30:00+02:00"},
		},
		"several times in the gap, and its end, are one slot": {
			"0,20,40 2,3 29 3 *", "Europe/Berlin", "2026-03-28T00:00:00Z",
			[]string{"2026-03-29T03:00:00+02:00", "2026-03-29T03:20:00+02:00", "2026-03-29T03:40:00+02:00", "2027-03-29T02:00:00+02:00"},
		},
		"a time in the fold fires at the first pass": {
			"30 2 * * *", "Europe/Berlin", "2026-10-24T12:00:00Z",
			[]string{"2026-10-25T02:30:00+02:00", "2026-10-26T02:30:00+01:00"},
		},
		"between both passes there is no slot of the second": {
			"30 2 * * *", "Europe/Berlin", "2026-10-25T01:00:00Z",
			[]string{"2026-10-26T02:30:00+01:00"},
		},
		"a star in the hour follows real time through the gap": {
			"30 * * * *", "Europe/Berlin", "2026-03-29T00:00:00Z",
			[]string{"2026-03-29T01:30:00+01:00", "2026-03-29T03:30:00+02:00"},
		},
		"a star in the hour follows real time through both passes": {
			"30 * * * *", "Europe/Berlin", "2026-10-25T00:00:00Z",
			[]string{"2026-10-25T02:30:00+02:00", "2026-10-25T02:30:00+01:00", "2026-10-25T03:30:00+01:00"},
		},
		"a star in the minute is enough": {
			"*/30 2 * * *", "Europe/Berlin", "2026-10-24T12:00:00Z",
			[]string{
				"2026-10-25T02:00:00+02:00", "2026-10-25T02:30:00+02:00", "2026-10-25T02:00:00+01:00",
				"2026-10-25T02:30:00+01:00", "2026-10-26T02:00:00+01:00",
			},
		},
		"what follows real time does not happen in the gap": {
			"*/30 2 * * *", "Europe/Berlin", "2026-03-28T12:00:00Z",
			[]string{"2026-03-30T02:00:00+02:00", "2026-03-30T02:30:00+02:00"},
		},
		"a star in the seconds does not make it real time": {
			"* 30 2 29 3 *", "Europe/Berlin", "2026-03-28T12:00:00Z",
			[]string{"2026-03-29T03:00:00+02:00", "2027-03-29T02:30:00+02:00"},
		},
		"Lord Howe's gap is half an hour": {
			"15 2 * * *", "Australia/Lord_Howe", "2026-10-03T00:00:00Z",
			[]string{"2026-10-04T02:30:00+11:00", "2026-10-05T02:15:00+11:00"},
		},
		"Lord Howe's fold is half an hour": {
			"0,45 1 * * *", "Australia/Lord_Howe", "2026-04-03T20:00:00Z",
			[]string{"2026-04-05T01:00:00+11:00", "2026-04-05T01:45:00+11:00", "2026-04-06T01:00:00+10:30"},
		},
		"Lord Howe keeps its midnights": {
			"0 0 * * *", "Australia/Lord_Howe", "2026-04-03T20:00:00Z",
			[]string{"2026-04-05T00:00:00+11:00", "2026-04-06T00:00:00+10:30"},
		},
		"Cairo skips midnight": {
			"0 0 * * *", "Africa/Cairo", "2026-04-22T23:00:00Z",
			[]string{"2026-04-24T01:00:00+03:00", "2026-04-25T00:00:00+03:00"},
		},
		"Cairo's day ends twice": {
			"30 23 * * *", "Africa/Cairo", "2026-10-28T22:00:00Z",
			[]string{"2026-10-29T23:30:00+03:00", "2026-10-30T23:30:00+02:00"},
		},
		"Santiago skips midnight": {
			"0 0 * * 0", "America/Santiago", "2026-09-05T00:00:00Z",
			[]string{"2026-09-06T01:00:00-03:00", "2026-09-13T00:00:00-03:00"},
		},
		"Apia's missing day fires once, after it": {
			"0 10 30 12 *", "Pacific/Apia", "2011-12-01T00:00:00Z",
			[]string{"2011-12-31T00:00:00+14:00", "2012-12-30T10:00:00+14:00"},
		},
		"Apia's missing midnight and the next are one slot": {
			"0 0 * * *", "Pacific/Apia", "2011-12-28T12:00:00Z",
			[]string{"2011-12-29T00:00:00-10:00", "2011-12-31T00:00:00+14:00", "2012-01-01T00:00:00+14:00"},
		},
		"Chatham's gap ends at 03:45": {
			"45 3 * * *", "Pacific/Chatham", "2026-09-25T20:00:00Z",
			[]string{"2026-09-27T03:45:00+13:45", "2026-09-28T03:45:00+13:45"},
		},
		"Chatham's gap begins at 02:45": {
			"0 3 * * *", "Pacific/Chatham", "2026-09-25T20:00:00Z",
			[]string{"2026-09-27T03:45:00+13:45", "2026-09-28T03:00:00+13:45"},
		},
		"Morocco's clock goes back for Ramadan": {
			"30 2 * * *", "Africa/Casablanca", "2026-02-14T12:00:00Z",
			[]string{"2026-02-15T02:30:00+01:00", "2026-02-16T02:30:00Z"},
		},
		"Morocco's clock goes forward after Ramadan": {
			"30 2 * * *", "Africa/Casablanca", "2026-03-21T12:00:00Z",
			[]string{"2026-03-22T03:00:00+01:00", "2026-03-23T02:30:00+01:00"},
		},
		"Troll jumps by two hours": {
			"30 1,2 * * *", "Antarctica/Troll", "2026-03-28T12:00:00Z",
			[]string{"2026-03-29T03:00:00+02:00", "2026-03-30T01:30:00+02:00", "2026-03-30T02:30:00+02:00"},
		},
		"what follows real time can be far off, too": {
			"*/30 0 29 2 *", "Europe/Berlin", "2096-03-01T00:00:00Z",
			[]string{"2104-02-29T00:00:00+01:00", "2104-02-29T00:30:00+01:00", "2108-02-29T00:00:00+01:00"},
		},
		"the last second before a gap is there": {
			"59 59 */23 29 3 *", "Europe/London", "2026-03-01T00:00:00Z",
			[]string{"2026-03-29T00:59:59Z", "2026-03-29T23:59:59+01:00"},
		},
		"the rules apply in the year 9000": {
			"30 2 * 3 0L", "Europe/Berlin", "9000-01-01T00:00:00Z",
			[]string{"9000-03-30T03:00:00+02:00", "9001-03-29T03:00:00+02:00"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			require.Equal(t, c.want, firing(t, c.expression, c.zone, c.after, len(c.want)))
		})
	}

	t.Run("what real time always skips is refused", func(t *testing.T) {
		t.Parallel()
		_, err := schedule.Parse(schedule.Trigger{Kind: schedule.Cron, Cron: "*/5 2 * 3 0L"}, "Europe/Berlin")
		require.True(t, fault.Is(err, fault.InvalidArgument))
		require.ErrorContains(t, err, "never fires in Europe/Berlin: the clock always skips that time")
		mustCron(t, "*/5 2 * 3 0L", "Europe/London") // whose gap is an hour earlier
		mustCron(t, "30 2 * 3 0L", "Europe/Berlin")  // whose slots go to its end
	})

	t.Run("a slot reports whether a change moved it", func(t *testing.T) {
		t.Parallel()
		berlin := mustCron(t, "30 2 * * *", "Europe/Berlin")
		require.Equal(t, schedule.GapShift, berlin.Shift(at("2026-03-29T01:00:00Z")))
		require.Equal(t, schedule.FoldShift, berlin.Shift(at("2026-10-25T00:30:00Z")))
		require.Equal(t, schedule.NoShift, berlin.Shift(at("2026-10-26T01:30:00Z")))
		hourly := mustCron(t, "30 * * * *", "Europe/Berlin")
		require.Equal(t, schedule.NoShift, hourly.Shift(at("2026-10-24T23:30:00Z")))
		require.Equal(t, schedule.FoldShift, hourly.Shift(at("2026-10-25T00:30:00Z")))
		require.Equal(t, schedule.FoldShift, hourly.Shift(at("2026-10-25T01:30:00Z")))
		require.Equal(t, schedule.NoShift, hourly.Shift(at("2026-10-25T02:30:00Z")))
		require.Equal(t, schedule.NoShift, mustCron(t, "0 3 * * *", "Europe/Berlin").Shift(at("2026-03-29T01:00:00Z")))
	})
}
