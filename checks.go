package servo

import (
	"context"
	"encoding/json"
	"time"

	"go.arco.dev/servo/internal/base/duration"
	"go.arco.dev/servo/internal/domain/asset"
	"go.arco.dev/servo/internal/domain/quality"
)

// Check is a condition on the rows of an output, or of an input. The constructors below return checks
// that are critical: a failure fails the task, and nothing is committed.
type Check struct {
	check    quality.Check
	function func(ctx context.Context, task *Task) error
}

// Checks declares the checks of an asset.
func Checks(checks ...Check) AssetOption {
	return func(w *Worker, a *asset.Asset) {
		for _, c := range checks {
			if c.function != nil {
				c.check.Function = a.Key + "/" + c.check.Name
				w.addCheck(c.check.Function, c.function)
			}
			a.Checks = append(a.Checks, c.check)
		}
	}
}

// The severities of checks.
const (
	Info     = string(quality.Info)
	Warning  = string(quality.Warning)
	Severe   = string(quality.Error) // the run is flagged
	Critical = string(quality.Critical)
)

// Severity returns the check with another severity.
func (c Check) Severity(severity string) Check {
	c.check.Severity = quality.Severity(severity)
	return c
}

// Named returns the check with a name.
func (c Check) Named(name string) Check {
	c.check.Name = name
	return c
}

// Within returns the check with a time limit; default 5 minutes.
func (c Check) Within(d time.Duration) Check {
	c.check.Timeout = duration.Duration(d)
	return c
}

// OfInput returns the check over an upstream's output, before the function is called. If it is
// critical and fails, the function is not called.
func (c Check) OfInput(upstream string) Check {
	c.check.Phase, c.check.Input = quality.Pre, upstream
	return c
}

// MinRows requires a number of rows.
func MinRows(n int64) Check {
	return Check{check: quality.Check{Type: quality.RowCount, Min: encoded(n)}}
}

// RowsBetween requires a number of rows in a range.
func RowsBetween(low, high int64) Check {
	return Check{check: quality.Check{Type: quality.RowCount, Min: encoded(low), Max: encoded(high)}}
}

// NotNull requires that no value of the columns is null.
func NotNull(columns ...string) Check {
	return Check{check: quality.Check{Type: quality.NotNull, Columns: columns}}
}

// Unique requires that no combination of values occurs twice.
func Unique(columns ...string) Check {
	return Check{check: quality.Check{Type: quality.Unique, Columns: columns}}
}

// Fresh requires that the newest timestamp of a column is not older.
func Fresh(column string, maxAge time.Duration) Check {
	return Check{check: quality.Check{Type: quality.Freshness, Column: column, MaxAge: duration.Duration(maxAge)}}
}

// Between requires that the values of a column are in a range: numbers, or texts such as dates. A nil
// bound is open.
func Between(column string, low, high any) Check {
	return Check{check: quality.Check{Type: quality.Range, Column: column, Min: encoded(low), Max: encoded(high)}}
}

// OneOf requires that the values of a column are in a list.
func OneOf(column string, values ...any) Check {
	c := quality.Check{Type: quality.AcceptedValues, Column: column}
	for _, value := range values {
		c.Values = append(c.Values, encoded(value))
	}
	return Check{check: c}
}

// Matches requires that the values of a column match a regular expression (RE2).
func Matches(column, pattern string) Check {
	return Check{check: quality.Check{Type: quality.Regex, Column: column, Pattern: pattern}}
}

// ExistsIn requires that the values of a column exist in a column of an upstream.
func ExistsIn(column, upstream, upstreamColumn string) Check {
	return Check{check: quality.Check{Type: quality.Referential, Column: column, References: &quality.Reference{Asset: upstream, Column: upstreamColumn}}}
}

// NoRows requires that a query over the tables output and the upstreams (by their keys) returns no
// rows. Only workers that are built with DuckDB run it.
func NoRows(name, sql string) Check {
	return Check{check: quality.Check{Type: quality.CustomSQL, Name: name, SQL: sql}}
}

// CheckedBy calls a function after the asset's, with the output's files in [Task.OutputDir]. An error
// fails the check.
func CheckedBy(name string, function func(ctx context.Context, task *Task) error) Check {
	return Check{check: quality.Check{Type: quality.Custom, Name: name}, function: function}
}

// encoded is a bound or a value as JSON. A value that has none is refused with the manifest.
func encoded(value any) json.RawMessage {
	if value == nil {
		return nil
	}
	data, err := json.Marshal(value)
	if err != nil {
		return json.RawMessage(`{}`)
	}
	return data
}
