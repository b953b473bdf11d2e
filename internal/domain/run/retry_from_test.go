package run

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"go.arco.dev/servo/internal/base/fault"
	"go.arco.dev/servo/internal/base/id"
)

// madeOf is a run over assets a/0 … whose asset i waits for upstream[i].
func madeOf(mint *id.Minter, upstream [][]int32, failed func(int) bool) Made {
	var m Made
	specs := make([]TaskSpec, len(upstream))
	for i, up := range upstream {
		specs[i] = TaskSpec{ID: id.New[id.Task](mint), Index: int32(i), Asset: fmt.Sprintf("a/%d", i), Upstream: up}
		if failed(i) {
			m.Unsuccessful = append(m.Unsuccessful, specs[i].ID)
		}
	}
	m.Additions = []RunTasksAdded{{Tasks: specs[:len(specs)/2]}, {Tasks: specs[len(specs)/2:]}}
	return m
}

func sameCode(string) []string { return nil }

func TestFrom(t *testing.T) {
	t.Parallel()
	// a minter is for one goroutine, and the cases run side by side
	minter := func() *id.Minter { return id.NewMinter(time.Date(2026, 5, 1, 0, 0, 0, 0, time.UTC)) }
	// 0 → 1 → 3, 2 → 3 → 4, 5 alone
	shape := [][]int32{{}, {0}, {}, {1, 2}, {3}, {}}
	never := func(int) bool { return false }

	for name, c := range map[string]struct {
		from       string
		failed     []int
		downstream func(string) []string
		want       []string
	}{
		"an asset and what is downstream of it":     {from: "a/1", want: []string{"a/1", "a/3", "a/4"}},
		"the last asset alone":                      {from: "a/4", want: []string{"a/4"}},
		"an upstream that failed is needed":         {from: "a/1", failed: []int{2, 3, 4}, want: []string{"a/1", "a/2", "a/3", "a/4"}},
		"a failure that none of them needs is kept": {from: "a/1", failed: []int{5}, want: []string{"a/1", "a/3", "a/4"}},
		"what the new code has put downstream goes along": {
			from: "a/4", downstream: func(key string) []string { return map[string][]string{"a/4": {"a/5", "b/new"}}[key] }, want: []string{"a/4", "a/5"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			downstream := c.downstream
			if downstream == nil {
				downstream = sameCode
			}
			m := madeOf(minter(), shape, func(i int) bool { return slices.Contains(c.failed, i) })
			got, err := m.From(c.from, downstream)
			require.NoError(t, err)
			require.Equal(t, c.want, titles(got))
		})
	}

	t.Run("a task represents its asset, and a fanned-out one the task that added it", func(t *testing.T) {
		t.Parallel()
		mint := minter()
		m := madeOf(mint, shape, never)
		first := m.Additions[0].Tasks[1].ID
		page := TaskSpec{ID: id.New[id.Task](mint), Asset: "f/page", Partition: "1"}
		m.Additions = append(m.Additions, RunTasksAdded{By: &first, Tasks: []TaskSpec{page}})
		for _, start := range []string{first.String(), page.ID.String()} {
			got, err := m.From(start, sameCode)
			require.NoError(t, err)
			require.Equal(t, []string{"a/1", "a/3", "a/4"}, titles(got))
		}
	})

	t.Run("who waited at a barrier takes along who fanned out", func(t *testing.T) {
		t.Parallel()
		mint := minter()
		m := madeOf(mint, shape, never)
		scan, join := m.Additions[0].Tasks[2].ID, m.Additions[1].Tasks[1].ID
		m.Additions = append(m.Additions, RunTasksAdded{By: &scan, Tasks: []TaskSpec{{ID: id.New[id.Task](mint)}}, Barrier: []id.Task{join}})
		got, err := m.From("a/4", sameCode)
		require.NoError(t, err)
		require.Equal(t, []string{"a/2", "a/4"}, titles(got))
	})

	t.Run("what the run has not planned is refused with what it has", func(t *testing.T) {
		t.Parallel()
		_, err := madeOf(minter(), shape, never).From("a/9", sameCode)
		refused, ok := fault.As(err)
		require.True(t, ok)
		require.Equal(t, "from", refused.Violation.Field)
		require.Contains(t, refused.Violation.Remedy, "a/0, a/1")
	})

	t.Run("nothing is left out downstream, and everything that is done can be done", func(t *testing.T) {
		t.Parallel()
		rapid.Check(t, func(t *rapid.T) {
			n := rapid.IntRange(1, 12).Draw(t, "assets")
			upstream, failed := make([][]int32, n), make([]bool, n)
			for i := range upstream {
				for j := range i {
					if rapid.IntRange(0, 3).Draw(t, "edge") == 0 {
						upstream[i] = append(upstream[i], int32(j))
					}
				}
				failed[i] = rapid.IntRange(0, 3).Draw(t, "failed") == 0
				for _, up := range upstream[i] {
					failed[i] = failed[i] || failed[up] // skipped
				}
			}
			start := rapid.IntRange(0, n-1).Draw(t, "start")
			keys, err := madeOf(minter(), upstream, func(i int) bool { return failed[i] }).From(fmt.Sprintf("a/%d", start), sameCode)
			require.NoError(t, err)
			again := make([]bool, n)
			for _, key := range keys {
				var i int
				_, err := fmt.Sscanf(key.Asset, "a/%d", &i)
				require.NoError(t, err)
				again[i] = true
			}
			require.True(t, again[start])
			below := make([]bool, n)
			below[start] = true
			for i := range upstream {
				for _, up := range upstream[i] {
					below[i] = below[i] || below[up]
					require.True(t, !again[i] || again[up] || !failed[up], "%d needs %d", i, up)
				}
				require.True(t, !below[i] || again[i], "%d is downstream", i)
				require.True(t, below[i] || !again[i] || failed[i], "%d is done again for no reason", i)
			}
		})
	})
}
