//go:build duckdb && cgo

package checks

import (
	"context"
	"database/sql/driver"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/duckdb/duckdb-go/v2"

	"go.arco.dev/servo/internal/base/fault"
	"go.arco.dev/servo/internal/domain/quality"
)

// HasSQL reports whether this build runs custom_sql checks.
const HasSQL = true

// sqlMemory is the least memory that DuckDB is given; below it, it fails instead of using the disk.
const sqlMemory = 256 << 20

// sqlSpill is the most disk space that one query may use.
const sqlSpill = "10GiB"

// runSQL runs one query in a database of its own, in memory. The query sees its tables and nothing
// else: files that are not its tables, the network, extensions and settings are closed before it runs.
func runSQL(ctx context.Context, q sqlQuery) (found sqlRows, err error) {
	connector, err := duckdb.NewConnector("", nil)
	if err != nil {
		return sqlRows{}, fmt.Errorf("open DuckDB: %w", err)
	}
	defer func() { _ = connector.Close() }()
	opened, err := connector.Connect(ctx)
	if err != nil {
		return sqlRows{}, fmt.Errorf("open DuckDB: %w", err)
	}
	defer func() { _ = opened.Close() }()
	conn, ok := opened.(*duckdb.Conn)
	if !ok {
		return sqlRows{}, fmt.Errorf("open DuckDB: unexpected connection %T", opened)
	}
	for _, statement := range setup(q) {
		if _, err := conn.ExecContext(ctx, statement, nil); err != nil {
			return sqlRows{}, sqlError(err)
		}
	}
	query := strings.TrimRight(strings.TrimSpace(q.text), "; \n\t")
	if err := onlySelects(conn, query); err != nil {
		return sqlRows{}, err
	}
	return collect(ctx, conn, fmt.Sprintf("SELECT * FROM (\n%s\n) LIMIT %d", query, q.limit))
}

// setup returns the statements before the query: limits, tables, and last the locks.
func setup(q sqlQuery) []string {
	var paths []string
	for _, t := range q.tables {
		paths = append(paths, t.Paths...)
	}
	statements := []string{
		"SET autoinstall_known_extensions = false",
		"SET autoload_known_extensions = false",
		"SET threads = 1",
		"SET preserve_insertion_order = false",
		"SET TimeZone = 'UTC'",
		fmt.Sprintf("SET memory_limit = '%dMiB'", max(q.memory, sqlMemory)>>20),
		"SET temp_directory = " + literal(q.dir),
		"SET max_temp_directory_size = " + literal(sqlSpill),
		"SET allowed_paths = " + literals(paths),
	}
	for _, t := range q.tables {
		statements = append(statements, fmt.Sprintf("CREATE VIEW %s AS SELECT * FROM %s", identifier(t.name), t.source()))
	}
	return append(statements, "SET enable_external_access = false", "SET lock_configuration = true")
}

// onlySelects refuses everything except one statement that reads.
func onlySelects(conn *duckdb.Conn, query string) error {
	refuse := func(message string) error {
		return fault.New(fault.InvalidArgument, message, fault.Field("sql"), fault.Remedy("write one SELECT that returns the offending rows"))
	}
	prepared, err := conn.Prepare(query)
	if err != nil {
		if strings.Contains(err.Error(), "multiple statements") || strings.Contains(err.Error(), "PrepareContext") {
			return refuse("the query has more than one statement")
		}
		return sqlError(err)
	}
	defer func() { _ = prepared.Close() }()
	statement, ok := prepared.(*duckdb.Stmt)
	if !ok {
		return fmt.Errorf("unexpected statement %T", prepared)
	}
	kind, err := statement.StatementType()
	if err != nil {
		return sqlError(err)
	}
	if kind != duckdb.STATEMENT_TYPE_SELECT {
		return refuse("the query is not a SELECT")
	}
	return nil
}

func collect(ctx context.Context, conn *duckdb.Conn, query string) (sqlRows, error) {
	result, err := conn.QueryContext(ctx, query, nil)
	if err != nil {
		return sqlRows{}, sqlError(err)
	}
	defer func() { _ = result.Close() }()
	found := sqlRows{columns: result.Columns()}
	for {
		row := make([]driver.Value, len(found.columns))
		if err := result.Next(row); errors.Is(err, io.EOF) {
			return found, nil
		} else if err != nil {
			return sqlRows{}, sqlError(err)
		}
		values := make([]any, len(row))
		for i, v := range row {
			values[i] = v
		}
		found.rows = append(found.rows, values)
	}
}

// source is the expression that reads the files of a table, with the columns that the pass found.
func (t sqlTable) source() string {
	switch t.Format {
	case quality.CSV:
		return fmt.Sprintf("read_csv(%s, auto_detect = false, header = true, delim = ',', quote = '\"', escape = '\"', nullstr = '', new_line = '\\n', columns = %s)", literals(t.Paths), t.columns())
	case quality.JSONL:
		return fmt.Sprintf("read_json(%s, format = 'newline_delimited', columns = %s)", literals(t.Paths), t.columns())
	case quality.JSON:
		return fmt.Sprintf("read_json(%s, format = 'auto', columns = %s)", literals(t.Paths), t.columns())
	default:
		return fmt.Sprintf("read_parquet(%s)", literals(t.Paths))
	}
}

// columns are names and types, as the readers of DuckDB expect them.
func (t sqlTable) columns() string {
	list := make([]string, len(t.Schema))
	for i, c := range t.Schema {
		list[i] = literal(c.Name) + ": " + literal(sqlTypes[c.Type])
	}
	return "{" + strings.Join(list, ", ") + "}"
}

// sqlTypes are the types of columns in formats that have no types of their own.
var sqlTypes = map[quality.ColumnType]string{
	quality.String: "VARCHAR", quality.Integer: "BIGINT", quality.Number: "DOUBLE", quality.Decimal: "DECIMAL(38, 9)",
	quality.Boolean: "BOOLEAN", quality.Date: "DATE", quality.Timestamp: "TIMESTAMP", quality.Binary: "BLOB",
	quality.Object: "JSON", quality.Array: "JSON",
}

// sqlError is an error of DuckDB for people: its first line, which names the cause.
func sqlError(err error) error {
	text, _, _ := strings.Cut(err.Error(), "\n")
	if strings.HasPrefix(text, "Permission Error") {
		return fault.New(fault.InvalidArgument, "the query uses a file or the network: "+text, fault.Field("sql"), fault.Remedy("read only output, input and the upstreams by their keys"))
	}
	return errors.New(text)
}

func identifier(name string) string { return `"` + strings.ReplaceAll(name, `"`, `""`) + `"` }

func literal(text string) string { return "'" + strings.ReplaceAll(text, "'", "''") + "'" }

func literals(texts []string) string {
	quoted := make([]string, len(texts))
	for i, text := range texts {
		quoted[i] = literal(text)
	}
	return "[" + strings.Join(quoted, ", ") + "]"
}
