package rows

import (
	"bufio"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"

	"go.arco.dev/servo/internal/domain/quality"
)

// csvSource reads CSV as RFC 4180 defines it, with a header. An empty field is null.
type csvSource struct {
	file   *os.File
	limit  *rowLimit
	reader *csv.Reader
	header []quality.Column
	index  []int // of each requested column in the file; -1 if it does not exist
	types  map[string]quality.ColumnType
	arena  []byte
}

func openCSV(path string, want []string, types map[string]quality.ColumnType) (*csvSource, error) {
	f, err := os.Open(path) //nolint:gosec // the worker chose the path
	if err != nil {
		return nil, err
	}
	s := &csvSource{file: f, limit: &rowLimit{r: f}, types: types}
	s.reader = csv.NewReader(bufio.NewReaderSize(s.limit, 1<<16))
	s.reader.ReuseRecord = true
	header, err := s.reader.Read()
	if err != nil {
		_ = f.Close()
		if errors.Is(err, io.EOF) {
			return nil, errors.New("it is empty and has no header")
		}
		return nil, err
	}
	at := map[string]int{}
	for i, name := range header {
		name = strings.Clone(name)
		if i == 0 {
			name = strings.TrimPrefix(name, "\ufeff")
		}
		if _, twice := at[name]; twice {
			_ = f.Close()
			return nil, fmt.Errorf("column %q occurs twice in the header", name)
		}
		at[name] = i
		kind := types[name]
		if kind == "" {
			kind = quality.String
		}
		s.header = append(s.header, quality.Column{Name: name, Type: kind})
	}
	for _, name := range want {
		i, ok := at[name]
		if !ok {
			i = -1
		}
		s.index = append(s.index, i)
	}
	return s, nil
}

func (s *csvSource) columns() []quality.Column { return s.header }
func (s *csvSource) close() error              { return s.file.Close() }

func (s *csvSource) read(b *Batch) error {
	b.resize(len(s.index))
	s.arena = s.arena[:0]
	for b.N < BatchSize {
		s.limit.start()
		record, err := s.reader.Read()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return err
		}
		for c, i := range s.index {
			v := Value{}
			if i >= 0 && record[i] != "" {
				v = s.parse(record[i], s.header[i].Type)
			}
			b.Cols[c] = append(b.Cols[c], v)
		}
		b.N++
		if len(s.arena) > MaxRow {
			break // long texts: keep the batch small
		}
	}
	if b.N == 0 {
		return io.EOF
	}
	return nil
}

// parse converts a field to its declared type. A field that cannot be converted stays text, and the
// schema check reports it.
func (s *csvSource) parse(field string, kind quality.ColumnType) Value {
	switch kind {
	case quality.Integer:
		if n, err := strconv.ParseInt(field, 10, 64); err == nil {
			return Value{Kind: Int, Int: n}
		}
	case quality.Number, quality.Decimal:
		if f, err := strconv.ParseFloat(field, 64); err == nil {
			return Value{Kind: Float, Float: f}
		}
	case quality.Boolean:
		switch strings.ToLower(field) {
		case "true", "t", "1":
			return Value{Kind: Bool, Int: 1}
		case "false", "f", "0":
			return Value{Kind: Bool}
		}
	case quality.Date:
		if t, ok := ParseTime(field); ok && len(field) == len("2006-01-02") {
			return Value{Kind: Date, Int: t.Unix() / 86_400}
		}
	case quality.Timestamp:
		if t, ok := ParseTime(field); ok {
			return Value{Kind: Time, Int: t.UnixMicro()}
		}
	case quality.String, quality.Binary, quality.Object, quality.Array:
	}
	from := len(s.arena)
	s.arena = append(s.arena, field...)
	return Value{Kind: Text, Text: s.arena[from:len(s.arena):len(s.arena)]}
}

// rowLimit fails a reader that needs too many bytes for one row, so that a quote that never ends
// does not fill the memory.
type rowLimit struct {
	r    io.Reader
	used int
}

var errRowTooLarge = fmt.Errorf("a row is larger than %d bytes", MaxRow)

// start begins a new row.
func (l *rowLimit) start() { l.used = 0 }

func (l *rowLimit) Read(p []byte) (int, error) {
	if l.used > MaxRow {
		return 0, errRowTooLarge
	}
	n, err := l.r.Read(p)
	l.used += n
	return n, err
}
