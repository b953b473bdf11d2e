package tenant

import (
	"fmt"
	"time"
	_ "time/tzdata" // zones are the same on every machine

	"go.arco.dev/servo/internal/base/fault"
)

// Unlimited is the value of a quota without a limit.
const Unlimited = -1

// Quotas limit the resources of a tenant. The zero value allows nothing: see DefaultQuotas.
type Quotas struct {
	MaxConcurrentTasks int32         `json:"max_concurrent_tasks"` // queued, dispatched and running; 0 isolates a tenant
	MaxQueuedTasks     int32         `json:"max_queued_tasks"`     // ready tasks above which no run starts
	MaxConcurrentRuns  int32         `json:"max_concurrent_runs"`
	MaxDailyRuns       int32         `json:"max_daily_runs"` // created since midnight of Zone
	MaxRunDuration     time.Duration `json:"max_run_duration"`
	MaxTasksPerRun     int32         `json:"max_tasks_per_run"` // of a plan; fan-outs add to it
	MaxBackfillRuns    int32         `json:"max_backfill_runs"`
	FairnessWeight     float64       `json:"fairness_weight"`
	Zone               string        `json:"zone"` // of its days, such as Europe/Berlin
}

// The bounds of the quotas.
const (
	maxCount       = 1_000_000_000
	maxTasksPerRun = 10_000
	maxRunDuration = 365 * 24 * time.Hour
	minWeight      = 0.001
	maxWeight      = 1000
	maxZoneLength  = 100
)

// DefaultQuotas returns the quotas of a tenant that is created without any.
func DefaultQuotas() Quotas {
	return Quotas{
		MaxConcurrentTasks: 100, MaxQueuedTasks: 1000, MaxConcurrentRuns: 10, MaxDailyRuns: Unlimited,
		MaxRunDuration: 24 * time.Hour, MaxTasksPerRun: maxTasksPerRun, MaxBackfillRuns: 5, FairnessWeight: 1, Zone: "UTC",
	}
}

// firstQuotas returns the quotas of tenants whose first event has none: the default at that time,
// independent of later defaults.
func firstQuotas() Quotas {
	return Quotas{
		MaxConcurrentTasks: 100, MaxQueuedTasks: 1000, MaxConcurrentRuns: 10, MaxDailyRuns: Unlimited,
		MaxRunDuration: 24 * time.Hour, MaxTasksPerRun: 10_000, MaxBackfillRuns: 5, FairnessWeight: 1, Zone: "UTC",
	}
}

// NoLimits returns quotas without limits.
func NoLimits() Quotas {
	return Quotas{
		MaxConcurrentTasks: Unlimited, MaxQueuedTasks: Unlimited, MaxConcurrentRuns: Unlimited, MaxDailyRuns: Unlimited,
		MaxRunDuration: maxRunDuration, MaxTasksPerRun: maxTasksPerRun, MaxBackfillRuns: Unlimited, FairnessWeight: 1, Zone: "UTC",
	}
}

// Validate checks all fields and reports all errors.
func (q Quotas) Validate() error {
	var found []fault.Violation
	refuse := func(field, message, remedy string) {
		found = append(found, fault.Violation{Code: fault.InvalidArgument, Field: field, Message: message, Remedy: remedy})
	}
	for _, count := range []struct {
		field string
		value int32
	}{
		{"max_concurrent_tasks", q.MaxConcurrentTasks},
		{"max_queued_tasks", q.MaxQueuedTasks},
		{"max_concurrent_runs", q.MaxConcurrentRuns},
		{"max_daily_runs", q.MaxDailyRuns},
		{"max_backfill_runs", q.MaxBackfillRuns},
	} {
		if count.value < Unlimited || count.value > maxCount {
			refuse(count.field, fmt.Sprintf("is %d, must be -1 to %d", count.value, maxCount), "use -1 for no limit")
		}
	}
	if q.MaxTasksPerRun < 1 || q.MaxTasksPerRun > maxTasksPerRun {
		refuse("max_tasks_per_run", fmt.Sprintf("is %d, must be 1 to %d", q.MaxTasksPerRun, maxTasksPerRun), "use a value in the range")
	}
	if q.MaxRunDuration < time.Second || q.MaxRunDuration > maxRunDuration || q.MaxRunDuration%time.Second != 0 {
		refuse("max_run_duration", fmt.Sprintf("is %s, must be 1s to %s in whole seconds", q.MaxRunDuration, maxRunDuration), "use a duration such as 6h")
	}
	if !(q.FairnessWeight >= minWeight && q.FairnessWeight <= maxWeight) { // NaN is neither
		refuse("fairness_weight", fmt.Sprintf("is %v, must be %v to %v", q.FairnessWeight, minWeight, maxWeight), "use 1 for an equal share")
	}
	if _, err := q.location(); err != nil {
		refuse("zone", fmt.Sprintf("unknown time zone %.100q", q.Zone), "use a name of the IANA database, such as UTC or Europe/Berlin")
	}
	return fault.FromViolations(found)
}

// location returns the zone. "Local" and "" are not names of zones, although package time accepts them.
func (q Quotas) location() (*time.Location, error) {
	if q.Zone == "" || q.Zone == "Local" || len(q.Zone) > maxZoneLength {
		return nil, fmt.Errorf("unknown time zone %.100q", q.Zone)
	}
	return time.LoadLocation(q.Zone)
}

// Day returns when the tenant's current day began and when the next begins. A midnight that a clock
// change skips is the first moment after it.
func (q Quotas) Day(now time.Time) (from, until time.Time, err error) {
	zone, err := q.location()
	if err != nil {
		return from, until, err
	}
	year, month, day := now.In(zone).Date()
	return StartOfDay(year, month, day, zone), StartOfDay(year, month, day+1, zone), nil
}

// StartOfDay returns the first moment of a date. time.Date may return an hour of the day before if
// midnight is skipped, or the second midnight if it is repeated.
func StartOfDay(year int, month time.Month, day int, zone *time.Location) time.Time {
	wanted := time.Date(year, month, day, 0, 0, 0, 0, time.UTC)
	at := time.Date(year, month, day, 0, 0, 0, 0, zone)
	same := func(t time.Time) bool {
		y, m, d := t.In(zone).Date()
		return !time.Date(y, m, d, 0, 0, 0, 0, time.UTC).Before(wanted)
	}
	const step = 15 * time.Minute // no zone changes its clock by less, except for Lord Howe by half an hour
	for !same(at) {
		at = at.Add(step)
	}
	for same(at.Add(-step)) {
		at = at.Add(-step)
	}
	return at
}
