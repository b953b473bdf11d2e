package schedule_test

import (
	"testing"
	"time"

	"go.arco.dev/servo/internal/domain/schedule"
)

// BenchmarkNext is one answer, without anything kept from one before. An answer has to
// take less than 5 ms.
func BenchmarkNext(b *testing.B) {
	for _, c := range []struct{ name, expression, zone, after string }{
		{"minutely", "* * * * *", "UTC", "2026-06-01T00:00:30Z"},
		{"daily", "30 2 * * *", "Europe/Berlin", "2026-06-01T00:00:30Z"},
		{"weekdays", "0 9 * * 1-5", "America/New_York", "2026-06-05T18:00:00Z"},
		{"gap", "30 2 * * *", "Europe/Berlin", "2026-03-28T12:00:00Z"},
		{"last-working-day", "0 0 LW * *", "Europe/Berlin", "2026-06-01T00:00:30Z"},
		{"leap-day-across-2100", "0 0 29 2 *", "Europe/Berlin", "2096-03-01T00:00:00Z"},
		{"leap-day-on-a-Sunday", "0 0 ? 2 0#5", "Europe/Berlin", "2088-03-01T00:00:00Z"},
		{"leap-day-on-a-Sunday-real-time", "* 0 ? 2 0#5", "Europe/Berlin", "2088-03-01T00:00:00Z"},
		{"year-9000", "30 2 * * *", "Europe/Berlin", "9000-06-01T00:00:00Z"},
	} {
		b.Run(c.name, func(b *testing.B) {
			s, err := schedule.Parse(schedule.Trigger{Kind: schedule.Cron, Cron: c.expression}, c.zone)
			if err != nil {
				b.Fatal(err)
			}
			after := at(c.after)
			for b.Loop() {
				s.Next(after)
			}
		})
	}
}

// BenchmarkSlots lists a month of minutes.
func BenchmarkSlots(b *testing.B) {
	s, err := schedule.Parse(schedule.Trigger{Kind: schedule.Cron, Cron: "* * * * *"}, "Europe/Berlin")
	if err != nil {
		b.Fatal(err)
	}
	from := at("2026-10-01T00:00:00Z")
	for b.Loop() {
		s.Slots(from, from.AddDate(0, 0, 30), 1<<20)
	}
}

// BenchmarkCount counts ten years of minutes.
func BenchmarkCount(b *testing.B) {
	s, err := schedule.Parse(schedule.Trigger{Kind: schedule.Cron, Cron: "* * * * *"}, "Europe/Berlin")
	if err != nil {
		b.Fatal(err)
	}
	from := at("2026-10-01T00:00:00Z")
	for b.Loop() {
		s.Count(from, from.Add(10*365*24*time.Hour))
	}
}

// BenchmarkParse is what saving costs; refusing looks through whole cycles.
func BenchmarkParse(b *testing.B) {
	for name, expression := range map[string]string{
		"daily": "30 2 * * *", "impossible": "0 0 30 2 *", "always-skipped": "*/5 2 * 3 0L",
	} {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				_, _ = schedule.Parse(schedule.Trigger{Kind: schedule.Cron, Cron: expression}, "Europe/Berlin")
			}
		})
	}
}
