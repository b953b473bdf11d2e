package engine

import (
	"context"
	"encoding/json"
	"slices"
	"time"

	"go.arco.dev/servo/internal/base/event"
	"go.arco.dev/servo/internal/base/fault"
	"go.arco.dev/servo/internal/base/id"
	"go.arco.dev/servo/internal/domain/run"
	"go.arco.dev/servo/internal/engine/batch"
	"go.arco.dev/servo/internal/store"
)

// Report is a worker's report about one of its leases.
type Report struct {
	store.TaskKey

	Token  int64
	Action Action
	Pools  []string // that the worker may serve; nil is all
	Meta   event.Meta
}

// Action is what happened to a leased task.
type Action interface{ action() }

type (
	// Start reports that an instance of the worker executes the task; see run.Start.
	Start struct{ Instance string }
	// Advance moves the cursor from Expected to Next.
	Advance struct{ Expected, Next string }
	// Yield returns the task to the queue, with its cursor at Cursor if set.
	Yield struct{ Cursor *string }
	// Complete ends the task in success. Status is SUCCESS ("" too) or PARTIAL_SUCCESS.
	Complete struct {
		Status run.Outcome
		Result json.RawMessage
		output *preparedOutput // the version that the result names
	}
	// Fail ends the attempt in failure. Retry is the worker's hint, After the delay that an endpoint
	// requested, 0 if none.
	Fail struct {
		Failure run.Failure
		Retry   *bool
		After   time.Duration
	}
	// FanOut adds tasks to the run. With Barrier, the dependents of this task wait for them too. Ordinal
	// numbers the task's fan-outs from 0; a repeated one adds nothing.
	FanOut struct {
		Ordinal int32
		Tasks   []FanOutTask
		Barrier bool
	}
	// FanOutTask is one task to add: an asset of the run's deployment and a partition.
	FanOutTask struct{ Asset, Partition string }
)

func (Start) action()    {}
func (Advance) action()  {}
func (Yield) action()    {}
func (Complete) action() {}
func (Fail) action()     {}
func (FanOut) action()   {}

// Answer is the answer to a report.
type Answer struct {
	State    run.TaskState
	Outcome  run.Outcome
	DueAt    time.Time // of the next attempt, in RETRY_WAIT
	Deadline time.Time // of this attempt, once started
	Late     bool      // the result came after a cancel: it is stored and has no effect
	Repeat   bool      // an earlier report had the same effect
	Added    []id.Task // by a fan-out
}

// report applies reports in the lane.
func (e *Engine) report(ctx context.Context, reports []Report) ([]Answer, []error) {
	requests := make([]workRequest, len(reports))
	for i, r := range reports {
		requests[i].report = &r
	}
	found, errs := e.work.DoAll(ctx, requests)
	answers := make([]Answer, len(reports))
	for i := range found {
		answers[i] = found[i].report
	}
	return answers, errs
}

// ReportOne is Report for a single one.
func (e *Engine) ReportOne(ctx context.Context, r Report) (Answer, error) {
	answers, errs := e.Report(ctx, []Report{r})
	return answers[0], errs[0]
}

// workRequest is a claim or a report: one of the two is set. A batch has both, so that the end of a task
// and the lease of the next one are one transaction.
type workRequest struct {
	claim  *claimCommand
	report *Report
}

// workAnswer is the answer to a workRequest.
type workAnswer struct {
	leases []Lease
	busy   bool // a claim found no task because another transaction admits
	report Answer
}

type workCall = batch.Call[workRequest, workAnswer]

// weight counts a fan-out with its tasks, so that a batch of large ones has few of them.
func (r workRequest) weight() int {
	if r.report != nil {
		if fan, ok := r.report.Action.(FanOut); ok {
			return 1 + len(fan.Tasks)
		}
	}
	return 1
}

// needsRun reports whether the report may end the task, move it backward or add to the run:
// then the run's row is locked. Forward moves do without.
func (r *Report) needsRun() bool {
	switch r.Action.(type) {
	case Start, Advance:
		return false
	}
	return true
}

// runWork applies a batch of claims and reports in one transaction: locks first, in the
// order of docs/adr/0002, then the clock, then decisions.
func (e *Engine) runWork(ctx context.Context, calls []*workCall) error {
	var (
		claiming, reports []*workCall
		cmds              []*claimCommand
		keys, ends        []store.TaskKey
	)
	for _, c := range calls {
		if c.Request.claim != nil {
			claiming, cmds = append(claiming, c), append(cmds, c.Request.claim)
			continue
		}
		reports = append(reports, c)
		keys = append(keys, c.Request.report.TaskKey)
		if c.Request.report.needsRun() {
			ends = append(ends, c.Request.report.TaskKey)
		}
	}
	var claims []*openClaim
	err := e.transact(ctx, func(ctx context.Context, tx *store.Tx, w *working) (err error) {
		if claims, err = openClaims(ctx, tx, cmds); err != nil {
			return err
		}
		runs, err := tx.LockRuns(ctx, store.LockForCount, runKeys(ends))
		if err != nil {
			return err
		}
		if err := takeQueued(ctx, tx, claims); err != nil {
			return err
		}
		leases, err := tx.LockLeases(ctx, unique(keys))
		if err != nil {
			return err
		}
		now, err := tx.Clock(ctx)
		if err != nil {
			return err
		}
		w.at(now)
		w.addRuns(runs)
		w.addTasks(leases)
		w.claims = claims
		if err := w.giveLeases(ctx, tx, claims); err != nil {
			return err
		}
		if err := e.decideReports(ctx, tx, w, reports); err != nil {
			return err
		}
		return e.downstream(ctx, tx, w)
	})
	for i, c := range claims {
		claiming[i].Answer.leases, claiming[i].Answer.busy = c.leases, c.busy
	}
	return err
}

func unique(keys []store.TaskKey) []store.TaskKey {
	seen := make(map[store.TaskKey]bool, len(keys))
	var out []store.TaskKey
	for _, k := range keys {
		if !seen[k] {
			seen[k] = true
			out = append(out, k)
		}
	}
	return out
}

// decideReports applies each report to its task, in order. A report without a lease may be a repeat.
func (e *Engine) decideReports(ctx context.Context, tx *store.Tx, w *working, reports []*workCall) error {
	policies, err := e.policies(ctx, tx, w, failing(reports))
	if err != nil {
		return err
	}
	if policies.undelivered, err = e.declaring(ctx, w, reports); err != nil {
		return err
	}
	if err := lockPointers(ctx, tx, w, reports); err != nil {
		return err
	}
	var repeats []*workCall
	for _, c := range reports {
		r := c.Request.report
		if !w.holds(r) {
			repeats = append(repeats, c)
			continue
		}
		t := w.tasks[r.Task]
		if r.Pools != nil && !slices.Contains(r.Pools, t.task.Pool) {
			c.Err = fault.New(fault.Forbidden, "this key is not for the pool of the lease", fault.Field("lease"), fault.Remedy("report with the key that the task was claimed with"))
			continue
		}
		var err error
		if c.Answer.report, err = e.decideReport(ctx, tx, w, t, r, policies); err != nil {
			if _, refused := fault.As(err); !refused {
				return err
			}
			c.Err = err
		}
	}
	return e.answerRepeats(ctx, tx, w, repeats)
}

func (e *Engine) decideReport(ctx context.Context, tx *store.Tx, w *working, t *liveTask, r *Report, policies policies) (Answer, error) {
	var cmd run.Command
	switch a := r.Action.(type) {
	case Start:
		cmd = run.Start{Token: r.Token, Instance: a.Instance}
	case Advance:
		cmd = run.Advance{Token: r.Token, Expected: a.Expected, Next: a.Next}
	case Yield:
		cmd = run.Yield{Token: r.Token, Cursor: a.Cursor}
	case Complete:
		if a.Status == "" {
			a.Status = run.Success
		}
		asset, undelivered := policies.undelivered[t.task.ID]
		switch {
		case a.output != nil:
			if err := w.complete(t, r, a); err != nil {
				return Answer{}, err
			}
			return t.answer(), nil
		case undelivered:
			never := false
			cmd = run.Fail{Token: r.Token, Failure: noVersion(asset), Retry: &never}
		default:
			cmd = run.Succeed{Token: r.Token, Outcome: a.Status, Result: a.Result}
		}
	case Fail:
		cmd = run.Fail{Token: r.Token, Failure: a.Failure, Retry: a.Retry, After: a.After, Policy: policies.of(t.task, a.Failure.Code)}
	case FanOut:
		return e.fanOut(ctx, tx, w, t, r, a)
	default:
		return Answer{}, fault.New(fault.InvalidArgument, "is missing", fault.Field("action"), fault.Remedy("set the action of the report"))
	}
	if err := w.decide(t, cmd, r.Meta); err != nil {
		return Answer{}, err
	}
	if _, started := r.Action.(Start); started {
		w.renewStarted(t)
	}
	return t.answer(), nil
}

// answer is the answer to a report about the task.
func (t *liveTask) answer() Answer {
	return Answer{
		State: t.task.State, Outcome: t.task.Outcome, DueAt: t.task.DueAt, Deadline: t.task.Deadline, Late: t.task.LateResult,
	}
}

// renewStarted begins the lease of the worker that has started a task. A lease with most of its time left is
// not changed: its due time is indexed, so each change costs.
func (w *working) renewStarted(t *liveTask) {
	if t.task.ExpiresAt.Before(w.now.Add(t.task.Lease / 2)) {
		t.task.ExpiresAt = w.now.Add(t.task.Lease)
		t.dueChanged = true
	}
	if t.task.Deadline.Before(t.task.ExpiresAt) {
		t.dueChanged = true
	}
}

func failing(reports []*workCall) []store.TaskKey {
	var keys []store.TaskKey
	for _, c := range reports {
		r := c.Request.report
		if _, fails := r.Action.(Fail); fails {
			keys = append(keys, r.TaskKey)
		}
	}
	return keys
}

// policies resolve the retry policy of a failing task.
type policies struct {
	runs        map[id.Run]*liveRun
	assets      map[id.Task]string
	deployments map[id.Deployment]*deployment
	// undelivered are the assets of completed tasks that declare an output and have no version.
	undelivered map[id.Task]string
}

// policies reads the assets and deployments that set the retry policies of these tasks.
func (e *Engine) policies(ctx context.Context, tx *store.Tx, w *working, keys []store.TaskKey) (policies, error) {
	p := policies{runs: w.runs}
	if len(keys) == 0 {
		return p, nil
	}
	var err error
	if p.assets, err = tx.TaskAssets(ctx, keys); err != nil {
		return p, err
	}
	var used []store.DeploymentKey
	for _, k := range keys {
		if r, ok := w.runs[k.Run]; ok {
			used = append(used, store.DeploymentKey{Tenant: k.Tenant, Deployment: r.run.Deployment})
		}
	}
	p.deployments, err = e.deploymentsOf(ctx, used)
	return p, err
}

func (p policies) of(t run.Task, code string) run.RetryPolicy {
	r, ok := p.runs[t.Run]
	if !ok {
		return run.Resolve(code)
	}
	d := p.deployments[r.run.Deployment]
	if d == nil {
		return run.Resolve(code)
	}
	return policyFor(d, r.run, p.assets[t.ID], code)
}
