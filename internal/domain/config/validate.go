package config

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"go.arco.dev/servo/internal/base/fault"
	"go.arco.dev/servo/internal/base/suggest"
	"go.arco.dev/servo/internal/domain/asset"
	"go.arco.dev/servo/internal/domain/schedule"
)

// The limits of a config.
const (
	MaxLabels     = 32
	maxLabel      = 128
	MaxParameters = 64 << 10
	MaxNote       = 1000
	maxSlots      = 1000
	maxDuration   = asset.Duration(7 * 24 * time.Hour)
	maxWindow     = asset.Duration(400 * 24 * time.Hour) // how long the ledger is kept
	maxJitter     = asset.Duration(24 * time.Hour)
	maxOverlap    = 1000
	maxFailures   = 1000
)

// UnknownTemplate reports a template that is neither built in nor one of the tenant's own.
func UnknownTemplate(name string, own []string) error {
	names := slices.Clone(own)
	for _, t := range schedule.Templates() {
		names = append(names, t.Name)
	}
	slices.Sort(names)
	remedy := "use one of " + strings.Join(names[:min(len(names), 20)], ", ") + ", or a cron expression"
	if near, ok := suggest.Closest(name, names); ok {
		remedy = "did you mean " + near + "?"
	}
	return fault.Invalid("trigger.template", fmt.Sprintf("unknown template %.64q", name), remedy)
}

// ValidateName checks the name of a config.
func ValidateName(name string) error { return fault.CheckName(name, "acme-aws-cost") }

// ValidateNote checks the reason for a change.
func ValidateNote(field, note string) error {
	if len(note) > MaxNote || !utf8.ValidString(note) || strings.ContainsRune(note, 0) {
		return fault.Invalid(field, "is longer than 1000 bytes or not plain text", "use up to 1000 bytes of plain text")
	}
	return nil
}

// Validate checks a filled spec, except for the rules that depend on the pipeline, and returns its
// schedule.
func (s Spec) Validate() (*schedule.Schedule, error) {
	if s.Pipeline == "" || len(s.Pipeline) > 200 {
		return nil, fault.Invalid("pipeline", "must name a pipeline of the workspace", "list them with servo deployments get")
	}
	for _, check := range []func() error{s.checkLabels, s.checkParameters, s.checkNumbers, s.checkDependency, s.checkPolicies, s.checkPartitions} {
		if err := check(); err != nil {
			return nil, err
		}
	}
	sched, err := s.Schedule()
	if err != nil {
		return nil, err
	}
	if !sched.Timed() && s.DependsOn != nil {
		return nil, fault.Invalid("depends_on", "requires a trigger with slots", "use trigger {event: {config: …}} to run after another config")
	}
	return sched, nil
}

func (s Spec) checkLabels() error {
	if len(s.Labels) > MaxLabels {
		return fault.Invalid("labels", fmt.Sprintf("has %d labels, the limit is 32", len(s.Labels)), "remove some of them")
	}
	for key, value := range s.Labels {
		if key == "" || len(key) > maxLabel || len(value) > maxLabel || !plainText(key) || !plainText(value) {
			return fault.Invalid("labels", fmt.Sprintf("%.140q: %.140q is not a valid label", key, value), "use up to 128 bytes of text for each, such as provider: AWS")
		}
	}
	return nil
}

func plainText(text string) bool {
	return utf8.ValidString(text) && !strings.ContainsFunc(text, unicode.IsControl)
}

func (s Spec) checkParameters() error {
	if err := s.checkObject(); err != nil {
		return err
	}
	_, err := s.Example()
	return err
}

// checkObject refuses parameters that are not an object, or too large.
func (s Spec) checkObject() error {
	var object map[string]json.RawMessage
	if len(s.Parameters) > MaxParameters {
		return fault.Invalid("parameters", "is larger than 64 KiB", "pass a reference to large data")
	}
	if err := json.Unmarshal(s.Parameters, &object); err != nil || object == nil {
		return fault.Invalid("parameters", "is not a JSON object", `send an object such as {"account": "1234"}`)
	}
	return nil
}

// exampleSlot is the slot with which templates in parameters are validated.
var exampleSlot = time.Date(2026, 1, 31, 0, 0, 0, 0, time.UTC) //nolint:gochecknoglobals // a constant

func (s Spec) checkNumbers() error {
	if s.Priority < 1 || s.Priority > 10 {
		return fault.Invalid("priority", fmt.Sprintf("is %d, must be 1 to 10", s.Priority), "use 1 (last) to 10 (first)")
	}
	if s.MaxConsecutiveFailures < 1 || s.MaxConsecutiveFailures > maxFailures {
		return fault.Invalid("max_consecutive_failures", fmt.Sprintf("is %d, must be 1 to 1000", s.MaxConsecutiveFailures), "use 1 to 1000")
	}
	if s.MaxOverlap < 0 || s.MaxOverlap > maxOverlap || s.MaxOverlap > 0 && s.Overlap != OverlapAllow {
		return fault.Invalid("max_overlap", fmt.Sprintf("is %d, must be 1 to 1000 and needs overlap: allow", s.MaxOverlap), "use 1 to 1000 with overlap: allow, or leave it out")
	}
	if err := s.Alerts.check(); err != nil {
		return err
	}
	for _, d := range []struct {
		field    string
		value    asset.Duration
		min, max asset.Duration
	}{
		{"max_execution", s.MaxExecution, asset.Duration(time.Second), maxDuration},
		{"sla_start_delay", s.SLAStartDelay, asset.Duration(time.Second), maxDuration},
		{"jitter", s.Jitter, 0, maxJitter},
		{"catchup.window", s.Catchup.Window, 0, maxWindow},
	} {
		if d.value < d.min || d.value > d.max || d.value%asset.Duration(time.Second) != 0 {
			return fault.Invalid(d.field, fmt.Sprintf("is %s, must be %s to %s in whole seconds", d.value, d.min, d.max), "use a duration such as 90s or 1h30m")
		}
	}
	return s.Retry.Check("retry")
}

func (a *Alerts) check() error {
	if a == nil {
		return nil
	}
	if a.Failures < 0 || a.Failures > maxFailures {
		return fault.Invalid("alerts.failures", fmt.Sprintf("is %d, must be 1 to 1000", a.Failures), "use 1 to 1000")
	}
	if a.MediumFailures < 0 || a.MediumFailures > maxFailures {
		return fault.Invalid("alerts.medium_failures", fmt.Sprintf("is %d, must be 1 to 1000", a.MediumFailures), "use 1 to 1000")
	}
	if least := max(a.Failures, DefaultAlertFailures); a.MediumFailures > 0 && a.MediumFailures < least {
		return fault.Invalid("alerts.medium_failures", fmt.Sprintf("is %d, less than failures (%d)", a.MediumFailures, least), "use at least as many as failures")
	}
	return nil
}

func (s Spec) checkDependency() error {
	d := s.DependsOn
	if d == nil {
		return nil
	}
	if err := ValidateName(d.Config); err != nil {
		return fault.Invalid("depends_on.config", "must name a config of the workspace", "write {config: acme-aws-cost, within: 26h}")
	}
	if d.Within == 0 {
		return fault.Invalid("depends_on.within", "is missing", "set the age up to which a success counts, such as 26h")
	}
	if d.Within < asset.Duration(time.Second) || d.Within > maxWindow {
		return fault.Invalid("depends_on.within", "is "+d.Within.String()+", must be 1s to 9600h", "use a duration such as 26h")
	}
	if d.Wait < 0 || d.Wait > maxDuration {
		return fault.Invalid("depends_on.wait", "is "+d.Wait.String()+", must be 0s to 168h", "use a duration such as 2h")
	}
	return nil
}

func (s Spec) checkPolicies() error {
	overlaps := []Overlap{OverlapSkip, OverlapBufferOne, OverlapBufferAll, OverlapAllow, OverlapCancelRunning}
	if !slices.Contains(overlaps, s.Overlap) {
		return fault.Invalid("overlap", fmt.Sprintf("unknown overlap policy %.64q", string(s.Overlap)), "use skip, buffer_one, buffer_all, allow or cancel_running")
	}
	if !slices.Contains([]CatchupPolicy{CatchupLatest, CatchupAll, CatchupNone}, s.Catchup.Policy) {
		return fault.Invalid("catchup.policy", fmt.Sprintf("unknown catch-up policy %.64q", string(s.Catchup.Policy)), "use latest, all or none")
	}
	all := s.Catchup.Policy == CatchupAll
	if s.Catchup.MaxSlots < 0 || s.Catchup.MaxSlots > maxSlots || all != (s.Catchup.MaxSlots > 0) {
		return fault.Invalid("catchup.max_slots", fmt.Sprintf("is %d, must be 1 to 1000 and needs policy: all", s.Catchup.MaxSlots), "use 1 to 1000 with policy: all, or leave it out")
	}
	return nil
}
