package partition

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"go.arco.dev/servo/internal/base/canon"
	"go.arco.dev/servo/internal/base/fault"
	"go.arco.dev/servo/internal/domain/schedule"
)

var (
	date   = Dimension{Name: "date", Kind: Daily, Start: "2026-01-01"}
	region = Dimension{Name: "region", Kind: Static, Values: []string{"eu", "us"}}
	client = Dimension{Name: "client", Kind: Dynamic, Source: "clients"}
	noon   = time.Date(2026, 4, 1, 12, 0, 0, 0, time.UTC)
	lists  = Values{"clients": NewList([]Value{{Value: "acme", Number: 1}, {Value: "gone", Number: 2, Removed: true}, {Value: "zeta", Number: 3}})}
)

func scheme(t require.TestingT, dimensions ...Dimension) *Scheme {
	s, err := New(dimensions)
	require.NoError(t, err)
	return s.Bind(lists)
}

func drawScheme(t *rapid.T, dynamic bool) *Scheme {
	kind := rapid.SampledFrom([]Kind{Hourly, Daily, Weekly, Monthly}).Draw(t, "kind")
	start := kind.limits().First + rapid.Int64Range(0, 1000).Draw(t, "start")
	dimensions := []Dimension{{Name: "t", Kind: kind, Start: kind.spell(start), Timezone: rapid.SampledFrom(schedule.Zones()).Draw(t, "zone"), EndOffset: rapid.IntRange(-3, 3).Draw(t, "offset")}}
	if rapid.Bool().Draw(t, "two") {
		dimensions = append(dimensions, region)
	}
	if dynamic && rapid.Bool().Draw(t, "three") {
		dimensions = append(dimensions, client)
	}
	return scheme(t, rapid.Permutation(dimensions).Draw(t, "order")...)
}

func TestKeysRoundTrip(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		s := drawScheme(t, true)
		series, err := s.AllSeries()
		require.NoError(t, err)
		p := ID{rapid.SampledFrom(series).Draw(t, "series"), s.start + rapid.Int64Range(0, 60_000).Draw(t, "ordinal")}
		if !s.calendar.kind.limits().Contains(p.Ordinal) || !s.calendar.exists(p.Ordinal) {
			return
		}
		key := s.Key(p)
		canonical, err := canon.JSON([]byte(key))
		require.NoError(t, err)
		require.Equal(t, string(canonical), key)
		back, err := s.Parse(key)
		require.NoError(t, err)
		require.Equal(t, p, back)
		if len(s.dimensions) == 1 {
			back, err = s.Parse(Bare(key))
			require.NoError(t, err)
			require.Equal(t, p, back)
		}
		require.Equal(t, []string{key}, s.Keys(p.Series, Range{p.Ordinal, p.Ordinal}))
	})
}

func TestKeys(t *testing.T) {
	t.Parallel()
	both := scheme(t, date, region)
	require.Equal(t, `{"date":"2026-01-01","region":"eu"}`, both.Key(ID{`{"region":"eu"}`, 20454}))
	require.Equal(t, `{"date":"2026-01-01..2026-01-03","region":"eu"}`, both.RangeKey(`{"region":"eu"}`, Range{20454, 20456}))
	require.Equal(t, `{"client":"zeta"}`, scheme(t, client).Key(ID{"", 3}))
	require.Equal(t, `{"client":"gone"}`, scheme(t, client).Key(ID{"", 2}), "a removed value keeps its name")
	require.Equal(t, "zeta", Bare(`{"client":"zeta"}`))
	only := scheme(t, region)
	p, err := only.Parse("eu")
	require.NoError(t, err)
	require.Equal(t, ID{`{"region":"eu"}`, 0}, p)
	require.Equal(t, `{"region":"eu"}`, only.Key(p))

	apia := scheme(t, Dimension{Name: "date", Kind: Daily, Start: "2011-12-01", Timezone: "Pacific/Apia"})
	require.Equal(t, []string{`{"date":"2011-12-29"}`, `{"date":"2011-12-31"}`}, apia.Keys("", Range{15337, 15339}))
}

func TestSelections(t *testing.T) {
	t.Parallel()
	daily, both := scheme(t, date), scheme(t, date, region)
	hourly := scheme(t, Dimension{Name: "hour", Kind: Hourly, Start: "2026-01-01T00Z"})
	monthly := scheme(t, Dimension{Name: "month", Kind: Monthly, Start: "2026-01"})
	for _, c := range []struct {
		scheme *Scheme
		texts  string
		count  int64
	}{
		{daily, "2026-01-01", 1},
		{daily, "date=2026-01-01", 1},
		{daily, `{"date":"2026-01-01"}`, 1},
		{daily, "date=2026-01-01..2026-03-31", 90},
		{daily, "date=2026-01-01 2026-01-01 2026-01-02", 2},
		{daily, "date=*", 90},
		{daily, "2026-03-31..", 1},
		{daily, "..2026-01-02", 2},
		{daily, "2026-04-01", 1}, // the current one
		{daily, "2026-02", 28},
		{daily, "2026-01..2026-02", 59},
		{both, "date=2026-01-01", 2},
		{both, "date=2026-01-01,region=eu", 1},
		{both, `{"date":"2026-01-01..2026-01-02","region":"*"}`, 4},
		{hourly, "2026-01-01", 24},
		{monthly, "2026-01..2026-03", 3},
		{scheme(t, client), "*", 2},
		{scheme(t, client), "client=zeta", 1},
		{scheme(t, region, client), "region=eu", 2},
		{scheme(t, Dimension{Name: "date", Kind: Daily, Start: "2011-12-01", Timezone: "Pacific/Apia"}), "2011-12", 30},
	} {
		selection, err := ParseSelection(splitted(c.texts)...)
		require.NoError(t, err, c.texts)
		set, err := selection.Resolve(c.scheme, noon)
		require.NoError(t, err, c.texts)
		require.Equal(t, c.count, set.Count(), c.texts)
	}
}

// splitted splits texts at spaces, except those of JSON.
func splitted(text string) []string {
	if text != "" && text[0] == '{' {
		return []string{text}
	}
	return strings.Fields(text)
}

func TestSelectionFaults(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"":                                 "is empty",
		"date=":                            `"date=" is not dimension=value`,
		"date=2026-01-01,":                 `"" is not dimension=value`,
		"date=2026-01-01,date=*":           "names the dimension \"date\" twice",
		"dato=2026-01-01":                  `unknown dimension "dato"; did you mean date?`,
		"2026-01-01":                       `"2026-01-01" names no dimension, the partitions are date (daily) × region (static)`,
		"region=eu":                        "names no value of date",
		"date=2026-01-01,region=ue":        `unknown value "ue" of region`,
		"date=2026-01-01,region=eu..us":    "region is static: it has no ranges",
		"date=2026-03-31..2026-01-01":      `the range "2026-03-31..2026-01-01" is reversed`,
		"date=2025-12-31":                  "begins before the first partition 2026-01-01",
		"date=2026-04-02":                  "ends in the future: the current partition is 2026-04-01",
		"date=2026-04-01..":                "has no completed partition",
		"date=1.1.2026":                    `"1.1.2026" is not a value of date`,
		`{"date":1}`:                       "is not a JSON object of dimensions and values",
		"date=" + strings.Repeat("9", 999): "has 1004 characters, the limit is 1000",
	} {
		_, err := func() (Set, error) {
			selection, err := ParseSelection(text)
			if err != nil {
				return Set{}, err
			}
			return selection.Resolve(scheme(t, date, region), noon)
		}()
		f, ok := fault.As(err)
		require.True(t, ok, text)
		require.ErrorContains(t, err, want, text)
		require.Equal(t, "partitions[0]", f.Violation.Field, text)
		require.NotEmpty(t, f.Violation.Remedy, text)
	}
	t.Run("too many", func(t *testing.T) {
		t.Parallel()
		values := make([]string, MaxValues)
		for i := range values {
			values[i] = fmt.Sprintf("v%d", i)
		}
		hour := Dimension{Name: "hour", Kind: Hourly, Start: "1990-01-01T00Z"}
		selection, err := ParseSelection("hour=*")
		require.NoError(t, err)
		_, err = selection.Resolve(scheme(t, hour, Dimension{Name: "a", Kind: Static, Values: values}), noon)
		require.True(t, fault.Is(err, fault.LimitExceeded))
		require.ErrorContains(t, err, "the limit is 10000000")
		_, err = selection.Resolve(scheme(t, hour, Dimension{Name: "a", Kind: Static, Values: values}, Dimension{Name: "b", Kind: Static, Values: values}), noon)
		require.ErrorContains(t, err, "the selection has 1000000 series, the limit is 100000")
	})
	t.Run("a day that does not exist", func(t *testing.T) {
		t.Parallel()
		selection, err := ParseSelection("2011-12-30")
		require.NoError(t, err)
		_, err = selection.Resolve(scheme(t, Dimension{Name: "date", Kind: Daily, Start: "2011-12-01", Timezone: "Pacific/Apia"}), noon)
		require.ErrorContains(t, err, "the day 2011-12-30 does not exist in Pacific/Apia")
	})
}

func TestSelectionForSeveralSchemes(t *testing.T) {
	t.Parallel()
	selection, err := ParseSelection("date=2026-01-01..2026-01-02,region=eu")
	require.NoError(t, err)
	for want, s := range map[int64]*Scheme{
		2:  scheme(t, date),
		48: scheme(t, Dimension{Name: "hour", Kind: Hourly, Start: "2026-01-01T00Z"}),
		1:  scheme(t, Dimension{Name: "month", Kind: Monthly, Start: "2026-01"}, region),
	} {
		set, err := selection.For(s, noon)
		require.NoError(t, err)
		require.Equal(t, want, set.Count(), s.String())
	}
}

func TestUnknownDimensionsOfSeveralSchemes(t *testing.T) {
	t.Parallel()
	schemes := []*Scheme{scheme(t, date), scheme(t, region)}
	selection, err := ParseSelection("date=2026-01-01,region=eu", "2026-01-02")
	require.NoError(t, err)
	require.NoError(t, selection.Check(schemes))
	selection, err = ParseSelection("date=2026-01-01", "day=2026-01-01")
	require.NoError(t, err)
	err = selection.Check(schemes)
	require.ErrorContains(t, err, `partitions[1]: unknown dimension "day"`)
	require.ErrorContains(t, err, "use one of date, region")
}

func TestValidate(t *testing.T) {
	t.Parallel()
	for want, dimensions := range map[string][]Dimension{
		`[0].dimension: "Date" is not a valid name`:       {{Name: "Date", Kind: Daily, Start: "2026-01-01"}},
		`[1].dimension: "date" is declared twice`:         {date, {Name: "date", Kind: Static, Values: []string{"a"}}},
		`[1].kind: is a second time dimension`:            {date, {Name: "month", Kind: Monthly, Start: "2026-01"}},
		`[0].kind: "yearly" is not a kind`:                {{Name: "year", Kind: "yearly"}},
		`[0].start: is missing`:                           {{Name: "date", Kind: Daily}},
		`[0].start: "2026-01" is not a daily partition`:   {{Name: "date", Kind: Daily, Start: "2026-01"}},
		`[0].timezone: unknown time zone "Mars"`:          {{Name: "date", Kind: Daily, Start: "2026-01-01", Timezone: "Mars"}},
		`[0].end_offset: is 1001`:                         {{Name: "date", Kind: Daily, Start: "2026-01-01", EndOffset: 1001}},
		`[0].values: does not apply to a daily dimension`: {{Name: "date", Kind: Daily, Start: "2026-01-01", Values: []string{"a"}}},
		`[0].values: is missing`:                          {{Name: "region", Kind: Static}},
		`[0].values[1]: "a..b" is not a valid value`:      {{Name: "region", Kind: Static, Values: []string{"a.b", "a..b"}}},
		`[0].values[1]: "a" is listed twice`:              {{Name: "region", Kind: Static, Values: []string{"a", "a"}}},
		`[0].source: "" is not a valid name`:              {{Name: "client", Kind: Dynamic}},
		`[0].start: does not apply to a static dimension`: {{Name: "region", Kind: Static, Values: []string{"a"}, Start: "2026-01-01"}},
		`: has 4 dimensions, the limit is 3`:              {date, region, client, region},
	} {
		var got []string
		Validate(dimensions, func(field, message, remedy string) {
			require.NotEmpty(t, remedy)
			got = append(got, field+": "+message)
		})
		require.Len(t, got, 1, want)
		require.Contains(t, got[0], want)
		_, err := New(dimensions)
		require.True(t, fault.Is(err, fault.InvalidManifest))
	}
}

// TestCovered checks that consecutive slots cover each partition once, and each when it is complete.
func TestCovered(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		s := drawScheme(t, false)
		at := s.calendar.beginning(s.start).Add(time.Duration(rapid.Int64Range(-1e6, 1e6).Draw(t, "from")) * time.Second)
		begin := at
		seen := map[int64]bool{}
		for range rapid.IntRange(1, 6).Draw(t, "slots") {
			next := at.Add(time.Duration(rapid.Int64Range(0, 5_000_000).Draw(t, "step")) * time.Second)
			for _, r := range s.Covered(at, next) {
				for o := r.First; o <= r.Last; o++ {
					require.False(t, seen[o])
					seen[o] = true
					require.False(t, s.CompletedAt(o).After(next))
					require.True(t, s.CompletedAt(o).After(at))
				}
			}
			at = next
		}
		for o := max(s.start, s.Bounds(begin).Last+1); o <= s.Bounds(at).Last; o++ {
			require.Equal(t, s.calendar.exists(o), seen[o])
		}
		if last, ok := s.LastCovered(at); ok {
			require.False(t, s.CompletedAt(last).After(at))
			require.True(t, s.CompletedAt(last+1).After(at) || !s.calendar.exists(last+1))
		}
	})
}
