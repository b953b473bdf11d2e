package dispatcher_test

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/structpb"

	servov1 "go.arco.dev/servo/gen/servo/v1"
	"go.arco.dev/servo/internal/daemon"
	"go.arco.dev/servo/internal/devkit/servotest"
	"go.arco.dev/servo/internal/devkit/servotest/servertest"
	"go.arco.dev/servo/internal/devkit/servotest/verifytest"
	"go.arco.dev/servo/internal/domain/asset"
	"go.arco.dev/servo/internal/domain/push"
	"go.arco.dev/servo/internal/engine"
)

// How long a test waits for what must come, and how often it looks.
const (
	waitLong  = 60 * time.Second
	waitShort = 10 * time.Millisecond
)

const manifestText = `
version: 1
assets:
  - {key: p/one, go: {handler: first}, pool: remote, timeout: 600s, retry: {max_attempts: 3, initial_delay: 1s, max_delay: 1s}}
  - {key: p/two, go: {}, pool: remote, upstream: [p/one]}
  - {key: q/one, go: {}, pool: other}
  - {key: r/rows, go: {}, pool: remote, output: {format: csv}}
pipelines:
  - {name: other, select: [q/one], overlap: allow}
  - {name: rows, select: [r/rows], overlap: allow}
  - {name: one, select: [p/one], overlap: allow, parameters: [{name: day, type: string, default: today}]}
  - {name: both, select: ["p/*"], overlap: allow}
`

// world is a server and the worker of a push pool, both on loopback.
type world struct {
	db     *servotest.Database
	server *servertest.Server
	worker *httptest.Server
	calls  atomic.Int64 // that have reached the worker

	mu   sync.Mutex
	keys []push.WorkerKey

	conn   *grpc.ClientConn
	keysOf servov1.SigningKeyServiceClient
	pools  servov1.PoolServiceClient
	runs   servov1.RunServiceClient
	tasks  servov1.TaskServiceClient
}

// call is an envelope that the worker has accepted.
type call struct {
	push.Envelope

	w http.ResponseWriter
	r *http.Request
}

func (c call) answer(status int, body string) {
	c.w.Header().Set("Content-Type", "application/json")
	c.w.WriteHeader(status)
	_, _ = io.WriteString(c.w, body)
}

// setup starts both. The pool is made as the request specifies, with the worker's address if it
// has none.
func setup(t *testing.T, config daemon.Config, pool *servov1.CreatePoolRequest, serve func(call)) *world {
	t.Helper()
	w := begin(t, servotest.DB(t), serve)
	w.start(t, config)
	w.prepare(t)
	w.makePool(t, pool)
	return w
}

// begin starts the worker.
func begin(t *testing.T, db *servotest.Database, serve func(call)) *world {
	t.Helper()
	w := &world{db: db}
	w.worker = httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		w.calls.Add(1)
		raw, err := io.ReadAll(r.Body)
		if err != nil {
			return
		}
		for _, key := range w.given() {
			if envelope, err := push.Verify(raw, push.WorkerKeys(key), time.Now()); err == nil {
				serve(call{envelope, rw, r})
				return
			}
		}
		rw.WriteHeader(http.StatusUnauthorized)
	}))
	t.Cleanup(w.worker.Close)
	return w
}

// given are the keys that the worker has. It serves several pools, whose keys share their id.
func (w *world) given() []push.WorkerKey {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.keys)
}

// give gives the worker a key.
func (w *world) give(t testing.TB, text string) {
	t.Helper()
	key, err := push.ParseWorkerKey(text)
	require.NoError(t, err)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.keys = append(w.keys, key)
}

// start starts the server.
func (w *world) start(t *testing.T, config daemon.Config) {
	t.Helper()
	config.DatabaseURL = w.db.URL
	if config.Engine == (engine.Config{}) {
		config.Engine.PollEvery = 50 * time.Millisecond
	}
	w.server = servertest.StartWith(t, config)
	w.conn = w.server.Dial(t)
	w.pools, w.runs, w.tasks = servov1.NewPoolServiceClient(w.conn), servov1.NewRunServiceClient(w.conn), servov1.NewTaskServiceClient(w.conn)
	w.keysOf = servov1.NewSigningKeyServiceClient(w.conn)
}

// prepare makes a tenant and deploys.
func (w *world) prepare(t *testing.T) {
	t.Helper()
	_, err := servov1.NewTenantServiceClient(w.conn).CreateTenant(t.Context(), &servov1.CreateTenantRequest{Name: "acme"})
	require.NoError(t, err)
	manifest, err := asset.Parse([]byte(manifestText), "servo.yaml")
	require.NoError(t, err)
	canonical, err := manifest.Canonical()
	require.NoError(t, err)
	document := &structpb.Struct{}
	require.NoError(t, document.UnmarshalJSON(canonical))
	_, err = servov1.NewDeploymentServiceClient(w.conn).Deploy(t.Context(), &servov1.DeployRequest{Tenant: "acme", Manifest: document})
	require.NoError(t, err)
}

func (w *world) makePool(t *testing.T, pool *servov1.CreatePoolRequest) {
	t.Helper()
	if pool == nil {
		pool = &servov1.CreatePoolRequest{}
	}
	pool.Name, pool.Kind = "remote", servov1.Pool_PUSH
	if pool.GetUrl() == "" {
		pool.Url = w.worker.URL + "/servo"
	}
	made, err := w.pools.CreatePool(t.Context(), pool)
	require.NoError(t, err)
	w.give(t, made.GetWorkerKeys()[0].GetKey())
}

func (w *world) trigger(t testing.TB, pipeline string) string {
	t.Helper()
	answer, err := w.runs.TriggerRun(t.Context(), &servov1.TriggerRunRequest{Tenant: "acme", Pipeline: pipeline})
	require.NoError(t, err)
	return answer.GetRun().GetId()
}

// reach waits until a run is in a state.
func (w *world) reach(t testing.TB, run string, state servov1.Run_State) *servov1.Run {
	t.Helper()
	var last *servov1.Run
	require.Eventually(t, func() bool {
		var err error
		last, err = w.runs.GetRun(t.Context(), &servov1.GetRunRequest{Tenant: "acme", Run: run})
		return err == nil && last.GetState() == state
	}, waitLong, waitShort, "%v", last)
	return last
}

// task is the only task of a run, as it was last seen.
func (w *world) task(t testing.TB, run string) *servov1.Task {
	t.Helper()
	list, err := w.tasks.ListTasks(t.Context(), &servov1.ListTasksRequest{Tenant: "acme", Run: run})
	require.NoError(t, err)
	task, err := w.tasks.GetTask(t.Context(), &servov1.GetTaskRequest{Tenant: "acme", Run: run, Task: list.GetTasks()[0].GetId()})
	require.NoError(t, err)
	return task
}

// taskIn waits until the only task of a run is in a state.
func (w *world) taskIn(t testing.TB, run string, state servov1.Task_State) *servov1.Task {
	t.Helper()
	var last *servov1.Task
	require.Eventually(t, func() bool {
		last = w.task(t, run)
		return last.GetState() == state
	}, waitLong, waitShort, "%v", last)
	return last
}

func (w *world) clean(t testing.TB) {
	t.Helper()
	verifytest.Clean(t, w.db)
}

// post sends JSON to a callback and gives what was answered.
func post(t testing.TB, url string, body any) (int, string) {
	t.Helper()
	raw, err := json.Marshal(body)
	require.NoError(t, err)
	return send(t, http.MethodPost, url, raw)
}

func send(t testing.TB, method, url string, body []byte) (int, string) {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), method, url, bytes.NewReader(body))
	require.NoError(t, err)
	request.Header.Set("Content-Type", "application/json")
	response, err := http.DefaultClient.Do(request)
	require.NoError(t, err)
	defer func() { _ = response.Body.Close() }()
	answer, err := io.ReadAll(response.Body)
	require.NoError(t, err)
	return response.StatusCode, string(answer)
}

func seconds(n int64) *durationpb.Duration { return &durationpb.Duration{Seconds: n} }

type object = map[string]any

// startOn starts a further server on the world's database.
func startOn(t *testing.T, w *world, config daemon.Config) *servertest.Server {
	t.Helper()
	config.DatabaseURL = w.db.URL
	return servertest.StartWith(t, config)
}
