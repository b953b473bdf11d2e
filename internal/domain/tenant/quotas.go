package tenant

import (
	"fmt"
	"time"
	_ "time/tzdata" // zones are the same on every machine

	"go.arco.dev/servo/internal/base/fault"
)

// Unlimited stands for no limit in the quotas that may be without one.
const Unlimited = -1

// Quotas are what a tenant may use. The zero value is none: see DefaultQuotas.
type Quotas struct {
	MaxConcurrentTasks int32         `json:"max_concurrent_tasks"` // queued, dispatched and running; 0 isolates a tenant
	MaxQueuedTasks     int32         `json:"max_queued_tasks"`     // ready tasks past which no run begins
	MaxConcurrentRuns  int32         `json:"max_concurrent_runs"`
	MaxDailyRuns       int32         `json:"max_daily_runs"` // created since midnight of Zone
	MaxRunDuration     time.Duration `json:"max_run_duration"`
	MaxTasksPerRun     int32         `json:"max_tasks_per_run"` // of a plan; fan-outs add to it
	MaxBackfillRuns    int32         `json:"max_backfill_runs"`
	FairnessWeight     float64       `json:"fairness_weight"`
	Zone               string        `json:"zone"` // of its days, such as Europe/Berlin
}

// Bounds of the quotas.
const (
	maxCount       = 1_000_000_000
	maxTasksPerRun = 10_000
	maxRunDuration = 365 * 24 * time.Hour
	minWeight      = 0.001
	maxWeight      = 1000
	maxZoneLength  = 100
)

// DefaultQuotas are what a tenant gets when nobody says anything.
func DefaultQuotas() Quotas {
	return Quotas{
		MaxConcurrentTasks: 100, MaxQueuedTasks: 1000, MaxConcurrentRuns: 10, MaxDailyRuns: Unlimited,
		MaxRunDuration: 24 * time.Hour, MaxTasksPerRun: maxTasksPerRun, MaxBackfillRuns: 5, FairnessWeight: 1, Zone: "UTC",
	}
}

// firstQuotas are what tenants have whose first event does not say: the default of its day,
// whatever the default becomes.
func firstQuotas() Quotas {
	return Quotas{
		MaxConcurrentTasks: 100, MaxQueuedTasks: 1000, MaxConcurrentRuns: 10, MaxDailyRuns: Unlimited,
		MaxRunDuration: 24 * time.Hour, MaxTasksPerRun: 10_000, MaxBackfillRuns: 5, FairnessWeight: 1, Zone: "UTC",
	}
}

// NoLimits are quotas that bind nowhere.
func NoLimits() Quotas {
	return Quotas{
		MaxConcurrentTasks: Unlimited, MaxQueuedTasks: Unlimited, MaxConcurrentRuns: Unlimited, MaxDailyRuns: Unlimited,
		MaxRunDuration: maxRunDuration, MaxTasksPerRun: maxTasksPerRun, MaxBackfillRuns: Unlimited, FairnessWeight: 1, Zone: "UTC",
	}
}

// Validate checks every field and tells all that is wrong together.
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
			refuse(count.field, fmt.Sprintf("is %d", count.value), fmt.Sprintf("use 0 to %d, or -1 for no limit", maxCount))
		}
	}
	if q.MaxTasksPerRun < 1 || q.MaxTasksPerRun > maxTasksPerRun {
		refuse("max_tasks_per_run", fmt.Sprintf("is %d", q.MaxTasksPerRun), fmt.Sprintf("use 1 to %d", maxTasksPerRun))
	}
	if q.MaxRunDuration < time.Second || q.MaxRunDuration > maxRunDuration || q.MaxRunDuration%time.Second != 0 {
		refuse("max_run_duration", "is "+q.MaxRunDuration.String(), "use whole seconds, from 1s to "+maxRunDuration.String())
	}
	if !(q.FairnessWeight >= minWeight && q.FairnessWeight <= maxWeight) { // NaN is neither
		refuse("fairness_weight", fmt.Sprintf("is %v", q.FairnessWeight), fmt.Sprintf("use %v to %v", minWeight, maxWeight))
	}
	if _, err := q.location(); err != nil {
		refuse("zone", fmt.Sprintf("%.100q is not a time zone", q.Zone), "use a name of the IANA database, such as UTC or Europe/Berlin")
	}
	return fault.FromViolations(found)
}

// location is the zone. Local is the machine's and "" is nobody's: neither is a name.
func (q Quotas) location() (*time.Location, error) {
	if q.Zone == "" || q.Zone == "Local" || len(q.Zone) > maxZoneLength {
		return nil, fmt.Errorf("%.100q is not a time zone", q.Zone)
	}
	return time.LoadLocation(q.Zone)
}

// Day is when the tenant's day of now has begun and when the next begins. A midnight that a
// clock change skips is the first moment after it.
func (q Quotas) Day(now time.Time) (from, until time.Time, err error) {
	zone, err := q.location()
	if err != nil {
		return from, until, err
	}
	year, month, day := now.In(zone).Date()
	return StartOfDay(year, month, day, zone), StartOfDay(year, month, day+1, zone), nil
}

// StartOfDay is the first moment of a date. time.Date is right unless midnight is skipped,
// where it may answer with an hour of the day before, or repeated, where it may give the
// second one.
func StartOfDay(year int, month time.Month, day int, zone *time.Location) time.Time {
	wanted := time.Date(year, month, day, 0, 0, 0, 0, time.UTC)
	at := time.Date(year, month, day, 0, 0, 0, 0, zone)
	same := func(t time.Time) bool {
		y, m, d := t.In(zone).Date()
		return !time.Date(y, m, d, 0, 0, 0, 0, time.UTC).Before(wanted)
	}
	const step = 15 * time.Minute // no zone changes its clock by less, but Lord Howe's by half an hour
	for !same(at) {
		at = at.Add(step)
	}
	for same(at.Add(-step)) {
		at = at.Add(-step)
	}
	return at
}
