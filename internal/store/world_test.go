package store_test

import (
	"context"
	"encoding/json"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"go.arco.dev/servo/internal/base/event"
	"go.arco.dev/servo/internal/base/id"
	"go.arco.dev/servo/internal/devkit/servotest"
	"go.arco.dev/servo/internal/domain/run"
	"go.arco.dev/servo/internal/domain/tenant"
	"go.arco.dev/servo/internal/store"
)

// Tx keeps the tests' closures short.
type Tx = store.Tx

// world is a database whose queries are recorded, the time in it, and a minter of ids.
type world struct {
	*servotest.Database

	now  time.Time
	mint *id.Minter
}

func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{Database: servotest.DB(t)}
	require.NoError(t, w.Trace(t.Context(), record))
	w.engine(t, func(tx *Tx) { w.now = must(tx.Clock(t.Context()))(t) })
	w.mint = id.NewMinter(w.now)
	return w
}

// must gives the value of a call that may not fail.
func must[T any](value T, err error) func(testing.TB) T {
	return func(t testing.TB) T {
		t.Helper()
		require.NoError(t, err)
		return value
	}
}

// engine commits a transaction of the engine.
func (w *world) engine(t testing.TB, fn func(tx *Tx)) {
	t.Helper()
	require.NoError(t, w.Engine(t.Context(), func(_ context.Context, tx *Tx) error {
		fn(tx)
		return nil
	}))
}

var errUndo = errors.New("undo")

// undone runs a transaction of the engine that is rolled back.
func (w *world) undone(t testing.TB, fn func(tx *Tx)) {
	t.Helper()
	require.ErrorIs(t, w.Engine(t.Context(), func(_ context.Context, tx *Tx) error {
		fn(tx)
		return errUndo
	}), errUndo)
}

func (w *world) apply(t testing.TB, changes store.Changes) {
	t.Helper()
	changes.Now = w.now
	require.NoError(t, w.Engine(t.Context(), func(ctx context.Context, tx *Tx) error { return tx.Apply(ctx, changes) }))
}

// open is a transaction of the engine that stays open until it is committed.
type open struct {
	release chan struct{}
	done    chan error
}

// hold runs fn in a transaction of its own and returns when it has run, or is waiting.
func (w *world) hold(t testing.TB, fn func(ctx context.Context, tx *Tx) error) *open {
	t.Helper()
	o := &open{release: make(chan struct{}), done: make(chan error, 1)}
	held := make(chan struct{})
	go func() {
		o.done <- w.Engine(t.Context(), func(ctx context.Context, tx *Tx) error {
			err := fn(ctx, tx)
			close(held)
			select {
			case <-o.release:
				return err
			case <-ctx.Done(): // a test that fails leaves nothing open
				return ctx.Err()
			}
		})
	}()
	select {
	case <-held:
	case err := <-o.done:
		require.NoError(t, err, "the transaction ended before it could be held")
	}
	return o
}

func (o *open) commit(t testing.TB) {
	t.Helper()
	close(o.release)
	require.NoError(t, <-o.done)
}

// blocked starts fn in a transaction of its own and returns when it waits for a lock.
// Calling what it returns waits for the end.
func (w *world) blocked(t testing.TB, fn func(ctx context.Context, tx *Tx) error) (wait func() error) {
	t.Helper()
	done := make(chan error, 1)
	pid := make(chan uint32, 1)
	go func() {
		done <- w.Engine(t.Context(), func(ctx context.Context, tx *Tx) error {
			pid <- tx.Raw().Conn().PgConn().PID()
			return fn(ctx, tx)
		})
	}()
	w.untilBlocked(t, <-pid, done)
	return func() error { return <-done }
}

func (w *world) untilBlocked(t testing.TB, pid uint32, done <-chan error) {
	t.Helper()
	w.until(t, done, `SELECT cardinality(pg_blocking_pids($1))`, int32(pid))
}

// until asks the database again and again until it counts something. What is watched must
// not end before.
func (w *world) until(t testing.TB, done <-chan error, count string, args ...any) {
	t.Helper()
	for n := 0; n == 0; {
		select {
		case err := <-done:
			require.Failf(t, "the transaction did not wait", "it ended with %v", err)
		default:
		}
		n = w.Count(t, count, args...)
	}
}

// account is a tenant with a workspace and an active deployment.
type account struct {
	tenant     id.Tenant
	workspace  store.Workspace
	deployment store.Deployment
}

func (w *world) account(t testing.TB, name string) account {
	t.Helper()
	a := account{tenant: id.New[id.Tenant](w.mint)}
	a.workspace = store.Workspace{Tenant: a.tenant, ID: id.New[id.Workspace](w.mint), Name: tenant.DefaultWorkspace, Version: 1}
	a.deployment = store.Deployment{
		Tenant: a.tenant, ID: id.New[id.Deployment](w.mint), Workspace: a.workspace.ID, Digest: "d-" + name, Manifest: json.RawMessage(`{"version": 1}`),
	}
	w.engine(t, func(tx *Tx) {
		ctx := t.Context()
		require.NoError(t, tx.InsertTenant(ctx, a.tenant, name, 1, tenant.DefaultQuotas(), w.now))
		require.NoError(t, tx.InsertWorkspace(ctx, a.workspace, w.now))
		_, isNew, err := tx.InsertDeployment(ctx, a.deployment, w.now)
		require.NoError(t, err)
		require.True(t, isNew)
		a.workspace.Version, a.workspace.Active = 2, &a.deployment.ID
		require.NoError(t, tx.ActivateDeployment(ctx, a.workspace))
		require.NoError(t, tx.AppendEntityEvents(ctx,
			event.Event{Tenant: a.tenant, Subject: a.tenant.UUID, Version: 1, At: w.now, Body: tenant.Created{Name: name}},
			event.Event{Tenant: a.tenant, Subject: a.workspace.ID.UUID, Version: 1, At: w.now, Body: tenant.WorkspaceCreated{Name: a.workspace.Name}},
		))
	})
	return a
}

// graph is a run and its tasks, by index.
type graph struct {
	run   run.Run
	tasks []run.Task
}

func (g graph) key() store.RunKey { return store.RunKey{Tenant: g.run.Tenant, Run: g.run.ID} }

func (g graph) keys(indexes ...int) []store.TaskKey {
	var keys []store.TaskKey
	for _, i := range indexes {
		keys = append(keys, keyOf(g.tasks[i]))
	}
	return keys
}

func keyOf(t run.Task) store.TaskKey { return store.TaskKey{Tenant: t.Tenant, Run: t.Run, Task: t.ID} }

// newRun makes a run whose task i waits for the tasks upstreams[i]. The tasks are PENDING or
// READY, unless in specifies others.
func (w *world) newRun(t testing.TB, a account, in []run.TaskState, upstreams ...[]int32) graph {
	t.Helper()
	g := graph{run: run.Run{
		Tenant: a.tenant, ID: id.New[id.Run](w.mint), Workspace: a.workspace.ID, Deployment: a.deployment.ID,
		State: run.RunRunning, Version: 1, Pipeline: "daily", Parameters: json.RawMessage(`{"day": "2026-01-01"}`), Priority: 5,
		TriggerType: "MANUAL", TriggeredBy: "jo", Fingerprint: "f", Retry: &run.RetryPolicy{MaxAttempts: 4}, Trace: "trace", Limit: 3600,
		Total: int32(len(upstreams)), Remaining: int32(len(upstreams)), CreatedAt: w.now, StartedAt: w.now,
	}}
	changes := store.Changes{NewRuns: []run.Run{g.run}}
	var specs []run.TaskSpec
	for i, upstream := range upstreams {
		specs = append(specs, run.TaskSpec{
			ID: id.New[id.Task](w.mint), Index: int32(i), Asset: "asset", Partition: "p", Pool: "default", Priority: 5, Timeout: 60, Upstream: upstream,
		})
	}
	for i, spec := range specs {
		task := run.NewTask(g.run, spec, w.now)
		if in != nil {
			task = w.taskIn(in[i], task)
		}
		g.tasks = append(g.tasks, task)
		changes.NewTasks = append(changes.NewTasks, store.NewTask{Key: keyOf(task), Spec: spec})
		changes.Moves = append(changes.Moves, store.Move{Task: task})
		for _, up := range spec.Upstream {
			changes.NewEdges = append(changes.NewEdges, store.Edge{Key: g.key(), Upstream: specs[up].ID, Task: spec.ID})
		}
		changes.Events = append(changes.Events, event.Event{
			Tenant: a.tenant, Run: g.run.ID, Subject: spec.ID.UUID, Version: 1, At: w.now, Body: run.TaskReadied{},
		})
	}
	changes.Events = append(changes.Events, event.Event{
		Tenant: a.tenant, Run: g.run.ID, Subject: g.run.ID.UUID, Version: 1, At: w.now, Meta: event.Meta{Actor: "jo", Trace: "trace"},
		Body: run.RunCreated{Workspace: a.workspace.ID, Deployment: a.deployment.ID, Tasks: specs},
	})
	w.apply(t, changes)
	g.run.Limit = 0 // its row does not have it
	return g
}

// taskIn is the task in a state, with a value in every column that the state's table keeps.
func (w *world) taskIn(state run.TaskState, t run.Task) run.Task {
	out := run.Task{
		Tenant: t.Tenant, Run: t.Run, ID: t.ID, State: state, Pool: t.Pool, Priority: t.Priority, Timeout: t.Timeout,
		Version: 7, Since: w.now.Add(-time.Minute), Dependents: true,
	}
	if !state.Terminal() {
		out.Asset = "asset"
	}
	if state == run.Pending {
		out.Unmet = 2
		return out
	}
	out.Attempt, out.Failures, out.Fruitless, out.Deaths, out.FanOuts, out.Cursor = 5, 4, 3, 1, 2, "page 9"
	if state == run.Queued || state.Leased() {
		out.Cost, out.ReadyAt = 1.5, w.now.Add(-time.Hour)
	}
	switch {
	case state == run.Ready:
		out.ReadyAt = out.Since
	case state == run.Queued:
		out.Rank = 11
	case state.Leased():
		out.Token, out.Worker, out.Claim = 42, "worker", id.New[id.Claim](w.mint)
		out.ExpiresAt, out.Lease, out.CancelRequested = w.now.Add(time.Minute), time.Hour, true
		if state == run.Running {
			out.StartedAt, out.Deadline = w.now.Add(-time.Second), w.now.Add(time.Hour)
		}
	case state == run.RetryWait:
		out.DueAt, out.Failure = w.now.Add(time.Second), &run.Failure{Code: "NETWORK_ERROR", Message: "cut"}
	case state.Terminal():
		out.Token, out.Outcome, out.LateResult = 42, run.WasCancelled, true
		out.Result, out.Failure = json.RawMessage(`{"rows": 3}`), &run.Failure{Code: "X"}
	}
	return out
}
