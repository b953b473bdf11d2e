// Package local runs a plan on this machine, without a server and a database: tasks run in host
// processes as under a worker, and results are files in a directory. It retries nothing and keeps no
// history.
package local

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"go.arco.dev/servo/internal/domain/asset"
	"go.arco.dev/servo/internal/domain/plan"
	"go.arco.dev/servo/internal/domain/run"
	"go.arco.dev/servo/internal/worker/host"
)

// Run is one execution of a plan.
type Run struct {
	Plan        plan.Plan
	Manifest    *asset.Manifest
	Pool        *host.Pool
	Code        host.Code
	Dir         string // of results
	Partition   string // of all tasks
	Concurrency int    // at least 1

	Log func(key, level, line string) // receives log lines
	End func(t Task)                  // receives the end of each task

	mu     sync.Mutex
	ended  map[string]bool              // by asset: succeeded
	mapped map[string][]json.RawMessage // results of fanned-out tasks, by asset, as pages have them
}

// Task is the end of a task.
type Task struct {
	Key       string          `json:"key"`
	Partition string          `json:"partition,omitempty"`
	State     string          `json:"state"` // SUCCEEDED, FAILED or SKIPPED
	Took      time.Duration   `json:"-"`
	Seconds   float64         `json:"seconds"`
	Result    json.RawMessage `json:"result,omitempty"`
	Failure   *host.Failure   `json:"failure,omitempty"`
}

// Execute runs all tasks of the plan, stage by stage. Tasks downstream of a failure are skipped. It
// returns the ends of all tasks, and whether all succeeded.
func (r *Run) Execute(ctx context.Context) (tasks []Task, succeeded bool) {
	r.ended, r.mapped = map[string]bool{}, map[string][]json.RawMessage{}
	succeeded = true
	planned := r.Plan.Tasks
	for len(planned) > 0 {
		n := 1
		for n < len(planned) && planned[n].Stage == planned[0].Stage {
			n++
		}
		for _, t := range r.stage(ctx, planned[:n]) {
			tasks = append(tasks, t)
			succeeded = succeeded && t.State == "SUCCEEDED"
		}
		planned = planned[n:]
	}
	return tasks, succeeded
}

// stage runs tasks that do not depend on each other.
func (r *Run) stage(ctx context.Context, planned []plan.Task) []Task {
	ends := make([][]Task, len(planned))
	free := make(chan struct{}, max(r.Concurrency, 1))
	var running sync.WaitGroup
	for i, t := range planned {
		running.Go(func() {
			free <- struct{}{}
			defer func() { <-free }()
			ends[i] = r.task(ctx, t.Key, r.Partition, t.Timeout.Std())
		})
	}
	running.Wait()
	return slices.Concat(ends...)
}

// task runs one task, and the tasks that it fans out.
func (r *Run) task(ctx context.Context, key, partition string, timeout time.Duration) []Task {
	end := Task{Key: key, Partition: partition}
	b := &backend{run: r, key: key}
	if skipped := r.failedUpstream(key); skipped != "" {
		end.State, end.Failure = "SKIPPED", &host.Failure{Class: "UPSTREAM_FAILED", Message: "upstream " + skipped + " did not succeed"}
	} else {
		started := time.Now()
		result, err := r.execute(ctx, key, partition, timeout, b)
		end.Took = time.Since(started)
		end.Seconds = end.Took.Seconds()
		end.State, end.Result = "SUCCEEDED", result
		if err != nil {
			end.State, end.Failure = "FAILED", failureOf(err)
		}
	}
	all := []Task{end}
	if r.End != nil {
		r.End(end)
	}
	ok := end.State == "SUCCEEDED"
	for _, added := range b.added {
		for _, t := range r.task(ctx, added.Asset, added.Partition, timeout) {
			all = append(all, t)
			ok = ok && t.State == "SUCCEEDED"
			page, err := json.Marshal(map[string]any{"task": t.Key + "[" + t.Partition + "]", "partition": t.Partition, "result": t.Result})
			if err == nil {
				r.mu.Lock()
				r.mapped[added.Asset] = append(r.mapped[added.Asset], page)
				r.mu.Unlock()
			}
		}
	}
	r.mu.Lock()
	r.ended[key] = ok
	r.mu.Unlock()
	return all
}

// failedUpstream returns an upstream of this run that did not succeed.
func (r *Run) failedUpstream(key string) string {
	a, _ := r.Manifest.Asset(key)
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, upstream := range a.Upstream {
		if ok, part := r.ended[upstream]; part && !ok {
			return upstream
		}
	}
	return ""
}

// execute runs a task in a host and stores its result.
func (r *Run) execute(ctx context.Context, key, partition string, timeout time.Duration, b *backend) (json.RawMessage, error) {
	request := &host.Run{Tenant: "local", RunID: "local", Asset: key, Attempt: 1, Partition: partition, Pipeline: r.Plan.Pipeline, Parameters: r.Plan.Parameters, Trigger: "manual"}
	a, known := r.Manifest.Asset(key)
	if !known || a.Python == nil {
		return nil, &host.Failure{Class: "NOT_IMPLEMENTED", Message: "local runs execute Python assets only", Remedy: "deploy the manifest and start workers for its other assets"}
	}
	for _, upstream := range a.Upstream {
		result, err := r.stored(upstream, partition)
		if err != nil {
			return nil, err
		}
		request.Inputs = append(request.Inputs, host.Input{Asset: upstream, Partition: partition, Result: result})
	}
	if timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, timeout)
		defer cancel()
	}
	for {
		outcome, _, err := r.Pool.Execute(ctx, r.Code, key+"["+partition+"]", request, b, ctx.Done())
		switch {
		case err != nil && ctx.Err() != nil:
			return nil, &host.Failure{Class: "CANCELLED", Message: context.Cause(ctx).Error()}
		case err != nil:
			return nil, err
		case outcome.Yielded: // the next attempt continues from the cursor
			if outcome.Next != nil {
				b.cursor = *outcome.Next
			}
			request.Cursor = b.cursor
			request.Attempt++
			continue
		}
		if len(outcome.Result) > run.MaxResultLength {
			return nil, &host.Failure{Class: "USER_CODE_EXCEPTION", Message: fmt.Sprintf("the result has %d bytes, the limit is %d", len(outcome.Result), run.MaxResultLength)}
		}
		return outcome.Result, r.store(key, partition, outcome.Result)
	}
}

// file returns the name of a stored result.
func (r *Run) file(key, partition string) string {
	name := strings.ReplaceAll(key, "/", string(filepath.Separator))
	if partition != "" {
		name = filepath.Join(name, "partition="+strings.NewReplacer("/", "_", string(filepath.Separator), "_").Replace(partition))
	}
	return filepath.Join(r.Dir, "results", name+".json")
}

// store replaces a result at once, so that a run that is killed leaves no partial one.
func (r *Run) store(key, partition string, result json.RawMessage) error {
	name := r.file(key, partition)
	if err := os.MkdirAll(filepath.Dir(name), 0o750); err != nil {
		return err
	}
	file, err := os.CreateTemp(filepath.Dir(name), ".result-")
	if err != nil {
		return err
	}
	_, err = file.Write(append(slices.Clone(result), '\n'))
	if err = errors.Join(err, file.Sync(), file.Close()); err == nil {
		err = os.Rename(file.Name(), name)
	}
	if err != nil {
		_ = os.Remove(file.Name())
	}
	return err
}

// stored returns the result of an upstream, of this run or of an earlier one.
func (r *Run) stored(key, partition string) (json.RawMessage, error) {
	for _, p := range slices.Compact([]string{partition, ""}) {
		data, err := os.ReadFile(r.file(key, p))
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, err
		}
		if !json.Valid(data) {
			return nil, &host.Failure{Class: "DATA_CORRUPTION", Message: "the stored result of " + key + " is no JSON", Remedy: "delete " + r.file(key, p)}
		}
		return json.RawMessage(strings.TrimSpace(string(data))), nil
	}
	return nil, &host.Failure{
		Class: run.CodeMissingInput, Message: "upstream " + key + " has no result in " + r.Dir + ", and is not part of this run",
		Remedy: "run it too: servo run --local '+KEY'",
	}
}

func failureOf(err error) *host.Failure {
	if failure, ok := errors.AsType[*host.Failure](err); ok {
		return failure
	}
	return &host.Failure{Class: "INTERNAL_ERROR", Message: err.Error()}
}

// backend is a local task as its host reaches it.
type backend struct {
	run    *Run
	key    string
	cursor string

	mu    sync.Mutex
	added []addedTask
}

type addedTask struct {
	Asset     string `json:"asset"`
	Partition string `json:"partition"`
}

// Log passes a line on.
func (b *backend) Log(_ time.Time, level, line string) {
	if b.run.Log != nil {
		b.run.Log(b.key, level, line)
	}
}

// Progress ignores progress.
func (*backend) Progress(host.Progress) {}

// Answer answers a request of the task.
func (b *backend) Answer(_ context.Context, method string, params json.RawMessage) (any, error) {
	var request struct {
		Next  string      `json:"next"`
		Asset string      `json:"asset"`
		Tasks []addedTask `json:"tasks"`
	}
	if err := json.Unmarshal(params, &request); err != nil {
		return nil, err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	switch method {
	case "cursor":
		b.cursor = request.Next
		return nil, nil //nolint:nilnil // a cursor has no value
	case "fanout":
		ids := make([]string, 0, len(request.Tasks))
		for _, t := range request.Tasks {
			b.added = append(b.added, t)
			ids = append(ids, t.Asset+"["+t.Partition+"]")
		}
		return ids, nil
	case "mapped":
		b.run.mu.Lock()
		defer b.run.mu.Unlock()
		return map[string]any{"results": append([]json.RawMessage{}, b.run.mapped[request.Asset]...)}, nil
	}
	return nil, &host.Failure{Class: "NOT_IMPLEMENTED", Message: fmt.Sprintf("local runs do not answer the request %q", method)}
}
