package servo_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/types/known/durationpb"

	"go.arco.dev/servo"
	servov1 "go.arco.dev/servo/gen/servo/v1"
	"go.arco.dev/servo/internal/devkit/servotest/servertest"
)

const diamond = `{"version": 1, "assets": [
	{"key": "d/a", "go": {}},
	{"key": "d/b", "upstream": ["d/a"], "exec": {"command": ["sh", "-c", "cat > in; echo working; printf '{\"from\":\"exec\"}' > $SERVO_RESULT"]}},
	{"key": "d/c", "upstream": ["d/a"], "http": {"url": "%s"}},
	{"key": "d/d", "upstream": ["d/b", "d/c"], "go": {"handler": "dee"}}
], "pipelines": [{"name": "diamond", "parameters": [{"name": "n", "type": "integer", "default": 2}]}]}`

func TestDiamond(t *testing.T) {
	t.Parallel()
	endpoint := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte(`{"from":"http"}`)) }))
	t.Cleanup(endpoint.Close)
	b := setup(t, fmt.Sprintf(diamond, endpoint.URL))

	type Params struct {
		N int `json:"n"`
	}
	type From struct {
		From string `json:"from"`
	}
	b.work(t, func(w *servo.Worker) {
		servo.Asset(w, "d/a", func(_ context.Context, task *servo.Task, p Params) ([]int, error) {
			task.Log().Info("making numbers", "n", p.N)
			task.Progress(servo.Progress{Phase: "MAKE", Stage: "numbers", Fraction: 0.5, RecordsLoaded: int64(p.N)})
			return make([]int, p.N), nil
		})
		servo.Asset(w, "dee", func(ctx context.Context, task *servo.Task, _ servo.None) (string, error) {
			exec, err := servo.Upstream[From](ctx, task, "d/b")
			if err != nil {
				return "", err
			}
			called, err := servo.Upstream[From](ctx, task, "d/c")
			task.Partial()
			return exec.From + "+" + called.From, err
		})
	})
	run := b.trigger(t, "diamond", map[string]any{"n": 3})
	require.Equal(t, servov1.Run_SUCCEEDED, b.end(t, run).GetState())

	tasks := b.tasks(t, run)
	require.Equal(t, `[0,0,0]`, result(t, tasks["d/a"]))
	require.Equal(t, `"exec+http"`, result(t, tasks["d/d"]))
	require.Equal(t, "SUCCESS", tasks["d/a"].GetOutcome())
	require.Equal(t, "PARTIAL_SUCCESS", tasks["d/d"].GetOutcome())
	require.Regexp(t, `^\S+ INFO making numbers n=3\n$`, b.log(t, run, tasks["d/a"]))
	require.Regexp(t, `^\S+ INFO working\n$`, b.log(t, run, tasks["d/b"]))
}

// log is all that a task has logged.
func (b *bundle) log(t *testing.T, run string, task *servov1.Task) string {
	t.Helper()
	answer, err := b.Tasks().ListTaskLogs(t.Context(), &servov1.ListTaskLogsRequest{Tenant: "acme", Run: run, Task: task.GetId()})
	require.NoError(t, err)
	var text strings.Builder
	for _, chunk := range answer.GetChunks() {
		text.WriteString(chunk.GetText())
	}
	return text.String()
}

const single = `{"version": 1, "assets": [{"key": "s/one", "go": {}, "retry": {"initial_delay": "10ms"}}],
	"pipelines": [{"name": "single", "parameters": [{"name": "n", "type": "string"}]}]}`

func TestFailures(t *testing.T) {
	t.Parallel()
	b := setup(t, single)
	var attempts atomic.Int32
	type Params struct {
		N any `json:"n"`
	}
	b.work(t, func(w *servo.Worker) {
		servo.Asset(w, "s/one", func(_ context.Context, _ *servo.Task, p Params) (any, error) {
			switch p.N {
			case "retried":
				if attempts.Add(1) < 3 {
					return nil, servo.Fail(servo.NetworkError, errors.New("reset by peer"))
				}
				return "third time lucky", nil
			case "final":
				return nil, &servo.Error{Code: servo.NetworkError, Message: "the host is no more", NoRetry: true, Details: map[string]any{"host": "old"}}
			case "panic":
				panic("oh")
			case "unencodable":
				return func() {}, nil
			}
			return nil, errors.New("plain")
		})
	})
	failed := func(n string) *servov1.Task {
		run := b.trigger(t, "single", map[string]any{"n": n})
		require.Equal(t, servov1.Run_FAILED, b.end(t, run).GetState())
		return b.tasks(t, run)["s/one"]
	}

	run := b.trigger(t, "single", map[string]any{"n": "retried"})
	require.Equal(t, servov1.Run_SUCCEEDED, b.end(t, run).GetState())
	require.EqualValues(t, 3, b.tasks(t, run)["s/one"].GetAttempt())

	final := failed("final")
	require.EqualValues(t, 1, final.GetAttempt())
	require.Equal(t, "the host is no more", final.GetFailure().GetMessage())
	require.Equal(t, map[string]any{"host": "old"}, final.GetFailure().GetDetails().AsMap())

	panicked := failed("panic")
	require.Equal(t, servo.UserCodeException, panicked.GetFailure().GetCode())
	stack := panicked.GetFailure().GetDetails().GetFields()["stack"].GetStringValue()
	require.Contains(t, stack, "sdk_test.go")
	require.NotContains(t, stack, "servo.Asset", "the machinery is left out")

	require.Equal(t, "the result cannot be encoded as JSON: json: unsupported type: func()", failed("unencodable").GetFailure().GetMessage())
	require.Equal(t, "plain", failed("other").GetFailure().GetMessage())
}

func TestParameters(t *testing.T) {
	t.Parallel()
	b := setup(t, single)
	b.work(t, func(w *servo.Worker) {
		servo.Asset(w, "s/one", func(context.Context, *servo.Task, struct {
			N int `json:"n"`
		},
		) (servo.None, error) {
			return servo.None{}, nil
		})
	})
	run := b.trigger(t, "single", map[string]any{"n": "three"})
	require.Equal(t, servov1.Run_FAILED, b.end(t, run).GetState())
	failure := b.tasks(t, run)["s/one"].GetFailure()
	require.Equal(t, servo.InvalidConfiguration, failure.GetCode())
	require.Equal(t, "parameter n is a string, the function expects int", failure.GetMessage())
}

const fan = `{"version": 1, "assets": [
	{"key": "f/scan", "go": {}}, {"key": "f/part", "go": {}}, {"key": "f/join", "upstream": ["f/scan"], "go": {}}
], "pipelines": [{"name": "fan", "select": ["f/scan", "f/join"]}]}`

func TestFanOut(t *testing.T) {
	t.Parallel()
	const parts = 250 // several pages
	b := setup(t, fan)
	b.work(t, func(w *servo.Worker) {
		servo.Asset(w, "f/scan", func(ctx context.Context, task *servo.Task, _ servo.None) (int, error) {
			tasks := make([]servo.Mapped, parts)
			for i := range tasks {
				tasks[i] = servo.Mapped{Asset: "f/part", Partition: strconv.Itoa(i)}
			}
			added, err := task.FanOut(ctx, tasks, servo.Barrier())
			if err != nil || task.Attempt > 1 {
				return len(added), err
			}
			// What comes after the fan-out fails: the next attempt must not add them again.
			return 0, servo.Fail(servo.InternalError, errors.New("once"))
		})
		servo.Asset(w, "f/part", func(_ context.Context, task *servo.Task, _ servo.None) (int, error) {
			return strconv.Atoi(task.Partition)
		})
		servo.Asset(w, "f/join", func(ctx context.Context, task *servo.Task, _ servo.None) (sum int, err error) {
			for part, err := range servo.MappedResults[int](ctx, task, "f/part") {
				if err != nil {
					return 0, err
				}
				if strconv.Itoa(part.Value) != part.Partition {
					return 0, fmt.Errorf("partition %s has %d", part.Partition, part.Value)
				}
				sum += part.Value
			}
			return sum, nil
		})
	}, func(o *servo.WorkerOptions) { o.Concurrency = 50 })
	run, err := b.Runs().TriggerRun(t.Context(), &servov1.TriggerRunRequest{
		Tenant: "acme", Pipeline: "fan", Retry: &servov1.RetryPolicy{MaxAttempts: 2, InitialDelay: durationpb.New(10 * time.Millisecond)},
	})
	require.NoError(t, err)
	id := run.GetRun().GetId()
	ended := b.end(t, id)
	require.Equal(t, servov1.Run_SUCCEEDED, ended.GetState())
	require.EqualValues(t, parts+2, ended.GetTasks().GetTotal())
	tasks := b.tasks(t, id)
	require.Equal(t, strconv.Itoa(parts), result(t, tasks["f/scan"]))
	require.Equal(t, strconv.Itoa(parts*(parts-1)/2), result(t, tasks["f/join"]))
}

func TestRetriedRun(t *testing.T) {
	t.Parallel()
	b := setup(t, `{"version": 1, "assets": [
		{"key": "r/one", "go": {}}, {"key": "r/two", "go": {}},
		{"key": "r/both", "upstream": ["r/one", "r/two"], "go": {}},
		{"key": "r/end", "upstream": ["r/both", "r/one"], "go": {}}], "pipelines": [{"name": "all"}]}`)
	const size = 40 << 10 // too large for two of them to come along
	var made, failures atomic.Int32
	b.work(t, func(w *servo.Worker) {
		for _, key := range []string{"r/one", "r/two"} {
			servo.Asset(w, key, func(context.Context, *servo.Task, servo.None) (string, error) {
				made.Add(1)
				return strings.Repeat(key[2:3], size), nil
			})
		}
		servo.Asset(w, "r/both", func(ctx context.Context, task *servo.Task, _ servo.None) (string, error) {
			one, err := servo.Upstream[string](ctx, task, "r/one")
			if err != nil {
				return "", err
			}
			two, err := servo.Upstream[string](ctx, task, "r/two")
			if err == nil && failures.Add(1) <= 2 {
				err = errors.New("not yet")
			}
			return fmt.Sprintf("%.1s%d+%.1s%d", one, len(one), two, len(two)), err
		})
		servo.Asset(w, "r/end", func(ctx context.Context, task *servo.Task, _ servo.None) (string, error) {
			both, err := servo.Upstream[string](ctx, task, "r/both")
			if err != nil {
				return "", err
			}
			one, err := servo.Upstream[string](ctx, task, "r/one")
			return fmt.Sprintf("%s, %d", both, len(one)), err
		})
	})
	retry := func(of string) string {
		answer, err := b.Runs().RetryRun(t.Context(), &servov1.RetryRunRequest{Tenant: "acme", Run: of})
		require.NoError(t, err)
		return answer.GetRun().GetId()
	}
	run := b.trigger(t, "all", nil)
	for range 2 {
		require.Equal(t, servov1.Run_FAILED, b.end(t, run).GetState())
		require.Equal(t, "not yet", b.tasks(t, run)["r/both"].GetFailure().GetMessage())
		run = retry(run)
	}
	require.Equal(t, servov1.Run_SUCCEEDED, b.end(t, run).GetState())
	require.Equal(t, `"o40960+t40960, 40960"`, result(t, b.tasks(t, run)["r/end"]))
	require.EqualValues(t, 2, made.Load(), "what has succeeded is not done again")
}

func TestCursorAcrossWorkers(t *testing.T) {
	t.Parallel()
	b := setup(t, single)
	const pages = 12
	var mu sync.Mutex
	done := map[string]string{} // who has done which page
	half := make(chan struct{})
	fetch := func(name string, pauses bool) func(w *servo.Worker) {
		return func(w *servo.Worker) {
			servo.Asset(w, "s/one", func(ctx context.Context, task *servo.Task, _ servo.None) (int, error) {
				page, _ := strconv.Atoi(task.Cursor())
				if pauses && page == pages/2 {
					close(half)
					<-ctx.Done()
					return 0, servo.Yield("")
				}
				mu.Lock()
				done[strconv.Itoa(page)] += name
				mu.Unlock()
				if page%2 == 0 { // in steps of its own, then as another attempt
					if err := task.Advance(ctx, strconv.Itoa(page+1)); err != nil {
						return 0, err
					}
				}
				if page+2 < pages {
					return 0, servo.Yield(strconv.Itoa(page + 2))
				}
				return page + 2, nil
			})
		}
	}
	stop := b.work(t, fetch("w1", true), func(o *servo.WorkerOptions) { o.Grace = time.Millisecond })
	run := b.trigger(t, "single", nil)
	<-half
	stop()
	b.work(t, fetch("w2", false), func(o *servo.WorkerOptions) { o.ID = "w2" })
	require.Equal(t, servov1.Run_SUCCEEDED, b.end(t, run).GetState())
	task := b.tasks(t, run)["s/one"]
	require.Equal(t, strconv.Itoa(pages), result(t, task))
	// A claim that was under way when the first worker stopped may have got the task, and given it back.
	require.GreaterOrEqual(t, int(task.GetAttempt()), pages/2+1)
	require.Equal(t, map[string]string{"0": "w1", "2": "w1", "4": "w1", "6": "w2", "8": "w2", "10": "w2"}, done)
}

func TestCancel(t *testing.T) {
	t.Parallel()
	pids := filepath.Join(t.TempDir(), "pid")
	b := setup(t, `{"version": 1, "assets": [
		{"key": "s/exec", "exec": {"command": ["sh", "-c", "sleep 3600 & echo $! > `+pids+`.new; mv `+pids+`.new `+pids+`; wait"]}},
		{"key": "s/go", "go": {}}], "pipelines": [{"name": "both"}]}`)
	begun, causes := make(chan struct{}), make(chan error, 1)
	b.work(t, func(w *servo.Worker) {
		servo.Asset(w, "s/go", func(ctx context.Context, task *servo.Task, _ servo.None) (servo.None, error) {
			task.Progress(servo.Progress{Phase: "WAIT", Stage: "for the end", Fraction: 0.25, RecordsExtracted: 7})
			close(begun)
			<-ctx.Done()
			causes <- context.Cause(ctx)
			return servo.None{}, ctx.Err()
		})
	})
	run := b.trigger(t, "both", nil)
	<-begun
	b.until(t, run, "s/go", func(task *servov1.Task) bool { return task.GetProgress().GetStage() == "for the end" })
	var grandchild int
	require.Eventually(t, func() bool {
		data, err := os.ReadFile(pids)
		if err != nil {
			return false
		}
		grandchild, err = strconv.Atoi(strings.TrimSpace(string(data)))
		return err == nil
	}, time.Minute, 5*time.Millisecond)

	_, err := b.Runs().CancelRun(t.Context(), &servov1.CancelRunRequest{Tenant: "acme", Run: run, Reason: "enough"})
	require.NoError(t, err)
	require.Equal(t, servov1.Run_CANCELLED, b.end(t, run).GetState())
	require.ErrorIs(t, <-causes, servo.ErrCancelled)
	require.Eventually(t, func() bool {
		stat, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(grandchild), "stat"))
		return syscall.Kill(grandchild, 0) != nil || err == nil && strings.Contains(string(stat), ") Z ")
	}, time.Minute, 5*time.Millisecond)
	for _, task := range b.tasks(t, run) {
		require.Equal(t, servov1.Task_CANCELLED, task.GetState())
	}
}

func TestStopAndResume(t *testing.T) {
	t.Parallel()
	b := setup(t, single)
	begun := make(chan int, 10)
	register := func(w *servo.Worker) {
		servo.Asset(w, "s/one", func(ctx context.Context, task *servo.Task, _ servo.None) (int, error) {
			begun <- task.Attempt
			if task.Attempt == 1 {
				<-ctx.Done()
				return 0, context.Cause(ctx)
			}
			return task.Attempt, nil
		})
	}
	stop := b.work(t, register, func(o *servo.WorkerOptions) { o.Grace = time.Millisecond })
	run := b.trigger(t, "single", nil)
	require.Equal(t, 1, <-begun)
	stop()
	b.work(t, register)
	require.Equal(t, servov1.Run_SUCCEEDED, b.end(t, run).GetState())
	task := b.tasks(t, run)["s/one"]
	require.EqualValues(t, 2, task.GetAttempt())
	require.Zero(t, task.GetFailures(), "an interruption is no failure")
	require.Equal(t, "INTERRUPTED", task.GetAttempts()[0].GetEnded())
}

func TestServerRestart(t *testing.T) {
	t.Parallel()
	b := setup(t, `{"version": 1, "assets": [{"key": "s/scan", "go": {}}, {"key": "s/part", "go": {}}],
		"pipelines": [{"name": "all", "select": ["s/scan"]}]}`)
	const parts = 300
	var executed atomic.Int32
	release := make(chan struct{})
	b.work(t, func(w *servo.Worker) {
		servo.Asset(w, "s/scan", func(ctx context.Context, task *servo.Task, _ servo.None) (servo.None, error) {
			tasks := make([]servo.Mapped, parts)
			for i := range tasks {
				tasks[i] = servo.Mapped{Asset: "s/part", Partition: strconv.Itoa(i)}
			}
			_, err := task.FanOut(ctx, tasks)
			return servo.None{}, err
		})
		servo.Asset(w, "s/part", func(_ context.Context, task *servo.Task, _ servo.None) (string, error) {
			if executed.Add(1) > parts/2 {
				<-release // these end while the server does not answer
			}
			return task.Partition, nil
		})
	}, func(o *servo.WorkerOptions) { o.Concurrency, o.Lease = 50, time.Minute })
	run := b.trigger(t, "all", nil)
	require.Eventually(t, func() bool { return executed.Load() > parts/2 }, time.Minute, time.Millisecond)

	address := b.server.GRPC
	require.NoError(t, b.server.Stop(context.Background()))
	close(release)
	servertest.StartAt(t, b.database, address)

	ended := b.end(t, run)
	require.Equal(t, servov1.Run_SUCCEEDED, ended.GetState())
	require.EqualValues(t, parts+1, ended.GetTasks().GetSucceeded())
	require.EqualValues(t, parts, executed.Load(), "each was executed once, and its result was not lost")
	for key, task := range b.tasks(t, run) {
		if task.GetPartition() != "" {
			require.Equal(t, strconv.Quote(task.GetPartition()), result(t, task), key)
		}
	}
}

// TestServersOfEnvironment: SERVO_SERVER lists servers, and a worker works for the one that
// answers. Each attempt has a higher fencing token than the one before.
func TestServersOfEnvironment(t *testing.T) {
	b := setup(t, `{"version": 1, "assets": [{"key": "a/b", "go": {}, "retry": {"initial_delay": "1ms"}}], "pipelines": [{"name": "p"}]}`)
	t.Setenv("SERVO_SERVER", "127.0.0.1:1, "+b.server.GRPC)
	tokens := make(chan int64, 2)
	b.work(t, func(w *servo.Worker) {
		servo.Asset(w, "a/b", func(_ context.Context, task *servo.Task, _ struct{}) (int, error) {
			tokens <- task.Token
			if task.Attempt == 1 {
				return 0, &servo.Error{Code: "NETWORK_ERROR", Message: "again"}
			}
			return 1, nil
		})
	}, func(o *servo.WorkerOptions) { o.Server = "" })
	_, err := b.Runs().TriggerRun(t.Context(), &servov1.TriggerRunRequest{Tenant: "acme", Pipeline: "p"})
	require.NoError(t, err)
	first, second := <-tokens, <-tokens
	require.Positive(t, first)
	require.Greater(t, second, first)
}
