// Package simulate says what a set of configs will do before it does it: how many runs start
// when, how long they wait, what quotas and overlap keep from running, and how peaks could be
// spread. It replays the slots of package schedule, event by event, against what is known of
// past runs. It is pure: it never reads a clock, a database or a random number, it never
// changes anything, and the same input in any order gives the same report.
//
// What it takes for granted: nothing runs when the window begins, a run takes as long as its
// config's runs did on average, a cancelled run ends at once, and all of a run's work is one
// place at the workers. Triggers without slots (events, by hand) add nothing, every depends_on
// is met, and nothing is paused or missed.
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

// What a slot does while a run of its config has not ended.
const (
	OverlapSkip          = "skip"
	OverlapBufferOne     = "buffer_one"
	OverlapBufferAll     = "buffer_all"
	OverlapAllow         = "allow"
	OverlapCancelRunning = "cancel_running"
)

// Limits of a simulation.
const (
	MaxDays         = 366
	MaxSlots        = 50_000_000 // what a machine works through in about half a minute
	MaxQueued       = 2_000_000  // runs that wait at once: whoever has more needs no longer simulation
	MaxJitter       = 24 * time.Hour
	MaxDuration     = 366 * 24 * time.Hour
	DefaultDuration = time.Minute // of a config that has not run yet
	DefaultLimit    = 20
)

// NoLimit is a quota that does not bind.
const NoLimit = -1

// Input is what there is to simulate.
type Input struct {
	From    time.Time // the first instant
	Days    int       // of 24 hours, 1 to MaxDays; the instant after the last is not part of it
	Configs []Config
	Tenants []Tenant // one that is not mentioned has no quotas
	Slots   int      // how many runs the workers can do at once; 0 is any number
	Limit   int      // how many entries each list of the report has; 0 is DefaultLimit
}

// Config is one config with what is known of it. Tenant and Name together are unique.
type Config struct {
	ID       [16]byte // of which its place in a jitter window follows; zero for one that is not saved yet
	Tenant   string
	Name     string
	Pipeline string
	Schedule *schedule.Schedule

	Jitter        time.Duration // its offset: a slot is due this much later
	JitterWindow  time.Duration // in which the offset was chosen
	Duration      time.Duration // the mean of past runs; 0 is DefaultDuration
	MaxExecution  time.Duration // a run ends then at the latest; 0 is no bound
	SLAStartDelay time.Duration // how long a run may wait from when it is due; 0 is any time
	Overlap       string        // one of the constants; empty is OverlapSkip
	MaxOverlap    int           // with OverlapAllow: runs at once; 0 is any number
	Tasks         int           // of one run
}

// Tenant is a tenant's quotas, NoLimit where there is none.
type Tenant struct {
	Name              string
	MaxConcurrentRuns int
	MaxDailyRuns      int
	Zone              string // in which its days begin; empty is UTC
}

// Offset is the config's place in a jitter window: what a saved config really gets, and for one
// without an id a place that is as good as any and stays the same.
func (c Config) Offset(window time.Duration) time.Duration {
	seed := c.ID
	if seed == [16]byte{} {
		sum := sha256.Sum256([]byte(c.Tenant + "\x00" + c.Name))
		copy(seed[:], sum[:])
	}
	return schedule.Jitter(seed, window)
}

// Run replays the window and reports. What cannot be simulated is a fault that names the field.
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
		return Report{}, fault.New(fault.LimitExceeded, fmt.Sprintf("%d slots are more than %d", total, MaxSlots),
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
		return fault.Invalid("from", "the window does not begin in the years 1970 to 9990", "write 2026-12-01T00:00:00Z")
	case in.Days < 1 || in.Days > MaxDays:
		return fault.Invalid("days", fmt.Sprintf("%d days are not between 1 and %d", in.Days, MaxDays), "write 30")
	case in.Slots < 0:
		return fault.Invalid("slots", "fewer than no places at the workers", "write 0 for any number")
	case in.Limit < 0:
		return fault.Invalid("limit", "fewer than no entries", fmt.Sprintf("write %d", DefaultLimit))
	}
	names := make(map[[2]string]bool, len(in.Configs))
	for i := range in.Configs {
		c := &in.Configs[i]
		field := fmt.Sprintf("configs[%s/%s]", c.Tenant, c.Name)
		key := [2]string{c.Tenant, c.Name}
		if names[key] {
			return fault.Invalid(field, "it is there twice", "give each config of a tenant its own name")
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
			return fault.Invalid(field, "it is there twice", "mention each tenant once")
		case t.MaxConcurrentRuns < NoLimit:
			return fault.Invalid(field+".max_concurrent_runs", "a quota below none", "write -1 for no limit")
		case t.MaxDailyRuns < NoLimit:
			return fault.Invalid(field+".max_daily_runs", "a quota below none", "write -1 for no limit")
		}
		tenants[t.Name] = true
	}
	return nil
}

func (c *Config) check(field string) error {
	switch c.Overlap {
	case "", OverlapSkip, OverlapBufferOne, OverlapBufferAll, OverlapAllow, OverlapCancelRunning:
	default:
		return fault.Invalid(field+".overlap", fmt.Sprintf("unknown way to overlap %.64q", c.Overlap),
			"use skip, buffer_one, buffer_all, allow or cancel_running")
	}
	if c.Schedule == nil {
		return fault.Invalid(field+".trigger", "it has no schedule", "leave out what has no trigger")
	}
	if c.MaxOverlap < 0 || c.Tasks < 0 || c.Tasks > 1_000_000 {
		return fault.Invalid(field, "max_overlap or tasks out of bounds", "write 0 if it is not known")
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
			return fault.Invalid(field+"."+d.name, fmt.Sprintf("%s is not between 0 and %s", d.value, d.most), "write 0 if it is not known")
		}
	}
	return nil
}

// newState sorts what is given, so that its order has no influence.
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
		s.configs[i] = newConfig(c, int32(len(s.tenants)-1)) //nolint:gosec // there are not so many
		late = max(late, c.Jitter)
	}
	for i := range s.tenants {
		t := &s.tenants[i]
		t.midnights, _ = midnights(t.Tenant)
	}
	s.load = newLoad(in.From, s.until.Add(late))
	return s, nil
}

// midnights is when the tenant's days begin, where that matters.
func midnights(t Tenant) (*schedule.Schedule, error) {
	zone := t.Zone
	if zone == "" {
		zone = "UTC"
	}
	s, err := schedule.Parse(schedule.Trigger{Kind: schedule.Cron, Cron: "0 0 * * *"}, zone)
	if err != nil {
		return nil, fault.Invalid(fmt.Sprintf("tenants[%s].timezone", t.Name), fmt.Sprintf("unknown time zone %.64q", t.Zone),
			"write Europe/Berlin")
	}
	return s, nil
}
