package api

import (
	"context"

	"google.golang.org/protobuf/types/known/structpb"

	servov1 "go.arco.dev/servo/gen/servo/v1"
	"go.arco.dev/servo/internal/base/id"
	"go.arco.dev/servo/internal/domain/push"
	"go.arco.dev/servo/internal/engine"
)

// ExplainTask implements servov1.TaskServiceServer.
func (s taskService) ExplainTask(ctx context.Context, req *servov1.ExplainTaskRequest) (*servov1.Explanation, error) {
	key, err := s.taskKey(ctx, req)
	if err != nil {
		return nil, err
	}
	why, err := s.engine.WhyTask(ctx, key)
	if err != nil {
		return nil, err
	}
	return s.explanation(why)
}

// ExplainRun implements servov1.RunServiceServer.
func (s runService) ExplainRun(ctx context.Context, req *servov1.ExplainRunRequest) (*servov1.Explanation, error) {
	key, err := s.runKey(ctx, req)
	if err != nil {
		return nil, err
	}
	why, err := s.engine.WhyRun(ctx, key)
	if err != nil {
		return nil, err
	}
	return s.explanation(why)
}

// explanation adds what this server alone knows.
func (s *Server) explanation(why engine.Why) (*servov1.Explanation, error) {
	if s.options.Breakers != nil && why.Pool != "" {
		if b, known := s.options.Breakers.Breaker(why.Pool); known && b.State == push.BreakerOpen {
			why = why.BreakerOpen(b.RetryAt)
		}
	}
	answer := &servov1.Explanation{
		Run: why.Run.String(), Pipeline: why.Pipeline, Asset: why.Asset, State: why.State, Since: timestamp(why.Since), Next: why.Next,
	}
	if why.Config != (id.Config{}) {
		answer.Config, answer.Name = why.Config.String(), why.Name
		if why.Run == (id.Run{}) {
			answer.Run = ""
		}
	}
	if why.Task != (id.Task{}) {
		answer.Task = why.Task.String()
	}
	for _, b := range why.Blockers {
		values, err := structpb.NewStruct(b.Values)
		if err != nil {
			return nil, err
		}
		answer.Blockers = append(answer.Blockers, &servov1.Blocker{Code: string(b.Code), Message: b.Message, Remedy: b.Remedy, Values: values})
	}
	return answer, nil
}
