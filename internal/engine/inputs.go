package engine

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"go.arco.dev/servo/internal/base/event"
	"go.arco.dev/servo/internal/base/fault"
	"go.arco.dev/servo/internal/domain/plan"
	"go.arco.dev/servo/internal/domain/run"
	"go.arco.dev/servo/internal/store"
)

// Inputs from outside of a run (docs/adr/0036-inputs-outside-the-run.md): an upstream that a run does not
// execute is read from the run that executed it. The task is chosen when the run is created and recorded
// with it, so that all attempts read the same result.

// outside returns the upstreams of the plan that are not part of it, each once.
func (d *triggerDraft) outside() []string {
	divided := d.code.planner.Divided()
	declared := 0
	for _, task := range d.plan.Tasks {
		code, _ := d.code.Asset(task.Key)
		declared += len(code.Upstream)
	}
	if declared == len(d.plan.Edges) && !divided {
		return nil
	}
	seen := make(map[string]bool, len(d.plan.Tasks))
	for _, task := range d.plan.Tasks {
		seen[task.Key] = true
	}
	var keys []string
	for _, task := range d.plan.Tasks {
		code, _ := d.code.Asset(task.Key)
		for _, key := range code.Upstream {
			// Partitions of other runs are no inputs: their results are not one.
			if !seen[key] && d.code.planner.Scheme(key) == nil {
				seen[key] = true
				keys = append(keys, key)
			}
		}
	}
	return keys
}

// findInputs completes drafts with the upstreams that their runs will not execute: for a retry the
// results of the runs before it, else the latest success of the workspace. It is one statement for a
// batch, and none if all upstreams are part of their runs.
func findInputs(ctx context.Context, tx *store.Tx, drafts []triggerDraft) ([]*plannedTrigger, error) {
	var (
		wanted []store.AssetOf
		of     []*plannedTrigger
	)
	planned := make([]*plannedTrigger, len(drafts))
	for i, d := range drafts {
		t := &plannedTrigger{triggerDraft: d}
		planned[i] = t
		for _, key := range d.outside() {
			if t.inputs == nil {
				t.inputs = map[string]run.Inherited{}
			}
			from, done := d.doneBefore(key)
			if !done {
				from = run.Inherited{Asset: key, Outside: true}
				wanted, of = append(wanted, store.AssetOf{Tenant: t.Tenant, Workspace: t.workspace, Asset: key}), append(of, t)
			}
			t.inputs[key] = from
		}
	}
	found, err := tx.LatestResults(ctx, wanted)
	for i, key := range found {
		of[i].inputs[wanted[i].Asset] = run.Inherited{Asset: wanted[i].Asset, Run: key.Run, Task: key.Task, Outside: true}
	}
	return planned, err
}

// giveInputs adds to tasks the upstreams that their run does not execute.
func (t *plannedTrigger) giveInputs(specs []run.TaskSpec) {
	if len(t.inputs) == 0 {
		return
	}
	for i := range specs {
		code, _ := t.code.Asset(specs[i].Asset)
		if specs[i].IsBarrier() {
			continue
		}
		for _, key := range code.Upstream {
			if from, ok := t.inputs[key]; ok {
				specs[i].Inherited = append(specs[i].Inherited, from)
			}
		}
	}
}

// missingInputs removes upstreams without a task from a lease, and names them: no task existed when the
// run was created, or its run was deleted since.
func (l *Lease) missingInputs() {
	// A barrier has no result: a task that waited for it reads none of its upstream.
	l.Upstream = slices.DeleteFunc(l.Upstream, func(u UpstreamResult) bool { return u.Partition == plan.Barrier })
	found := len(l.Upstream)
	l.Upstream = slices.DeleteFunc(l.Upstream, func(u UpstreamResult) bool { return u.Asset == "" })
	if l.missing = nil; len(l.Upstream) == found {
		return
	}
	l.missing = []string{}
	for _, key := range l.Code.Upstream {
		if !slices.ContainsFunc(l.Upstream, func(u UpstreamResult) bool { return u.Asset == key }) {
			l.missing = append(l.missing, key)
		}
	}
}

// refuseMissing fails the leases with a missing input, so that their code never runs, and returns the
// others. It is a transaction of its own, since the end of a task locks its run first. After a crash in
// between, the tasks are leased and refused again.
func (e *Engine) refuseMissing(ctx context.Context, leases []Lease, meta event.Meta) ([]Lease, error) {
	if !slices.ContainsFunc(leases, func(l Lease) bool { return l.missing != nil }) {
		return leases, nil
	}
	var (
		reports []Report
		kept    []Lease // a copy: a repeat of the claim may have the same leases
		never   = false
	)
	for _, l := range leases {
		if l.missing == nil {
			kept = append(kept, l)
			continue
		}
		reports = append(reports, Report{
			TaskKey: l.TaskKey, Token: l.Token, Action: Fail{Failure: l.missingFailure(), Retry: &never}, Meta: event.Meta{Actor: "engine", Trace: meta.Trace},
		})
	}
	// The tasks end even if the caller is gone.
	_, errs := e.Report(context.WithoutCancel(ctx), reports)
	for _, err := range errs {
		if _, refused := fault.As(err); err != nil && (!refused || fault.Is(err, fault.Unavailable)) {
			return nil, err // the same claim gets the same leases again
		}
	}
	return kept, nil
}

// missingFailure names the upstreams without a result, and what to do.
func (l *Lease) missingFailure() run.Failure {
	named := strings.Join(l.missing[:min(len(l.missing), maxNamed)], ", ")
	if more := len(l.missing) - maxNamed; more > 0 {
		named += fmt.Sprintf(" and %d more", more)
	}
	message := fmt.Sprintf("upstream %s has no stored result in the workspace, and is not part of this run", named)
	if len(l.missing) > 1 {
		message = fmt.Sprintf("upstreams %s have no stored results in the workspace, and are not part of this run", named)
	}
	details, err := json.Marshal(map[string][]string{"missing": l.missing})
	if err != nil {
		details = nil // a list of texts is always JSON
	}
	return run.Failure{
		Code: run.CodeMissingInput, Message: message, Details: details,
		SuggestedAction: fmt.Sprintf("run it too: servo runs trigger --select +%s", l.Asset),
	}
}
