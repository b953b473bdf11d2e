package quality_test

import (
	"encoding/json"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"go.arco.dev/servo/internal/base/duration"
	"go.arco.dev/servo/internal/domain/quality"
)

func raw(text string) json.RawMessage { return json.RawMessage(text) }

// errorsOf validates one check of an asset with an output and the upstream a/up.
func errorsOf(c quality.Check) map[string]string {
	found := map[string]string{}
	quality.Declaration{
		Output: &quality.Output{Format: quality.Parquet}, Checks: []quality.Check{c},
		Upstream: []string{"a/up"}, Functions: true, Files: true,
	}.Validate(func(field, message, remedy string) {
		if remedy == "" {
			message = "no remedy"
		}
		found[field] = message
	})
	return found
}

func TestValidate(t *testing.T) {
	t.Parallel()

	t.Run("a complete check of each type is valid", func(t *testing.T) {
		t.Parallel()
		for _, c := range []quality.Check{
			{Type: quality.RowCount, Min: raw("0"), Max: raw("5")},
			{Type: quality.NotNull, Columns: []string{"a", "b"}},
			{Type: quality.Unique, Columns: []string{"a"}},
			{Type: quality.Freshness, Column: "at", MaxAge: duration.Duration(time.Hour)},
			{Type: quality.SchemaMatch, Schema: []quality.Column{{Name: "a", Type: quality.String}}, AllowExtra: true},
			{Type: quality.Range, Column: "a", Min: raw("-1.5"), Max: raw("2")},
			{Type: quality.Range, Column: "a", Min: raw(`"2026-01-01"`)},
			{Type: quality.AcceptedValues, Column: "a", Values: []json.RawMessage{raw(`"x"`), raw("1"), raw("true")}},
			{Type: quality.Regex, Column: "a", Pattern: "^a+$"},
			{Type: quality.Referential, Column: "a", References: &quality.Reference{Asset: "a/up", Column: "id"}},
			{Type: quality.Custom, Function: "orders.Balanced"},
			{Type: quality.RowCount, Min: raw("1"), Phase: quality.Pre, Input: "a/up"},
		} {
			require.Empty(t, errorsOf(c), "%+v", c)
		}
	})

	t.Run("every mistake names its field", func(t *testing.T) {
		t.Parallel()
		for field, c := range map[string]quality.Check{
			"checks[0].type":              {Type: "rows"},
			"checks[0].min":               {Type: quality.RowCount},
			"checks[0].max":               {Type: quality.RowCount, Min: raw("3"), Max: raw("2")},
			"checks[0].min_ratio":         {Type: quality.RowCount, MinRatio: -1},
			"checks[0].columns":           {Type: quality.Unique},
			"checks[0].columns[1]":        {Type: quality.NotNull, Columns: []string{"a", "a"}},
			"checks[0].max_age":           {Type: quality.Freshness, Column: "at"},
			"checks[0].column":            {Type: quality.Freshness, MaxAge: duration.Duration(time.Hour)},
			"checks[0].values[0]":         {Type: quality.AcceptedValues, Column: "a", Values: []json.RawMessage{raw("{}")}},
			"checks[0].values":            {Type: quality.AcceptedValues, Column: "a"},
			"checks[0].pattern":           {Type: quality.Regex, Column: "a", Pattern: "["},
			"checks[0].references.asset":  {Type: quality.Referential, Column: "a", References: &quality.Reference{Asset: "a/other", Column: "id"}},
			"checks[0].references.column": {Type: quality.Referential, Column: "a", References: &quality.Reference{Asset: "a/up"}},
			"checks[0].sql":               {Type: quality.CustomSQL, SQL: "  "},
			"checks[0].function":          {Type: quality.Custom, Function: "a b"},
			"checks[0].phase":             {Type: quality.RowCount, Min: raw("1"), Phase: "DURING"},
			"checks[0].input":             {Type: quality.RowCount, Min: raw("1"), Input: "a/up"},
			"checks[0].timeout":           {Type: quality.RowCount, Min: raw("1"), Timeout: 1},
			"checks[0].name":              {Type: quality.RowCount, Min: raw("1"), Name: "a\nb"},
			"checks[0].schema[0].type":    {Type: quality.SchemaMatch, Schema: []quality.Column{{Name: "a", Type: "text"}}},
		} {
			found := errorsOf(c)
			require.Contains(t, found, field, "%+v", c)
			require.NotContains(t, found, "no remedy")
		}
	})
}

// checks draws declared checks with distinct names.
func checks(t *rapid.T) []quality.Check {
	severities := rapid.SliceOfN(rapid.SampledFrom(append([]quality.Severity{""}, quality.Severities...)), 0, 8).Draw(t, "severities")
	var list []quality.Check
	for i, s := range severities {
		list = append(list, quality.Check{Name: string(rune('a' + i)), Type: quality.Custom, Severity: s})
	}
	return list
}

// results draws results that may be missing, repeated, skipped, and report other severities.
func results(t *rapid.T, declared []quality.Check) []quality.Result {
	var list []quality.Result
	for _, c := range declared {
		for range rapid.IntRange(0, 2).Draw(t, "reports") {
			r := quality.Of(c)
			r.Passed, r.Skipped = rapid.Bool().Draw(t, "passed"), rapid.Bool().Draw(t, "skipped")
			r.Severity = rapid.SampledFrom(quality.Severities).Draw(t, "reported severity")
			list = append(list, r)
		}
	}
	return list
}

func strictness(g quality.Gate) int {
	return slices.Index([]quality.Gate{quality.Allow, quality.Warn, quality.Quarantine, quality.Block}, g)
}

func TestDecide(t *testing.T) {
	t.Parallel()

	t.Run("a version is promoted only if every critical check passed", func(t *testing.T) {
		t.Parallel()
		rapid.Check(t, func(t *rapid.T) {
			declared := checks(t)
			reported := results(t, declared)
			gate := quality.Decide(declared, reported, rapid.Bool().Draw(t, "quarantine"))
			passed := func(c quality.Check) bool {
				ran := false
				for _, r := range reported {
					if r.Name == c.Name {
						if !r.Passed {
							return false
						}
						ran = true
					}
				}
				return ran
			}
			for _, c := range declared {
				if (c.Severity == quality.Critical || c.Severity == "") && !passed(c) {
					require.False(t, gate.Promotes())
				}
			}
		})
	})

	t.Run("one more failure never loosens the gate", func(t *testing.T) {
		t.Parallel()
		rapid.Check(t, func(t *rapid.T) {
			declared := checks(t)
			if len(declared) == 0 {
				return
			}
			reported := results(t, declared)
			quarantine := rapid.Bool().Draw(t, "quarantine")
			before := quality.Decide(declared, reported, quarantine)
			worse := quality.Of(declared[rapid.IntRange(0, len(declared)-1).Draw(t, "failing")])
			after := quality.Decide(declared, append([]quality.Result{worse}, reported...), quarantine)
			require.GreaterOrEqual(t, strictness(after), strictness(before))
		})
	})

	t.Run("each severity has its effect", func(t *testing.T) {
		t.Parallel()
		for severity, want := range map[quality.Severity]quality.Gate{
			quality.Info: quality.Allow, quality.Warning: quality.Allow, quality.Error: quality.Warn, quality.Critical: quality.Block, "": quality.Block,
		} {
			c := quality.Check{Name: "a", Type: quality.Custom, Severity: severity}
			failed := quality.Of(c)
			require.Equal(t, want, quality.Decide([]quality.Check{c}, []quality.Result{failed}, false), severity)
			passed := failed
			passed.Passed = true
			require.Equal(t, quality.Allow, quality.Decide([]quality.Check{c}, []quality.Result{passed}, true), severity)
			require.Equal(t, want, quality.Decide([]quality.Check{c}, []quality.Result{passed, failed}, false), "the worse result counts")
		}
		critical := []quality.Check{{Name: "a", Type: quality.Custom}}
		require.Equal(t, quality.Quarantine, quality.Decide(critical, nil, true))
		require.Equal(t, quality.Allow, quality.Decide(nil, nil, true))
	})

	t.Run("messages name the most severe failure", func(t *testing.T) {
		t.Parallel()
		declared := []quality.Check{{Name: "a", Severity: quality.Error}, {Name: "b", Severity: quality.Critical}, {Name: "c", Severity: quality.Critical}}
		first, ok := quality.FirstFailure(declared, []quality.Result{{Name: "a"}, {Name: "c"}, {Name: "b", Skipped: true}})
		require.True(t, ok)
		require.Equal(t, "c", first.Name)
	})
}

func TestSensitive(t *testing.T) {
	t.Parallel()
	o := quality.Output{Sensitive: []string{"email", "address"}}
	for column, want := range map[string]bool{"email": true, "emails": false, "address.city": true, "name": false, "": false} {
		require.Equal(t, want, o.IsSensitive(column), column)
	}
}
