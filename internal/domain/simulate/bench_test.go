package simulate_test

import (
	"fmt"
	"testing"
	"time"

	"go.arco.dev/servo/internal/domain/schedule"
	"go.arco.dev/servo/internal/domain/simulate"
)

// BenchmarkRun is a month of 10,000 configs of 500 tenants, a third each of daily, hourly and
// quarter-hourly ones in four zones: 12 million slots. It has to take less than 10 s.
func BenchmarkRun(b *testing.B) {
	for _, workers := range []int{0, 2000} {
		b.Run(fmt.Sprintf("workers=%d", workers), func(b *testing.B) {
			in := month(b, 10_000)
			in.Slots = workers
			b.ReportAllocs()
			slots := 0
			for b.Loop() {
				r, err := simulate.Run(in)
				if err != nil {
					b.Fatal(err)
				}
				slots = r.Slots
			}
			b.ReportMetric(float64(slots), "slots")
			b.ReportMetric(float64(slots)*float64(b.N)/b.Elapsed().Seconds(), "slots/s")
		})
	}
}

func month(tb testing.TB, configs int) simulate.Input {
	tb.Helper()
	zones := []string{"UTC", "Europe/Berlin", "America/New_York", "Pacific/Chatham"}
	in := simulate.Input{From: time.Date(2026, 10, 15, 0, 0, 0, 0, time.UTC), Days: 30}
	for i := range configs {
		expression := []string{fmt.Sprintf("0 %d * * *", i%24), "0 * * * *", "*/15 * * * *"}[i%3]
		s, err := schedule.Parse(schedule.Trigger{Kind: schedule.Cron, Cron: expression}, zones[i%len(zones)])
		if err != nil {
			tb.Fatal(err)
		}
		in.Configs = append(in.Configs, simulate.Config{
			Tenant: fmt.Sprintf("tenant-%03d", i%500), Name: fmt.Sprintf("config-%05d", i), Schedule: s,
			Duration: time.Duration(1+i%20) * time.Minute, MaxExecution: time.Hour, SLAStartDelay: 30 * time.Minute, Tasks: 3,
		})
	}
	for i := range 500 {
		in.Tenants = append(in.Tenants, simulate.Tenant{
			Name: fmt.Sprintf("tenant-%03d", i), MaxConcurrentRuns: 10, MaxDailyRuns: simulate.NoLimit, Zone: zones[i%len(zones)],
		})
	}
	return in
}
