package view

import (
	"maps"
	"slices"
	"strings"

	servov1 "go.arco.dev/servo/gen/servo/v1"
	"go.arco.dev/servo/internal/edge/web/graph"
)

// AssetModel is one asset.
type AssetModel struct {
	Scope      Scope
	Asset      *servov1.Asset
	Neighbours Graph
	Pipelines  []PipelineRow
	MayPause   bool
}

// PipelineRow is a pipeline with its last run, if known.
type PipelineRow struct {
	Pipeline *servov1.Pipeline
	Last     *servov1.Run
}

// assetLook marks paused assets; other assets have no state.
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

// codeKind is the kind of code of an asset.
func codeKind(a *servov1.Asset) string {
	switch a.GetCode().GetKind().(type) {
	case *servov1.Code_Exec:
		return "command"
	case *servov1.Code_Http:
		return "HTTP request"
	case *servov1.Code_Go:
		return "Go handler"
	case *servov1.Code_Python:
		return "Python function"
	}
	return "no code"
}

// maxNeighbours is the number of assets that are drawn on each side of one.
const maxNeighbours = 40

// NeighboursOf lays out an asset between its upstream and its downstream assets.
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
	out := drawn(laid, edges)
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

// Family is an asset with its direct and indirect upstream and downstream assets, each including
// the asset itself.
type Family struct {
	Self                 *servov1.Asset
	Upstream, Downstream []*servov1.Asset
}

// SelectsKin reports whether a pipeline selects assets by their dependencies.
func SelectsKin(p *servov1.Pipeline) bool {
	return slices.ContainsFunc(p.GetSelect(), func(e string) bool { return strings.Contains(e, "+") })
}

// In reports whether a selection contains the asset: directly, as an upstream of an asset that is
// selected with its upstreams, or as a downstream of one that is selected with its downstreams.
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

// selects reports whether a term of the selection language, without its plus signs, matches an asset.
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

// command is a command line, quoted for a shell.
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

// namesOf are the names of settings, without their values, which may be secrets.
func namesOf(settings map[string]string) string {
	return strings.Join(slices.Sorted(maps.Keys(settings)), ", ")
}

// actionAt is the address of an action on the asset.
func (m AssetModel) actionAt(verb string) string {
	namespace, name, _ := strings.Cut(m.Asset.GetKey(), "/")
	return inWorkspace(Path("tenants", m.Scope.Tenant, "assets", namespace, name, verb), m.Scope.Workspace)
}
