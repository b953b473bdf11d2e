package partition

import (
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"go.arco.dev/servo/internal/base/fault"
)

// TestInverseMappings checks that a partition needs an upstream's exactly if the inverse has it.
func TestInverseMappings(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		kinds := []Kind{Hourly, Daily, Weekly, Monthly}
		zones := []string{"UTC", "Asia/Kolkata", "Europe/Berlin", "Pacific/Apia", "America/Goose_Bay"}
		one := func(name string) *Scheme {
			kind := rapid.SampledFrom(kinds).Draw(t, name+" kind")
			d := Dimension{Name: "t", Kind: kind, Start: kind.spell(kind.limits().First), Timezone: rapid.SampledFrom(zones).Draw(t, name+" zone")}
			return scheme(t, d, region)
		}
		down, up := one("down"), one("up")
		text := rapid.SampledFrom([]string{"", MapAll, MapFirstDimension, "last 3 " + up.calendar.kind.unit()}).Draw(t, "mapping")
		m, err := NewMapping(text, down, up)
		require.NoError(t, err)
		at := noon.AddDate(rapid.IntRange(-16, 0).Draw(t, "years"), 0, rapid.IntRange(0, 400).Draw(t, "days"))
		d := down.At(at) + rapid.Int64Range(-2, 2).Draw(t, "d")
		u := up.At(at) + rapid.Int64Range(-4, 4).Draw(t, "u")
		if !down.calendar.exists(d) || !up.calendar.exists(u) {
			return
		}
		needs := m.Upstream(Range{d, d}).Contains(u)
		require.Equal(t, needs, m.Downstream(Range{u, u}).Contains(d))
		for _, series := range []string{`{"region":"eu"}`, `{"region":"us"}`} {
			own, theirs := NewSet(`{"region":"eu"}`, Range{d, d}), NewSet(series, Range{u, u})
			require.Equal(t, m.Needed(own, theirs).Empty(), m.Affected(theirs, own).Empty())
			related := (series == `{"region":"eu"}` || text == MapAll || text == MapFirstDimension) && (needs || text == MapAll)
			require.Equal(t, related, !m.Needed(own, theirs).Empty())
		}
		if text == "" && down.calendar.kind != up.calendar.kind { // by time
			from, until := down.Interval(d)
			start, end := up.Interval(u)
			require.Equal(t, from.Before(end) && start.Before(until), needs)
		}
	})
}

func TestMappings(t *testing.T) {
	t.Parallel()
	daily := scheme(t, date)
	m, err := NewMapping("last 7 days", daily, daily)
	require.NoError(t, err)
	require.Equal(t, Range{20454, 20460}, m.Upstream(Range{20460, 20460}))
	m, err = NewMapping(MapPrevious, daily, daily)
	require.NoError(t, err)
	require.Equal(t, Range{20459, 20459}, m.Upstream(Range{20460, 20460}))
	require.Equal(t, Range{20461, 20461}, m.Downstream(Range{20460, 20460}))
	m, err = NewMapping("", scheme(t, Dimension{Name: "month", Kind: Monthly, Start: "2026-01"}), daily)
	require.NoError(t, err)
	require.Equal(t, Range{20454, 20484}, m.Upstream(Range{672, 672}))
	m, err = NewMapping(MapFirstDimension, daily, scheme(t, date, region))
	require.NoError(t, err)
	require.Equal(t, m.Group(`{"region":"eu"}`), m.Group(""))
	m, err = NewMapping(MapFirstDimension, scheme(t, region), scheme(t, region, date))
	require.NoError(t, err)
	require.True(t, m.Whole())
	require.NotEqual(t, m.Group(`{"region":"eu"}`), m.Group(`{"region":"us"}`))
	m, err = NewMapping("", nil, daily)
	require.NoError(t, err)
	require.True(t, m.All())
}

func TestMappingFaults(t *testing.T) {
	t.Parallel()
	daily, both := scheme(t, date), scheme(t, date, region)
	for _, c := range []struct {
		text     string
		down, up *Scheme
		want     string
	}{
		{"", daily, both, "the numbers of dimensions differ"},
		{"", daily, scheme(t, region), "the upstream has another dimension, region"},
		{"", scheme(t, region), daily, "only the upstream has time"},
		{"", scheme(t, client), scheme(t, Dimension{Name: "client", Kind: Dynamic, Source: "others"}), "the dimension client differs"},
		{"last 7 hours", daily, daily, "counts hours, the upstream is daily"},
		{"last 7 days", scheme(t, region), scheme(t, region), "needs a time dimension"},
		{"last 1001 days", daily, daily, "the limit is 1000"},
		{"last 0 days", daily, daily, "unknown mapping"},
		{"sometimes", daily, daily, "unknown mapping"},
		{"last 7 days", nil, daily, "needs partitions on both sides"},
		{MapFirstDimension, scheme(t, region, date), daily, "the first dimensions are not related"},
		{MapPrevious, scheme(t, region), scheme(t, region), "previous needs a time dimension"},
	} {
		_, err := NewMapping(c.text, c.down, c.up)
		f, ok := fault.As(err)
		require.True(t, ok, c.text)
		require.ErrorContains(t, err, c.want)
		require.NotEmpty(t, f.Violation.Remedy)
	}
}
