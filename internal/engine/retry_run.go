package engine

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"go.arco.dev/servo/internal/base/canon"
	"go.arco.dev/servo/internal/base/event"
	"go.arco.dev/servo/internal/base/fault"
	"go.arco.dev/servo/internal/base/id"
	"go.arco.dev/servo/internal/domain/run"
	"go.arco.dev/servo/internal/store"
)

// RetryMode is how much of a run is retried.
type RetryMode string

// The modes of a retry.
const (
	RetryFailed RetryMode = "FAILED" // tasks that failed, were skipped or were cancelled
	RetryAll    RetryMode = "ALL"    // all planned tasks
	RetryFrom   RetryMode = "FROM"   // a task and all downstream of it
)

// TriggerRetry is the trigger type of a run that retries another.
const TriggerRetry = "retry"

const (
	// maxNamed bounds the assets that a message names.
	maxNamed = 10
	// maxAncestors bounds how far back a retry looks for results: the run that it retries, the
	// run which that one has retried, and so on.
	maxAncestors = 20
)

// RetryRun requests a run that retries another.
type RetryRun struct {
	Tenant      id.Tenant `json:"-"`
	Run         id.Run    `json:"run"`
	Mode        RetryMode `json:"mode"`
	From        string    `json:"from,omitempty"` // the key of an asset or the id of a task, for RetryFrom
	TriggeredBy string    `json:"triggered_by"`
	Note        string    `json:"note"`
	// WaitForQuota is as for a trigger.
	WaitForQuota bool `json:"-"`
	// Queue is as for a trigger.
	Queue bool `json:"-"`
	// IdempotencyKey makes a repeat return the first retry.
	IdempotencyKey string     `json:"-"`
	Meta           event.Meta `json:"-"`
}

// RetryRun creates a child of a run that has ended: with the same workspace, pipeline, parameters, priority
// and retry policy, but with the deployment that is active now, since people fix the code, deploy it and
// retry.
func (e *Engine) RetryRun(ctx context.Context, r RetryRun) (Triggered, error) {
	if err := r.validate(); err != nil {
		return Triggered{}, err
	}
	// No lock: a run that has ended does not change, and any other is refused.
	parent, err := e.store.GetRunPlan(ctx, store.RunKey{Tenant: r.Tenant, Run: r.Run})
	if err != nil {
		return Triggered{}, err
	}
	if !parent.State.Terminal() {
		return Triggered{}, fault.New(fault.Conflict, "the run is "+parent.State.String(), fault.Field("run"),
			fault.Remedy("wait until it is over, or cancel it"), fault.Value("state", parent.State.String()))
	}
	only := parent.Planned()
	switch r.Mode {
	case RetryFailed:
		if only, err = parent.Undone(); err != nil {
			return Triggered{}, fmt.Errorf("retry run %s: %w", r.Run, err)
		}
	case RetryFrom: // by the old plan; the active code may add to it later
		if only, err = parent.From(r.From, func(string) []string { return nil }); err != nil {
			return Triggered{}, err
		}
	case RetryAll:
	}
	if len(only) == 0 {
		return Triggered{}, fault.New(fault.Conflict, "nothing to retry: every task of the run succeeded", fault.Field("mode"),
			fault.Remedy("retry with mode ALL to run every task again"), fault.Value("state", parent.State.String()))
	}
	done, err := e.resultsBefore(ctx, parent)
	if err != nil {
		return Triggered{}, err
	}
	scope := &retryScope{only: only, done: done}
	if r.Mode == RetryFrom {
		scope.from = func(code *deployment) ([]run.Target, error) { return parent.From(r.From, code.planner.Downstream) }
	}
	// A trigger's own digest does not include the mode.
	if scope.digest, err = canon.Digest(r); err != nil {
		return Triggered{}, err
	}
	of, err := e.forConfig(ctx, parent.Run)
	if err != nil {
		return Triggered{}, err
	}
	cmd := newTrigger(Trigger{
		Tenant: r.Tenant, Workspace: parent.WorkspaceName, Pipeline: parent.Pipeline, Parameters: parent.Parameters, Priority: parent.Priority,
		TriggerType: TriggerRetry, TriggeredBy: r.TriggeredBy, Note: r.Note, Parent: &r.Run, Retry: parent.Retry, IdempotencyKey: r.IdempotencyKey, WaitForQuota: r.WaitForQuota, Queue: r.Queue, Meta: r.Meta,
		For: of,
	})
	cmd.retry = scope
	triggered, err := e.trigger(ctx, cmd)
	if err != nil {
		return Triggered{}, err
	}
	if err := triggered.conflict(); err != nil {
		return Triggered{}, err
	}
	return triggered, nil
}

// retryScope is how much of a run a retry does again.
type retryScope struct {
	digest string                       // of the request
	only   []run.Target                 // what it executes: a part of what the pipeline selects
	done   map[run.Target]run.Inherited // results that the retry uses
	// from returns the targets of a retry that begins with a task, by the code that it will run; nil
	// for other retries.
	from func(*deployment) ([]run.Target, error)
}

// doneBefore returns the result of an asset that a retry uses instead of executing it.
func (t *triggerCommand) doneBefore(key string) (run.Inherited, bool) {
	if t.retry == nil {
		return run.Inherited{}, false
	}
	from, done := t.retry.done[run.Target{Asset: key}]
	return from, done
}

// forConfig is the config of a run, if it still exists: a retry counts as its run, and excludes its other
// runs.
func (e *Engine) forConfig(ctx context.Context, parent run.Run) (*ForConfig, error) {
	if parent.Config == nil {
		return nil, nil
	}
	c, err := e.store.GetConfig(ctx, store.ConfigKey{Tenant: parent.Tenant, Config: *parent.Config})
	if fault.Is(err, fault.NotFound) {
		return nil, nil
	}
	return &ForConfig{Config: c.ID, Name: c.Name, Limit: c.Spec.MaxExecution.Std(), Overlap: c.Spec.Overlap, Labels: labelText(c.Spec.Labels), Window: parent.Window}, err
}

func (r RetryRun) validate() error {
	switch r.Mode {
	case RetryFailed, RetryAll:
		if r.From != "" {
			return fault.New(fault.InvalidArgument, "is for mode FROM", fault.Field("from"), fault.Remedy("leave it out, or use mode FROM"))
		}
		return nil
	case RetryFrom:
		if r.From == "" {
			return fault.New(fault.InvalidArgument, "is missing", fault.Field("from"), fault.Remedy("name the asset or the task to begin with"))
		}
		return checkText("from", r.From, maxAssetLength)
	}
	return fault.New(fault.InvalidArgument, fmt.Sprintf("is %.100q", r.Mode), fault.Field("mode"), fault.Remedy("use FAILED, FROM or ALL"))
}

// resultsBefore returns succeeded tasks by target: those of the retried run, those that it has inherited,
// and for other assets those of the runs before it, since fixed code may name other upstreams. They are
// read here, once and outside of the lane, rather than for each claim.
func (e *Engine) resultsBefore(ctx context.Context, of store.RunPlan) (map[run.Target]run.Inherited, error) {
	done := map[run.Target]run.Inherited{}
	for range maxAncestors {
		of.AddDone(of.ID, done)
		if of.Parent == nil {
			break
		}
		before, err := e.store.GetRunPlan(ctx, store.RunKey{Tenant: of.Tenant, Run: *of.Parent})
		if fault.Is(err, fault.NotFound) || err == nil && !before.State.Terminal() {
			break // deleted, or not a retried run
		}
		if err != nil {
			return nil, err
		}
		of = before
	}
	return done, nil
}

// targetsToRetry returns what a retry executes, nil for other triggers. It refuses a retry of assets
// that the active deployment does not have any more.
func (t *triggerCommand) targetsToRetry(code *deployment) (only []run.Target, err error) {
	if t.retry == nil {
		return nil, nil
	}
	if only = t.retry.only; t.retry.from != nil {
		if only, err = t.retry.from(code); err != nil {
			return nil, err
		}
	}
	remedy := fault.Remedy("deploy a manifest that has it, or trigger a new run")
	if _, ok := code.Pipeline(t.Pipeline); t.Pipeline != "" && !ok {
		return nil, fault.New(fault.Conflict, fmt.Sprintf("the active deployment has no pipeline %s any more", t.Pipeline), fault.Field("run"), remedy)
	}
	var gone []string
	for _, target := range only {
		if _, ok := code.Asset(target.Asset); !ok && !slices.Contains(gone, target.Asset) {
			gone = append(gone, target.Asset)
		}
	}
	if len(gone) == 0 {
		return only, nil
	}
	named := strings.Join(gone[:min(len(gone), maxNamed)], ", ")
	if more := len(gone) - maxNamed; more > 0 {
		named += fmt.Sprintf(" and %d more", more)
	}
	return nil, fault.New(fault.Conflict, "the active deployment has no asset "+named+" any more", fault.Field("run"), remedy, fault.Value("assets", gone))
}
