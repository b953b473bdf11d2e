package web_test

import (
	"cmp"
	"context"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	servov1 "go.arco.dev/servo/gen/servo/v1"
	"go.arco.dev/servo/internal/devkit/servotest/browser"
)

// TestScreenshots takes a picture of every page, in light and dark. `make screenshots` has it
// look at a server that is busy (SERVO_PAGES_OF) and keeps the pictures (SERVO_SCREENSHOTS);
// otherwise it sees that it can be done.
func TestScreenshots(t *testing.T) {
	t.Parallel()
	var (
		base, dir = os.Getenv("SERVO_PAGES_OF"), os.Getenv("SERVO_SCREENSHOTS")
		values    map[string]string
		window    *browser.Window
	)
	if base == "" {
		w := newWorld(t)
		values, window = w.furnish(), w.Window
	} else {
		values, window = found(t, base), chromium.Open(t, base)
	}
	dir = cmp.Or(dir, t.TempDir())
	window.Size(1280, 800)
	shots := map[string]string{}
	for _, pattern := range patterns(t) {
		if base != "" && strings.Contains(pattern, "{backfill}") {
			continue // the demo has no backfill
		}
		shots[shotName(pattern)] = addressOf(t, pattern, values)
	}
	shots["run-timeline"] = addressOf(t, "/ui/tenants/{tenant}/runs/{run}?tab=gantt", values)
	for _, name := range []string{"simulator", "assets", "locks"} { // which are of one tenant
		if at, ok := shots[name]; ok {
			shots[name] = at + "?tenant=" + values["{tenant}"]
		}
	}
	for _, theme := range []string{"light", "dark"} {
		for name, at := range shots {
			window.Go(at)
			browser.Eval[bool](window, `(document.documentElement.dataset.theme = "`+theme+`", true)`)
			file := filepath.Join(dir, name+"-"+theme+".jpg")
			window.Snap(file)
			info, err := os.Stat(file)
			require.NoError(t, err)
			require.Greater(t, info.Size(), int64(5000), "%s is empty", file)
		}
	}
}

// shotName names the picture of a page: runs, run, task, config-edit.
func shotName(pattern string) string {
	var parts []string
	for _, p := range strings.Split(strings.Trim(strings.TrimPrefix(pattern, "/ui"), "/"), "/") {
		if !strings.HasPrefix(p, "{") {
			parts = append(parts, p)
			continue
		}
		if n := len(parts); n > 0 && p != "{name}" { // runs/{run} is the page of a run
			parts[n-1] = strings.TrimSuffix(parts[n-1], "s")
		}
	}
	if len(parts) > 1 && parts[0] == "tenant" {
		parts = parts[1:]
	}
	if len(parts) > 1 && parts[0] == "run" && parts[1] == "task" {
		parts = parts[1:]
	}
	return cmp.Or(strings.Join(parts, "-"), "overview")
}

func TestShotName(t *testing.T) {
	t.Parallel()
	for pattern, want := range map[string]string{
		"/ui/": "overview", "/ui/runs": "runs", "/ui/tenants/{tenant}": "tenant", "/ui/tenants/{tenant}/runs/{run}": "run",
		"/ui/tenants/{tenant}/runs/{run}/tasks/{task}": "task", "/ui/tenants/{tenant}/configs/{config}/edit": "config-edit", "/ui/tenants/{tenant}/assets/{namespace}/{name}": "asset",
	} {
		require.Equal(t, want, shotName(pattern), pattern)
	}
}

// found is what a server has to show: a run in progress, one of its tasks, a config, an asset.
func found(t *testing.T, base string) map[string]string {
	t.Helper()
	var running servov1.ListRunningRunsResponse
	ask(t, base+"/v1/runs:running?page_size=100", &running)
	require.NotEmpty(t, running.GetRuns(), "nothing runs there")
	best := running.GetRuns()[0]
	for _, r := range running.GetRuns() { // the one with most to see
		if r.GetRun().GetTasks().GetTotal() > best.GetRun().GetTasks().GetTotal() {
			best = r
		}
	}
	run := best.GetRun()
	var tasks servov1.ListTasksResponse
	ask(t, base+"/v1/tenants/"+run.GetTenant()+"/runs/"+run.GetId()+"/tasks?page_size=100", &tasks)
	task := tasks.GetTasks()[0]
	for _, candidate := range tasks.GetTasks() {
		if candidate.GetProgress() != nil {
			task = candidate
		}
	}
	var configs servov1.ListConfigsResponse
	ask(t, base+"/v1/tenants/"+run.GetTenant()+"/configs?page_size=100", &configs)
	require.NotEmpty(t, configs.GetConfigs())
	config := configs.GetConfigs()[0]
	for _, candidate := range configs.GetConfigs() { // one that has run shows most
		if candidate.GetLastSlot().AsTime().After(config.GetLastSlot().AsTime()) {
			config = candidate
		}
	}
	namespace, name, _ := strings.Cut(task.GetAsset(), "/")
	return map[string]string{
		"{tenant}": run.GetTenant(), "{run}": run.GetId(), "{task}": task.GetId(), "{config}": config.GetName(), "{pipeline}": run.GetPipeline(), "{namespace}": namespace, "{name}": name,
	}
}

func ask(t *testing.T, at string, into proto.Message) {
	t.Helper()
	req, err := http.NewRequestWithContext(context.Background(), http.MethodGet, at, http.NoBody)
	require.NoError(t, err)
	answer, body := send(t, req)
	require.Equal(t, http.StatusOK, answer.StatusCode, body)
	require.NoError(t, protojson.UnmarshalOptions{DiscardUnknown: true}.Unmarshal([]byte(body), into))
}
