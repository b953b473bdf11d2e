package api

import (
	"context"
	"strconv"

	servov1 "go.arco.dev/servo/gen/servo/v1"
	"go.arco.dev/servo/internal/base/id"
	"go.arco.dev/servo/internal/domain/run"
	"go.arco.dev/servo/internal/store"
)

// taskService implements servo.v1.TaskService.
type taskService struct{ *Server }

// taskKey returns the key of the task that a request names.
func (s *Server) taskKey(ctx context.Context, req interface {
	GetTenant() string
	GetRun() string
	GetTask() string
},
) (store.TaskKey, error) {
	key, err := s.runKey(ctx, req)
	if err != nil {
		return store.TaskKey{}, err
	}
	wanted, err := id.Parse[id.Task]("task", req.GetTask())
	return store.TaskKey{Tenant: key.Tenant, Run: key.Run, Task: wanted}, err
}

// ListTasks implements servov1.TaskServiceServer.
func (s taskService) ListTasks(ctx context.Context, req *servov1.ListTasksRequest) (*servov1.ListTasksResponse, error) {
	key, err := s.runKey(ctx, req)
	if err != nil {
		return nil, err
	}
	filter := store.TaskFilter{Asset: req.GetAsset()}
	for _, state := range req.GetState() {
		filter.States = append(filter.States, run.TaskState(state)) //nolint:gosec // the contract's numbers are the stored ones
	}
	tasks, next, err := list(req, func(p page) ([]store.TaskView, error) {
		after, err := indexPosition(p)
		if err != nil {
			return nil, err
		}
		tasks, err := s.store.ListTasks(ctx, key, filter, after, p.size+1)
		if err == nil && len(tasks) == 0 {
			_, err = s.store.GetRun(ctx, key) // reports a run that does not exist
		}
		return tasks, err
	}, func(t store.TaskView) string { return strconv.Itoa(int(t.Index)) },
		func(t store.TaskView) int { return len(t.Result) + sizeOfFailure(t.Failure) + len(t.Cursor) },
		func(t store.TaskView) (*servov1.Task, error) { return taskToProto(key.Run, t) })
	return &servov1.ListTasksResponse{Tasks: tasks, NextPageToken: next}, err
}

// GetTask implements servov1.TaskServiceServer.
func (s taskService) GetTask(ctx context.Context, req *servov1.GetTaskRequest) (*servov1.Task, error) {
	key, err := s.taskKey(ctx, req)
	if err != nil {
		return nil, err
	}
	task, err := s.store.GetTask(ctx, key)
	if err != nil {
		return nil, err
	}
	attempts, err := s.store.Attempts(ctx, key)
	if err != nil {
		return nil, err
	}
	progress, err := s.store.AttemptProgress(ctx, key)
	if err != nil {
		return nil, err
	}
	out, err := taskToProto(key.Run, task)
	if err != nil {
		return nil, err
	}
	inputs, err := s.store.TaskInputs(ctx, key)
	if err != nil {
		return nil, err
	}
	for _, in := range inputs {
		out.Inputs = append(out.Inputs, &servov1.TaskInput{Asset: in.Asset, Partition: in.Partition, Run: in.Run.String(), Task: in.Task.String()})
	}
	for _, a := range attempts {
		failure, err := failureToProto(a.Failure)
		if err != nil {
			return nil, err
		}
		attempt := &servov1.Attempt{
			Number: a.Number, Worker: a.Worker, ClaimedAt: timestamp(a.ClaimedAt), StartedAt: timestamp(a.StartedAt), EndedAt: timestamp(a.EndedAt),
			Ended: string(a.End), Failure: failure,
		}
		if kept, reported := progress[a.Number]; reported {
			addProgress(attempt, a, kept)
		}
		out.Attempts = append(out.Attempts, attempt)
	}
	return out, nil
}

// ListUpstreamTasks implements servov1.TaskServiceServer.
func (s taskService) ListUpstreamTasks(ctx context.Context, req *servov1.ListUpstreamTasksRequest) (*servov1.ListUpstreamTasksResponse, error) {
	key, err := s.taskKey(ctx, req)
	if err != nil {
		return nil, err
	}
	tasks, next, err := list(req, func(p page) ([]store.UpstreamTask, error) {
		after, err := indexPosition(p)
		if err != nil {
			return nil, err
		}
		tasks, err := s.store.UpstreamTasks(ctx, key, after, p.size+1)
		if err == nil && len(tasks) == 0 {
			_, err = s.store.GetTask(ctx, key) // reports a task that does not exist
		}
		return tasks, err
	}, func(t store.UpstreamTask) string { return strconv.Itoa(int(t.Index)) }, func(t store.UpstreamTask) int { return len(t.Result) }, upstreamToProto)
	return &servov1.ListUpstreamTasksResponse{Tasks: tasks, NextPageToken: next}, err
}

func taskToProto(of id.Run, t store.TaskView) (*servov1.Task, error) {
	result, err := valueOf(t.Result)
	if err != nil {
		return nil, err
	}
	failure, err := failureToProto(t.Failure)
	if err != nil {
		return nil, err
	}
	out := &servov1.Task{
		Id: t.ID.String(), Run: of.String(), Index: t.Index, Asset: t.Asset, Partition: t.Partition, State: servov1.Task_State(t.State),
		Outcome: string(t.Outcome), Since: timestamp(t.Since), Pool: t.Pool, Priority: int32(t.Priority), Timeout: duration(t.Timeout),
		Attempt: t.Attempt, Failures: t.Failures, CreatedAt: timestamp(t.CreatedAt), FinishedAt: timestamp(t.FinishedAt),
		Result: result, Failure: failure, LateResult: t.LateResult, DueAt: timestamp(t.DueAt), Cursor: t.Cursor,
		Worker: t.Worker, StartedAt: timestamp(t.StartedAt), Deadline: timestamp(t.Deadline), HeartbeatAt: timestamp(t.SeenAt),
		CancelRequested: t.CancelRequested, Progress: progressOfTask(t),
	}
	return out, nil
}

func failureToProto(f *run.Failure) (*servov1.Failure, error) {
	if f == nil {
		return nil, nil //nolint:nilnil // nothing failed
	}
	details, err := structOf(f.Details)
	if err != nil {
		return nil, err
	}
	return &servov1.Failure{
		Code: f.Code, Message: f.Message, Details: details, SuggestedAction: f.SuggestedAction, Class: string(run.ClassOf(f.Code)),
	}, nil
}

func sizeOfFailure(f *run.Failure) int {
	if f == nil {
		return 0
	}
	return len(f.Message) + len(f.Details) + len(f.SuggestedAction)
}
