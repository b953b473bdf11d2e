package store_test

import (
	"encoding/json"
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

// workspace makes a further workspace of an account, without a deployment.
func (w *world) workspace(t testing.TB, a account, name string) account {
	t.Helper()
	a.workspace = store.Workspace{Tenant: a.tenant, ID: id.New[id.Workspace](w.mint), Name: name, Version: 1}
	w.engine(t, func(tx *Tx) { require.NoError(t, tx.InsertWorkspace(t.Context(), a.workspace, w.now)) })
	return a
}

// later continues to mint ids from a later time.
func (w *world) later(d time.Duration) {
	w.now = w.now.Add(d)
	w.mint = id.NewMinter(w.now)
}

func TestListRuns(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	acme, brick := w.account(t, "acme"), w.account(t, "brick")
	staging := w.workspace(t, acme, "staging")

	start := w.now
	var made []run.Run // the oldest first, one a minute
	add := func(a account, change func(*run.Run)) {
		r := run.Run{
			Tenant: a.tenant, ID: id.New[id.Run](w.mint), Workspace: a.workspace.ID, Deployment: a.deployment.ID, State: run.RunRunning, Version: 1,
			Pipeline: "daily", Priority: 5, TriggerType: "api", Fingerprint: "f", Total: 1, Remaining: 1, CreatedAt: w.now, StartedAt: w.now,
		}
		if change != nil {
			change(&r)
		}
		ended := r
		if r.State.Terminal() {
			r.State = run.RunRunning
			ended.Remaining, ended.Failed, ended.FinishedAt = 0, 1, w.now
		}
		w.apply(t, store.Changes{NewRuns: []run.Run{r}})
		if r = ended; r.State.Terminal() {
			w.apply(t, store.Changes{ChangedRuns: []run.Run{r}})
		}
		made = append(made, r)
		w.later(time.Minute)
	}
	nightly, unknown := id.New[id.Config](w.mint), id.New[id.Config](w.mint)
	add(acme, func(r *run.Run) { r.Config = &nightly })
	add(acme, func(r *run.Run) { r.State = run.RunFailed })
	add(staging, nil)
	add(acme, func(r *run.Run) { r.Pipeline, r.Parent, r.Config = "hourly", &made[1].ID, &nightly })
	add(brick, func(r *run.Run) { r.Config = &nightly })
	add(acme, func(r *run.Run) { r.State = run.RunPending })

	list := func(t *testing.T, f store.RunFilter, before *id.Run, most int) (found []int, next *id.Run) {
		t.Helper()
		runs, next, err := w.ListRuns(t.Context(), acme.tenant, f, before, most)
		require.NoError(t, err)
		for _, r := range runs {
			found = append(found, slices.IndexFunc(made, func(m run.Run) bool { return m.ID == r.ID }))
		}
		return found, next
	}
	for name, c := range map[string]struct {
		filter store.RunFilter
		want   []int
	}{
		"all of a tenant, the newest first":     {store.RunFilter{}, []int{5, 3, 2, 1, 0}},
		"of a workspace":                        {store.RunFilter{Workspace: "staging"}, []int{2}},
		"of an unknown workspace":               {store.RunFilter{Workspace: "nowhere"}, nil},
		"of a pipeline":                         {store.RunFilter{Pipeline: "hourly"}, []int{3}},
		"in a state":                            {store.RunFilter{States: []run.State{run.RunFailed}}, []int{1}},
		"in one of several states":              {store.RunFilter{States: []run.State{run.RunFailed, run.RunPending}}, []int{5, 1}},
		"that have not ended":                   {store.RunFilter{States: []run.State{run.RunPending, run.RunRunning}}, []int{5, 3, 2, 0}},
		"in a state, of a workspace":            {store.RunFilter{Workspace: "staging", States: []run.State{run.RunRunning, run.RunFailed}}, []int{2}},
		"in a state that none is in":            {store.RunFilter{States: []run.State{run.RunTimedOut, run.RunCancelling}}, nil},
		"in a state, made from a time on":       {store.RunFilter{States: []run.State{run.RunFailed}, From: start.Add(2 * time.Minute)}, nil},
		"that retry a run, in a state":          {store.RunFilter{Parent: &made[1].ID, States: []run.State{run.RunFailed}}, nil},
		"that retry a run, of a config":         {store.RunFilter{Parent: &made[1].ID, Config: &nightly}, []int{3}},
		"that succeeded":                        {store.RunFilter{States: []run.State{run.RunSucceeded}}, nil},
		"made from a time on":                   {store.RunFilter{From: start.Add(2 * time.Minute)}, []int{5, 3, 2}},
		"made before a time":                    {store.RunFilter{To: start.Add(2 * time.Minute)}, []int{1, 0}},
		"made before there were any":            {store.RunFilter{To: time.Unix(-1, 0)}, nil},
		"created after the last time of an id":  {store.RunFilter{From: time.UnixMilli(1 << 48)}, nil},
		"made between the ends of time":         {store.RunFilter{From: time.Unix(-1, 0), To: time.UnixMilli(1 << 48)}, []int{5, 3, 2, 1, 0}},
		"that retry a run":                      {store.RunFilter{Parent: &made[1].ID}, []int{3}},
		"of a config, and not another tenant's": {store.RunFilter{Config: &nightly}, []int{3, 0}},
		"of an unknown config":                  {store.RunFilter{Config: &unknown}, nil},
		"of a config, in a state":               {store.RunFilter{Config: &nightly, Pipeline: "hourly"}, []int{3}},
		"by several things at once":             {store.RunFilter{Workspace: "default", Pipeline: "daily", States: []run.State{run.RunRunning}}, []int{0}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			all, next := list(t, c.filter, nil, 100)
			require.Equal(t, c.want, all)
			require.Nil(t, next)
			var paged []int
			for before := (*id.Run)(nil); ; {
				page, next := list(t, c.filter, before, 2)
				paged = append(paged, page...)
				if before = next; next == nil {
					break
				}
			}
			require.Equal(t, c.want, paged, "page by page")
		})
	}

	t.Run("a run is as it was written, with the name of its workspace", func(t *testing.T) {
		t.Parallel()
		runs, _, err := w.ListRuns(t.Context(), acme.tenant, store.RunFilter{Pipeline: "hourly"}, nil, 1)
		require.NoError(t, err)
		require.Equal(t, []store.RunView{{Run: made[3], WorkspaceName: "default"}}, runs)
		found := must(w.GetRun(t.Context(), store.RunKey{Tenant: acme.tenant, Run: made[2].ID}))(t)
		require.Equal(t, store.RunView{Run: made[2], WorkspaceName: "staging"}, found)
	})
}

func TestTasks(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	a := w.account(t, "acme")
	states := run.TaskStates()
	g := w.newRun(t, a, states, make([][]int32, len(states))...)
	running := slices.Index(states, run.Running)
	report := progress(g.tasks[running])
	must(w.WriteProgress(t.Context(), []store.ProgressReport{report}))(t)
	w.Exec(t, `INSERT INTO servo.durations (tenant_id, asset, seconds, samples, updated_at) SELECT id, 'asset', 90, 3, servo.clock() FROM servo.tenants`)

	t.Run("each state shows what it has", func(t *testing.T) {
		t.Parallel()
		views := w.tasks(t, g.key())
		require.Len(t, views, len(states))
		for i, view := range views {
			task := g.tasks[i]
			want := store.TaskView{
				ID: task.ID, Index: int32(i), Asset: "asset", Partition: "p", Pool: "default", Priority: 5, Timeout: time.Minute,
				State: task.State, Since: task.Since, CreatedAt: w.now,
				Attempt: task.Attempt, Failures: task.Failures, FanOuts: task.FanOuts, Unmet: task.Unmet, Cursor: task.Cursor, DueAt: task.DueAt,
				Worker: task.Worker, StartedAt: task.StartedAt, Deadline: task.Deadline, ExpiresAt: task.ExpiresAt, CancelRequested: task.CancelRequested,
				Outcome: task.Outcome, Result: task.Result, Failure: task.Failure, LateResult: task.LateResult,
			}
			if task.State.Terminal() {
				want.FinishedAt = task.Since
			}
			if i == running {
				require.True(t, view.ExpiresAt.After(task.ExpiresAt), "a heartbeat renews the lease")
				require.False(t, view.SeenAt.IsZero())
				want.ExpiresAt, want.SeenAt, want.Usual = view.ExpiresAt, view.SeenAt, 90*time.Second
				want.Progress = &store.ProgressView{Progress: report.Progress, Stages: 1, StageSince: view.SeenAt, UpdatedAt: view.SeenAt}
			}
			require.Equal(t, want, view, task.State)
			require.Equal(t, view, must(w.GetTask(t.Context(), keyOf(task)))(t), "one by its key is the same")
		}
	})

	t.Run("progress of an earlier attempt is not shown for the next", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t)
		g := w.newRun(t, w.account(t, "acme"), []run.TaskState{run.Running}, nil)
		must(w.WriteProgress(t.Context(), []store.ProgressReport{progress(g.tasks[0])}))(t)
		w.Exec(t, `UPDATE servo.leases SET token = token + 1, attempt = attempt + 1`)
		view := must(w.GetTask(t.Context(), keyOf(g.tasks[0])))(t)
		require.Nil(t, view.Progress)
		require.True(t, view.SeenAt.IsZero())
		require.Equal(t, g.tasks[0].ExpiresAt, view.ExpiresAt)
	})

	t.Run("pages go along the plan", func(t *testing.T) {
		t.Parallel()
		var seen []int32
		for after := store.BeforeFirst; ; {
			page := must(w.ListTasks(t.Context(), g.key(), store.TaskFilter{}, after, 3))(t)
			for _, view := range page {
				seen, after = append(seen, view.Index), view.Index
			}
			if len(page) < 3 {
				break
			}
		}
		require.Equal(t, []int32{0, 1, 2, 3, 4, 5, 6, 7, 8, 9}, seen)
	})

	t.Run("a filter by states gives those alone, live or ended, page by page", func(t *testing.T) {
		t.Parallel()
		for i, state := range states {
			page := must(w.ListTasks(t.Context(), g.key(), store.TaskFilter{States: []run.TaskState{state}}, store.BeforeFirst, 100))(t)
			require.Len(t, page, 1, state)
			require.EqualValues(t, i, page[0].Index)
		}
		filter := store.TaskFilter{States: []run.TaskState{run.Failed, run.Running, run.Pending}}
		first := must(w.ListTasks(t.Context(), g.key(), filter, store.BeforeFirst, 2))(t)
		rest := must(w.ListTasks(t.Context(), g.key(), filter, first[1].Index, 2))(t)
		require.Equal(t, []run.TaskState{run.Pending, run.Running, run.Failed}, []run.TaskState{first[0].State, first[1].State, rest[0].State})
		require.Len(t, rest, 1)
	})

	t.Run("a filter by asset gives its tasks alone", func(t *testing.T) {
		t.Parallel()
		require.Len(t, must(w.ListTasks(t.Context(), g.key(), store.TaskFilter{Asset: "asset"}, store.BeforeFirst, 100))(t), len(states))
		require.Empty(t, must(w.ListTasks(t.Context(), g.key(), store.TaskFilter{Asset: "other"}, store.BeforeFirst, 100))(t))
		both := store.TaskFilter{Asset: "asset", States: []run.TaskState{run.Ready}}
		require.Len(t, must(w.ListTasks(t.Context(), g.key(), both, store.BeforeFirst, 100))(t), 1)
	})

	t.Run("a task of another run, of another tenant, or without an id is not found", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t)
		a, b := w.account(t, "acme"), w.account(t, "brick")
		mine, other, theirs := w.newRun(t, a, nil, nil), w.newRun(t, a, nil, nil), w.newRun(t, b, nil, nil)
		for _, key := range []store.TaskKey{
			{Tenant: a.tenant, Run: mine.run.ID, Task: other.tasks[0].ID},
			{Tenant: a.tenant, Run: theirs.run.ID, Task: theirs.tasks[0].ID},
			{Tenant: a.tenant, Run: mine.run.ID},
		} {
			_, err := w.GetTask(t.Context(), key)
			require.True(t, fault.Is(err, fault.NotFound), err)
			_, err = w.Attempts(t.Context(), key)
			require.True(t, fault.Is(err, fault.NotFound), err)
		}
		require.Empty(t, must(w.ListTasks(t.Context(), store.RunKey{Tenant: a.tenant, Run: theirs.run.ID}, store.TaskFilter{}, store.BeforeFirst, 10))(t))
	})
}

func TestTaskAttempts(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	g := w.newRun(t, w.account(t, "acme"), nil, nil, nil)
	require.Empty(t, must(w.Attempts(t.Context(), keyOf(g.tasks[0])))(t))

	var events []event.Event
	for i, body := range []event.Body{
		run.TaskQueued{},
		run.TaskClaimed{Attempt: 1, Token: 1, Worker: "w1", Started: true},
		run.TaskRetrying{Failure: run.Failure{Code: "X"}},
		run.TaskReadied{},
		run.TaskQueued{},
		run.TaskClaimed{Attempt: 2, Token: 2, Worker: "w2"},
	} {
		events = append(events, event.Event{
			Tenant: g.run.Tenant, Run: g.run.ID, Subject: g.tasks[0].ID.UUID, Version: int32(i + 2), At: w.now.Add(time.Duration(i) * time.Second), Body: body,
		})
	}
	w.apply(t, store.Changes{Events: events})
	require.Equal(t, []run.Attempt{
		{Number: 1, Worker: "w1", ClaimedAt: events[1].At, StartedAt: events[1].At, EndedAt: events[2].At, End: run.AttemptRetried, Failure: &run.Failure{Code: "X"}},
		{Number: 2, Worker: "w2", ClaimedAt: events[5].At},
	}, must(w.Attempts(t.Context(), keyOf(g.tasks[0])))(t))
	require.Empty(t, must(w.Attempts(t.Context(), keyOf(g.tasks[1])))(t), "of one task, not of its run")
}

func TestUpstreamTasks(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	states := []run.TaskState{run.Succeeded, run.Running, run.Ready, run.Pending, run.Pending}
	g := w.newRun(t, w.account(t, "acme"), states, nil, nil, nil, []int32{0, 1, 2}, []int32{3})

	require.Equal(t, []store.UpstreamTask{
		{Task: g.tasks[0].ID, Index: 0, Asset: "asset", Partition: "p", State: run.Succeeded, Outcome: run.WasCancelled, Result: json.RawMessage(`{"rows": 3}`)},
		{Task: g.tasks[1].ID, Index: 1, Asset: "asset", Partition: "p", State: run.Running},
		{Task: g.tasks[2].ID, Index: 2, Asset: "asset", Partition: "p", State: run.Ready},
	}, must(w.UpstreamTasks(t.Context(), keyOf(g.tasks[3]), store.BeforeFirst, 10))(t))

	page := must(w.UpstreamTasks(t.Context(), keyOf(g.tasks[3]), 0, 1))(t)
	require.Len(t, page, 1)
	require.Equal(t, g.tasks[1].ID, page[0].Task, "pages go along the plan")
	require.Len(t, must(w.UpstreamTasks(t.Context(), keyOf(g.tasks[4]), store.BeforeFirst, 10))(t), 1, "direct ones only")
	require.Empty(t, must(w.UpstreamTasks(t.Context(), keyOf(g.tasks[0]), store.BeforeFirst, 10))(t))
}

func TestGetRunPlan(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	g := w.newRun(t, w.account(t, "acme"), []run.TaskState{run.Succeeded, run.Failed, run.Skipped, run.Cancelled, run.Ready}, nil, nil, nil, nil, nil)
	added := run.TaskSpec{ID: id.New[id.Task](w.mint), Index: 5, Asset: "mapped"}
	w.apply(t, store.Changes{Events: []event.Event{
		{Tenant: g.run.Tenant, Run: g.run.ID, Subject: g.run.ID.UUID, Version: 2, At: w.now, Body: run.RunTasksAdded{By: &g.tasks[0].ID, Tasks: []run.TaskSpec{added}}},
		{Tenant: g.run.Tenant, Run: g.run.ID, Subject: g.run.ID.UUID, Version: 3, At: w.now, Body: run.RunCancelRequested{}},
	}})

	plan := must(w.GetRunPlan(t.Context(), g.key()))(t)
	require.Equal(t, store.RunView{Run: g.run, WorkspaceName: "default"}, plan.RunView)
	require.Len(t, plan.Additions, 2)
	require.Nil(t, plan.Additions[0].By)
	require.Len(t, plan.Additions[0].Tasks, 5)
	require.Equal(t, run.RunTasksAdded{By: &g.tasks[0].ID, Tasks: []run.TaskSpec{added}}, plan.Additions[1])
	require.Equal(t, []id.Task{g.tasks[1].ID, g.tasks[2].ID, g.tasks[3].ID}, plan.Unsuccessful)

	_, err := w.GetRunPlan(t.Context(), store.RunKey{Tenant: g.run.Tenant, Run: id.New[id.Run](w.mint)})
	require.True(t, fault.Is(err, fault.NotFound), err)
}
