package store_test

import (
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"go.arco.dev/servo/internal/base/fault"
	"go.arco.dev/servo/internal/base/id"
	"go.arco.dev/servo/internal/domain/run"
	"go.arco.dev/servo/internal/store"
)

func TestDeployments(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	a, other := w.account(t, "acme"), w.account(t, "brick")
	staging := w.workspace(t, a, "staging")
	first := w.now
	ids := []id.Deployment{a.deployment.ID}
	for i, in := range []account{a, staging, a} {
		w.later(time.Second)
		d := store.Deployment{
			Tenant: a.tenant, ID: id.New[id.Deployment](w.mint), Workspace: in.workspace.ID, Digest: fmt.Sprint(i), Manifest: json.RawMessage(`{"version": 1}`),
		}
		w.engine(t, func(tx *Tx) { must(insertDeployment(t, tx, d, w.now))(t) })
		ids = append(ids, d.ID)
	}
	list := func(t *testing.T, workspace string, before *id.Deployment, most int) (found []id.Deployment) {
		t.Helper()
		for _, d := range must(w.ListDeployments(t.Context(), a.tenant, workspace, before, most))(t) {
			require.Empty(t, d.Manifest, "a list goes without manifests")
			require.Equal(t, d.ID == a.deployment.ID, d.Active)
			found = append(found, d.ID)
		}
		return found
	}

	t.Run("they are listed with the newest first, of all workspaces or of one, page by page", func(t *testing.T) {
		t.Parallel()
		require.Equal(t, []id.Deployment{ids[3], ids[2], ids[1], ids[0]}, list(t, "", nil, 10))
		require.Equal(t, []id.Deployment{ids[3], ids[1], ids[0]}, list(t, "default", nil, 10))
		require.Equal(t, []id.Deployment{ids[3], ids[1]}, list(t, "default", nil, 2))
		require.Equal(t, []id.Deployment{ids[0]}, list(t, "default", &ids[1], 2))
		require.Equal(t, []id.Deployment{ids[2]}, list(t, "staging", nil, 10))
		require.Empty(t, list(t, "nowhere", nil, 10))
	})

	t.Run("one is read with its manifest, by its tenant alone", func(t *testing.T) {
		t.Parallel()
		want := store.DeploymentView{Deployment: a.deployment, WorkspaceName: "default", CreatedAt: first, Active: true}
		require.Equal(t, want, must(w.GetDeployment(t.Context(), a.tenant, a.deployment.ID))(t))
		require.Equal(t, want.ID, must(w.ActiveCode(t.Context(), a.tenant, "default"))(t))
		_, err := w.GetDeployment(t.Context(), a.tenant, other.deployment.ID)
		require.True(t, fault.Is(err, fault.NotFound), err)
	})

	t.Run("a workspace without a deployment is reported", func(t *testing.T) {
		t.Parallel()
		_, err := w.ActiveCode(t.Context(), a.tenant, "staging")
		require.True(t, fault.Is(err, fault.NotFound), err)
		require.ErrorContains(t, err, "deploy a manifest first")
		_, err = w.ActiveCode(t.Context(), a.tenant, "nowhere")
		require.True(t, fault.Is(err, fault.NotFound), err)
		require.ErrorContains(t, err, "no workspace nowhere")
	})

	t.Run("workspaces are listed by name, with what is active in them", func(t *testing.T) {
		t.Parallel()
		require.Equal(t, []store.WorkspaceView{
			{Workspace: a.workspace, CreatedAt: first},
			{Workspace: staging.workspace, CreatedAt: first},
		}, must(w.ListWorkspaces(t.Context(), a.tenant))(t))
	})

	t.Run("a tenant sees itself, and nothing where there is none", func(t *testing.T) {
		t.Parallel()
		require.Equal(t, store.TenantView{ID: a.tenant, Name: "acme", CreatedAt: first}, must(w.GetTenant(t.Context(), a.tenant))(t))
		_, err := w.GetTenant(t.Context(), id.New[id.Tenant](id.NewMinter(first)))
		require.True(t, fault.Is(err, fault.NotFound), err)
	})
}

func insertDeployment(t testing.TB, tx *Tx, d store.Deployment, now time.Time) (bool, error) {
	t.Helper()
	_, isNew, err := tx.InsertDeployment(t.Context(), d, now)
	return isNew, err
}

func TestDepths(t *testing.T) {
	t.Parallel()

	t.Run("every live state is counted over all tenants, and no ended one", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t)
		for _, name := range []string{"acme", "brick"} {
			states := run.TaskStates()
			w.newRun(t, w.account(t, name), states, make([][]int32, len(states))...)
		}
		w.newRun(t, w.account(t, "coal"), nil, nil)
		require.Equal(t, map[run.TaskState]int{
			run.Pending: 2, run.Ready: 3, run.Queued: 2, run.Dispatched: 2, run.Running: 2, run.RetryWait: 2,
		}, must(w.QueueDepths(t.Context()))(t))
		capped := must(w.CappedQueueDepths(t.Context(), 1))(t)
		require.Equal(t, 1, capped[run.Ready], "counting stops")
		require.Equal(t, 1, capped[run.Dispatched]+capped[run.Running])
	})

	t.Run("pools are counted apart, and a long queue hides no other", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t)
		require.Empty(t, must(w.PoolDepths(t.Context()))(t))
		states := []run.TaskState{run.Queued, run.Queued, run.Queued, run.Running, run.Dispatched, run.Queued}
		g := w.newRun(t, w.account(t, "acme"), states, make([][]int32, len(states))...)
		w.Exec(t, `UPDATE servo.pool_q SET pool = 'gpu' WHERE task_id = '`+g.tasks[5].ID.String()+`'`)
		w.Exec(t, `UPDATE servo.leases SET pool = 'push' WHERE task_id = '`+g.tasks[4].ID.String()+`'`)
		require.Equal(t, []store.PoolDepth{{Pool: "default", Queued: 3, Leased: 1}, {Pool: "gpu", Queued: 1}, {Pool: "push", Leased: 1}},
			must(w.PoolDepths(t.Context()))(t))
		capped := must(w.CappedPoolDepths(t.Context(), 2))(t)
		require.Equal(t, 2, capped[0].Queued, "counting stops")
		require.Equal(t, store.PoolDepth{Pool: "gpu", Queued: 1}, capped[1])
	})
}

func TestDutiesAreSeen(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	require.Equal(t, []store.DutyView{{Duty: store.Duty{Name: "admission"}}, {Duty: store.Duty{Name: "rollouts"}}}, must(w.Duties(t.Context()))(t))
	duty := must(w.TakeDuty(t.Context(), "admission", "server 1", time.Hour))(t)
	seen := must(w.Duties(t.Context()))(t)
	require.Equal(t, duty, seen[0].Duty)
	require.True(t, seen[0].ExpiresAt.After(w.now))
	require.NoError(t, w.ReleaseDuty(t.Context(), duty))
	require.True(t, must(w.Duties(t.Context()))(t)[0].ExpiresAt.IsZero())
}

func TestPool(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	require.NoError(t, w.Ping(t.Context()))
	idle := w.PoolStats()
	require.Zero(t, idle.Acquired)
	require.EqualValues(t, 8, idle.Max)
	require.NotZero(t, idle.Total)
	w.engine(t, func(*Tx) {
		busy := w.PoolStats()
		require.EqualValues(t, 1, busy.Acquired)
		require.Greater(t, busy.AcquireCount, idle.AcquireCount)
		require.Equal(t, busy.Total, busy.Acquired+busy.Idle)
	})
	w.Close()
	require.Error(t, w.Ping(t.Context()))
}
