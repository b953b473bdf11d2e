package servo_test

import (
	"context"
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/structpb"

	"go.arco.dev/servo"
	servov1 "go.arco.dev/servo/gen/servo/v1"
)

// deployTo deploys a manifest for a tenant.
func (b *bundle) deployTo(t *testing.T, tenant, manifest string) *servov1.DeployResponse {
	t.Helper()
	var document structpb.Struct
	require.NoError(t, document.UnmarshalJSON([]byte(manifest)))
	answer, err := b.Deployments().Deploy(t.Context(), &servov1.DeployRequest{Tenant: tenant, Manifest: &document})
	require.NoError(t, err)
	return answer
}

// start triggers a run of a tenant and gives its id.
func (b *bundle) start(t *testing.T, tenant, pipeline string) string {
	t.Helper()
	answer, err := b.Runs().TriggerRun(t.Context(), &servov1.TriggerRunRequest{Tenant: tenant, Pipeline: pipeline})
	require.NoError(t, err)
	return answer.GetRun().GetId()
}

// ended waits for the end of a run of a tenant.
func (b *bundle) ended(t *testing.T, tenant, run string) (found *servov1.Run) {
	t.Helper()
	require.Eventually(t, func() bool {
		answer, err := b.Runs().GetRun(t.Context(), &servov1.GetRunRequest{Tenant: tenant, Run: run})
		require.NoError(t, err)
		found = answer
		return answer.GetFinishedAt() != nil
	}, time.Minute, 20*time.Millisecond)
	return found
}

const goOnly = `{"version": 1, "assets": [{"key": "g/one", "go": {"handler": "orders"}}], "pipelines": [{"name": "go", "overlap": "allow"}]}`

// TestSharedPool shows that tasks which no worker can run delay no other tenant of the pool.
func TestSharedPool(t *testing.T) {
	t.Parallel()
	const backlog, others = 150, 10 // more than the queue of a pool without workers holds
	b := setup(t, goOnly)
	_, err := b.Tenants().CreateTenant(t.Context(), &servov1.CreateTenantRequest{Name: "bravo"})
	require.NoError(t, err)
	b.deployTo(t, "bravo", `{"version": 1, "assets": [{"key": "e/one", "exec": {"command": ["true"]}}], "pipelines": [{"name": "exec", "overlap": "allow"}]}`)
	_, err = b.Tenants().SetQuotas(t.Context(), &servov1.SetQuotasRequest{Tenant: "acme", Quotas: &servov1.Quotas{
		MaxConcurrentTasks: proto.Int32(1000), MaxQueuedTasks: proto.Int32(1000), MaxConcurrentRuns: proto.Int32(1000),
	}})
	require.NoError(t, err)

	waiting := make([]string, backlog)
	for i := range waiting {
		waiting[i] = b.start(t, "acme", "go")
	}
	b.work(t, func(*servo.Worker) {})
	for range others {
		require.Equal(t, servov1.Run_SUCCEEDED, b.ended(t, "bravo", b.start(t, "bravo", "exec")).GetState())
	}
	require.Eventually(t, func() bool {
		for _, run := range waiting {
			if b.tasks(t, run)["g/one"].GetState() != servov1.Task_READY {
				return false
			}
		}
		return true
	}, time.Minute, 100*time.Millisecond, "what no worker can run stays READY, queued tasks become it again")

	why, err := b.Runs().ExplainRun(t.Context(), &servov1.ExplainRunRequest{Tenant: "acme", Run: waiting[0]})
	require.NoError(t, err)
	require.Len(t, why.GetBlockers(), 1)
	require.Equal(t, "NO_CAPABLE_WORKER", why.GetBlockers()[0].GetCode())
	require.Equal(t, "no live worker of pool default has the Go handler orders", why.GetBlockers()[0].GetMessage())

	b.work(t, func(w *servo.Worker) {
		servo.Asset(w, "orders", func(context.Context, *servo.Task, servo.None) (string, error) { return "", nil })
	}, func(o *servo.WorkerOptions) { o.ID, o.Concurrency = "orders", 16 })
	for _, run := range waiting {
		require.Equal(t, servov1.Run_SUCCEEDED, b.ended(t, "acme", run).GetState())
		require.EqualValues(t, 1, b.tasks(t, run)["g/one"].GetAttempt())
	}
}

// TestRollingDeploy shows that workers of two builds share a pool: no task fails because the wrong
// one got it.
func TestRollingDeploy(t *testing.T) {
	t.Parallel()
	manifest := func(keys ...string) string {
		assets, pipelines := "", ""
		for i, key := range keys {
			separator := ""
			if i > 0 {
				separator = ","
			}
			assets += fmt.Sprintf(`%s{"key": "r/%s", "go": {"handler": %q}}`, separator, key, key)
			pipelines += fmt.Sprintf(`%s{"name": %q, "overlap": "allow", "select": ["r/%s"]}`, separator, key, key)
		}
		return fmt.Sprintf(`{"version": 1, "assets": [%s], "pipelines": [%s]}`, assets, pipelines)
	}
	handlers := func(names ...string) func(*servo.Worker) {
		return func(w *servo.Worker) {
			for _, name := range names {
				servo.Asset(w, name, func(context.Context, *servo.Task, servo.None) (string, error) { return name, nil })
			}
		}
	}
	named := func(id string) func(*servo.WorkerOptions) { return func(o *servo.WorkerOptions) { o.ID = id } }

	b := setup(t, manifest("kept", "removed"))
	stopOld := b.work(t, handlers("kept", "removed"), named("old"))
	var runs []string
	trigger := func(pipelines ...string) {
		for range 10 {
			for _, pipeline := range pipelines {
				runs = append(runs, b.start(t, "acme", pipeline))
			}
		}
	}
	trigger("kept", "removed")
	b.deployTo(t, "acme", manifest("kept", "added"))
	trigger("kept", "added") // no worker has the new handler yet
	b.work(t, handlers("kept", "added"), named("new"))
	trigger("kept", "added")
	stopOld()
	trigger("kept", "added")
	for _, run := range runs {
		require.Equal(t, servov1.Run_SUCCEEDED, b.ended(t, "acme", run).GetState())
		for _, task := range b.tasks(t, run) {
			require.Zero(t, task.GetFailures(), task)
		}
	}
}

// TestDescribe shows what a program prints for servo worker check; the guide runs one.
func TestDescribe(t *testing.T) {
	t.Parallel()
	function := func(context.Context, *servo.Task, servo.None) (string, error) { return "", nil }
	w := servo.NewWorker(servo.WorkerOptions{Pools: []string{"shop"}, Exec: &servo.ExecOptions{}})
	servo.Asset(w, "gold/revenue", function, servo.Reads("bronze/orders"), servo.Reads("bronze/prices"))
	servo.Asset(w, "bronze/orders", function)
	described, err := json.Marshal(servo.Describe(w))
	require.NoError(t, err)
	require.JSONEq(t, `{"handlers": ["bronze/orders", "gold/revenue"], "pools": ["shop"], "exec": true, "http": false,
		"reads": {"gold/revenue": ["bronze/orders", "bronze/prices"]}}`, string(described))
	plain, err := json.Marshal(servo.Describe(servo.NewWorker(servo.WorkerOptions{})))
	require.NoError(t, err)
	require.JSONEq(t, `{"handlers": [], "pools": ["default"], "exec": false, "http": false}`, string(plain))
}
