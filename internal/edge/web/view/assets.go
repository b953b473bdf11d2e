package view

import (
	"cmp"
	"maps"
	"net/url"
	"slices"
	"strings"

	servov1 "go.arco.dev/servo/gen/servo/v1"
	"go.arco.dev/servo/internal/edge/web/graph"
)

// ChooseModel asks for the tenant that a page is about.
type ChooseModel struct {
	Title, Text, Path string
	Tenants           []string
	First             bool
	FirstAt, NextAt   string
}

// AssetsModel is what a workspace has deployed.
type AssetsModel struct {
	Scope           Scope
	Workspaces      []string
	Select, Text    string
	Graph           bool // the picture, not the list
	ListAt, GraphAt string
	Assets          []*servov1.Asset
	Lineage         Graph
	Cut             int    // so many with the text are not listed
	More            bool   // there are more assets than were looked at
	Wrong           string // with the selection
	Missing         string // there is nothing deployed
	First           bool
	FirstAt, NextAt string
}

// AssetModel is one asset.
type AssetModel struct {
	Scope      Scope
	Asset      *servov1.Asset
	Neighbours Graph
	Pipelines  []PipelineRow
	MayPause   bool
}

// PipelineRow is a pipeline with its last run, if it is known.
type PipelineRow struct {
	Pipeline *servov1.Pipeline
	Last     *servov1.Run
}

// chosen is the workspace that a page shows.
func (s Scope) chosen() string { return cmp.Or(s.Workspace, "default") }

// narrowed is the address of the catalogue held to a selection.
func narrowed(s Scope, selection string, picture bool) string {
	query := url.Values{"select": {selection}}
	if picture {
		query.Set("view", "graph")
	}
	at := s.At("/ui/assets")
	if strings.Contains(at, "?") {
		return at + "&" + query.Encode()
	}
	return at + "?" + query.Encode()
}

// AssetHas reports whether a text is somewhere in an asset: its key, description, tags or owners.
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

// assetLook marks what is paused. Nothing else about an asset is a state.
func assetLook(a *servov1.Asset) Look {
	if a.GetPaused() != nil {
		return LookOf("PAUSED")
	}
	return Look{Tone: toneIdle}
}

func assetDetail(a *servov1.Asset) string {
	if a.GetPaused() != nil {
		return "paused · " + codeKind(a)
	}
	return codeKind(a) + " · pool " + Clip(a.GetPool(), 16)
}

// codeKind is how an asset is made, in a word.
func codeKind(a *servov1.Asset) string {
	switch a.GetCode().GetKind().(type) {
	case *servov1.Code_Exec:
		return "command"
	case *servov1.Code_Http:
		return "HTTP call"
	case *servov1.Code_Go:
		return "Go handler"
	}
	return "no code"
}

// LineageOf lays out assets: what is made from what. Too many to read are drawn by namespace.
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
	out := drawn(laid)
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
	out := drawn(laid)
	out.Grouped = true
	for i, name := range names {
		box := Box{Point: laid.Boxes[i], Look: Look{Tone: toneIdle}, Title: name, Detail: Plural(counts[name], "asset", "assets"), At: narrowed(s, name+"/*", true)}
		if n := paused[name]; n > 0 {
			box.Look, box.Detail = LookOf("PAUSED"), box.Detail+", "+Count(n, false)+" paused"
		}
		out.Boxes = append(out.Boxes, box)
	}
	return out
}

// maxNeighbours is how many assets are drawn on each side of one.
const maxNeighbours = 40

// NeighboursOf draws an asset between what it is made from and what is made from it.
func NeighboursOf(s Scope, a *servov1.Asset) Graph {
	up, down := a.GetUpstream(), a.GetDownstream()
	cut := len(up) > maxNeighbours || len(down) > maxNeighbours
	up, down = up[:min(len(up), maxNeighbours)], down[:min(len(down), maxNeighbours)]
	keys := slices.Concat(up, []string{a.GetKey()}, down)
	var edges []graph.Edge
	for i := range keys {
		switch {
		case i < len(up):
			edges = append(edges, graph.Edge{From: i, To: len(up)})
		case i > len(up):
			edges = append(edges, graph.Edge{From: len(up), To: i})
		}
	}
	laid := graph.Lay(len(keys), edges, graphSizes())
	out := drawn(laid)
	out.MoreEdges = cut
	for i, key := range keys {
		box := Box{Point: laid.Boxes[i], Look: Look{Tone: toneIdle}, Title: key, Detail: "upstream", At: AssetPath(s.Tenant, s.Workspace, key)}
		switch {
		case i == len(up):
			box.Look, box.Detail, box.Here = assetLook(a), assetDetail(a), true
			if a.GetPaused() == nil {
				box.Look.Tone = toneRun
			}
		case i > len(up):
			box.Detail = "downstream"
		}
		out.Boxes = append(out.Boxes, box)
	}
	return out
}

// Family is an asset with all that it is made from and all that is made from it, however far,
// itself included.
type Family struct {
	Self                 *servov1.Asset
	Upstream, Downstream []*servov1.Asset
}

// SelectsKin reports whether a pipeline selects assets by what they have to do with others.
func SelectsKin(p *servov1.Pipeline) bool {
	return slices.ContainsFunc(p.GetSelect(), func(e string) bool { return strings.Contains(e, "+") })
}

// In reports whether a selection has the asset: by itself, as an upstream of something that is
// selected with its upstreams, or the other way round.
func (f Family) In(selection []string) bool {
	for _, expression := range selection {
		for _, word := range strings.FieldsFunc(expression, func(r rune) bool { return r == ',' || r == ' ' || r == '\t' || r == '\n' }) {
			term := strings.Trim(word, "+")
			matches := func(a *servov1.Asset) bool { return selects(term, a) }
			if matches(f.Self) || strings.HasPrefix(word, "+") && slices.ContainsFunc(f.Downstream, matches) ||
				strings.HasSuffix(word, "+") && slices.ContainsFunc(f.Upstream, matches) {
				return true
			}
		}
	}
	return false
}

// selects reports whether a word of the selection language, without its plus signs, means an asset.
func selects(term string, a *servov1.Asset) bool {
	kind, value, named := strings.Cut(term, ":")
	switch {
	case term == "*" || term == a.GetKey():
		return true
	case named && kind == "tag":
		return slices.Contains(a.GetTags(), value)
	case named && kind == "owner":
		return slices.Contains(a.GetOwners(), value)
	}
	namespace, found := strings.CutSuffix(term, "/*")
	return found && namespace == namespaceOf(a.GetKey())
}

// command is a command line as somebody would type it.
func command(words []string) string {
	quoted := make([]string, len(words))
	for i, w := range words {
		quoted[i] = w
		if w == "" || strings.ContainsAny(w, " \t\n\"'$&|;<>*?\\`()") {
			quoted[i] = "'" + strings.ReplaceAll(w, "'", `'\''`) + "'"
		}
	}
	return strings.Join(quoted, " ")
}

// namesOf are the names of settings, without their values: these may be secrets.
func namesOf(settings map[string]string) string {
	return strings.Join(slices.Sorted(maps.Keys(settings)), ", ")
}

// actionAt is where a form about an asset goes.
func (m AssetModel) actionAt(verb string) string {
	return inWorkspace(Path("tenants", m.Scope.Tenant, "assets", namespaceOf(m.Asset.GetKey()), strings.TrimPrefix(m.Asset.GetKey(), namespaceOf(m.Asset.GetKey())+"/"), verb), m.Scope.Workspace)
}
