package checks

import (
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"go.arco.dev/servo/internal/data/rows"
	"go.arco.dev/servo/internal/domain/quality"
)

// evaluator returns the state of a check.
func (p *pass) evaluator(c quality.Check, budget int64) (evaluator, error) {
	at := p.index(c.CheckedColumns())
	switch c.Type {
	case quality.RowCount:
		return &rowCount{check: c}, nil
	case quality.NotNull:
		return &notNull{at: at}, nil
	case quality.Unique:
		return &unique{at: at, spool: newSpool(p.Dir, budget)}, nil
	case quality.Freshness:
		return &freshness{at: at[0], check: c}, nil
	case quality.SchemaMatch:
		return p.newSchemaMatch(c), nil
	case quality.Range:
		e := newRange(c, at[0])
		e.hidden = p.isSensitive(c.Column)
		return e, nil
	case quality.AcceptedValues:
		return newAccepted(c, at[0])
	case quality.Regex:
		pattern, err := regexp.Compile(c.Pattern)
		if err != nil {
			return nil, err
		}
		return &matching{at: at[0], pattern: pattern, seen: map[string]bool{}}, nil
	case quality.Referential:
		return p.newReferential(c, at[0], budget)
	case quality.CustomSQL, quality.Custom:
		return nil, nil // after the pass
	}
	return nil, fmt.Errorf("unknown type of check %q", c.Type)
}

// counter counts violations, for the text of results.
type counter struct{ bad, all int64 }

func (c counter) verdict(expected string) (bool, string, string, error) {
	return c.bad == 0, fmt.Sprintf("%d of %d rows violate it", c.bad, c.all), expected, nil
}

type rowCount struct {
	check quality.Check
}

func (*rowCount) observe(*rows.Batch, func(int)) error { return nil }

func (e *rowCount) verdict(p *pass) (bool, string, string, error) {
	low, high := e.check.Rows()
	var expected []string
	passed := true
	if low != nil {
		expected = append(expected, fmt.Sprintf("at least %d", *low))
		passed = passed && p.rows >= *low
	}
	if high != nil {
		expected = append(expected, fmt.Sprintf("at most %d", *high))
		passed = passed && p.rows <= *high
	}
	if e.check.MinRatio > 0 && p.PreviousRows != nil {
		expected = append(expected, fmt.Sprintf("at least %v times the %d rows of the version before", e.check.MinRatio, *p.PreviousRows))
		passed = passed && float64(p.rows) >= e.check.MinRatio*float64(*p.PreviousRows)
	}
	return passed, strconv.FormatInt(p.rows, 10), strings.Join(expected, ", "), nil
}

type notNull struct {
	counter

	at []int
}

func (e *notNull) observe(b *rows.Batch, offend func(int)) error {
	e.all += int64(b.N)
	for i := range b.N {
		for _, c := range e.at {
			if b.Cols[c][i].Kind == rows.Null {
				e.bad++
				offend(i)
				break
			}
		}
	}
	return nil
}

func (e *notNull) verdict(*pass) (bool, string, string, error) {
	return e.counter.verdict("no null")
}

type freshness struct {
	check  quality.Check
	at     int
	newest time.Time
}

func (e *freshness) observe(b *rows.Batch, _ func(int)) error {
	for i := range b.N {
		v := b.Cols[e.at][i]
		if v.Kind == rows.Null {
			continue
		}
		at, ok := v.Instant()
		if !ok {
			return fmt.Errorf("column %q has values that are no timestamps", e.check.Column)
		}
		if at.After(e.newest) {
			e.newest = at
		}
	}
	return nil
}

func (e *freshness) verdict(p *pass) (bool, string, string, error) {
	expected := fmt.Sprintf("not older than %s", e.check.MaxAge)
	if e.newest.IsZero() {
		return false, "no timestamp", expected, nil
	}
	age := p.Now.Sub(e.newest)
	return age <= e.check.MaxAge.Std(), fmt.Sprintf("newest is %s, %s old", e.newest.Format(time.RFC3339), age.Round(time.Second)), expected, nil
}

type inRange struct {
	counter

	at                int
	hidden            bool // errors do not quote values
	low, high         *float64
	lowText, highText *string
	lowTime, highTime *time.Time
	expected          string
}

func newRange(c quality.Check, at int) *inRange {
	low, high := c.Bounds()
	e := &inRange{at: at, expected: fmt.Sprintf("from %s to %s", boundText(c.Min), boundText(c.Max))}
	set := func(bound any, number **float64, text **string, instant **time.Time) {
		switch v := bound.(type) {
		case float64:
			*number = &v
		case string:
			*text = &v
			if t, ok := rows.ParseTime(v); ok {
				*instant = &t
			}
		}
	}
	set(low, &e.low, &e.lowText, &e.lowTime)
	set(high, &e.high, &e.highText, &e.highTime)
	return e
}

func boundText(raw json.RawMessage) string {
	if raw == nil {
		return "any"
	}
	return string(raw)
}

func (e *inRange) observe(b *rows.Batch, offend func(int)) error {
	e.all += int64(b.N)
	for i := range b.N {
		v := b.Cols[e.at][i]
		if v.Kind == rows.Null {
			continue
		}
		ok, err := e.contains(v)
		if err != nil {
			return err
		}
		if !ok {
			e.bad++
			offend(i)
		}
	}
	return nil
}

// contains compares a value with the bounds as numbers, times or texts, by what both are.
func (e *inRange) contains(v rows.Value) (bool, error) {
	if e.low != nil || e.high != nil {
		n, ok := v.Number()
		if !ok && v.Kind == rows.Text {
			f, err := strconv.ParseFloat(string(v.Text), 64)
			n, ok = f, err == nil
		}
		if !ok && e.hidden {
			return false, fmt.Errorf("a value is not a number")
		}
		if !ok {
			return false, fmt.Errorf("value %q is not a number", clip(v.String()))
		}
		return (e.low == nil || n >= *e.low) && (e.high == nil || n <= *e.high), nil // NaN is outside
	}
	if v.Kind == rows.Date || v.Kind == rows.Time {
		at, _ := v.Instant()
		if e.lowText != nil && e.lowTime == nil || e.highText != nil && e.highTime == nil {
			return false, fmt.Errorf("a bound is not a time, and the column has times")
		}
		return (e.lowTime == nil || !at.Before(*e.lowTime)) && (e.highTime == nil || !at.After(*e.highTime)), nil
	}
	text := v.String()
	return (e.lowText == nil || text >= *e.lowText) && (e.highText == nil || text <= *e.highText), nil
}

func (e *inRange) verdict(*pass) (bool, string, string, error) {
	return e.counter.verdict(e.expected)
}

type accepted struct {
	counter

	at       int
	values   map[string]bool // by key of the value
	texts    map[string]bool // by text, for columns without types
	key      []byte
	expected string
}

func newAccepted(c quality.Check, at int) (*accepted, error) {
	e := &accepted{at: at, values: map[string]bool{}, texts: map[string]bool{}}
	var shown []string
	for _, raw := range c.Values {
		var value any
		if err := json.Unmarshal(raw, &value); err != nil {
			return nil, err
		}
		var v rows.Value
		switch value := value.(type) {
		case string:
			v = rows.Value{Kind: rows.Text, Text: []byte(value)}
		case float64:
			v = rows.Value{Kind: rows.Float, Float: value}
		case bool:
			v = rows.Value{Kind: rows.Bool}
			if value {
				v.Int = 1
			}
		}
		e.values[string(v.AppendKey(nil))] = true
		e.texts[v.String()] = true
		shown = append(shown, string(raw))
	}
	e.expected = "one of " + strings.Join(shown, ", ")
	return e, nil
}

func (e *accepted) observe(b *rows.Batch, offend func(int)) error {
	e.all += int64(b.N)
	for i := range b.N {
		v := b.Cols[e.at][i]
		switch v.Kind {
		case rows.Null:
			continue
		case rows.Text, rows.Nested, rows.Bytes:
			if e.texts[string(v.Text)] {
				continue
			}
		case rows.Date, rows.Time:
			if e.texts[v.String()] {
				continue
			}
		default:
			if e.key = v.AppendKey(e.key[:0]); e.values[string(e.key)] {
				continue
			}
		}
		e.bad++
		offend(i)
	}
	return nil
}

func (e *accepted) verdict(*pass) (bool, string, string, error) {
	return e.counter.verdict(e.expected)
}

// maxSeen bounds the cache of matched texts. Columns with few distinct values match each once.
const maxSeen = 10_000

type matching struct {
	counter

	at      int
	pattern *regexp.Regexp
	seen    map[string]bool
}

func (e *matching) observe(b *rows.Batch, offend func(int)) error {
	e.all += int64(b.N)
	for i := range b.N {
		v := b.Cols[e.at][i]
		if v.Kind == rows.Null {
			continue
		}
		text := v.Text
		if v.Kind != rows.Text {
			text = []byte(v.String())
		}
		ok, known := e.seen[string(text)]
		if !known {
			ok = e.pattern.Match(text)
			if len(e.seen) < maxSeen {
				e.seen[string(text)] = ok
			}
		}
		if !ok {
			e.bad++
			offend(i)
		}
	}
	return nil
}

func (e *matching) verdict(*pass) (bool, string, string, error) {
	return e.counter.verdict("matches " + e.pattern.String())
}

// expectedColumns are those of a schema check: its own, or those of the output.
func expectedColumns(c quality.Check, declared []quality.Column) []quality.Column {
	if len(c.Schema) > 0 {
		return c.Schema
	}
	return declared
}

// schemaMatch compares columns. Formats without types are compared value by value.
type schemaMatch struct {
	counter

	expected   []quality.Column
	at         []int // nil if the file has types
	allowExtra bool
	wrong      map[string]string // column → first wrong value
}

func (p *pass) newSchemaMatch(c quality.Check) *schemaMatch {
	e := &schemaMatch{expected: expectedColumns(c, p.Schema), allowExtra: c.AllowExtra, wrong: map[string]string{}}
	if p.Format != quality.Parquet {
		names := make([]string, len(e.expected))
		for i, column := range e.expected {
			names[i] = column.Name
		}
		e.at = p.index(names)
	}
	return e
}

func (e *schemaMatch) observe(b *rows.Batch, offend func(int)) error {
	for i, at := range e.at {
		column := e.expected[i]
		for row := range b.N {
			if v := b.Cols[at][row]; !fits(v, column.Type) {
				if _, known := e.wrong[column.Name]; !known {
					e.wrong[column.Name] = kindName(v)
				}
				e.bad++
				offend(row)
			}
		}
	}
	return nil
}

// fits reports whether a value without a declared type can be of a type.
func fits(v rows.Value, kind quality.ColumnType) bool {
	switch v.Kind {
	case rows.Null:
		return true
	case rows.Bool:
		return kind == quality.Boolean
	case rows.Int:
		return kind == quality.Integer || kind == quality.Number || kind == quality.Decimal
	case rows.Float:
		return kind == quality.Number || kind == quality.Decimal
	case rows.Date:
		return kind == quality.Date || kind == quality.Timestamp
	case rows.Time:
		return kind == quality.Timestamp
	case rows.Nested:
		return kind == quality.Object && v.Text[0] == '{' || kind == quality.Array && v.Text[0] == '['
	case rows.Text, rows.Bytes:
	}
	switch kind {
	case quality.String, quality.Binary:
		return true
	case quality.Date, quality.Timestamp:
		_, ok := rows.ParseTime(string(v.Text))
		return ok
	case quality.Decimal:
		_, err := strconv.ParseFloat(string(v.Text), 64)
		return err == nil
	default:
		return false
	}
}

func kindName(v rows.Value) string {
	return [...]string{"null", "boolean", "integer", "number", "string", "binary", "date", "timestamp", "object or array"}[v.Kind]
}

func (e *schemaMatch) verdict(p *pass) (bool, string, string, error) {
	actual := p.reader.Columns()
	var differences []string
	for _, want := range e.expected {
		i := slices.IndexFunc(actual, func(c quality.Column) bool { return c.Name == want.Name })
		switch {
		case i < 0 && (p.rows > 0 || p.Format == quality.Parquet || p.Format == quality.CSV):
			differences = append(differences, fmt.Sprintf("column %q is missing", want.Name))
		case i >= 0 && e.at == nil && actual[i].Type != want.Type:
			differences = append(differences, fmt.Sprintf("column %q is %s", want.Name, actual[i].Type))
		case e.wrong[want.Name] != "":
			differences = append(differences, fmt.Sprintf("column %q has values of type %s", want.Name, e.wrong[want.Name]))
		}
	}
	if !e.allowExtra {
		for _, column := range actual {
			if !slices.ContainsFunc(e.expected, func(c quality.Column) bool { return c.Name == column.Name }) {
				differences = append(differences, fmt.Sprintf("column %q is not declared", column.Name))
			}
		}
	}
	var expected []string
	for _, c := range e.expected {
		expected = append(expected, c.Name+" "+string(c.Type))
	}
	if len(differences) == 0 {
		return true, fmt.Sprintf("%d columns match", len(e.expected)), strings.Join(expected, ", "), nil
	}
	return false, strings.Join(differences, "; "), strings.Join(expected, ", "), nil
}
