package store_test

import (
	"encoding/json"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"go.arco.dev/servo/internal/base/id"
	"go.arco.dev/servo/internal/domain/run"
	"go.arco.dev/servo/internal/store"
)

// endWith ends a ready task with a result.
func (w *world) endWith(t testing.TB, task run.Task, result string) {
	t.Helper()
	from := task.State
	task = w.taskIn(run.Succeeded, task)
	task.Result = json.RawMessage(result)
	w.apply(t, store.Changes{Moves: []store.Move{{From: from, Task: task}}})
}

// results asks for the upstreams of one task.
func (w *world) results(t testing.TB, key store.RunKey, most int, upstream ...id.Task) []store.UpstreamResult {
	t.Helper()
	asked := store.UpstreamsOf{Tenant: key.Tenant}
	for _, u := range upstream {
		asked.Results = append(asked.Results, store.UpstreamResult{Run: key.Run, Task: u})
	}
	w.engine(t, func(tx *Tx) { require.NoError(t, tx.UpstreamResults(t.Context(), []store.UpstreamsOf{asked}, most)) })
	return asked.Results
}

func text(n int) string { return `"` + strings.Repeat("x", n-2) + `"` }

func TestUpstream(t *testing.T) {
	t.Parallel()
	const count = `SELECT count(*) FROM servo.tasks WHERE id = $1 AND upstream IS NOT DISTINCT FROM $2::uuid[]`

	t.Run("a task is made with what its plan makes it wait for, in the plan's order", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t)
		a := w.account(t, "acme")
		w.newRun(t, a, nil, nil, []int32{0})
		g := w.newRun(t, a, nil, nil, []int32{0}, []int32{1, 0})
		require.Equal(t, 1, w.Count(t, count, g.tasks[0].ID.UUID, nil))
		require.Equal(t, 1, w.Count(t, count, g.tasks[1].ID.UUID, []string{g.tasks[0].ID.String()}))
		require.Equal(t, 1, w.Count(t, count, g.tasks[2].ID.UUID, []string{g.tasks[1].ID.String(), g.tasks[0].ID.String()}))
	})

	t.Run("a place that is not made with the task is a mistake, not another task", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t)
		a := w.account(t, "acme")
		task := func(g id.Run, index int32, upstream ...int32) store.NewTask {
			spec := run.TaskSpec{ID: id.New[id.Task](w.mint), Index: index, Asset: "asset", Pool: "default", Timeout: 60, Upstream: upstream}
			return store.NewTask{Key: store.TaskKey{Tenant: a.tenant, Run: g, Task: spec.ID}, Spec: spec}
		}
		one, two := id.New[id.Run](w.mint), id.New[id.Run](w.mint)
		for claim, tasks := range map[string][]store.NewTask{
			"of another run":  {task(one, 0), task(two, 1, 0)},
			"past the end":    {task(one, 0, 1)},
			"before the rest": {task(one, 5), task(one, 6, 4)},
			"not in its row":  {task(one, 3), task(one, 1, 0)},
		} {
			w.undone(t, func(tx *Tx) {
				require.ErrorContains(t, tx.Apply(t.Context(), store.Changes{Now: w.now, NewTasks: tasks}), "not made with it", claim)
			})
		}
	})

	t.Run("an offer and a lease name them", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t)
		a := w.account(t, "acme")
		g := w.newRun(t, a, []run.TaskState{run.Succeeded, run.Queued, run.Dispatched}, nil, []int32{0}, []int32{0, 1})
		w.engine(t, func(tx *Tx) {
			offers := must(tx.Assign(t.Context(), must(tx.TakeQueued(t.Context(), store.Demand{Pool: "default", Everything: true, Most: 5}))(t)))(t)
			require.Len(t, offers, 1)
			require.Equal(t, []id.Task{g.tasks[0].ID}, offers[0].Upstream)
			held := must(tx.Assign(t.Context(), must(tx.LeasesOfClaims(t.Context(), []id.Claim{g.tasks[2].Claim}))(t)))(t)
			require.Len(t, held, 1)
			require.Equal(t, []id.Task{g.tasks[0].ID, g.tasks[1].ID}, held[0].Upstream)
		})
	})

	t.Run("an offer and a lease name what they inherit, in the order in which it was made", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t)
		a := w.account(t, "acme")
		earlier := w.newRun(t, a, nil, nil, nil)
		g := w.newRun(t, a, []run.TaskState{run.Queued, run.Dispatched, run.Dispatched}, nil, nil, nil)
		inherited := `ARRAY['` + earlier.run.ID.String() + `', '` + earlier.tasks[1].ID.String() + `', '` + earlier.run.ID.String() + `', '` + earlier.tasks[0].ID.String() + `']::uuid[]`
		w.Exec(t, `UPDATE servo.tasks SET inherited = `+inherited+` WHERE run_id = '`+g.run.ID.String()+`' AND ix < 2`)
		w.Exec(t, `UPDATE servo.tasks SET inherited = (`+inherited+`)[1:3] WHERE run_id = '`+g.run.ID.String()+`' AND ix = 2`)
		w.engine(t, func(tx *Tx) {
			offers := must(tx.Assign(t.Context(), must(tx.TakeQueued(t.Context(), store.Demand{Pool: "default", Everything: true, Most: 5}))(t)))(t)
			require.Len(t, offers, 1)
			require.Equal(t, earlier.keys(1, 0), offers[0].Inherited)
			require.Empty(t, offers[0].Upstream)
			held := must(tx.Assign(t.Context(), must(tx.LeasesOfClaims(t.Context(), []id.Claim{g.tasks[1].Claim}))(t)))(t)
			require.Equal(t, earlier.keys(1, 0), held[0].Inherited)
			held = must(tx.Assign(t.Context(), must(tx.LeasesOfClaims(t.Context(), []id.Claim{g.tasks[2].Claim}))(t)))(t)
			require.Equal(t, earlier.keys(1), held[0].Inherited, "half a pair is none")
		})
	})

	t.Run("results come from several runs at once", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t)
		a := w.account(t, "acme")
		one, two := w.newRun(t, a, nil, nil), w.newRun(t, a, nil, nil)
		w.endWith(t, one.tasks[0], `"one"`)
		w.endWith(t, two.tasks[0], `"two"`)
		asked := store.UpstreamsOf{Tenant: a.tenant, Results: []store.UpstreamResult{
			{Run: two.run.ID, Task: two.tasks[0].ID}, {Run: one.run.ID, Task: one.tasks[0].ID}, {Run: one.run.ID, Task: two.tasks[0].ID},
		}}
		w.engine(t, func(tx *Tx) { require.NoError(t, tx.UpstreamResults(t.Context(), []store.UpstreamsOf{asked}, 100)) })
		require.Equal(t, `"two"`, string(asked.Results[0].Result))
		require.Equal(t, `"one"`, string(asked.Results[1].Result))
		require.Empty(t, asked.Results[2].Asset, "no such task")
	})

	t.Run("results come along as long as they fit, the small ones first", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t)
		g := w.newRun(t, w.account(t, "acme"), nil, nil, nil, nil, nil)
		w.endWith(t, g.tasks[0], text(700))
		w.endWith(t, g.tasks[1], text(200))
		w.endWith(t, g.tasks[2], text(500))
		w.endWith(t, g.tasks[3], "")
		all := []id.Task{g.tasks[0].ID, g.tasks[1].ID, g.tasks[2].ID, g.tasks[3].ID}

		got := w.results(t, g.key(), 700, all...)
		require.Equal(t, store.UpstreamResult{Run: g.run.ID, Task: all[0], Asset: "asset", Partition: "p", Omitted: true}, got[0])
		require.Equal(t, store.UpstreamResult{Run: g.run.ID, Task: all[1], Asset: "asset", Partition: "p", Result: json.RawMessage(text(200))}, got[1])
		require.Equal(t, store.UpstreamResult{Run: g.run.ID, Task: all[2], Asset: "asset", Partition: "p", Result: json.RawMessage(text(500))}, got[2], "700 in all")
		require.Equal(t, store.UpstreamResult{Run: g.run.ID, Task: all[3], Asset: "asset", Partition: "p"}, got[3], "there is none: nothing is left out")

		got = w.results(t, g.key(), 699, all...)
		require.Equal(t, []bool{true, false, true, false}, []bool{got[0].Omitted, got[1].Omitted, got[2].Omitted, got[3].Omitted})
		require.Nil(t, got[2].Result)
	})

	t.Run("a result counts as it travels, not as it is packed on disk", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t)
		g := w.newRun(t, w.account(t, "acme"), nil, nil)
		w.endWith(t, g.tasks[0], text(run.MaxResultLength))
		require.Less(t, w.Count(t, `SELECT pg_column_size(result) FROM servo.tasks WHERE id = $1`, g.tasks[0].ID.UUID), 2000)
		require.True(t, w.results(t, g.key(), run.MaxResultLength-1, g.tasks[0].ID)[0].Omitted)
		require.Len(t, w.results(t, g.key(), run.MaxResultLength, g.tasks[0].ID)[0].Result, run.MaxResultLength)
	})

	t.Run("each task has the whole room for itself, and another tenant's task is not found", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t)
		g, theirs := w.newRun(t, w.account(t, "acme"), nil, nil), w.newRun(t, w.account(t, "brick"), nil, nil)
		w.endWith(t, g.tasks[0], text(100))
		w.endWith(t, theirs.tasks[0], text(100))
		asked := []store.UpstreamsOf{
			{Tenant: g.run.Tenant, Results: []store.UpstreamResult{{Run: g.run.ID, Task: g.tasks[0].ID}}},
			{Tenant: g.run.Tenant, Results: []store.UpstreamResult{{Run: g.run.ID, Task: g.tasks[0].ID}}},
			{Tenant: g.run.Tenant, Results: []store.UpstreamResult{{Run: theirs.run.ID, Task: theirs.tasks[0].ID}}},
		}
		w.engine(t, func(tx *Tx) { require.NoError(t, tx.UpstreamResults(t.Context(), asked, 100)) })
		require.Len(t, asked[0].Results[0].Result, 100)
		require.Len(t, asked[1].Results[0].Result, 100)
		require.Equal(t, store.UpstreamResult{Run: theirs.run.ID, Task: theirs.tasks[0].ID}, asked[2].Results[0])
	})

	t.Run("tasks of an older version get theirs from the events that made them", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t)
		a := w.account(t, "acme")
		g := w.newRun(t, a, nil, nil, []int32{0}, []int32{1, 0})
		w.Exec(t, `UPDATE servo.tasks SET upstream = NULL`)
		migration := string(must(os.ReadFile("migrations/00005_upstream.sql"))(t))
		_, backfill, found := strings.Cut(migration, "SET LOCAL ROLE servo_engine;")
		require.True(t, found)
		backfill, _, found = strings.Cut(backfill, "RESET ROLE;")
		require.True(t, found)
		w.engine(t, func(tx *Tx) {
			_, err := tx.Raw().Exec(t.Context(), backfill)
			require.NoError(t, err)
		})
		require.Equal(t, 1, w.Count(t, count, g.tasks[0].ID.UUID, nil))
		require.Equal(t, 1, w.Count(t, count, g.tasks[2].ID.UUID, []string{g.tasks[1].ID.String(), g.tasks[0].ID.String()}))
	})
}

func TestLatestResults(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	a, other := w.account(t, "acme"), w.account(t, "brick")
	older, newer, failed := w.newRun(t, a, nil, nil), w.newRun(t, a, nil, nil), w.newRun(t, a, nil, nil)
	theirs := w.newRun(t, other, nil, nil)
	w.endWith(t, older.tasks[0], `1`)
	w.endWith(t, newer.tasks[0], `2`)
	w.endWith(t, theirs.tasks[0], `3`)
	w.apply(t, store.Changes{Moves: []store.Move{{From: failed.tasks[0].State, Task: w.taskIn(run.Failed, failed.tasks[0])}}})
	w.Exec(t, `UPDATE servo.tasks SET partition = ''`)
	asked := []store.AssetOf{
		{Tenant: a.tenant, Workspace: a.workspace.ID, Asset: "asset"},
		{Tenant: a.tenant, Workspace: other.workspace.ID, Asset: "asset"},
		{Tenant: a.tenant, Workspace: a.workspace.ID, Asset: "unknown"},
		{Tenant: other.tenant, Workspace: other.workspace.ID, Asset: "asset"},
	}
	w.engine(t, func(tx *Tx) {
		require.Equal(t, map[int]store.TaskKey{0: newer.keys(0)[0], 3: theirs.keys(0)[0]}, must(tx.LatestResults(t.Context(), asked))(t))
		require.Empty(t, must(tx.LatestResults(t.Context(), nil))(t))
	})

	g := w.newRun(t, a, nil, nil, []int32{0})
	w.Exec(t, `UPDATE servo.tasks SET inherited = ARRAY['`+newer.run.ID.String()+`', '`+newer.tasks[0].ID.String()+`',
		'00000000-0000-0000-0000-000000000000', '00000000-0000-0000-0000-000000000000']::uuid[] WHERE run_id = '`+g.run.ID.String()+`' AND ix = 1`)
	inputs := must(w.TaskInputs(t.Context(), g.keys(1)[0]))(t)
	require.ElementsMatch(t, []store.UpstreamResult{
		{Run: g.run.ID, Task: g.tasks[0].ID, Asset: "asset", Partition: "p"}, {Run: newer.run.ID, Task: newer.tasks[0].ID, Asset: "asset"},
	}, inputs)
	require.Empty(t, must(w.TaskInputs(t.Context(), g.keys(0)[0]))(t))
}
