package run

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"go.arco.dev/servo/internal/base/id"
)

// TestRetryPlan: what a retry does again, and what it takes over. The run has scan → join and a
// task alone; scan has fanned out two pages with a barrier, and the first page two parts.
func TestRetryPlan(t *testing.T) {
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
		require.Equal(t, c.want, titles(undone), name)
	}
	require.Equal(t, []string{"f/alone", "f/join", "f/scan"}, titles(made("join").Planned()))

	m := made()
	m.Unsuccessful = []id.Task{id.New[id.Task](mint)}
	_, err := m.Undone()
	require.ErrorContains(t, err, "is not a task of its run")

	this, before := id.New[id.Run](mint), id.New[id.Run](mint)
	earlier := Inherited{Asset: "f/older", Run: before, Task: id.New[id.Task](mint)}
	retry := made("join")
	retry.Additions[0].Tasks = append([]TaskSpec{{ID: id.New[id.Task](mint), Asset: "f/heir", Inherited: []Inherited{earlier}}}, planned...)
	later := Inherited{Asset: "f/alone", Run: before, Task: tasks["alone"]}
	done := map[Target]Inherited{{Asset: "f/alone"}: later}
	retry.AddDone(this, done)
	require.Equal(t, Inherited{Asset: "f/scan", Run: this, Task: scan}, done[Target{Asset: "f/scan"}])
	require.Equal(t, earlier, done[Target{Asset: "f/older"}], "the next run inherits it too")
	require.Equal(t, later, done[Target{Asset: "f/alone"}], "a later run is not replaced")
	require.NotContains(t, done, Target{Asset: "f/join"}, "it failed")
	require.NotContains(t, done, Target{"f/page", "1"}, "it was fanned out")
}

// titles are the names of targets.
func titles(targets []Target) (names []string) {
	for _, t := range targets {
		names = append(names, t.String())
	}
	return names
}

// TestMadeOfPartitions retries a run with 100 partitions of which 3 failed: exactly these 3 and what
// depends on them, with the results of the others.
func TestMadeOfPartitions(t *testing.T) {
	t.Parallel()
	mint := id.NewMinter(time.Date(2026, 5, 1, 0, 0, 0, 0, time.UTC))
	var m Made
	var added RunTasksAdded
	for i := range 100 {
		raw := TaskSpec{ID: id.New[id.Task](mint), Index: int32(i), Asset: "a/raw", Partition: fmt.Sprintf("p%02d", i)}
		clean := TaskSpec{ID: id.New[id.Task](mint), Index: int32(100 + i), Asset: "b/clean", Partition: raw.Partition, Upstream: []int32{raw.Index}}
		if added.Tasks = append(added.Tasks, raw, clean); i%40 == 7 {
			m.Unsuccessful = append(m.Unsuccessful, raw.ID, clean.ID)
		}
	}
	barrier := TaskSpec{ID: id.New[id.Task](mint), Index: 200, Asset: "b/clean", Partition: "*", Needs: NeedsBarrier}
	total := TaskSpec{ID: id.New[id.Task](mint), Index: 201, Asset: "c/total", Upstream: []int32{200}}
	for i := range 100 {
		barrier.Upstream = append(barrier.Upstream, int32(100+i))
	}
	added.Tasks = append(added.Tasks, barrier, total)
	m.Additions, m.Unsuccessful = []RunTasksAdded{added}, append(m.Unsuccessful, barrier.ID, total.ID)

	want := []string{"a/raw[p07]", "a/raw[p47]", "a/raw[p87]", "b/clean[p07]", "b/clean[p47]", "b/clean[p87]", "c/total"}
	undone, err := m.Undone()
	require.NoError(t, err)
	require.Equal(t, want, titles(undone))
	require.Len(t, m.Planned(), 201)
	done := map[Target]Inherited{}
	m.AddDone(id.New[id.Run](mint), done)
	require.Len(t, done, 194)
	require.Equal(t, "p08", done[Target{"b/clean", "p08"}].Partition)

	from, err := m.From(added.Tasks[0].ID.String(), sameCode)
	require.NoError(t, err)
	require.Equal(t, []string{"a/raw[p00]", "a/raw[p07]", "a/raw[p47]", "a/raw[p87]", "b/clean[p00]", "b/clean[p07]", "b/clean[p47]", "b/clean[p87]", "c/total"}, titles(from))
	from, err = m.From("b/clean", func(string) []string { return []string{"c/total"} })
	require.NoError(t, err)
	require.Len(t, from, 100+1+3)
}
