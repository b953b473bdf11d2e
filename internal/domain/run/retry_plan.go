package run

import (
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

// Planned returns the keys of the assets of its plan, sorted.
func (m Made) Planned() []string {
	assets := map[string]bool{}
	for _, added := range m.Additions {
		if added.By == nil {
			for _, task := range added.Tasks {
				assets[task.Asset] = true
			}
		}
	}
	return slices.Sorted(maps.Keys(assets))
}

// Undone returns the keys of the assets to run again because they did not succeed, sorted. A
// fanned-out task is represented by the task that fanned it out, because only that one can add it
// again. The same holds for a task that waited for fanned-out tasks: it reads their results in the run
// in which it waited.
func (m Made) Undone() ([]string, error) {
	planned, fannedOutBy, awaited := map[id.Task]string{}, map[id.Task]id.Task{}, map[id.Task][]id.Task{}
	for _, added := range m.Additions {
		if added.By == nil {
			for _, task := range added.Tasks {
				planned[task.ID] = task.Asset
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
	assets := map[string]bool{}
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
		if !assets[key] {
			assets[key] = true
			todo = append(todo, awaited[task]...)
		}
	}
	return slices.Sorted(maps.Keys(assets)), nil
}

// From returns the keys of the assets to run again when the run is repeated from one of its tasks,
// sorted: that task's asset and its downstreams, by the plan of the run and by downstream, the
// current code, as far as the run had planned them. Upstreams without a result are included too,
// because the others could not run without them. start is the key of an asset or the id of a task.
func (m Made) From(start string, downstream func(asset string) []string) ([]string, error) {
	p := m.plan()
	first, err := p.find(start)
	if err != nil {
		return nil, err
	}
	again := map[string]bool{}
	for todo := []string{first}; len(todo) > 0; {
		key := todo[0]
		todo = todo[1:]
		if again[key] || p.upstream[key] == nil {
			continue
		}
		again[key] = true
		todo = append(append(todo, p.downstream[key]...), downstream(key)...)
	}
	failed := make(map[id.Task]bool, len(m.Unsuccessful))
	for _, task := range m.Unsuccessful {
		failed[task] = true
	}
	todo := slices.Collect(maps.Keys(again))
	for len(todo) > 0 {
		key := todo[0]
		todo = todo[1:]
		needed := slices.Clone(p.awaited[key])
		for _, up := range p.upstream[key] {
			if failed[p.tasks[up]] {
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
	return slices.Sorted(maps.Keys(again)), nil
}

// planned is the plan of a run, by asset.
type planned struct {
	tasks      map[string]id.Task
	upstream   map[string][]string // never nil for an asset of the plan
	downstream map[string][]string
	awaited    map[string][]string // the assets that fanned out the tasks that an asset waited for
	standsFor  map[id.Task]string  // the asset of each task of the run, or the asset that fanned it out
}

func (m Made) plan() planned {
	p := planned{
		tasks: map[string]id.Task{}, upstream: map[string][]string{}, downstream: map[string][]string{},
		awaited: map[string][]string{}, standsFor: map[id.Task]string{},
	}
	places := map[int32]string{}
	for _, added := range m.Additions {
		for _, task := range added.Tasks {
			if added.By != nil {
				p.standsFor[task.ID] = p.standsFor[*added.By]
				continue
			}
			places[task.Index] = task.Asset
			p.tasks[task.Asset], p.standsFor[task.ID] = task.ID, task.Asset
		}
		for _, waiting := range added.Barrier {
			key := p.standsFor[waiting]
			p.awaited[key] = append(p.awaited[key], p.standsFor[*added.By])
		}
	}
	for _, added := range m.Additions {
		for _, task := range added.Tasks {
			if added.By != nil {
				continue
			}
			p.upstream[task.Asset] = make([]string, len(task.Upstream))
			for i, place := range task.Upstream {
				up := places[place]
				p.upstream[task.Asset][i] = up
				p.downstream[up] = append(p.downstream[up], task.Asset)
			}
		}
	}
	return p
}

// find returns the asset of the plan for a key or the id of a task.
func (p planned) find(start string) (string, error) {
	if _, ok := p.tasks[start]; ok {
		return start, nil
	}
	for task, key := range p.standsFor {
		if task.String() == start {
			return key, nil
		}
	}
	const some = 10
	keys := slices.Sorted(maps.Keys(p.tasks))
	remedy := "name one of its assets: " + strings.Join(keys[:min(len(keys), some)], ", ")
	if len(keys) > some {
		remedy += " …"
	}
	return "", fault.Invalid("from", fmt.Sprintf("%.201q is neither an asset nor a task of the run", start), remedy)
}

// AddDone adds the succeeded tasks of the run, by asset, and the tasks that the run has inherited,
// unless a later run has them.
func (m Made) AddDone(of id.Run, done map[string]Inherited) {
	failed := make(map[id.Task]bool, len(m.Unsuccessful))
	for _, task := range m.Unsuccessful {
		failed[task] = true
	}
	add := func(from Inherited) {
		if _, later := done[from.Asset]; !later {
			done[from.Asset] = from
		}
	}
	for _, added := range m.Additions {
		for _, task := range added.Tasks {
			if added.By == nil && task.Partition == "" && !failed[task.ID] {
				add(Inherited{Asset: task.Asset, Run: of, Task: task.ID})
			}
			for _, from := range task.Inherited { // of assets that this run did not plan
				if !from.Outside { // a retry reads the latest again: it may be the reason for the retry
					add(from)
				}
			}
		}
	}
}
