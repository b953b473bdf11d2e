package schedule_test

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"go.arco.dev/servo/internal/base/fault"
	"go.arco.dev/servo/internal/domain/schedule"
)

func mustCron(t *testing.T, expression, zone string) *schedule.Schedule {
	t.Helper()
	s, err := schedule.Parse(schedule.Trigger{Kind: schedule.Cron, Cron: expression}, zone)
	require.NoError(t, err)
	return s
}

// firing lists the next slots in local time, without the year where it is given.
func firing(t *testing.T, expression, zone, after string, n int) []string {
	t.Helper()
	location, err := schedule.Location(zone)
	require.NoError(t, err)
	slots, _ := mustCron(t, expression, zone).Slots(at(after), at("9999-12-31T00:00:00Z"), n)
	var texts []string
	for _, slot := range slots {
		texts = append(texts, slot.In(location).Format(time.RFC3339))
	}
	return texts
}

func TestExpressions(t *testing.T) {
	t.Parallel()
	days := func(texts ...string) []string {
		for i := range texts {
			texts[i] = "2026-" + texts[i] + "T00:00:00Z"
		}
		return texts
	}
	for name, c := range map[string]struct {
		expression string
		want       []string
	}{
		"the last day of the month":                        {"0 0 L * *", days("01-31", "02-28", "03-31", "04-30")},
		"three days before the last":                       {"0 0 L-3 * *", days("01-28", "02-25", "03-28")},
		"30 days before the last, which few months have":   {"0 0 L-30 * *", days("03-01", "05-01", "07-01")},
		"the last working day of the month":                {"0 0 LW * *", days("01-30", "02-27", "03-31", "04-30", "05-29")},
		"the working day nearest to the 15th":              {"0 0 15W * *", days("01-15", "02-16", "03-16", "04-15", "05-15", "06-15", "07-15", "08-14")},
		"the first as a Saturday goes ahead to the third":  {"0 0 1W 8 *", days("08-03")},
		"the last as a Sunday goes back to the Friday":     {"0 0 31W 5 *", days("05-29")},
		"a month without a 31st has no day nearest to it":  {"0 0 31W * *", days("01-30", "03-31", "05-29", "07-31")},
		"the last Friday":                                  {"0 0 ? * 5L", days("01-30", "02-27", "03-27")},
		"the last Friday by name":                          {"0 0 ? * friL", days("01-30", "02-27", "03-27")},
		"the third Monday":                                 {"0 0 ? * 1#3", days("01-19", "02-16", "03-16")},
		"the first and the third Sunday, as 7 and by name": {"0 0 ? * 7#1,SUN#3", days("01-04", "01-18", "02-01", "02-15")},
		"the fifth Thursday, in months that have one":      {"0 0 * * THU#5", days("01-29", "04-30", "07-30")},
		"the last day of the week":                         {"0 0 ? * L", days("01-03", "01-10")},
		"0 and 7 are Sunday":                               {"0 0 * * 0,7", days("01-04", "01-11")},
		"a range of weekdays may end in 7":                 {"0 0 * * 6-7", days("01-03", "01-04", "01-10", "01-11")},
		"steps of weekdays end on Saturday":                {"0 0 * * 1/2", days("01-02", "01-05", "01-07", "01-09", "01-12")},
		"either day, if both are restricted":               {"0 0 13 * 5", days("01-02", "01-09", "01-13", "01-16")},
		"both days, if one begins with a star":             {"0 0 */2 * 1", days("01-05", "01-19", "02-09")},
		"a list may mix dates and rules":                   {"0 0 10,L,15W 2 ?", days("02-10", "02-16", "02-28")},
		"months by name":                                   {"0 0 1 feb-APR,Dec *", days("02-01", "03-01", "04-01", "12-01")},
		"six fields begin with seconds": {"*/25 59 23 1 1 *", []string{
			"2026-01-01T23:59:00Z", "2026-01-01T23:59:25Z", "2026-01-01T23:59:50Z", "2027-01-01T23:59:00Z",
		}},
		"@hourly":  {"@hourly", []string{"2026-01-01T01:00:00Z", "2026-01-01T02:00:00Z"}},
		"@daily":   {"@daily", days("01-02", "01-03")},
		"@weekly":  {"@weekly", days("01-04", "01-11")},
		"@monthly": {"@monthly", days("02-01", "03-01")},
		"@yearly":  {"@yearly", []string{"2027-01-01T00:00:00Z", "2028-01-01T00:00:00Z"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			require.Equal(t, c.want, firing(t, c.expression, "UTC", "2026-01-01T00:30:00Z", len(c.want)))
		})
	}

	t.Run("the 29th of February skips 2100, and can be a certain weekday", func(t *testing.T) {
		t.Parallel()
		require.Equal(t, []string{"2096-02-29T00:00:00Z", "2104-02-29T00:00:00Z", "2108-02-29T00:00:00Z"},
			firing(t, "0 0 29 2 *", "UTC", "2093-01-01T00:00:00Z", 3))
		require.Equal(t, []string{"2088-02-29T00:00:00Z", "2128-02-29T00:00:00Z", "2156-02-29T00:00:00Z"},
			firing(t, "0 0 ? 2 0#5", "UTC", "2080-01-01T00:00:00Z", 3))
		require.Equal(t, []string{"9996-02-29T00:00:00Z"}, firing(t, "0 0 29 2 *", "UTC", "9993-01-01T00:00:00Z", 3))
	})
}

func TestRefusedExpressions(t *testing.T) {
	t.Parallel()
	for expression, reason := range map[string]string{
		"":                                   "expected 5 fields",
		"* * * *":                            "expected 5 fields, or 6 with seconds, found 4",
		"0 0 * * * * 2030":                   "found 7",
		"hourly":                             "expected 5 fields",
		"60 * * * *":                         "60 is out of range (0 to 59)",
		"* 24 * * *":                         "24 is out of range (0 to 23)",
		"* * 0 * *":                          "0 is out of range (1 to 31)",
		"* * * 13 *":                         "13 is out of range (1 to 12)",
		"* * * * 8":                          "8 is out of range (0 to 7)",
		"*/0 * * * *":                        "step 0 is less than 1",
		"*/61 * * * *":                       "step 61 does not fit the range 0 to 59",
		"30-10 * * * *":                      `minute "30-10": the range "30-10" ends before it begins`,
		"* 22-2 * * *":                       "ends before it begins",
		"* * * NOV-FEB *":                    "ends before it begins",
		"* * * * FRI-MON":                    "ends before it begins",
		"1,,2 * * * *":                       "an item of the list is empty",
		", * * * *":                          "an item of the list is empty",
		"*-5 * * * *":                        "invalid item",
		"+5 * * * *":                         "invalid item",
		"-5 * * * *":                         "invalid item",
		"1-2-3 * * * *":                      "invalid item",
		"1/2/3 * * * *":                      "invalid item",
		"? * * * *":                          "? is for the day of month and the day of week",
		"0 0 ?,1 * *":                        "? cannot be combined",
		"0 0 ?/2 * *":                        "invalid item",
		"0 0 H * *":                          "invalid item",
		"H H * * *":                          "invalid item",
		"0 0 L-31 * *":                       "31 is out of range (1 to 30)",
		"0 0 32W * *":                        "32 is out of range (1 to 31)",
		"0 0 0W * *":                         "0 is out of range (1 to 31)",
		"0 0 W * *":                          "invalid item",
		"0 0 * * 1#6":                        "1 to 5 times",
		"0 0 * * 1#0":                        "1 to 5 times",
		"0 0 * * 8L":                         "invalid item",
		"0 0 * * FOO":                        "FOO",
		"0 MON * * *":                        "MON",
		"TZ=UTC 0 0 * * *":                   "TZ= is not a part of an expression",
		"CRON_TZ=Asia/Tokyo 0 0 * * *":       "CRON_TZ= is not a part of an expression",
		"@reboot":                            "unknown name",
		"@dayly":                             "did you mean @daily?",
		"@every":                             "not a duration",
		"@every soon":                        "not a duration",
		"@every5m":                           "not a duration",
		"@every 10ms":                        "shorter than 1s",
		"@every 1500ms":                      "whole number of seconds",
		"@every 9000h":                       "longer than 366 days",
		"0 0 30 2 *":                         "never fires: there is no such date",
		"0 0 31 2,4,6,9,11 ?":                "never fires: there is no such date",
		"* * L-30 2,4 *":                     "never fires: there is no such date",
		"0 0 31W 4 *":                        "never fires: there is no such date",
		"0 0 30 2 *\n":                       "invalid item",
		"0 0 * * \x00":                       "invalid item",
		strings.Repeat("1,", 130) + "* * *":  "longer than 256 bytes",
		"@every " + strings.Repeat("1", 300): "longer than 256 bytes",
	} {
		t.Run(expression, func(t *testing.T) {
			t.Parallel()
			_, err := schedule.Parse(schedule.Trigger{Kind: schedule.Cron, Cron: expression}, "UTC")
			f, ok := fault.As(err)
			require.True(t, ok, "%v", err)
			require.Equal(t, fault.InvalidArgument, f.Code)
			require.Equal(t, "trigger.cron", f.Field)
			require.Contains(t, f.Message, reason)
			require.NotEmpty(t, f.Remedy)
		})
	}
}

// TestHints: the error of a range that wraps, or of a zone prefix, suggests a valid expression.
func TestHints(t *testing.T) {
	t.Parallel()
	for expression, remedy := range map[string]string{
		"0 6 * * Fri-Sun":              "write 5-7",
		"0 6 * * 6-0":                  "write 6-7",
		"0 6 * * SAT-MON":              "write 6-7,1",
		"0 6 * * Fri-Tue":              "write 5-7,1-2",
		"0 22-2 * * *":                 "write 22-23,0-2",
		"0 0 * NOV-FEB *":              "write 11-12,1-2",
		"30-10/5 * * * *":              "write 30-59/5,0-10/5",
		"CRON_TZ=Asia/Tokyo 0 0 * * *": "remove it and set timezone to Asia/Tokyo",
		"TZ=UTC 0 0 * * *":             "remove it and set timezone to UTC",
	} {
		_, err := schedule.Parse(schedule.Trigger{Kind: schedule.Cron, Cron: expression}, "UTC")
		f, ok := fault.As(err)
		require.True(t, ok, expression)
		require.Equal(t, remedy, f.Remedy, expression)
		if better, ok := strings.CutPrefix(remedy, "write "); ok {
			fields := strings.Fields(expression)
			for i, field := range fields {
				if strings.Contains(field, "-") {
					fields[i] = better
				}
			}
			_, err := schedule.Parse(schedule.Trigger{Kind: schedule.Cron, Cron: strings.Join(fields, " ")}, "UTC")
			require.NoError(t, err, "the hint for %s can be used", expression)
		}
	}
}

// TestPlainReasons: errors of any input contain no messages of parsers and formatters.
func TestPlainReasons(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		item := rapid.StringMatching(`[0-9*?LW#/,a-zA-Z-]{1,6}`)
		expression := strings.Join(rapid.SliceOfN(rapid.OneOf(item, rapid.Just("*")), 5, 6).Draw(t, "fields"), " ")
		if _, err := schedule.Parse(schedule.Trigger{Kind: schedule.Cron, Cron: expression}, "UTC"); err != nil {
			require.NotRegexp(t, `strconv|parse|invalid syntax|%!`, err.Error())
		}
	})
}
