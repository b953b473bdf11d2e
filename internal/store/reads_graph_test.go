package store_test

import (
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"go.arco.dev/servo/internal/base/event"
	"go.arco.dev/servo/internal/base/fault"
	"go.arco.dev/servo/internal/base/id"
	"go.arco.dev/servo/internal/domain/run"
	"go.arco.dev/servo/internal/store"
)

func TestRunGraph(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	a, other := w.account(t, "acme"), w.account(t, "brick")
	states := run.TaskStates()
	upstreams := make([][]int32, len(states))
	upstreams[1], upstreams[2] = []int32{0}, []int32{0, 1}
	g := w.newRun(t, a, states, upstreams...)
	w.newRun(t, other, nil, nil, nil)
	running := slices.Index(states, run.Running)
	must(w.WriteProgress(t.Context(), []store.ProgressReport{progress(g.tasks[running])}))(t)
	ended := g.tasks[slices.Index(states, run.Succeeded)]
	queued, claimed := w.now.Add(-3*time.Minute), w.now.Add(-2*time.Minute)
	w.apply(t, store.Changes{Events: []event.Event{
		{Tenant: a.tenant, Run: g.run.ID, Subject: ended.ID.UUID, Version: 2, At: queued, Body: run.TaskQueued{}},
		{Tenant: a.tenant, Run: g.run.ID, Subject: ended.ID.UUID, Version: 3, At: claimed, Body: run.TaskClaimed{Attempt: 1, Started: true}},
	}})

	t.Run("every task is a node in its state, in the order of the plan", func(t *testing.T) {
		t.Parallel()
		found := must(w.RunGraph(t.Context(), g.key()))(t)
		require.Equal(t, g.run.ID, found.Run.ID)
		require.Len(t, found.Nodes, len(states))
		for i, n := range found.Nodes {
			task := g.tasks[i]
			want := store.GraphNode{
				Task: task.ID, Index: int32(i), Asset: "asset", Partition: "p", Pool: "default", State: states[i], Outcome: task.Outcome, //nolint:gosec // few
				Attempt: task.Attempt, Failures: task.Failures, Since: task.Since, StartedAt: task.StartedAt,
			}
			if task.Failure != nil {
				want.Error = task.Failure.Code
			}
			if states[i].Terminal() {
				want.FinishedAt = task.Since
			}
			if i == running {
				require.NotZero(t, n.Fraction)
				want.Fraction = n.Fraction
			}
			if task.ID == ended.ID {
				want.QueuedAt, want.StartedAt = queued, claimed
			}
			require.Equal(t, want, n)
		}
		require.ElementsMatch(t, []store.GraphEdge{
			{From: g.tasks[0].ID, To: g.tasks[1].ID}, {From: g.tasks[0].ID, To: g.tasks[2].ID}, {From: g.tasks[1].ID, To: g.tasks[2].ID},
		}, found.Edges)
		require.False(t, found.MoreEdges)
	})

	wide := w.newRun(t, a, states, upstreams...)
	w.Exec(t, `UPDATE servo.runs SET total = 2001, remaining = 2001 WHERE id = '`+wide.run.ID.String()+`'`)
	t.Run("a large run is counted by asset and state", func(t *testing.T) {
		t.Parallel()
		found := must(w.RunGraph(t.Context(), wide.key()))(t)
		require.Empty(t, found.Nodes)
		counted := map[run.TaskState]int32{}
		for _, c := range found.Groups {
			require.Equal(t, "asset", c.Asset)
			counted[c.State] += c.Tasks
		}
		for _, state := range states {
			require.Equal(t, int32(1), counted[state], state)
		}
		require.Equal(t, []store.GroupEdge{{From: "asset", To: "asset"}}, found.GroupEdges)
		require.True(t, found.MoreEdges)
	})

	t.Run("a run of another tenant is not found", func(t *testing.T) {
		t.Parallel()
		_, err := w.RunGraph(t.Context(), store.RunKey{Tenant: other.tenant, Run: g.run.ID})
		require.True(t, fault.Is(err, fault.NotFound), "%v", err)
		_, err = w.RunGraph(t.Context(), store.RunKey{Tenant: a.tenant, Run: id.New[id.Run](w.mint)})
		require.True(t, fault.Is(err, fault.NotFound), "%v", err)
	})
}
