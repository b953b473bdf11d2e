package store_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"go.arco.dev/servo/internal/domain/alert"
	"go.arco.dev/servo/internal/domain/run"
	"go.arco.dev/servo/internal/store"
)

func TestLive(t *testing.T) {
	t.Parallel()

	t.Run("nothing is live in the beginning", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t)
		live := must(w.Live(t.Context(), 10))(t)
		require.Empty(t, live.Depths)
		require.Empty(t, live.Quotas)
		require.Nil(t, live.NearestLock)
		require.Zero(t, live.RunningRuns+live.PendingRuns+live.Locks)
	})

	t.Run("tasks are counted by tenant and state, the largest tenants apart and all together", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t)
		small, large := w.account(t, "acme"), w.account(t, "brick")
		w.newRun(t, small, []run.TaskState{run.Ready, run.Succeeded}, nil, nil)
		states := []run.TaskState{run.Pending, run.Ready, run.Queued, run.Queued, run.Dispatched, run.Running, run.RetryWait}
		w.newRun(t, large, states, make([][]int32, len(states))...)

		live := must(w.Live(t.Context(), 10))(t)
		of := map[run.TaskState]int{run.Pending: 1, run.Ready: 1, run.Queued: 2, run.Dispatched: 1, run.Running: 1, run.RetryWait: 1}
		require.Equal(t, store.TenantDepth{Tenant: large.tenant, Tasks: of}, live.Depths[0])
		require.Equal(t, small.tenant, live.Depths[1].Tenant)
		require.Equal(t, 1, live.Depths[1].Tasks[run.Ready])
		require.Equal(t, 2, live.All[run.Ready])

		top := must(w.Live(t.Context(), 1))(t)
		require.Len(t, top.Depths, 1)
		require.Equal(t, 2, top.All[run.Ready], "all are all")
		capped := must(w.CappedLive(t.Context(), 10, 1))(t)
		require.Equal(t, 1, capped.All[run.Ready], "counting stops")
		require.Equal(t, 1, capped.All[run.Queued])
	})

	t.Run("quotas are listed by how much of them is used, and those without a limit are not", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t)
		near, far := w.account(t, "acme"), w.account(t, "brick")
		for _, a := range []account{near, far} {
			w.newRun(t, a, []run.TaskState{run.Queued, run.Running, run.Ready}, nil, nil, nil)
		}
		w.Exec(t, `UPDATE servo.tenants SET max_concurrent_tasks = 4, max_concurrent_runs = 10, max_queued_tasks = -1 WHERE id = '`+near.tenant.String()+`'`)
		w.Exec(t, `UPDATE servo.tenants SET max_concurrent_tasks = 100, max_concurrent_runs = 0, max_queued_tasks = 1000 WHERE id = '`+far.tenant.String()+`'`)
		require.Equal(t, []store.QuotaUsage{
			{Tenant: near.tenant, Quota: "max_concurrent_tasks", Used: 2, Limit: 4},
			{Tenant: near.tenant, Quota: "max_concurrent_runs", Used: 1, Limit: 10},
			{Tenant: far.tenant, Quota: "max_concurrent_tasks", Used: 2, Limit: 100},
			{Tenant: far.tenant, Quota: "max_queued_tasks", Used: 1, Limit: 1000},
		}, must(w.Live(t.Context(), 10))(t).Quotas)
	})

	t.Run("runs and locks are counted, and the lock whose run is due next is returned", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t)
		a := w.account(t, "acme")
		var runs []graph
		for range 4 {
			runs = append(runs, w.newRun(t, a, nil, nil))
		}
		for i, set := range []string{
			`due_at = '2026-11-15 13:00Z'`,
			`due_at = '2026-11-15 14:00Z', created_at = '2026-11-15 12:00Z', lock_key = 'x'`,
			`due_at = '2026-11-15 15:00Z', lock_key = 'y'`,
			`pending = true, due_at = NULL`,
		} {
			w.Exec(t, `UPDATE servo.live_runs SET `+set+` WHERE run_id = '`+runs[i].run.ID.String()+`'`)
		}
		live := must(w.Live(t.Context(), 10))(t)
		require.Equal(t, []int{3, 1, 2}, []int{live.RunningRuns, live.PendingRuns, live.Locks})
		noon := time.Date(2026, 11, 15, 12, 0, 0, 0, time.UTC)
		require.Equal(t, noon, live.NearestLock.LockedAt.UTC())
		require.Equal(t, noon.Add(2*time.Hour), live.NearestLock.DueAt.UTC())
	})

	t.Run("open alerts are counted by kind, and undelivered messages", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t)
		a := w.account(t, "acme")
		c := w.channel(t, a.tenant, "mine")
		w.alert(t, a.tenant, alert.RunLate, c)
		w.alert(t, a.tenant, alert.RunLate, c)
		over := w.alert(t, a.tenant, alert.PipelineFailing)
		w.engine(t, func(tx *Tx) { require.NoError(t, tx.ChangeAlerts(t.Context(), w.now, nil, []alert.Alert{over}, nil)) })
		live := must(w.Live(t.Context(), 1))(t)
		require.Equal(t, map[alert.Kind]int{alert.RunLate: 2}, live.Alerts)
		require.Equal(t, 2, live.Messages)
	})

	t.Run("the holder of a duty is returned", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t)
		duty := must(w.TakeDuty(t.Context(), "admission", "server-1", time.Minute))(t)
		live := must(w.Live(t.Context(), 1))(t)
		require.Len(t, live.Duties, 2)
		require.Equal(t, duty, live.Duties[0].Duty)
		require.True(t, live.Duties[0].ExpiresAt.After(live.At))
	})
}
