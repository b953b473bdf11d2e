package view

import (
	"fmt"
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
	Width, Height int
	Grouped       bool // boxes are groups: assets for tasks, namespaces for assets
	Drawable      bool // the other form, grouped or not, can be drawn
	MoreEdges     bool
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
func drawn(p graph.Picture) Graph {
	out := Graph{Width: p.Width, Height: p.Height}
	for _, path := range p.Paths {
		if len(path) < 2 {
			continue
		}
		var b strings.Builder
		fmt.Fprintf(&b, "M%d %d", path[0].X, path[0].Y)
		for i := 1; i < len(path); i++ {
			a, z := path[i-1], path[i]
			middle := (a.X + z.X) / 2
			if a.Y == z.Y {
				fmt.Fprintf(&b, "H%d", z.X)
			} else {
				fmt.Fprintf(&b, "C%d %d %d %d %d %d", middle, a.Y, middle, z.Y, z.X, z.Y)
			}
		}
		out.Paths = append(out.Paths, b.String())
	}
	return out
}
