package rows

import (
	"errors"
	"fmt"
	"io"
	"math"
	"math/big"
	"os"

	"github.com/apache/arrow-go/v18/parquet"
	"github.com/apache/arrow-go/v18/parquet/file"
	"github.com/apache/arrow-go/v18/parquet/schema"

	"go.arco.dev/servo/internal/domain/quality"
)

// The limits of Parquet files. A column chunk that claims to expand further is refused before it is
// decompressed.
const (
	maxExpansion      = 2_000
	maxSuspectedChunk = 256 << 20
	parquetBuffer     = 256 << 10
)

// parquetSource reads the requested columns of one file, row group by row group.
type parquetSource struct {
	file   *os.File
	reader *file.Reader
	schema []quality.Column
	leaves []*parquetLeaf // of the requested columns; nil if the column does not exist
	group  int
	left   int64 // rows of the current row group
}

// parquetLeaf decodes one column.
type parquetLeaf struct {
	index    int
	column   *schema.Column
	kind     quality.ColumnType
	unit     int64   // of timestamps: units per microsecond, negative for units that are longer
	scale    float64 // of decimals
	chunk    file.ColumnChunkReader
	levels   []int16
	int32s   []int32
	int64s   []int64
	float32s []float32
	float64s []float64
	bools    []bool
	texts    []parquet.ByteArray
	fixed    []parquet.FixedLenByteArray
	int96s   []parquet.Int96
	arena    []byte
}

func openParquet(path string, want []string) (*parquetSource, error) {
	f, err := os.Open(path) //nolint:gosec // the worker chose the path
	if err != nil {
		return nil, err
	}
	// Pages are streamed: by default, whole column chunks would be read into memory.
	properties := parquet.NewReaderProperties(nil)
	properties.BufferedStreamEnabled, properties.BufferSize = true, parquetBuffer
	reader, err := file.NewParquetReader(f, file.WithReadProps(properties))
	if err != nil {
		_ = f.Close()
		return nil, err
	}
	s := &parquetSource{file: f, reader: reader}
	root := reader.MetaData().Schema.Root()
	for i := range root.NumFields() {
		node := root.Field(i)
		s.schema = append(s.schema, quality.Column{Name: node.Name(), Type: nodeType(node)})
	}
	leaves := map[string]*parquetLeaf{}
	for i := range reader.MetaData().Schema.NumColumns() {
		column := reader.MetaData().Schema.Column(i)
		leaves[column.Path()] = newLeaf(i, column)
	}
	for _, name := range want {
		leaf := leaves[name]
		if leaf != nil && leaf.column.MaxRepetitionLevel() > 0 {
			_ = s.close()
			return nil, fmt.Errorf("column %q is repeated, and checks read columns with one value per row", name)
		}
		s.leaves = append(s.leaves, leaf)
	}
	return s, s.suspect()
}

// suspect refuses files whose footer claims absurd expansion.
func (s *parquetSource) suspect() error {
	for g := range s.reader.NumRowGroups() {
		meta := s.reader.MetaData().RowGroup(g)
		for c := range meta.NumColumns() {
			chunk, err := meta.ColumnChunk(c)
			if err != nil {
				return err
			}
			packed, expanded := chunk.TotalCompressedSize(), chunk.TotalUncompressedSize()
			if expanded > maxSuspectedChunk && expanded/max(packed, 1) > maxExpansion {
				return fmt.Errorf("column %s expands %d bytes to %d, which looks like a decompression bomb", chunk.PathInSchema(), packed, expanded)
			}
		}
	}
	return nil
}

func (s *parquetSource) columns() []quality.Column { return s.schema }

func (s *parquetSource) close() error {
	return errors.Join(s.reader.Close(), ignoreClosed(s.file.Close()))
}

func ignoreClosed(err error) error {
	if errors.Is(err, os.ErrClosed) {
		return nil
	}
	return err
}

func (s *parquetSource) read(b *Batch) error {
	b.resize(len(s.leaves))
	for s.left == 0 {
		if s.group == s.reader.NumRowGroups() {
			return io.EOF
		}
		group := s.reader.RowGroup(s.group)
		s.group++
		s.left = group.NumRows()
		for _, leaf := range s.leaves {
			if leaf == nil {
				continue
			}
			chunk, err := group.Column(leaf.index)
			if err != nil {
				return err
			}
			leaf.chunk = chunk
		}
	}
	n := int(min(s.left, BatchSize))
	for i, leaf := range s.leaves {
		b.Cols[i] = b.Cols[i][:n]
		if leaf == nil {
			clear(b.Cols[i])
			continue
		}
		if err := leaf.read(b.Cols[i]); err != nil {
			return fmt.Errorf("column %s: %w", leaf.column.Path(), err)
		}
	}
	b.N = n
	s.left -= int64(n)
	return nil
}

// read fills values from as many pages as needed.
func (l *parquetLeaf) read(values []Value) error {
	l.arena = l.arena[:0]
	for len(values) > 0 {
		n, err := l.readPage(values)
		if err != nil {
			return err
		}
		if n == 0 {
			if err := l.chunk.Err(); err != nil {
				return err
			}
			return errors.New("it has fewer values than rows")
		}
		values = values[n:]
	}
	return nil
}

// readPage fills values from the current page and returns how many.
func (l *parquetLeaf) readPage(values []Value) (int, error) {
	if !l.chunk.HasNext() {
		return 0, l.chunk.Err()
	}
	most := int64(len(values))
	var levels []int16
	if l.column.MaxDefinitionLevel() > 0 {
		levels = grow(&l.levels, len(values))
	}
	var (
		total int64
		err   error
	)
	var get func(i int) Value
	switch chunk := l.chunk.(type) {
	case *file.Int64ColumnChunkReader:
		data := grow(&l.int64s, len(values))
		total, _, err = chunk.ReadBatchInPage(most, data, levels, nil)
		get = func(i int) Value { return l.whole(data[i]) }
	case *file.Int32ColumnChunkReader:
		data := grow(&l.int32s, len(values))
		total, _, err = chunk.ReadBatchInPage(most, data, levels, nil)
		get = func(i int) Value { return l.whole(int64(data[i])) }
	case *file.Float64ColumnChunkReader:
		data := grow(&l.float64s, len(values))
		total, _, err = chunk.ReadBatchInPage(most, data, levels, nil)
		get = func(i int) Value { return Value{Kind: Float, Float: data[i]} }
	case *file.Float32ColumnChunkReader:
		data := grow(&l.float32s, len(values))
		total, _, err = chunk.ReadBatchInPage(most, data, levels, nil)
		get = func(i int) Value { return Value{Kind: Float, Float: float64(data[i])} }
	case *file.BooleanColumnChunkReader:
		data := grow(&l.bools, len(values))
		total, _, err = chunk.ReadBatchInPage(most, data, levels, nil)
		get = func(i int) Value { return boolean(data[i]) }
	case *file.ByteArrayColumnChunkReader:
		data := grow(&l.texts, len(values))
		total, _, err = chunk.ReadBatchInPage(most, data, levels, nil)
		get = func(i int) Value { return l.text(data[i]) }
	case *file.FixedLenByteArrayColumnChunkReader:
		data := grow(&l.fixed, len(values))
		total, _, err = chunk.ReadBatchInPage(most, data, levels, nil)
		get = func(i int) Value { return l.text(data[i]) }
	case *file.Int96ColumnChunkReader:
		data := grow(&l.int96s, len(values))
		total, _, err = chunk.ReadBatchInPage(most, data, levels, nil)
		get = func(i int) Value { return Value{Kind: Time, Int: data[i].ToTime().UnixMicro()} }
	default:
		return 0, fmt.Errorf("physical type %s is not supported", l.column.PhysicalType())
	}
	if err != nil {
		return 0, err
	}
	full, next := l.column.MaxDefinitionLevel(), 0
	for i := range int(total) {
		if levels != nil && levels[i] < full {
			values[i] = Value{}
			continue
		}
		values[i] = get(next)
		next++
	}
	return int(total), nil
}

// grow returns a slice of n elements that is reused between batches.
func grow[T any](slice *[]T, n int) []T {
	if cap(*slice) < n {
		*slice = make([]T, max(n, BatchSize))
	}
	return (*slice)[:n]
}

func boolean(b bool) Value {
	if b {
		return Value{Kind: Bool, Int: 1}
	}
	return Value{Kind: Bool}
}

// whole converts an integer by the column's logical type.
func (l *parquetLeaf) whole(n int64) Value {
	switch l.kind {
	case quality.Timestamp:
		if l.unit < 0 {
			return Value{Kind: Time, Int: n * -l.unit}
		}
		return Value{Kind: Time, Int: n / l.unit}
	case quality.Date:
		return Value{Kind: Date, Int: n}
	case quality.Decimal:
		return Value{Kind: Float, Float: float64(n) / l.scale}
	default:
		return Value{Kind: Int, Int: n}
	}
}

// text converts bytes. They are copied, because the next page reuses their memory.
func (l *parquetLeaf) text(data []byte) Value {
	if l.kind == quality.Decimal {
		unscaled := new(big.Int).SetBytes(data)
		if len(data) > 0 && data[0]&0x80 != 0 {
			unscaled.Sub(unscaled, new(big.Int).Lsh(big.NewInt(1), uint(8*len(data))))
		}
		f, _ := new(big.Float).SetInt(unscaled).Float64()
		return Value{Kind: Float, Float: f / l.scale}
	}
	from := len(l.arena)
	l.arena = append(l.arena, data...)
	kind := Text
	if l.kind == quality.Binary {
		kind = Bytes
	}
	return Value{Kind: kind, Text: l.arena[from:len(l.arena):len(l.arena)]}
}

func newLeaf(index int, column *schema.Column) *parquetLeaf {
	l := &parquetLeaf{index: index, column: column, kind: nodeType(column.SchemaNode()), unit: 1, scale: 1}
	switch logical := column.LogicalType().(type) {
	case schema.TimestampLogicalType:
		switch logical.TimeUnit() {
		case schema.TimeUnitMillis:
			l.unit = -1_000
		case schema.TimeUnitNanos:
			l.unit = 1_000
		default: // microseconds
		}
	case schema.DecimalLogicalType:
		l.scale = math.Pow10(int(logical.Scale()))
	}
	return l
}

// nodeType is the logical type of a field.
func nodeType(node schema.Node) quality.ColumnType {
	logical := node.LogicalType()
	leaf, primitive := node.(*schema.PrimitiveNode)
	if node.RepetitionType() == parquet.Repetitions.Repeated {
		return quality.Array
	}
	if !primitive {
		if _, list := logical.(schema.ListLogicalType); list {
			return quality.Array
		}
		return quality.Object
	}
	switch logical.(type) {
	case schema.StringLogicalType, schema.EnumLogicalType, schema.JSONLogicalType:
		return quality.String
	case schema.DecimalLogicalType:
		return quality.Decimal
	case schema.DateLogicalType:
		return quality.Date
	case schema.TimestampLogicalType:
		return quality.Timestamp
	}
	switch leaf.PhysicalType() {
	case parquet.Types.Boolean:
		return quality.Boolean
	case parquet.Types.Int32, parquet.Types.Int64:
		return quality.Integer
	case parquet.Types.Float, parquet.Types.Double:
		return quality.Number
	case parquet.Types.Int96:
		return quality.Timestamp
	}
	return quality.Binary
}
