// Package local runs a plan on this machine, without a server and a database: tasks run in host
// processes as under a worker, outputs are checked and committed by the same protocol to a directory,
// and results are files. It retries nothing and keeps no history.
package local

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"path/filepath"
	"strconv"
	"sync"
	"time"

	"go.arco.dev/servo/internal/data/blob"
	"go.arco.dev/servo/internal/domain/asset"
	"go.arco.dev/servo/internal/domain/partition"
	"go.arco.dev/servo/internal/domain/plan"
	"go.arco.dev/servo/internal/domain/run"
	"go.arco.dev/servo/internal/worker/host"
)

// Run is one execution of a plan.
type Run struct {
	Plan        plan.Plan
	Planner     *plan.Planner // of the manifest
	Manifest    *asset.Manifest
	Pool        *host.Pool
	Code        host.Code
	Dir         string // absolute, of results and outputs
	Concurrency int    // at least 1

	Log func(key, level, line string) // receives log lines
	End func(t Task)                  // receives the end of each task

	id     string      // of the run
	blobs  *blob.Store // of outputs
	free   chan struct{}
	mu     sync.Mutex
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

// Execute runs all tasks of the plan, each after its upstreams. Tasks downstream of a failure are
// skipped. It returns the ends of all tasks in the order of the plan, and whether all succeeded.
func (r *Run) Execute(ctx context.Context) (tasks []Task, succeeded bool, err error) {
	address := &url.URL{Scheme: "file", Path: filepath.ToSlash(filepath.Join(r.Dir, "outputs"))}
	if r.blobs, err = blob.Open(ctx, address.String(), blob.Options{}); err != nil {
		return nil, false, err
	}
	defer func() { err = errors.Join(err, r.blobs.Close()) }()
	r.id = strconv.FormatInt(time.Now().UnixNano(), 36)
	r.mapped, r.free = map[string][]json.RawMessage{}, make(chan struct{}, max(r.Concurrency, 1))
	upstream := make([][]int, len(r.Plan.Tasks))
	for _, edge := range r.Plan.Edges {
		upstream[edge[1]] = append(upstream[edge[1]], edge[0])
	}
	ends := make([]ended, len(r.Plan.Tasks))
	for i := range ends {
		ends[i].done = make(chan struct{})
	}
	var running sync.WaitGroup
	for i, t := range r.Plan.Tasks {
		running.Go(func() {
			defer close(ends[i].done)
			failed := ""
			for _, u := range upstream[i] {
				if <-ends[u].done; !ends[u].succeeded && failed == "" {
					failed = title(r.Plan.Tasks[u].Key, r.Plan.Tasks[u].Partition)
				}
			}
			ends[i].succeeded = failed == ""
			if !t.Barrier {
				ends[i].tasks, ends[i].succeeded = r.planned(ctx, t, failed)
			}
		})
	}
	running.Wait()
	succeeded = true
	for _, e := range ends {
		tasks = append(tasks, e.tasks...)
		succeeded = succeeded && e.succeeded
	}
	return tasks, succeeded, nil
}

// ended is the end of a planned task, with those that it has fanned out.
type ended struct {
	done      chan struct{}
	tasks     []Task
	succeeded bool
}

// title names a task for people.
func title(key, part string) string {
	if part == "" {
		return key
	}
	return key + "[" + partition.Bare(part) + "]"
}

// planned runs a task of the plan, and those that it fans out.
func (r *Run) planned(ctx context.Context, t plan.Task, failed string) ([]Task, bool) {
	if failed != "" {
		end := Task{Key: t.Key, Partition: t.Partition, State: "SKIPPED", Failure: &host.Failure{Class: "UPSTREAM_FAILED", Message: "upstream " + failed + " did not succeed"}}
		r.report(end)
		return []Task{end}, false
	}
	all := r.task(ctx, &attempt{run: r, key: t.Key, partition: t.Partition, timeout: t.Timeout.Std(), ranged: t.Range})
	for _, end := range all {
		if end.State != "SUCCEEDED" {
			return all, false
		}
	}
	return all, true
}

func (r *Run) report(end Task) {
	if r.End != nil {
		r.End(end)
	}
}

// task runs one task, and the tasks that it fans out.
func (r *Run) task(ctx context.Context, a *attempt) []Task {
	r.free <- struct{}{}
	end := Task{Key: a.key, Partition: a.partition, State: "SUCCEEDED"}
	started := time.Now()
	result, err := a.execute(ctx)
	<-r.free
	end.Took = time.Since(started)
	end.Seconds, end.Result = end.Took.Seconds(), result
	if err != nil {
		end.State, end.Failure = "FAILED", failureOf(err)
	}
	r.report(end)
	all := []Task{end}
	for _, added := range a.added {
		for _, t := range r.task(ctx, &attempt{run: r, key: added.Asset, partition: added.Partition, timeout: a.timeout, mapped: true}) {
			all = append(all, t)
			page, err := json.Marshal(map[string]any{"task": t.Key + "[" + t.Partition + "]", "partition": t.Partition, "result": t.Result})
			if err == nil {
				r.mu.Lock()
				r.mapped[added.Asset] = append(r.mapped[added.Asset], page)
				r.mu.Unlock()
			}
		}
	}
	return all
}

// attempt is a running task, as its host reaches it.
type attempt struct {
	run       *Run
	key       string
	partition string
	ranged    *plan.Range // the declared partitions; nil without
	mapped    bool        // a fan-out has added it
	timeout   time.Duration

	asset  asset.Asset
	inputs []stored
	dir    string // of its files; "" without an output
	cursor string

	mu    sync.Mutex
	added []addedTask
	files map[string][]host.InputFiles // downloaded inputs
}

type addedTask struct {
	Asset     string `json:"asset"`
	Partition string `json:"partition"`
}

// execute runs a task in a host, checks and commits its output, and stores its result.
func (a *attempt) execute(ctx context.Context) (json.RawMessage, error) {
	declared, known := a.run.Manifest.Asset(a.key)
	if !known || declared.Python == nil {
		return nil, &host.Failure{Class: "NOT_IMPLEMENTED", Message: "local runs execute Python assets only", Remedy: "deploy the manifest and start workers for its other assets"}
	}
	a.asset = declared
	if err := a.resolve(); err != nil {
		return nil, err
	}
	defer a.close()
	if a.timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, a.timeout)
		defer cancel()
	}
	out, err := a.prepare(ctx)
	if err != nil {
		return nil, err
	}
	result, err := a.call(ctx, "")
	if err != nil {
		return nil, err
	}
	if out != nil {
		if result, err = out.commit(ctx, result); err != nil {
			return nil, err
		}
	}
	return result, a.store(ctx, result)
}

// request is the task as its host receives it.
func (a *attempt) request() *host.Run {
	r := a.run
	request := &host.Run{
		Tenant: tenant, RunID: r.id, Asset: a.key, Attempt: 1, Partition: a.partition, Pipeline: r.Plan.Pipeline,
		Parameters: r.Plan.Parameters, Trigger: "manual", Cursor: a.cursor,
	}
	if scheme := r.Planner.Scheme(a.key); scheme != nil && a.ranged != nil {
		for _, key := range scheme.Keys(a.ranged.Series, a.ranged.Range) {
			request.Partitions = append(request.Partitions, scheme.Values(key))
		}
	}
	for _, in := range a.inputs {
		entry := host.Input{Asset: in.asset, Partition: in.partition, Result: in.result}
		if in.version != nil {
			entry.Output = &host.InputOutput{Format: in.version.Format, Rows: in.version.Rows, Digest: in.version.Digest}
		}
		request.Inputs = append(request.Inputs, entry)
	}
	if a.dir != "" && a.asset.Output != nil {
		request.Output = &host.Output{Dir: a.outputDir(), Format: a.asset.Output.Format, Schema: a.asset.Output.Schema}
	}
	return request
}

// call calls the asset's function, or a check function, until it does not yield any more.
func (a *attempt) call(ctx context.Context, check string) (json.RawMessage, error) {
	request := a.request()
	request.Check = check
	for {
		outcome, _, err := a.run.Pool.Execute(ctx, a.run.Code, title(a.key, a.partition), request, a, ctx.Done())
		switch {
		case err != nil && ctx.Err() != nil:
			return nil, &host.Failure{Class: "CANCELLED", Message: context.Cause(ctx).Error()}
		case err != nil:
			return nil, err
		case outcome.Yielded: // the next attempt continues from the cursor
			if outcome.Next != nil {
				a.cursor = *outcome.Next
			}
			request.Cursor = a.cursor
			request.Attempt++
			continue
		}
		if len(outcome.Result) > run.MaxResultLength {
			return nil, &host.Failure{Class: "USER_CODE_EXCEPTION", Message: fmt.Sprintf("the result has %d bytes, the limit is %d", len(outcome.Result), run.MaxResultLength)}
		}
		return outcome.Result, nil
	}
}

func failureOf(err error) *host.Failure {
	if failure, ok := errors.AsType[*host.Failure](err); ok {
		return failure
	}
	return &host.Failure{Class: "INTERNAL_ERROR", Message: err.Error()}
}

// Log passes a line on.
func (a *attempt) Log(_ time.Time, level, line string) {
	if a.run.Log != nil {
		a.run.Log(title(a.key, a.partition), level, line)
	}
}

// Progress ignores progress.
func (*attempt) Progress(host.Progress) {}

// Answer answers a request of the task.
func (a *attempt) Answer(ctx context.Context, method string, params json.RawMessage) (any, error) {
	var request struct {
		Next  string      `json:"next"`
		Asset string      `json:"asset"`
		Tasks []addedTask `json:"tasks"`
	}
	if err := json.Unmarshal(params, &request); err != nil {
		return nil, err
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	switch method {
	case "cursor":
		a.cursor = request.Next
		return nil, nil //nolint:nilnil // a cursor has no value
	case "input":
		return a.inputFiles(ctx, request.Asset)
	case "fanout":
		ids := make([]string, 0, len(request.Tasks))
		for _, t := range request.Tasks {
			a.added = append(a.added, t)
			ids = append(ids, t.Asset+"["+t.Partition+"]")
		}
		return ids, nil
	case "mapped":
		a.run.mu.Lock()
		defer a.run.mu.Unlock()
		return map[string]any{"results": append([]json.RawMessage{}, a.run.mapped[request.Asset]...)}, nil
	}
	return nil, &host.Failure{Class: "NOT_IMPLEMENTED", Message: fmt.Sprintf("local runs do not answer the request %q", method)}
}
