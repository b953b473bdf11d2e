package quality

import (
	"encoding/json"
	"fmt"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"go.arco.dev/servo/internal/base/duration"
)

// The limits of declarations.
const (
	MaxChecks        = 100
	MaxColumns       = 2_000
	MaxCheckColumns  = 32
	MaxColumnName    = 200
	MaxName          = 200
	MaxValues        = 1_000
	MaxPattern       = 1_000
	MaxSQL           = 16_384
	MaxRetain        = 1_000
	MaxSensitive     = 200
	MinTimeout       = duration.Duration(time.Second)
	MaxTimeout       = duration.Duration(time.Hour)
	MinAge           = duration.Duration(time.Second)
	MaxAge           = duration.Duration(10 * 365 * 24 * time.Hour)
	MaxRatio         = 1_000
	maxFunctionName  = 200
	maxSafeWholeReal = 1<<53 - 1
)

var functionPattern = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9_./()-]*$`)

// Report receives one violation: a field below the asset, the error and the remedy.
type Report func(field, message, remedy string)

// Declaration is everything of an asset that the rules of outputs need.
type Declaration struct {
	Output     *Output
	Checks     []Check
	Quarantine bool
	Upstream   []string
	// Functions reports whether the asset's code can have check functions of its own.
	Functions bool
	// Files reports whether the asset's code can write files of an output.
	Files bool
}

// Validate reports every violation of a declaration.
func (d Declaration) Validate(report Report) {
	if d.Output != nil {
		d.Output.validate(report)
		if !d.Files {
			report("output", "is set, but this kind of code cannot write files", "use exec, go or python, or remove it")
		}
	} else if len(d.Checks) > 0 && !d.Files {
		report("checks", "are set, but this kind of code has no files to check", "use exec, go or python, or remove them")
	}
	switch {
	case d.Quarantine && d.Output == nil:
		report("quarantine", "is set, but the asset has no output", "declare output, or remove it")
	case d.Quarantine && !slices.ContainsFunc(d.Checks, func(c Check) bool { return c.Severity == Critical || c.Severity == "" }):
		report("quarantine", "is set, but no check is CRITICAL", "give a check severity CRITICAL, or remove it")
	case d.Quarantine:
		report("quarantine", "is not supported by this version", "remove it: a failed CRITICAL check fails the task")
	}
	if len(d.Checks) > MaxChecks {
		report("checks", fmt.Sprintf("has %d entries, the limit is %d", len(d.Checks), MaxChecks), "use fewer checks")
		return
	}
	names := map[string]int{}
	for i, c := range d.Checks {
		path := "checks[" + strconv.Itoa(i) + "]"
		below := func(field, message, remedy string) {
			if field != "" {
				field = "." + field
			}
			report(path+field, message, remedy)
		}
		d.validateCheck(c, below)
		name := c.DisplayName()
		if first, twice := names[name]; twice {
			below("name", fmt.Sprintf("duplicate name %q, first used by checks[%d]", name, first), "set a different name")
			continue
		}
		names[name] = i
	}
}

func (o Output) validate(report Report) {
	if !slices.Contains(Formats, o.Format) {
		report("output.format", fmt.Sprintf("%q is not a format", clip(string(o.Format))), "choose one of "+list(Formats))
	}
	if o.Retain != 0 && (o.Retain < 1 || o.Retain > MaxRetain) {
		report("output.retain", fmt.Sprintf("is %d, must be 1 to %d", o.Retain, MaxRetain), "choose a number in the range")
	}
	if o.Format == Files && len(o.Schema) > 0 {
		report("output.schema", "is set, but format files has no columns", "remove it, or choose a format with rows")
	}
	validateColumns(o.Schema, "output.schema", report)
	if len(o.Sensitive) > MaxSensitive {
		report("output.sensitive", fmt.Sprintf("has %d entries, the limit is %d", len(o.Sensitive), MaxSensitive), "list fewer columns")
	}
	validateNames(o.Sensitive, "output.sensitive", report)
}

func validateColumns(columns []Column, path string, report Report) {
	if len(columns) > MaxColumns {
		report(path, fmt.Sprintf("has %d columns, the limit is %d", len(columns), MaxColumns), "list fewer columns")
		return
	}
	seen := make(map[string]bool, len(columns))
	for i, c := range columns {
		at := path + "[" + strconv.Itoa(i) + "]"
		validateName(c.Name, at+".name", report)
		if seen[c.Name] {
			report(at+".name", fmt.Sprintf("column %q is listed twice", clip(c.Name)), "remove one of them")
		}
		seen[c.Name] = true
		if !slices.Contains(ColumnTypes, c.Type) {
			report(at+".type", fmt.Sprintf("%q is not a column type", clip(string(c.Type))), "choose one of "+list(ColumnTypes))
		}
	}
}

func validateNames(names []string, path string, report Report) {
	for i, name := range names {
		at := path + "[" + strconv.Itoa(i) + "]"
		validateName(name, at, report)
		if slices.Contains(names[:i], name) {
			report(at, fmt.Sprintf("column %q is listed twice", clip(name)), "remove it")
		}
	}
}

func validateName(name, field string, report Report) {
	switch {
	case name == "":
		report(field, "is missing", "name a column")
	case len(name) > MaxColumnName:
		report(field, fmt.Sprintf("has %d bytes, the limit is %d", len(name), MaxColumnName), "shorten it")
	case !utf8.ValidString(name) || strings.ContainsRune(name, 0):
		report(field, "is not valid text", "write UTF-8 without NUL characters")
	}
}

// fieldsOf lists the fields that each type of check uses, besides name, type, phase, severity,
// timeout and input.
var fieldsOf = map[Type][]string{
	RowCount:       {"min", "max", "min_ratio"},
	NotNull:        {"columns"},
	Unique:         {"columns"},
	Freshness:      {"column", "max_age"},
	SchemaMatch:    {"schema", "allow_extra"},
	Range:          {"column", "min", "max"},
	AcceptedValues: {"column", "values"},
	Regex:          {"column", "pattern"},
	Referential:    {"column", "references"},
	CustomSQL:      {"sql"},
	Custom:         {"function"},
}

// set returns which type-specific fields of a check have a value.
func (c Check) set() []string {
	var set []string
	for _, f := range []struct {
		name string
		set  bool
	}{
		{"column", c.Column != ""},
		{"columns", len(c.Columns) > 0},
		{"min", c.Min != nil},
		{"max", c.Max != nil},
		{"min_ratio", c.MinRatio != 0},
		{"max_age", c.MaxAge != 0},
		{"schema", c.Schema != nil},
		{"allow_extra", c.AllowExtra},
		{"values", c.Values != nil},
		{"pattern", c.Pattern != ""},
		{"references", c.References != nil},
		{"sql", c.SQL != ""},
		{"function", c.Function != ""},
	} {
		if f.set {
			set = append(set, f.name)
		}
	}
	return set
}

func (d Declaration) validateCheck(c Check, report Report) {
	known, ok := fieldsOf[c.Type]
	if !ok {
		report("type", fmt.Sprintf("%q is not a type of check", clip(string(c.Type))), "choose one of "+list(Types))
		return
	}
	for _, field := range c.set() {
		if !slices.Contains(known, field) {
			report(field, "is not a field of "+string(c.Type), "remove it; its fields are "+strings.Join(known, ", "))
		}
	}
	if c.Severity != "" && !slices.Contains(Severities, c.Severity) {
		report("severity", fmt.Sprintf("%q is not a severity", clip(string(c.Severity))), "choose one of "+list(Severities))
	}
	if c.Timeout != 0 && (c.Timeout < MinTimeout || c.Timeout > MaxTimeout) {
		report("timeout", fmt.Sprintf("is %s, must be %s to %s", c.Timeout, MinTimeout, MaxTimeout), "choose a value in the range")
	}
	if name := c.DisplayName(); len(name) > MaxName {
		report("name", fmt.Sprintf("has %d bytes, the limit is %d", len(name), MaxName), "set a shorter name")
	} else if !utf8.ValidString(name) || strings.ContainsFunc(name, func(r rune) bool { return r < ' ' || r == 0x7f }) {
		report("name", "contains a control character or is not UTF-8", "set a plain name")
	}
	d.validatePhase(c, report)
	c.validateType(report)
	if r := c.References; c.Type == Referential && r != nil && r.Asset != "" && !slices.Contains(d.Upstream, r.Asset) {
		report("references.asset", fmt.Sprintf("%q is not an upstream of the asset", clip(r.Asset)), "add it to upstream, so that its version is resolved with the other inputs")
	}
	if c.MinRatio != 0 && c.Type == RowCount && c.Phase != Pre {
		report("min_ratio", "is not supported by this version", "set min or max")
	}
	if c.Type == Custom && !d.Functions {
		report("type", "a custom check needs a function of the asset's code, and this kind of code has none", "use another type of check, or implement the asset in Go or Python")
	}
}

func (d Declaration) validatePhase(c Check, report Report) {
	switch c.Phase {
	case Pre:
		switch {
		case c.Input == "" && len(d.Upstream) != 1:
			report("input", "is missing", "name the upstream that the check reads")
		case c.Input != "" && !slices.Contains(d.Upstream, c.Input):
			report("input", fmt.Sprintf("%q is not an upstream of the asset", clip(c.Input)), "name one of its upstreams")
		}
		if c.MinRatio != 0 {
			report("min_ratio", "compares an output with its version before, and the phase is PRE", "remove it, or use phase POST")
		}
	case "", Post:
		if c.Input != "" {
			report("input", "is set, but the check reads the output", "add phase: PRE, or remove it")
		}
		switch {
		case d.Output == nil:
			report("", "checks the output, and the asset has none", "declare output, or use phase PRE")
		case d.Output != nil && !d.Output.Format.HasRows() && c.Type != Custom:
			report("", "reads rows, and format files has none", "choose a format with rows, or use a custom check")
		}
	default:
		report("phase", fmt.Sprintf("%q is not a phase", clip(string(c.Phase))), "choose PRE or POST")
	}
}

func (c Check) validateType(report Report) {
	switch c.Type {
	case RowCount:
		c.validateRowCount(report)
	case NotNull, Unique:
		if len(c.Columns) == 0 {
			report("columns", "is missing", "list at least one column")
		}
		if len(c.Columns) > MaxCheckColumns {
			report("columns", fmt.Sprintf("has %d entries, the limit is %d", len(c.Columns), MaxCheckColumns), "list fewer columns, or use several checks")
		}
		validateNames(c.Columns, "columns", report)
	case Freshness:
		validateName(c.Column, "column", report)
		if c.MaxAge < MinAge || c.MaxAge > MaxAge {
			report("max_age", fmt.Sprintf("is %s, must be %s to %s", c.MaxAge, MinAge, MaxAge), "choose a value in the range")
		}
	case SchemaMatch:
		validateColumns(c.Schema, "schema", report)
	case Range:
		c.validateRange(report)
	case AcceptedValues:
		c.validateValues(report)
	case Regex:
		validateName(c.Column, "column", report)
		if c.Pattern == "" || len(c.Pattern) > MaxPattern {
			report("pattern", fmt.Sprintf("has %d bytes, must have 1 to %d", len(c.Pattern), MaxPattern), "write a regular expression in RE2 syntax")
		} else if _, err := regexp.Compile(c.Pattern); err != nil {
			report("pattern", clip(err.Error()), "write a regular expression in RE2 syntax")
		}
	case Referential:
		validateName(c.Column, "column", report)
		if c.References == nil || c.References.Asset == "" {
			report("references.asset", "is missing", "name the asset whose column has the permitted values")
			return
		}
		validateName(c.References.Column, "references.column", report)
	case CustomSQL:
		if strings.TrimSpace(c.SQL) == "" || len(c.SQL) > MaxSQL {
			report("sql", fmt.Sprintf("has %d bytes, must have 1 to %d", len(c.SQL), MaxSQL), "write a query that returns the offending rows")
		}
	case Custom:
		if c.Function != "" && (len(c.Function) > maxFunctionName || !functionPattern.MatchString(c.Function)) {
			report("function", fmt.Sprintf("%q is not a function name", clip(c.Function)), "use letters, digits, '_', '-', '.' and '/'")
		}
	}
}

func (c Check) validateRowCount(report Report) {
	low, lowOK := wholeNumber(c.Min)
	high, highOK := wholeNumber(c.Max)
	if c.Min != nil && !lowOK {
		report("min", "must be a whole number of rows, 0 or more", "write a number such as 1")
	}
	if c.Max != nil && !highOK {
		report("max", "must be a whole number of rows, 0 or more", "write a number such as 1000")
	}
	if lowOK && highOK && low > high {
		report("max", fmt.Sprintf("is %d, less than min %d", high, low), "raise it or lower min")
	}
	if c.MinRatio < 0 || c.MinRatio > MaxRatio || math.IsNaN(c.MinRatio) {
		report("min_ratio", fmt.Sprintf("is %v, must be above 0 and at most %d", c.MinRatio, MaxRatio), "write a share such as 0.5")
	}
	if c.Min == nil && c.Max == nil && c.MinRatio == 0 {
		report("min", "no bound is set", "set min, max or min_ratio")
	}
}

func (c Check) validateRange(report Report) {
	validateName(c.Column, "column", report)
	if c.Min == nil && c.Max == nil {
		report("min", "no bound is set", "set min, max or both")
		return
	}
	low, lowOK := bound(c.Min)
	high, highOK := bound(c.Max)
	if c.Min != nil && !lowOK {
		report("min", "must be a number or a text", "write a number, or a date such as \"2026-01-31\"")
	}
	if c.Max != nil && !highOK {
		report("max", "must be a number or a text", "write a number, or a date such as \"2026-01-31\"")
	}
	if !lowOK || !highOK {
		return
	}
	lowNumber, a := low.(float64)
	highNumber, b := high.(float64)
	switch {
	case a != b:
		report("max", "min and max have different types", "write both as numbers, or both as texts")
	case a && lowNumber > highNumber:
		report("max", fmt.Sprintf("is %v, less than min %v", high, low), "raise it or lower min")
	}
}

func (c Check) validateValues(report Report) {
	validateName(c.Column, "column", report)
	if len(c.Values) == 0 || len(c.Values) > MaxValues {
		report("values", fmt.Sprintf("has %d entries, must have 1 to %d", len(c.Values), MaxValues), "list the permitted values")
		return
	}
	for i, raw := range c.Values {
		var value any
		at := "values[" + strconv.Itoa(i) + "]"
		if err := json.Unmarshal(raw, &value); err != nil {
			report(at, "is not JSON", "write a text, a number or a boolean")
			continue
		}
		switch value.(type) {
		case string, float64, bool:
		default:
			report(at, "is not a scalar", "write a text, a number or a boolean")
		}
	}
}

// wholeNumber decodes a number of rows.
func wholeNumber(raw json.RawMessage) (int64, bool) {
	if raw == nil {
		return 0, false
	}
	var f float64
	if err := json.Unmarshal(raw, &f); err != nil || f < 0 || f != math.Trunc(f) || f > maxSafeWholeReal {
		return 0, false
	}
	return int64(f), true
}

// bound decodes one end of a range: a float64 or a string.
func bound(raw json.RawMessage) (any, bool) {
	if raw == nil {
		return nil, false
	}
	var value any
	if err := json.Unmarshal(raw, &value); err != nil {
		return nil, false
	}
	switch value.(type) {
	case float64, string:
		return value, true
	}
	return nil, false
}

// Rows returns the bounds of a row_count check; nil if one is not set.
func (c Check) Rows() (low, high *int64) {
	if n, ok := wholeNumber(c.Min); ok {
		low = &n
	}
	if n, ok := wholeNumber(c.Max); ok {
		high = &n
	}
	return low, high
}

// Bounds returns the ends of a range check: float64, string or nil.
func (c Check) Bounds() (low, high any) {
	low, _ = bound(c.Min)
	high, _ = bound(c.Max)
	return low, high
}

func list[T ~string](values []T) string {
	texts := make([]string, len(values))
	for i, v := range values {
		texts[i] = string(v)
	}
	return strings.Join(texts, ", ")
}

// clip shortens a user's text for a message.
func clip(text string) string {
	const longest = 80
	if len(text) > longest {
		return strings.ToValidUTF8(text[:longest], "") + "…"
	}
	return text
}
