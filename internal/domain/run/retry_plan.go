package run

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"go.arco.dev/servo/internal/base/fault"
	"go.arco.dev/servo/internal/base/id"
)

// Made is the content of an ended run that a retry needs: its plan, and the tasks that did not
// succeed.
type Made struct {
	Additions    []RunTasksAdded // its plan and its fan-outs
	Unsuccessful []id.Task       // failed, skipped or cancelled
}

// Target is an asset of a plan, or a partition or range of one.
type Target struct{ Asset, Partition string }

func (t Target) String() string {
	if t.Partition == "" {
		return t.Asset
	}
	return t.Asset + "[" + t.Partition + "]"
}

func sortedTargets(targets map[Target]bool) []Target {
	return slices.SortedFunc(maps.Keys(targets), func(a, b Target) int {
		return cmp.Or(strings.Compare(a.Asset, b.Asset), strings.Compare(a.Partition, b.Partition))
	})
}

// Planned returns the targets of its plan, sorted.
func (m Made) Planned() []Target {
	targets := map[Target]bool{}
	for _, added := range m.Additions {
		if added.By == nil {
			for _, task := range added.Tasks {
				if !task.IsBarrier() {
					targets[task.Target()] = true
				}
			}
		}
	}
	return sortedTargets(targets)
}

// Undone returns the targets to run again because they did not succeed, sorted. A
// fanned-out task is represented by the task that fanned it out, because only that one can add it
// again. The same holds for a task that waited for fanned-out tasks: it reads their results in the run
// in which it waited.
func (m Made) Undone() ([]Target, error) {
	barriers := map[id.Task]bool{}
	planned, fannedOutBy, awaited := map[id.Task]Target{}, map[id.Task]id.Task{}, map[id.Task][]id.Task{}
	for _, added := range m.Additions {
		if added.By == nil {
			for _, task := range added.Tasks {
				planned[task.ID], barriers[task.ID] = task.Target(), task.IsBarrier()
			}
			continue
		}
		for _, task := range added.Tasks {
			fannedOutBy[task.ID] = *added.By
		}
		for _, waiting := range added.Barrier {
			awaited[waiting] = append(awaited[waiting], *added.By)
		}
	}
	targets := map[Target]bool{}
	for todo := slices.Clone(m.Unsuccessful); len(todo) > 0; {
		task := todo[0]
		todo = todo[1:]
		for by, mapped := fannedOutBy[task]; mapped; by, mapped = fannedOutBy[task] {
			task = by
		}
		key, known := planned[task]
		if !known {
			return nil, fmt.Errorf("task %s is not a task of its run", task)
		}
		if barriers[task] { // the plan of the retry raises it again
			continue
		}
		if !targets[key] {
			targets[key] = true
			todo = append(todo, awaited[task]...)
		}
	}
	return sortedTargets(targets), nil
}

// From returns the targets to run again when the run is repeated from one of its tasks, sorted: that
// task and its downstreams, by the plan of the run and by downstream, the current code, as far as the
// run had planned them. Upstreams without a result are included too, because the others could not run
// without them. start is the key of an asset, which is all its tasks, or the id of a task.
func (m Made) From(start string, downstream func(asset string) []string) ([]Target, error) {
	p := m.plan()
	first, err := p.find(start)
	if err != nil {
		return nil, err
	}
	again := map[Target]bool{}
	for todo := first; len(todo) > 0; {
		target := todo[0]
		todo = todo[1:]
		if again[target] || p.upstream[target] == nil {
			continue
		}
		again[target] = true
		todo = append(todo, p.downstream[target]...)
		for _, key := range downstream(target.Asset) {
			if !p.connected[[2]string{target.Asset, key}] { // an edge that only the current code has
				todo = append(todo, p.byAsset[key]...)
			}
		}
	}
	failed := make(map[id.Task]bool, len(m.Unsuccessful))
	for _, task := range m.Unsuccessful {
		failed[task] = true
	}
	todo := slices.Collect(maps.Keys(again))
	for len(todo) > 0 {
		target := todo[0]
		todo = todo[1:]
		needed := slices.Clone(p.awaited[target])
		for _, up := range p.upstream[target] {
			if failed[p.tasks[up]] || p.barriers[up] {
				needed = append(needed, up)
			}
		}
		for _, up := range needed {
			if !again[up] {
				again[up] = true
				todo = append(todo, up)
			}
		}
	}
	maps.DeleteFunc(again, func(t Target, _ bool) bool { return p.barriers[t] })
	return sortedTargets(again), nil
}

// planned is the plan of a run, by target.
type planned struct {
	tasks      map[Target]id.Task
	byAsset    map[string][]Target
	upstream   map[Target][]Target // never nil for a target of the plan
	downstream map[Target][]Target
	connected  map[[2]string]bool  // the assets with an edge between any of their tasks
	awaited    map[Target][]Target // the targets that fanned out the tasks that one waited for
	standsFor  map[id.Task]Target  // the target of each task of the run, or the one that fanned it out
	barriers   map[Target]bool
}

func (m Made) plan() planned {
	p := planned{
		tasks: map[Target]id.Task{}, byAsset: map[string][]Target{}, upstream: map[Target][]Target{}, downstream: map[Target][]Target{},
		connected: map[[2]string]bool{}, awaited: map[Target][]Target{}, standsFor: map[id.Task]Target{}, barriers: map[Target]bool{},
	}
	places := map[int32]Target{}
	for _, added := range m.Additions {
		for _, task := range added.Tasks {
			if added.By != nil {
				p.standsFor[task.ID] = p.standsFor[*added.By]
				continue
			}
			target := task.Target()
			places[task.Index] = target
			p.tasks[target], p.standsFor[task.ID] = task.ID, target
			if p.barriers[target] = task.IsBarrier(); !task.IsBarrier() {
				p.byAsset[task.Asset] = append(p.byAsset[task.Asset], target)
			}
		}
		for _, waiting := range added.Barrier {
			target := p.standsFor[waiting]
			p.awaited[target] = append(p.awaited[target], p.standsFor[*added.By])
		}
	}
	for _, added := range m.Additions {
		for _, task := range added.Tasks {
			if added.By != nil {
				continue
			}
			target := task.Target()
			p.upstream[target] = make([]Target, len(task.Upstream))
			for i, place := range task.Upstream {
				up := places[place]
				p.upstream[target][i] = up
				p.downstream[up] = append(p.downstream[up], target)
				p.connected[[2]string{up.Asset, target.Asset}] = true
			}
		}
	}
	return p
}

// find returns the targets of the plan for the key of an asset or the id of a task.
func (p planned) find(start string) ([]Target, error) {
	if targets := p.byAsset[start]; targets != nil {
		return slices.Clone(targets), nil
	}
	for task, target := range p.standsFor {
		if task.String() == start {
			return []Target{target}, nil
		}
	}
	const some = 10
	keys := slices.Sorted(maps.Keys(p.byAsset))
	remedy := "name one of its assets: " + strings.Join(keys[:min(len(keys), some)], ", ")
	if len(keys) > some {
		remedy += " …"
	}
	return nil, fault.Invalid("from", fmt.Sprintf("%.201q is neither an asset nor a task of the run", start), remedy)
}

// AddDone adds the succeeded tasks of the run, by target, and the tasks that the run has inherited,
// unless a later run has them.
func (m Made) AddDone(of id.Run, done map[Target]Inherited) {
	failed := make(map[id.Task]bool, len(m.Unsuccessful))
	for _, task := range m.Unsuccessful {
		failed[task] = true
	}
	add := func(from Inherited) {
		target := Target{from.Asset, from.Partition}
		if _, later := done[target]; !later {
			done[target] = from
		}
	}
	for _, added := range m.Additions {
		for _, task := range added.Tasks {
			if added.By == nil && !task.IsBarrier() && !failed[task.ID] {
				add(Inherited{Asset: task.Asset, Partition: task.Partition, Run: of, Task: task.ID})
			}
			for _, from := range task.Inherited { // of assets that this run did not plan
				if !from.Outside { // a retry reads the latest again: it may be the reason for the retry
					add(from)
				}
			}
		}
	}
}
