package asset

import "slices"

// maxCycleSteps bounds the search for the shortest cycle. Past it the shortest cycle found
// so far is told: still a cycle, and the same one every time.
const maxCycleSteps = 2_000_000

// cycles gives one cycle, the shortest, for every knot of assets that depend on each
// other in a circle. Each follows the data and starts at its alphabetically first asset:
// the search begins at each asset in that order and takes only what is shorter.
func (g *Graph) cycles() [][]string {
	var cycles [][]string
	steps := maxCycleSteps
	for _, knot := range g.knots() {
		cycle := g.shortestCycle(knot, &steps)
		keys := make([]string, len(cycle))
		for i, node := range cycle {
			keys[i] = g.assets[node].Key
		}
		cycles = append(cycles, keys)
	}
	return cycles
}

// shortestCycle searches breadth first from every node of a knot, never deeper than the
// best cycle known. A search cannot leave the knot and come back, so it need not stay in.
func (g *Graph) shortestCycle(knot []int, steps *int) []int {
	parent, depth := make([]int, len(g.assets)), make([]int, len(g.assets))
	seen := make([]int, len(g.assets)) // in the search that began at this node, plus one
	var best, queue []int
	for _, start := range knot {
		if best != nil && (*steps <= 0 || len(best) == 2) { // nothing is shorter than two
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

// knots are the strongly connected components of more than one node, each sorted, in the
// order of their first nodes: Tarjan's algorithm, with a stack of its own because a chain
// of ten thousand assets is legal.
func (g *Graph) knots() [][]int {
	const unseen = -1
	n := len(g.assets)
	order, low, next := make([]int, n), make([]int, n), make([]int, n)
	onStack := make([]bool, n)
	for i := range order {
		order[i] = unseen
	}
	var stack, path []int
	var knots [][]int
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
					continue // next[node] moves on when the walk comes back
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
			if knot := slices.Clone(stack[from:]); len(knot) > 1 {
				slices.Sort(knot)
				knots = append(knots, knot)
			}
			for _, member := range stack[from:] {
				onStack[member] = false
			}
			stack = stack[:from]
		}
	}
	slices.SortFunc(knots, func(a, b []int) int { return a[0] - b[0] })
	return knots
}
