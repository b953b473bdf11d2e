package checks_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"go.arco.dev/servo/internal/base/duration"
	"go.arco.dev/servo/internal/data/checks"
	"go.arco.dev/servo/internal/domain/quality"
)

var now = time.Date(2026, 2, 1, 0, 0, 0, 0, time.UTC)

func raw(text string) json.RawMessage { return json.RawMessage(text) }

func write(t require.TestingT, dir, content string) string {
	f, err := os.CreateTemp(dir, "rows")
	require.NoError(t, err)
	_, err = f.WriteString(content)
	require.NoError(t, err)
	require.NoError(t, f.Close())
	return f.Name()
}

const table = `{"id":1,"name":"ann","email":"ann@example.com","total":5,"at":"2026-01-31T00:00:00Z"}
{"id":2,"name":null,"email":"bob","total":-1,"at":"2026-01-31T12:00:00Z"}
{"id":2,"name":"eve","email":"eve@example.com","total":2.5,"at":null}
`

func request(t *testing.T, content string, list ...quality.Check) checks.Request {
	t.Helper()
	for i := range list {
		list[i].Normalise()
	}
	dir := t.TempDir()
	return checks.Request{
		Files: checks.Files{Paths: []string{write(t, dir, content)}, Format: quality.JSONL}, Checks: list,
		Sensitive: quality.Output{Sensitive: []string{"email"}}, Now: now, Dir: dir,
	}
}

// one runs a single check.
func one(t *testing.T, c quality.Check) quality.Result {
	t.Helper()
	report, err := checks.Run(t.Context(), request(t, table, c))
	require.NoError(t, err)
	require.Equal(t, int64(3), report.Rows)
	require.Len(t, report.Results, 1)
	return report.Results[0]
}

func TestChecks(t *testing.T) {
	t.Parallel()

	hour := duration.Duration(time.Hour)
	for name, c := range map[string]struct {
		check  quality.Check
		passes bool
		actual string
		sample string // of the first offending row
	}{
		"enough rows":        {check: quality.Check{Type: quality.RowCount, Min: raw("3"), Max: raw("3")}, passes: true, actual: "3"},
		"too few rows":       {check: quality.Check{Type: quality.RowCount, Min: raw("4")}, actual: "3"},
		"too many rows":      {check: quality.Check{Type: quality.RowCount, Max: raw("2")}, actual: "3"},
		"ratio without past": {check: quality.Check{Type: quality.RowCount, MinRatio: 2}, passes: true, actual: "3"},
		"a null":             {check: quality.Check{Type: quality.NotNull, Columns: []string{"id", "name"}}, actual: "1 of 3 rows violate it", sample: `{"row":2,"values":{"id":2,"name":null}}`},
		"no null":            {check: quality.Check{Type: quality.NotNull, Columns: []string{"id"}}, passes: true, actual: "0 of 3 rows violate it"},
		"a repeated id":      {check: quality.Check{Type: quality.Unique, Columns: []string{"id"}}, actual: "1 of 3 rows repeat another row", sample: `{"row":2,"values":{"id":2}}`},
		"nulls are distinct": {check: quality.Check{Type: quality.Unique, Columns: []string{"id", "name"}}, passes: true, actual: "0 of 2 rows repeat another row"},
		"fresh":              {check: quality.Check{Type: quality.Freshness, Column: "at", MaxAge: 13 * hour}, passes: true, actual: "newest is 2026-01-31T12:00:00Z, 12h0m0s old"},
		"not fresh":          {check: quality.Check{Type: quality.Freshness, Column: "at", MaxAge: 11 * hour}, actual: "newest is 2026-01-31T12:00:00Z, 12h0m0s old"},
		"below the range":    {check: quality.Check{Type: quality.Range, Column: "total", Min: raw("0")}, actual: "1 of 3 rows violate it", sample: `{"row":2,"values":{"total":-1}}`},
		"in the range":       {check: quality.Check{Type: quality.Range, Column: "total", Min: raw("-1"), Max: raw("5")}, passes: true, actual: "0 of 3 rows violate it"},
		"times as texts":     {check: quality.Check{Type: quality.Range, Column: "at", Min: raw(`"2026-01-31T06"`)}, actual: "1 of 3 rows violate it", sample: `{"row":1,"values":{"at":"2026-01-31T00:00:00Z"}}`},
		"accepted":           {check: quality.Check{Type: quality.AcceptedValues, Column: "total", Values: []json.RawMessage{raw("5"), raw("-1"), raw("2.5")}}, passes: true, actual: "0 of 3 rows violate it"},
		"not accepted":       {check: quality.Check{Type: quality.AcceptedValues, Column: "name", Values: []json.RawMessage{raw(`"ann"`)}}, actual: "1 of 3 rows violate it", sample: `{"row":3,"values":{"name":"eve"}}`},
		"no match":           {check: quality.Check{Type: quality.Regex, Column: "email", Pattern: "@"}, actual: "1 of 3 rows violate it", sample: `{"row":2,"values":{}}`},
		"schema":             {check: quality.Check{Type: quality.SchemaMatch, AllowExtra: true, Schema: []quality.Column{{Name: "id", Type: quality.Integer}, {Name: "at", Type: quality.Timestamp}, {Name: "total", Type: quality.Decimal}}}, passes: true, actual: "3 columns match"},
		"another schema":     {check: quality.Check{Type: quality.SchemaMatch, AllowExtra: true, Schema: []quality.Column{{Name: "name", Type: quality.Integer}, {Name: "x", Type: quality.String}}}, actual: `column "name" has values of type string; column "x" is missing`},
		"extra columns":      {check: quality.Check{Type: quality.SchemaMatch, Schema: []quality.Column{{Name: "id", Type: quality.Integer}, {Name: "name", Type: quality.String}, {Name: "email", Type: quality.String}, {Name: "total", Type: quality.Number}}}, actual: `column "at" is not declared`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			result := one(t, c.check)
			require.Empty(t, result.Error)
			require.Equal(t, c.passes, result.Passed, "%+v", result)
			require.Equal(t, c.actual, result.Actual)
			if c.sample != "" {
				require.NotEmpty(t, result.Sample)
				require.JSONEq(t, c.sample, string(result.Sample[0]))
			}
		})
	}
}

func TestErrors(t *testing.T) {
	t.Parallel()

	for name, c := range map[string]struct {
		check   quality.Check
		message string
	}{
		"a missing column":              {quality.Check{Type: quality.NotNull, Columns: []string{"nosuch"}}, `column "nosuch" does not exist; the output has`},
		"a number that is none":         {quality.Check{Type: quality.Range, Column: "name", Min: raw("0")}, `is not a number`},
		"a hidden number that is none":  {quality.Check{Type: quality.Range, Column: "email", Min: raw("0")}, `a value is not a number`},
		"a timestamp that is none":      {quality.Check{Type: quality.Freshness, Column: "name", MaxAge: duration.Duration(time.Hour)}, "no timestamps"},
		"a function without code":       {quality.Check{Type: quality.Custom, Name: "f"}, "has no function"},
		"a reference that has no files": {quality.Check{Type: quality.Referential, Column: "id", References: &quality.Reference{Asset: "a/b", Column: "id"}}, "inputs are not available"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			result := one(t, c.check)
			require.True(t, result.Failed())
			require.Contains(t, result.Error, c.message)
		})
	}

	t.Run("a check over its time limit has failed, others continue", func(t *testing.T) {
		t.Parallel()
		slow := quality.Check{Type: quality.NotNull, Columns: []string{"id"}, Timeout: duration.Duration(time.Second)}
		patient := quality.Check{Type: quality.Unique, Columns: []string{"at"}, Timeout: duration.Duration(time.Hour)}
		r := request(t, table, slow, patient)
		ticks := 0
		r.Clock = func() time.Time { ticks++; return now.Add(time.Duration(ticks) * time.Second) }
		report, err := checks.Run(t.Context(), r)
		require.NoError(t, err)
		require.Equal(t, "timed out after 1s", report.Results[0].Error)
		require.True(t, report.Results[1].Passed)
	})

	t.Run("a custom function is called unless a critical check failed before it", func(t *testing.T) {
		t.Parallel()
		calls := 0
		custom := quality.Check{Type: quality.Custom, Name: "balanced"}
		r := request(t, table, custom)
		r.Custom = func(context.Context, string) error { calls++; return errors.New("off by 3") }
		report, err := checks.Run(t.Context(), r)
		require.NoError(t, err)
		require.False(t, report.Results[0].Passed)
		require.Equal(t, "off by 3", report.Results[0].Actual)

		r = request(t, table, quality.Check{Type: quality.RowCount, Min: raw("9")}, custom)
		r.Custom = func(context.Context, string) error { calls++; return nil }
		report, err = checks.Run(t.Context(), r)
		require.NoError(t, err)
		require.True(t, report.Results[1].Skipped)
		require.Equal(t, 1, calls)
	})

	t.Run("rows of the version before", func(t *testing.T) {
		t.Parallel()
		r := request(t, table, quality.Check{Type: quality.RowCount, MinRatio: 0.5})
		before := int64(7)
		r.PreviousRows = &before
		report, err := checks.Run(t.Context(), r)
		require.NoError(t, err)
		require.False(t, report.Results[0].Passed)
		require.Contains(t, report.Results[0].Expected, "7 rows of the version before")
	})

	t.Run("an unreadable file is an error of the pass", func(t *testing.T) {
		t.Parallel()
		_, err := checks.Run(t.Context(), request(t, "[", quality.Check{Type: quality.RowCount, Min: raw("0")}))
		require.ErrorContains(t, err, "not readable as jsonl")
	})
}

// TestSpill compares unique and referential with a naive count, with budgets that spill and do not.
func TestSpill(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	rapid.Check(t, func(t *rapid.T) {
		values := rapid.SliceOfN(rapid.IntRange(0, 3_000), 1, 4_000).Draw(t, "values")
		permitted := rapid.SliceOfN(rapid.IntRange(0, 3_000), 1, 4_000).Draw(t, "permitted")
		lines := func(list []int) string {
			var text strings.Builder
			for _, v := range list {
				fmt.Fprintf(&text, "{\"v\":%d}\n", v)
			}
			return text.String()
		}
		seen, allowed, repeated := map[int]bool{}, map[int]bool{}, 0
		for _, v := range values {
			if seen[v] {
				repeated++
			}
			seen[v] = true
		}
		for _, v := range permitted {
			allowed[v] = true
		}
		missing := 0
		for v := range seen {
			if !allowed[v] {
				missing++
			}
		}
		upstream := write(t, dir, lines(permitted))
		report, err := checks.Run(t.Context(), checks.Request{
			Files: checks.Files{Paths: []string{write(t, dir, lines(values))}, Format: quality.JSONL},
			Checks: []quality.Check{
				{Type: quality.Unique, Columns: []string{"v"}},
				{Type: quality.Referential, Column: "v", References: &quality.Reference{Asset: "a/up", Column: "v"}},
			},
			References: func(string) (checks.Files, error) {
				return checks.Files{Paths: []string{upstream}, Format: quality.JSONL}, nil
			},
			Dir: dir, Memory: rapid.SampledFrom([]int64{1, 1 << 20}).Draw(t, "memory"),
		})
		require.NoError(t, err)
		require.Equal(t, fmt.Sprintf("%d of %d rows repeat another row", repeated, len(values)), report.Results[0].Actual)
		require.Equal(t, fmt.Sprintf("%d distinct values do not exist there", missing), report.Results[1].Actual)
		require.Equal(t, missing == 0, report.Results[1].Passed)
	})
	left, err := filepath.Glob(filepath.Join(dir, "servo-check-*"))
	require.NoError(t, err)
	require.Empty(t, left, "temporary files are deleted")
}
