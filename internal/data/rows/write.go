package rows

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/parquet-go/parquet-go"

	"go.arco.dev/servo/internal/domain/quality"
)

// Writer writes rows of type T to one file. The fields of T are named by the struct tag parquet, or
// json for JSON Lines.
type Writer[T any] struct {
	file    *os.File
	parquet *parquet.GenericWriter[T]
	lines   *bufio.Writer
	encoder *json.Encoder
	rows    int64
}

// rowGroup is how many rows the writer collects before it writes them.
const rowGroup = 100_000

// Create creates a file. Formats: parquet and jsonl.
func Create[T any](path string, format quality.Format) (w *Writer[T], err error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600) //nolint:gosec // the worker chose the path
	if err != nil {
		return nil, err
	}
	w = &Writer[T]{file: f}
	defer func() {
		if cause := recover(); cause != nil { // of a type that the library cannot map
			err = fmt.Errorf("rows of type %T cannot be written as %s: %v", *new(T), format, cause)
		}
		if err != nil {
			_ = f.Close()
		}
	}()
	switch format {
	case quality.Parquet:
		w.parquet = parquet.NewGenericWriter[T](f, parquet.Compression(&parquet.Zstd), parquet.MaxRowsPerRowGroup(rowGroup))
	case quality.JSONL:
		w.lines = bufio.NewWriterSize(f, 64<<10)
		w.encoder = json.NewEncoder(w.lines)
		w.encoder.SetEscapeHTML(false)
	default:
		return nil, fmt.Errorf("rows cannot be written as %s; choose parquet or jsonl", format)
	}
	return w, nil
}

// Write appends rows.
func (w *Writer[T]) Write(rows ...T) error {
	w.rows += int64(len(rows))
	if w.parquet != nil {
		_, err := w.parquet.Write(rows)
		return err
	}
	for i := range rows {
		if err := w.encoder.Encode(rows[i]); err != nil {
			return err
		}
	}
	return nil
}

// Rows returns how many rows were written.
func (w *Writer[T]) Rows() int64 { return w.rows }

// Close writes the rest and closes the file.
func (w *Writer[T]) Close() error {
	var err error
	if w.parquet != nil {
		err = w.parquet.Close()
	} else {
		err = w.lines.Flush()
	}
	return errors.Join(err, w.file.Close())
}

// ReadTyped reads the rows of files into values of type T, one by one.
func ReadTyped[T any](files []string, format quality.Format, yield func(T) bool) error {
	for _, path := range files {
		more, err := readTyped(path, format, yield)
		if err != nil {
			return fmt.Errorf("read %s: %w", path, err)
		}
		if !more {
			return nil
		}
	}
	return nil
}

func readTyped[T any](path string, format quality.Format, yield func(T) bool) (more bool, err error) {
	f, err := os.Open(path) //nolint:gosec // the worker chose the path
	if err != nil {
		return false, err
	}
	defer func() {
		if cause := recover(); cause != nil {
			err = fmt.Errorf("decoder failed: %v", cause)
		}
		err = errors.Join(err, f.Close())
	}()
	switch format {
	case quality.Parquet:
		return readTypedParquet(f, yield)
	case quality.JSONL:
		decoder := json.NewDecoder(bufio.NewReader(f))
		for {
			var row T
			if err := decoder.Decode(&row); errors.Is(err, io.EOF) {
				return true, nil
			} else if err != nil {
				return false, err
			}
			if !yield(row) {
				return false, nil
			}
		}
	default:
		return false, fmt.Errorf("rows cannot be read from %s; choose parquet or jsonl", format)
	}
}

func readTypedParquet[T any](f *os.File, yield func(T) bool) (bool, error) {
	r := parquet.NewGenericReader[T](f)
	defer func() { _ = r.Close() }()
	buffer := make([]T, 256)
	for {
		clear(buffer)
		n, err := r.Read(buffer)
		for _, row := range buffer[:n] {
			if !yield(row) {
				return false, nil
			}
		}
		if errors.Is(err, io.EOF) {
			return true, nil
		}
		if err != nil {
			return false, err
		}
	}
}
