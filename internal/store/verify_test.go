package store_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"go.arco.dev/servo/internal/base/id"
	"go.arco.dev/servo/internal/domain/run"
	"go.arco.dev/servo/internal/store"
)

// snapshot reads in one moment.
func (w *world) snapshot(t testing.TB, fn func(ctx context.Context, tx *Tx) error) {
	t.Helper()
	require.NoError(t, w.Snapshot(t.Context(), fn))
}

// collect gives a callback that keeps what it is given.
func collect[R any](into *[]R) func(R) error {
	return func(row R) error {
		*into = append(*into, row)
		return nil
	}
}

func TestReadEverything(t *testing.T) {
	t.Parallel()
	states := []run.TaskState{run.Pending, run.Ready, run.Queued, run.Dispatched, run.Running, run.RetryWait, run.Succeeded}

	t.Run("runs come in the order of their keys, after one, of all or of one tenant", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t)
		a, b := w.account(t, "a"), w.account(t, "b")
		runs := []graph{w.newRun(t, a, nil, nil), w.newRun(t, a, nil, nil), w.newRun(t, b, nil, nil)}
		w.snapshot(t, func(ctx context.Context, tx *Tx) error {
			all := must(tx.RunsAfter(ctx, store.RunKey{}, nil, 10))(t)
			require.Equal(t, []uuid.UUID{runs[0].run.ID.UUID, runs[1].run.ID.UUID, runs[2].run.ID.UUID}, runIDs(all))
			require.Equal(t, all[1:2], must(tx.RunsAfter(ctx, runs[0].key(), nil, 1))(t))
			require.Equal(t, all[:2], must(tx.RunsAfter(ctx, store.RunKey{}, &a.tenant, 10))(t))
			require.Equal(t, all[1:2], must(tx.RunsAfter(ctx, runs[0].key(), &a.tenant, 10))(t))
			require.Equal(t, all[2:], must(tx.RunsAfter(ctx, store.RunKey{}, &b.tenant, 10))(t))
			require.Equal(t, all[1:], must(tx.RunsByKey(ctx, []store.RunKey{runs[1].key(), runs[2].key()}))(t))
			require.Len(t, must(tx.SampleRuns(ctx, nil, 2))(t), 2)
			require.Equal(t, []store.RunKey{runs[2].key()}, must(tx.SampleRuns(ctx, &b.tenant, 2))(t))
			return nil
		})
	})

	t.Run("the rows of chosen runs are streamed whole", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t)
		a := w.account(t, "a")
		g := w.newRun(t, a, states, []int32{6}, nil, nil, nil, nil, nil, nil)
		w.newRun(t, a, states, []int32{6}, nil, nil, nil, nil, nil, nil)
		w.apply(t, store.Changes{OpenCones: []store.RunKey{g.key()}})
		var (
			events  []store.EventRow
			tasks   []store.TaskRow
			edges   []store.EdgeRow
			waiting []store.WaitingRow
			ready   []store.ReadyRow
			queued  []store.QueuedRow
			leases  []store.LeaseRow
			retries []store.RetryRow
			cones   []store.ConeRow
			live    []store.LiveRunRow
		)
		w.snapshot(t, func(ctx context.Context, tx *Tx) error {
			keys := []store.RunKey{g.key()}
			require.NoError(t, tx.PlanByKey(ctx))
			require.NoError(t, tx.EachEvent(ctx, keys, collect(&events)))
			require.NoError(t, tx.EachTask(ctx, keys, collect(&tasks)))
			require.NoError(t, tx.EachEdge(ctx, keys, collect(&edges)))
			return tx.EachQueueRow(ctx, keys, store.QueueRows{
				Waiting: collect(&waiting), Ready: collect(&ready), Queued: collect(&queued), Lease: collect(&leases),
				Retry: collect(&retries), Cone: collect(&cones), Live: collect(&live),
			})
		})
		require.Len(t, events, 8)
		require.Equal(t, "run.created", events[0].Type, "the run's own stream comes first")
		require.True(t, slices.IsSortedFunc(events[1:], func(a, b store.EventRow) int { return slices.Compare(a.SubjectID[:], b.SubjectID[:]) }))
		require.Len(t, tasks, 7)
		require.Equal(t, []store.EdgeRow{{
			TenantID: a.tenant.UUID, RunID: g.run.ID.UUID, UpstreamID: g.tasks[6].ID.UUID, TaskID: g.tasks[0].ID.UUID,
		}}, edges)
		require.Equal(t, []int{1, 1, 1, 2, 1, 1}, []int{len(waiting), len(ready), len(queued), len(leases), len(retries), len(cones)})
		require.Len(t, live, 1)
		require.Equal(t, g.run.ID.UUID, live[0].RunID)
		require.Equal(t, "page 9", ready[0].Cursor)
		require.Equal(t, g.tasks[3].Token, leases[0].Token)
	})

	t.Run("a reader that fails stops the stream, and the transaction continues", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t)
		g := w.newRun(t, w.account(t, "a"), nil, nil, nil)
		enough := errors.New("enough")
		w.snapshot(t, func(ctx context.Context, tx *Tx) error {
			seen := 0
			err := tx.EachTask(ctx, []store.RunKey{g.key()}, func(store.TaskRow) error { seen++; return enough })
			require.ErrorIs(t, err, enough)
			require.Equal(t, 1, seen)
			return tx.PlanByScan(ctx)
		})
	})

	t.Run("tenants come with their entities and events", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t)
		a, b := w.account(t, "a"), w.account(t, "b")
		var (
			events      []store.EventRow
			workspaces  []store.WorkspaceRow
			deployments []store.DeploymentRow
			pauses      []store.AssetPauseRow
			configs     []store.ConfigRow
		)
		nightly := w.config(t, a, "nightly", nil)
		w.config(t, b, "nightly", nil)
		w.snapshot(t, func(ctx context.Context, tx *Tx) error {
			all := must(tx.TenantsAfter(ctx, id.Tenant{}, nil, 10))(t)
			require.Len(t, all, 2)
			require.Equal(t, all[1:], must(tx.TenantsAfter(ctx, a.tenant, nil, 10))(t))
			require.Equal(t, all[1:], must(tx.TenantsAfter(ctx, id.Tenant{}, &b.tenant, 10))(t))
			require.Empty(t, must(tx.TenantsAfter(ctx, b.tenant, &b.tenant, 10))(t))
			return tx.EachEntityRow(ctx, []id.Tenant{a.tenant}, store.EntityRows{
				Event: collect(&events), Workspace: collect(&workspaces), Deployment: collect(&deployments),
				AssetPause: collect(&pauses), Config: collect(&configs),
			})
		})
		require.Len(t, events, 2)
		require.Equal(t, "default", workspaces[0].Name)
		require.Equal(t, a.deployment.Digest, deployments[0].Digest)
		require.Len(t, configs, 1)
		require.Equal(t, nightly.ID.UUID, configs[0].ID)
	})
}

func runIDs(rows []store.RunRow) []uuid.UUID {
	var ids []uuid.UUID
	for _, r := range rows {
		ids = append(ids, r.ID)
	}
	return ids
}

func TestFindOrphans(t *testing.T) {
	t.Parallel()

	t.Run("rows without their run are counted, with the owner of the run", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t)
		a, b := w.account(t, "a"), w.account(t, "b")
		lost, kept := w.newRun(t, a, nil, nil, nil), w.newRun(t, a, nil, nil)
		w.Exec(t, `DELETE FROM servo.runs WHERE id = '`+lost.run.ID.String()+`'`)
		w.Exec(t, `UPDATE servo.ready_q SET tenant_id = '`+b.tenant.String()+`' WHERE run_id = '`+kept.run.ID.String()+`'`)
		var rows, ofB []store.OrphanRow
		w.snapshot(t, func(ctx context.Context, tx *Tx) error {
			require.NoError(t, tx.PlanByScan(ctx))
			require.NoError(t, tx.Orphans(ctx, &b.tenant, collect(&ofB)))
			return tx.Orphans(ctx, nil, collect(&rows))
		})
		require.Equal(t, []store.OrphanRow{{Source: "ready_q", TenantID: b.tenant.UUID, RunID: kept.run.ID.UUID, Lost: 1, Owner: &a.tenant.UUID}}, ofB)
		require.Contains(t, rows, ofB[0])
		require.Contains(t, rows, store.OrphanRow{Source: "run_events", TenantID: a.tenant.UUID, RunID: lost.run.ID.UUID, Lost: 3})
		require.Contains(t, rows, store.OrphanRow{Source: "tasks", TenantID: a.tenant.UUID, RunID: lost.run.ID.UUID, Lost: 2})
		require.Contains(t, rows, store.OrphanRow{Source: "ready_q", TenantID: a.tenant.UUID, RunID: lost.run.ID.UUID, Lost: 2})
		require.Contains(t, rows, store.OrphanRow{Source: "live_runs", TenantID: a.tenant.UUID, RunID: lost.run.ID.UUID, Lost: 1})
		require.Len(t, rows, 5)
	})

	t.Run("events without their tenant are counted", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t)
		a := w.account(t, "a")
		absent := id.New[id.Tenant](w.mint)
		w.Exec(t, `UPDATE servo.entity_events SET tenant_id = '`+absent.String()+`'`)
		var rows, ofA []store.EntityOrphanRow
		w.snapshot(t, func(ctx context.Context, tx *Tx) error {
			require.NoError(t, tx.EntityOrphans(ctx, &a.tenant, collect(&ofA)))
			return tx.EntityOrphans(ctx, nil, collect(&rows))
		})
		require.Equal(t, []store.EntityOrphanRow{{Source: "entity_events", TenantID: absent.UUID, Lost: 2}}, rows)
		require.Empty(t, ofA)
	})

	t.Run("sums without a run are found, of all tenants or of one", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t)
		a, b := w.account(t, "a"), w.account(t, "b")
		w.Exec(t, `INSERT INTO servo.run_totals (tenant_id, day, labels, ended, succeeded, failed, timed_out, cancelled, started, seconds, breached, breaches)
			VALUES ('`+a.tenant.String()+`', (servo.clock() AT TIME ZONE 'UTC')::date, '', 1, 1, 0, 0, 0, 1, 1, 0, 0)`)
		var all, ofB []store.TotalsRow
		w.snapshot(t, func(ctx context.Context, tx *Tx) error {
			require.NoError(t, tx.WrongTotals(ctx, &b.tenant, collect(&ofB)))
			return tx.WrongTotals(ctx, nil, collect(&all))
		})
		require.NotEmpty(t, all)
		for _, row := range all {
			require.Equal(t, a.tenant.UUID, row.TenantID)
		}
		require.Empty(t, ofB)
	})

	t.Run("what must be unique and is not is found", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t)
		a, b := w.account(t, "a"), w.account(t, "b")
		g := w.newRun(t, a, []run.TaskState{run.Running, run.Running}, nil, nil) // with one token
		copyRuns(t, w, b)
		w.EditEvents(t, `UPDATE servo.run_events SET type = 'task.claimed', data = '{"token": 42}', position = 1 WHERE type = 'task.readied'`)
		var (
			runs      []store.RunIDRow
			positions []store.PositionRow
			claims    []store.ClaimTokenRow
			leases    []store.LeaseTokenRow
		)
		w.snapshot(t, func(ctx context.Context, tx *Tx) error {
			token, position, err := tx.Sequences(ctx)
			require.NoError(t, err)
			require.Zero(t, token)
			require.NotZero(t, position)
			return tx.EachDuplicate(ctx, store.Duplicates{Run: collect(&runs), Position: collect(&positions), ClaimToken: collect(&claims), LeaseToken: collect(&leases)})
		})
		require.Equal(t, []store.RunIDRow{{TenantID: a.tenant.UUID, ID: g.run.ID.UUID}, {TenantID: b.tenant.UUID, ID: g.run.ID.UUID}}, runs)
		require.Len(t, positions, 1)
		require.Equal(t, []store.ClaimTokenRow{{Token: "42", Claims: 2}}, claims)
		require.Len(t, leases, 2)
	})

	t.Run("a ledger that contradicts the runs or itself is reported, of all or of one tenant", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t)
		a, b := w.account(t, "a"), w.account(t, "b")
		g := w.newRun(t, a, nil, nil)
		c := w.config(t, a, "nightly", nil)
		w.Exec(t, `UPDATE servo.runs SET config_id = '`+c.ID.String()+`', slot_at = servo.clock()`)
		slot, other := w.now.Add(time.Hour), w.newConfig(a, "never")
		w.engine(t, func(tx *Tx) {
			require.NoError(t, tx.WriteLedger(t.Context(), []store.FiredSlot{{ConfigKey: c.Key(), At: slot, Run: g.run.ID}, {ConfigKey: other.Key(), At: slot, Run: g.run.ID}},
				[]store.SkippedSlots{skipped(c, slot, slot, 1), skipped(c, slot.Add(-time.Second), slot, 1), skipped(other, w.now, w.now, 1)}, w.now, "a"))
		})
		var found, foreign []store.LedgerRow
		w.snapshot(t, func(ctx context.Context, tx *Tx) error {
			require.NoError(t, tx.Ledger(ctx, &b.tenant, collect(&foreign)))
			return tx.Ledger(ctx, nil, collect(&found))
		})
		require.Empty(t, foreign)
		counts := map[string]int{}
		for _, row := range found {
			counts[row.Wrong]++
		}
		require.Equal(t, map[string]int{
			"run without slot": 1, "slot without run": 2, "slot in range": 2, "ranges overlap": 1, "slot without config": 1, "range without config": 1,
		}, counts)
	})

	t.Run("rows under a run's id and another tenant are found", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t)
		a, b := w.account(t, "a"), w.account(t, "b")
		g := w.newRun(t, a, nil, nil, []int32{0})
		key := store.RunKey{Tenant: b.tenant, Run: g.run.ID}
		w.snapshot(t, func(ctx context.Context, tx *Tx) error {
			own := must(tx.ForeignRows(ctx, g.key()))(t)
			require.Zero(t, len(own.Runs)+len(own.Tasks)+len(own.Edges)+own.Events)
			found := must(tx.ForeignRows(ctx, key))(t)
			require.Equal(t, []store.RunKey{g.key()}, found.Runs)
			require.ElementsMatch(t, g.keys(0, 1), found.Tasks)
			require.Equal(t, []store.Edge{{Key: g.key(), Upstream: g.tasks[0].ID, Task: g.tasks[1].ID}}, found.Edges)
			require.Equal(t, 3, found.Events)
			return nil
		})
	})
}

// copyRuns copies all runs to another tenant. PostgreSQL computes the generated columns.
func copyRuns(t testing.TB, w *world, to account) {
	t.Helper()
	w.Exec(t, `
DO $$
DECLARE
    columns text := (SELECT string_agg(attname, ', ') FROM pg_attribute
                     WHERE attrelid = 'servo.runs'::regclass AND attnum > 0 AND NOT attisdropped AND attgenerated = '' AND attname <> 'tenant_id');
BEGIN
    EXECUTE format('INSERT INTO servo.runs (tenant_id, %1$s) SELECT %2$L, %1$s FROM servo.runs', columns, '`+to.tenant.String()+`');
END
$$`)
}

func TestRepairRows(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	a, b := w.account(t, "a"), w.account(t, "b")
	g := w.newRun(t, a, []run.TaskState{run.Ready, run.Pending}, nil, []int32{0})
	keys := []store.RunKey{g.key()}
	copyRuns(t, w, b)

	parent := id.New[id.Run](w.mint)
	want := g.run
	want.State, want.Remaining, want.Succeeded, want.Failed = run.RunFailed, 0, 1, 1
	want.Parent, want.FinishedAt, want.Version, want.CancelReason = &parent, w.now.Add(time.Hour), 9, "why"
	nightly := id.New[id.Config](w.mint)
	want.Config, want.Slot = &nightly, w.now.Add(-time.Hour)
	ended := store.TaskRow{
		TenantID: a.tenant.UUID, RunID: g.run.ID.UUID, ID: g.tasks[0].ID.UUID, CreatedAt: w.now, FinishedAt: &want.FinishedAt,
		Token: ptr(int64(3)), Ix: 4, TimeoutS: 5, Version: ptr(int32(6)), Attempt: ptr(int32(0)), Failures: ptr(int32(1)), FanOuts: ptr(int32(2)),
		State: ptr(int16(11)), Priority: 7, LateResult: true, Asset: "asset", Partition: "p", Pool: "pool", Outcome: ptr("ERROR"),
		Cursor: ptr("page"), Result: []byte(`{"a": 1}`), Failure: []byte(`{"code": "X"}`),
	}
	live := store.TaskRow{
		TenantID: a.tenant.UUID, RunID: g.run.ID.UUID, ID: g.tasks[1].ID.UUID, CreatedAt: w.now, Ix: 1, TimeoutS: 2, Priority: 3, Asset: "b", Pool: "q",
	}
	waiting := g.run
	waiting.State, waiting.Limit, waiting.Lock, waiting.LockedBy = run.RunPending, 77, "key", "jo"
	waiting.Behind, waiting.Config = true, &nightly
	queued := w.taskIn(run.Running, g.tasks[1])
	edge := store.Edge{Key: g.key(), Upstream: g.tasks[1].ID, Task: g.tasks[0].ID}
	w.engine(t, func(tx *Tx) {
		ctx := t.Context()
		require.NoError(t, tx.LockRun(ctx, g.key()))
		require.NoError(t, tx.LockQueues(ctx, g.run.ID))
		require.NoError(t, tx.Repair(ctx, store.RunRepair{
			Run: &want, DropTasks: g.keys(0, 1), NewTasks: []store.TaskRow{ended, live}, NewEdges: []store.Edge{edge},
			DropEdges: []store.Edge{{Key: g.key(), Upstream: g.tasks[0].ID, Task: g.tasks[1].ID}},
			DropQueue: []run.Task{w.taskIn(run.Ready, g.tasks[0]), w.taskIn(run.Pending, g.tasks[1])}, NewQueue: []run.Task{queued},
			DropRuns: []store.RunKey{{Tenant: b.tenant, Run: g.run.ID}}, NewCone: &keys[0], DropLive: &keys[0], NewLive: &waiting,
		}))
	})

	var (
		tasks  []store.TaskRow
		edges  []store.EdgeRow
		leases []store.LeaseRow
		lives  []store.LiveRunRow
		rest   int
	)
	w.engine(t, func(tx *Tx) {
		ctx := t.Context()
		runs := must(tx.LockRuns(ctx, store.LockForMove, keys))(t)
		require.Equal(t, []run.Run{want}, runs)
		require.NoError(t, tx.EachTask(ctx, keys, collect(&tasks)))
		require.NoError(t, tx.EachEdge(ctx, keys, collect(&edges)))
		require.NoError(t, tx.EachQueueRow(ctx, keys, store.QueueRows{
			Waiting: func(store.WaitingRow) error { rest++; return nil }, Ready: func(store.ReadyRow) error { rest++; return nil },
			Lease: collect(&leases), Cone: func(store.ConeRow) error { rest += 10; return nil }, Live: collect(&lives),
		}))
		require.NoError(t, tx.Repair(ctx, store.RunRepair{DropCone: &keys[0]}))
	})
	require.ElementsMatch(t, []store.TaskRow{ended, live}, tasks)
	require.Len(t, edges, 1)
	require.Equal(t, g.tasks[1].ID.UUID, edges[0].UpstreamID)
	require.Equal(t, queued.Token, leases[0].Token)
	require.Equal(t, 10, rest, "nothing in waiting and ready_q, and a cone")
	require.Equal(t, []store.LiveRunRow{{
		TenantID: a.tenant.UUID, RunID: g.run.ID.UUID, WorkspaceID: a.workspace.ID.UUID, CreatedAt: w.now, LimitS: 77, Priority: 5, Pending: true,
		WaitKey: "key", LockedBy: "jo", Pipeline: "daily", ConfigID: &nightly.UUID,
	}}, lives)
	require.Equal(t, 1, w.Count(t, `SELECT count(*) FROM servo.runs`))
	require.Zero(t, w.Count(t, `SELECT count(*) FROM servo.cones`))

	err := w.Engine(t.Context(), func(ctx context.Context, tx *Tx) error {
		return tx.Repair(ctx, store.RunRepair{DropTasks: []store.TaskKey{{Tenant: b.tenant, Run: g.run.ID, Task: g.tasks[0].ID}}})
	})
	_, mismatch := errors.AsType[*store.MismatchError](err)
	require.True(t, mismatch, "a missing trigger cannot be dropped: %v", err)
}

func ptr[T any](value T) *T { return &value }
