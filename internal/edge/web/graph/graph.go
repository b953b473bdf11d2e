// Package graph lays out directed acyclic graphs: layers from left to right, few crossings of edges,
// and boxes near their dependencies. It is pure: the same graph always has the same layout, so that
// a refreshed page does not move.
package graph

import (
	"cmp"
	"slices"
)

// Sizes of the layout, in pixels.
type Sizes struct {
	Width, Height int // of a box
	GapX, GapY    int // between layers, between boxes of a layer
	Margin        int
}

// Point is a position in the layout.
type Point struct{ X, Y int }

// Edge leads from one node to another, by their indexes.
type Edge struct{ From, To int }

// Picture is the layout of a graph.
type Picture struct {
	Boxes         []Point   // upper left corner of each node
	Paths         [][]Point // of each edge, through the gaps between boxes
	Width, Height int
}

// sweeps is the number of passes that reorder layers. More rarely find a better order.
const sweeps = 12

// cell is a node, or a position where an edge crosses a layer.
type cell struct {
	node  int // -1 for an edge
	layer int
	up    []int // cells of the layer before
	down  []int // cells of the layer after
	y     int   // of its middle
}

type layout struct {
	sizes  Sizes
	cells  []cell
	layers [][]int // cells by layer, from top to bottom
	routes [][]int // cells of each edge, from its beginning to its end
}

// Lay places n nodes. Edges to unknown nodes, to their own node and edges that close a cycle do not
// affect the layout.
func Lay(n int, edges []Edge, sizes Sizes) Picture {
	l := &layout{sizes: sizes}
	l.assign(n, edges)
	l.order()
	l.place()
	return l.picture(n, edges)
}

// depths is the layer of each node: one more than the deepest of its dependencies.
func depths(n int, edges []Edge) []int {
	depth, waits, next := make([]int, n), make([]int, n), make([][]int, n)
	for _, e := range edges {
		if valid(e, n) {
			waits[e.To]++
			next[e.From] = append(next[e.From], e.To)
		}
	}
	var ready []int
	for i := range n {
		if waits[i] == 0 {
			ready = append(ready, i)
		}
	}
	for len(ready) > 0 {
		i := ready[0]
		ready = ready[1:]
		for _, j := range next[i] {
			depth[j] = max(depth[j], depth[i]+1)
			if waits[j]--; waits[j] == 0 {
				ready = append(ready, j)
			}
		}
	}
	return depth
}

func valid(e Edge, n int) bool {
	return e.From >= 0 && e.From < n && e.To >= 0 && e.To < n && e.From != e.To
}

// assign puts nodes into layers, and a cell into each layer that an edge crosses.
func (l *layout) assign(n int, edges []Edge) {
	depth := depths(n, edges)
	l.cells = make([]cell, n)
	for i := range n {
		l.cells[i] = cell{node: i, layer: depth[i]}
	}
	l.routes = make([][]int, len(edges))
	for k, e := range edges {
		if !valid(e, n) || depth[e.From] >= depth[e.To] {
			continue
		}
		at := e.From
		route := []int{at}
		for layer := depth[e.From] + 1; layer < depth[e.To]; layer++ {
			l.cells = append(l.cells, cell{node: -1, layer: layer})
			l.join(at, len(l.cells)-1)
			at = len(l.cells) - 1
			route = append(route, at)
		}
		l.join(at, e.To)
		l.routes[k] = append(route, e.To)
	}
	for i, c := range l.cells {
		for len(l.layers) <= c.layer {
			l.layers = append(l.layers, nil)
		}
		l.layers[c.layer] = append(l.layers[c.layer], i)
	}
}

func (l *layout) join(a, b int) {
	l.cells[a].down = append(l.cells[a].down, b)
	l.cells[b].up = append(l.cells[b].up, a)
}

// order moves cells near their neighbours, forward and backward, and keeps the best order.
func (l *layout) order() {
	best, least := l.copied(), l.crossings()
	for sweep := 0; sweep < sweeps && least > 0; sweep++ {
		forward := sweep%2 == 0
		for i := range l.layers {
			k := i
			if !forward {
				k = len(l.layers) - 1 - i
			}
			l.sort(l.layers[k], forward)
		}
		if now := l.crossings(); now < least {
			best, least = l.copied(), now
		}
	}
	l.layers = best
}

func (l *layout) copied() [][]int {
	out := make([][]int, len(l.layers))
	for i, layer := range l.layers {
		out[i] = slices.Clone(layer)
	}
	return out
}

// sort orders the cells of a layer by the mean rank of their neighbours.
func (l *layout) sort(layer []int, forward bool) {
	rank := l.ranks()
	middle := make(map[int]float64, len(layer))
	for i, c := range layer {
		near := l.cells[c].up
		if !forward {
			near = l.cells[c].down
		}
		middle[c] = float64(i)
		if len(near) > 0 {
			sum := 0
			for _, o := range near {
				sum += rank[o]
			}
			middle[c] = float64(sum) / float64(len(near))
		}
	}
	slices.SortStableFunc(layer, func(a, b int) int { return cmp.Compare(middle[a], middle[b]) })
}

func (l *layout) ranks() []int {
	rank := make([]int, len(l.cells))
	for _, layer := range l.layers {
		for i, c := range layer {
			rank[c] = i
		}
	}
	return rank
}

// crossings counts the pairs of edges that cross, layer by layer.
func (l *layout) crossings() int {
	rank, count := l.ranks(), 0
	for _, layer := range l.layers {
		var ends []int
		for _, c := range layer {
			down := slices.Clone(l.cells[c].down)
			slices.SortFunc(down, func(a, b int) int { return cmp.Compare(rank[a], rank[b]) })
			for _, o := range down {
				ends = append(ends, rank[o])
			}
		}
		count += inversions(ends)
	}
	return count
}

// inversions counts pairs in the wrong order, with a Fenwick tree.
func inversions(values []int) int {
	if len(values) < 2 {
		return 0
	}
	highest := slices.Max(values)
	tree, count := make([]int, highest+2), 0
	for i, v := range values {
		count += i
		for k := v + 1; k > 0; k -= k & -k {
			count -= tree[k]
		}
		for k := v + 1; k < len(tree); k += k & -k {
			tree[k]++
		}
	}
	return count
}

// place sets the y of every cell: stacked first, then moved towards its neighbours as far as the
// cells above and below allow.
func (l *layout) place() {
	for _, layer := range l.layers {
		for i, c := range layer {
			l.cells[c].y = i * (l.sizes.Height + l.sizes.GapY)
		}
	}
	for pass := range 8 {
		for i := range l.layers {
			k := i
			if pass%2 == 1 {
				k = len(l.layers) - 1 - i
			}
			l.settle(l.layers[k])
		}
	}
	top := 0
	for _, c := range l.cells {
		top = min(top, c.y)
	}
	for i := range l.cells {
		l.cells[i].y -= top
	}
}

// settle moves the cells of a layer to the mean of their neighbours, and apart again.
func (l *layout) settle(layer []int) {
	wanted := make([]int, len(layer))
	for i, c := range layer {
		wanted[i] = l.cells[c].y
		sum, n := 0, 0
		for _, near := range [][]int{l.cells[c].up, l.cells[c].down} {
			for _, o := range near {
				sum += l.cells[o].y
				n++
			}
		}
		if n > 0 {
			wanted[i] = sum / n
		}
	}
	step := l.sizes.Height + l.sizes.GapY
	// Both arrangements, pushed down from above and up from below, keep the distance, and so does
	// their mean.
	down, up := slices.Clone(wanted), slices.Clone(wanted)
	for i := 1; i < len(layer); i++ {
		down[i] = max(down[i], down[i-1]+step)
	}
	for i := len(layer) - 2; i >= 0; i-- {
		up[i] = min(up[i], up[i+1]-step)
	}
	for i, c := range layer {
		l.cells[c].y = floorHalf(down[i] + up[i])
		if i > 0 { // the division rounds
			l.cells[c].y = max(l.cells[c].y, l.cells[layer[i-1]].y+step)
		}
	}
}

func floorHalf(v int) int { return v >> 1 }

func (l *layout) picture(n int, edges []Edge) Picture {
	s := l.sizes
	p := Picture{Boxes: make([]Point, n), Paths: make([][]Point, len(edges))}
	corner := func(c cell) Point { return Point{X: s.Margin + c.layer*(s.Width+s.GapX), Y: s.Margin + c.y} }
	for i := range n {
		p.Boxes[i] = corner(l.cells[i])
	}
	for _, c := range l.cells {
		at := corner(c)
		p.Width, p.Height = max(p.Width, at.X+s.Width+s.Margin), max(p.Height, at.Y+s.Height+s.Margin)
	}
	for k, route := range l.routes {
		for i, c := range route {
			at := corner(l.cells[c])
			middle := at.Y + s.Height/2
			if i > 0 {
				p.Paths[k] = append(p.Paths[k], Point{at.X, middle})
			}
			if i < len(route)-1 {
				p.Paths[k] = append(p.Paths[k], Point{at.X + s.Width, middle})
			}
		}
	}
	return p
}
