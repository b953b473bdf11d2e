package run

import (
	"fmt"
	"maps"
	"slices"

	"go.arco.dev/servo/internal/id"
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
				add(from)
			}
		}
	}
}
