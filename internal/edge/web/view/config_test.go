package view //nolint:testpackage // formatting a day is internal

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/types/known/structpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	servov1 "go.arco.dev/servo/gen/servo/v1"
)

func TestCronWords(t *testing.T) {
	t.Parallel()
	for cron, words := range map[string]string{
		"30 2 * * *": "daily at 02:30", "* * * * *": "every minute", "*/15 * * * *": "every 15 minutes", "5 * * * *": "hourly at :05", "0 8 * * 1-5": "on workdays at 08:00",
		"0 8 * * 7": "on Sundays at 08:00", "0 8 * * tue": "on Tuesdays at 08:00", "0 0 1 * *": "monthly on day 1 at 00:00", "0 0 L * *": "on the last day of the month at 00:00",
		// What has no short words stays an expression.
		"0 8 1 * 1": "0 8 1 * 1", "0 8 * 3 *": "0 8 * 3 *", "0 8,9 * * *": "0 8,9 * * *", "@daily": "@daily", "0 0 8 * * *": "0 0 8 * * *", "0 8 * * 1#2": "0 8 * * 1#2",
	} {
		require.Equal(t, words, cronWords(cron), cron)
	}
}

func TestCalendar(t *testing.T) {
	t.Parallel()
	zone := ZoneOf("Europe/Berlin")
	now := time.Date(2026, 11, 4, 12, 0, 0, 0, zone) // a Wednesday
	on := func(t *testing.T, c Calendar, date string) Day {
		t.Helper()
		for _, week := range c.Weeks {
			for _, d := range week {
				if d.Date == date {
					return d
				}
			}
		}
		require.Fail(t, "there is no such day", date)
		return Day{}
	}

	t.Run("five weeks from a Monday, the last of which has today", func(t *testing.T) {
		t.Parallel()
		c := CalendarOf(nil, now, zone)
		require.Len(t, c.Weeks, 5)
		require.Equal(t, CalendarFrom(now, zone).Format(time.DateOnly), c.Weeks[0][0].Date)
		require.Equal(t, "2026-10-05", c.Weeks[0][0].Date)
		require.Equal(t, "2026-11-08", c.Weeks[4][6].Date)
		require.Equal(t, CalendarTo(now, zone).Format(time.DateOnly), c.Weeks[4][6].Date)
		require.Equal(t, "no slots", on(t, c, "2026-11-02").Summary())
		require.Empty(t, on(t, c, "2026-11-02").Tone)
	})

	t.Run("a day looks like the worst of its slots", func(t *testing.T) {
		t.Parallel()
		c := CalendarOf(&servov1.ConfigOutcomes{Days: []*servov1.DayOutcomes{
			{Day: "2026-11-02", Succeeded: 2, Failed: 1, Skipped: []*servov1.SkippedOutcome{{Outcome: servov1.Slots_SKIPPED_OVERLAP, Slots: 3}}},
			{Day: "2026-11-03", Succeeded: 4, SlaMissed: 1},
			{Day: "2026-11-04", Unknown: 1, Next: 2},
			{Day: "2026-11-05", Next: 5},
		}}, now, zone)
		require.Equal(t, "3 skipped: overlap, 2 succeeded, 1 failed", on(t, c, "2026-11-02").Summary())
		require.Equal(t, toneBad, on(t, c, "2026-11-02").Tone)
		require.Equal(t, "4 succeeded, 1 missed the SLA", on(t, c, "2026-11-03").Summary())
		require.Equal(t, toneLate, on(t, c, "2026-11-03").Tone)
		require.Equal(t, "1 fired, 2 to come", on(t, c, "2026-11-04").Summary())
		require.Equal(t, "5 to come", on(t, c, "2026-11-05").Summary())
		require.Empty(t, on(t, c, "2026-11-05").Tone, "there is nothing to look at yet")
		require.EqualValues(t, 11, c.Slots())
	})

	t.Run("a range over days is shown on each of them, and where counting stopped", func(t *testing.T) {
		t.Parallel()
		c := CalendarOf(&servov1.ConfigOutcomes{
			Days: []*servov1.DayOutcomes{
				{Day: "2026-10-06", Skipped: []*servov1.SkippedOutcome{{Outcome: servov1.Slots_SKIPPED_PAUSED, Slots: 1, More: true}}},
				{Day: "2026-10-07", Succeeded: 1},
			},
			CountedFrom: timestamppb.New(time.Date(2026, 10, 6, 5, 0, 0, 0, zone)),
		}, now, zone)
		require.Equal(t, "1 skipped: paused, some skipped: paused, not all counted", on(t, c, "2026-10-06").Summary())
		require.Equal(t, "1 succeeded", on(t, c, "2026-10-07").Summary())
	})
}

func TestFieldOf(t *testing.T) {
	t.Parallel()
	for path, field := range map[string]string{
		"spec.trigger.cron": "cron", "spec.trigger": "kind", "spec.trigger.event.config": "event_config", "spec.trigger.event": "event_name", "spec.labels": "labels",
		"spec.labels[\"a\"]": "labels", "spec.parameters.day": "parameters", "spec.retry.max_attempts": "retry_attempts", "spec.retry.max_delay": "retry_attempts",
		"spec.catchup.max_slots": "catchup_max_slots", "name": "name", "version": "", "": "", "spec.pipelines": "",
	} {
		require.Equal(t, field, FieldOf(path), path)
	}
}

func TestChangeOf(t *testing.T) {
	t.Parallel()
	object := func(v map[string]any) *structpb.Struct {
		out, err := structpb.NewStruct(v)
		require.NoError(t, err)
		return out
	}
	c := ChangeOf(&servov1.ConfigAudit{
		Before: object(map[string]any{"trigger": map[string]any{"cron": "0 2 * * *"}, "jitter": "5m", "priority": 5}),
		After:  object(map[string]any{"trigger": map[string]any{"cron": "0 3 * * *"}, "priority": 5, "paused": true}),
	})
	require.Equal(t, []FieldChange{{"jitter", "5m", ""}, {"paused", "", "true"}, {"trigger.cron", "0 2 * * *", "0 3 * * *"}}, c.Fields)
}

func TestConfigValues(t *testing.T) {
	t.Parallel()
	stored := map[string]string{"cron": "0 2 * * *", "labels": "a=b\nc=d", "jitter": "5m"}
	typed := map[string]string{"cron": "0 3 * * *", "labels": "a=b\r\nc=d", "jitter": "5m", "reason": "why not"}
	require.Equal(t, []FieldChange{{"Cron expression", "0 2 * * *", "0 3 * * *"}}, DifferingValues(stored, typed))
}
