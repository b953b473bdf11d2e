package servo_test

import (
	"context"
	"encoding/json"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"google.golang.org/protobuf/types/known/structpb"

	"go.arco.dev/servo"
	"go.arco.dev/servo/client"
	servov1 "go.arco.dev/servo/gen/servo/v1"
	"go.arco.dev/servo/internal/devkit/servotest"
	"go.arco.dev/servo/internal/devkit/servotest/servertest"
	"go.arco.dev/servo/internal/worker/host"
)

func TestMain(m *testing.M) {
	if len(os.Args) > 2 && os.Args[1] == host.SupervisorCommand {
		os.Exit(host.Supervise(os.Args[3:]))
	}
	const devpg = "go.arco.dev/servo/internal/devkit/devpg.(*Server)." // stays for the next package
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction(devpg+"launchOn.func1"), goleak.IgnoreAnyFunction(devpg+"spawn.func1"))
}

// bundle is a server with a tenant that has deployed.
type bundle struct {
	*client.Client

	database string
	server   *servertest.Server
}

func setup(t *testing.T, manifest string) *bundle {
	t.Helper()
	b := &bundle{database: servotest.DB(t).URL}
	b.server = servertest.StartAt(t, b.database, "")
	var err error
	b.Client, err = client.New(client.Options{Servers: []string{b.server.GRPC}})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, b.Close()) })
	_, err = b.Tenants().CreateTenant(t.Context(), &servov1.CreateTenantRequest{Name: "acme"})
	require.NoError(t, err)
	var document structpb.Struct
	require.NoError(t, document.UnmarshalJSON([]byte(manifest)))
	_, err = b.Deployments().Deploy(t.Context(), &servov1.DeployRequest{Tenant: "acme", Manifest: &document})
	require.NoError(t, err)
	return b
}

// work runs a worker until the test is over, or until the function that it returns is called.
func (b *bundle) work(t *testing.T, register func(w *servo.Worker), change ...func(*servo.WorkerOptions)) (stop func()) {
	t.Helper()
	// A short lease beats often, so that a cancel is received soon.
	options := servo.WorkerOptions{Server: b.server.GRPC, ID: "w1", Concurrency: 4, Lease: time.Second, Exec: &servo.ExecOptions{}, HTTP: true}
	options.AllowLoopback()
	for _, c := range change {
		c(&options)
	}
	w := servo.NewWorker(options)
	register(w)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- w.Run(ctx) }()
	stopped := false
	stop = func() {
		if !stopped {
			stopped = true
			cancel()
			require.NoError(t, <-done)
		}
	}
	t.Cleanup(stop)
	return stop
}

// trigger starts a run.
func (b *bundle) trigger(t *testing.T, pipeline string, parameters map[string]any) string {
	t.Helper()
	values, err := structpb.NewStruct(parameters)
	require.NoError(t, err)
	answer, err := b.Runs().TriggerRun(t.Context(), &servov1.TriggerRunRequest{Tenant: "acme", Pipeline: pipeline, Parameters: values})
	require.NoError(t, err)
	return answer.GetRun().GetId()
}

// end waits for the end of a run.
func (b *bundle) end(t *testing.T, run string) *servov1.Run {
	t.Helper()
	var last *servov1.Run
	for event, err := range client.WatchRun(t.Context(), b.Client, &servov1.WatchRunRequest{Tenant: "acme", Run: run}) {
		require.NoError(t, err)
		if event.GetEnd() != nil {
			last = event.GetEnd()
		}
	}
	return last
}

// tasks are the tasks of a run, by asset and partition; those without a partition with their
// attempts.
func (b *bundle) tasks(t *testing.T, run string) map[string]*servov1.Task {
	t.Helper()
	found := map[string]*servov1.Task{}
	for task, err := range client.AllTasks(t.Context(), b.Client, &servov1.ListTasksRequest{Tenant: "acme", Run: run}) {
		require.NoError(t, err)
		if task.GetPartition() != "" { // there may be many
			found[task.GetAsset()+"["+task.GetPartition()+"]"] = task
			continue
		}
		whole, err := b.Tasks().GetTask(t.Context(), &servov1.GetTaskRequest{Tenant: "acme", Run: run, Task: task.GetId()})
		require.NoError(t, err)
		found[task.GetAsset()] = whole
	}
	return found
}

// result is the result of a task as JSON.
func result(t *testing.T, task *servov1.Task) string {
	t.Helper()
	data, err := json.Marshal(task.GetResult().AsInterface())
	require.NoError(t, err)
	return string(data)
}

// until waits until a task of a run is as wished.
func (b *bundle) until(t *testing.T, run, asset string, wished func(*servov1.Task) bool) {
	t.Helper()
	require.Eventually(t, func() bool { return wished(b.tasks(t, run)[asset]) }, time.Minute, 10*time.Millisecond)
}
