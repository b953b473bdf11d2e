package run

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"go.arco.dev/servo/internal/base/id"
)

// TestMade: what a retry does again, and what it takes over. The run has scan → join and a
// task alone; scan has fanned out two pages with a barrier, and the first page two parts.
func TestMade(t *testing.T) {
	t.Parallel()
	mint := id.NewMinter(time.Date(2026, 5, 1, 0, 0, 0, 0, time.UTC))
	tasks := map[string]id.Task{}
	spec := func(name, asset, partition string) TaskSpec {
		tasks[name] = id.New[id.Task](mint)
		return TaskSpec{ID: tasks[name], Asset: asset, Partition: partition}
	}
	planned := []TaskSpec{spec("scan", "f/scan", ""), spec("join", "f/join", ""), spec("alone", "f/alone", "")}
	pages := []TaskSpec{spec("page1", "f/page", "1"), spec("page2", "f/page", "2")}
	parts := []TaskSpec{spec("part1", "f/part", "1"), spec("part2", "f/part", "2")}
	scan, page := tasks["scan"], tasks["page1"]
	made := func(unsuccessful ...string) Made {
		m := Made{Additions: []RunTasksAdded{
			{Tasks: planned}, {By: &scan, Tasks: pages, Barrier: []id.Task{tasks["join"]}}, {By: &page, Tasks: parts},
		}}
		for _, name := range unsuccessful {
			m.Unsuccessful = append(m.Unsuccessful, tasks[name])
		}
		return m
	}

	for name, c := range map[string]struct {
		unsuccessful, want []string
	}{
		"nothing, if all succeeded":                        {nil, nil},
		"a task of the plan alone":                         {[]string{"alone"}, []string{"f/alone"}},
		"who fanned out, for a task that was added":        {[]string{"page2"}, []string{"f/scan"}},
		"the first of them, for what an added one added":   {[]string{"part2", "part1"}, []string{"f/scan"}},
		"who fanned out, for a task that waited for pages": {[]string{"join"}, []string{"f/join", "f/scan"}},
		"each asset once":                                  {[]string{"page1", "page2", "join", "alone"}, []string{"f/alone", "f/join", "f/scan"}},
	} {
		undone, err := made(c.unsuccessful...).Undone()
		require.NoError(t, err, name)
		require.Equal(t, c.want, undone, name)
	}
	require.Equal(t, []string{"f/alone", "f/join", "f/scan"}, made("join").Planned())

	m := made()
	m.Unsuccessful = []id.Task{id.New[id.Task](mint)}
	_, err := m.Undone()
	require.ErrorContains(t, err, "is not a task of its run")

	this, before := id.New[id.Run](mint), id.New[id.Run](mint)
	earlier := Inherited{Asset: "f/older", Run: before, Task: id.New[id.Task](mint)}
	retry := made("join")
	retry.Additions[0].Tasks = append([]TaskSpec{{ID: id.New[id.Task](mint), Asset: "f/heir", Inherited: []Inherited{earlier}}}, planned...)
	later := Inherited{Asset: "f/alone", Run: before, Task: tasks["alone"]}
	done := map[string]Inherited{"f/alone": later}
	retry.AddDone(this, done)
	require.Equal(t, Inherited{Asset: "f/scan", Run: this, Task: scan}, done["f/scan"])
	require.Equal(t, earlier, done["f/older"], "what it inherited goes on to the next")
	require.Equal(t, later, done["f/alone"], "a later run is not replaced")
	require.NotContains(t, done, "f/join", "it failed")
	require.NotContains(t, done, "f/page", "it was fanned out")
}
