package engine

import (
	"context"
	"fmt"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"go.arco.dev/servo/internal/base/fault"
	"go.arco.dev/servo/internal/base/id"
	"go.arco.dev/servo/internal/domain/asset"
	"go.arco.dev/servo/internal/domain/output"
	"go.arco.dev/servo/internal/domain/quality"
	"go.arco.dev/servo/internal/domain/run"
	"go.arco.dev/servo/internal/store"
)

// Outputs (docs/adr/0054-promotion.md): a completion whose result names a version is read from the blob store
// before the batch, and promoted in the transaction that ends its task. Tasks without an output cost nothing.

// OutputReader reads the marker and the metadata of a version from the blob store.
type OutputReader interface {
	ReadOutput(ctx context.Context, of output.Attempt) (output.Marker, output.Metadata, error)
}

// The limits of reading markers.
const (
	outputReaders  = 16               // markers that one call reads at once
	outputPatience = 20 * time.Second // for the markers of one call
)

// preparedOutput is the version of a completion, checked against the declarations of its asset.
type preparedOutput struct {
	task     store.OutputTask
	attempt  int32 // that the marker names
	version  output.Materialization
	pointers []store.PointerKey
}

// Report applies the reports of workers and returns an answer or an error for each. Reports about tasks
// whose completion names a version wait for the blob store; the others do not wait for them.
func (e *Engine) Report(ctx context.Context, reports []Report) ([]Answer, []error) {
	written := map[store.TaskKey]bool{}
	for _, r := range reports {
		if c, ok := r.Action.(Complete); ok && output.CommittedIn(c.Result) != nil {
			written[r.TaskKey] = true
		}
	}
	if len(written) == 0 {
		return e.report(ctx, reports)
	}
	var plain, outputs reportPart
	for i, r := range reports {
		if written[r.TaskKey] {
			outputs.add(i, r)
		} else {
			plain.add(i, r)
		}
	}
	answers, errs := make([]Answer, len(reports)), make([]error, len(reports))
	var both sync.WaitGroup
	both.Go(func() { plain.merge(answers, errs)(e.report(ctx, plain.reports)) })
	both.Go(func() {
		refused := e.prepareOutputs(ctx, outputs.reports)
		var ready reportPart
		for i, r := range outputs.reports {
			if errs[outputs.places[i]] = refused[i]; refused[i] == nil {
				ready.add(outputs.places[i], r)
			}
		}
		ready.merge(answers, errs)(e.report(ctx, ready.reports))
	})
	both.Wait()
	return answers, errs
}

// reportPart is some of the reports of a call, with their places in it.
type reportPart struct {
	reports []Report
	places  []int
}

func (p *reportPart) add(place int, r Report) {
	p.reports, p.places = append(p.reports, r), append(p.places, place)
}

// merge writes the answers to the reports to their places.
func (p *reportPart) merge(answers []Answer, errs []error) func([]Answer, []error) {
	return func(found []Answer, failed []error) {
		for i, place := range p.places {
			answers[place], errs[place] = found[i], failed[i]
		}
	}
}

// prepareOutputs reads the versions that completions name. A version that does not exist, or that the gate
// blocks, makes its completion a failure. An error means that the report must be repeated.
func (e *Engine) prepareOutputs(ctx context.Context, reports []Report) []error {
	errs := make([]error, len(reports))
	keys := make([]store.TaskKey, len(reports))
	for i, r := range reports {
		keys[i] = r.TaskKey
	}
	found, code, err := e.outputTasks(ctx, keys)
	if err != nil {
		for i := range errs {
			errs[i] = fault.New(fault.Unavailable, "the version cannot be checked now", fault.Remedy("repeat the report"), fault.Cause(err))
		}
		return errs
	}
	ctx, cancel := context.WithTimeout(ctx, outputPatience)
	defer cancel()
	readers := errgroup.Group{}
	readers.SetLimit(outputReaders)
	for i := range reports {
		r := &reports[i]
		complete, ok := r.Action.(Complete)
		task, known := found[i]
		if !ok || !known || code[task.Deployment] == nil {
			continue
		}
		declared, _ := code[task.Deployment].Asset(task.Asset)
		committed := output.CommittedIn(complete.Result)
		if committed == nil || declared.Output == nil {
			continue
		}
		readers.Go(func() error {
			prepared, failed, err := e.prepareOutput(ctx, r, task, declared, *committed)
			switch {
			case err != nil:
				errs[i] = err
			case failed != nil:
				r.Action = *failed
			default:
				prepared.pointers = pointersOf(r.Tenant, task, code[task.Deployment].partitionsOf(task.Asset, task.Partition))
				if len(prepared.pointers) > 1 {
					for _, key := range prepared.pointers {
						prepared.version.Partitions = append(prepared.version.Partitions, key.Partition)
					}
				}
				complete.output = prepared
				r.Action = complete
			}
			return nil
		})
	}
	_ = readers.Wait() // errors are in errs
	return errs
}

// outputTasks reads the tasks of versions, and the code of their runs.
func (e *Engine) outputTasks(ctx context.Context, keys []store.TaskKey) (found map[int]store.OutputTask, code map[id.Deployment]*deployment, err error) {
	if found, err = e.store.OutputTasks(ctx, keys); err != nil {
		return nil, nil, err
	}
	var used []store.DeploymentKey
	for i, t := range found {
		used = append(used, store.DeploymentKey{Tenant: keys[i].Tenant, Deployment: t.Deployment})
	}
	err = e.withCode(ctx, func(ctx context.Context) error {
		code, err = e.deploymentsOf(ctx, used)
		return err
	})
	return found, code, err
}

// prepareOutput reads one version. Failed is the failure that replaces its completion.
func (e *Engine) prepareOutput(ctx context.Context, r *Report, task store.OutputTask, declared asset.Asset, committed output.Committed) (_ *preparedOutput, failed *Fail, err error) {
	if e.config.Outputs == nil {
		return nil, outputFailure("INVALID_CONFIGURATION", "the server has no blob store, so the version cannot be promoted", "start the servers with --blob-url, the same as the workers'"), nil
	}
	marker, metadata, err := e.config.Outputs.ReadOutput(ctx, output.Attempt{
		Tenant: task.Tenant, Workspace: task.WorkspaceID.String(), Asset: task.Asset, Partition: task.Partition,
		Run: r.Run.String(), Task: r.Task.String(), Attempt: committed.Attempt, Token: r.Token,
	})
	switch f, refused := fault.As(err); {
	case fault.Is(err, fault.NotFound):
		return nil, outputFailure("INVALID_CONFIGURATION", "the server does not find the version that the worker has committed: "+f.Message, "give servers and workers the same --blob-url"), nil
	case refused && f.Code != fault.Unavailable:
		return nil, outputFailure("DATA_CORRUPTION", "the committed version is not valid: "+f.Message, "retry the task"), nil
	case err != nil:
		return nil, nil, fault.New(fault.Unavailable, "the blob store does not answer", fault.Remedy("repeat the report"), fault.Cause(err))
	}
	gate := metadata.GateOf(declared.Checks, declared.Quarantine)
	if gate == quality.Block {
		first, _ := quality.FirstFailure(declared.Checks, metadata.Checks)
		return nil, outputFailure("CHECK_FAILED", fmt.Sprintf("the checks of the version do not permit it: %s", first.Name), "fix the data or the check"), nil
	}
	return &preparedOutput{task: task, attempt: marker.Attempt.Attempt, version: output.Materialize(marker, metadata, gate)}, nil, nil
}

// outputFailure ends an attempt whose version does not exist. It is not retried: the same attempt would commit
// the same.
func outputFailure(code, message, remedy string) *Fail {
	never := false
	return &Fail{Failure: run.Failure{Code: code, Message: message, SuggestedAction: remedy}, Retry: &never}
}

// noVersion is the failure of a completion without a version of a declared output.
func noVersion(asset string) run.Failure {
	return run.Failure{
		Code: "INVALID_CONFIGURATION", Message: fmt.Sprintf("asset %s declares an output, and its task was completed without a version of it", asset),
		SuggestedAction: "use a worker of this version with a blob store",
	}
}

// pointersOf are the pointers of a version: one for each partition of its task.
func pointersOf(owner id.Tenant, task store.OutputTask, partitions []string) []store.PointerKey {
	if len(partitions) == 0 {
		partitions = []string{task.Partition}
	}
	keys := make([]store.PointerKey, len(partitions))
	for i, p := range partitions {
		keys[i] = store.PointerKey{Tenant: owner, Workspace: task.WorkspaceID, Asset: task.Asset, Partition: p}
	}
	return keys
}

// lockPointers locks the pointers of the versions in a batch, after all other locks. A batch without versions
// locks none, and costs no statement.
func lockPointers(ctx context.Context, tx *store.Tx, w *working, reports []*workCall) (err error) {
	var keys []store.PointerKey
	for _, c := range reports {
		r := c.Request.report
		if done, ok := r.Action.(Complete); ok && done.output != nil && w.holds(r) {
			keys = append(keys, done.output.pointers...)
		}
	}
	if len(keys) == 0 {
		return nil
	}
	w.pointers, err = tx.LockPointers(ctx, keys)
	return err
}

// holds reports whether a report has the token of its task's lease.
func (w *working) holds(r *Report) bool {
	t, held := w.tasks[r.Task]
	return held && keyOf(t.task) == r.TaskKey && t.task.Token == r.Token && t.task.State.Leased()
}

// declaring returns the assets of tasks that are completed without a version although their assets declare an
// output. The code is in the cache: it costs no statement.
func (e *Engine) declaring(ctx context.Context, w *working, reports []*workCall) (map[id.Task]string, error) {
	var (
		tasks []*liveTask
		used  []store.DeploymentKey
	)
	for _, c := range reports {
		r := c.Request.report
		if done, ok := r.Action.(Complete); ok && done.output == nil && w.holds(r) {
			if of := w.runs[r.Run]; of != nil {
				tasks = append(tasks, w.tasks[r.Task])
				used = append(used, store.DeploymentKey{Tenant: r.Tenant, Deployment: of.run.Deployment})
			}
		}
	}
	if len(tasks) == 0 {
		return nil, nil
	}
	code, err := e.deploymentsOf(ctx, used)
	if err != nil {
		return nil, err
	}
	var found map[id.Task]string
	for i, t := range tasks {
		if d := code[used[i].Deployment]; d != nil && d.declaresOutput(t.task.Asset) {
			if found == nil {
				found = map[id.Task]string{}
			}
			found[t.task.ID] = t.task.Asset
		}
	}
	return found, nil
}

// complete decides the completion of a task with a version: its pointers decide which state it gets.
func (w *working) complete(t *liveTask, r *Report, done Complete) error {
	o := done.output
	if o.attempt != t.task.Attempt {
		return fault.New(fault.Stale, fmt.Sprintf("the version is of attempt %d, the lease of attempt %d", o.attempt, t.task.Attempt), fault.Field("result"), fault.Remedy("stop working on this task and claim another"))
	}
	version := o.version
	version.State = output.Superseded
	moved := map[store.PointerKey]output.Pointer{}
	for _, key := range o.pointers {
		next, v, err := w.pointers[key].Commit(r.Token, version.Gate)
		if err != nil {
			return err
		}
		switch v.State {
		case output.Promoted:
			version.State, moved[key] = output.Promoted, next
		case output.Quarantined:
			version.State = output.Quarantined
		default: // superseded
		}
	}
	if err := w.decide(t, run.Succeed{Token: r.Token, Outcome: done.Status, Result: done.Result, Output: &version}, r.Meta); err != nil {
		return err
	}
	if t.task.State != run.Succeeded { // the run is being cancelled: the result is late
		return nil
	}
	for key, next := range moved {
		w.pointers[key] = next
		w.movedPointers = append(w.movedPointers, key)
	}
	parent := w.runs[r.Run].run
	w.changes.Materializations = append(w.changes.Materializations, store.Materialization{
		Tenant: r.Tenant, Workspace: o.task.WorkspaceID, Asset: o.task.Asset, Token: r.Token, ID: r.Task.UUID, Partition: o.task.Partition, Range: o.task.Range,
		Run: r.Run, Attempt: o.attempt, Deployment: parent.Deployment, RecordedAt: w.now, Materialization: version,
	})
	return nil
}

// collectPointers adds the pointers that have moved to the changes, each once.
func (w *working) collectPointers() {
	seen := make(map[store.PointerKey]bool, len(w.movedPointers))
	for _, key := range w.movedPointers {
		if !seen[key] {
			seen[key] = true
			w.changes.Pointers = append(w.changes.Pointers, store.Pointer{PointerKey: key, Pointer: w.pointers[key]})
		}
	}
}
