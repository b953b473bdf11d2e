package config

import (
	"encoding/json"
	"time"

	"go.arco.dev/servo/internal/base/fault"
	"go.arco.dev/servo/internal/domain/asset"
	"go.arco.dev/servo/internal/domain/schedule"
)

// Spec is the user-defined part of a config, besides its name.
type Spec struct {
	Pipeline   string            `json:"pipeline"`
	Labels     map[string]string `json:"labels,omitempty"`
	Parameters json.RawMessage   `json:"parameters,omitempty"`
	Priority   int16             `json:"priority,omitempty"` // 1 to 10, 10 first
	Trigger    Trigger           `json:"trigger"`
	Timezone   string            `json:"timezone,omitempty"` // IANA
	DependsOn  *Dependency       `json:"depends_on,omitempty"`
	Overlap    Overlap           `json:"overlap,omitempty"`
	MaxOverlap int               `json:"max_overlap,omitempty"` // with allow: maximum concurrent runs; 0 is no limit
	Catchup    Catchup           `json:"catchup,omitzero"`
	Jitter     asset.Duration    `json:"jitter,omitzero"` // each config has its own offset in this window
	Retry      *asset.Retry      `json:"retry,omitempty"` // overrides the asset's policy
	Partitions *Partitions       `json:"partitions,omitempty"`

	MaxExecution           asset.Duration `json:"max_execution,omitzero"`
	SLAStartDelay          asset.Duration `json:"sla_start_delay,omitzero"`
	MaxConsecutiveFailures int            `json:"max_consecutive_failures,omitempty"`
	Alerts                 *Alerts        `json:"alerts,omitempty"`
}

// Alerts are the numbers of consecutive failures that raise alerts. Defaults are not filled in here:
// the alert rules have them, so that specs of earlier versions stay as they are.
type Alerts struct {
	Failures       int `json:"failures,omitempty"`        // severity LOW
	MediumFailures int `json:"medium_failures,omitempty"` // severity MEDIUM
}

// Trigger defines when a config fires. Exactly one of its kinds is set.
type Trigger struct {
	Cron     string `json:"cron,omitempty"`
	Template string `json:"template,omitempty"` // name of a template
	// Expression is the expression of a tenant's own template when the config was last saved, so
	// that the events of a config define its slots without other data.
	Expression string         `json:"expression,omitempty"`
	Interval   asset.Duration `json:"interval,omitzero"`
	Anchor     *time.Time     `json:"anchor,omitempty"` // of intervals; default: the config's creation
	Event      *Event         `json:"event,omitempty"`
	Manual     bool           `json:"manual,omitempty"`
}

// Event is the condition of an event trigger: the success of another config of the workspace, or an
// external event.
type Event struct {
	Config string `json:"config,omitempty"`
	Name   string `json:"name,omitempty"`
}

// Dependency lets a slot fire only if another config of the workspace has succeeded recently.
type Dependency struct {
	Config string         `json:"config"`
	Within asset.Duration `json:"within"`
	Wait   asset.Duration `json:"wait,omitzero"` // how long the slot waits for it
}

// Overlap defines what a slot does while a run of the config is active.
type Overlap string

// The overlap policies.
const (
	OverlapSkip          Overlap = "skip"
	OverlapBufferOne     Overlap = "buffer_one" // one run waits for the lock
	OverlapBufferAll     Overlap = "buffer_all" // every run waits for the lock
	OverlapAllow         Overlap = "allow"
	OverlapCancelRunning Overlap = "cancel_running" // the run that holds the lock is cancelled, the new one waits for it
)

// Catchup defines which missed slots fire.
type Catchup struct {
	Policy   CatchupPolicy  `json:"policy,omitempty"`
	MaxSlots int            `json:"max_slots,omitempty"` // with all: the maximum number, newest first
	Window   asset.Duration `json:"window,omitzero"`     // older slots never fire; 0 is no limit
}

// CatchupPolicy selects the missed slots that fire.
type CatchupPolicy string

// The catch-up policies.
const (
	CatchupLatest CatchupPolicy = "latest"
	CatchupAll    CatchupPolicy = "all"
	CatchupNone   CatchupPolicy = "none"
)

// The defaults of a config.
const (
	DefaultPriority      = 5
	DefaultMaxExecution  = asset.Duration(60 * time.Minute)
	DefaultSLAStartDelay = asset.Duration(30 * time.Minute)
	DefaultMaxFailures   = 5
	DefaultMaxSlots      = 100
	DefaultAlertFailures = 1
	DefaultTimezone      = "UTC"
)

// Filled returns the spec with the defaults filled in, for a config created at a time.
func (s Spec) Filled(created time.Time) Spec {
	fill := func(target *asset.Duration, value asset.Duration) {
		if *target == 0 {
			*target = value
		}
	}
	if s.Priority == 0 {
		s.Priority = DefaultPriority
	}
	if s.Timezone == "" {
		s.Timezone = DefaultTimezone
	}
	if s.Overlap == "" {
		s.Overlap = OverlapSkip
	}
	if s.Catchup.Policy == "" {
		s.Catchup.Policy = CatchupLatest
	}
	if s.Catchup.Policy == CatchupAll && s.Catchup.MaxSlots == 0 {
		s.Catchup.MaxSlots = DefaultMaxSlots
	}
	fill(&s.MaxExecution, DefaultMaxExecution)
	fill(&s.SLAStartDelay, DefaultSLAStartDelay)
	if s.MaxConsecutiveFailures == 0 {
		s.MaxConsecutiveFailures = DefaultMaxFailures
	}
	if len(s.Parameters) == 0 {
		s.Parameters = json.RawMessage(`{}`)
	}
	if s.Trigger.Anchor == nil && s.Trigger.elapsed() {
		anchor := created.UTC().Truncate(time.Second)
		s.Trigger.Anchor = &anchor
	}
	return s
}

// elapsed reports whether slots are counted from an anchor.
func (t Trigger) elapsed() bool {
	const every = "@every "
	return t.Interval != 0 || len(t.Cron) > len(every) && t.Cron[:len(every)] == every
}

// resolved returns the trigger in the form of package schedule.
func (t Trigger) resolved() (schedule.Trigger, error) {
	out := schedule.Trigger{Cron: t.Cron, Interval: t.Interval.Std()}
	if t.Anchor != nil {
		out.Anchor = *t.Anchor
	}
	if t.Event != nil {
		out.Event = &schedule.EventTrigger{Config: t.Event.Config, Name: t.Event.Name}
	}
	kinds := 0
	for _, kind := range []struct {
		is   bool
		kind schedule.Kind
	}{{t.Cron != "", schedule.Cron}, {t.Template != "", schedule.Cron}, {t.Interval != 0, schedule.Interval}, {t.Event != nil, schedule.Event}, {t.Manual, schedule.Manual}} {
		if kind.is {
			out.Kind = kind.kind
			kinds++
		}
	}
	if kinds != 1 {
		return out, fault.Invalid("trigger", "must have exactly one of cron, template, interval, event, manual", `write {cron: "0 2 * * *"}, for example`)
	}
	switch {
	case t.Template == "":
	case t.Expression != "":
		out.Cron = t.Expression
	default:
		expression, ok := schedule.Resolve(t.Template)
		if !ok {
			return out, UnknownTemplate(t.Template, nil)
		}
		out.Cron = expression
	}
	return out, nil
}

// Schedule returns the schedule of the config.
func (s Spec) Schedule() (*schedule.Schedule, error) {
	trigger, err := s.Trigger.resolved()
	if err != nil {
		return nil, err
	}
	zone := s.Timezone
	if zone == "" {
		zone = DefaultTimezone
	}
	return schedule.Parse(trigger, zone)
}
