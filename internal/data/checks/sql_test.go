//go:build duckdb && cgo

package checks_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"go.arco.dev/servo/internal/base/duration"
	"go.arco.dev/servo/internal/data/checks"
	"go.arco.dev/servo/internal/data/rows"
	"go.arco.dev/servo/internal/domain/quality"
)

// sqlRequest is a request for one query over the table, beside an upstream with countries.
func sqlRequest(t *testing.T, sql string) checks.Request {
	t.Helper()
	r := request(t, table, quality.Check{Type: quality.CustomSQL, Name: "q", SQL: sql})
	countries := write(t, r.Dir, "code,name\nde,\"Germany, the\"\nfr,\n")
	r.Sensitive, r.Inputs = quality.Output{}, []string{"silver/countries", "silver/broken"}
	r.References = func(key string) (checks.Files, error) {
		require.Equal(t, "silver/countries", key, "only upstreams that the query names are loaded")
		return checks.Files{Paths: []string{countries}, Format: quality.CSV, Schema: []quality.Column{{Name: "code", Type: quality.String}, {Name: "name", Type: quality.String}}}, nil
	}
	return r
}

func runSQL(t *testing.T, r checks.Request) quality.Result {
	t.Helper()
	report, err := checks.Run(t.Context(), r)
	require.NoError(t, err)
	require.Len(t, report.Results, 1)
	return report.Results[0]
}

func TestSQL(t *testing.T) {
	t.Parallel()

	t.Run("a query without rows passes", func(t *testing.T) {
		t.Parallel()
		result := runSQL(t, sqlRequest(t, "SELECT * FROM output WHERE total > 100 -- none;"))
		require.Empty(t, result.Error)
		require.True(t, result.Passed)
		require.Equal(t, "0 rows", result.Actual)
	})

	t.Run("a query with rows fails and shows them", func(t *testing.T) {
		t.Parallel()
		result := runSQL(t, sqlRequest(t, "SELECT id, sum(total) AS total FROM output GROUP BY id HAVING sum(total) < 5 ;\n"))
		require.Empty(t, result.Error)
		require.False(t, result.Passed)
		require.Equal(t, "1 rows", result.Actual)
		require.JSONEq(t, `{"row": 1, "values": {"id": 2, "total": "1.5"}}`, string(result.Sample[0]))
	})

	t.Run("upstreams are tables by their keys", func(t *testing.T) {
		t.Parallel()
		result := runSQL(t, sqlRequest(t, `SELECT name FROM "silver/countries" WHERE name IS NOT NULL`))
		require.Empty(t, result.Error)
		require.JSONEq(t, `{"row": 1, "values": {"name": "Germany, the"}}`, string(result.Sample[0]))
	})

	t.Run("rows are counted up to a limit", func(t *testing.T) {
		t.Parallel()
		result := runSQL(t, sqlRequest(t, "SELECT * FROM range(5000)"))
		require.Equal(t, "more than 1000 rows", result.Actual)
		require.Len(t, result.Sample, quality.MaxSample)
	})

	t.Run("rows are not shown if a table has a sensitive column", func(t *testing.T) {
		t.Parallel()
		r := sqlRequest(t, "SELECT email AS id FROM output")
		r.Sensitive = quality.Output{Sensitive: []string{"email"}}
		result := runSQL(t, r)
		require.Equal(t, "3 rows", result.Actual)
		require.Empty(t, result.Sample)
		r.Checks[0].SQL = "SELECT email::INTEGER FROM output"
		result = runSQL(t, r)
		require.Contains(t, result.Error, "Conversion Error")
		require.NotContains(t, result.Error, "ann")

		r = sqlRequest(t, `SELECT name AS x FROM "silver/countries"`)
		load := r.References
		r.References = func(key string) (checks.Files, error) {
			files, err := load(key)
			files.Sensitive = []string{"name"}
			return files, err
		}
		result = runSQL(t, r)
		require.Equal(t, "2 rows", result.Actual)
		require.Empty(t, result.Sample)
	})

	t.Run("an input is named input", func(t *testing.T) {
		t.Parallel()
		r := sqlRequest(t, "SELECT id FROM input WHERE id > 1")
		r.Checks[0].Phase = quality.Pre
		require.Equal(t, "2 rows", runSQL(t, r).Actual)
	})

	t.Run("Parquet", func(t *testing.T) {
		t.Parallel()
		r := sqlRequest(t, "SELECT * FROM output WHERE n = 7")
		type row struct {
			N int64 `parquet:"n"`
		}
		path := filepath.Join(r.Dir, "it's.parquet")
		w, err := rows.Create[row](path, quality.Parquet)
		require.NoError(t, err)
		for n := range int64(10) {
			require.NoError(t, w.Write(row{N: n}))
		}
		require.NoError(t, w.Close())
		r.Files = checks.Files{Paths: []string{path}, Format: quality.Parquet}
		result := runSQL(t, r)
		require.Empty(t, result.Error)
		require.Equal(t, "1 rows", result.Actual)
	})

	t.Run("a query that takes too long is stopped", func(t *testing.T) {
		t.Parallel()
		r := sqlRequest(t, "SELECT count(*) FROM range(1000000000) a, range(1000000000) b WHERE a.range * b.range = 7")
		r.Checks[0].Timeout = duration.Duration(200 * time.Millisecond)
		require.Equal(t, "timed out after 200ms", runSQL(t, r).Error)
	})

	t.Run("a cancelled task ends its query", func(t *testing.T) {
		t.Parallel()
		ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
		defer cancel()
		_, err := checks.Run(ctx, sqlRequest(t, "SELECT count(*) FROM range(1000000000) a, range(1000000000) b WHERE a.range * b.range = 7"))
		require.ErrorIs(t, err, context.DeadlineExceeded)
	})
}

// TestSQLIsConfined runs queries that try to leave their tables. Each is refused.
func TestSQLIsConfined(t *testing.T) {
	t.Parallel()
	asked := false
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		asked = true
		_, _ = w.Write([]byte("a\n1\n"))
	}))
	t.Cleanup(server.Close)
	outside := t.TempDir()
	secret := filepath.Join(outside, "secret.csv")
	require.NoError(t, os.WriteFile(secret, []byte("a\n1\n"), 0o600))
	target := filepath.Join(outside, "written.csv")

	for name, c := range map[string]struct{ sql, message string }{
		"a file":                  {"SELECT * FROM '" + secret + "'", "uses a file or the network"},
		"a file by a function":    {"SELECT * FROM read_text('" + secret + "')", "uses a file or the network"},
		"a list of files":         {"SELECT * FROM glob('" + outside + "/*')", "uses a file or the network"},
		"a URL":                   {"SELECT * FROM read_csv('" + server.URL + "/a.csv')", ""},
		"a database":              {"ATTACH '" + filepath.Join(outside, "x.db") + "'", "not a SELECT"},
		"a copy":                  {"COPY output TO '" + target + "'", "uses a file or the network"},
		"a setting":               {"SET enable_external_access = true", "not a SELECT"},
		"an extension":            {"INSTALL httpfs", "not a SELECT"},
		"a table":                 {"CREATE TABLE x AS SELECT 1", "not a SELECT"},
		"two statements":          {"SELECT 1; COPY output TO '" + target + "'", "more than one statement"},
		"an escape from brackets": {"SELECT 1) LIMIT 1; COPY output TO '" + target + "'; SELECT * FROM (SELECT 1", "syntax error"},
		"a missing table":         {"SELECT * FROM nosuch", "nosuch"},
		"a missing column":        {"SELECT nosuch FROM output", "nosuch"},
		"no SQL":                  {"hello", "syntax error"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			result := runSQL(t, sqlRequest(t, c.sql))
			require.True(t, result.Failed())
			require.NotEmpty(t, result.Error)
			require.Contains(t, result.Error, c.message)
			require.NoFileExists(t, target)
		})
	}
	t.Cleanup(func() { require.False(t, asked, "no query reaches the network") })
}
