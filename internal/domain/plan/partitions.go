package plan

import (
	"fmt"
	"slices"
	"sort"
	"strings"

	"go.arco.dev/servo/internal/base/fault"
	"go.arco.dev/servo/internal/domain/partition"
)

// Target is an asset, or a partition or range of one.
type Target struct{ Asset, Partition string }

// Range is consecutive partitions of one series.
type Range struct {
	Series string
	partition.Range
}

// Barrier is the partition of a task that stands for all tasks of an asset: it is complete when they
// are, and executes nothing.
const Barrier = "*"

const (
	// barrierFrom is the number of edges from which a barrier replaces them. Below it a task waits for
	// each upstream and receives its result.
	barrierFrom = 1_000
	// MaxTasks is the maximum number of tasks of a plan with partitions.
	MaxTasks = 100_000
	// MaxEdges is the maximum number of edges of a plan with partitions.
	MaxEdges = 1_000_000
)

// partitioned is a plan of assets with partitions while it is made.
type partitioned struct {
	planner *Planner
	stages  []int
	blocks  map[int]*block // by node
	nodes   []int          // by stage and key
	edges   [][2]int
}

// block is the tasks of one asset: consecutive in the plan.
type block struct {
	first    int // the index of its first task
	ranges   []Range
	keys     []string
	barriers []string // groups, sorted
}

func (b *block) len() int { return len(b.ranges) + len(b.barriers) }

// layPartitions makes the plan of a selection with partitioned assets.
func (p *Planner) layPartitions(selected []bool, request Request) (Plan, error) {
	stages, err := p.graph.Stages(selected)
	if err != nil {
		return Plan{}, err
	}
	l := &partitioned{planner: p, stages: stages, blocks: map[int]*block{}}
	for i, yes := range selected {
		if yes {
			l.nodes = append(l.nodes, i)
		}
	}
	slices.SortStableFunc(l.nodes, func(a, b int) int { return stages[a] - stages[b] })
	if err := l.divide(request); err != nil {
		return Plan{}, err
	}
	pairs, err := l.pairs()
	if err != nil {
		return Plan{}, err
	}
	l.raiseBarriers(pairs)
	l.number()
	if err := l.connect(pairs); err != nil {
		return Plan{}, err
	}
	return l.plan(), nil
}

// divide determines the tasks of each asset.
func (l *partitioned) divide(request Request) error {
	if len(request.Only) > 0 {
		return l.only(request)
	}
	sets, err := l.sets(request)
	if err != nil {
		return err
	}
	// Counted before they are made: a selection may have millions.
	limit, total := MaxTasks, int64(0)
	if request.Limit > 0 {
		limit = request.Limit
	}
	for _, node := range l.nodes {
		total += l.count(node, sets[node])
	}
	if total > int64(limit) {
		return tooManyTasks(total, limit)
	}
	for _, node := range l.nodes {
		l.blocks[node] = l.split(node, sets[node], request.Values)
	}
	return nil
}

func tooManyTasks(total int64, limit int) error {
	return fault.New(fault.LimitExceeded, fmt.Sprintf("the plan has %d tasks, the limit is %d", total, limit), fault.Field("partitions"),
		fault.Remedy("select fewer partitions or assets, or raise partitions_per_task"), fault.Value("quota", "max_tasks_per_run"),
		fault.Value("limit", limit), fault.Value("current", total))
}

// sets resolves the requested partitions, once for each scheme. A value outside the bounds of one
// scheme is refused only if no other scheme has it.
func (l *partitioned) sets(request Request) (map[int]partition.Set, error) {
	type resolved struct {
		set partition.Set
		err error
	}
	bySchemes := map[*partition.Scheme]resolved{}
	sets := map[int]partition.Set{}
	var (
		refused error
		found   bool
	)
	for _, node := range l.nodes {
		scheme := l.planner.schemes.Of(node)
		if scheme == nil {
			continue
		}
		one, known := bySchemes[scheme]
		if !known {
			bound := scheme.Bind(request.Values)
			if request.Partitions != nil {
				one.set, one.err = request.Partitions(bound)
			} else {
				one.set, one.err = everything(l.planner.graph.Asset(node).Key, bound)
			}
			bySchemes[scheme] = one
		}
		switch {
		case one.err != nil && refused == nil:
			refused = one.err
		case one.err == nil:
			found = found || !one.set.Empty()
			sets[node] = one.set
		}
	}
	if refused != nil && !found {
		return nil, refused
	}
	return sets, nil
}

// everything is the partitions of an asset when none are named. Time has to be named.
func everything(key string, scheme *partition.Scheme) (partition.Set, error) {
	if scheme.Timed() {
		axis, _ := scheme.Axis()
		return partition.Set{}, fault.Invalid("partitions", fmt.Sprintf("asset %s has partitions: %s", key, scheme),
			fmt.Sprintf("name them: --partition %s=%s", axis.Name, axis.Start))
	}
	selection, err := partition.ParseSelection(func() []string {
		if axis, ok := scheme.Axis(); ok {
			return []string{axis.Name + "=*"}
		}
		return []string{scheme.Dimensions()[0].Name + "=*"}
	}()...)
	if err != nil {
		return partition.Set{}, err
	}
	return selection.Resolve(scheme, noTime)
}

// count is the number of tasks of an asset.
func (l *partitioned) count(node int, set partition.Set) (n int64) {
	if l.planner.schemes.Of(node) == nil {
		return 1
	}
	most := l.planner.graph.Asset(node).PartitionsPerTask.Most()
	for _, series := range set.Series() {
		for _, r := range set.Ranges(series) {
			n += (r.Len() + most - 1) / most
		}
	}
	return n
}

// split divides the partitions of an asset into tasks of consecutive ones.
func (l *partitioned) split(node int, set partition.Set, values partition.Values) *block {
	scheme := l.planner.schemes.Of(node)
	if scheme == nil {
		return &block{ranges: []Range{{}}, keys: []string{""}}
	}
	scheme = scheme.Bind(values)
	b := &block{}
	most := l.planner.graph.Asset(node).PartitionsPerTask.Most()
	for _, series := range set.Series() {
		for _, r := range set.Ranges(series) {
			for first := r.First; first <= r.Last; first += most {
				part := partition.Range{First: first, Last: min(r.Last, first+most-1)}
				b.add(scheme, series, part)
			}
		}
	}
	return b
}

func (b *block) add(scheme *partition.Scheme, series string, r partition.Range) {
	b.ranges = append(b.ranges, Range{series, r})
	b.keys = append(b.keys, scheme.RangeKey(series, r))
}

// only makes the tasks that a retry names, as they were.
func (l *partitioned) only(request Request) error {
	seen := make(map[Target]bool, len(request.Only))
	for i, target := range request.Only {
		if seen[target] {
			continue
		}
		seen[target] = true
		node, _ := l.planner.graph.Index(target.Asset)
		b := l.blocks[node]
		if b == nil {
			b = &block{}
			l.blocks[node] = b
		}
		scheme := l.planner.schemes.Of(node)
		if scheme == nil && target.Partition == "" {
			b.ranges, b.keys = []Range{{}}, []string{""}
			continue
		}
		gone := fault.New(fault.Conflict, fmt.Sprintf("asset %s has no partition %.200q any more", target.Asset, target.Partition),
			fault.Field(fmt.Sprintf("only[%d]", i)), fault.Remedy("trigger a new run"))
		if scheme == nil {
			return gone
		}
		series, r, err := scheme.Bind(request.Values).ParseRange(target.Partition)
		if err != nil {
			return gone
		}
		b.add(scheme.Bind(request.Values), series, r)
	}
	for _, b := range l.blocks {
		sort.Sort(byRange{b})
	}
	return nil
}

// byRange sorts the tasks of a block by series and ordinal.
type byRange struct{ *block }

func (b byRange) Len() int { return len(b.ranges) }
func (b byRange) Less(i, j int) bool {
	if n := strings.Compare(b.ranges[i].Series, b.ranges[j].Series); n != 0 {
		return n < 0
	}
	return b.ranges[i].First < b.ranges[j].First
}

func (b byRange) Swap(i, j int) {
	b.ranges[i], b.ranges[j] = b.ranges[j], b.ranges[i]
	b.keys[i], b.keys[j] = b.keys[j], b.keys[i]
}

// pair is an upstream of an asset, both with tasks in the plan.
type pair struct {
	up, down int
	mapping  *partition.Mapping
}

func (l *partitioned) pairs() ([]pair, error) {
	var pairs []pair
	for _, down := range l.nodes {
		if l.blocks[down] == nil {
			continue
		}
		ups := l.planner.graph.Upstream(down)
		if _, self := l.planner.graph.Asset(down).PartitionMapping[l.planner.graph.Asset(down).Key]; self {
			ups = append(slices.Clone(ups), down)
		}
		for _, up := range ups {
			if l.blocks[up] == nil {
				continue
			}
			mapping, err := l.planner.schemes.Mapping(down, up)
			if err != nil {
				return nil, err
			}
			pairs = append(pairs, pair{up, down, mapping})
		}
	}
	return pairs, nil
}

// raiseBarriers finds the groups of an upstream for which edges would be too many.
func (l *partitioned) raiseBarriers(pairs []pair) {
	for _, p := range pairs {
		if !p.mapping.Whole() {
			continue
		}
		up, down := l.blocks[p.up], l.blocks[p.down]
		theirs, own := map[string]int{}, map[string]int{}
		for _, r := range up.ranges {
			theirs[p.mapping.Group(r.Series)]++
		}
		for _, r := range down.ranges {
			own[p.mapping.Group(r.Series)]++
		}
		for group, n := range theirs {
			if name := p.mapping.GroupName(group); n > 1 && own[group] > 1 && n*own[group] > barrierFrom && !slices.Contains(up.barriers, name) {
				up.barriers = append(up.barriers, name)
			}
		}
	}
	for _, b := range l.blocks {
		slices.Sort(b.barriers)
	}
}

// number places the blocks one after the other.
func (l *partitioned) number() {
	next := 0
	for _, node := range l.nodes {
		if b := l.blocks[node]; b != nil {
			b.first = next
			next += b.len()
		}
	}
}

// barrier returns the index of the barrier of a group; false if edges replace it.
func (b *block) barrier(name string) (int, bool) {
	i, ok := slices.BinarySearch(b.barriers, name)
	return b.first + len(b.ranges) + i, ok
}

// connect makes the edges of the pairs.
func (l *partitioned) connect(pairs []pair) error {
	type raised struct {
		up   int
		name string
	}
	joined := map[raised]bool{}
	for _, p := range pairs {
		up, down := l.blocks[p.up], l.blocks[p.down]
		groups := map[string][]int{} // of the upstream, by first ordinal
		for i, r := range up.ranges {
			group := p.mapping.Group(r.Series)
			groups[group] = append(groups[group], i)
		}
		longest := int64(1)
		for _, tasks := range groups {
			slices.SortStableFunc(tasks, func(a, b int) int { return int(min(1, max(-1, up.ranges[a].First-up.ranges[b].First))) })
		}
		for _, r := range up.ranges {
			longest = max(longest, r.Len())
		}
		for i, r := range down.ranges {
			group := p.mapping.Group(r.Series)
			tasks := groups[group]
			if p.mapping.Whole() {
				if at, ok := up.barrier(p.mapping.GroupName(group)); ok {
					if key := (raised{p.up, p.mapping.GroupName(group)}); !joined[key] {
						joined[key] = true
						for _, task := range tasks {
							l.edges = append(l.edges, [2]int{up.first + task, at})
						}
					}
					l.edges = append(l.edges, [2]int{at, down.first + i})
					continue
				}
				for _, task := range tasks {
					l.edges = append(l.edges, [2]int{up.first + task, down.first + i})
				}
				continue
			}
			needed := p.mapping.Upstream(r.Range)
			from := sort.Search(len(tasks), func(k int) bool { return up.ranges[tasks[k]].First > needed.First-longest })
			for _, task := range tasks[from:] {
				if up.ranges[task].First > needed.Last {
					break
				}
				if up.ranges[task].Last >= needed.First && (p.up != p.down || task != i) {
					l.edges = append(l.edges, [2]int{up.first + task, down.first + i})
				}
			}
		}
		if len(l.edges) > MaxEdges {
			return fault.New(fault.LimitExceeded, fmt.Sprintf("the plan has more than %d dependencies", MaxEdges), fault.Field("partitions"),
				fault.Remedy("select fewer partitions, or raise partitions_per_task"), fault.Value("limit", MaxEdges))
		}
	}
	slices.SortFunc(l.edges, func(a, b [2]int) int { return slices.Compare(a[:], b[:]) })
	return nil
}

func (l *partitioned) plan() Plan {
	plan := Plan{Tasks: []Task{}, Edges: l.edges, Stages: []int{}}
	if plan.Edges == nil {
		plan.Edges = [][2]int{}
	}
	for _, node := range l.nodes {
		b := l.blocks[node]
		if b == nil {
			continue
		}
		a := l.planner.graph.Asset(node)
		for len(plan.Stages) <= l.stages[node] {
			plan.Stages = append(plan.Stages, 0)
		}
		plan.Stages[l.stages[node]] += b.len()
		task := Task{Key: a.Key, Pool: a.Pool, Needs: a.Capability(), Timeout: a.Timeout, Stage: l.stages[node]}
		for i := range b.ranges {
			task.Index, task.Partition = b.first+i, b.keys[i]
			if task.Range = nil; b.keys[i] != "" {
				task.Range = &b.ranges[i]
			}
			plan.Tasks = append(plan.Tasks, task)
		}
		for i := range b.barriers {
			plan.Tasks = append(plan.Tasks, Task{
				Index: b.first + len(b.ranges) + i, Key: a.Key, Pool: a.Pool, Timeout: a.Timeout, Stage: l.stages[node],
				Partition: barrierKey(b.barriers[i]), Barrier: true,
			})
		}
	}
	return plan
}

func barrierKey(group string) string {
	if group == "" {
		return Barrier
	}
	return group
}
