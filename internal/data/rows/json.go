package rows

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"go.arco.dev/servo/internal/domain/quality"
)

// jsonSource reads objects: one per line (JSON Lines), or those of one array. A JSON file that is one
// object has one row.
type jsonSource struct {
	file    *os.File
	limit   *rowLimit
	lines   *bufio.Reader // of JSON Lines
	decoder *json.Decoder // of JSON
	started bool
	single  bool
	index   map[string]int // requested columns
	width   int
	known   map[string]int
	found   []quality.Column
	row     int64
}

func openJSON(path string, want []string, lines bool) (*jsonSource, error) {
	f, err := os.Open(path) //nolint:gosec // the worker chose the path
	if err != nil {
		return nil, err
	}
	s := &jsonSource{file: f, limit: &rowLimit{r: f}, index: map[string]int{}, width: len(want), known: map[string]int{}}
	for i, name := range want {
		s.index[name] = i
	}
	buffered := bufio.NewReaderSize(s.limit, 1<<16)
	if lines {
		s.lines = buffered
	} else {
		s.decoder = json.NewDecoder(buffered)
	}
	return s, nil
}

func (s *jsonSource) columns() []quality.Column { return s.found }
func (s *jsonSource) close() error              { return s.file.Close() }

func (s *jsonSource) read(b *Batch) error {
	b.resize(s.width)
	bytesRead := 0
	for b.N < BatchSize && bytesRead < MaxRow {
		s.limit.start()
		raw, err := s.object()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return err
		}
		bytesRead += len(raw)
		if err := s.add(b, raw); err != nil {
			return err
		}
	}
	if b.N == 0 {
		return io.EOF
	}
	return nil
}

// object returns the bytes of the next object.
func (s *jsonSource) object() (json.RawMessage, error) {
	s.row++
	if s.lines != nil {
		return s.line()
	}
	if s.single {
		return nil, s.end()
	}
	if !s.started {
		s.started = true
		start, err := s.decoder.Token()
		if err != nil {
			return nil, unexpectedEnd(err)
		}
		switch start {
		case json.Delim('['):
		case json.Delim('{'):
			return s.rest()
		default:
			return nil, errors.New("it is neither an array of objects nor an object")
		}
	}
	if !s.decoder.More() {
		if _, err := s.decoder.Token(); err != nil {
			return nil, unexpectedEnd(err)
		}
		s.single = true
		return nil, s.end()
	}
	var raw json.RawMessage
	if err := s.decoder.Decode(&raw); err != nil {
		return nil, unexpectedEnd(err)
	}
	return raw, nil
}

// rest reads the fields of a document that is one object, whose brace was read.
func (s *jsonSource) rest() (json.RawMessage, error) {
	var object bytes.Buffer
	object.WriteByte('{')
	for s.decoder.More() {
		name, err := s.decoder.Token()
		if err != nil {
			return nil, unexpectedEnd(err)
		}
		quoted, _ := json.Marshal(name)
		var value json.RawMessage
		if err := s.decoder.Decode(&value); err != nil {
			return nil, unexpectedEnd(err)
		}
		if object.Len() > 1 {
			object.WriteByte(',')
		}
		object.Write(quoted)
		object.WriteByte(':')
		object.Write(value)
	}
	if _, err := s.decoder.Token(); err != nil {
		return nil, unexpectedEnd(err)
	}
	object.WriteByte('}')
	s.single = true
	return object.Bytes(), nil
}

// end refuses data after the document.
func (s *jsonSource) end() error {
	if _, err := s.decoder.Token(); !errors.Is(err, io.EOF) {
		return errors.New("it has data after the document")
	}
	return io.EOF
}

// line returns the next line that is not blank.
func (s *jsonSource) line() (json.RawMessage, error) {
	for {
		line, err := s.lines.ReadBytes('\n')
		if trimmed := bytes.TrimSpace(line); len(trimmed) > 0 {
			if err != nil && !errors.Is(err, io.EOF) {
				return nil, err
			}
			return trimmed, nil
		}
		if err != nil {
			return nil, err
		}
	}
}

// add decodes an object into the next row of the batch.
func (s *jsonSource) add(b *Batch, raw json.RawMessage) error {
	var object map[string]json.RawMessage
	if err := json.Unmarshal(raw, &object); err != nil || object == nil {
		if err == nil {
			err = errors.New("is null")
		}
		return fmt.Errorf("row %d is not an object: %w", s.row, err)
	}
	for i := range b.Cols {
		b.Cols[i] = append(b.Cols[i], Value{})
	}
	for name, field := range object {
		value, kind, err := jsonValue(field)
		if err != nil {
			return fmt.Errorf("row %d, column %q: %w", s.row, name, err)
		}
		s.learn(name, kind)
		if i, wanted := s.index[name]; wanted {
			b.Cols[i][b.N] = value
		}
	}
	b.N++
	return nil
}

// learn adds a column, or widens its type.
func (s *jsonSource) learn(name string, kind quality.ColumnType) {
	i, known := s.known[name]
	if !known {
		if len(s.found) < quality.MaxColumns {
			s.known[name] = len(s.found)
			s.found = append(s.found, quality.Column{Name: name, Type: kind})
		}
		return
	}
	s.found[i].Type = wider(s.found[i].Type, kind)
}

// jsonValue decodes one field and returns its type; that of null is "".
func jsonValue(raw json.RawMessage) (Value, quality.ColumnType, error) {
	switch raw[0] {
	case 'n':
		return Value{}, "", nil
	case 't':
		return Value{Kind: Bool, Int: 1}, quality.Boolean, nil
	case 'f':
		return Value{Kind: Bool}, quality.Boolean, nil
	case '{':
		return Value{Kind: Nested, Text: raw}, quality.Object, nil
	case '[':
		return Value{Kind: Nested, Text: raw}, quality.Array, nil
	case '"':
		var text string
		if err := json.Unmarshal(raw, &text); err != nil {
			return Value{}, "", err
		}
		return Value{Kind: Text, Text: []byte(text)}, quality.String, nil
	}
	number := json.Number(raw)
	if whole, err := number.Int64(); err == nil && !strings.ContainsAny(string(raw), ".eE") {
		return Value{Kind: Int, Int: whole}, quality.Integer, nil
	}
	f, err := number.Float64()
	if err != nil {
		return Value{}, "", err
	}
	return Value{Kind: Float, Float: f}, quality.Number, nil
}

// unexpectedEnd keeps a truncated document from looking like the end of the rows.
func unexpectedEnd(err error) error {
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}
