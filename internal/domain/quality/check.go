package quality

import (
	"encoding/json"
	"strings"
	"time"

	"go.arco.dev/servo/internal/base/duration"
)

// Check is one declared condition on the rows of an output, or of an input if its phase is PRE.
// Which fields may be set depends on the type.
type Check struct {
	Name     string            `json:"name,omitempty"`
	Type     Type              `json:"type"`
	Phase    Phase             `json:"phase,omitempty"`
	Severity Severity          `json:"severity,omitempty"`
	Timeout  duration.Duration `json:"timeout,omitzero"`
	Input    string            `json:"input,omitempty"` // of phase PRE: the upstream to check

	Column     string            `json:"column,omitempty"`
	Columns    []string          `json:"columns,omitempty"`
	Min        json.RawMessage   `json:"min,omitempty"` // a number; for range also a text that orders like the column
	Max        json.RawMessage   `json:"max,omitempty"`
	MinRatio   float64           `json:"min_ratio,omitempty"` // rows in relation to the version before
	MaxAge     duration.Duration `json:"max_age,omitzero"`
	Schema     []Column          `json:"schema,omitempty"`
	AllowExtra bool              `json:"allow_extra,omitempty"`
	Values     []json.RawMessage `json:"values,omitempty"` // scalars
	Pattern    string            `json:"pattern,omitempty"`
	References *Reference        `json:"references,omitempty"`
	SQL        string            `json:"sql,omitempty"`
	Function   string            `json:"function,omitempty"`
}

// Reference names a column of the promoted version of another asset.
type Reference struct {
	Asset  string `json:"asset"`
	Column string `json:"column"`
}

// Type is the kind of a check.
type Type string

// The types of checks.
const (
	RowCount       Type = "row_count"
	NotNull        Type = "not_null"
	Unique         Type = "unique"
	Freshness      Type = "freshness"
	SchemaMatch    Type = "schema"
	Range          Type = "range"
	AcceptedValues Type = "accepted_values"
	Regex          Type = "regex"
	Referential    Type = "referential"
	CustomSQL      Type = "custom_sql"
	Custom         Type = "custom"
)

// Types are all types of checks.
var Types = []Type{RowCount, NotNull, Unique, Freshness, SchemaMatch, Range, AcceptedValues, Regex, Referential, CustomSQL, Custom}

// Phase is when a check runs: on the inputs before the asset's code, or on its output after it.
type Phase string

// The phases.
const (
	Pre  Phase = "PRE"
	Post Phase = "POST"
)

// Severity is what a failed check means for the gate.
type Severity string

// The severities, in ascending order.
const (
	Info     Severity = "INFO"
	Warning  Severity = "WARNING"
	Error    Severity = "ERROR"
	Critical Severity = "CRITICAL"
)

// Severities are all severities, in ascending order.
var Severities = []Severity{Info, Warning, Error, Critical}

// DefaultTimeout is the time limit of a check that declares none.
const DefaultTimeout = duration.Duration(5 * time.Minute)

// Normalise fills in defaults: a check without severity is critical, so that a declared check stops
// bad data unless the author weakens it.
func (c *Check) Normalise() {
	if c.Phase == "" {
		c.Phase = Post
	}
	if c.Severity == "" {
		c.Severity = Critical
	}
	if c.Timeout == 0 {
		c.Timeout = DefaultTimeout
	}
	c.Name = c.DisplayName()
	if c.Type == Custom && c.Function == "" {
		c.Function = c.Name
	}
}

// DisplayName is the declared name, or one made from type and columns, such as unique(order_id).
func (c Check) DisplayName() string {
	if c.Name != "" {
		return c.Name
	}
	name := string(c.Type)
	if columns := c.CheckedColumns(); len(columns) > 0 {
		name += "(" + strings.Join(columns, ",") + ")"
	}
	if c.Phase == Pre {
		name = "PRE " + name
		if c.Input != "" {
			name += " of " + c.Input
		}
	}
	return name
}

// CheckedColumns are the columns that the check reads.
func (c Check) CheckedColumns() []string {
	if c.Column != "" {
		return []string{c.Column}
	}
	return c.Columns
}

// NeedsRows reports whether the check reads the rows of the output, as opposed to its schema.
func (c Check) NeedsRows() bool { return c.Type != SchemaMatch && c.Type != Custom }
