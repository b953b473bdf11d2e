package plan_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"go.arco.dev/servo/internal/base/canon"
	"go.arco.dev/servo/internal/base/fault"
	"go.arco.dev/servo/internal/domain/asset"
	"go.arco.dev/servo/internal/domain/plan"
)

const shop = `
version: 1
assets:
  - {key: gold/revenue, go: {}, upstream: [silver/orders, bronze/rates], pool: big, timeout: 2h}
  - {key: bronze/orders, go: {}, tags: [daily]}
  - {key: silver/orders, go: {}, upstream: [bronze/orders]}
  - {key: bronze/rates, go: {}, tags: [daily]}
pipelines:
  - name: revenue
    select: [+gold/revenue]
    parameters:
      - {name: day, type: string, required: true}
      - {name: limit, type: integer, default: 10}
  - name: rates
    select: [bronze/rates]
`

func manifest(t require.TestingT, yaml string) *asset.Manifest {
	m, err := asset.Parse([]byte(yaml), "servo.yaml")
	require.NoError(t, err)
	return m
}

func targets(keys ...string) (all []plan.Target) {
	for _, key := range keys {
		all = append(all, plan.Target{Asset: key})
	}
	return all
}

func TestPlan(t *testing.T) {
	t.Parallel()

	t.Run("tasks are ordered by stage, then by key", func(t *testing.T) {
		t.Parallel()
		p, err := plan.New(manifest(t, shop), plan.Request{Pipeline: "revenue", Parameters: json.RawMessage(`{"day":"2026-01-01"}`)})
		require.NoError(t, err)
		hour := asset.Duration(time.Hour)
		require.Equal(t, []plan.Task{
			{Index: 0, Key: "bronze/orders", Needs: "go:bronze/orders", Pool: "default", Timeout: hour, Stage: 0},
			{Index: 1, Key: "bronze/rates", Needs: "go:bronze/rates", Pool: "default", Timeout: hour, Stage: 0},
			{Index: 2, Key: "silver/orders", Needs: "go:silver/orders", Pool: "default", Timeout: hour, Stage: 1},
			{Index: 3, Key: "gold/revenue", Needs: "go:gold/revenue", Pool: "big", Timeout: 2 * hour, Stage: 2},
		}, p.Tasks)
		require.Equal(t, [][2]int{{0, 2}, {1, 3}, {2, 3}}, p.Edges)
		require.Equal(t, []int{2, 1, 1}, p.Stages)
		require.Equal(t, `{"day":"2026-01-01","limit":10}`, string(p.Parameters))
	})

	t.Run("upstreams outside the selection are not waited for", func(t *testing.T) {
		t.Parallel()
		p, err := plan.New(manifest(t, shop), plan.Request{Select: []string{"gold/revenue", "bronze/orders"}})
		require.NoError(t, err)
		require.Equal(t, []string{"bronze/orders", "gold/revenue"}, p.Keys())
		require.Empty(t, p.Edges)
		require.Equal(t, []int{2}, p.Stages)
	})

	t.Run("neither pipeline nor selection is all", func(t *testing.T) {
		t.Parallel()
		p, err := plan.New(manifest(t, shop), plan.Request{})
		require.NoError(t, err)
		require.Len(t, p.Tasks, 4)
		require.Equal(t, `{}`, string(p.Parameters))
	})

	t.Run("the fingerprint is that of the plan without it, and stays", func(t *testing.T) {
		t.Parallel()
		p, err := plan.New(manifest(t, shop), plan.Request{Pipeline: "rates"})
		require.NoError(t, err)
		bare := p
		bare.Fingerprint = ""
		printed, err := json.Marshal(bare)
		require.NoError(t, err)
		canonical, err := canon.JSON(printed)
		require.NoError(t, err)
		require.Equal(t, `{"edges":[],"parameters":{},"pipeline":"rates","stages":[1],"tasks":[{"index":0,"key":"bronze/rates","pool":"default","stage":0,"timeout":"1h"}]}`, string(canonical))
		require.Equal(t, canon.Sum(canonical), p.Fingerprint)
		require.Equal(t, "9fe6ac94aa43c3ca79ee8076f653fbd69bd3e7c2e848206794e619e68fdf44db", p.Fingerprint)
	})

	t.Run("another request has another fingerprint", func(t *testing.T) {
		t.Parallel()
		planner, err := plan.NewPlanner(manifest(t, shop))
		require.NoError(t, err)
		seen := map[string]bool{}
		for _, request := range []plan.Request{
			{},
			{Select: []string{"bronze/*"}},
			{Select: []string{"bronze/rates"}},
			{Pipeline: "rates"},
			{Pipeline: "revenue", Parameters: json.RawMessage(`{"day":"1"}`)},
			{Pipeline: "revenue", Parameters: json.RawMessage(`{"day":"2"}`)},
		} {
			p, err := planner.Plan(request)
			require.NoError(t, err)
			require.False(t, seen[p.Fingerprint])
			seen[p.Fingerprint] = true
		}
		one, err := planner.Plan(plan.Request{Select: []string{"bronze/rates", "bronze/orders"}})
		require.NoError(t, err)
		two, err := planner.Plan(plan.Request{Select: []string{"tag:daily"}})
		require.NoError(t, err)
		require.Equal(t, one, two, "the same tasks are the same plan, however they were named")
	})
}

func TestPlanOfAPart(t *testing.T) {
	t.Parallel()
	m := manifest(t, shop)
	parameters := json.RawMessage(`{"day":"1"}`)
	whole, err := plan.New(m, plan.Request{Pipeline: "revenue", Parameters: parameters})
	require.NoError(t, err)
	keys := whole.Keys()
	require.Greater(t, len(keys), 1)

	again, err := plan.New(m, plan.Request{Pipeline: "revenue", Parameters: parameters, Only: targets(keys...)})
	require.NoError(t, err)
	require.Equal(t, whole, again, "all of a pipeline is the pipeline")

	part, err := plan.New(m, plan.Request{Pipeline: "revenue", Parameters: parameters, Only: targets(keys[1:]...)})
	require.NoError(t, err)
	require.ElementsMatch(t, keys[1:], part.Keys())
	require.Equal(t, "revenue", part.Pipeline)
	require.Equal(t, whole.Parameters, part.Parameters)
	require.NotEqual(t, whole.Fingerprint, part.Fingerprint)

	_, err = plan.New(m, plan.Request{Pipeline: "revenue", Only: targets(keys[1:]...)})
	require.ErrorContains(t, err, "parameters.day: is missing", "the pipeline's parameters are checked for a part too")
}

func TestPlanRefuses(t *testing.T) {
	t.Parallel()

	for name, c := range map[string]struct {
		request plan.Request
		want    string
	}{
		"an unknown pipeline":           {plan.Request{Pipeline: "revenu"}, `pipeline: unknown pipeline "revenu"; did you mean revenue? (name a pipeline of this manifest)`},
		"a pipeline and a selection":    {plan.Request{Pipeline: "rates", Select: []string{"*"}}, "select: a pipeline has its own selection (set a pipeline or a selection, not both)"},
		"an unknown asset":              {plan.Request{Select: []string{"gold/revenues"}}, "select[0]: unknown asset gold/revenues; did you mean gold/revenue?"},
		"an unknown asset to do again":  {plan.Request{Pipeline: "rates", Only: targets("gold/revenues")}, `only[0]: unknown asset "gold/revenues"; did you mean gold/revenue?`},
		"no selection":                  {plan.Request{Select: []string{"?"}}, `select[0]: "?" is not a selection`},
		"a missing parameter":           {plan.Request{Pipeline: "revenue"}, "parameters.day: is missing"},
		"a parameter without pipeline":  {plan.Request{Parameters: json.RawMessage(`{"day":"1"}`)}, "parameters.day: unknown parameter"},
		"parameters that are not JSON":  {plan.Request{Parameters: json.RawMessage(`{`)}, "parameters: unexpected end of the document"},
		"an unknown selection and more": {plan.Request{Select: []string{"a/b", "tag:x"}}, "and 1 more"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := plan.New(manifest(t, shop), c.request)
			f, ok := fault.As(err)
			require.True(t, ok)
			require.Equal(t, fault.InvalidArgument, f.Code)
			require.ErrorContains(t, err, c.want)
			require.NotEmpty(t, f.Violation.Remedy)
		})
	}

	t.Run("a manifest without pipelines is reported", func(t *testing.T) {
		t.Parallel()
		_, err := plan.New(manifest(t, "version: 1\nassets: [{key: a/b, go: {}}]"), plan.Request{Pipeline: "p"})
		require.ErrorContains(t, err, "this manifest has no pipelines")
	})

	t.Run("a manifest without validation", func(t *testing.T) {
		t.Parallel()
		a := asset.Asset{Key: "n/a", Upstream: []string{"n/b"}}
		b := asset.Asset{Key: "n/b", Upstream: []string{"n/a"}}
		_, err := plan.New(&asset.Manifest{Assets: []asset.Asset{a, b}}, plan.Request{})
		require.True(t, fault.Is(err, fault.CycleDetected))
		_, err = plan.New(&asset.Manifest{Assets: []asset.Asset{a}}, plan.Request{})
		require.True(t, fault.Is(err, fault.InvalidManifest))
	})
}

// drawManifest draws a valid manifest, in an order of its own.
func drawManifest(t *rapid.T) *asset.Manifest {
	n := rapid.IntRange(1, 12).Draw(t, "n")
	m := &asset.Manifest{Version: 1}
	for i := range n {
		a := asset.Asset{
			Key:  fmt.Sprintf("n%d/a%d", rapid.IntRange(0, 2).Draw(t, "namespace"), i),
			Pool: rapid.SampledFrom([]string{"", "big"}).Draw(t, "pool"),
			Go:   &asset.Go{},
		}
		for _, earlier := range m.Assets {
			if rapid.IntRange(0, 2).Draw(t, "edge") == 0 {
				a.Upstream = append(a.Upstream, earlier.Key)
			}
		}
		m.Assets = append(m.Assets, a)
	}
	return m
}

func shuffle(t *rapid.T, m *asset.Manifest) *asset.Manifest {
	shuffled := &asset.Manifest{Version: 1, Assets: rapid.Permutation(m.Assets).Draw(t, "assets")}
	for i := range shuffled.Assets {
		if len(shuffled.Assets[i].Upstream) > 0 {
			shuffled.Assets[i].Upstream = rapid.Permutation(shuffled.Assets[i].Upstream).Draw(t, "upstream")
		}
	}
	return shuffled
}

func normalised(t require.TestingT, m *asset.Manifest) *asset.Manifest {
	require.NoError(t, m.Validate())
	n, err := m.Normalised()
	require.NoError(t, err)
	return n
}

func drawSelection(t *rapid.T, m *asset.Manifest) []string {
	return rapid.SliceOfN(rapid.Custom(func(t *rapid.T) string {
		return rapid.SampledFrom([]string{"", "+"}).Draw(t, "up") +
			rapid.SampledFrom(m.Assets).Draw(t, "asset").Key +
			rapid.SampledFrom([]string{"", "+"}).Draw(t, "down")
	}), 1, 3).Draw(t, "select")
}

func TestPlanProperties(t *testing.T) {
	t.Parallel()

	t.Run("the order of the input does not matter", func(t *testing.T) {
		t.Parallel()
		rapid.Check(t, func(t *rapid.T) {
			m := drawManifest(t)
			selection := drawSelection(t, m)
			one, err := plan.New(normalised(t, m), plan.Request{Select: selection})
			require.NoError(t, err)
			two, err := plan.New(normalised(t, shuffle(t, m)), plan.Request{Select: rapid.Permutation(selection).Draw(t, "selection")})
			require.NoError(t, err)
			first, err := json.Marshal(one)
			require.NoError(t, err)
			second, err := json.Marshal(two)
			require.NoError(t, err)
			require.Equal(t, string(first), string(second))
		})
	})

	t.Run("edges are exactly the upstreams inside the selection, and go forward", func(t *testing.T) {
		t.Parallel()
		rapid.Check(t, func(t *rapid.T) {
			m := drawManifest(t)
			p, err := plan.New(normalised(t, m), plan.Request{Select: drawSelection(t, m)})
			require.NoError(t, err)
			keys := p.Keys()
			want := [][2]int{}
			for _, a := range m.Assets {
				for _, u := range a.Upstream {
					from, to := slices.Index(keys, u), slices.Index(keys, a.Key)
					if from >= 0 && to >= 0 {
						want = append(want, [2]int{from, to})
					}
				}
			}
			require.ElementsMatch(t, want, p.Edges)
			require.True(t, slices.IsSortedFunc(p.Edges, func(a, b [2]int) int { return slices.Compare(a[:], b[:]) }))
			for _, edge := range p.Edges {
				require.Less(t, edge[0], edge[1])
				require.Less(t, p.Tasks[edge[0]].Stage, p.Tasks[edge[1]].Stage)
			}
		})
	})

	t.Run("a stage is the longest path, and tasks are in order", func(t *testing.T) {
		t.Parallel()
		rapid.Check(t, func(t *rapid.T) {
			m := drawManifest(t)
			p, err := plan.New(normalised(t, m), plan.Request{Select: drawSelection(t, m)})
			require.NoError(t, err)
			var longest func(task int) int
			longest = func(task int) int {
				length := 0
				for _, edge := range p.Edges {
					if edge[1] == task {
						length = max(length, longest(edge[0])+1)
					}
				}
				return length
			}
			counts := make([]int, len(p.Stages))
			for i, task := range p.Tasks {
				require.Equal(t, i, task.Index)
				require.Equal(t, longest(i), task.Stage)
				counts[task.Stage]++
				if i > 0 {
					before := p.Tasks[i-1]
					require.True(t, before.Stage < task.Stage || before.Stage == task.Stage && before.Key < task.Key)
				}
			}
			require.Equal(t, counts, p.Stages)
		})
	})

	t.Run("the tasks are the closure of the selection", func(t *testing.T) {
		t.Parallel()
		rapid.Check(t, func(t *rapid.T) {
			m := drawManifest(t)
			start := rapid.SampledFrom(m.Assets).Draw(t, "start").Key
			up := rapid.Bool().Draw(t, "up")
			expression, touches := start+"+", func(a, b asset.Asset) bool { return slices.Contains(b.Upstream, a.Key) }
			if up {
				expression, touches = "+"+start, func(a, b asset.Asset) bool { return slices.Contains(a.Upstream, b.Key) }
			}
			p, err := plan.New(normalised(t, m), plan.Request{Select: []string{expression}})
			require.NoError(t, err)

			want := map[string]bool{start: true}
			for changed := true; changed; {
				changed = false
				for _, a := range m.Assets {
					for _, b := range m.Assets {
						if want[a.Key] && !want[b.Key] && touches(a, b) {
							want[b.Key], changed = true, true
						}
					}
				}
			}
			require.Len(t, p.Tasks, len(want))
			for _, key := range p.Keys() {
				require.True(t, want[key])
			}
		})
	})
}
