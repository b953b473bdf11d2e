package view

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	servov1 "go.arco.dev/servo/gen/servo/v1"
	"go.arco.dev/servo/internal/domain/asset"
)

// selected is what a selection has of a graph, as the API answers it.
func selected(t require.TestingT, g *asset.Graph, expressions ...string) []*servov1.Asset {
	selection, err := asset.ParseSelection(expressions...)
	require.NoError(t, err)
	in, err := selection.Resolve(g)
	require.NoError(t, err)
	var out []*servov1.Asset
	for i, yes := range in {
		if a := g.Asset(i); yes {
			out = append(out, &servov1.Asset{Key: a.Key, Tags: a.Tags, Owners: a.Owners, Upstream: a.Upstream})
		}
	}
	return out
}

func TestFamily(t *testing.T) {
	t.Parallel()

	t.Run("an asset is in a pipeline exactly if the selection resolves to it", func(t *testing.T) {
		t.Parallel()
		rapid.Check(t, func(t *rapid.T) {
			var assets []asset.Asset
			for i := range rapid.IntRange(1, 12).Draw(t, "assets") {
				a := asset.Asset{Key: fmt.Sprintf("%s/a%02d", rapid.SampledFrom([]string{"x", "y"}).Draw(t, "namespace"), i), Tags: []string{rapid.SampledFrom([]string{"red", "blue"}).Draw(t, "tag")}, Owners: []string{rapid.SampledFrom([]string{"ann", "bob"}).Draw(t, "owner")}}
				for _, up := range assets {
					if rapid.IntRange(0, 4).Draw(t, "depends") == 0 {
						a.Upstream = append(a.Upstream, up.Key)
					}
				}
				assets = append(assets, a)
			}
			slices.SortFunc(assets, func(a, b asset.Asset) int { return strings.Compare(a.Key, b.Key) })
			g, err := asset.NewGraph(assets)
			require.NoError(t, err)
			terms := []string{"*"}
			for _, a := range assets {
				terms = append(terms, a.Key, namespaceOf(a.Key)+"/*", "tag:"+a.Tags[0], "owner:"+a.Owners[0])
			}
			var selection []string
			for range rapid.IntRange(1, 2).Draw(t, "terms") {
				term := rapid.SampledFrom(terms).Draw(t, "term")
				selection = append(selection, rapid.SampledFrom([]string{"", "+"}).Draw(t, "before")+term+rapid.SampledFrom([]string{"", "+"}).Draw(t, "after"))
			}
			in := selected(t, g, selection...)
			for _, self := range selected(t, g, "*") {
				family := Family{Self: self, Upstream: selected(t, g, "+"+self.GetKey()), Downstream: selected(t, g, self.GetKey()+"+")}
				want := slices.ContainsFunc(in, func(a *servov1.Asset) bool { return a.GetKey() == self.GetKey() })
				require.Equal(t, want, family.In(selection), "%s in %v", self.GetKey(), selection)
			}
		})
	})
}

func TestLineage(t *testing.T) {
	t.Parallel()
	scope := Scope{Tenant: "acme", Workspace: "prod"}
	many := func(n int) (assets []*servov1.Asset) {
		for i := range n {
			a := &servov1.Asset{Key: fmt.Sprintf("ns%d/a%04d", i%3, i)}
			if i > 0 {
				a.Upstream = []string{assets[i-1].GetKey()}
			}
			assets = append(assets, a)
		}
		return assets
	}

	t.Run("assets are drawn one by one with what they are made from, and lead to their pages", func(t *testing.T) {
		t.Parallel()
		g := LineageOf(scope, many(4))
		require.False(t, g.Grouped)
		require.Len(t, g.Boxes, 4)
		require.Len(t, g.Paths, 3)
		require.Equal(t, "/ui/tenants/acme/assets/ns0/a0000?workspace=prod", g.Boxes[0].At)
	})

	t.Run("too many are drawn by namespace, in the same order each time, and lead to the picture of each", func(t *testing.T) {
		t.Parallel()
		assets := many(maxBoxes + 1)
		assets[1].Paused = &servov1.AssetPause{}
		g := LineageOf(scope, assets)
		require.True(t, g.Grouped)
		require.Len(t, g.Boxes, 3)
		require.Equal(t, "ns0", g.Boxes[0].Title)
		require.Equal(t, "/ui/assets?select=ns0%2F%2A&tenant=acme&workspace=prod&view=graph", g.Boxes[0].At)
		require.Equal(t, "167 assets, 1 paused", g.Boxes[1].Detail)
		require.Equal(t, g, LineageOf(scope, assets))
	})

	t.Run("what is drawn beside an asset is bounded", func(t *testing.T) {
		t.Parallel()
		a := &servov1.Asset{Key: "x/y"}
		for i := range 100 {
			a.Upstream = append(a.Upstream, fmt.Sprintf("x/u%d", i))
		}
		g := NeighboursOf(scope, a)
		require.True(t, g.MoreEdges)
		require.Len(t, g.Boxes, maxNeighbours+1)
		require.True(t, g.Boxes[maxNeighbours].Here)
	})
}

func TestCommand(t *testing.T) {
	t.Parallel()
	require.Equal(t, `sh -c 'echo "it'\''s"' ''`, command([]string{"sh", "-c", `echo "it's"`, ""}))
}
