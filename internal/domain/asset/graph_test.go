package asset_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"go.arco.dev/servo/internal/base/fault"
	"go.arco.dev/servo/internal/domain/asset"
)

// wire makes assets from "a<b,c" lines: a has upstreams b and c, all in namespace n.
func wire(lines ...string) []asset.Asset {
	assets := make([]asset.Asset, 0, len(lines))
	for _, line := range lines {
		name, upstream, _ := strings.Cut(line, "<")
		a := asset.Asset{Key: "n/" + name, Go: &asset.Go{}}
		for _, u := range strings.FieldsFunc(upstream, func(r rune) bool { return r == ',' }) {
			a.Upstream = append(a.Upstream, "n/"+u)
		}
		assets = append(assets, a)
	}
	return assets
}

func everything(g *asset.Graph) []bool {
	return slices.Repeat([]bool{true}, g.Len())
}

func TestCycles(t *testing.T) {
	t.Parallel()

	for name, c := range map[string]struct {
		lines []string
		want  []string
	}{
		"none":                             {[]string{"a", "b<a", "c<a,b"}, nil},
		"two assets":                       {[]string{"b<a", "a<b"}, []string{"cycle: n/a → n/b → n/a"}},
		"the direction is the data's":      {[]string{"a<c", "b<a", "c<b"}, []string{"cycle: n/a → n/b → n/c → n/a"}},
		"the shortest of a knot":           {[]string{"a<e", "b<a", "c<b", "d<c", "e<d,f", "f<e"}, []string{"cycle: n/e → n/f → n/e"}},
		"a shorter one that starts later":  {[]string{"a<d", "b<a,d", "c<b", "d<c"}, []string{"cycle: n/b → n/c → n/d → n/b"}},
		"one for each knot":                {[]string{"a<b", "b<a", "c<b", "d<c,e", "e<d"}, []string{"cycle: n/a → n/b → n/a", "cycle: n/d → n/e → n/d"}},
		"what hangs on a cycle is not one": {[]string{"a", "b<a,c", "c<b", "d<c"}, []string{"cycle: n/b → n/c → n/b"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			rapid.Check(t, func(t *rapid.T) {
				lines := rapid.Permutation(c.lines).Draw(t, "lines")
				err := (&asset.Manifest{Version: 1, Assets: wire(lines...)}).Validate()
				var messages []string
				if f, ok := fault.As(err); ok {
					for _, v := range f.Violations() {
						require.Equal(t, fault.CycleDetected, v.Code)
						require.Equal(t, "remove one of these upstreams", v.Remedy)
						messages = append(messages, v.Message)
					}
				}
				require.Equal(t, c.want, messages)
			})
		})
	}

	t.Run("the field is where the cycle is closed", func(t *testing.T) {
		t.Parallel()
		err := (&asset.Manifest{Version: 1, Assets: wire("a<c", "b<a", "c<b")}).Validate()
		require.EqualError(t, err, "assets[n/b].upstream: cycle: n/a → n/b → n/c → n/a (remove one of these upstreams)")
	})

	t.Run("a cycle of ten thousand is shortened", func(t *testing.T) {
		t.Parallel()
		lines := make([]string, 10_000)
		for i := range lines {
			lines[i] = fmt.Sprintf("n%05d<n%05d", i, (i+len(lines)-1)%len(lines))
		}
		err := (&asset.Manifest{Version: 1, Assets: wire(lines...)}).Validate()
		require.ErrorContains(t, err, "cycle: n/n00000 → n/n00001 → ")
		require.ErrorContains(t, err, "n/n00018 → (9980 more) → n/n09999 → n/n00000")
	})

	t.Run("a random graph has a cycle if a walk finds one", func(t *testing.T) {
		t.Parallel()
		rapid.Check(t, func(t *rapid.T) {
			assets := drawAssets(t, false)
			err := (&asset.Manifest{Version: 1, Assets: assets}).Validate()
			shortest := naiveShortestCycle(assets)
			if shortest == 0 {
				require.NoError(t, err)
				return
			}
			f, ok := fault.As(err)
			require.True(t, ok)
			least := 1 << 30
			for _, v := range f.Violations() {
				path := strings.Split(strings.TrimPrefix(v.Message, "cycle: "), " → ")
				require.Equal(t, path[0], path[len(path)-1])
				for i := 1; i < len(path); i++ {
					j := slices.IndexFunc(assets, func(a asset.Asset) bool { return a.Key == path[i] })
					require.Contains(t, assets[j].Upstream, path[i-1])
				}
				least = min(least, len(path)-1)
			}
			require.Equal(t, shortest, least)
		})
	})
}

// drawAssets draws a small graph; an acyclic one has upstreams among earlier assets only.
func drawAssets(t *rapid.T, acyclic bool) []asset.Asset {
	n := rapid.IntRange(1, 9).Draw(t, "n")
	assets := make([]asset.Asset, n)
	for i := range assets {
		assets[i] = asset.Asset{Key: fmt.Sprintf("n%d/a%d", i%3, i), Go: &asset.Go{}}
		for j := range n {
			if j != i && (j < i || !acyclic) && rapid.IntRange(0, 3).Draw(t, "edge") == 0 {
				assets[i].Upstream = append(assets[i].Upstream, fmt.Sprintf("n%d/a%d", j%3, j))
			}
		}
		if rapid.Bool().Draw(t, "tagged") {
			assets[i].Tags = []string{"t"}
		}
		if rapid.Bool().Draw(t, "owned") {
			assets[i].Owners = []string{"o"}
		}
	}
	return assets
}

// naiveShortestCycle multiplies the adjacency matrix until a node reaches itself.
func naiveShortestCycle(assets []asset.Asset) int {
	n := len(assets)
	index := map[string]int{}
	for i, a := range assets {
		index[a.Key] = i
	}
	step := make([][]bool, n)
	for i := range step {
		step[i] = make([]bool, n)
		for _, u := range assets[i].Upstream {
			step[i][index[u]] = true
		}
	}
	reach := step
	for length := 1; length <= n; length++ {
		for i := range n {
			if reach[i][i] {
				return length
			}
		}
		next := make([][]bool, n)
		for i := range n {
			next[i] = make([]bool, n)
			for j := range n {
				for k := range n {
					next[i][j] = next[i][j] || reach[i][k] && step[k][j]
				}
			}
		}
		reach = next
	}
	return 0
}

func TestGraph(t *testing.T) {
	t.Parallel()

	t.Run("nodes are numbered by key", func(t *testing.T) {
		t.Parallel()
		g, err := asset.NewGraph(wire("c<b,a", "a", "b<a"))
		require.NoError(t, err)
		require.Equal(t, []string{"n/a", "n/b", "n/c"}, g.Keys())
		require.Equal(t, []int{0, 1}, g.Upstream(2))
		require.Equal(t, []int{1, 2}, g.Downstream(0))
		i, ok := g.Index("n/b")
		require.True(t, ok)
		require.Equal(t, "n/b", g.Asset(i).Key)
		stages, err := g.Stages(everything(g))
		require.NoError(t, err)
		require.Equal(t, []int{0, 1, 2}, stages)
	})

	t.Run("what does not fit together is a fault", func(t *testing.T) {
		t.Parallel()
		_, err := asset.NewGraph(wire("a", "a"))
		require.ErrorContains(t, err, "duplicate")
		_, err = asset.NewGraph(wire("aa", "b<ab"))
		require.ErrorContains(t, err, "assets[n/b].upstream[0]: unknown asset n/ab; did you mean n/aa?")
		g, err := asset.NewGraph(wire("a<b", "b<a"))
		require.NoError(t, err)
		_, err = g.Stages(everything(g))
		require.True(t, fault.Is(err, fault.CycleDetected))
	})
}
