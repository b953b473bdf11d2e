package graph

import (
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

var sizes = Sizes{Width: 180, Height: 36, GapX: 60, GapY: 14, Margin: 10}

func TestLay(t *testing.T) {
	t.Parallel()

	t.Run("a diamond is drawn as expected", func(t *testing.T) {
		t.Parallel()
		p := Lay(4, []Edge{{0, 1}, {0, 2}, {1, 3}, {2, 3}}, sizes)
		require.Less(t, p.Boxes[0].X, p.Boxes[1].X)
		require.Equal(t, p.Boxes[1].X, p.Boxes[2].X)
		require.Less(t, p.Boxes[2].X, p.Boxes[3].X)
		require.Equal(t, p.Boxes[0].Y, p.Boxes[3].Y, "the ends are level")
		require.Equal(t, (p.Boxes[1].Y+p.Boxes[2].Y)/2, p.Boxes[0].Y, "between the two")
	})

	t.Run("a chain is level", func(t *testing.T) {
		t.Parallel()
		p := Lay(4, []Edge{{0, 1}, {1, 2}, {2, 3}}, sizes)
		for _, b := range p.Boxes {
			require.Equal(t, sizes.Margin, b.Y)
		}
	})

	t.Run("two strands that are listed crosswise are drawn without a crossing", func(t *testing.T) {
		t.Parallel()
		l := &layout{sizes: sizes}
		l.assign(6, []Edge{{0, 5}, {1, 4}, {2, 3}})
		l.order()
		require.Zero(t, l.crossings())
	})

	t.Run("nothing is drawn of nothing", func(t *testing.T) {
		t.Parallel()
		require.Equal(t, Picture{Boxes: []Point{}, Paths: [][]Point{}}, Lay(0, nil, sizes))
	})

	t.Run("a circle and edges to nowhere do no harm", func(t *testing.T) {
		t.Parallel()
		p := Lay(3, []Edge{{0, 1}, {1, 0}, {2, 2}, {1, 9}, {-1, 0}}, sizes)
		require.Len(t, p.Boxes, 3)
	})

	t.Run("any graph: boxes do not touch, edges lead to the right, twice the same", func(t *testing.T) {
		t.Parallel()
		rapid.Check(t, func(t *rapid.T) {
			n := rapid.IntRange(1, 60).Draw(t, "nodes")
			var edges []Edge
			for to := 1; to < n; to++ {
				for range rapid.IntRange(0, 3).Draw(t, "upstream") {
					edges = append(edges, Edge{From: rapid.IntRange(0, to-1).Draw(t, "from"), To: to})
				}
			}
			p := Lay(n, edges, sizes)
			require.Equal(t, p, Lay(n, edges, sizes))
			for i, a := range p.Boxes {
				require.GreaterOrEqual(t, a.X, sizes.Margin)
				require.GreaterOrEqual(t, a.Y, sizes.Margin)
				require.LessOrEqual(t, a.X+sizes.Width+sizes.Margin, p.Width)
				require.LessOrEqual(t, a.Y+sizes.Height+sizes.Margin, p.Height)
				for _, b := range p.Boxes[:i] {
					apart := a.X != b.X || a.Y >= b.Y+sizes.Height+sizes.GapY || b.Y >= a.Y+sizes.Height+sizes.GapY
					require.True(t, apart, "%v and %v", a, b)
				}
			}
			for k, e := range edges {
				path := p.Paths[k]
				require.Equal(t, Point{p.Boxes[e.From].X + sizes.Width, p.Boxes[e.From].Y + sizes.Height/2}, path[0])
				require.Equal(t, Point{p.Boxes[e.To].X, p.Boxes[e.To].Y + sizes.Height/2}, path[len(path)-1])
				for i := 1; i < len(path); i++ {
					require.Greater(t, path[i].X, path[i-1].X)
				}
			}
		})
	})
}

func BenchmarkLay(b *testing.B) {
	var edges []Edge
	for to := 1; to < 500; to++ {
		edges = append(edges, Edge{to / 3, to}, Edge{to / 7, to})
	}
	for b.Loop() {
		Lay(500, edges, sizes)
	}
}
