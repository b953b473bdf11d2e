package engine

import (
	"context"
	"fmt"
	"strings"

	"go.arco.dev/servo/internal/base/canon"
	"go.arco.dev/servo/internal/base/event"
	"go.arco.dev/servo/internal/base/fault"
	"go.arco.dev/servo/internal/base/id"
	"go.arco.dev/servo/internal/domain/run"
	"go.arco.dev/servo/internal/store"
)

// RetryMode says how much of a run is done again.
type RetryMode string

// The modes of a retry.
const (
	RetryFailed RetryMode = "FAILED" // what failed, was skipped or was cancelled
	RetryAll    RetryMode = "ALL"    // everything that the run was planned to do
	RetryFrom   RetryMode = "FROM"   // a task and everything downstream of it
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

// RetryRun asks for a run that does another one again.
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

// RetryRun makes a child of a run that is over: the same workspace, pipeline, parameters,
// priority and retry policy, but of the deployment that is active now, since people mend the
// code, deploy it and retry.
func (e *Engine) RetryRun(ctx context.Context, r RetryRun) (Triggered, error) {
	if err := r.validate(); err != nil {
		return Triggered{}, err
	}
	// No lock: a run that is over does not change, and one that is not is refused.
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
	case RetryFrom: // by the plan of then: the code of now may add to it when it is known
		if only, err = parent.From(r.From, func(string) []string { return nil }); err != nil {
			return Triggered{}, err
		}
	case RetryAll:
	}
	if len(only) == 0 {
		return Triggered{}, fault.New(fault.Conflict, "there is nothing to retry: every task of the run succeeded", fault.Field("mode"),
			fault.Remedy("retry with mode ALL to do everything again"), fault.Value("state", parent.State.String()))
	}
	done, err := e.doneBefore(ctx, parent)
	if err != nil {
		return Triggered{}, err
	}
	cmd := &triggerCommand{only: only, done: done, Trigger: Trigger{
		Tenant: r.Tenant, Workspace: parent.WorkspaceName, Pipeline: parent.Pipeline, Parameters: parent.Parameters, Priority: parent.Priority,
		TriggerType: TriggerRetry, TriggeredBy: r.TriggeredBy, Note: r.Note, Parent: &r.Run, Retry: parent.Retry, IdempotencyKey: r.IdempotencyKey, WaitForQuota: r.WaitForQuota, Queue: r.Queue, Meta: r.Meta,
	}}
	if cmd.For, err = e.forConfig(ctx, parent.Run); err != nil {
		return Triggered{}, err
	}
	if r.Mode == RetryFrom {
		cmd.from = func(code *deployment) ([]string, error) { return parent.From(r.From, code.planner.Downstream) }
	}
	// A trigger's own digest does not know the mode.
	if cmd.digest, err = canon.Digest(r); err != nil {
		return Triggered{}, err
	}
	if err := e.control.do(ctx, cmd); err != nil {
		return Triggered{}, err
	}
	if err := cmd.answer.conflict(); err != nil {
		return Triggered{}, err
	}
	return cmd.answer, e.replace(ctx, cmd.makeWay)
}

// forConfig is the config that a run was made for, if it is still there: what becomes of a retry
// counts for it, and excludes its other runs.
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

// doneBefore are tasks that have succeeded, by their asset: those of the run that is retried,
// those that it has inherited itself, and for what is missing those of the runs before it,
// since mended code may name other upstreams. They are looked up here, once and outside of the
// lane, rather than for each claim.
func (e *Engine) doneBefore(ctx context.Context, of store.RunPlan) (map[string]run.Inherited, error) {
	done := map[string]run.Inherited{}
	for range maxAncestors {
		of.AddDone(of.ID, done)
		if of.Parent == nil {
			break
		}
		before, err := e.store.GetRunPlan(ctx, store.RunKey{Tenant: of.Tenant, Run: *of.Parent})
		if fault.Is(err, fault.NotFound) || err == nil && !before.State.Terminal() {
			break // forgotten, or not a run that was retried
		}
		if err != nil {
			return nil, err
		}
		of = before
	}
	return done, nil
}

// stillThere refuses a retry of what the active deployment does not have any more, and lets
// that deployment say what is downstream of the task that a retry begins with.
func (t *triggerCommand) stillThere() error {
	if len(t.only) == 0 {
		return nil
	}
	if t.from != nil {
		var err error
		if t.only, err = t.from(t.code); err != nil {
			return err
		}
	}
	remedy := fault.Remedy("deploy a manifest that has it, or trigger a new run")
	if _, ok := t.code.Pipeline(t.Pipeline); t.Pipeline != "" && !ok {
		return fault.New(fault.Conflict, fmt.Sprintf("the active deployment has no pipeline %s any more", t.Pipeline), fault.Field("run"), remedy)
	}
	var gone []string
	for _, key := range t.only {
		if _, ok := t.code.Asset(key); !ok {
			gone = append(gone, key)
		}
	}
	if len(gone) == 0 {
		return nil
	}
	named := strings.Join(gone[:min(len(gone), maxNamed)], ", ")
	if more := len(gone) - maxNamed; more > 0 {
		named += fmt.Sprintf(" and %d more", more)
	}
	return fault.New(fault.Conflict, "the active deployment has no asset "+named+" any more", fault.Field("run"), remedy, fault.Value("assets", gone))
}
