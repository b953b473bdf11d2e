package rows_test

import (
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"go.arco.dev/servo/internal/base/fault"
	"go.arco.dev/servo/internal/data/rows"
	"go.arco.dev/servo/internal/domain/quality"
)

type order struct {
	ID    int64     `json:"id"    parquet:"id"`
	Name  *string   `json:"name"  parquet:"name,optional"`
	Total float64   `json:"total" parquet:"total"`
	At    time.Time `json:"at"    parquet:"at,timestamp(microsecond)"`
	Paid  bool      `json:"paid"  parquet:"paid"`
}

func text(s string) *string { return &s }

var at = time.Date(2026, 1, 31, 10, 0, 0, 0, time.UTC)

func orders(n int) []order {
	list := make([]order, n)
	for i := range list {
		list[i] = order{ID: int64(i), Total: float64(i) / 2, At: at.Add(time.Duration(i) * time.Second), Paid: i%2 == 0}
		if i%3 != 0 {
			list[i].Name = text(fmt.Sprintf("name %d", i%7))
		}
	}
	return list
}

// write writes rows to one file.
func write[T any](t *testing.T, format quality.Format, list []T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "rows."+string(format))
	w, err := rows.Create[T](path, format)
	require.NoError(t, err)
	require.NoError(t, w.Write(list...))
	require.Equal(t, int64(len(list)), w.Rows())
	require.NoError(t, w.Close())
	return path
}

func file(t *testing.T, content string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "file")
	require.NoError(t, os.WriteFile(path, []byte(content), 0o600))
	return path
}

// all reads every row as text, and the columns.
func all(files []string, format quality.Format, want []string, declared []quality.Column) (lines []string, columns []quality.Column, err error) {
	r, err := rows.Open(files, format, want, declared)
	if err != nil {
		return nil, nil, err
	}
	defer func() { _ = r.Close() }()
	var b rows.Batch
	for {
		if err := r.Next(&b); errors.Is(err, io.EOF) {
			return lines, r.Columns(), nil
		} else if err != nil {
			return nil, nil, err
		}
		for i := range b.N {
			var fields []string
			for _, column := range b.Cols {
				fields = append(fields, string(column[i].JSON(100)))
			}
			lines = append(lines, strings.Join(fields, " "))
		}
	}
}

func TestRoundTrip(t *testing.T) {
	t.Parallel()
	for _, format := range []quality.Format{quality.Parquet, quality.JSONL} {
		t.Run(string(format), func(t *testing.T) {
			t.Parallel()
			list := orders(5_000)
			path := write(t, format, list)
			lines, columns, err := all([]string{path}, format, []string{"id", "name", "total", "at", "paid"}, nil)
			require.NoError(t, err)
			require.Len(t, lines, len(list))
			require.Equal(t, `7 "name 0" 3.5 "2026-01-31T10:00:07Z" false`, lines[7])
			require.Equal(t, `3000 null 1500 "2026-01-31T10:50:00Z" true`, lines[3000])
			require.Len(t, columns, 5)
			var back []order
			require.NoError(t, rows.ReadTyped([]string{path}, format, func(o order) bool {
				o.At = o.At.UTC()
				back = append(back, o)
				return true
			}))
			require.Equal(t, list, back)
		})
	}
}

func TestParquetOfOthers(t *testing.T) {
	t.Parallel()

	t.Run("DuckDB with LZ4_RAW", func(t *testing.T) {
		t.Parallel()
		lines, columns, err := all([]string{"testdata/duckdb_lz4_raw.parquet"}, quality.Parquet, []string{"id", "name", "v", "price", "day", "at", "even", "address.city", "wide"}, nil)
		require.NoError(t, err)
		require.Len(t, lines, 50)
		require.Equal(t, `5 "n5" 2.5 6.25 "2026-01-06" "2026-01-01T10:00:05Z" false "c5" 5`, lines[5])
		require.Contains(t, columns, quality.Column{Name: "price", Type: quality.Decimal})
		require.Contains(t, columns, quality.Column{Name: "address", Type: quality.Object})
		require.Contains(t, columns, quality.Column{Name: "list", Type: quality.Array})
		require.Contains(t, columns, quality.Column{Name: "day", Type: quality.Date})
		_, _, err = all([]string{"testdata/duckdb_lz4_raw.parquet"}, quality.Parquet, []string{"list.list.element"}, nil)
		require.ErrorContains(t, err, "repeated")
	})

	t.Run("pyarrow with small pages and a dictionary", func(t *testing.T) {
		t.Parallel()
		lines, columns, err := all([]string{"testdata/pyarrow_zstd.parquet"}, quality.Parquet, []string{"id", "name", "at", "ms", "f", "raw", "none"}, nil)
		require.NoError(t, err)
		require.Len(t, lines, 50)
		require.Equal(t, `49 "n0" "2026-01-01T10:00:49Z" "2026-01-01T10:00:49Z" 12.25 "MQ==" null`, lines[49])
		require.Equal(t, `48 null "2026-01-01T10:00:48Z" "2026-01-01T10:00:48Z" 12 "MA==" null`, lines[48])
		require.Contains(t, columns, quality.Column{Name: "raw", Type: quality.Binary})
	})
}

func TestText(t *testing.T) {
	t.Parallel()

	t.Run("CSV takes its types from the schema, and an empty field is null", func(t *testing.T) {
		t.Parallel()
		path := file(t, "\ufeffid,name,total,day,paid\n1,\"a, \"\"b\"\"\",1.5,2026-01-31,true\nx,,,2026-02-30,maybe\n")
		declared := []quality.Column{{Name: "id", Type: quality.Integer}, {Name: "total", Type: quality.Number}, {Name: "day", Type: quality.Date}, {Name: "paid", Type: quality.Boolean}}
		lines, columns, err := all([]string{path}, quality.CSV, []string{"id", "name", "total", "day", "paid", "none"}, declared)
		require.NoError(t, err)
		require.Equal(t, []string{`1 "a, \"b\"" 1.5 "2026-01-31" true null`, `"x" null null "2026-02-30" "maybe" null`}, lines)
		require.Equal(t, quality.Column{Name: "name", Type: quality.String}, columns[1])
	})

	t.Run("JSON is an array of objects, or one object", func(t *testing.T) {
		t.Parallel()
		for content, want := range map[string][]string{
			`[]`:                                 nil,
			` [{"a": 1}, {"a": "x", "b": [1]}] `: {`1 null`, `"x" "[1]"`},
			`{"a": 1.5, "b": null}`:              {`1.5 null`},
		} {
			lines, _, err := all([]string{file(t, content)}, quality.JSON, []string{"a", "b"}, nil)
			require.NoError(t, err, content)
			require.Equal(t, want, lines, content)
		}
	})

	t.Run("types of JSON columns are the widest of their values", func(t *testing.T) {
		t.Parallel()
		_, columns, err := all([]string{file(t, `{"a":1,"b":null}`+"\n\n"+`{"a":1.5,"b":true}`), file(t, `{"c":{}}`)}, quality.JSONL, nil, nil)
		require.NoError(t, err)
		require.ElementsMatch(t, []quality.Column{{Name: "a", Type: quality.Number}, {Name: "b", Type: quality.Boolean}, {Name: "c", Type: quality.Object}}, columns)
	})

	t.Run("files with other columns are refused", func(t *testing.T) {
		t.Parallel()
		_, _, err := all([]string{file(t, "a,b\n1,2\n"), file(t, "a,c\n1,2\n")}, quality.CSV, nil, nil)
		require.True(t, fault.Is(err, fault.InvalidArgument))
		require.ErrorContains(t, err, "other columns")
	})
}

func TestHostile(t *testing.T) {
	t.Parallel()

	t.Run("malformed files are faults that name the file", func(t *testing.T) {
		t.Parallel()
		for _, c := range []struct {
			format  quality.Format
			content string
		}{
			{quality.CSV, ""},
			{quality.CSV, "a,a\n1,2"},
			{quality.CSV, "a,b\n1\n"},
			{quality.CSV, "a\n\"never ends"},
			{quality.CSV, "a\n\"" + strings.Repeat("x", rows.MaxRow+200_000)},
			{quality.JSON, ""},
			{quality.JSON, "5"},
			{quality.JSON, "[1]"},
			{quality.JSON, `[{"a":1}`},
			{quality.JSON, `[{"a":1}] x`},
			{quality.JSON, `{"a":`},
			{quality.JSON, `[` + strings.Repeat("[", 20_000)},
			{quality.JSONL, "[1]"},
			{quality.JSONL, "null"},
			{quality.JSONL, `{"a":1}` + "\n" + `{"a"`},
			{quality.JSONL, `{"a":"` + strings.Repeat("x", rows.MaxRow+200_000)},
			{quality.JSONL, `{"a":1e999}`},
			{quality.Parquet, ""},
			{quality.Parquet, "PAR1"},
			{quality.Parquet, "PAR1PAR1"},
			{quality.Parquet, "PAR1\xff\xff\xff\x7fPAR1"},
			{quality.Parquet, strings.Repeat("x", 5000)},
		} {
			_, _, err := all([]string{file(t, c.content)}, c.format, []string{"a"}, nil)
			require.True(t, fault.Is(err, fault.InvalidArgument), "%s %.40q: %v", c.format, c.content, err)
		}
	})

	t.Run("a truncated or damaged Parquet file never panics", func(t *testing.T) {
		t.Parallel()
		paths := []string{write(t, quality.Parquet, orders(3_000)), "testdata/duckdb_lz4_raw.parquet", "testdata/pyarrow_zstd.parquet"}
		random := rand.New(rand.NewPCG(1, 2))
		for _, path := range paths {
			data, err := os.ReadFile(path)
			require.NoError(t, err)
			for i := range 120 {
				damaged := string(data[:random.IntN(len(data))]) // truncated
				if i%2 == 0 {
					bytes := []byte(string(data))
					for range 1 + random.IntN(3) {
						bytes[random.IntN(len(bytes))] ^= byte(1 + random.IntN(255))
					}
					damaged = string(bytes)
				}
				_, _, err := all([]string{file(t, damaged)}, quality.Parquet, []string{"id", "name", "at"}, nil)
				if i%2 != 0 {
					require.Error(t, err, "a truncated file has no footer")
				}
				if err != nil {
					require.True(t, fault.Is(err, fault.InvalidArgument), "%v", err)
				}
			}
		}
	})

	t.Run("no files are refused", func(t *testing.T) {
		t.Parallel()
		_, err := rows.Open(nil, quality.Parquet, nil, nil)
		require.ErrorContains(t, err, "has no files")
	})
}
