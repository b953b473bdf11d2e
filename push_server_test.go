package servo_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/types/known/durationpb"

	"go.arco.dev/servo"
	servov1 "go.arco.dev/servo/gen/servo/v1"
)

const edge = `{"version": 1, "assets": [
	{"key": "e/left", "pool": "edge", "go": {}},
	{"key": "e/right", "pool": "edge", "go": {}},
	{"key": "e/split", "pool": "edge", "go": {}, "upstream": ["e/left", "e/right"], "retry": {"initial_delay": "10ms"}},
	{"key": "e/part", "pool": "edge", "go": {}},
	{"key": "e/join", "pool": "edge", "go": {"handler": "join"}, "upstream": ["e/split"]},
	{"key": "e/waits", "pool": "edge", "go": {}}
], "pipelines": [
	{"name": "edge", "select": ["e/left", "e/right", "e/split", "e/join"]},
	{"name": "waits", "select": ["e/waits"]}
]}`

// servePush makes a push pool on the server, with a worker behind its URL.
func (b *bundle) servePush(t *testing.T, pool string, register func(w *servo.Worker)) {
	t.Helper()
	var handler atomic.Pointer[servo.PushHandler]
	endpoint := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { handler.Load().ServeHTTP(w, r) }))
	t.Cleanup(endpoint.Close)
	made, err := b.Pools().CreatePool(t.Context(), &servov1.CreatePoolRequest{
		Name: pool, Kind: servov1.Pool_PUSH, Url: endpoint.URL, Timeout: durationpb.New(10 * time.Second),
	})
	require.NoError(t, err)
	require.NotEmpty(t, made.GetWorkerKeys())
	var keys []string
	for _, key := range made.GetWorkerKeys() {
		keys = append(keys, key.GetKey())
	}
	w := servo.NewWorker(servo.WorkerOptions{Concurrency: 8, Lease: time.Second}) // a short lease beats often
	register(w)
	h, err := servo.NewPushHandler(w, servo.PushOptions{Keys: keys})
	require.NoError(t, err)
	handler.Store(h)
	t.Cleanup(func() { require.NoError(t, h.Shutdown(context.Background())) })
}

// TestPushedRun runs a pipeline through a push pool of a real server.
func TestPushedRun(t *testing.T) {
	t.Parallel()
	b := setup(t, edge)
	large := strings.Repeat("x", 40_000) // two of them do not fit into one envelope
	ended := make(chan error, 1)
	b.servePush(t, "edge", func(w *servo.Worker) {
		side := func(name string) func(context.Context, *servo.Task, servo.None) (string, error) {
			return func(_ context.Context, task *servo.Task, _ servo.None) (string, error) {
				task.Log().Info("making", "side", name)
				return name + large, nil
			}
		}
		servo.Asset(w, "e/left", side("left"))
		servo.Asset(w, "e/right", side("right"))
		servo.Asset(w, "e/split", func(ctx context.Context, task *servo.Task, _ servo.None) (string, error) {
			left, err := servo.Upstream[string](ctx, task, "e/left")
			if err != nil {
				return "", err
			}
			right, err := servo.Upstream[string](ctx, task, "e/right")
			if err != nil {
				return "", err
			}
			if task.Cursor() == "" {
				if err := task.Advance(ctx, "half"); err != nil {
					return "", err
				}
				return "", servo.Fail(servo.NetworkError, context.DeadlineExceeded)
			}
			_, err = task.FanOut(ctx, []servo.Mapped{{Asset: "e/part", Partition: "1"}, {Asset: "e/part", Partition: "2"}}, servo.Barrier())
			return strings.Trim(left, "x") + "+" + strings.Trim(right, "x") + "@" + task.Cursor(), err
		})
		servo.Asset(w, "e/part", func(_ context.Context, task *servo.Task, _ servo.None) (string, error) {
			return "part " + task.Partition, nil
		})
		servo.Asset(w, "join", func(ctx context.Context, task *servo.Task, _ servo.None) (string, error) {
			split, err := servo.Upstream[string](ctx, task, "e/split")
			if err != nil {
				return "", err
			}
			parts := map[string]bool{}
			for part, err := range servo.MappedResults[string](ctx, task, "e/part") {
				if err != nil {
					return "", err
				}
				parts[part.Value] = true
			}
			if !parts["part 1"] || !parts["part 2"] || len(parts) != 2 {
				return "", servo.Fail(servo.MissingInput, context.Canceled)
			}
			task.Partial()
			return split, nil
		})
		servo.Asset(w, "e/waits", func(ctx context.Context, _ *servo.Task, _ servo.None) (string, error) {
			<-ctx.Done()
			ended <- context.Cause(ctx)
			return "", ctx.Err()
		})
	})

	run := b.trigger(t, "edge", nil)
	require.Equal(t, servov1.Run_SUCCEEDED, b.end(t, run).GetState())
	tasks := b.tasks(t, run)
	require.Equal(t, `"left+right@half"`, result(t, tasks["e/join"]))
	require.Equal(t, "PARTIAL_SUCCESS", tasks["e/join"].GetOutcome())
	require.EqualValues(t, 2, tasks["e/split"].GetAttempt(), "it failed once, and continued where it was")
	require.Regexp(t, `INFO making side=left`, b.log(t, run, tasks["e/left"]))

	cancelled := b.trigger(t, "waits", nil)
	b.until(t, cancelled, "e/waits", func(task *servov1.Task) bool { return task.GetState() == servov1.Task_RUNNING })
	_, err := b.Runs().CancelRun(t.Context(), &servov1.CancelRunRequest{Tenant: "acme", Run: cancelled})
	require.NoError(t, err)
	require.Equal(t, servov1.Run_CANCELLED, b.end(t, cancelled).GetState())
	require.ErrorIs(t, <-ended, servo.ErrCancelled)
}
