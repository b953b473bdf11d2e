package asset

import (
	"fmt"
	"slices"
	"strings"

	"go.arco.dev/servo/internal/base/fault"
	"go.arco.dev/servo/internal/base/suggest"
)

// Graph is the DAG of a manifest's assets. Nodes are numbered in the order of their keys, so that
// results do not depend on the order in the file.
type Graph struct {
	assets     []*Asset
	index      map[string]int
	upstream   [][]int // sorted
	downstream [][]int // sorted

	namespaces, tags, owners map[string][]int // the assets that each word selects
}

// NewGraph builds the graph of a closed set of assets: an unknown upstream or a duplicate key is a
// fault.
func NewGraph(assets []Asset) (*Graph, error) {
	g := newGraph(assets)
	if len(g.assets) != len(assets) {
		return nil, fault.New(fault.InvalidManifest, "duplicate asset key", fault.Field("assets"), fault.Remedy("remove one of them"))
	}
	for _, a := range g.assets {
		for i, key := range a.Upstream {
			if _, ok := g.index[key]; !ok {
				return nil, fault.New(fault.InvalidManifest, g.unknown(key),
					fault.Field(at(assetPath(0, a.Key)+".upstream", i)), fault.Remedy(remedyUnknownAsset))
			}
		}
	}
	return g, nil
}

// newGraph leaves out invalid entries: duplicate keys, unknown upstreams, assets that name
// themselves. Validation reports those and checks the rest.
func newGraph(assets []Asset) *Graph {
	g := &Graph{assets: make([]*Asset, 0, len(assets)), index: make(map[string]int, len(assets))}
	for i := range assets {
		g.assets = append(g.assets, &assets[i])
	}
	slices.SortStableFunc(g.assets, func(a, b *Asset) int { return strings.Compare(a.Key, b.Key) })
	g.assets = slices.CompactFunc(g.assets, func(a, b *Asset) bool { return a.Key == b.Key })
	for i, a := range g.assets {
		g.index[a.Key] = i
	}
	g.indexWords()
	g.upstream = make([][]int, len(g.assets))
	g.downstream = make([][]int, len(g.assets))
	for to, a := range g.assets {
		from := make([]int, 0, len(a.Upstream))
		for _, key := range a.Upstream {
			if i, ok := g.index[key]; ok && i != to {
				from = append(from, i)
			}
		}
		slices.Sort(from)
		g.upstream[to] = slices.Compact(from)
		for _, i := range g.upstream[to] {
			g.downstream[i] = append(g.downstream[i], to)
		}
	}
	return g
}

func (g *Graph) indexWords() {
	g.namespaces, g.tags, g.owners = map[string][]int{}, map[string][]int{}, map[string][]int{}
	for i, a := range g.assets {
		namespace := a.Namespace()
		g.namespaces[namespace] = append(g.namespaces[namespace], i)
		for _, tag := range a.Tags {
			g.tags[tag] = append(g.tags[tag], i)
		}
		for _, owner := range a.Owners {
			g.owners[owner] = append(g.owners[owner], i)
		}
	}
}

// Len returns the number of assets.
func (g *Graph) Len() int { return len(g.assets) }

// Asset returns the asset with a number.
func (g *Graph) Asset(i int) *Asset { return g.assets[i] }

// Index returns the number of the asset with a key.
func (g *Graph) Index(key string) (int, bool) {
	i, ok := g.index[key]
	return i, ok
}

// Upstream returns the numbers of the direct upstreams, ascending. Callers must not change it.
func (g *Graph) Upstream(i int) []int { return g.upstream[i] }

// Downstream returns the numbers of the assets that name this one as upstream, ascending. Callers
// must not change it.
func (g *Graph) Downstream(i int) []int { return g.downstream[i] }

// Keys returns all keys in order.
func (g *Graph) Keys() []string {
	keys := make([]string, len(g.assets))
	for i, a := range g.assets {
		keys[i] = a.Key
	}
	return keys
}

const remedyUnknownAsset = "name an asset of this manifest"

// unknown is the message for a key without an asset.
func (g *Graph) unknown(key string) string {
	return "unknown asset " + printable(key) + suggest.DidYouMean(key, g.Keys())
}

// printable returns a valid key as it is, and any other text in quotes.
func printable(key string) string {
	if keyPattern.MatchString(key) {
		return key
	}
	return quoted(key)
}

// Stages returns for each asset of a selection the length of the longest path to it inside the
// selection. A cycle is a fault that names its path.
func (g *Graph) Stages(selected []bool) ([]int, error) {
	stage := make([]int, len(g.assets))
	unmet := make([]int, len(g.assets))
	var queue []int
	left := 0
	for i := range g.assets {
		if !selected[i] {
			continue
		}
		left++
		for _, from := range g.upstream[i] {
			if selected[from] {
				unmet[i]++
			}
		}
		if unmet[i] == 0 {
			queue = append(queue, i)
		}
	}
	for ; len(queue) > 0; queue = queue[1:] {
		from := queue[0]
		left--
		for _, to := range g.downstream[from] {
			if !selected[to] {
				continue
			}
			stage[to] = max(stage[to], stage[from]+1)
			if unmet[to]--; unmet[to] == 0 {
				queue = append(queue, to)
			}
		}
	}
	if left > 0 {
		cycles := g.cycles()
		return nil, fault.New(fault.CycleDetected, cycleMessage(cycles[0]), fault.Field(cycleField(cycles[0])), fault.Remedy(remedyCycle))
	}
	return stage, nil
}

const remedyCycle = "remove one of these upstreams"

// cycleMessage names the path of a cycle, in the direction of the data.
func cycleMessage(keys []string) string {
	const longest = 20
	if n := len(keys); n > longest {
		keys = append(append(slices.Clone(keys[:longest-1]), fmt.Sprintf("(%d more)", n-longest)), keys[n-1])
	}
	return "cycle: " + strings.Join(append(slices.Clone(keys), keys[0]), " → ")
}

// cycleField is the field in which the second asset of the cycle names the first.
func cycleField(keys []string) string { return assetPath(0, keys[1]) + ".upstream" }
