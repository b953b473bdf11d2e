package run

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"go.arco.dev/servo/internal/base/fault"
	"go.arco.dev/servo/internal/base/id"
)

// Made is what a run that is over was made of, and what of it did not succeed: all that a
// retry of it needs to know.
type Made struct {
	Additions    []RunTasksAdded // its plan, and what its tasks have fanned out
	Unsuccessful []id.Task       // failed, skipped or cancelled
}

// Planned are the keys of the assets of its plan, sorted.
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

// Undone are the keys of the assets to do again because they did not succeed, sorted. A task
// that was fanned out stands for the one that fanned it out: only that one knows what to add.
// So does a task that waited for such tasks: it reads their results where it has waited for
// them.
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
			return nil, fmt.Errorf("task %s is not among those that its run was given", task)
		}
		if !assets[key] {
			assets[key] = true
			todo = append(todo, awaited[task]...)
		}
	}
	return slices.Sorted(maps.Keys(assets)), nil
}

// From are the keys of the assets to do again when the run is done again from one of its
// tasks, sorted: that task's asset and everything downstream of it, by the plan of then and by
// downstream, the code of now, as far as the run was planned to do it. What these need and an
// upstream has not left is done again too: without it they could not run. start is the key of
// an asset or the id of a task.
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

// planned is the plan of a run by its assets.
type planned struct {
	tasks      map[string]id.Task
	upstream   map[string][]string // never nil for an asset of the plan
	downstream map[string][]string
	awaited    map[string][]string // who has fanned out what an asset waited for
	standsFor  map[id.Task]string  // the asset that each task of the run belongs to or was fanned out by
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

// find is the asset of the plan that somebody means.
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

// AddDone adds the planned tasks of the run that have succeeded, by their asset, and what the
// run has inherited itself, unless a later run has done the same.
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
			for _, from := range task.Inherited { // of no asset that this run has planned
				if !from.Outside { // a retry looks for the latest again: it may be why it is retried
					add(from)
				}
			}
		}
	}
}
