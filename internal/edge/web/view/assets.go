package view

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	servov1 "go.arco.dev/servo/gen/servo/v1"
	"go.arco.dev/servo/internal/edge/web/graph"
)

// AssetsModel is the catalogue of a workspace.
type AssetsModel struct {
	Paging

	Scope           Scope
	Workspaces      []string
	Select, Text    string
	Graph           bool // the lineage, not the list
	ListAt, GraphAt string
	Assets          []*servov1.Asset
	Lineage         Graph
	Cut             int    // matching assets that are not listed
	More            bool   // not all assets were read
	Invalid         string // the error of the selection
	Missing         string // the error if nothing is deployed
}

// chosen is the workspace of a page.
func (s Scope) chosen() string { return cmp.Or(s.Workspace, "default") }

// selectionAt is the address of the catalogue with a selection, as a list or as the lineage.
func selectionAt(s Scope, selection string, lineage bool) string {
	at := s.With("/ui/assets", "select", selection)
	if lineage {
		at += "&view=graph"
	}
	return at
}

// AssetHas reports whether the key, description, tags or owners of an asset contain a text.
func AssetHas(a *servov1.Asset, text string) bool {
	if text == "" {
		return true
	}
	for _, in := range slices.Concat([]string{a.GetKey(), a.GetDescription()}, a.GetTags(), a.GetOwners()) {
		if strings.Contains(strings.ToLower(in), strings.ToLower(text)) {
			return true
		}
	}
	return false
}

// LineageOf lays out assets with their dependencies; more than maxBoxes are drawn by namespace.
func LineageOf(s Scope, assets []*servov1.Asset) Graph {
	if len(assets) > maxBoxes {
		return lineageOfNamespaces(s, assets)
	}
	place := map[string]int{}
	for i, a := range assets {
		place[a.GetKey()] = i
	}
	var edges []graph.Edge
	for i, a := range assets {
		for _, up := range a.GetUpstream() {
			if from, ok := place[up]; ok {
				edges = append(edges, graph.Edge{From: from, To: i})
			}
		}
	}
	laid := graph.Lay(len(assets), edges, graphSizes())
	out := drawn(laid, edges)
	for i, a := range assets {
		out.Boxes = append(out.Boxes, Box{
			Point: laid.Boxes[i], Look: assetLook(a), Title: a.GetKey(), Detail: assetDetail(a), At: AssetPath(s.Tenant, s.Workspace, a.GetKey()),
		})
	}
	return out
}

func namespaceOf(key string) string {
	namespace, _, _ := strings.Cut(key, "/")
	return namespace
}

func lineageOfNamespaces(s Scope, assets []*servov1.Asset) Graph {
	counts, paused := map[string]int{}, map[string]int{}
	for _, a := range assets {
		counts[namespaceOf(a.GetKey())]++
		if a.GetPaused() != nil {
			paused[namespaceOf(a.GetKey())]++
		}
	}
	names := slices.Sorted(maps.Keys(counts))
	place := map[string]int{}
	for i, name := range names {
		place[name] = i
	}
	joined := map[graph.Edge]bool{}
	for _, a := range assets {
		to := place[namespaceOf(a.GetKey())]
		for _, up := range a.GetUpstream() {
			if from, ok := place[namespaceOf(up)]; ok && from != to {
				joined[graph.Edge{From: from, To: to}] = true
			}
		}
	}
	edges := slices.SortedFunc(maps.Keys(joined), func(a, b graph.Edge) int {
		return cmp.Or(cmp.Compare(a.From, b.From), cmp.Compare(a.To, b.To))
	})
	laid := graph.Lay(len(names), edges, graphSizes())
	out := drawn(laid, edges)
	out.Grouped = true
	for i, name := range names {
		box := Box{Point: laid.Boxes[i], Look: Look{Tone: toneIdle}, Title: name, Detail: Plural(counts[name], "asset", "assets"), At: selectionAt(s, name+"/*", true)}
		if n := paused[name]; n > 0 {
			box.Look, box.Detail = LookOf("PAUSED"), box.Detail+", "+Count(n, false)+" paused"
		}
		out.Boxes = append(out.Boxes, box)
	}
	return out
}
