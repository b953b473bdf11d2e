package asset

import "slices"

// maxCycleSteps bounds the search for the shortest cycle. Beyond it the search returns the shortest
// cycle found so far, which is the same one every time.
const maxCycleSteps = 2_000_000

// cycles returns the shortest cycle of each strongly connected component. Each follows the data and
// starts at its alphabetically first asset: the search begins at each asset in that order and
// replaces its result only by a shorter one.
func (g *Graph) cycles() [][]string {
	var cycles [][]string
	steps := maxCycleSteps
	for _, component := range g.components() {
		cycle := g.shortestCycle(component, &steps)
		keys := make([]string, len(cycle))
		for i, node := range cycle {
			keys[i] = g.assets[node].Key
		}
		cycles = append(cycles, keys)
	}
	return cycles
}

// shortestCycle searches breadth first from every node of a component, never deeper than the best
// cycle known. A path that leaves the component cannot return to it, so the search may follow all
// edges.
func (g *Graph) shortestCycle(component []int, steps *int) []int {
	parent, depth := make([]int, len(g.assets)), make([]int, len(g.assets))
	seen := make([]int, len(g.assets)) // in the search that began at this node, plus one
	var best, queue []int
	for _, start := range component {
		if best != nil && (*steps <= 0 || len(best) == 2) { // a cycle has at least two nodes
			break
		}
		parent[start], depth[start], seen[start] = -1, 1, start+1
		queue = append(queue[:0], start)
	search:
		for head := 0; head < len(queue); head++ {
			node := queue[head]
			if best != nil && depth[node] >= len(best) {
				break
			}
			for _, to := range g.downstream[node] {
				*steps--
				if to == start {
					best = nil
					for ; node >= 0; node = parent[node] {
						best = append(best, node)
					}
					slices.Reverse(best)
					break search
				}
				if seen[to] != start+1 {
					parent[to], depth[to], seen[to] = node, depth[node]+1, start+1
					queue = append(queue, to)
				}
			}
		}
	}
	return best
}

// components returns the strongly connected components of more than one node, each sorted, in the
// order of their first nodes: Tarjan's algorithm, with an explicit stack because a chain of ten
// thousand assets is valid.
func (g *Graph) components() [][]int {
	const unseen = -1
	n := len(g.assets)
	order, low, next := make([]int, n), make([]int, n), make([]int, n)
	onStack := make([]bool, n)
	for i := range order {
		order[i] = unseen
	}
	var stack, path []int
	var components [][]int
	counter := 0
	for root := range n {
		if order[root] != unseen {
			continue
		}
		path = append(path, root)
		for len(path) > 0 {
			node := path[len(path)-1]
			if order[node] == unseen {
				order[node], low[node] = counter, counter
				counter++
				stack = append(stack, node)
				onStack[node] = true
			}
			if next[node] < len(g.downstream[node]) {
				to := g.downstream[node][next[node]]
				if order[to] == unseen {
					path = append(path, to)
					continue // next[node] advances when the search returns to the node
				}
				if onStack[to] {
					low[node] = min(low[node], low[to])
				}
				next[node]++
				continue
			}
			path = path[:len(path)-1]
			if low[node] != order[node] {
				continue
			}
			from := len(stack) - 1
			for stack[from] != node {
				from--
			}
			if component := slices.Clone(stack[from:]); len(component) > 1 {
				slices.Sort(component)
				components = append(components, component)
			}
			for _, member := range stack[from:] {
				onStack[member] = false
			}
			stack = stack[:from]
		}
	}
	slices.SortFunc(components, func(a, b []int) int { return a[0] - b[0] })
	return components
}
