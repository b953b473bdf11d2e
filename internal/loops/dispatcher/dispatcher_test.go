package dispatcher_test

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/metadata"

	servov1 "go.arco.dev/servo/gen/servo/v1"
	"go.arco.dev/servo/internal/base/event"
	"go.arco.dev/servo/internal/base/netguard"
	"go.arco.dev/servo/internal/daemon"
	"go.arco.dev/servo/internal/devkit/servotest"
	"go.arco.dev/servo/internal/domain/platform"
	"go.arco.dev/servo/internal/domain/push"
	"go.arco.dev/servo/internal/engine"
)

func TestDispatch(t *testing.T) {
	t.Parallel()

	t.Run("a worker that answers at once ends its task, and the next gets its result", func(t *testing.T) {
		t.Parallel()
		envelopes := make(chan push.Envelope, 10)
		w := setup(t, daemon.Config{}, nil, func(c call) {
			envelopes <- c.Envelope
			c.answer(http.StatusOK, `{"status": "SUCCESS", "result": {"rows": 3}}`)
		})
		run := w.trigger(t, "both")
		w.reach(t, run, servov1.Run_SUCCEEDED)
		first, second := <-envelopes, <-envelopes
		require.Equal(t, "p/one first acme remote both 1", fmt.Sprintf("%s %s %s %s %s %d", first.Asset, first.Entrypoint, first.Tenant, first.Pool, first.Pipeline, first.Attempt))
		require.Equal(t, push.IdempotencyKey(first.Task, 1, tokenOf(t, first)), first.IdempotencyKey)
		require.EqualValues(t, 600, first.TimeoutSeconds)
		require.InDelta(t, 300, first.LeaseSeconds, 30)
		require.Len(t, second.Upstream, 1)
		require.JSONEq(t, `{"rows": 3}`, string(second.Upstream[0].Result))
		w.clean(t)

		pool, err := w.pools.GetPool(t.Context(), &servov1.GetPoolRequest{Pool: "remote"})
		require.NoError(t, err)
		require.Equal(t, "closed", pool.GetBreaker().GetState())
		require.Eventually(t, func() bool {
			pool, err := w.pools.GetPool(t.Context(), &servov1.GetPoolRequest{Pool: "remote"})
			return err == nil && pool.GetWorkers() == 1
		}, waitLong, waitShort, "the server is there as a worker")
	})

	t.Run("a task whose upstream has no result is not sent, and one whose upstream has is sent with it", func(t *testing.T) {
		t.Parallel()
		envelopes := make(chan push.Envelope, 10)
		w := setup(t, daemon.Config{}, nil, func(c call) {
			envelopes <- c.Envelope
			c.answer(http.StatusOK, `{"status": "SUCCESS", "result": {"rows": 3}}`)
		})
		only := func(asset string) string {
			answer, err := w.runs.TriggerRun(t.Context(), &servov1.TriggerRunRequest{Tenant: "acme", Select: []string{asset}})
			require.NoError(t, err)
			return answer.GetRun().GetId()
		}
		missing := only("p/two")
		w.reach(t, missing, servov1.Run_FAILED)
		require.Equal(t, "MISSING_INPUT", w.task(t, missing).GetFailure().GetCode())
		require.Empty(t, envelopes)
		first := only("p/one")
		w.reach(t, first, servov1.Run_SUCCEEDED)
		<-envelopes
		w.reach(t, only("p/two"), servov1.Run_SUCCEEDED)
		second := <-envelopes
		require.Len(t, second.Upstream, 1)
		require.Equal(t, first, second.Upstream[0].Run.String())
		require.JSONEq(t, `{"rows": 3}`, string(second.Upstream[0].Result))
		w.clean(t)
	})

	t.Run("a worker that accepts reports through its callbacks: progress, logs, cursor, result", func(t *testing.T) {
		t.Parallel()
		got := make(chan push.Envelope, 1)
		w := setup(t, daemon.Config{}, nil, func(c call) {
			got <- c.Envelope
			c.answer(http.StatusAccepted, "")
		})
		run := w.trigger(t, "one")
		e := <-got
		w.taskIn(t, run, servov1.Task_RUNNING)

		status, body := post(t, e.Callbacks.Heartbeat, object{"progress": object{"fraction": 0.5, "stage": "halfway"}})
		require.Equal(t, http.StatusOK, status, body)
		var reply push.HeartbeatReply
		require.NoError(t, json.Unmarshal([]byte(body), &reply))
		require.True(t, reply.Held)
		require.False(t, reply.ShouldCancel)
		require.Nil(t, reply.Callbacks, "they are new")

		status, body = post(t, e.Callbacks.Cursor, object{"expected": "", "next": "page 2"})
		require.Equal(t, http.StatusOK, status, body)
		status, body = post(t, e.Callbacks.Cursor, object{"expected": "page 7", "next": "page 8"})
		require.Equal(t, http.StatusConflict, status, body)

		status, body = post(t, e.Callbacks.Report, object{"items": []object{
			{"log": object{"seq": 1, "text": "hello\n"}},
			{"progress": object{"fraction": 0.9}},
			{"complete": object{"status": "PARTIAL_SUCCESS", "result": object{"rows": 4}}},
		}})
		require.Equal(t, http.StatusOK, status, body)
		require.NotContains(t, body, `"error":{`)
		w.reach(t, run, servov1.Run_SUCCEEDED)
		task := w.task(t, run)
		require.Equal(t, "PARTIAL_SUCCESS", task.GetOutcome())
		require.Equal(t, "page 2", task.GetCursor())

		status, body = post(t, e.Callbacks.Status, object{"complete": object{"result": object{"rows": 9}}})
		require.Equal(t, http.StatusOK, status, body)
		require.Contains(t, body, `"repeat":true`)
		status, body = post(t, e.Callbacks.Heartbeat, object{})
		require.Equal(t, http.StatusOK, status, body)
		require.Contains(t, body, `"held":false`)
		require.InDelta(t, 4, w.task(t, run).GetResult().GetStructValue().AsMap()["rows"], 0, "a repeat changes nothing")
		logs, err := w.tasks.ListTaskLogs(t.Context(), &servov1.ListTaskLogsRequest{Tenant: "acme", Run: run, Task: e.Task.String()})
		require.NoError(t, err)
		require.Equal(t, "hello\n", logs.GetChunks()[0].GetText())
		w.clean(t)
	})

	t.Run("a cancel reaches the worker by its heartbeat", func(t *testing.T) {
		t.Parallel()
		got := make(chan push.Envelope, 1)
		w := setup(t, daemon.Config{}, nil, func(c call) {
			got <- c.Envelope
			c.answer(http.StatusAccepted, "")
		})
		run := w.trigger(t, "one")
		e := <-got
		w.taskIn(t, run, servov1.Task_RUNNING)
		_, err := w.runs.CancelRun(t.Context(), &servov1.CancelRunRequest{Tenant: "acme", Run: run, Reason: "not needed"})
		require.NoError(t, err)
		_, body := post(t, e.Callbacks.Heartbeat, object{})
		require.Contains(t, body, `"should_cancel":true`)
		status, body := post(t, e.Callbacks.Status, object{"fail": object{"error": object{"code": "CANCELLED", "message": "asked to stop"}}})
		require.Equal(t, http.StatusOK, status, body)
		w.reach(t, run, servov1.Run_CANCELLED)
		w.clean(t)
	})

	t.Run("a cancel ends a call that is still waited for", func(t *testing.T) {
		t.Parallel()
		begun, ended := make(chan struct{}), make(chan struct{})
		w := setup(t, daemon.Config{}, nil, func(c call) {
			close(begun)
			<-c.r.Context().Done()
			close(ended)
		})
		run := w.trigger(t, "one")
		<-begun
		_, err := w.runs.CancelRun(t.Context(), &servov1.CancelRunRequest{Tenant: "acme", Run: run})
		require.NoError(t, err)
		<-ended
		w.reach(t, run, servov1.Run_CANCELLED)
		w.clean(t)
	})

	t.Run("an endpoint that fails for a moment is tried again", func(t *testing.T) {
		t.Parallel()
		var tries atomic.Int32
		w := setup(t, daemon.Config{}, nil, func(c call) {
			if tries.Add(1) == 1 {
				c.answer(http.StatusBadGateway, `{"error": {"code": "DISK_FULL", "message": "no room"}}`)
				return
			}
			c.answer(http.StatusOK, `{"status": "SUCCESS"}`)
		})
		run := w.trigger(t, "one")
		w.reach(t, run, servov1.Run_SUCCEEDED)
		require.Equal(t, int32(2), w.task(t, run).GetAttempt())
		w.clean(t)
	})

	t.Run("the trace of a trigger comes along", func(t *testing.T) {
		t.Parallel()
		traces := make(chan string, 1)
		w := setup(t, daemon.Config{}, nil, func(c call) {
			traces <- c.Trace.Parent + "," + c.Trace.State + " " + c.r.Header.Get("traceparent") + "," + c.r.Header.Get("tracestate")
			c.answer(http.StatusOK, `{"status": "SUCCESS"}`)
		})
		const trace = "0af7651916cd43dd8448eb211c80319c"
		ctx := metadata.AppendToOutgoingContext(t.Context(), "traceparent", "00-"+trace+"-b7ad6b7169203331-01", "tracestate", "vendor=a1")
		_, err := w.runs.TriggerRun(ctx, &servov1.TriggerRunRequest{Tenant: "acme", Pipeline: "one"})
		require.NoError(t, err)
		envelope, header, _ := strings.Cut(<-traces, " ")
		require.Equal(t, envelope, header)
		require.Contains(t, envelope, trace)
		require.Contains(t, envelope, ",vendor=a1")
	})

	t.Run("each call carries its attempt in its idempotency key", func(t *testing.T) {
		t.Parallel()
		keys := make(chan string, 10)
		w := setup(t, daemon.Config{}, nil, func(c call) {
			key := push.IdempotencyKey(c.Task, c.Attempt, tokenOf(t, c.Envelope))
			if c.r.Header.Get("Idempotency-Key") != key || c.IdempotencyKey != key {
				key = "not the key of its attempt and token"
			}
			keys <- key
			if c.Attempt == 1 {
				c.answer(http.StatusInternalServerError, `{"error": {"code": "DISK_FULL"}}`)
				return
			}
			c.answer(http.StatusOK, `{"status": "SUCCESS"}`)
		})
		run := w.trigger(t, "one")
		w.reach(t, run, servov1.Run_SUCCEEDED)
		task := w.task(t, run).GetId()
		require.Regexp(t, "^"+task+":1:[0-9]+$", <-keys)
		require.Regexp(t, "^"+task+":2:[0-9]+$", <-keys)
	})
}

// tokenOf is the fencing token that the URLs of an envelope carry.
func tokenOf(t testing.TB, e push.Envelope) int64 {
	t.Helper()
	status, err := url.Parse(e.Callbacks.Status)
	if err != nil {
		return 0
	}
	token, _ := strconv.ParseInt(status.Query().Get("token"), 10, 64)
	return token
}

// TestAnswers holds what becomes of a task against what its endpoint answers.
func TestAnswers(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name    string
		answer  func(call)
		code    string
		message string
		retried bool
	}{
		{"a redirect", func(c call) { http.Redirect(c.w, c.r, "/elsewhere", http.StatusFound) }, "INVALID_CONFIGURATION", "redirects are not followed", false},
		{"200 without a word", func(c call) { c.answer(200, "OK") }, "INVALID_CONFIGURATION", "without the outcome", false},
		{"200 with another status", func(c call) { c.answer(200, `{"status": "FINE"}`) }, "INVALID_CONFIGURATION", "FINE", false},
		{"200 with an error", func(c call) { c.answer(200, `{"error": {"code": "MISSING_INPUT", "message": "no file"}}`) }, "MISSING_INPUT", "no file", false},
		{"400", func(c call) { c.answer(400, "") }, "INVALID_CONFIGURATION", "400", false},
		{"422 with a code", func(c call) { c.answer(422, `{"error": {"code": "SCHEMA_VIOLATION", "message": "no column a"}}`) }, "SCHEMA_VIOLATION", "no column a", false},
		{"401", func(c call) { c.answer(401, "") }, "AUTHENTICATION_FAILED", "signing key", false},
		{"404", func(c call) { c.answer(404, "") }, "RESOURCE_NOT_FOUND", "/servo", false},
		{"429", func(c call) { c.answer(429, "") }, "RATE_LIMITED", "429", true},
		{"503", func(c call) { c.answer(503, "") }, "SERVICE_UNAVAILABLE", "503", true},
		{"a closed connection", func(call) { panic(http.ErrAbortHandler) }, "NETWORK_ERROR", "failed", true},
		{"silence", func(c call) { <-c.r.Context().Done() }, "TIMEOUT", "1s", true},
		{"an answer without end", func(c call) {
			c.w.WriteHeader(200)
			for {
				if _, err := c.w.Write(make([]byte, 1<<16)); err != nil {
					return
				}
			}
		}, "INVALID_CONFIGURATION", "1 MiB", false},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			w := setup(t, daemon.Config{}, &servov1.CreatePoolRequest{Timeout: seconds(1)}, c.answer)
			run := w.trigger(t, "one")
			var task *servov1.Task
			require.Eventually(t, func() bool {
				task = w.task(t, run)
				return task.GetState() == servov1.Task_FAILED || task.GetState() == servov1.Task_RETRY_WAIT
			}, waitLong, waitShort)
			require.Equal(t, c.retried, task.GetState() == servov1.Task_RETRY_WAIT)
			require.NotEmpty(t, task.GetAttempts())
			failure := task.GetAttempts()[0].GetFailure()
			require.Equal(t, c.code, failure.GetCode(), "%v", failure)
			require.Contains(t, failure.GetMessage(), c.message)
			require.EqualValues(t, 1, w.calls.Load(), "nothing was called twice, nor anywhere else")
			w.clean(t)
		})
	}
}

func TestOutputsAreNotSent(t *testing.T) {
	t.Parallel()
	w := setup(t, daemon.Config{}, nil, func(c call) { c.answer(200, `{"status": "SUCCESS"}`) })
	task := w.taskIn(t, w.trigger(t, "rows"), servov1.Task_FAILED)
	failure := task.GetAttempts()[0].GetFailure()
	require.Equal(t, "INVALID_CONFIGURATION", failure.GetCode(), "%v", failure)
	require.Contains(t, failure.GetMessage(), "push pools do not support assets with an output or checks")
	require.Zero(t, w.calls.Load(), "an endpoint would complete it without its checks")
	w.clean(t)
}

func TestAddresses(t *testing.T) {
	t.Parallel()
	for _, host := range []string{"127.0.0.1", "localhost", "[::ffff:127.0.0.1]", "0x7f.1"} {
		t.Run("a pool that was saved with it never reaches "+host, func(t *testing.T) {
			t.Parallel()
			var accepts atomic.Int64
			trap := httptest.NewUnstartedServer(http.NotFoundHandler())
			trap.Config.ConnState = func(_ net.Conn, state http.ConnState) {
				if state == http.StateNew {
					accepts.Add(1)
				}
			}
			trap.Start()
			t.Cleanup(trap.Close)
			_, port, err := net.SplitHostPort(strings.TrimPrefix(trap.URL, "http://"))
			require.NoError(t, err)
			w := begin(t, servotest.DB(t), func(call) {})
			e := engine.New(w.db.Store, engine.Config{}, slog.New(slog.DiscardHandler)) // the API would refuse it
			t.Cleanup(e.Stop)
			_, err = e.CreatePool(t.Context(), "remote", platform.PoolSettings{
				Kind: platform.Push, URL: "http://" + host + ":" + port + "/servo", MaxConcurrency: platform.NoLimit, TimeoutSeconds: 10,
			}, event.Meta{})
			require.NoError(t, err)
			w.start(t, daemon.Config{Targets: netguard.Policy{Networks: []netip.Prefix{}}})
			w.prepare(t)
			run := w.trigger(t, "one")
			task := w.taskLeft(t, run)
			require.Zero(t, accepts.Load())
			if code := task.GetAttempts()[0].GetFailure().GetCode(); code != "NETWORK_ERROR" { // a name that cannot be resolved
				require.Equal(t, "INVALID_CONFIGURATION", code)
				require.Contains(t, task.GetAttempts()[0].GetFailure().GetMessage(), "refused")
			}
			w.clean(t)
		})
	}
}

// taskLeft waits until the first attempt of the only task of a run is over.
func (w *world) taskLeft(t testing.TB, run string) *servov1.Task {
	t.Helper()
	var task *servov1.Task
	require.Eventually(t, func() bool {
		task = w.task(t, run)
		return len(task.GetAttempts()) > 0 && task.GetAttempts()[0].GetFailure() != nil
	}, waitLong, waitShort)
	return task
}

func TestBreaker(t *testing.T) {
	t.Parallel()
	var broken atomic.Bool
	broken.Store(true)
	config := daemon.Config{Breaker: push.BreakerConfig{Failures: 2, CoolDown: 2 * time.Second, MaxCoolDown: 2 * time.Second}}
	w := setup(t, config, &servov1.CreatePoolRequest{MaxConcurrency: new(int32(2))}, func(c call) {
		if broken.Load() {
			c.answer(http.StatusUnauthorized, "")
			return
		}
		c.answer(http.StatusOK, `{"status": "SUCCESS"}`)
	})
	state := func() *servov1.Breaker {
		pool, err := w.pools.GetPool(t.Context(), &servov1.GetPoolRequest{Pool: "remote"})
		require.NoError(t, err)
		return pool.GetBreaker()
	}
	for range 2 {
		w.reach(t, w.trigger(t, "one"), servov1.Run_FAILED)
	}
	require.Eventually(t, func() bool { return state().GetState() != "closed" }, waitLong, waitShort)
	require.Contains(t, state().GetLastError(), "AUTHENTICATION_FAILED")

	// While it is open tasks wait instead of failing; when a trial call succeeds, all are sent.
	broken.Store(false)
	for range 5 {
		defer func(run string) { w.reach(t, run, servov1.Run_SUCCEEDED) }(w.trigger(t, "one"))
	}
	require.Eventually(t, func() bool { return state().GetState() == "closed" }, waitLong, waitShort)
}

func TestLimits(t *testing.T) {
	t.Parallel()

	t.Run("no more tasks are out than the pool allows, over two servers", func(t *testing.T) {
		t.Parallel()
		const limit, total = 3, 30
		var mu sync.Mutex
		now, most := 0, 0
		w := setup(t, daemon.Config{Name: "a"}, &servov1.CreatePoolRequest{MaxConcurrency: new(int32(limit))}, func(c call) {
			mu.Lock()
			now++
			most = max(most, now)
			mu.Unlock()
			defer func() {
				mu.Lock()
				now--
				mu.Unlock()
				c.answer(http.StatusOK, `{"status": "SUCCESS"}`)
			}()
			_, _ = post(t, c.Callbacks.Heartbeat, object{}) // something to do
		})
		second(t, w)
		var runs []string
		for range total {
			runs = append(runs, w.trigger(t, "one"))
		}
		for _, run := range runs {
			w.reach(t, run, servov1.Run_SUCCEEDED)
		}
		mu.Lock()
		defer mu.Unlock()
		require.LessOrEqual(t, most, limit)
		w.clean(t)
	})

	t.Run("what is over the rate stays queued, and holds back no other pool", func(t *testing.T) {
		t.Parallel()
		var slow atomic.Int64
		w := setup(t, daemon.Config{}, &servov1.CreatePoolRequest{RatePerSecond: 0.0001}, func(c call) {
			if c.Pool == "remote" {
				slow.Add(1)
			}
			c.answer(http.StatusOK, `{"status": "SUCCESS"}`)
		})
		other, err := w.pools.CreatePool(t.Context(), &servov1.CreatePoolRequest{
			Name: "other", Kind: servov1.Pool_PUSH, Url: w.worker.URL,
		})
		require.NoError(t, err)
		w.give(t, other.GetWorkerKeys()[0].GetKey())
		w.reach(t, w.trigger(t, "one"), servov1.Run_SUCCEEDED) // the first is within every rate
		late := []string{w.trigger(t, "one"), w.trigger(t, "one")}
		for range 3 {
			w.reach(t, w.trigger(t, "other"), servov1.Run_SUCCEEDED)
		}
		for _, run := range late {
			w.taskIn(t, run, servov1.Task_QUEUED)
		}
		require.EqualValues(t, 1, slow.Load())
		_, err = w.pools.UpdatePool(t.Context(), &servov1.UpdatePoolRequest{Pool: "remote", RatePerSecond: new(float32(0))})
		require.NoError(t, err)
		for _, run := range late {
			w.reach(t, run, servov1.Run_SUCCEEDED)
		}
	})
}

// second starts another server on the same database.
func second(t *testing.T, w *world) {
	t.Helper()
	startOn(t, w, daemon.Config{Name: "b", Engine: engine.Config{PollEvery: 50 * time.Millisecond}})
}
