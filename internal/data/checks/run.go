package checks

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"go.arco.dev/servo/internal/base/fault"
	"go.arco.dev/servo/internal/data/rows"
	"go.arco.dev/servo/internal/domain/quality"
)

// DefaultMemory is how many bytes the hashes of all checks may use before they are written to disk.
const DefaultMemory = 64 << 20

// Files are the files of one version.
type Files struct {
	Paths  []string
	Format quality.Format
	Schema []quality.Column // declared; gives the types of CSV columns
	// Sensitive are columns that the version's own asset keeps out of samples.
	Sensitive []string
}

// Request is one set of files and the checks to run over it.
type Request struct {
	Files

	Sensitive quality.Output // whose sensitive columns are kept out of samples
	Checks    []quality.Check
	// PreviousRows is the number of rows of the version before; nil if there is none.
	PreviousRows *int64
	// References returns the files of an upstream, for referential and custom_sql checks.
	References func(asset string) (Files, error)
	Inputs     []string // the upstreams that custom_sql may name
	// Custom runs a function of the asset's code. Nil: the worker has none.
	Custom func(ctx context.Context, function string) error
	Now    time.Time // for freshness
	Dir    string    // for temporary files
	Memory int64     // see DefaultMemory
	// Clock measures durations; nil is time.Now.
	Clock func() time.Time
}

// Report is what a pass found.
type Report struct {
	Rows    int64
	Columns []quality.Column
	Results []quality.Result // in the order of the checks
}

// Run reads the files once and runs all checks. Files that cannot be read are a fault; a check that
// cannot be completed is a result with an error.
func Run(ctx context.Context, r Request) (Report, error) {
	if r.Clock == nil {
		r.Clock = time.Now
	}
	if r.Memory <= 0 {
		r.Memory = DefaultMemory
	}
	p, err := newPass(r)
	if err != nil {
		return Report{}, err
	}
	defer p.close()
	if err := p.read(ctx); err != nil {
		return Report{}, err
	}
	return p.report(ctx)
}

// pass is one pass over the files.
type pass struct {
	Request

	columns []string // that any check reads
	running []*running
	reader  *rows.Reader
	rows    int64
	reading time.Duration // time spent in the decoder
}

// running is a check during the pass.
type running struct {
	check  quality.Check
	eval   evaluator
	spent  time.Duration
	err    error
	sample []sampleRow
}

// evaluator is the state of one check.
type evaluator interface {
	// observe reads a batch. It reports rows that violate the check to offend.
	observe(b *rows.Batch, offend func(row int)) error
	// verdict ends the check.
	verdict(p *pass) (passed bool, actual, expected string, err error)
}

// sampleRow is one offending row.
type sampleRow struct {
	row    int64
	fields json.RawMessage
}

func newPass(r Request) (*pass, error) {
	p := &pass{Request: r}
	for _, c := range r.Checks {
		p.running = append(p.running, &running{check: c})
		for _, column := range c.CheckedColumns() {
			if !slices.Contains(p.columns, column) {
				p.columns = append(p.columns, column)
			}
		}
	}
	for _, c := range r.Checks {
		if c.Type == quality.SchemaMatch && r.Format != quality.Parquet {
			for _, column := range expectedColumns(c, r.Schema) {
				if !slices.Contains(p.columns, column.Name) {
					p.columns = append(p.columns, column.Name)
				}
			}
		}
	}
	spilling := 0
	for _, c := range r.Checks {
		if c.Type == quality.Unique || c.Type == quality.Referential {
			spilling++
		}
	}
	budget := r.Memory / int64(max(spilling, 1))
	for _, run := range p.running {
		run.eval, run.err = p.evaluator(run.check, budget)
	}
	var err error
	p.reader, err = rows.Open(r.Paths, r.Format, p.columns, r.Schema)
	return p, err
}

func (p *pass) close() {
	if p.reader != nil {
		_ = p.reader.Close()
	}
	for _, run := range p.running {
		if c, ok := run.eval.(io.Closer); ok {
			_ = c.Close()
		}
	}
}

// index returns the positions of columns in a batch.
func (p *pass) index(columns []string) []int {
	positions := make([]int, len(columns))
	for i, name := range columns {
		positions[i] = slices.Index(p.columns, name)
	}
	return positions
}

// read feeds all rows to all checks.
func (p *pass) read(ctx context.Context) error {
	var b rows.Batch
	for {
		if err := context.Cause(ctx); err != nil {
			return err
		}
		start := p.Clock()
		err := p.reader.Next(&b)
		now := p.Clock()
		p.reading += now.Sub(start)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		for _, run := range p.running {
			if run.err != nil || run.eval == nil {
				continue
			}
			run.err = run.eval.observe(&b, func(row int) { p.sample(run, &b, row) })
			before := now
			now = p.Clock()
			run.spent += now.Sub(before)
			if run.err == nil && run.check.Timeout > 0 && p.reading+run.spent > run.check.Timeout.Std() {
				run.err = fmt.Errorf("timed out after %s", run.check.Timeout)
			}
		}
		p.rows += int64(b.N)
	}
}

// sample keeps an offending row: its number and the columns that checks read, without sensitive ones.
func (p *pass) sample(run *running, b *rows.Batch, row int) {
	if len(run.sample) >= quality.MaxSample {
		return
	}
	number := p.rows + int64(row) + 1
	if n := len(run.sample); n > 0 && run.sample[n-1].row == number {
		return
	}
	values := map[string]json.RawMessage{}
	for i, name := range p.columns {
		if !p.isSensitive(name) {
			values[name] = b.Cols[i][row].JSON(quality.MaxSampleValue)
		}
	}
	fields, err := json.Marshal(map[string]any{"row": number, "values": values})
	if err != nil {
		return // a column's name is not UTF-8
	}
	run.sample = append(run.sample, sampleRow{row: number, fields: fields})
}

// isSensitive reports whether values of a column are kept out of samples.
func (p *pass) isSensitive(column string) bool {
	return p.Sensitive.IsSensitive(column) || quality.Output{Sensitive: p.Files.Sensitive}.IsSensitive(column)
}

// afterPass reports whether a check runs after the pass over the rows, because it reads them itself.
func afterPass(c quality.Check) bool { return c.Type == quality.Custom || c.Type == quality.CustomSQL }

// report ends all checks, first those of the pass. After a critical failure, queries and custom
// functions are skipped.
func (p *pass) report(ctx context.Context) (Report, error) {
	out := Report{Rows: p.rows, Columns: p.reader.Columns(), Results: make([]quality.Result, len(p.running))}
	stopped := false
	for _, after := range []bool{false, true} {
		for i, run := range p.running {
			if afterPass(run.check) != after {
				continue
			}
			result := quality.Of(run.check)
			switch {
			case !after:
				p.finish(run, out.Columns, &result)
			case stopped:
				result.Skipped = true
			case run.check.Type == quality.CustomSQL:
				p.sql(ctx, run, out.Columns, &result)
			default:
				p.custom(ctx, run, &result)
			}
			stopped = stopped || result.Failed() && run.check.Severity == quality.Critical
			result.Duration = run.spent
			out.Results[i] = result
		}
	}
	if err := p.sampleHashes(ctx, out.Results); err != nil {
		return Report{}, err
	}
	return out, context.Cause(ctx)
}

// finish asks an evaluator for its verdict.
func (p *pass) finish(run *running, columns []quality.Column, result *quality.Result) {
	if run.err == nil {
		run.err = p.missing(run.check, columns)
	}
	if run.err == nil && run.eval != nil {
		start := p.Clock()
		result.Passed, result.Actual, result.Expected, run.err = run.eval.verdict(p)
		run.spent += p.Clock().Sub(start)
	}
	if run.err != nil {
		result.Passed, result.Error = false, message(run.err)
		return
	}
	result.Actual, result.Expected = clip(result.Actual), clip(result.Expected)
	if !result.Passed {
		for _, s := range run.sample {
			result.Sample = append(result.Sample, s.fields)
		}
	}
}

// missing refuses a check of a column that does not exist. Columns of an empty JSON file are unknown.
func (p *pass) missing(c quality.Check, columns []quality.Column) error {
	if p.rows == 0 && (p.Format == quality.JSONL || p.Format == quality.JSON) {
		return nil
	}
	for _, name := range c.CheckedColumns() {
		top, _, nested := strings.Cut(name, ".")
		if !slices.ContainsFunc(columns, func(col quality.Column) bool {
			return col.Name == name || nested && col.Name == top && p.Format == quality.Parquet
		}) {
			names := make([]string, 0, len(columns))
			for _, col := range columns {
				names = append(names, col.Name)
			}
			return fmt.Errorf("column %q does not exist; the output has %s", name, clip(strings.Join(names, ", ")))
		}
	}
	return nil
}

// custom calls a function of the asset's code, within its timeout.
func (p *pass) custom(ctx context.Context, run *running, result *quality.Result) {
	if p.Custom == nil {
		result.Error = "the worker has no function for this check"
		return
	}
	if run.check.Timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, run.check.Timeout.Std())
		defer cancel()
	}
	start := p.Clock()
	err := p.Custom(ctx, run.check.Function)
	run.spent += p.Clock().Sub(start)
	switch {
	case errors.Is(ctx.Err(), context.DeadlineExceeded):
		result.Error = fmt.Sprintf("timed out after %s", run.check.Timeout)
	case err != nil:
		result.Actual = message(err)
	default:
		result.Passed = true
	}
}

// message is the text of an error for users.
func message(err error) string {
	if f, ok := fault.As(err); ok {
		return clip(f.Error())
	}
	return clip(err.Error())
}

func clip(text string) string {
	if len(text) > quality.MaxText {
		return strings.ToValidUTF8(text[:quality.MaxText], "") + "…"
	}
	return text
}

// RunCustom runs the functions of the asset's code alone, for outputs without rows.
func RunCustom(ctx context.Context, r Request) (Report, error) {
	if r.Clock == nil {
		r.Clock = time.Now
	}
	p := &pass{Request: r}
	var out Report
	stopped := false
	for _, c := range r.Checks {
		run, result := &running{check: c}, quality.Of(c)
		switch {
		case stopped:
			result.Skipped = true
		case c.Type == quality.Custom:
			p.custom(ctx, run, &result)
		default:
			result.Error = "the output has no rows"
		}
		stopped = stopped || result.Failed() && c.Severity == quality.Critical
		result.Duration = run.spent
		out.Results = append(out.Results, result)
	}
	return out, context.Cause(ctx)
}
