package view

import (
	"fmt"
	"hash/fnv"
	"slices"
	"strings"

	"go.arco.dev/servo/internal/edge/web/graph"
)

// The size of a box, in pixels.
const boxWidth, boxHeight = 200, 40

func graphSizes() graph.Sizes {
	return graph.Sizes{Width: boxWidth, Height: boxHeight, GapX: 56, GapY: 14, Margin: 8}
}

// maxBoxes is the number of tasks or assets that are drawn as boxes of their own; more are drawn
// in groups.
const maxBoxes = 500

// Graph is a drawing of dependencies: of the tasks of a run, or of assets.
type Graph struct {
	Boxes         []Box
	Paths         []string
	Edges         []graph.Edge // of Paths, as indexes of Boxes
	Width, Height int
	Grouped       bool // boxes are groups: assets for tasks, namespaces for assets
	Drawable      bool // the other form, grouped or not, can be drawn
	MoreEdges     bool
	Sparse        bool // a refresh of a live page: states without the picture
}

// Box is a task, an asset or a group in a graph.
type Box struct {
	graph.Point
	Look          Look // without a shape, the box has no state
	Here          bool // the subject of the page
	Title, Detail string
	At            string
	Fraction      float32
}

// textX is the left edge of the text of a box, beside its shape.
func (b Box) textX() int {
	if b.Look.Shape == "" {
		return b.X + 12
	}
	return b.X + 28
}

// drawn is a layout with its edges as curves.
func drawn(p graph.Picture, edges []graph.Edge) Graph {
	out := Graph{Width: p.Width, Height: p.Height}
	for i, path := range p.Paths {
		if len(path) < 2 {
			continue
		}
		var b strings.Builder
		fmt.Fprintf(&b, "M%d %d", path[0].X, path[0].Y)
		for k := 1; k < len(path); k++ {
			a, z := path[k-1], path[k]
			middle := (a.X + z.X) / 2
			if a.Y == z.Y {
				fmt.Fprintf(&b, "H%d", z.X)
			} else {
				fmt.Fprintf(&b, "C%d %d %d %d %d %d", middle, a.Y, middle, z.Y, z.X, z.Y)
			}
		}
		out.Paths, out.Edges = append(out.Paths, b.String()), append(out.Edges, edges[i])
	}
	return out
}

// id identifies the layout: a live page replaces the picture only if it changes.
func (g Graph) id() string {
	hash := fnv.New64a()
	for _, b := range g.Boxes {
		fmt.Fprint(hash, b.Title, b.At, b.X, b.Y)
	}
	fmt.Fprint(hash, len(g.Paths))
	return fmt.Sprintf("graph-%x", hash.Sum64())
}

// edgeText is the boxes of an edge, for the script.
func (g Graph) edgeText(i int) string {
	if i >= len(g.Edges) {
		return ""
	}
	return fmt.Sprintf("%d %d", g.Edges[i].From, g.Edges[i].To)
}

// graphStates are the states that boxes of tasks have; their index is their code on the wire.
func graphStates() []string {
	return []string{"PENDING", "READY", "QUEUED", "DISPATCHED", "RUNNING", "RETRY_WAIT", "SUCCEEDED", "FAILED", "SKIPPED", "CANCELLED"}
}

// graphLooks are the looks of graphStates, for the script.
func graphLooks() string {
	var all []string
	for _, s := range graphStates() {
		l := LookOf(s)
		all = append(all, l.Tone+","+l.Shape+","+l.Label)
	}
	return strings.Join(all, ";")
}

// states are the states of the boxes. A task is one digit, or with its progress a digit and a percentage;
// a group is its tone, shape and counts.
func (g Graph) states() string {
	var b strings.Builder
	for i, box := range g.Boxes {
		if i > 0 {
			b.WriteByte('\n')
		}
		at := slices.IndexFunc(graphStates(), func(s string) bool { return LookOf(s) == box.Look })
		switch {
		case g.Grouped || at < 0:
			b.WriteString(box.Look.Tone + "," + box.Look.Shape + "," + box.Detail)
		case box.Fraction > 0:
			fmt.Fprintf(&b, "%d %.0f", at, box.Fraction*100)
		default:
			fmt.Fprintf(&b, "%d", at)
		}
	}
	return b.String()
}

// shapeNames are the shapes of boxes that a script may draw.
func shapeNames() []string {
	return []string{"check", "cross", "play", "half", "square", "dash", "pause", "clock", "again", "ring"}
}
