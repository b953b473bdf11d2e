package engine

import (
	"context"
	"fmt"
	"time"

	"go.arco.dev/servo/internal/base/canon"
	"go.arco.dev/servo/internal/base/fault"
	"go.arco.dev/servo/internal/base/id"
	"go.arco.dev/servo/internal/domain/asset"
	"go.arco.dev/servo/internal/domain/config"
	"go.arco.dev/servo/internal/domain/partition"
	"go.arco.dev/servo/internal/domain/plan"
	"go.arco.dev/servo/internal/domain/run"
	"go.arco.dev/servo/internal/domain/tenant"
	"go.arco.dev/servo/internal/store"
)

// triggerDraft is a trigger with the plan of its run, before its pools and inputs are looked up.
type triggerDraft struct {
	*triggerCommand

	result *triggerResult // set by the stage at which the trigger ends

	workspace   id.Workspace
	tenantName  string
	deployment  id.Deployment
	released    bool // the deployment is a release
	code        *deployment
	quotas      store.RunQuotas // at the time of planning
	plan        plan.Plan
	digest      string // of the request; "" without an idempotency key
	priority    int16
	triggerType string
	limit       int32  // seconds that the run may take
	lock        string // "" takes none
	values      partition.Values
}

// plannedTrigger is a trigger whose run can be created if its lock and the quotas allow it.
type plannedTrigger struct {
	triggerDraft

	// inputs are, by asset, the upstreams of the plan that are not part of it.
	inputs map[string]run.Inherited
}

// planTriggers plans the first triggers, up to the one with which they have more tasks than limit, and
// returns a result for each of these. A trigger that cannot be planned has an error in its result.
func (e *Engine) planTriggers(ctx context.Context, tx *store.Tx, cmds []*triggerCommand, limit int) (planned []*plannedTrigger, results []triggerResult, err error) {
	workspaces, codes, err := e.workspacesOf(ctx, tx, cmds)
	if err != nil {
		return nil, nil, err
	}
	facts, err := partitionFactsOf(ctx, tx, cmds)
	if err != nil {
		return nil, nil, err
	}
	results = make([]triggerResult, len(cmds))
	var drafts []triggerDraft
	n, tasks := 0, 0
	covering := map[id.Config]bool{}
	for ; n < len(cmds) && tasks <= limit; n++ {
		draft, err := cmds[n].draft(workspaces, codes, facts)
		if err != nil {
			results[n].err = err
			continue
		}
		if !cmds[n].covered.until.IsZero() {
			// What a slot covers depends on whether the slot before it fires: one in each transaction.
			if covering[cmds[n].For.Config] {
				results[n].err = fault.New(fault.Unavailable, "the slot before it is decided first")
				continue
			}
			covering[cmds[n].For.Config] = true
		}
		draft.result = &results[n]
		drafts = append(drafts, draft)
		tasks += len(draft.plan.Tasks)
	}
	if drafts, err = refusePoolsOf(ctx, tx, drafts); err != nil {
		return nil, nil, err
	}
	planned, err = findInputs(ctx, tx, drafts)
	return planned, results[:n], err
}

// workspacesOf reads the workspaces of triggers, and the code of their active deployments.
func (e *Engine) workspacesOf(ctx context.Context, tx *store.Tx, cmds []*triggerCommand) (map[store.WorkspaceName]store.Workspace, map[id.Deployment]*deployment, error) {
	seen := map[store.WorkspaceName]bool{}
	var names []store.WorkspaceName
	for _, t := range cmds {
		if name := t.workspaceName(); !seen[name] && tenant.ValidateName("workspace", t.Workspace) == nil {
			seen[name] = true
			names = append(names, name)
		}
	}
	read, err := tx.Workspaces(ctx, names)
	if err != nil {
		return nil, nil, err
	}
	workspaces := make(map[store.WorkspaceName]store.Workspace, len(read))
	var keys []store.DeploymentKey
	for _, w := range read {
		workspaces[store.WorkspaceName{Tenant: w.Tenant, Name: w.Name}] = w
		if w.Active != nil {
			keys = append(keys, store.DeploymentKey{Tenant: w.Tenant, Deployment: *w.Active})
		}
	}
	for _, t := range cmds {
		if pinned := t.backfill.pinned(); pinned != (id.Deployment{}) {
			keys = append(keys, store.DeploymentKey{Tenant: t.Tenant, Deployment: pinned})
		}
	}
	codes, err := e.deploymentsOf(ctx, keys)
	return workspaces, codes, err
}

func (t *triggerCommand) workspaceName() store.WorkspaceName {
	return store.WorkspaceName{Tenant: t.Tenant, Name: t.Workspace}
}

// draft checks the trigger and plans it with the active deployment of its workspace.
func (t *triggerCommand) draft(workspaces map[store.WorkspaceName]store.Workspace, codes map[id.Deployment]*deployment, facts *partitionFacts) (d triggerDraft, err error) {
	if err := tenant.ValidateName("workspace", t.Workspace); err != nil {
		return d, err
	}
	w, found := workspaces[t.workspaceName()]
	if pinned := t.backfill.pinned(); pinned != (id.Deployment{}) {
		w.Active = &pinned
	}
	switch {
	case !found:
		return d, fault.New(fault.NotFound, "no workspace "+t.Workspace, fault.Field("workspace"), fault.Remedy("check the name"))
	case w.Active == nil:
		return d, noCode(w)
	case codes[*w.Active] == nil:
		return d, fmt.Errorf("deployment %s cannot be read", *w.Active)
	}
	d = triggerDraft{
		triggerCommand: t, workspace: w.ID, tenantName: w.TenantName, deployment: *w.Active, released: w.Channel != "", code: codes[*w.Active], quotas: w.Quotas,
		priority: t.Priority, triggerType: t.TriggerType,
	}
	if err := t.validate(); err != nil {
		return d, err
	}
	if d.digest, err = t.requestDigest(); err != nil {
		return d, err
	}
	only, err := t.targetsToRetry(d.code)
	if err != nil {
		return d, err
	}
	most := min(MaxTasksPerRun, int(w.Quotas.MaxTasksPerRun))
	request, err := t.planRequest(d.code, facts, only, most)
	if err != nil {
		return d, err
	}
	if d.plan, err = d.code.planner.Plan(request); err != nil {
		return d, err
	}
	if len(d.plan.Tasks) > most {
		return d, fault.New(fault.LimitExceeded, fmt.Sprintf("the plan has %d tasks, the limit is %d", len(d.plan.Tasks), most),
			fault.Field("select"), fault.Remedy("select fewer assets"), fault.Value("quota", "max_tasks_per_run"),
			fault.Value("limit", most), fault.Value("current", len(d.plan.Tasks)))
	}
	pipeline, isPipeline := d.code.Pipeline(t.Pipeline)
	switch {
	case t.backfill != nil: // below every other run
		d.priority = backfillPriority
	case d.priority == 0:
		d.priority = asset.DefaultPriority
		if isPipeline && pipeline.Priority != 0 {
			d.priority = int16(pipeline.Priority) //nolint:gosec // 1 to 10
		}
	}
	if d.triggerType == "" {
		d.triggerType = "api"
	}
	d.limit = d.runLimit(pipeline)
	if isPipeline && t.backfill == nil { // a selection has no lock, and tasks of backfills hold their partitions
		d.lock, err = d.lockOf(pipeline)
	}
	return d, err
}

func (t *triggerCommand) validate() error {
	if t.broken != nil {
		return t.broken
	}
	if t.Priority < 0 || t.Priority > 10 {
		return fault.New(fault.InvalidArgument, fmt.Sprintf("is %d", t.Priority), fault.Field("priority"), fault.Remedy("use 1 (last) to 10 (first)"))
	}
	for _, text := range []struct {
		field, text string
		limit       int
	}{
		{"triggered_by", t.TriggeredBy, maxTriggeredByLength},
		{"note", t.Note, maxTriggeredByLength},
		{"trigger_type", t.TriggerType, maxTriggerTypeLength},
	} {
		if err := checkText(text.field, text.text, text.limit); err != nil {
			return err
		}
	}
	if t.Retry != nil {
		return checkRetry(*t.Retry)
	}
	return nil
}

// requestDigest identifies the request under its idempotency key: the same key must come with the
// same request.
func (t *triggerCommand) requestDigest() (string, error) {
	switch {
	case t.IdempotencyKey == "":
		return "", nil
	case t.retry != nil:
		return t.retry.digest, nil
	}
	if err := CheckIdempotencyKey(t.IdempotencyKey); err != nil {
		return "", err
	}
	return canon.Digest(t.Trigger)
}

// runLimit is how many seconds the run may take: the least of the limits of tenant, pipeline and config.
func (d *triggerDraft) runLimit(pipeline asset.Pipeline) int32 {
	limit := int32(d.quotas.MaxRunDuration / time.Second)                 //nolint:gosec // at most a year
	if own := int32(pipeline.MaxExecution.Std() / time.Second); own > 0 { //nolint:gosec // at most a week
		limit = min(limit, own)
	}
	if d.For != nil {
		if own := int32(d.For.Limit / time.Second); own > 0 { //nolint:gosec // at most a week
			limit = min(limit, own)
		}
	}
	return limit
}

// lockOf is the key of the lock that excludes other runs; "" if the run excludes none.
func (d *triggerDraft) lockOf(pipeline asset.Pipeline) (string, error) {
	switch {
	case d.For == nil && pipeline.Overlap == asset.OverlapAllow:
		return "", nil
	case d.For != nil && d.For.Overlap == config.OverlapAllow:
		return "", nil
	case d.For != nil && pipeline.Lock == nil: // it excludes the runs of the same config only
		return "config/" + d.Workspace + "/" + d.For.Name, nil
	}
	return d.code.locks[d.Pipeline].Of(d.Workspace, d.plan.Parameters)
}
