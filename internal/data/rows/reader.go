package rows

import (
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strings"

	"go.arco.dev/servo/internal/base/fault"
	"go.arco.dev/servo/internal/domain/quality"
)

// BatchSize is the maximum number of rows of a batch.
const BatchSize = 1024

// MaxRow is the maximum size of one row of CSV or JSON, in bytes.
const MaxRow = 16 << 20

// Batch is a group of consecutive rows, by column.
type Batch struct {
	N    int
	Cols [][]Value // in the order of the requested columns; each has N values
}

// Reader reads the files of one output as one sequence of rows.
type Reader struct {
	format  quality.Format
	files   []string
	want    []string
	current source
	at      int // index of the current file
	columns []quality.Column
	rows    int64
}

// source reads one file.
type source interface {
	// columns are the columns of the file; those of JSON are complete at its end.
	columns() []quality.Column
	// read fills a batch, or returns io.EOF.
	read(b *Batch) error
	close() error
}

// Open opens the files of an output. Values of other columns than the requested ones are not read.
// Declared gives the types of CSV columns, which have no types of their own.
func Open(files []string, format quality.Format, want []string, declared []quality.Column) (*Reader, error) {
	if len(files) == 0 {
		return nil, fault.New(fault.InvalidArgument, "the output has no files", fault.Remedy("write at least one "+string(format)+" file, also if it has no rows"))
	}
	r := &Reader{format: format, files: slices.Sorted(slices.Values(files)), want: want, at: -1}
	types := make(map[string]quality.ColumnType, len(declared))
	for _, c := range declared {
		types[c.Name] = c.Type
	}
	if err := r.advance(types); err != nil {
		return nil, err
	}
	return r, nil
}

// advance opens the next file, or returns io.EOF.
func (r *Reader) advance(types map[string]quality.ColumnType) (err error) {
	if r.current != nil {
		if err := r.finish(); err != nil {
			return err
		}
	}
	r.at++
	if r.at == len(r.files) {
		r.current = nil
		return io.EOF
	}
	path := r.files[r.at]
	defer r.guard(&err)
	switch r.format {
	case quality.Parquet:
		r.current, err = openParquet(path, r.want)
	case quality.CSV:
		r.current, err = openCSV(path, r.want, types)
	case quality.JSONL, quality.JSON:
		r.current, err = openJSON(path, r.want, r.format == quality.JSONL)
	default:
		return fault.New(fault.InvalidArgument, fmt.Sprintf("format %q has no rows", r.format), fault.Remedy("choose a format with rows"))
	}
	return r.asFault(err)
}

// finish closes the current file and compares its columns with those of the files before it.
func (r *Reader) finish() error {
	columns := r.current.columns()
	err := r.current.close()
	r.current = nil
	if err != nil {
		return r.asFault(err)
	}
	if r.format == quality.JSONL || r.format == quality.JSON {
		r.columns = mergeColumns(r.columns, columns)
		return nil
	}
	if r.at == 0 {
		r.columns = columns
		return nil
	}
	if !slices.Equal(r.columns, columns) {
		return fault.New(fault.InvalidArgument, fmt.Sprintf("file %s has other columns than file %s", filepath.Base(r.files[r.at]), filepath.Base(r.files[0])),
			fault.Remedy("write all files of an output with the same columns and types"))
	}
	return nil
}

// Next fills a batch. It returns io.EOF after the last row.
func (r *Reader) Next(b *Batch) (err error) {
	defer r.guard(&err)
	for r.current != nil {
		err := r.current.read(b)
		if err == nil {
			r.rows += int64(b.N)
			return nil
		}
		if !errors.Is(err, io.EOF) {
			return r.asFault(err)
		}
		var types map[string]quality.ColumnType
		if csv, ok := r.current.(*csvSource); ok {
			types = csv.types
		}
		if err := r.advance(types); err != nil {
			return err
		}
	}
	return io.EOF
}

// Rows returns how many rows were read so far.
func (r *Reader) Rows() int64 { return r.rows }

// Columns returns the columns of the output. Those of JSON are complete after the last row.
func (r *Reader) Columns() []quality.Column {
	if r.current != nil && len(r.columns) == 0 {
		return r.current.columns()
	}
	return r.columns
}

// Close closes the current file.
func (r *Reader) Close() error {
	if r.current == nil {
		return nil
	}
	return r.current.close()
}

// guard turns a panic of a decoder into a fault: files come from user code, and a library's bounds
// check must fail the attempt, not the worker.
func (r *Reader) guard(err *error) {
	if cause := recover(); cause != nil {
		*err = r.asFault(fmt.Errorf("decoder failed: %v\n%s", cause, debug.Stack()))
	}
}

// asFault names the file in an error of a decoder.
func (r *Reader) asFault(err error) error {
	if err == nil || errors.Is(err, io.EOF) {
		return err
	}
	if _, ok := fault.As(err); ok {
		return err
	}
	name := r.files[min(r.at, len(r.files)-1)]
	message, _, _ := strings.Cut(err.Error(), "\n")
	if len(message) > 300 {
		message = strings.ToValidUTF8(message[:300], "") + "…"
	}
	return fault.New(fault.InvalidArgument, fmt.Sprintf("file %s is not readable as %s: %s", filepath.Base(name), r.format, message),
		fault.Remedy("write the file again"), fault.Cause(err))
}

// mergeColumns unites the columns of JSON files. Types that differ become the wider one.
func mergeColumns(a, b []quality.Column) []quality.Column {
	merged := slices.Clone(a)
	for _, c := range b {
		i := slices.IndexFunc(merged, func(m quality.Column) bool { return m.Name == c.Name })
		if i < 0 {
			merged = append(merged, c)
			continue
		}
		merged[i].Type = wider(merged[i].Type, c.Type)
	}
	return merged
}

// wider returns a type that contains both; "" is the type of null.
func wider(a, b quality.ColumnType) quality.ColumnType {
	switch {
	case a == b || b == "":
		return a
	case a == "":
		return b
	case a == quality.Integer && b == quality.Number || a == quality.Number && b == quality.Integer:
		return quality.Number
	}
	return quality.String
}

// resize gives a batch a number of columns.
func (b *Batch) resize(columns int) {
	b.N = 0
	if len(b.Cols) != columns {
		b.Cols = make([][]Value, columns)
	}
	for i := range b.Cols {
		if cap(b.Cols[i]) < BatchSize {
			b.Cols[i] = make([]Value, 0, BatchSize)
		}
		b.Cols[i] = b.Cols[i][:0]
	}
}
