package dispatcher_test

import (
	"fmt"
	"net/http"
	"sync"
	"testing"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/structpb"

	servov1 "go.arco.dev/servo/gen/servo/v1"
	"go.arco.dev/servo/internal/daemon"
	"go.arco.dev/servo/internal/devkit/servotest"
	"go.arco.dev/servo/internal/domain/asset"
)

// accessManifest has an asset of each kind in the pool under test.
const accessManifest = `
version: 1
assets:
  - {key: u/go, description: %q, go: {handler: h}, pool: remote}
  - {key: u/exec, exec: {command: ["true"]}, pool: remote}
  - {key: u/http, http: {url: "https://example.com/"}, pool: remote}
pipelines:
  - {name: go, select: [u/go], overlap: allow}
  - {name: exec, select: [u/exec], overlap: allow}
  - {name: http, select: [u/http], overlap: allow}
`

var (
	accessTenants = []string{"acme", "bravo"}
	accessKinds   = []string{"go", "exec", "http"}
)

// cell is a tenant that runs an asset of a kind.
type cell struct{ tenant, kind string }

// cells are those of some tenants.
func cells(tenants ...string) map[cell]bool {
	all := map[cell]bool{}
	for _, tenant := range tenants {
		for _, kind := range accessKinds {
			all[cell{tenant, kind}] = true
		}
	}
	return all
}

// executed is what workers have executed, from whichever side they got it.
type executed struct {
	mu   sync.Mutex
	seen map[cell]bool
}

func (e *executed) add(tenant, pipeline string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.seen[cell{tenant, pipeline}] = true
}

func (e *executed) all() map[cell]bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	all := map[cell]bool{}
	for c := range e.seen {
		all[c] = true
	}
	return all
}

// TestPoolAccess: two tenants × pools × asset kinds × (deploy, plan, trigger, claim, report): only
// the allowed cells work, also for tasks of deployments from before the pool was restricted.
// Those wait with a reason, and run when the pool accepts them again.
func TestPoolAccess(t *testing.T) {
	t.Parallel()
	shared := func(*servov1.UpdatePoolRequest) {}
	owned := func(r *servov1.UpdatePoolRequest) { r.Owner = new("bravo") }
	listed := func(r *servov1.UpdatePoolRequest) { r.Tenants = &servov1.PoolTenants{Names: []string{"bravo"}} }
	for _, c := range []struct {
		name     string
		kind     servov1.Pool_Kind
		restrict func(*servov1.UpdatePoolRequest)
		allowed  map[cell]bool
		reason   string
	}{
		{"shared pull", servov1.Pool_PULL, shared, cells("acme", "bravo"), ""},
		{"owned pull", servov1.Pool_PULL, owned, cells("bravo"), "is owned by another tenant"},
		{"listed pull", servov1.Pool_PULL, listed, cells("bravo"), "is shared with listed tenants"},
		{"shared push", servov1.Pool_PUSH, shared, cells("acme", "bravo"), ""},
		{"owned push", servov1.Pool_PUSH, owned, cells("bravo"), "is owned by another tenant"},
		{"listed push", servov1.Pool_PUSH, listed, cells("bravo"), "is shared with listed tenants"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			done := &executed{seen: map[cell]bool{}}
			w := begin(t, servotest.DB(t), func(c call) {
				done.add(c.Tenant, c.Pipeline)
				c.answer(http.StatusOK, `{"status": "SUCCESS"}`)
			})
			w.start(t, daemon.Config{})
			admin := servov1.NewAdminServiceClient(w.conn)
			_, err := admin.PauseDispatch(t.Context(), &servov1.PauseDispatchRequest{})
			require.NoError(t, err)
			w.makeAccessPool(t, c.kind)
			earlier := map[cell]string{}
			for _, tenant := range accessTenants {
				_, err := servov1.NewTenantServiceClient(w.conn).CreateTenant(t.Context(), &servov1.CreateTenantRequest{Name: tenant})
				require.NoError(t, err)
				require.NoError(t, w.deployAs(t, tenant, "first", false))
				for _, kind := range accessKinds {
					earlier[cell{tenant, kind}], err = w.triggerAs(t, tenant, kind)
					require.NoError(t, err)
				}
			}
			req := &servov1.UpdatePoolRequest{Pool: "remote"}
			c.restrict(req)
			_, err = w.pools.UpdatePool(t.Context(), req)
			require.NoError(t, err)

			refused := func(err error, ok bool, what string) {
				t.Helper()
				if ok {
					require.NoError(t, err, what)
					return
				}
				require.Equal(t, codes.PermissionDenied, status.Code(err), "%s: %v", what, err)
				require.Contains(t, err.Error(), `pool "remote" `+c.reason+` and does not accept tasks of tenant "acme"`, what)
				require.NotContains(t, err.Error(), "bravo", "a tenant learns nothing about others")
			}
			later := map[cell]string{}
			for _, tenant := range accessTenants {
				mayUse := c.allowed[cell{tenant, "go"}]
				refused(w.deployAs(t, tenant, "second", true), mayUse, "deploy, dry run")
				refused(w.deployAs(t, tenant, "second", false), mayUse, "deploy")
				for _, kind := range accessKinds {
					at := cell{tenant, kind}
					_, err := w.runs.PlanRun(t.Context(), &servov1.PlanRunRequest{Tenant: tenant, Pipeline: kind})
					refused(err, c.allowed[at], "plan")
					run, err := w.triggerAs(t, tenant, kind)
					if refused(err, c.allowed[at], "trigger"); err == nil {
						later[at] = run
					}
				}
			}

			_, err = admin.ResumeDispatch(t.Context(), &servov1.ResumeDispatchRequest{})
			require.NoError(t, err)
			if c.kind == servov1.Pool_PULL {
				w.work(t, done, len(later)+len(c.allowed))
			}
			for at, run := range earlier {
				if c.allowed[at] {
					w.reachAs(t, at.tenant, run, servov1.Run_SUCCEEDED)
					w.reachAs(t, at.tenant, later[at], servov1.Run_SUCCEEDED)
				}
			}
			for at, run := range earlier {
				if !c.allowed[at] {
					w.heldBack(t, at.tenant, run)
				}
			}
			require.Empty(t, w.claimRemote(t), "nothing is left that may be claimed")
			require.Equal(t, c.allowed, done.all())
			w.clean(t)

			_, err = w.pools.UpdatePool(t.Context(), &servov1.UpdatePoolRequest{Pool: "remote", Owner: new(""), Tenants: &servov1.PoolTenants{}})
			require.NoError(t, err)
			if c.kind == servov1.Pool_PULL {
				w.work(t, done, len(earlier)-len(c.allowed))
			}
			for at, run := range earlier {
				w.reachAs(t, at.tenant, run, servov1.Run_SUCCEEDED)
			}
			require.Equal(t, cells(accessTenants...), done.all(), "what was held back ran when the pool accepted it again")
			w.clean(t)
		})
	}
}

// makeAccessPool makes the pool under test, which every tenant may use at first.
func (w *world) makeAccessPool(t *testing.T, kind servov1.Pool_Kind) {
	t.Helper()
	if kind == servov1.Pool_PUSH {
		w.makePool(t, nil)
		return
	}
	_, err := w.pools.CreatePool(t.Context(), &servov1.CreatePoolRequest{Name: "remote", Kind: kind})
	require.NoError(t, err)
}

func (w *world) deployAs(t *testing.T, tenant, description string, dryRun bool) error {
	t.Helper()
	manifest, err := asset.Parse(fmt.Appendf(nil, accessManifest, description), "servo.yaml")
	require.NoError(t, err)
	canonical, err := manifest.Canonical()
	require.NoError(t, err)
	document := &structpb.Struct{}
	require.NoError(t, document.UnmarshalJSON(canonical))
	_, err = servov1.NewDeploymentServiceClient(w.conn).Deploy(t.Context(), &servov1.DeployRequest{Tenant: tenant, Manifest: document, DryRun: dryRun})
	return err
}

func (w *world) triggerAs(t *testing.T, tenant, pipeline string) (string, error) {
	t.Helper()
	answer, err := w.runs.TriggerRun(t.Context(), &servov1.TriggerRunRequest{Tenant: tenant, Pipeline: pipeline})
	return answer.GetRun().GetId(), err
}

func (w *world) reachAs(t *testing.T, tenant, run string, state servov1.Run_State) {
	t.Helper()
	var last *servov1.Run
	require.Eventually(t, func() bool {
		var err error
		last, err = w.runs.GetRun(t.Context(), &servov1.GetRunRequest{Tenant: tenant, Run: run})
		return err == nil && last.GetState() == state
	}, waitLong, waitShort, "%v", last)
}

// heldBack waits until the task of a run is READY, and requires that why names the pool.
func (w *world) heldBack(t *testing.T, tenant, run string) {
	t.Helper()
	require.Eventually(t, func() bool {
		list, err := w.tasks.ListTasks(t.Context(), &servov1.ListTasksRequest{Tenant: tenant, Run: run})
		return err == nil && list.GetTasks()[0].GetState() == servov1.Task_READY
	}, waitLong, waitShort)
	why, err := w.runs.ExplainRun(t.Context(), &servov1.ExplainRunRequest{Tenant: tenant, Run: run})
	require.NoError(t, err)
	require.Equal(t, "POOL_ACCESS", why.GetBlockers()[0].GetCode())
	require.Contains(t, why.GetBlockers()[0].GetMessage(), `pool "remote"`)
}

func (w *world) claimRemote(t *testing.T) []*servov1.Lease {
	t.Helper()
	answer, err := servov1.NewWorkerServiceClient(w.conn).Claim(t.Context(), &servov1.ClaimRequest{
		WorkerId: "w1", ClaimId: uuid.NewString(), Pools: []string{"remote"}, Max: 10, Start: true,
	})
	require.NoError(t, err)
	return answer.GetLeases()
}

// work claims and completes a number of tasks, as a worker for all tenants.
func (w *world) work(t *testing.T, done *executed, tasks int) {
	t.Helper()
	workers := servov1.NewWorkerServiceClient(w.conn)
	require.Eventually(t, func() bool {
		for _, l := range w.claimRemote(t) {
			_, err := workers.CompleteTask(t.Context(), &servov1.CompleteTaskRequest{Task: l.GetTask(), Attempt: l.GetAttempt(), Lease: l.GetLease()})
			require.NoError(t, err, "what was leased is reported")
			done.add(l.GetTenant(), l.GetPipeline())
			tasks--
		}
		return tasks <= 0
	}, waitLong, waitShort)
	require.Zero(t, tasks)
}
