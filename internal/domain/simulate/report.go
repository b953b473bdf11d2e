package simulate

import (
	"cmp"
	"fmt"
	"slices"
	"time"
)

// Report is the result of a simulation. Its lists are in a fixed order and have at most Input.Limit
// entries, except for hours; the counts next to them are complete.
type Report struct {
	From    time.Time `json:"from"`
	Until   time.Time `json:"until"` // exclusive
	Configs int       `json:"configs"`
	Totals
	Wait Waits `json:"wait"`

	PeakMinutes []PeakMinute `json:"peak_minutes,omitempty"` // the ten with the most slots, in descending order
	PeakHours   []PeakHour   `json:"peak_hours,omitempty"`
	Hours       []Hour       `json:"hours"` // every hour of the window, and later ones with slots that jitter has moved

	Tenants      []TenantLoad  `json:"tenants,omitempty"` // those with most problems first
	TenantCount  int           `json:"tenant_count"`
	Late         []Late        `json:"sla_misses,omitempty"` // the first ones, by slot
	Quotas       []QuotaMiss   `json:"quota_misses,omitempty"`
	Overlaps     []Overlap     `json:"overlaps,omitempty"` // configs whose runs take longer than the time until the next slot
	Overruns     []Overrun     `json:"overruns,omitempty"` // configs whose runs exceed max_execution
	ClockChanges []ClockChange `json:"clock_changes,omitempty"`
	Suggestions  []Suggestion  `json:"suggestions,omitempty"` // to be applied in this order
}

// Totals count slots by outcome: Slots = Fired + SkippedOverlap + SkippedQuota.
type Totals struct {
	Slots          int `json:"slots"`
	Fired          int `json:"fired"`
	SkippedOverlap int `json:"skipped_overlap"`
	SkippedQuota   int `json:"skipped_quota"`

	// Of the fired:
	Cancelled     int `json:"cancelled"`     // by the next slot
	Unstarted     int `json:"never_started"` // by max_concurrent_runs 0
	Overruns      int `json:"timed_out"`     // exceeded max_execution
	SLAMisses     int `json:"sla_missed"`
	WaitedOverlap int `json:"waited_overlap"` // first of all for a run of the same config
	WaitedQuota   int `json:"waited_quota"`   // for max_concurrent_runs
	WaitedWorkers int `json:"waited_workers"` // for the capacity of workers
}

func (t *Totals) add(o Totals) {
	t.Slots += o.Slots
	t.Fired += o.Fired
	t.SkippedOverlap += o.SkippedOverlap
	t.SkippedQuota += o.SkippedQuota
	t.Cancelled += o.Cancelled
	t.Unstarted += o.Unstarted
	t.Overruns += o.Overruns
	t.SLAMisses += o.SLAMisses
	t.WaitedOverlap += o.WaitedOverlap
	t.WaitedQuota += o.WaitedQuota
	t.WaitedWorkers += o.WaitedWorkers
}

// Waits is how long started runs waited since they were due. P50 and P95 are at most 3 % or a
// millisecond too long.
type Waits struct {
	Runs int      `json:"runs"` // that waited
	P50  Duration `json:"p50"`
	P95  Duration `json:"p95"`
	Max  Duration `json:"max"`
}

// Ref names a config.
type Ref struct {
	Tenant string `json:"tenant"`
	Config string `json:"config"`
}

// PeakMinute is a minute with many slots and their configs, those with most slots first.
type PeakMinute struct {
	At      time.Time `json:"at"`
	Slots   int       `json:"slots"`
	Configs []Part    `json:"configs"`
	Count   int       `json:"config_count"`
}

// Part is a config's part of a peak.
type Part struct {
	Ref
	Slots int `json:"slots"`
}

// PeakHour is an hour with many slots.
type PeakHour struct {
	At    time.Time `json:"at"`
	Slots int       `json:"slots"`
}

// Hour is the load in an hour.
type Hour struct {
	At         time.Time `json:"at"`
	Due        int       `json:"due"`   // slots, jitter included
	Fired      int       `json:"fired"` // runs created
	Tasks      int       `json:"tasks"` // of those runs
	MaxRunning int       `json:"max_running"`
	MaxQueued  int       `json:"max_queued"`
	MaxWait    Duration  `json:"max_wait"` // of the runs created in this hour
}

// TenantLoad is a tenant's part.
type TenantLoad struct {
	Tenant string `json:"tenant"`
	Totals
	Wait Waits `json:"wait"`
}

// Late is a run that starts later than its SLA permits.
type Late struct {
	Ref
	Slot    time.Time `json:"slot"`
	Wait    Duration  `json:"wait"`
	Allowed Duration  `json:"sla_start_delay"`
}

// QuotaMiss is a quota that takes effect: max_daily_runs skips slots, max_concurrent_runs delays runs.
type QuotaMiss struct {
	Tenant string     `json:"tenant"`
	Quota  string     `json:"quota"`
	Limit  int        `json:"limit"`
	Slots  int        `json:"slots"` // skipped, or waiting
	First  *time.Time `json:"first,omitempty"`
	Wait   *Waits     `json:"wait,omitempty"`
}

// Overlap is a config whose runs overlap.
type Overlap struct {
	Ref
	Policy    string     `json:"overlap"`
	Duration  Duration   `json:"duration"`
	Slots     int        `json:"slots"`
	Skipped   int        `json:"skipped"`
	Waited    int        `json:"waited"`
	Cancelled int        `json:"cancelled"`
	First     *time.Time `json:"first_skipped,omitempty"`
}

// Overrun is a config whose runs are timed out.
type Overrun struct {
	Ref
	Duration     Duration `json:"duration"`
	MaxExecution Duration `json:"max_execution"`
	Runs         int      `json:"runs"`
}

// Duration is a time.Duration that is written as text, such as 1m30s.
type Duration time.Duration

// MarshalText implements encoding.TextMarshaler.
func (d Duration) MarshalText() ([]byte, error) { return []byte(d.String()), nil }

// UnmarshalText implements encoding.TextUnmarshaler.
func (d *Duration) UnmarshalText(text []byte) error {
	parsed, err := time.ParseDuration(string(text))
	if err != nil {
		return fmt.Errorf("parse a duration: %w", err)
	}
	*d = Duration(parsed)
	return nil
}

func (d Duration) String() string { return time.Duration(d).String() }

// peaks is how many peak minutes and hours are reported.
const peaks = 10

func (s *state) report() Report {
	r := Report{
		From: s.in.From, Until: s.until.Add(time.Nanosecond),
		Configs: len(s.configs), TenantCount: len(s.tenants),
		Wait: s.waits.summary(), Hours: s.load.hours, Late: s.late,
	}
	for i := range s.configs {
		c := &s.configs[i]
		c.totals.Slots, c.totals.Fired, c.totals.SkippedOverlap = int(c.slots), int(c.fired), int(c.skips)
		if c.overruns() {
			c.totals.Overruns = c.totals.Fired - c.totals.Unstarted - c.totals.Cancelled
		}
		s.tenants[c.tenant].totals.add(c.totals)
		s.configTroubles(&r, c)
	}
	for i := range s.tenants {
		t := &s.tenants[i]
		r.add(t.totals)
		r.Tenants = append(r.Tenants, TenantLoad{Tenant: t.Name, Totals: t.totals, Wait: t.waits.summary()})
		tenantTroubles(&r, t)
	}
	s.cut(&r)
	for _, i := range busiest(s.load.hours, func(h Hour) int { return h.Due }, peaks) {
		r.PeakHours = append(r.PeakHours, PeakHour{At: s.load.hours[i].At, Slots: s.load.hours[i].Due})
	}
	for _, i := range busiest(s.load.minutes, func(n int32) int { return int(n) }, peaks) {
		r.PeakMinutes = append(r.PeakMinutes, s.peakMinute(i))
	}
	r.ClockChanges = s.clockChanges()
	r.Suggestions = s.suggest()
	return r
}

func (s *state) configTroubles(r *Report, c *config) {
	if t := c.totals; t.SkippedOverlap+t.WaitedOverlap+t.Cancelled > 0 {
		r.Overlaps = append(r.Overlaps, Overlap{
			Ref: c.ref(), Policy: c.Overlap, Duration: Duration(c.Duration), Slots: t.Slots,
			Skipped: t.SkippedOverlap, Waited: t.WaitedOverlap, Cancelled: t.Cancelled, First: c.skipped.time(),
		})
	}
	if c.totals.Overruns > 0 {
		r.Overruns = append(r.Overruns, Overrun{
			Ref: c.ref(), Duration: Duration(c.Duration), MaxExecution: Duration(c.MaxExecution), Runs: c.totals.Overruns,
		})
	}
}

func tenantTroubles(r *Report, t *tenant) {
	if n := t.totals.SkippedQuota; n > 0 {
		r.Quotas = append(r.Quotas, QuotaMiss{
			Tenant: t.Name, Quota: "max_daily_runs", Limit: t.MaxDailyRuns, Slots: n, First: t.skipped.time(),
		})
	}
	if n := t.held.count + t.totals.Unstarted; n > 0 {
		wait := t.held.summary()
		r.Quotas = append(r.Quotas, QuotaMiss{
			Tenant: t.Name, Quota: "max_concurrent_runs", Limit: t.MaxConcurrentRuns, Slots: n, Wait: &wait,
		})
	}
}

// cut sorts the lists by severity and keeps the worst entries. They were in the order of names, which
// still decides between equal ones.
func (s *state) cut(r *Report) {
	slices.SortStableFunc(r.Tenants, func(a, b TenantLoad) int {
		return cmp.Or(cmp.Compare(b.misses(), a.misses()), cmp.Compare(b.Wait.Max, a.Wait.Max), cmp.Compare(b.Slots, a.Slots))
	})
	slices.SortStableFunc(r.Late, func(a, b Late) int {
		return cmp.Or(a.Slot.Compare(b.Slot), cmp.Compare(a.Tenant, b.Tenant), cmp.Compare(a.Config, b.Config))
	})
	slices.SortStableFunc(r.Quotas, func(a, b QuotaMiss) int { return cmp.Compare(b.Slots, a.Slots) })
	slices.SortStableFunc(r.Overlaps, func(a, b Overlap) int {
		return cmp.Compare(b.Skipped+b.Waited+b.Cancelled, a.Skipped+a.Waited+a.Cancelled)
	})
	slices.SortStableFunc(r.Overruns, func(a, b Overrun) int { return cmp.Compare(b.Runs, a.Runs) })
	r.Tenants = least(r.Tenants, s.in.Limit)
	r.Quotas = least(r.Quotas, s.in.Limit)
	r.Overlaps = least(r.Overlaps, s.in.Limit)
	r.Overruns = least(r.Overruns, s.in.Limit)
}

func (t TenantLoad) misses() int {
	return t.SkippedOverlap + t.SkippedQuota + t.SLAMisses + t.Unstarted + t.Overruns
}

func least[T any](list []T, limit int) []T { return list[:min(len(list), limit)] }

func (f first) time() *time.Time {
	if !f.some {
		return nil
	}
	at := instant(f.at)
	return &at
}

// peakMinute computes the slots of each config in one minute again; keeping all of them would need
// more memory than that takes time.
func (s *state) peakMinute(index int) PeakMinute {
	at := (s.load.firstMinute + int64(index)) * minute
	p := PeakMinute{At: instant(at), Slots: int(s.load.minutes[index])}
	for i := range s.configs {
		c := &s.configs[i]
		if n := s.count(c, at-c.jitter, at-c.jitter+minute); n > 0 {
			p.Configs = append(p.Configs, Part{Ref: c.ref(), Slots: n})
		}
	}
	p.Count = len(p.Configs)
	slices.SortStableFunc(p.Configs, func(a, b Part) int { return cmp.Compare(b.Slots, a.Slots) })
	p.Configs = least(p.Configs, s.in.Limit)
	return p
}

// count returns how many slots of a config lie between two instants, the second excluded, within the
// window.
func (s *state) count(c *config, from, until int64) int {
	after, last := instant(from).Add(-time.Nanosecond), instant(until).Add(-time.Nanosecond)
	if after.Before(s.after) {
		after = s.after
	}
	if last.After(s.until) {
		last = s.until
	}
	if !after.Before(last) {
		return 0
	}
	return c.Schedule.Count(after, last)
}
