// Package simulate predicts what a set of configs will do: how many runs start when, how long they
// wait, which slots quotas and overlap skip, and how peaks could be spread. It replays the slots of
// package schedule, event by event, with the durations of past runs. It is pure: it reads no clock, no
// database and no random numbers, it changes nothing, and the same input in any order returns the same
// report.
//
// It assumes that nothing runs when the window begins, a run takes as long as its config's runs did on
// average, a cancelled run ends immediately, and a run occupies one unit of worker capacity. Triggers
// without slots (events, manual) add nothing, every depends_on is met, and nothing is paused or
// missed.
package simulate

import (
	"cmp"
	"crypto/sha256"
	"fmt"
	"slices"
	"time"

	"go.arco.dev/servo/internal/base/fault"
	"go.arco.dev/servo/internal/domain/schedule"
)

// The overlap policies: what a slot does while a run of its config has not ended.
const (
	OverlapSkip          = "skip"
	OverlapBufferOne     = "buffer_one"
	OverlapBufferAll     = "buffer_all"
	OverlapAllow         = "allow"
	OverlapCancelRunning = "cancel_running"
)

// The limits of a simulation.
const (
	MaxDays         = 366
	MaxSlots        = 50_000_000 // about half a minute of computing time
	MaxQueued       = 2_000_000  // concurrently waiting runs: with more, a longer simulation shows nothing new
	MaxJitter       = 24 * time.Hour
	MaxDuration     = 366 * 24 * time.Hour
	DefaultDuration = time.Minute // of a config that has not run yet
	DefaultLimit    = 20
)

// NoLimit is a quota without a limit.
const NoLimit = -1

// Input is what to simulate.
type Input struct {
	From    time.Time // the first instant
	Days    int       // of 24 hours, 1 to MaxDays; the end is exclusive
	Configs []Config
	Tenants []Tenant // a tenant that is not listed has no quotas
	Slots   int      // the capacity of the workers in runs; 0 is unlimited
	Limit   int      // maximum entries of each list of the report; 0 is DefaultLimit
}

// Config is one config with its history. Tenant and Name together are unique.
type Config struct {
	ID       [16]byte // determines its offset in a jitter window; zero for one that is not saved yet
	Tenant   string
	Name     string
	Pipeline string
	Schedule *schedule.Schedule

	Jitter        time.Duration // its offset: a slot is due this much later
	JitterWindow  time.Duration // from which the offset was chosen
	Duration      time.Duration // the mean of past runs; 0 is DefaultDuration
	MaxExecution  time.Duration // the maximum duration of a run; 0 is unlimited
	SLAStartDelay time.Duration // the maximum wait of a run since it was due; 0 is unlimited
	Overlap       string        // one of the constants; empty is OverlapSkip
	MaxOverlap    int           // with OverlapAllow: maximum concurrent runs; 0 is unlimited
	Tasks         int           // of one run
}

// Tenant is a tenant's quotas, NoLimit without a limit.
type Tenant struct {
	Name              string
	MaxConcurrentRuns int
	MaxDailyRuns      int
	Zone              string // of its days; empty is UTC
}

// Offset returns the config's offset in a jitter window: the one that a saved config gets, and a
// stable arbitrary one for a config without an id.
func (c Config) Offset(window time.Duration) time.Duration {
	seed := c.ID
	if seed == [16]byte{} {
		sum := sha256.Sum256([]byte(c.Tenant + "\x00" + c.Name))
		copy(seed[:], sum[:])
	}
	return schedule.Jitter(seed, window)
}

// Run replays the window and returns the report. Invalid input is a fault that names the field.
func Run(in Input) (Report, error) {
	in.From = in.From.UTC()
	if in.Limit == 0 {
		in.Limit = DefaultLimit
	}
	if err := check(in); err != nil {
		return Report{}, err
	}
	s, err := newState(in)
	if err != nil {
		return Report{}, err
	}
	total := 0
	for i := range s.configs {
		total += s.configs[i].Schedule.Count(s.after, s.until)
	}
	if total > MaxSlots {
		return Report{}, fault.New(fault.LimitExceeded, fmt.Sprintf("the simulation has %d slots, the limit is %d", total, MaxSlots),
			fault.Field("days"), fault.Remedy("simulate fewer days, or fewer configs"),
			fault.Value("slots", total), fault.Value("limit", MaxSlots))
	}
	if err := s.replay(); err != nil {
		return Report{}, err
	}
	return s.report(), nil
}

func check(in Input) error {
	switch {
	case in.From.Year() < 1970 || in.From.Year() > 9990:
		return fault.Invalid("from", "the window must begin in the years 1970 to 9990", "write 2026-12-01T00:00:00Z")
	case in.Days < 1 || in.Days > MaxDays:
		return fault.Invalid("days", fmt.Sprintf("is %d, must be 1 to %d", in.Days, MaxDays), "use 30, for example")
	case in.Slots < 0:
		return fault.Invalid("slots", fmt.Sprintf("is %d, must be 0 or more", in.Slots), "use 0 for unlimited capacity")
	case in.Limit < 0:
		return fault.Invalid("limit", fmt.Sprintf("is %d, must be 0 or more", in.Limit), fmt.Sprintf("use %d, for example", DefaultLimit))
	}
	names := make(map[[2]string]bool, len(in.Configs))
	for i := range in.Configs {
		c := &in.Configs[i]
		field := fmt.Sprintf("configs[%s/%s]", c.Tenant, c.Name)
		key := [2]string{c.Tenant, c.Name}
		if names[key] {
			return fault.Invalid(field, "duplicate config", "use a unique name for each config of a tenant")
		}
		names[key] = true
		if err := c.check(field); err != nil {
			return err
		}
	}
	tenants := make(map[string]bool, len(in.Tenants))
	for _, t := range in.Tenants {
		field := fmt.Sprintf("tenants[%s]", t.Name)
		switch {
		case tenants[t.Name]:
			return fault.Invalid(field, "duplicate tenant", "list each tenant once")
		case t.MaxConcurrentRuns < NoLimit:
			return fault.Invalid(field+".max_concurrent_runs", "must be -1 or more", "use -1 for no limit")
		case t.MaxDailyRuns < NoLimit:
			return fault.Invalid(field+".max_daily_runs", "must be -1 or more", "use -1 for no limit")
		}
		tenants[t.Name] = true
	}
	return nil
}

func (c *Config) check(field string) error {
	switch c.Overlap {
	case "", OverlapSkip, OverlapBufferOne, OverlapBufferAll, OverlapAllow, OverlapCancelRunning:
	default:
		return fault.Invalid(field+".overlap", fmt.Sprintf("unknown overlap policy %.64q", c.Overlap),
			"use skip, buffer_one, buffer_all, allow or cancel_running")
	}
	if c.Schedule == nil {
		return fault.Invalid(field+".trigger", "has no schedule", "remove configs without a trigger")
	}
	if c.MaxOverlap < 0 || c.Tasks < 0 || c.Tasks > 1_000_000 {
		return fault.Invalid(field, "max_overlap or tasks is out of range", "use 0 if it is unknown")
	}
	for _, d := range []struct {
		name  string
		value time.Duration
		most  time.Duration
	}{
		{"jitter", c.Jitter, MaxJitter},
		{"jitter_window", c.JitterWindow, MaxJitter},
		{"duration", c.Duration, MaxDuration},
		{"max_execution", c.MaxExecution, MaxDuration},
		{"sla_start_delay", c.SLAStartDelay, MaxDuration},
	} {
		if d.value < 0 || d.value > d.most {
			return fault.Invalid(field+"."+d.name, fmt.Sprintf("is %s, must be 0s to %s", d.value, d.most), "use 0 if it is unknown")
		}
	}
	return nil
}

// newState sorts the input, so that its order has no influence.
func newState(in Input) (*state, error) {
	s := &state{
		in:    in,
		after: in.From.Add(-time.Nanosecond),
		until: in.From.Add(time.Duration(in.Days)*24*time.Hour - time.Nanosecond),
		now:   in.From.UnixMicro(),
	}
	configs := slices.Clone(in.Configs)
	slices.SortFunc(configs, func(a, b Config) int {
		return cmp.Or(cmp.Compare(a.Tenant, b.Tenant), cmp.Compare(a.Name, b.Name))
	})
	quotas := make(map[string]Tenant, len(in.Tenants))
	for _, t := range in.Tenants {
		quotas[t.Name] = t
		if _, err := midnights(t); err != nil {
			return nil, err
		}
	}
	s.configs = make([]config, len(configs))
	s.worst = make([]int32, len(configs))
	s.ahead = make([]int64, len(configs)*batch)
	var late time.Duration
	for i := range configs {
		c := &configs[i]
		if i == 0 || c.Tenant != configs[i-1].Tenant {
			t, known := quotas[c.Tenant]
			if !known {
				t = Tenant{Name: c.Tenant, MaxConcurrentRuns: NoLimit, MaxDailyRuns: NoLimit}
			}
			s.tenants = append(s.tenants, tenant{Tenant: t})
		}
		s.configs[i] = newConfig(c, int32(len(s.tenants)-1)) //nolint:gosec //nolint:gosec // bounded by the input
		late = max(late, c.Jitter)
	}
	for i := range s.tenants {
		t := &s.tenants[i]
		t.midnights, _ = midnights(t.Tenant)
	}
	s.load = newLoad(in.From, s.until.Add(late))
	return s, nil
}

// midnights returns when the tenant's days begin, if it has a daily quota.
func midnights(t Tenant) (*schedule.Schedule, error) {
	zone := t.Zone
	if zone == "" {
		zone = "UTC"
	}
	s, err := schedule.Parse(schedule.Trigger{Kind: schedule.Cron, Cron: "0 0 * * *"}, zone)
	if err != nil {
		return nil, fault.Invalid(fmt.Sprintf("tenants[%s].timezone", t.Name), fmt.Sprintf("unknown time zone %.64q", t.Zone),
			"use a name of the IANA database, such as Europe/Berlin")
	}
	return s, nil
}
