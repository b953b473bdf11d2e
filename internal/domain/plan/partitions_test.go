package plan_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"go.arco.dev/servo/internal/base/fault"
	"go.arco.dev/servo/internal/domain/partition"
	"go.arco.dev/servo/internal/domain/plan"
)

var later = time.Date(2026, 4, 1, 12, 0, 0, 0, time.UTC)

func named(t require.TestingT, texts ...string) func(*partition.Scheme) (partition.Set, error) {
	selection, err := partition.ParseSelection(texts...)
	require.NoError(t, err)
	return func(s *partition.Scheme) (partition.Set, error) { return selection.For(s, later) }
}

const divided = `
version: 1
assets:
  - {key: a/raw, go: {}, partitions: [{dimension: date, kind: daily, start: "2026-01-01"}, {dimension: region, kind: static, values: [eu, us]}]}
  - {key: b/clean, go: {}, upstream: [a/raw], partitions: [{dimension: date, kind: daily, start: "2026-01-01"}, {dimension: region, kind: static, values: [eu, us]}]}
  - {key: c/daily, go: {}, upstream: [b/clean], partition_mapping: {b/clean: first dimension, c/daily: previous}, partitions: [{dimension: date, kind: daily, start: "2026-01-01"}]}
  - {key: d/week, go: {}, upstream: [c/daily], partition_mapping: {c/daily: last 2 days}, partitions: [{dimension: date, kind: daily, start: "2026-01-01"}], partitions_per_task: 2}
  - {key: e/month, go: {}, upstream: [c/daily], partitions: [{dimension: month, kind: monthly, start: "2026-01"}]}
  - {key: f/total, go: {}, upstream: [e/month, g/rates]}
  - {key: g/rates, go: {}}
`

// edgesOf names the edges of a plan.
func edgesOf(p plan.Plan) []string {
	title := func(i int) string { return p.Tasks[i].Key + " " + p.Tasks[i].Partition }
	edges := make([]string, len(p.Edges))
	for i, e := range p.Edges {
		edges[i] = title(e[0]) + " → " + title(e[1])
	}
	return edges
}

func TestPlanOfPartitions(t *testing.T) {
	t.Parallel()
	planner, err := plan.NewPlanner(manifest(t, divided))
	require.NoError(t, err)

	t.Run("each mapping", func(t *testing.T) {
		t.Parallel()
		p, err := planner.Plan(plan.Request{Partitions: named(t, "date=2026-01-01..2026-01-03,region=*")})
		require.NoError(t, err)
		require.Equal(t, []string{
			`a/raw {"date":"2026-01-01","region":"eu"} → b/clean {"date":"2026-01-01","region":"eu"}`,
			`a/raw {"date":"2026-01-02","region":"eu"} → b/clean {"date":"2026-01-02","region":"eu"}`,
			`a/raw {"date":"2026-01-03","region":"eu"} → b/clean {"date":"2026-01-03","region":"eu"}`,
			`a/raw {"date":"2026-01-01","region":"us"} → b/clean {"date":"2026-01-01","region":"us"}`,
			`a/raw {"date":"2026-01-02","region":"us"} → b/clean {"date":"2026-01-02","region":"us"}`,
			`a/raw {"date":"2026-01-03","region":"us"} → b/clean {"date":"2026-01-03","region":"us"}`,
			`g/rates  → f/total `,
			`b/clean {"date":"2026-01-01","region":"eu"} → c/daily {"date":"2026-01-01"}`,
			`b/clean {"date":"2026-01-02","region":"eu"} → c/daily {"date":"2026-01-02"}`,
			`b/clean {"date":"2026-01-03","region":"eu"} → c/daily {"date":"2026-01-03"}`,
			`b/clean {"date":"2026-01-01","region":"us"} → c/daily {"date":"2026-01-01"}`,
			`b/clean {"date":"2026-01-02","region":"us"} → c/daily {"date":"2026-01-02"}`,
			`b/clean {"date":"2026-01-03","region":"us"} → c/daily {"date":"2026-01-03"}`,
			`c/daily {"date":"2026-01-01"} → c/daily {"date":"2026-01-02"}`,
			`c/daily {"date":"2026-01-01"} → d/week {"date":"2026-01-01..2026-01-02"}`,
			`c/daily {"date":"2026-01-01"} → e/month {"month":"2026-01"}`,
			`c/daily {"date":"2026-01-02"} → c/daily {"date":"2026-01-03"}`,
			`c/daily {"date":"2026-01-02"} → d/week {"date":"2026-01-01..2026-01-02"}`,
			`c/daily {"date":"2026-01-02"} → d/week {"date":"2026-01-03"}`,
			`c/daily {"date":"2026-01-02"} → e/month {"month":"2026-01"}`,
			`c/daily {"date":"2026-01-03"} → d/week {"date":"2026-01-03"}`,
			`c/daily {"date":"2026-01-03"} → e/month {"month":"2026-01"}`,
			`e/month {"month":"2026-01"} → f/total `,
		}, edgesOf(p))
		require.Equal(t, &plan.Range{Range: partition.Range{First: 20454, Last: 20455}}, p.Tasks[16].Range)
		require.Equal(t, []int{7, 6, 3, 3, 1}, p.Stages)
	})

	t.Run("a retry has the tasks that it names", func(t *testing.T) {
		t.Parallel()
		p, err := planner.Plan(plan.Request{Only: []plan.Target{
			{"c/daily", `{"date":"2026-01-02"}`}, {"b/clean", `{"date":"2026-01-02","region":"us"}`}, {"d/week", `{"date":"2026-01-01..2026-01-02"}`}, {"f/total", ""},
		}})
		require.NoError(t, err)
		require.Equal(t, []string{
			`b/clean {"date":"2026-01-02","region":"us"} → c/daily {"date":"2026-01-02"}`,
			`c/daily {"date":"2026-01-02"} → d/week {"date":"2026-01-01..2026-01-02"}`,
		}, edgesOf(p))
		require.Len(t, p.Tasks, 4)
		for _, gone := range []plan.Target{{"c/daily", `{"week":"2026-W01"}`}, {"g/rates", `{"date":"2026-01-02"}`}, {"c/daily", ""}} {
			_, err = planner.Plan(plan.Request{Only: []plan.Target{gone}})
			require.True(t, fault.Is(err, fault.Conflict), "%v", err)
		}
	})

	t.Run("all is one barrier", func(t *testing.T) {
		t.Parallel()
		m := manifest(t, `
version: 1
assets:
  - {key: a/hours, go: {}, partitions: [{dimension: hour, kind: hourly, start: "2026-01-01T00Z"}]}
  - {key: b/hours, go: {}, upstream: [a/hours], partition_mapping: {a/hours: all}, partitions: [{dimension: hour, kind: hourly, start: "2026-01-01T00Z"}]}
  - {key: c/hours, go: {}, upstream: [a/hours], partition_mapping: {a/hours: all}, partitions: [{dimension: hour, kind: hourly, start: "2026-01-01T00Z"}]}
`)
		p, err := plan.New(m, plan.Request{Partitions: named(t, "hour=2026-01")})
		require.NoError(t, err)
		require.Len(t, p.Tasks, 3*744+1)
		require.Len(t, p.Edges, 3*744, "744² without a barrier")
		require.True(t, p.Tasks[744].Barrier)
		require.Equal(t, plan.Barrier, p.Tasks[744].Partition)
		p, err = plan.New(m, plan.Request{Partitions: named(t, "hour=2026-01-01")})
		require.NoError(t, err)
		require.Len(t, p.Edges, 2*24*24, "few edges need none")
	})

	t.Run("faults", func(t *testing.T) {
		t.Parallel()
		for want, request := range map[string]plan.Request{
			`asset a/raw has partitions: date (daily) × region (static)`: {},
			`unknown dimension "dat"`: {Select: []string{"a/raw"}, Partitions: func(s *partition.Scheme) (partition.Set, error) {
				return mustSelect(t, "dat=2026-01-01").Resolve(s, later)
			}},
			`no selected asset has partitions`:         {Select: []string{"g/rates"}, Partitions: named(t, "date=2026-01-01")},
			`the plan has 180 tasks, the limit is 100`: {Select: []string{"a/raw"}, Partitions: named(t, "date=*"), Limit: 100},
			`begins before the first partition`:        {Select: []string{"a/raw"}, Partitions: named(t, "date=2025-01-01")},
		} {
			_, err := planner.Plan(request)
			f, ok := fault.As(err)
			require.True(t, ok, want)
			require.ErrorContains(t, err, want)
			require.NotEmpty(t, f.Violation.Remedy)
		}
		p, err := planner.Plan(plan.Request{Undivided: true})
		require.NoError(t, err)
		require.Len(t, p.Tasks, 7)
	})
}

func mustSelect(t require.TestingT, texts ...string) partition.Selection {
	selection, err := partition.ParseSelection(texts...)
	require.NoError(t, err)
	return selection
}

// TestPlanOfPartitionsProperties compares the edges with the mappings, partition by partition.
func TestPlanOfPartitionsProperties(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		perTask := rapid.IntRange(1, 5)
		mapping := rapid.SampledFrom([]string{"identity", "all", "last 3 days", "first dimension"}).Draw(t, "mapping")
		dims := `[{dimension: date, kind: daily, start: "2026-01-01"}, {dimension: region, kind: static, values: [eu, us]}]`
		m := manifest(t, fmt.Sprintf(`
version: 1
assets:
  - {key: a/a, go: {}, partitions: %s, partitions_per_task: %d}
  - {key: b/b, go: {}, upstream: [a/a], partitions: %s, partition_mapping: {a/a: %s}, partitions_per_task: %d}
`, dims, perTask.Draw(t, "a"), dims, mapping, perTask.Draw(t, "b")))
		from := rapid.IntRange(1, 20).Draw(t, "from")
		text := fmt.Sprintf("date=2026-01-%02d..2026-01-%02d", from, from+rapid.IntRange(0, 8).Draw(t, "days"))
		planner, err := plan.NewPlanner(m)
		require.NoError(t, err)
		p, err := planner.Plan(plan.Request{Partitions: named(t, text)})
		require.NoError(t, err)
		again, err := planner.Plan(plan.Request{Partitions: named(t, text)})
		require.NoError(t, err)
		require.Equal(t, p, again)
		rule, err := planner.Mapping("b/b", "a/a")
		require.NoError(t, err)
		edges := map[[2]int]bool{}
		for _, e := range p.Edges {
			require.Less(t, e[0], e[1])
			edges[e] = true
		}
		covered := map[string]int{}
		for _, down := range p.Tasks {
			for _, key := range planner.Scheme(down.Key).Keys(down.Range.Series, down.Range.Range) {
				covered[down.Key+key]++
			}
			if down.Key != "b/b" {
				continue
			}
			for _, up := range p.Tasks {
				if up.Key == "a/a" {
					own, theirs := partition.NewSet(down.Range.Series, down.Range.Range), partition.NewSet(up.Range.Series, up.Range.Range)
					require.Equal(t, !rule.Needed(own, theirs).Empty(), edges[[2]int{up.Index, down.Index}])
				}
			}
		}
		for key, n := range covered {
			require.Equal(t, 1, n, key)
		}
		require.True(t, slices.IsSortedFunc(p.Edges, func(a, b [2]int) int { return slices.Compare(a[:], b[:]) }))
	})
}
