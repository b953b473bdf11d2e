package store_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"go.arco.dev/servo/internal/base/event"
	"go.arco.dev/servo/internal/base/id"
	"go.arco.dev/servo/internal/domain/run"
	"go.arco.dev/servo/internal/store"
)

// TestMoves tries every move out of every state that is not terminal: more than the
// machine of package run allows, since the store knows no rules.
func TestMoves(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	a := w.account(t, "acme")
	for _, from := range run.TaskStates() {
		for _, to := range run.TaskStates() {
			if from.Terminal() {
				continue
			}
			t.Run(from.String()+" to "+to.String(), func(t *testing.T) {
				t.Parallel()
				w := &world{Database: w.Database, now: w.now, mint: id.NewMinter(w.now)}
				g := w.newRun(t, a, []run.TaskState{from, run.Ready}, nil, nil)
				require.ElementsMatch(t, g.tasks, w.sweep(t, g.run.ID), "written and read back")
				require.Equal(t, []run.TaskState{from, run.Ready}, w.states(t, g))

				next := w.moved(g.tasks[0], to)
				w.apply(t, store.Changes{Moves: []store.Move{{From: from, Task: next}}})

				require.Equal(t, []run.TaskState{to, run.Ready}, w.states(t, g), "in one place only")
				if !to.Terminal() {
					require.ElementsMatch(t, []run.Task{next, g.tasks[1]}, w.sweep(t, g.run.ID))
					return
				}
				require.Equal(t, []run.Task{g.tasks[1]}, w.sweep(t, g.run.ID), "its neighbour alone is left")
				require.Equal(t, next, w.ended(t, g)[0])
			})
		}
	}
}

// moved is the task as the statement of a move leaves it: what stays in its table keeps
// what no statement changes.
func (w *world) moved(t run.Task, to run.TaskState) run.Task {
	next := w.taskIn(to, t)
	next.Version, next.Cursor = t.Version+1, "page 10"
	switch {
	case to == run.Pending && t.State == run.Pending:
		next.Version, next.Unmet, next.Cursor = t.Version, 1, ""
	case to == run.Pending:
		next.Cursor = ""
	case to.Leased() && t.State.Leased():
		next.Claim, next.Since, next.ExpiresAt = t.Claim, t.Since, t.ExpiresAt
		next.FanOuts, next.Fruitless, next.CancelRequested, next.Dependents = 9, 8, false, false
	case to.Terminal():
		next.Fruitless, next.Deaths, next.Dependents = 0, 0, false // the wide row does not keep them
	}
	return next
}

// sweep reads every queue row of a run.
func (w *world) sweep(t testing.TB, runs ...id.Run) (tasks []run.Task) {
	t.Helper()
	w.engine(t, func(tx *Tx) { tasks = must(tx.Sweep(t.Context(), runs))(t) })
	return tasks
}

// tasks are all tasks of a run in the order of the plan, as its tenant sees them.
func (w *world) tasks(t testing.TB, key store.RunKey) []store.TaskView {
	t.Helper()
	return must(w.ListTasks(t.Context(), key, store.TaskFilter{}, store.BeforeFirst, 1_000_000))(t)
}

// states are those of a run's tasks in the order of the plan, as its tenant sees them. A
// task that is in two places is listed twice.
func (w *world) states(t testing.TB, g graph) (states []run.TaskState) {
	t.Helper()
	for _, task := range w.tasks(t, g.key()) {
		states = append(states, task.State)
	}
	return states
}

// ended reads the wide rows of the tasks that have ended.
func (w *world) ended(t testing.TB, g graph) []run.Task {
	t.Helper()
	views := w.tasks(t, g.key())
	var tasks []run.Task
	w.engine(t, func(tx *Tx) {
		for i, end := range must(tx.EndedTasks(t.Context(), g.keys(0)))(t) {
			view, task := views[i], g.tasks[i]
			require.Equal(t, view.ID, end.Task)
			require.Equal(t, view.Outcome, end.Outcome)
			require.Equal(t, view.LateResult, end.LateResult)
			out := run.Task{
				Tenant: task.Tenant, Run: task.Run, ID: end.Task, State: end.State, Token: end.Token, Outcome: end.Outcome, LateResult: end.LateResult,
				Attempt: view.Attempt, Failures: view.Failures, Since: view.Since, Result: view.Result, Failure: view.Failure,
			}
			require.NoError(t, tx.Raw().QueryRow(t.Context(), `
				SELECT pool, priority, timeout_s, version, fan_outs, cursor FROM servo.tasks WHERE run_id = $1 AND id = $2`, g.run.ID.UUID, end.Task.UUID).
				Scan(&out.Pool, &out.Priority, &out.Timeout, &out.Version, &out.FanOuts, &out.Cursor))
			tasks = append(tasks, out)
		}
	})
	return tasks
}

func TestApply(t *testing.T) {
	t.Parallel()

	t.Run("a run, its counters and its events are written and read back", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t)
		g := w.newRun(t, w.account(t, "acme"), nil, nil, []int32{0})
		for _, lock := range []store.RunLock{store.LockForMove, store.LockForCount, store.LockForCancel} {
			w.engine(t, func(tx *Tx) {
				require.Equal(t, []run.Run{g.run}, must(tx.LockRuns(t.Context(), lock, []store.RunKey{g.key()}))(t))
			})
		}

		g.run.Version, g.run.State, g.run.CancelReason, g.run.TimedOut = 2, run.RunTimedOut, "too long", true
		g.run.Overran = true // what timed out took too long
		g.run.Total, g.run.Remaining, g.run.Succeeded, g.run.Failed, g.run.Skipped, g.run.Cancelled = 10, 0, 4, 3, 2, 1
		g.run.FinishedAt = w.now.Add(time.Second)
		w.apply(t, store.Changes{ChangedRuns: []run.Run{g.run}})
		found, err := w.GetRun(t.Context(), g.key())
		require.NoError(t, err)
		require.Equal(t, g.run, found.Run)

		w.engine(t, func(tx *Tx) {
			streams := must(tx.TaskEvents(t.Context(), g.keys(0, 1)))(t)
			require.Len(t, streams, 2)
			require.Equal(t, []event.Event{{Subject: g.tasks[1].ID.UUID, Version: 1, At: w.now, Body: run.TaskReadied{}}}, streams[g.keys(1)[0]])
			var actor, trace string
			require.NoError(t, tx.Raw().QueryRow(t.Context(), `SELECT actor, trace FROM servo.run_events WHERE type = 'run.created'`).Scan(&actor, &trace))
			require.Equal(t, []string{"jo", "trace"}, []string{actor, trace})
		})
	})

	t.Run("a run that waits has not started, and one may come from another", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t)
		parent := w.newRun(t, w.account(t, "acme"), nil, nil)
		child := parent.run
		child.ID, child.State, child.StartedAt, child.Parent = id.New[id.Run](w.mint), run.RunPending, time.Time{}, &parent.run.ID
		child.Retry, child.Parameters = nil, nil
		w.apply(t, store.Changes{NewRuns: []run.Run{child}})
		key := store.RunKey{Tenant: child.Tenant, Run: child.ID}
		found, err := w.GetRun(t.Context(), key)
		require.NoError(t, err)
		require.Equal(t, child, found.Run)
		require.Empty(t, w.tasks(t, key))
	})

	t.Run("a task ends once", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t)
		g := w.newRun(t, w.account(t, "acme"), []run.TaskState{run.Running}, nil)
		end := w.taskIn(run.Succeeded, g.tasks[0])
		w.apply(t, store.Changes{Moves: []store.Move{{From: run.Running, Task: end}}})

		again := end
		again.State = run.Failed
		w.refused(t, store.Changes{Moves: []store.Move{{Task: again}}}, "end tasks")
		w.refused(t, store.Changes{Moves: []store.Move{{From: run.Succeeded, Task: again}}}, "end tasks")
		require.Equal(t, []run.TaskState{run.Succeeded}, w.states(t, g))
	})

	t.Run("a task may end in the transaction that makes it", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t)
		g := w.newRun(t, w.account(t, "acme"), []run.TaskState{run.Cancelled}, nil)
		require.Equal(t, []run.TaskState{run.Cancelled}, w.states(t, g))
	})

	t.Run("a counter that does not add up is refused", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t)
		g := w.newRun(t, w.account(t, "acme"), nil, nil)
		g.run.Succeeded = 1
		err := w.Engine(t.Context(), func(ctx context.Context, tx *Tx) error {
			return tx.Apply(ctx, store.Changes{ChangedRuns: []run.Run{g.run}})
		})
		require.ErrorContains(t, err, "counters_add_up")
		require.Equal(t, store.Poisoned, store.Diagnose(err))
	})

	t.Run("a read in the pipeline of writes is reported", func(t *testing.T) {
		t.Parallel()
		require.ErrorContains(t, store.ReadInPipeline(t.Context()), "a read was sent to the pipeline")
	})
}

// refused requires that the changes fail because rows are missing, and that nothing of them is stored.
func (w *world) refused(t testing.TB, changes store.Changes, statement string) {
	t.Helper()
	probe := w.newProbe(changes.Moves[0].Task)
	changes.Now, changes.OpenCones = w.now, []store.RunKey{probe}
	err := w.Engine(t.Context(), func(ctx context.Context, tx *Tx) error { return tx.Apply(ctx, changes) })
	var mismatch *store.MismatchError
	require.ErrorAs(t, err, &mismatch)
	require.Equal(t, store.MismatchError{Statement: statement, Want: 1, Got: 0}, *mismatch)
	require.ErrorContains(t, err, statement+" touched 0 rows instead of 1")
	require.Equal(t, store.Poisoned, store.Diagnose(err))
	require.Zero(t, w.Count(t, `SELECT count(*) FROM servo.cones WHERE run_id = $1`, probe.Run.UUID), "nothing was committed")
}

func (w *world) newProbe(task run.Task) store.RunKey {
	return store.RunKey{Tenant: task.Tenant, Run: id.New[id.Run](w.mint)}
}

func TestRowCounts(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	a := w.account(t, "acme")
	statements := map[run.TaskState]string{
		run.Pending: "delete waiting", run.Ready: "delete ready_q", run.Queued: "delete pool_q",
		run.Dispatched: "delete leases", run.Running: "delete leases", run.RetryWait: "delete retry_q",
	}
	for from, statement := range statements {
		t.Run("a task that is not "+from.String()+" any more stops the batch", func(t *testing.T) {
			t.Parallel()
			w := &world{Database: w.Database, now: w.now, mint: id.NewMinter(w.now)}
			elsewhere := run.Ready
			if from == run.Ready {
				elsewhere = run.Queued
			}
			g := w.newRun(t, a, []run.TaskState{elsewhere}, nil)
			end := w.taskIn(run.Cancelled, g.tasks[0])
			w.refused(t, store.Changes{Moves: []store.Move{{From: from, Task: end}}}, statement)
			require.Equal(t, []run.TaskState{elsewhere}, w.states(t, g))
		})
	}
	t.Run("so do updates of rows that are gone", func(t *testing.T) {
		t.Parallel()
		w := &world{Database: w.Database, now: w.now, mint: id.NewMinter(w.now)}
		g := w.newRun(t, a, nil, nil)
		for statement, changes := range map[string]store.Changes{
			"update waiting":    {Moves: []store.Move{{From: run.Pending, Task: w.taskIn(run.Pending, g.tasks[0])}}},
			"update leases":     {Moves: []store.Move{{From: run.Dispatched, Task: w.taskIn(run.Running, g.tasks[0])}}},
			"reschedule leases": {Moves: []store.Move{{From: run.Ready, Task: w.taskIn(run.Queued, g.tasks[0])}}, Reschedule: []run.Task{w.taskIn(run.Running, g.tasks[0])}},
			"update runs": {
				Moves:       []store.Move{{From: run.Ready, Task: w.taskIn(run.Queued, g.tasks[0])}},
				ChangedRuns: []run.Run{{Tenant: a.tenant, ID: id.New[id.Run](w.mint)}},
			},
		} {
			w.refused(t, changes, statement)
		}
		require.Equal(t, []run.TaskState{run.Ready}, w.states(t, g))
	})
}
