package quality

import (
	"encoding/json"
	"fmt"
	"time"
)

// Result is what one check found.
type Result struct {
	Name     string   `json:"name"`
	Type     Type     `json:"type"`
	Phase    Phase    `json:"phase"`
	Severity Severity `json:"severity"`
	Passed   bool     `json:"passed"`
	// Skipped is set if the check did not run because a critical one had failed before.
	Skipped  bool   `json:"skipped,omitempty"`
	Actual   string `json:"actual,omitempty"`
	Expected string `json:"expected,omitempty"`
	Error    string `json:"error,omitempty"` // why the check could not be completed
	// Sample are offending rows as JSON objects, at most MaxSample, without sensitive columns.
	Sample   []json.RawMessage `json:"sample,omitempty"`
	Duration time.Duration     `json:"duration,omitempty"`
}

// The limits of results.
const (
	MaxSample      = 20
	MaxSampleValue = 256 // bytes of one text in a sample
	MaxText        = 1_000
)

// Failed reports whether the check ran and did not pass. A check that could not be completed counts
// as failed.
func (r Result) Failed() bool { return !r.Passed && !r.Skipped }

// Explain describes the failure for people: what the check found, and what it expected.
func (r Result) Explain() string {
	message := fmt.Sprintf("check %q failed", r.Name)
	switch {
	case r.Error != "":
		message += ": " + r.Error
	case r.Expected != "":
		message += fmt.Sprintf(": %s; expected %s", r.Actual, r.Expected)
	case r.Actual != "":
		message += ": " + r.Actual
	}
	return message
}

// Of returns the result of a check without a verdict.
func Of(c Check) Result {
	return Result{Name: c.DisplayName(), Type: c.Type, Phase: c.Phase, Severity: c.Severity}
}
