package servo_test

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/types/known/structpb"

	"go.arco.dev/servo"
	servov1 "go.arco.dev/servo/gen/servo/v1"
	"go.arco.dev/servo/internal/worker/host"
	"go.arco.dev/servo/internal/worker/python"
)

// pythonManifest is the manifest that a project declares.
func pythonManifest(t *testing.T, dir string) string {
	t.Helper()
	project, err := python.Open(python.Project{Dir: dir})
	require.NoError(t, err)
	defer project.Close()
	pool, err := host.NewPool(host.Options{})
	require.NoError(t, err)
	defer pool.Close()
	document, err := project.Manifest(t.Context(), pool, os.Stderr)
	require.NoError(t, err)
	return string(document)
}

// pythonBundle is a server with a worker for the misbehaving project.
func pythonBundle(t *testing.T) *bundle {
	t.Helper()
	const project = "testdata/python/misbehave"
	b := setup(t, pythonManifest(t, project))
	b.work(t, func(*servo.Worker) {}, func(o *servo.WorkerOptions) {
		o.Concurrency = 1
		o.Ahead = -1
		o.Python = &servo.PythonOptions{Project: project, MemoryLimit: 300 << 20, Grace: time.Second}
	})
	return b
}

// behave runs an asset that misbehaves, and returns its task and the file that it has written when it
// runs.
func (b *bundle) behave(t *testing.T, how string) (run, mark string) {
	t.Helper()
	mark = filepath.Join(t.TempDir(), "mark")
	return b.trigger(t, "behave", map[string]any{"how": how, "mark": mark}), mark
}

// marked waits until the function runs, and returns its process id.
func marked(t *testing.T, mark string) int {
	t.Helper()
	var pid int
	require.Eventually(t, func() bool {
		data, err := os.ReadFile(mark)
		if err != nil {
			return false
		}
		pid, err = strconv.Atoi(string(data))
		return err == nil
	}, time.Minute, 10*time.Millisecond)
	return pid
}

// gone waits until a process has ended.
func gone(t *testing.T, pid int) {
	t.Helper()
	require.Eventually(t, func() bool { return syscall.Kill(pid, 0) != nil }, time.Minute, 10*time.Millisecond)
}

// works runs the asset that behaves well, and returns the process id of its host.
func (b *bundle) works(t *testing.T) int {
	t.Helper()
	run := b.trigger(t, "good", nil)
	require.Equal(t, servov1.Run_SUCCEEDED, b.end(t, run).GetState())
	task := b.tasks(t, run)["mis/good"]
	require.Len(t, task.GetAttempts(), 1)
	log := b.log(t, run, task)
	require.Contains(t, log, " WARN well\n")
	require.Contains(t, log, " INFO printed\n")
	return int(task.GetResult().GetNumberValue())
}

func TestPythonHosts(t *testing.T) {
	t.Parallel()
	b := pythonBundle(t)
	first := b.works(t)
	require.Equal(t, first, b.works(t), "the host stays warm")

	// fails runs an asset to its failure, and the next task after it.
	fails := func(t *testing.T, how string) *servov1.Task {
		t.Helper()
		run, mark := b.behave(t, how)
		require.Equal(t, servov1.Run_FAILED, b.end(t, run).GetState())
		task := b.tasks(t, run)["mis/behave"]
		if _, err := os.Stat(mark); err == nil {
			gone(t, marked(t, mark))
		}
		b.works(t)
		return task
	}
	last := func(task *servov1.Task) *servov1.Failure {
		return task.GetAttempts()[len(task.GetAttempts())-1].GetFailure()
	}

	t.Run("a segmentation fault is the death of a host", func(t *testing.T) { //nolint:paralleltest // the parts share one worker with one host
		task := fails(t, "segfault")
		require.Len(t, task.GetAttempts(), 3, "max_deaths")
		failure := last(task)
		require.Equal(t, "HOST_CRASH", failure.GetCode())
		require.Contains(t, failure.GetMessage(), "SIGSEGV")
		require.Contains(t, failure.GetDetails().GetFields()["stderr"].GetStringValue(), "assets.py", "the traceback of faulthandler")
	})
	t.Run("a process that exits by itself is a failure of user code with its code", func(t *testing.T) { //nolint:paralleltest // likewise
		failure := last(fails(t, "exit"))
		require.Equal(t, "USER_CODE_EXCEPTION", failure.GetCode())
		require.InEpsilon(t, 7, failure.GetDetails().GetFields()["exit_code"].GetNumberValue(), 0)
		failure = last(fails(t, "sys.exit"))
		require.Equal(t, "USER_CODE_EXCEPTION", failure.GetCode())
		require.InEpsilon(t, 3, failure.GetDetails().GetFields()["exit_code"].GetNumberValue(), 0)
	})
	t.Run("memory beyond the limit", func(t *testing.T) { //nolint:paralleltest // likewise
		run, mark := b.behave(t, "leak")
		pid := marked(t, mark)
		gone(t, pid)
		b.until(t, run, "mis/behave", func(task *servov1.Task) bool {
			return len(task.GetAttempts()) > 0 && task.GetAttempts()[0].GetFailure().GetCode() == "OUT_OF_MEMORY"
		})
		_, err := b.Runs().CancelRun(t.Context(), &servov1.CancelRunRequest{Tenant: "acme", Run: run})
		require.NoError(t, err)
		b.end(t, run)
		b.works(t)
	})
	t.Run("a function that holds the GIL for longer than its lease keeps it", func(t *testing.T) { //nolint:paralleltest // likewise
		run, _ := b.behave(t, "gil")
		require.Equal(t, servov1.Run_SUCCEEDED, b.end(t, run).GetState())
		require.Len(t, b.tasks(t, run)["mis/behave"].GetAttempts(), 1)
		b.works(t)
	})
	t.Run("100 MB of output are truncated and block nothing", func(t *testing.T) { //nolint:paralleltest // likewise
		run, _ := b.behave(t, "print")
		require.Equal(t, servov1.Run_SUCCEEDED, b.end(t, run).GetState())
		task := b.tasks(t, run)["mis/behave"]
		require.Len(t, task.GetAttempts(), 1)
		require.Less(t, len(b.log(t, run, task)), 4<<20)
		b.works(t)
	})
	t.Run("a process that outlives its task is killed", func(t *testing.T) { //nolint:paralleltest // likewise
		before := b.works(t)
		run, mark := b.behave(t, "fork")
		require.Equal(t, servov1.Run_SUCCEEDED, b.end(t, run).GetState())
		gone(t, marked(t, mark))
		require.NotEqual(t, before, b.works(t), "the host is not reused")
	})
	for _, how := range []string{"ignore", "wait"} { //nolint:paralleltest // likewise
		t.Run("a cancelled task ends, also if it ignores SIGTERM: "+how, func(t *testing.T) {
			run, mark := b.behave(t, how)
			pid := marked(t, mark)
			_, err := b.Runs().CancelRun(t.Context(), &servov1.CancelRunRequest{Tenant: "acme", Run: run})
			require.NoError(t, err)
			require.Equal(t, servov1.Run_CANCELLED, b.end(t, run).GetState())
			gone(t, pid)
			b.works(t)
		})
	}
	t.Run("exceptions have a class and a traceback of the author's code", func(t *testing.T) { //nolint:paralleltest // likewise
		failure := last(fails(t, "raise"))
		require.Equal(t, "USER_CODE_EXCEPTION", failure.GetCode())
		require.Equal(t, "ValueError: wrong", failure.GetMessage())
		text := failure.GetDetails().GetFields()["traceback"].GetStringValue()
		require.Contains(t, text, "assets.py")
		require.NotContains(t, text, "_execute.py")
		failure = last(fails(t, "permanent"))
		require.Equal(t, "NETWORK_ERROR", failure.GetCode())
		require.Equal(t, "old", failure.GetDetails().GetFields()["host"].GetStringValue())
	})
	t.Run("Retry is retried after its delay", func(t *testing.T) { //nolint:paralleltest // likewise
		run, _ := b.behave(t, "retry")
		require.Equal(t, servov1.Run_SUCCEEDED, b.end(t, run).GetState())
		require.Len(t, b.tasks(t, run)["mis/behave"].GetAttempts(), 2)
	})
}

func TestPythonProjects(t *testing.T) {
	t.Parallel()
	refused := func(t *testing.T, source string) string {
		t.Helper()
		dir := t.TempDir()
		require.NoError(t, os.WriteFile(filepath.Join(dir, "assets.py"), []byte(source), 0o600))
		project, err := python.Open(python.Project{Dir: dir})
		require.NoError(t, err)
		defer project.Close()
		pool, err := host.NewPool(host.Options{StartTimeout: 30 * time.Second})
		require.NoError(t, err)
		defer pool.Close()
		_, err = project.Manifest(context.Background(), pool, &strings.Builder{})
		require.Error(t, err)
		return err.Error()
	}
	for name, c := range map[string]struct{ source, want string }{
		"import error":       {"from servo import asset\nimport nothing_like_it\n", "assets.py:2: module assets cannot be imported: ModuleNotFoundError"},
		"syntax error":       {"from servo import asset\ndef (\n", "assets.py:2: module assets cannot be imported: SyntaxError"},
		"unknown upstream":   {"from servo import asset\n\n@asset('a/b', upstream=['a/c'])\ndef b(c): ...\n", "assets.py:3: asset a/b has the unknown upstream a/c"},
		"unknown parameter":  {"from servo import asset\n@asset('a/c')\ndef c(): ...\n@asset('a/b', upstream=['a/c'])\ndef b(d): ...\n", "parameter d of a/b is no upstream"},
		"unknown annotation": {"import socket\nfrom servo import asset\n@asset('a/b')\ndef b(x: socket.socket): ...\n", "parameter x of a/b has the unsupported annotation socket"},
		"duplicate key":      {"from servo import asset\n@asset('a/b')\ndef b(): ...\n@asset('a/b')\ndef c(): ...\n", "assets.py:4: asset a/b is declared twice, first in"},
		"wrong type":         {"from servo import asset\n@asset('a/b', upstream='a/c')\ndef b(): ...\n", "assets.py:2: upstream of a/b is 'a/c'"},
		"no assets":          {"import servo\n", "the project declares no assets"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			require.Contains(t, refused(t, c.source), c.want)
		})
	}
	t.Run("a manifest is what the project declares", func(t *testing.T) {
		t.Parallel()
		var manifest map[string]any
		require.NoError(t, json.Unmarshal([]byte(pythonManifest(t, "testdata/python/misbehave")), &manifest))
		require.Contains(t, fmt.Sprint(manifest["assets"]), "assets:good")
	})
}

// TestPythonOutputs runs assets with partitions, outputs and checks through a server: files pass from
// task to task through the blob store.
func TestPythonOutputs(t *testing.T) {
	t.Parallel()
	const project = "testdata/python/tables"
	b := setup(t, pythonManifest(t, project))
	b.work(t, func(*servo.Worker) {}, func(o *servo.WorkerOptions) {
		o.BlobURL = b.server.BlobURL
		o.Python = &servo.PythonOptions{Project: project}
	})
	trigger := func(t *testing.T, rows int, partitions string) string {
		t.Helper()
		parameters, err := structpb.NewStruct(map[string]any{"rows": rows})
		require.NoError(t, err)
		answer, err := b.Runs().TriggerRun(t.Context(), &servov1.TriggerRunRequest{
			Tenant: "acme", Pipeline: "days", Parameters: parameters, Partitions: []string{partitions},
		})
		require.NoError(t, err)
		return answer.GetRun().GetId()
	}
	day := func(asset, date string) string { return asset + `[{"date":"` + date + `"}]` }

	run := trigger(t, 4, "date=2026-01-01..2026-01-02")
	end := b.end(t, run)
	tasks := b.tasks(t, run)
	require.Equal(t, servov1.Run_SUCCEEDED, end.GetState(), "%v", tasks)
	require.Equal(t, map[string]any{"rows": 3.0, "total": 18.0, "files": 2.0}, tasks["gold/total"].GetResult().AsInterface(),
		"one day, and two days with a window")
	whole, err := b.Tasks().GetTask(t.Context(), &servov1.GetTaskRequest{Tenant: "acme", Run: run, Task: tasks[day("silver/days", "2026-01-02")].GetId()})
	require.NoError(t, err)
	output := whole.GetResult().GetStructValue().GetFields()["servo_output"].GetStructValue().AsMap()
	require.Equal(t, "ALLOW", output["gate"])
	require.InDelta(t, 2, output["rows"], 0)

	failed := func(t *testing.T, rows int, partitions, task string) *servov1.Failure {
		t.Helper()
		run := trigger(t, rows, partitions)
		require.Equal(t, servov1.Run_FAILED, b.end(t, run).GetState())
		found := b.tasks(t, run)[task]
		require.NotNil(t, found)
		whole, err := b.Tasks().GetTask(t.Context(), &servov1.GetTaskRequest{Tenant: "acme", Run: run, Task: found.GetId()})
		require.NoError(t, err)
		require.Len(t, whole.GetAttempts(), 1, "a failed check is not retried")
		return whole.GetAttempts()[0].GetFailure()
	}
	failure := failed(t, 0, "date=2026-01-05", day("bronze/orders", "2026-01-05"))
	require.Equal(t, "CHECK_FAILED", failure.GetCode())
	require.Contains(t, failure.GetMessage(), `check "row_count" failed`)
	failure = failed(t, 1, "date=2026-01-05..2026-01-07", day("silver/days", "2026-01-07"))
	require.Equal(t, "CHECK_FAILED", failure.GetCode())
	require.Equal(t, `check "few_days" failed: 3 days`, failure.GetMessage())
}
