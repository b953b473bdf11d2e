package api

import (
	"context"
	"fmt"

	servov1 "go.arco.dev/servo/gen/servo/v1"
	"go.arco.dev/servo/internal/base/fault"
	"go.arco.dev/servo/internal/base/id"
	"go.arco.dev/servo/internal/domain/plan"
	"go.arco.dev/servo/internal/domain/run"
	"go.arco.dev/servo/internal/edge/intercept"
	"go.arco.dev/servo/internal/edge/problem"
	"go.arco.dev/servo/internal/engine"
	"go.arco.dev/servo/internal/store"
)

// runService implements servo.v1.RunService.
type runService struct{ *Server }

// runKey returns the key of the run that a request names.
func (s *Server) runKey(ctx context.Context, req interface {
	GetTenant() string
	GetRun() string
},
) (store.RunKey, error) {
	tenant, err := s.tenants.ID(ctx, req.GetTenant())
	if err != nil {
		return store.RunKey{}, err
	}
	wanted, err := id.Parse[id.Run]("run", req.GetRun())
	key := store.RunKey{Tenant: tenant, Run: wanted}
	if err != nil || len(intercept.Caller(ctx).Workspaces) == 0 {
		return key, err
	}
	found, err := s.store.GetRun(ctx, key)
	if err != nil {
		return key, err
	}
	return key, intercept.Reaches(ctx, found.WorkspaceName, "run", wanted.String())
}

// TriggerRun implements servov1.RunServiceServer.
func (s runService) TriggerRun(ctx context.Context, req *servov1.TriggerRunRequest) (*servov1.TriggerRunResponse, error) {
	tenant, err := s.tenants.ID(ctx, req.GetTenant())
	if err != nil {
		return nil, err
	}
	if err := checkTarget(req); err != nil {
		return nil, err
	}
	key, err := intercept.IdempotencyKey(ctx)
	if err != nil {
		return nil, err
	}
	parameters, err := jsonOfStruct("parameters", req.GetParameters())
	if err != nil {
		return nil, err
	}
	triggered, err := s.engine.TriggerRun(ctx, engine.Trigger{
		Tenant: tenant, Workspace: req.GetWorkspace(), Pipeline: req.GetPipeline(), Select: req.GetSelect(), Parameters: parameters,
		Partitions: req.GetPartitions(), Priority: int16(req.GetPriority()), TriggeredBy: intercept.Caller(ctx).Actor, Note: req.GetNote(), Retry: retryOf(req.GetRetry()), //nolint:gosec // 0 to 10
		IdempotencyKey: key, Meta: intercept.Meta(ctx), WaitForLock: req.GetWaitForLock().AsDuration(), WaitForQuota: req.GetWaitForQuota(), Queue: req.GetQueue(),
	})
	if err != nil {
		return nil, err
	}
	return s.triggered(ctx, req.GetTenant(), tenant, triggered)
}

// TriggerRuns implements servov1.RunServiceServer.
func (s runService) TriggerRuns(ctx context.Context, req *servov1.TriggerRunsRequest) (*servov1.TriggerRunsResponse, error) {
	tenant, err := s.tenants.ID(ctx, req.GetTenant())
	if err != nil {
		return nil, err
	}
	key, err := intercept.IdempotencyKey(ctx)
	if err != nil {
		return nil, err
	}
	answers := make([]*servov1.TriggeredRun, len(req.GetRuns()))
	var (
		triggers []engine.Trigger
		places   []int
	)
	for i, item := range req.GetRuns() {
		answers[i] = &servov1.TriggeredRun{}
		trigger, err := triggerOf(item, key, i)
		if err != nil {
			answers[i].Error = problem.Of(under(fmt.Sprintf("runs[%d]", i), err))
			continue
		}
		trigger.Tenant, trigger.Workspace = tenant, req.GetWorkspace()
		trigger.TriggeredBy, trigger.Meta = intercept.Caller(ctx).Actor, intercept.Meta(ctx)
		triggers, places = append(triggers, trigger), append(places, i)
	}
	triggered, errs := s.engine.TriggerRuns(ctx, triggers)
	if err := unavailableAll(errs); err != nil {
		return nil, err
	}
	var explained map[string]error // an error of many items is logged once
	for n, i := range places {
		if errs[n] == nil {
			answers[i].Run, answers[i].RepeatedRequest, answers[i].AlreadyRunning = triggered[n].Run.String(), triggered[n].Repeat, triggered[n].AlreadyRunning
			continue
		}
		err := errs[n]
		if _, known := fault.As(err); !known {
			if explained[err.Error()] == nil {
				explained = map[string]error{err.Error(): s.Explain(ctx, servov1.RunService_TriggerRuns_FullMethodName, err)}
			}
			err = explained[err.Error()]
		}
		answers[i].Error = problem.Of(under(fmt.Sprintf("runs[%d]", i), err))
	}
	return &servov1.TriggerRunsResponse{Runs: answers}, nil
}

// triggerOf maps an item of TriggerRuns. The engine checks the rest.
func triggerOf(item *servov1.RunTrigger, callKey string, place int) (engine.Trigger, error) {
	if err := checkTarget(item); err != nil {
		return engine.Trigger{}, err
	}
	if p := item.GetPriority(); p < 0 || p > 10 {
		return engine.Trigger{}, fault.New(fault.InvalidArgument, fmt.Sprintf("must be 1 to 10, not %d", p), fault.Field("priority"),
			fault.Remedy("leave it out for the pipeline's priority"))
	}
	key := item.GetIdempotencyKey()
	if key == "" && callKey != "" {
		key = fmt.Sprintf("%s/%d", callKey, place)
	}
	if key != "" {
		if err := engine.CheckIdempotencyKey(key); err != nil {
			return engine.Trigger{}, err
		}
	}
	parameters, err := jsonOfStruct("parameters", item.GetParameters())
	return engine.Trigger{
		Pipeline: item.GetPipeline(), Select: item.GetSelect(), Partitions: item.GetPartitions(), Parameters: parameters, Priority: int16(item.GetPriority()), //nolint:gosec // checked above
		Note: item.GetNote(), Retry: retryOf(item.GetRetry()), IdempotencyKey: key, WaitForQuota: item.GetWaitForQuota(), Queue: item.GetQueue(),
	}, err
}

// unavailableAll returns the error of a batch of which no item was accepted because the server is
// overloaded: the caller should repeat the call.
func unavailableAll(errs []error) error {
	for _, err := range errs {
		if !fault.Is(err, fault.Unavailable) {
			return nil
		}
	}
	if len(errs) == 0 {
		return nil
	}
	return errs[0]
}

// checkTarget refuses a request without a pipeline and a selection: a run of all assets must be
// explicit.
func checkTarget(req interface {
	GetPipeline() string
	GetSelect() []string
},
) error {
	if req.GetPipeline() != "" || len(req.GetSelect()) > 0 {
		return nil
	}
	return fault.New(fault.InvalidArgument, "no pipeline and no selection specified", fault.Field("pipeline"),
		fault.Remedy(`set a pipeline, or select assets; ["*"] selects all`))
}

// triggered returns the stored run.
func (s runService) triggered(ctx context.Context, name string, tenant id.Tenant, t engine.Triggered) (*servov1.TriggerRunResponse, error) {
	found, err := s.readRun(ctx, name, store.RunKey{Tenant: tenant, Run: t.Run})
	return &servov1.TriggerRunResponse{Run: found, RepeatedRequest: t.Repeat, AlreadyRunning: t.AlreadyRunning}, err
}

func retryOf(p *servov1.RetryPolicy) *run.RetryPolicy {
	if p == nil {
		return nil
	}
	return &run.RetryPolicy{
		MaxAttempts: int(p.GetMaxAttempts()), MaxDeaths: int(p.GetMaxDeaths()), InitialDelay: p.GetInitialDelay().AsDuration(), MaxDelay: p.GetMaxDelay().AsDuration(),
		Multiplier: p.GetMultiplier(), Jitter: p.GetJitter(), RetryOn: p.GetRetryOn(), NoRetryOn: p.GetNoRetryOn(), TimeoutGrowth: p.GetTimeoutGrowth(),
	}
}

// PlanRun implements servov1.RunServiceServer.
func (s runService) PlanRun(ctx context.Context, req *servov1.PlanRunRequest) (*servov1.PlanRunResponse, error) {
	owner, err := s.tenants.ID(ctx, req.GetTenant())
	if err != nil {
		return nil, err
	}
	active, err := s.manifests.active(ctx, owner, req.GetWorkspace())
	if err != nil {
		return nil, err
	}
	if err := checkTarget(req); err != nil {
		return nil, err
	}
	parameters, err := jsonOfStruct("parameters", req.GetParameters())
	if err != nil {
		return nil, err
	}
	request := plan.Request{Pipeline: req.GetPipeline(), Select: req.GetSelect(), Parameters: parameters}
	now, err := s.now(ctx)
	if err != nil {
		return nil, err
	}
	if request.Partitions, err = engine.SelectPartitions(req.GetPartitions(), now, active.planner.SchemesOf(request)); err != nil {
		return nil, err
	}
	planned, err := active.planner.Plan(request)
	if err != nil {
		return nil, err
	}
	if err := s.engine.CheckPlan(ctx, owner, req.GetTenant(), planned); err != nil {
		return nil, err
	}
	answer := &servov1.PlanRunResponse{Fingerprint: planned.Fingerprint, Deployment: active.id.String()}
	if answer.Parameters, err = structOf(planned.Parameters); err != nil {
		return nil, err
	}
	for i, t := range planned.Tasks {
		answer.Tasks = append(answer.Tasks, &servov1.PlannedTask{Index: int32(i), Asset: t.Key, Partition: t.Partition, Pool: t.Pool})
	}
	for _, edge := range planned.Edges {
		to := answer.GetTasks()[edge[1]]
		to.Upstream = append(to.Upstream, int32(edge[0])) //nolint:gosec // an index of a task
	}
	return answer, nil
}

// ListRuns implements servov1.RunServiceServer. Without a tenant it lists the runs of all tenants.
func (s runService) ListRuns(ctx context.Context, req *servov1.ListRunsRequest) (*servov1.ListRunsResponse, error) {
	tenant, err := s.ownerOrAll(ctx, req.GetTenant())
	if err != nil {
		return nil, err
	}
	filter, err := s.runFilter(ctx, req)
	if err != nil {
		return nil, err
	}
	position := func(r store.RunView) string { return r.ID.String() }
	read := func(p page) ([]store.RunView, string, error) {
		before, err := idPosition[id.Run](p)
		if err != nil {
			return nil, "", err
		}
		runs, next, err := s.store.ListRuns(ctx, tenant, filter, before, p.size)
		if err != nil || next == nil {
			return runs, "", err
		}
		return runs, next.String(), nil
	}
	if req.GetTenant() == "" {
		position = func(r store.RunView) string { return placeText(r.CreatedAt, r.ID.UUID) }
		read = func(p page) ([]store.RunView, string, error) {
			before, err := placePosition(p)
			if err != nil {
				return nil, "", err
			}
			runs, next, err := s.store.ListAllRuns(ctx, filter, before, p.size)
			if err != nil || next == nil {
				return runs, "", err
			}
			return runs, placeText(next.At, next.Run), nil
		}
	}
	runs, next, err := scan(req, read, position, sizeOfRun, s.namedRun(ctx))
	return &servov1.ListRunsResponse{Runs: runs, NextPageToken: next}, err
}

// sizeOfRun is the size of a run in a page.
func sizeOfRun(r store.RunView) int { return len(r.Parameters) }

func (s runService) runFilter(ctx context.Context, req *servov1.ListRunsRequest) (store.RunFilter, error) {
	f := store.RunFilter{Workspace: req.GetWorkspace(), Pipeline: req.GetPipeline()}
	if req.GetTenant() == "" && req.GetConfig() != "" {
		return f, needsTenant("config")
	}
	if req.GetTenant() == "" && req.GetParentRun() != "" {
		return f, needsTenant("parent_run")
	}
	for _, state := range req.GetState() {
		f.States = append(f.States, run.State(state)) //nolint:gosec // the contract's numbers are the stored ones
	}
	var err error
	if f.From, err = timeOf("from", req.GetFrom()); err != nil {
		return f, err
	}
	if f.To, err = timeOf("to", req.GetTo()); err != nil {
		return f, err
	}
	if text := req.GetParentRun(); text != "" {
		parent, err := id.Parse[id.Run]("parent_run", text)
		if err != nil {
			return f, err
		}
		f.Parent = &parent
	}
	if req.GetConfig() != "" {
		of, err := configService{s.Server}.findAny(ctx, req)
		if err != nil {
			return f, err
		}
		f.Config = &of.ID
	}
	return f, nil
}

// needsTenant refuses a filter that requires a tenant.
func needsTenant(field string) error {
	return fault.New(fault.InvalidArgument, "requires a tenant", fault.Field(field), fault.Remedy("add the tenant, or remove this filter"))
}

// GetRun implements servov1.RunServiceServer.
func (s runService) GetRun(ctx context.Context, req *servov1.GetRunRequest) (*servov1.Run, error) {
	key, err := s.runKey(ctx, req)
	if err != nil {
		return nil, err
	}
	return s.readRun(ctx, req.GetTenant(), key)
}

func (s runService) readRun(ctx context.Context, tenant string, key store.RunKey) (*servov1.Run, error) {
	found, err := s.store.GetRun(ctx, key)
	if err != nil {
		return nil, err
	}
	return runToProto(tenant, found)
}

// CancelRun implements servov1.RunServiceServer.
func (s runService) CancelRun(ctx context.Context, req *servov1.CancelRunRequest) (*servov1.Run, error) {
	key, err := s.runKey(ctx, req)
	if err != nil {
		return nil, err
	}
	if _, err := s.engine.CancelRun(ctx, engine.Cancel{Tenant: key.Tenant, Run: key.Run, Reason: req.GetReason(), Alone: store.InCall(ctx), Meta: intercept.Meta(ctx)}); err != nil {
		return nil, err
	}
	return s.readRun(ctx, req.GetTenant(), key)
}

// RetryRun implements servov1.RunServiceServer.
func (s runService) RetryRun(ctx context.Context, req *servov1.RetryRunRequest) (*servov1.TriggerRunResponse, error) {
	key, err := s.runKey(ctx, req)
	if err != nil {
		return nil, err
	}
	idempotency, err := intercept.IdempotencyKey(ctx)
	if err != nil {
		return nil, err
	}
	mode := engine.RetryFailed
	switch req.GetMode() {
	case servov1.RetryRunRequest_ALL:
		mode = engine.RetryAll
	case servov1.RetryRunRequest_FROM:
		mode = engine.RetryFrom
	default: // FAILED is the default
	}
	triggered, err := s.engine.RetryRun(ctx, engine.RetryRun{
		Tenant: key.Tenant, Run: key.Run, Mode: mode, From: req.GetFrom(), TriggeredBy: intercept.Caller(ctx).Actor, Note: req.GetNote(), IdempotencyKey: idempotency,
		WaitForQuota: req.GetWaitForQuota(), Queue: req.GetQueue(), Meta: intercept.Meta(ctx),
	})
	if err != nil {
		return nil, err
	}
	return s.triggered(ctx, req.GetTenant(), key.Tenant, triggered)
}

func runToProto(tenant string, r store.RunView) (*servov1.Run, error) {
	parameters, err := structOf(r.Parameters)
	if err != nil {
		return nil, err
	}
	out := &servov1.Run{
		Id: r.ID.String(), Tenant: tenant, Workspace: r.WorkspaceName, Pipeline: r.Pipeline, State: servov1.Run_State(r.State),
		Deployment: r.Deployment.String(), Parameters: parameters, Priority: int32(r.Priority), TriggerType: r.TriggerType,
		TriggeredBy: r.TriggeredBy, PlanFingerprint: r.Fingerprint, CancelReason: r.CancelReason,
		CreatedAt: timestamp(r.CreatedAt), StartedAt: timestamp(r.StartedAt), FinishedAt: timestamp(r.FinishedAt),
		Tasks: &servov1.TaskCounts{
			Total: r.Total, Remaining: r.Remaining, Succeeded: r.Succeeded, Failed: r.Failed, Skipped: r.Skipped, Cancelled: r.Cancelled,
		},
	}
	if r.Parent != nil {
		out.ParentRun = r.Parent.String()
	}
	if r.Config != nil {
		out.Config, out.ConfigId, out.Slot = r.ConfigName, r.Config.String(), timestamp(r.Slot)
	}
	if w := r.Window; w != nil {
		out.IntervalStart, out.IntervalEnd = timestamp(w.Start), timestamp(w.End)
	}
	out.Warned, out.Quarantined = r.Warned, r.Quarantined
	out.StartBy, out.SlaBreached = timestamp(r.StartBy), r.Late || r.TimedOut
	return out, nil
}
