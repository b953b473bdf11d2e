package checks

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"go.arco.dev/servo/internal/domain/quality"
)

// The tables of a custom_sql query: the checked files have one of these names, and each upstream the
// name of its key.
const (
	tableOutput = "output"
	tableInput  = "input"
)

// maxSQLRows is how many rows of a query are counted. A query that returns one row has failed.
const maxSQLRows = 1_000

// sqlTable is a table of a query: files with their columns.
type sqlTable struct {
	Files

	name string
}

// sqlQuery is one query, and the resources that it may use.
type sqlQuery struct {
	text   string
	tables []sqlTable
	dir    string // for temporary files
	memory int64
	limit  int // rows to return
}

// sqlRows are the rows that a query returned.
type sqlRows struct {
	columns []string
	rows    [][]any
}

// sql runs a custom_sql check, within its timeout.
func (p *pass) sql(ctx context.Context, run *running, columns []quality.Column, result *quality.Result) {
	if run.check.Timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, run.check.Timeout.Std())
		defer cancel()
	}
	start := p.Clock()
	found, err := p.query(ctx, run.check, columns) //nolint:staticcheck // builds without DuckDB always fail
	run.spent += p.Clock().Sub(start)
	switch {
	case errors.Is(ctx.Err(), context.DeadlineExceeded):
		result.Error = fmt.Sprintf("timed out after %s", run.check.Timeout)
		return
	case err != nil: //nolint:staticcheck // builds without DuckDB always fail
		result.Error = message(err)
		if kind, _, cut := strings.Cut(result.Error, ":"); cut && slices.Contains(quotingErrors, kind) && !p.showsSQL(run.check) {
			result.Error = kind + "; its text is not shown, because a table has sensitive columns"
		}
		return
	}
	result.Expected = "the query returns no rows"
	result.Actual = fmt.Sprintf("%d rows", len(found.rows))
	if len(found.rows) > maxSQLRows {
		result.Actual = fmt.Sprintf("more than %d rows", maxSQLRows)
	}
	if result.Passed = len(found.rows) == 0; !result.Passed && p.showsSQL(run.check) {
		result.Sample = found.sample()
	}
}

// quotingErrors are the errors of DuckDB that quote values of rows.
var quotingErrors = []string{"Conversion Error", "Invalid Input Error", "Out of Range Error", "Constraint Error", "Invalid Type Error", "Mismatch Type Error"}

// query runs the query of a check over the files, and the upstreams that it names.
func (p *pass) query(ctx context.Context, c quality.Check, columns []quality.Column) (sqlRows, error) { //nolint:staticcheck // builds without DuckDB always fail
	name := tableOutput
	if c.Phase == quality.Pre {
		name = tableInput
	}
	checked := p.Files
	checked.Schema = columns
	q := sqlQuery{text: c.SQL, tables: []sqlTable{{Files: checked, name: name}}, dir: p.Dir, memory: p.Memory, limit: maxSQLRows + 1}
	for _, key := range p.namedInputs(c) {
		files, err := p.References(key)
		if err != nil {
			return sqlRows{}, err
		}
		q.tables = append(q.tables, sqlTable{Files: files, name: key})
	}
	return runSQL(ctx, q)
}

// namedInputs are the upstreams whose keys a query contains.
func (p *pass) namedInputs(c quality.Check) []string {
	if p.References == nil {
		return nil
	}
	var named []string
	for _, key := range p.Inputs {
		if strings.Contains(c.SQL, `"`+key+`"`) && !slices.Contains(named, key) {
			named = append(named, key)
		}
	}
	return named
}

// showsSQL reports whether a result may show rows of a query. A query can rename columns, so none are
// shown if any of its tables has a sensitive column.
func (p *pass) showsSQL(c quality.Check) bool {
	if len(p.Sensitive.Sensitive) > 0 || len(p.Files.Sensitive) > 0 {
		return false
	}
	for _, key := range p.namedInputs(c) {
		if files, err := p.References(key); err != nil || len(files.Sensitive) > 0 {
			return false
		}
	}
	return true
}

// sample returns the first rows as JSON objects.
func (r sqlRows) sample() []json.RawMessage {
	var sample []json.RawMessage
	for i, row := range r.rows[:min(len(r.rows), quality.MaxSample)] {
		values := map[string]any{}
		for c, name := range r.columns {
			values[name] = shownValue(row[c])
		}
		if fields, err := json.Marshal(map[string]any{"row": i + 1, "values": values}); err == nil {
			sample = append(sample, fields)
		}
	}
	return sample
}

// shownValue is a value of a query for people: numbers and booleans as they are, others as short texts.
func shownValue(v any) any {
	switch v := v.(type) {
	case nil, bool, int8, int16, int32, int64, uint8, uint16, uint32, uint64:
		return v
	case []byte:
		return shownText(string(v))
	}
	return shownText(fmt.Sprint(v))
}

func shownText(text string) string {
	if !utf8.ValidString(text) {
		return fmt.Sprintf("%d bytes", len(text))
	}
	if len(text) > quality.MaxSampleValue {
		return strings.ToValidUTF8(text[:quality.MaxSampleValue], "") + "…"
	}
	return text
}
