package view_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	servov1 "go.arco.dev/servo/gen/servo/v1"
	"go.arco.dev/servo/internal/edge/web/view"
)

func TestGraphOf(t *testing.T) {
	t.Parallel()
	// scanned is a run whose asset a/scan has n tasks, between a/split and a/join.
	scanned := func(n int32) *servov1.RunGraph {
		g := &servov1.RunGraph{Run: &servov1.Run{Tenant: "acme", Id: "r"}, Groups: []*servov1.GraphGroup{
			{Asset: "a/split", Total: 1, States: map[string]int32{"SUCCEEDED": 1}},
			{Asset: "a/scan", Total: n, States: map[string]int32{"SUCCEEDED": n - 1, "FAILED": 1}, Upstream: []string{"a/split"}},
			{Asset: "a/join", Total: 1, States: map[string]int32{"PENDING": 1}, Upstream: []string{"a/scan"}},
		}}
		for i := range n + 2 {
			g.Nodes = append(g.Nodes, &servov1.GraphNode{Task: fmt.Sprint(i), Index: i, Asset: "a/scan", State: servov1.Task_SUCCEEDED})
			if i > 0 && i <= n {
				g.Edges = append(g.Edges, &servov1.GraphEdge{From: 0, To: i}, &servov1.GraphEdge{From: i, To: n + 1})
			}
		}
		return g
	}

	t.Run("few tasks are drawn one by one", func(t *testing.T) {
		t.Parallel()
		g := view.GraphOf(scanned(4), false)
		require.False(t, g.Grouped)
		require.Len(t, g.Boxes, 6)
		require.Len(t, g.Paths, 8)
	})

	t.Run("many similar tasks are one box with their states, until it is opened", func(t *testing.T) {
		t.Parallel()
		g := view.GraphOf(scanned(40), false)
		require.True(t, g.Grouped)
		require.Len(t, g.Boxes, 3)
		require.Equal(t, "failed", g.Boxes[1].Look.Label, "what matters most")
		require.Equal(t, "1 failed, 39 succeeded", g.Boxes[1].Detail)
		require.True(t, g.Drawable)
		require.Len(t, view.GraphOf(scanned(40), true).Boxes, 42)
	})

	t.Run("too many are never drawn one by one", func(t *testing.T) {
		t.Parallel()
		g := view.GraphOf(scanned(600), true)
		require.True(t, g.Grouped)
		require.False(t, g.Drawable)
	})
}
