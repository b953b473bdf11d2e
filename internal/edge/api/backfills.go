package api

import (
	"context"
	"fmt"
	"strings"

	servov1 "go.arco.dev/servo/gen/servo/v1"
	"go.arco.dev/servo/internal/base/id"
	"go.arco.dev/servo/internal/domain/backfill"
	"go.arco.dev/servo/internal/domain/partition"
	"go.arco.dev/servo/internal/edge/intercept"
	"go.arco.dev/servo/internal/engine"
	"go.arco.dev/servo/internal/store"
)

// backfillService implements servo.v1.BackfillService.
type backfillService struct{ *Server }

// CreateBackfill implements servov1.BackfillServiceServer.
func (s backfillService) CreateBackfill(ctx context.Context, req *servov1.CreateBackfillRequest) (*servov1.Backfill, error) {
	request, err := s.backfillOf(ctx, req)
	if err != nil {
		return nil, err
	}
	created, err := s.engine.CreateBackfill(ctx, request)
	if err != nil {
		return nil, err
	}
	return s.read(ctx, store.BackfillKey{Tenant: created.Tenant, Backfill: created.ID})
}

// PreviewBackfill implements servov1.BackfillServiceServer.
func (s backfillService) PreviewBackfill(ctx context.Context, req *servov1.CreateBackfillRequest) (*servov1.PreviewBackfillResponse, error) {
	request, err := s.backfillOf(ctx, req)
	if err != nil {
		return nil, err
	}
	p, err := s.engine.PreviewBackfill(ctx, request)
	if err != nil {
		return nil, err
	}
	return &servov1.PreviewBackfillResponse{
		Asset: p.Asset, Partitions: p.Partitions, Runs: p.Runs, Tasks: p.Tasks, First: p.First, Last: p.Last, Deployment: p.Deployment.String(),
		Work: duration(p.Work), ParallelTasks: int32(p.Parallel), Eta: duration(p.ETA), UnknownAssets: int32(p.Unknown), //nolint:gosec // small counts
	}, nil
}

// backfillOf maps a request.
func (s backfillService) backfillOf(ctx context.Context, req *servov1.CreateBackfillRequest) (engine.Backfill, error) {
	tenant, err := s.tenants.ID(ctx, req.GetTenant())
	if err != nil {
		return engine.Backfill{}, err
	}
	parameters, err := jsonOfStruct("parameters", req.GetParameters())
	if err != nil {
		return engine.Backfill{}, err
	}
	settings := backfill.Settings{
		Asset: req.GetAsset(), Pipeline: req.GetPipeline(), Select: req.GetSelect(), Parameters: parameters, Partitions: req.GetPartitions(),
		ChunkSize: req.GetChunkSize(), MaxConcurrentRuns: req.GetMaxConcurrentRuns(), StopOnFailure: req.GetStopOnFailure(),
		FailureThreshold: req.GetFailureThreshold(), Note: req.GetNote(),
	}
	if only := req.GetOnly(); only != servov1.CreateBackfillRequest_ONLY_UNSPECIFIED {
		settings.Only = backfill.Only(only.String())
	}
	if order := req.GetOrder(); order != servov1.CreateBackfillRequest_ORDER_UNSPECIFIED {
		settings.Order = partition.Order(strings.ToLower(order.String()))
	}
	return engine.Backfill{Tenant: tenant, Workspace: orDefault(req.GetWorkspace()), Settings: settings, Follow: req.GetFollow(), Meta: intercept.Meta(ctx)}, nil
}

// ListBackfills implements servov1.BackfillServiceServer.
func (s backfillService) ListBackfills(ctx context.Context, req *servov1.ListBackfillsRequest) (*servov1.ListBackfillsResponse, error) {
	tenant, err := s.tenants.ID(ctx, req.GetTenant())
	if err != nil {
		return nil, err
	}
	filter := store.BackfillFilter{Tenant: tenant, Workspace: req.GetWorkspace(), Asset: req.GetAsset()}
	for _, state := range req.GetStates() {
		filter.States = append(filter.States, backfill.State(state)) //nolint:gosec // the contract's numbers are the stored ones
	}
	backfills, next, err := list(req, func(p page) (_ []store.BackfillView, err error) {
		if p.after != "" {
			if filter.Before, err = id.Parse[id.Backfill]("page_token", p.after); err != nil {
				return nil, err
			}
		}
		return s.store.ListBackfills(ctx, filter, p.size+1)
	}, func(b store.BackfillView) string { return b.ID.String() }, func(b store.BackfillView) int { return len(b.Settings.Parameters) }, backfillToProto)
	return &servov1.ListBackfillsResponse{Backfills: backfills, NextPageToken: next}, err
}

// aboutBackfill is a request that names a backfill.
type aboutBackfill interface {
	GetTenant() string
	GetWorkspace() string
	GetBackfill() string
}

// find returns the key of a backfill of the named workspace.
func (s backfillService) find(ctx context.Context, req aboutBackfill) (store.BackfillView, error) {
	tenant, err := s.tenants.ID(ctx, req.GetTenant())
	if err != nil {
		return store.BackfillView{}, err
	}
	of, err := id.Parse[id.Backfill]("backfill", req.GetBackfill())
	if err != nil {
		return store.BackfillView{}, err
	}
	key := store.BackfillKey{Tenant: tenant, Backfill: of}
	found, err := s.store.GetBackfill(ctx, key)
	if err == nil && found.WorkspaceName != orDefault(req.GetWorkspace()) {
		err = store.MissingBackfill(key) // of another workspace
	}
	return found, err
}

// GetBackfill implements servov1.BackfillServiceServer.
func (s backfillService) GetBackfill(ctx context.Context, req *servov1.GetBackfillRequest) (*servov1.Backfill, error) {
	found, err := s.find(ctx, req)
	if err != nil {
		return nil, err
	}
	return backfillToProto(found)
}

func (s backfillService) read(ctx context.Context, key store.BackfillKey) (*servov1.Backfill, error) {
	found, err := s.store.GetBackfill(ctx, key)
	if err != nil {
		return nil, err
	}
	return backfillToProto(found)
}

// ListBackfillRuns implements servov1.BackfillServiceServer.
func (s backfillService) ListBackfillRuns(ctx context.Context, req *servov1.ListBackfillRunsRequest) (*servov1.ListBackfillRunsResponse, error) {
	found, err := s.find(ctx, req)
	if err != nil {
		return nil, err
	}
	key := store.BackfillKey{Tenant: found.Tenant, Backfill: found.ID}
	runs, next, err := list(req, func(p page) ([]store.BackfillRun, error) {
		round, chunk := int32(1<<30), int32(0)
		if p.after != "" {
			if _, err := fmt.Sscanf(p.after, "%d.%d", &round, &chunk); err != nil {
				return nil, fmt.Errorf("page token %q: %w", p.after, err)
			}
		}
		return s.store.ListBackfillRuns(ctx, key, round, chunk, p.size+1)
	}, func(r store.BackfillRun) string { return fmt.Sprintf("%d.%d", r.Round, r.Chunk) }, nil, sure(backfillRunToProto))
	return &servov1.ListBackfillRunsResponse{Runs: runs, NextPageToken: next}, err
}

func backfillRunToProto(r store.BackfillRun) *servov1.BackfillRun {
	return &servov1.BackfillRun{
		Round: r.Round, Chunk: r.Chunk, Run: r.Run.String(), State: servov1.Run_State(r.State), StartedAt: timestamp(r.StartedAt), EndedAt: timestamp(r.EndedAt),
		Failed: r.Failed, Skipped: r.Skipped, Tasks: r.Tasks, TasksLeft: r.Left, TasksFailed: r.FailedTasks,
	}
}

// PauseBackfill implements servov1.BackfillServiceServer.
func (s backfillService) PauseBackfill(ctx context.Context, req *servov1.PauseBackfillRequest) (*servov1.Backfill, error) {
	return s.change(ctx, req, func(key store.BackfillKey) error {
		return s.engine.PauseBackfill(ctx, key, req.GetReason(), intercept.Meta(ctx))
	})
}

// ResumeBackfill implements servov1.BackfillServiceServer.
func (s backfillService) ResumeBackfill(ctx context.Context, req *servov1.ResumeBackfillRequest) (*servov1.Backfill, error) {
	return s.change(ctx, req, func(key store.BackfillKey) error { return s.engine.ResumeBackfill(ctx, key, intercept.Meta(ctx)) })
}

// CancelBackfill implements servov1.BackfillServiceServer.
func (s backfillService) CancelBackfill(ctx context.Context, req *servov1.CancelBackfillRequest) (*servov1.Backfill, error) {
	return s.change(ctx, req, func(key store.BackfillKey) error {
		return s.engine.CancelBackfill(ctx, key, req.GetReason(), intercept.Meta(ctx))
	})
}

// RetryBackfill implements servov1.BackfillServiceServer.
func (s backfillService) RetryBackfill(ctx context.Context, req *servov1.RetryBackfillRequest) (*servov1.Backfill, error) {
	return s.change(ctx, req, func(key store.BackfillKey) error {
		return s.engine.RetryBackfill(ctx, key, req.GetFailedOnly(), intercept.Meta(ctx))
	})
}

// change changes a backfill and returns it.
func (s backfillService) change(ctx context.Context, req aboutBackfill, do func(store.BackfillKey) error) (*servov1.Backfill, error) {
	found, err := s.find(ctx, req)
	if err != nil {
		return nil, err
	}
	key := store.BackfillKey{Tenant: found.Tenant, Backfill: found.ID}
	if err := do(key); err != nil {
		return nil, err
	}
	return s.read(ctx, key)
}

func backfillToProto(b store.BackfillView) (*servov1.Backfill, error) {
	parameters, err := structOf(b.Settings.Parameters)
	if err != nil {
		return nil, err
	}
	answer := &servov1.Backfill{
		Id: b.ID.String(), Workspace: b.WorkspaceName, State: servov1.Backfill_State(b.State), Reason: b.Reason, WaitsFor: b.WaitsFor,
		Asset: b.Settings.Asset, Pipeline: b.Settings.Pipeline, Select: b.Settings.Select, Parameters: parameters, Partitions: b.Settings.Partitions,
		Only:      servov1.CreateBackfillRequest_Only(servov1.CreateBackfillRequest_Only_value[string(b.Settings.Only)]),
		Order:     servov1.CreateBackfillRequest_Order(servov1.CreateBackfillRequest_Order_value[strings.ToUpper(string(b.Settings.Order))]),
		ChunkSize: b.Settings.ChunkSize, MaxConcurrentRuns: b.Settings.MaxConcurrentRuns, StopOnFailure: b.Settings.StopOnFailure,
		FailureThreshold: b.Settings.FailureThreshold, Note: b.Settings.Note,
		Total: b.Total, Completed: b.Completed, Failed: b.Failed, Skipped: b.Skipped, Pending: b.Pending(),
		Round: b.Round, Runs: b.Chunks, StartedRuns: b.Next, OpenRuns: b.Open, CreatedBy: b.CreatedBy, CreatedAt: timestamp(b.CreatedAt),
		PausedAt: timestamp(b.PausedAt), FinishedAt: timestamp(b.FinishedAt), Version: b.Version,
	}
	if b.Settings.Deployment != (id.Deployment{}) {
		answer.Deployment = b.Settings.Deployment.String()
	}
	return answer, nil
}
